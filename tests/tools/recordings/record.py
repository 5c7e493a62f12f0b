#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Runs small models on a GPU and writes what they allocate, each block tagged with what it is for: record.py OUTDIR
Needs PyTorch with CUDA, and the zstd program."""

import bisect
import collections
import gc
import os
import pickle
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

memory = torch.cuda.memory
marks = []  # (time in us, address, what lies there)
ORDER = ("weights", "optimizer", "caches", "gradients", "activations")  # where a block has several marks, the first


def mark(category, *tensors):
    for tensor in tensors:
        if torch.is_tensor(tensor) and tensor.is_cuda:
            marks.append((time.time_ns() // 1000, tensor.data_ptr(), category))


def saved(tensor):
    mark("activations", tensor)
    return tensor


# --- the models ---


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        q, k, v = [part.view(batch, length, 8, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2)]
        if cache is not None:
            if cache:
                k = torch.cat((cache[0], k), 2)
                v = torch.cat((cache[1], v), 2)
            cache[:] = k, v
            mark("caches", k, v)
        weights = (q @ k.transpose(-2, -1) / 8).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, width=512, checkpointed=False):
        super().__init__()
        self.embedding = nn.Embedding(8000, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(6))
        self.head = nn.Linear(width, 8000)
        self.checkpointed = checkpointed

    def forward(self, x, caches=None):
        x = self.embedding(x)
        for i, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x, caches and caches[i])
        return self.head(x)


def convolutional():
    layers = []
    for i in range(8):
        layers += [nn.Conv2d(3 if i == 0 else 64 << (i - 1) // 2, 64 << i // 2, 3, 2 if i % 2 else 1, 1),
                   nn.BatchNorm2d(64 << i // 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


# --- what they do ---


def begin():
    gc.collect()
    memory.empty_cache()
    marks.clear()
    memory._record_memory_history(max_entries=400000, stacks="all")


def train(name, model, data, optimizer, autocast=False, accumulate=1):
    begin()
    net = model().cuda()
    mark("weights", *net.parameters(), *net.buffers())
    step = optimizer(net.parameters())
    for _ in range(3):
        for _ in range(accumulate):
            x, y = [tensor.cuda() for tensor in data()]
            mark("activations", x, y)
            with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor), \
                    torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
            loss.backward()
        mark("gradients", *[parameter.grad for parameter in net.parameters()])
        step.step()
        mark("optimizer", *[tensor for state in step.state.values() for tensor in state.values()])
        step.zero_grad()
    write(name)


def generate(name):
    begin()
    net = GPT().cuda()
    mark("weights", *net.parameters())
    with torch.no_grad():
        for batch in (4, 16, 8):
            caches = [[] for _ in range(6)]
            x = torch.randint(8000, (batch, 300)).cuda()
            for _ in range(30):
                x = net(x, caches)[:, -1:].argmax(-1)
    write(name)


# --- the truth ---


def blocks_of(trace):
    """By address: the lives of its blocks, [from, to, size, number of the event]."""
    lives, alive = collections.defaultdict(list), {}
    for number, event in enumerate(trace):
        if event["action"] == "alloc":
            alive[event["addr"]] = [event["time_us"], 1 << 62, event["size"], number]
            lives[event["addr"]].append(alive[event["addr"]])
        elif event["action"] == "free_requested" and event["addr"] in alive:
            alive.pop(event["addr"])[1] = event["time_us"]
    return lives


def truth_of(trace):
    """What the marks say, by the number of the event that allocated it."""
    lives, truth = blocks_of(trace), {}
    addresses = sorted(lives)
    for when, address, category in marks:
        for place in range(bisect.bisect_right(addresses, address) - 1, -1, -1):
            begun = [life for life in lives[addresses[place]] if life[0] <= when + 3 and when < life[1]
                     and address < addresses[place] + max(life[2], 1)]
            if begun:
                number = begun[-1][3]
                truth[number] = min(category, truth.get(number, category), key=ORDER.index)
                break
            if address - addresses[place] > 1 << 31:
                break
    return truth


def write(name):
    torch.cuda.synchronize()
    snapshot = memory._snapshot()
    memory._record_memory_history(enabled=None)
    trace = snapshot["device_traces"][0]
    truth, frames, stacks, events = truth_of(trace), {}, {}, []
    for number, event in enumerate(trace):
        kept = {"action": event["action"], "addr": event.get("addr", 0), "size": event["size"], "stream": event["stream"],
                "time_us": event["time_us"]}
        if event["action"] == "alloc":
            key = tuple((frame["name"][:160], frame["filename"], frame["line"]) for frame in event.get("frames", []))
            names = " ".join(frame[0] for frame in key)
            if key not in stacks:
                stacks[key] = [frames.setdefault(frame, dict(zip(("name", "filename", "line"), frame))) for frame in key]
            kept["frames"] = stacks[key]
            workspace = "orkspace" in names or "run_conv_plan" in names
            kept["user_metadata"] = truth.get(number) or ("workspaces" if workspace else "temporaries")
        events.append(kept)
    begun = {event["addr"] for event in events if event["action"] == "alloc"}
    segments = []
    for segment in snapshot["segments"]:
        blocks = [{key: block[key] for key in ("address", "size", "requested_size", "state")} for block in segment["blocks"]]
        for block in blocks:
            if block["address"] not in begun:
                block["state"] = "inactive"
        segments.append({key: segment[key] for key in ("device", "address", "total_size", "stream", "segment_type", "is_expandable")}
                        | {"blocks": blocks})
    path = os.path.join(sys.argv[1], name + ".pickle")
    with open(path, "wb") as file:
        pickle.dump({"segments": segments, "device_traces": [events]}, file, 4)
    subprocess.run(["zstd", "-19", "-q", "-f", "--rm", path], check=True)


def main():
    text = lambda: [torch.randint(8000, (8, 256)) for _ in range(2)]
    images = lambda: (torch.randn(32, 3, 128, 128), torch.randint(1000, (32,)))
    train("gpt-adamw", GPT, text, torch.optim.AdamW)
    generate("gpt-generate")
    train("cnn-sgd", convolutional, images, lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9))
    train("gpt-amp", GPT, text, torch.optim.AdamW, autocast=True, accumulate=2)
    train("gpt-check", lambda: GPT(768, checkpointed=True), text, torch.optim.AdamW)


main()
