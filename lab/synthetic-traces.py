#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Writes traces of invented programs, in the layout of torch.cuda.memory._dump_snapshot.

Each program has a shape of its own: lengths that change, caches that grow, experts that are busy by turns, pictures of many sizes, several
streams. They show how an allocator does on programs for which it was not tuned. The same seed gives the same traces."""

import argparse
import pickle
import random
from pathlib import Path

KIB, MIB = 1 << 10, 1 << 20
MS = 1000  # microseconds
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


class Trace:
    """A trace in progress: blocks have made-up addresses, and time passes by what the program says."""

    def __init__(self, seed):
        self.events, self.now, self.blocks = [], 0.0, 0
        self.random = random.Random(seed)
        self.sizes = {}  # address: (size, stream)
        self.later = []  # (time, address): frees that complete when another stream is done

    def event(self, action, address, size, stream):
        self.events.append({"action": action, "addr": address, "size": size, "stream": stream, "time_us": int(self.now)})

    def take(self, size, stream=0):
        self.blocks += 1
        address = self.blocks << 40
        size = max(int(size), 1)
        self.sizes[address] = (size, stream)
        self.event("alloc", address, size, stream)
        return address

    def give(self, address, used_until=None):
        """Frees a block. used_until: when another stream is done with it."""
        size, stream = self.sizes.pop(address)
        self.event("free_requested", address, size, stream)
        if used_until is None:
            self.event("free_completed", address, size, stream)
        else:
            self.later.append((used_until, address, size, stream))

    def wait(self, us):
        self.now += us
        for entry in sorted(e for e in self.later if e[0] <= self.now):
            self.later.remove(entry)
            self.event("free_completed", entry[1], entry[2], entry[3])

    def small(self, count, stream=0):
        """What a step has of small blocks, which live briefly."""
        blocks = [self.take(self.random.choice([4, 512, 2048, 20 * KIB, 300 * KIB]), stream) for _ in range(count)]
        for block in blocks:
            self.give(block)

    def weights(self, sizes, states):
        """Weights, their gradients, and as many states of an optimizer."""
        return [[self.take(size) for size in sizes] for _ in range(1 + states)]


@program
def lengths(trace):
    """Training of a transformer, another length and batch in each step; gradients are made anew."""
    width, layers = 2048, 16
    sizes = [4 * width * width * 2, 8 * width * width * 2] * layers
    trace.weights(sizes + [32000 * width * 2], 2)
    for _ in range(60):
        tokens = trace.random.randint(700, 9000)
        length = min(tokens, trace.random.choice([512, 1024, 2048, 4096]))
        saved = []
        for _ in range(layers):
            for factor in (1, 3, 1, 4, 1):
                saved.append(trace.take(tokens * width * 2 * factor))
            scratch = trace.take(tokens * length * 4)
            trace.small(6)
            trace.give(scratch)
            trace.wait(0.5 * MS)
        logits = trace.take(tokens * 32000 * 2)
        loss = trace.take(tokens * 32000 * 4)
        trace.give(logits)
        gradients = []
        for index, block in enumerate(reversed(saved)):
            if index % 5 == 0:
                gradients.append(trace.take(sizes[(index // 5) % 2]))
                temporary = trace.take(tokens * width * 2 * 4)
                trace.wait(MS)
                trace.give(temporary)
            trace.give(block)
        trace.give(loss)
        trace.small(40)
        for gradient in gradients:
            trace.give(gradient)
        trace.wait(3 * MS)


@program
def caches(trace):
    """Generation for requests that come and go; each grows a cache, which moves when it is full."""
    layers, row = 24, 2 * 2048 * 2
    trace.weights([60 * MIB] * layers, 0)
    requests = []
    for step in range(900):
        while len(requests) < 24 and trace.random.random() < 0.3:
            prompt = trace.random.randint(30, 1500)
            requests.append({
                "length": prompt, "end": prompt + trace.random.randint(20, 900), "room": prompt + 64,
                "blocks": [trace.take((prompt + 64) * row) for _ in range(layers)]})
            work = [trace.take(prompt * 2048 * 2 * factor) for factor in (1, 3, 4)]
            trace.wait(2 * MS)
            for block in work:
                trace.give(block)
        for request in requests:
            request["length"] += 1
            if request["length"] > request["room"]:
                request["room"] = int(request["room"] * 1.25) + 1
                for i, old in enumerate(request["blocks"]):
                    request["blocks"][i] = trace.take(request["room"] * row)
                    trace.give(old)
        logits = trace.take(max(len(requests), 1) * 32000 * 4)
        if step % 10 == 0:
            trace.small(8)
        trace.wait(12 * MS)
        trace.give(logits)
        for request in [r for r in requests if r["length"] >= r["end"]]:
            requests.remove(request)
            for block in request["blocks"]:
                trace.give(block)


@program
def experts(trace):
    """Training of a mixture of experts: how much each is given changes with every layer and step."""
    width, layers, experts_count, tokens = 1536, 12, 16, 16384
    trace.weights([experts_count * 8 * width * width] * layers, 1)
    for _ in range(50):
        saved = []
        for _ in range(layers):
            saved.append(trace.take(tokens * width * 2))
            shares = [trace.random.expovariate(1) for _ in range(experts_count)]
            for share in shares:
                given = int(tokens * 2 * share / sum(shares)) + 1
                saved.append(trace.take(given * width * 2))
                saved.append(trace.take(given * width * 4 * 2))
                scratch = trace.take(given * width * 4 * 2)
                trace.give(scratch)
            joined = trace.take(tokens * 2 * width * 2)
            trace.wait(2 * MS)
            trace.give(joined)
            trace.small(10)
        for block in reversed(saved):
            gradient = trace.take(trace.sizes[block][0])
            trace.give(block)
            trace.give(gradient)
        trace.wait(5 * MS)


@program
def pictures(trace):
    """Training of a convolutional net on pictures of many sizes, with workspaces that depend on them."""
    channels = [64, 128, 256, 512, 1024]
    trace.weights([c * c * 9 * 4 for c in channels for _ in range(4)], 2)
    for _ in range(70):
        side, batch = trace.random.choice(range(192, 544, 32)), trace.random.choice([12, 16, 24])
        saved = []
        for level, count in enumerate(channels):
            area = max(side >> (level + 1), 1) ** 2
            for _ in range(4):
                workspace = trace.take(trace.random.choice([0.3, 1, 2.2]) * batch * area * count)
                saved.append(trace.take(batch * area * count * 4))
                trace.wait(0.4 * MS)
                trace.give(workspace)
                saved.append(trace.take(batch * area * count * 4))
                saved.append(trace.take(count * 8))
        for block in reversed(saved):
            gradient = trace.take(trace.sizes[block][0])
            workspace = trace.take(trace.random.choice([0.5, 1.5]) * trace.sizes[block][0] + 1)
            trace.give(workspace)
            trace.give(block)
            trace.give(gradient)
        trace.small(60)
        trace.wait(2 * MS)


@program
def streams(trace):
    """Training whose batches are fetched on a second stream, and whose gradients leave on a third, which uses them for a while."""
    width, layers = 2048, 14
    sizes = [12 * width * width * 2] * layers
    trace.weights(sizes, 1)
    ready = [trace.take(trace.random.randint(20, 200) * MIB, 1)]
    for _ in range(60):
        ready.append(trace.take(trace.random.randint(20, 200) * MIB, 1))
        batch = ready.pop(0)
        tokens = trace.random.randint(2000, 9000)
        saved = [trace.take(tokens * width * 2 * trace.random.choice([1, 3, 4])) for _ in range(3 * layers)]
        trace.wait(10 * MS)
        trace.give(batch, trace.now + 15 * MS)
        for index, block in enumerate(reversed(saved)):
            trace.give(block)
            if index % 3 == 0:
                gradient = trace.take(sizes[index // 3])
                bucket = trace.take(sizes[index // 3] // 2, 2)
                trace.wait(1.5 * MS)
                trace.give(gradient, trace.now + trace.random.uniform(1, 12) * MS)
                trace.give(bucket)
        trace.small(50)
        trace.wait(4 * MS)


def main():
    parser = argparse.ArgumentParser(prog="lab/synthetic-traces.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="of all traces (1)")
    parser.add_argument("--list", action="store_true", help="name the programs, and write nothing")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, help="gets synthetic-NAME.pickle for each program")
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (all)")
    arguments = parser.parse_args()
    if arguments.list:
        for name, function in PROGRAMS.items():
            print(f"{name}: {function.__doc__}")
        return
    unknown = [name for name in arguments.names if name not in PROGRAMS]
    if not arguments.folder or unknown:
        parser.error(f"there is no program {unknown[0]}" if unknown else "no folder was named")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or PROGRAMS:
        trace = Trace(f"{name} {arguments.seed}")
        PROGRAMS[name](trace)
        with open(arguments.folder / f"synthetic-{name}.pickle", "wb") as file:
            pickle.dump({"segments": [], "device_traces": [trace.events]}, file, 4)


if __name__ == "__main__":
    main()
