#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Records trace.json, timeline.json and changes.json of this folder: two training steps under PyTorch's profiler, on the CPU.

Needs PyTorch; the files were made with 2.9.0. Messages of the machine that it ran on are taken out of the trace."""

import gzip
import json
import os

import torch
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16))
optimizer = torch.optim.Adam(model.parameters())


def step():
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as profiler:
    for _ in range(2):
        step()

profiler.export_chrome_trace("trace.json")
profiler.export_memory_timeline("timeline.json", device="cpu")
profiler.export_memory_timeline("changes.raw.json.gz", device="cpu")
with open("changes.json", "wb") as changes:
    changes.write(gzip.open("changes.raw.json.gz").read())
os.remove("changes.raw.json.gz")
with open("trace.json", encoding="utf-8") as file:
    trace = json.load(file)
for key in ("ERROR", "WARNING", "trace_id", "traceName"):
    trace.pop(key, None)
with open("trace.json", "w", encoding="utf-8") as file:
    json.dump(trace, file, separators=(",", ":"))
