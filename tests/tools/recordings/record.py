#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Runs small models on a GPU and writes what they allocate, each block tagged with what it is for: record.py OUTDIR [NAME...]
Without names all of them. Needs PyTorch with CUDA, and the zstd program, or without it compresses nothing."""

import bisect
import collections
import copy
import gc
import os
import pickle
import shutil
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


class Residual(nn.Module):
    def __init__(self, narrow, wide):
        super().__init__()
        self.norm = nn.GroupNorm(8, narrow)
        self.first = nn.Conv2d(narrow, wide, 3, 1, 1)
        self.second = nn.Conv2d(wide, wide, 3, 1, 1)
        self.across = nn.Conv2d(narrow, wide, 1)

    def forward(self, x):
        return self.across(x) + self.second(F.silu(self.first(F.silu(self.norm(x)))))


class UNet(nn.Module):
    """Takes a picture with noise, and gives the noise."""

    def __init__(self):
        super().__init__()
        widths = (32, 64, 128, 256)
        self.enter = nn.Conv2d(3, widths[0], 3, 1, 1)
        self.down = nn.ModuleList(Residual(a, b) for a, b in zip(widths, widths[1:]))
        self.middle = Residual(widths[-1], widths[-1])
        self.up = nn.ModuleList(Residual(2 * b, a) for a, b in zip(widths[-2::-1], widths[::-1]))
        self.leave = nn.Conv2d(widths[0], 3, 3, 1, 1)

    def forward(self, x):
        x, kept = self.enter(x), []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for stage in self.up:
            x = stage(torch.cat((F.interpolate(x, scale_factor=2), kept.pop()), 1))
        return self.leave(x)


class Adapted(nn.Module):
    """A linear layer that stays as it is, and a narrow one beside it that is trained."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.narrow = nn.Linear(inner.in_features, 16, bias=False)
        self.wide = nn.Linear(16, inner.out_features, bias=False)

    def forward(self, x):
        return self.inner(x) + self.wide(self.narrow(x))


def adapted():
    net = GPT(1024).requires_grad_(False)
    for layer in net.layers:
        layer.attention.qkv, layer.up, layer.down = Adapted(layer.attention.qkv), Adapted(layer.up), Adapted(layer.down)
    return net


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12000, 512)
        self.lstm = nn.LSTM(512, 768, 3, batch_first=True, dropout=0.1)
        self.head = nn.Linear(768, 12000)

    def forward(self, x):
        return self.head(self.lstm(self.embedding(x))[0])


class Static:
    """Keys and values of all layers, allocated once for the longest sequence that there may be."""

    def __init__(self, layers, batch, width, longest):
        self.tensors = [torch.zeros(2, batch, 8, longest, width // 8, device="cuda") for _ in range(layers)]
        self.length = 0


class Server(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.embedding = nn.Embedding(8000, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(6))
        self.head = nn.Linear(width, 8000)

    def forward(self, x, static):
        length = static.length + x.shape[1]
        x = self.embedding(x)
        for layer, tensor in zip(self.layers, static.tensors):
            batch, new, width = x.shape
            q, k, v = [part.view(batch, new, 8, -1).transpose(1, 2) for part in layer.attention.qkv(layer.norm1(x)).split(width, 2)]
            tensor[0, :, :, static.length:length] = k
            tensor[1, :, :, static.length:length] = v
            seen = F.scaled_dot_product_attention(q, tensor[0, :, :, :length], tensor[1, :, :, :length])
            x = x + layer.attention.out(seen.transpose(1, 2).reshape(batch, new, width))
            x = x + layer.down(F.gelu(layer.up(layer.norm2(x))))
        static.length = length
        return self.head(x[:, -1:])


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


def train_unet(name):
    """With an average of the weights that is kept beside them."""
    begin()
    net = UNet().cuda()
    average = copy.deepcopy(net)
    mark("weights", *net.parameters(), *average.parameters())
    step = torch.optim.Adam(net.parameters(), 1e-4, foreach=True)
    for size in (96, 128, 64, 112):
        clean, noise = torch.rand(16, 3, size, size).cuda(), torch.randn(16, 3, size, size, device="cuda")
        mark("activations", clean, noise)
        with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor):
            loss = F.mse_loss(net(clean + noise), noise)
        step.zero_grad()
        loss.backward()
        mark("gradients", *[parameter.grad for parameter in net.parameters()])
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        step.step()
        mark("optimizer", *[tensor for state in step.state.values() for tensor in state.values()])
        with torch.no_grad():
            for kept, new in zip(average.parameters(), net.parameters()):
                kept.lerp_(new, 0.1)
    write(name)


def train_adapters(name):
    begin()
    net = adapted().to("cuda", torch.bfloat16)
    mark("weights", *net.parameters())
    learned = [parameter for parameter in net.parameters() if parameter.requires_grad]
    step = torch.optim.AdamW(learned, fused=True)
    for _ in range(4):
        x, y = torch.randint(8000, (2, 6, 320)).cuda()
        mark("activations", x, y)
        with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor):
            loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
        loss.backward()
        mark("gradients", *[parameter.grad for parameter in learned])
        step.step()
        mark("optimizer", *[tensor for state in step.state.values() for tensor in state.values()])
        step.zero_grad()
    write(name)


def train_recurrent(name):
    begin()
    net = Recurrent().cuda()
    mark("weights", *net.parameters())
    step = torch.optim.RMSprop(net.parameters(), momentum=0.9)
    for length in (120, 190, 60, 150):
        x, y = [torch.randint(12000, (16, length)).cuda() for _ in range(2)]
        mark("activations", x, y)
        with torch.autograd.graph.saved_tensors_hooks(saved, lambda tensor: tensor):
            loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
        step.zero_grad(set_to_none=False)
        loss.backward()
        mark("gradients", *[parameter.grad for parameter in net.parameters()])
        step.step()
        mark("optimizer", *[tensor for state in step.state.values() for tensor in state.values()])
    write(name)


def serve(name):
    begin()
    net = Server().cuda()
    mark("weights", *net.parameters())
    with torch.inference_mode():
        static = Static(6, 8, 768, 512)
        mark("caches", *static.tensors)
        for prompt in (100, 260, 40):
            static.length = 0
            x = torch.randint(8000, (8, prompt)).cuda()
            for _ in range(24):
                x = net(x, static).argmax(-1)
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
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-19", "-q", "-f", "--rm", path], check=True)


def main():
    text = lambda: [torch.randint(8000, (8, 256)) for _ in range(2)]
    images = lambda: (torch.randn(32, 3, 128, 128), torch.randint(1000, (32,)))
    momentum = lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)
    programs = {
        "gpt-adamw": lambda name: train(name, GPT, text, torch.optim.AdamW),
        "gpt-generate": generate,
        "cnn-sgd": lambda name: train(name, convolutional, images, momentum),
        "gpt-amp": lambda name: train(name, GPT, text, torch.optim.AdamW, autocast=True, accumulate=2),
        "gpt-check": lambda name: train(name, lambda: GPT(768, checkpointed=True), text, torch.optim.AdamW),
        "unet-ema": train_unet,
        "gpt-adapters": train_adapters,
        "lstm-rmsprop": train_recurrent,
        "gpt-serve": serve,
    }
    for name in sys.argv[2:] or programs:
        programs[name](name)


main()
