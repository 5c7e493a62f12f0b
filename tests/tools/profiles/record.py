#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Records two training steps under PyTorch's profiler: trace.json, timeline.json and changes.json on the CPU, which are in this folder;
with `cuda` as its argument trace-cuda.json and the other two of the same ending, on a GPU.

Needs PyTorch; the files were made with 2.9.0, those of a GPU with 2.11.0. Messages of the machine that it ran on are taken out of the
trace."""

import gzip
import json
import os
import sys

import torch
from torch.profiler import ProfilerActivity, profile

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
ending = "" if device == "cpu" else f"-{device}"
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 16)).to(device)
optimizer = torch.optim.Adam(model.parameters())


def step():
    model(torch.randn(32, 64, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device == "cuda" else [])
with profile(activities=activities, profile_memory=True, record_shapes=True, with_stack=True) as profiler:
    for _ in range(2):
        step()

profiler.export_chrome_trace(f"trace{ending}.json")
where = device if device == "cpu" else f"{device}:0"
profiler.export_memory_timeline(f"timeline{ending}.json", device=where)
profiler.export_memory_timeline("changes.raw.json.gz", device=where)
with open(f"changes{ending}.json", "wb") as changes:
    changes.write(gzip.open("changes.raw.json.gz").read())
os.remove("changes.raw.json.gz")
with open(f"trace{ending}.json", encoding="utf-8") as file:
    trace = json.load(file)
for key in ("ERROR", "WARNING", "trace_id", "traceName"):
    trace.pop(key, None)
with open(f"trace{ending}.json", "w", encoding="utf-8") as file:
    json.dump(trace, file, separators=(",", ":"))
