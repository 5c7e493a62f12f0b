#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Writes synthetic PyTorch memory snapshots into a folder: python3 make_snapshots.py OUTDIR
With --seeds before OUTDIR it writes tiny ones, the seeds of tests/fuzz/fuzz_snapshot.c.

For what recorded snapshots at hand lack: several devices and streams, late frees, private pools, expandable segments,
out-of-memory events, a ring that wrapped, old layouts, every pickle protocol, zstd. The traces come from a small model of
PyTorch's caching allocator (pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp), so that events, addresses and the final
state agree. Nothing here depends on the clock or on hash order: the same Python writes the same bytes.

summary.txt has a line per file: what a reader must count in it. Fields: SUMMARY below.
"""

import json
import os
import pickle
import random
import struct
import sys

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNIT = 512
SMALL = MIB  # the largest block in a small segment
EPOCH_US = 1_750_000_000_000_000

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
           "snapshot", "oom")
SUMMARY = ("file", "segments", "blocks", "devices", "events", *ACTIONS, "other", "allocated_blocks", "pending_blocks",
           "total_size", "block_requested", "address_xor", "event_size", "streams_xor", "pools", "last_time")


def round_up(number, unit):
    return -(-number // unit) * unit


class Block:
    def __init__(self, segment, address, size, state="inactive"):
        self.segment, self.address, self.size, self.state = segment, address, size, state
        self.requested = 0
        self.frames = []


class Segment:
    def __init__(self, device, address, size, stream, pool, large, expandable):
        self.device, self.address, self.size, self.stream = device, address, size, stream
        self.pool, self.large, self.expandable = pool, large, expandable
        self.blocks = [Block(self, address, size, "unmapped" if expandable else "inactive")]
        self.frames = []


class Device:
    """One device's allocator. `capacity` is the memory that the driver gives; expandable segments reserve 4 x that."""

    def __init__(self, index, seed, capacity=80 * GIB, expandable=False, late=0.0, pool_ids=False):
        self.index, self.capacity, self.expandable, self.late, self.pool_ids = index, capacity, expandable, late, pool_ids
        self.random = random.Random(seed)
        self.segments, self.events, self.live, self.pending = [], [], [], []
        self.next_address = 0x7F0000000000 + index * 0x10000000000
        self.reserved = 0
        self.time = EPOCH_US + index
        frames = [{"name": "step_%d" % i, "filename": "/srv/train/model_%d.py" % (i % 7), "line": 10 + 3 * i} for i in range(40)]
        self.stacks = [self.random.sample(frames, self.random.randint(1, 12)) for _ in range(25)]

    def event(self, action, address, size, stream, pool, frames=None):
        self.time += self.random.choice((1, 3, 8, 40, 200))
        entry = {"action": action, "device_free" if action == "oom" else "addr": address, "size": size, "stream": stream,
                 "time_us": self.time, "compile_context": "N/A", "user_metadata": ""}
        if self.pool_ids:
            entry["pool_id"] = pool
        entry["frames"] = self.random.choice(self.stacks) if frames is None else frames
        self.events.append(entry)
        return entry["frames"]

    # --- segments ---

    def segment_create(self, size, stream, pool, large):
        if self.reserved + size > self.capacity:
            return None
        segment = Segment(self.index, self.next_address, size, stream, pool, large, False)
        self.next_address += round_up(size, 2 * MIB) + 2 * MIB * self.random.randint(0, 3)
        self.segments.append(segment)
        self.reserved += size
        segment.frames = self.event("segment_alloc", segment.address, size, stream, pool)
        return segment.blocks[0]

    def segment_extend(self, size, stream, pool, large):
        """Maps pages behind the first unmapped block that has room, and gives the free block that they make."""
        page = 20 * MIB if large else 2 * MIB
        found = [s for s in self.segments if s.expandable and (s.stream, s.pool, s.large) == (stream, pool, large)]
        if not found:
            segment = Segment(self.index, self.next_address, round_up(4 * self.capacity, page), stream, pool, large, True)
            segment.frames = self.random.choice(self.stacks)
            self.next_address += segment.size + 20 * MIB
            self.segments.append(segment)
            found = [segment]
        for segment in found:
            for i, block in enumerate(segment.blocks):
                if block.state != "unmapped":
                    continue
                before = segment.blocks[i - 1] if i and segment.blocks[i - 1].state == "inactive" else None
                need = round_up(size - (before.size if before else 0), page)
                if need > block.size:
                    continue
                if self.reserved + need > self.capacity:
                    return None
                self.reserved += need
                self.event("segment_map", block.address, need, stream, pool)
                mapped = self.split(block, need)
                mapped.state = "inactive"
                return self.merge(mapped)
        return None

    def empty_cache(self):
        for segment in list(self.segments):
            if not segment.expandable:
                if len(segment.blocks) == 1 and segment.blocks[0].state == "inactive":
                    self.event("segment_free", segment.address, segment.size, segment.stream, segment.pool)
                    self.reserved -= segment.size
                    self.segments.remove(segment)
                continue
            page = 20 * MIB if segment.large else 2 * MIB
            for block in list(segment.blocks):
                start = segment.address + round_up(block.address - segment.address, page)
                end = segment.address + (block.address + block.size - segment.address) // page * page
                if block.state != "inactive" or start >= end:
                    continue
                self.event("segment_unmap", start, end - start, segment.stream, segment.pool)
                self.reserved -= end - start
                if start > block.address:
                    self.split(block, start - block.address)
                    block = next(b for b in segment.blocks if b.address == start)
                block = self.split(block, end - start)
                block.state, block.requested, block.frames = "unmapped", 0, []
                self.merge(block)

    # --- blocks ---

    def split(self, block, size):
        """Cuts `block` behind `size` bytes and gives the first part."""
        if size < block.size:
            rest = Block(block.segment, block.address + size, block.size - size, block.state)
            block.size = size
            block.segment.blocks.insert(block.segment.blocks.index(block) + 1, rest)
        return block

    def merge(self, block):
        blocks = block.segment.blocks
        i = blocks.index(block)
        if i + 1 < len(blocks) and blocks[i + 1].state == block.state:
            block.size += blocks.pop(i + 1).size
        if i and blocks[i - 1].state == block.state:
            blocks[i - 1].size += block.size
            blocks.pop(i)
            block = blocks[i - 1]
        return block

    def find(self, size, stream, pool, large):
        fits = [b for s in self.segments if (s.stream, s.pool, s.large) == (stream, pool, large)
                for b in s.blocks if b.state == "inactive" and b.size >= size]
        return min(fits, key=lambda b: (b.size, b.address), default=None)

    # --- the public calls ---

    def alloc(self, requested, stream=0, pool=(0, 0)):
        self.process_events()
        size = max(UNIT, round_up(requested, UNIT))
        large = size > SMALL
        segment_size = 2 * MIB if not large else 20 * MIB if size < 10 * MIB else round_up(size, 2 * MIB)
        expandable = self.expandable and pool == (0, 0)
        make = (lambda: self.segment_extend(size, stream, pool, large)) if expandable else (
            lambda: self.segment_create(segment_size, stream, pool, large))
        block = self.find(size, stream, pool, large) or make()
        if not block:
            self.process_events(everything=True)
            self.empty_cache()
            block = self.find(size, stream, pool, large) or make()
        if not block:
            self.event("oom", self.capacity - self.reserved, size, stream, pool)
            return None
        rest = block.size - size
        if rest >= UNIT if (not large or expandable) else rest > SMALL:
            self.split(block, size)
        block.state, block.requested = "active_allocated", requested
        block.frames = self.event("alloc", block.address, requested, stream, pool)
        self.live.append(block)
        return block

    def free(self, block):
        """A share of `late` of the blocks was used on another stream, and completes some allocations later."""
        self.live.remove(block)
        segment = block.segment
        self.event("free_requested", block.address, block.requested, segment.stream, segment.pool)
        if self.random.random() < self.late:
            block.state = "active_pending_free"
            self.pending.append([self.random.randint(1, 60), block])
        else:
            self.complete(block)

    def complete(self, block):
        segment = block.segment
        self.event("free_completed", block.address, block.requested, segment.stream, segment.pool)
        block.state = "inactive"
        self.merge(block)

    def process_events(self, everything=False):
        for entry in self.pending:
            entry[0] -= 1
        for entry in [e for e in self.pending if everything or e[0] <= 0]:
            self.pending.remove(entry)
            self.complete(entry[1])

    # --- a workload ---

    def request(self):
        kind = self.random.random()
        if kind < 0.5:
            return self.random.randint(1, 64 * KIB)
        if kind < 0.75:
            return self.random.randint(64 * KIB, 2 * MIB)
        if kind < 0.97:
            return self.random.randint(2 * MIB, 24 * MIB)
        return self.random.randint(24 * MIB, 300 * MIB)

    def work(self, steps, streams=(0,), pools=((0, 0),), target=120):
        for step in range(steps):
            if self.live and self.random.random() < len(self.live) / (2 * target):
                self.free(self.live[self.random.randrange(len(self.live))])
            else:
                self.alloc(self.request(), self.random.choice(streams), self.random.choice(pools))
            if step % 701 == 700:
                self.empty_cache()

    def state(self):
        """The segments as a snapshot shows them; of an expandable one, each mapped run."""
        shown = []
        for segment in self.segments:
            run = []
            for block in segment.blocks + [None]:
                if block and block.state != "unmapped":
                    run.append(block)
                elif run:
                    shown.append(self.show(segment, run))
                    run = []
        return shown

    def show(self, segment, run):
        total = lambda states: sum(b.size for b in run if b.state in states)
        return {
            "device": self.index, "address": run[0].address, "total_size": sum(b.size for b in run),
            "allocated_size": total(("active_allocated",)),
            "active_size": total(("active_allocated", "active_pending_free")),
            "requested_size": sum(b.requested for b in run if b.state != "inactive"), "stream": segment.stream,
            "segment_type": "large" if segment.large else "small", "segment_pool_id": segment.pool,
            "is_expandable": segment.expandable, "frames": segment.frames,
            "blocks": [{"address": b.address, "size": b.size, "requested_size": b.requested, "state": b.state,
                        "frames": b.frames} for b in run],
        }


def snapshot(devices, ring=None):
    """`ring`: how many events a device keeps."""
    return {
        "segments": sorted((s for d in devices for s in d.state()), key=lambda s: s["address"]),
        "device_traces": [d.events[-ring:] if ring else list(d.events) for d in devices],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                               "expandable_segments": devices[0].expandable, "roundup_power2_divisions": {"1": 0, "2": 0}},
        "external_annotations": [],
    }


def check(snap, devices):
    """Replays the whole trace on byte ranges: no two live blocks overlap, all lie in mapped memory, and what is left is the
    final state. A mistake in the model must not pass for a reader's or an allocator's."""
    for device in devices:
        live, mapped = {}, {}
        device.peak = (0, 0, 0, 0)
        requested = 0
        for number, event in enumerate(device.events):
            action, size = event["action"], event["size"]
            address = event.get("addr")
            if action == "alloc":
                end = address + max(UNIT, round_up(size, UNIT))
                assert all(end <= a or address >= b for a, (b, _) in live.items()), event
                assert covered(mapped, address, end), event
                live[address] = (end, size)
                requested += size
                if requested > device.peak[0]:
                    device.peak = (requested, number + 1, sum(b - a for a, b in mapped.items()), device.peak[3])
            elif action in ("free_requested", "free_completed"):
                assert live[address][1] == size, event
                requested -= size if action == "free_requested" else 0
                if action == "free_completed":
                    del live[address]
            elif action in ("segment_alloc", "segment_map"):
                mapped[address] = address + size
                reserved = sum(b - a for a, b in mapped.items())
                device.peak = (*device.peak[:3], max(device.peak[3], reserved))
            elif action in ("segment_free", "segment_unmap"):
                assert all(address + size <= a or address >= b for a, (b, _) in live.items()), event
                assert covered(mapped, address, address + size), event
                for a, b in [(a, b) for a, b in mapped.items() if a < address + size and b > address]:
                    del mapped[a]
                    if a < address:
                        mapped[a] = address
                    if b > address + size:
                        mapped[address + size] = b
        final = {b["address"]: b["requested_size"] for s in snap["segments"] if s["device"] == device.index
                 for b in s["blocks"] if b["state"] != "inactive"}
        assert final == {a: size for a, (_, size) in live.items()}
        assert sum(s["total_size"] for s in snap["segments"] if s["device"] == device.index) == sum(
            b - a for a, b in mapped.items()) == device.reserved


def covered(mapped, start, end):
    while start < end:
        following = [b for a, b in mapped.items() if a <= start < b]
        if not following:
            return False
        start = following[0]
    return True


def old_layout(snap):
    """What PyTorch 2.0 wrote: history in place of frames, no address of a block, no pools, no times."""
    segments = []
    for segment in snap["segments"]:
        old = {k: v for k, v in segment.items() if k not in ("segment_pool_id", "is_expandable", "frames", "requested_size")}
        old["blocks"] = []
        for block in segment["blocks"]:
            entry = {k: block[k] for k in ("size", "requested_size", "state")}
            if block["state"] != "inactive":
                entry["history"] = [{"addr": block["address"], "real_size": block["requested_size"], "frames": block["frames"]}]
            old["blocks"].append(entry)
        segments.append(old)
    keys = ("action", "addr", "device_free", "size", "stream")
    return {"segments": segments, "device_traces": [[{k: e[k] for k in keys if k in e} for e in t] for t in snap["device_traces"]]}


def tarn_layout(snap):
    """What tarn itself writes: threads, where a block belongs, and what PyTorch has no action for."""
    tags = ("", "load", "step 1/forward", "step 1/backward", "step 2/forward/attention", "step 2/forward/mlp")
    tag_of, marks = {}, []
    for d, trace in enumerate(snap["device_traces"]):
        for i, event in enumerate(trace):
            event["thread"] = 1 + i % 3
            if event["action"] == "alloc":
                tag_of[event["addr"]] = tags[i * len(tags) // len(trace)]
            event["user_metadata"] = tag_of.get(event.get("addr"), "")
            del event["compile_context"]
            if i % 50 == 0:
                mark = {"device": d, "at": i, "time_us": event["time_us"], "thread": event["thread"], "stream": event["stream"]}
                marks += [{**mark, "kind": "record_stream", "addr": event.get("addr", 0)},
                          {**mark, "kind": "wait", "other": 0x5581A0C3D2E0}]
        end = {"device": d, "at": len(trace), "time_us": EPOCH_US + 1, "thread": 1, "stream": 0}
        marks += [{**end, "kind": "region_end", "name": "step 2"}, {**end, "kind": "scope_begin", "pool_id": (0, 1), "how": "thread"},
                  {**end, "kind": "capture_begin", "capture": 7}, {**end, "kind": "of the future", "a": [1]}]
    for segment in snap["segments"]:
        for block in segment["blocks"]:
            block["user_metadata"] = tag_of.get(block["address"], "") if block["state"] != "inactive" else ""
    count = len(snap["device_traces"])
    pools = sorted({(s["device"], s["segment_pool_id"]) for s in snap["segments"]})
    return {**snap, "tarn": {
        "version": 1, "library": "tarn 9.8.7", "driver": "host", "taken_ns": EPOCH_US * 1000 + 5, "overwritten": 3,
        "exact_from": [17] * count,
        "devices": [{"name": "device \u00e9 %d" % d, "total": 8 * GIB, "free": GIB, "reserved": 7 * GIB, "limit": None if d else 6 * GIB}
                    for d in range(count)],
        "pools": [{"device": d, "id": pool, "reserved": 100, "allocated": 50, "active": 60, "waiting": 10,
                   "suspended": pool != (0, 0), "held": False, "of_graphs": pool != (0, 0)} for d, pool in pools],
        "graphs": [{"number": 3, "device": 0, "pool_id": (0, 0), "count": 5, "size": 5 * MIB, "gone": 2, "gone_size": 2 * MIB},
                   {"number": 3, "device": 0, "pool_id": (0, 1), "count": 1, "size": GIB, "gone": 0, "gone_size": 0},
                   {"number": 4, "device": 1, "pool_id": (0, 1), "count": 1234, "size": MIB, "gone": 0, "gone_size": 0}],
        "handles": [{"device": 0, "library": "cublas", "count": 4, "in_use": 1}],
        "workspaces": [{"device": 0, "stream": 0x5581A0C3D2E0, "library": "cublas", "size": 32 * MIB, "address": 0x7F0000000000}],
        "threads": [{"number": 1, "name": "main"}, {"number": 2, "name": "loader"}, {"number": 3, "name": ""}],
        "events": marks, "a_key_of_the_future": [1, [2]]}}


def summarise(name, snap):
    events = [e for t in snap.get("device_traces", []) for e in t]
    blocks = [b for s in snap["segments"] for b in s["blocks"]]
    row = dict.fromkeys(SUMMARY, 0)
    row.update(file=name, segments=len(snap["segments"]), blocks=len(blocks), devices=len(snap.get("device_traces", [])),
               events=len(events), total_size=sum(s["total_size"] for s in snap["segments"]))
    for event in events:
        row[event["action"] if event["action"] in ACTIONS else "other"] += 1
        row["address_xor"] ^= event["device_free"] if event["action"] == "oom" else event["addr"]
        row["event_size"] += event["size"]
        row["streams_xor"] ^= event["stream"]
        row["pools"] += sum(event.get("pool_id", (0, 0)))
        row["last_time"] = max(row["last_time"], event.get("time_us", 0))
    for block in blocks:
        row["allocated_blocks"] += block["state"] == "active_allocated"
        row["pending_blocks"] += block["state"] == "active_pending_free"
        row["block_requested"] += block["requested_size"] if block["state"] != "inactive" else 0
    row["pools"] += sum(sum(s.get("segment_pool_id", (0, 0))) for s in snap["segments"])
    return " ".join(str(row[k]) for k in SUMMARY)


def zstd_stored(data):
    """A zstd frame of raw blocks (RFC 8878, 3.1.1): this Python has no compressor, and the reader must not care."""
    out = [struct.pack("<IBQ", 0xFD2FB528, 0xE0, len(data))]
    for at in range(0, len(data), 128 * KIB):
        part = data[at:at + 128 * KIB]
        last = at + 128 * KIB >= len(data)
        out.append(struct.pack("<I", len(part) << 3 | last)[:3] + part)
    return b"".join(out)


def make():
    """Yields (name, snapshot, the devices whose whole trace it has, protocol)."""
    streams = (0, 0x5581A0C3D2E0, 0x5581A0C3F7B0, 0x7F11C4002AE0)

    devices = [Device(i, 100 + i, late=0.25) for i in range(2)]
    for device in devices:
        device.work(3000, streams)
    snap = snapshot(devices)
    check(snap, devices)
    yield "streams.pickle", snap, devices, 4

    devices = [Device(0, 200, late=0.6)]
    devices[0].work(2500, streams[:2], target=60)
    snap = snapshot(devices)
    check(snap, devices)
    yield "late-frees.pickle", snap, devices, 4

    devices = [Device(i, 300 + i, capacity=8 * GIB, expandable=True, late=0.05, pool_ids=True) for i in range(2)]
    for device in devices:
        device.work(2500, streams[:2], ((0, 0), (0, 0), (0, 0), (0, 1)))
    snap = snapshot(devices)
    check(snap, devices)
    yield "expandable.pickle", snap, devices, 4

    devices = [Device(0, 350)]
    for step in range(40):  # the same again and again: nothing to advise
        blocks = [devices[0].alloc((1 + i % 5) * 20 * MIB) for i in range(20)]
        for block in reversed(blocks):
            devices[0].free(block)
    snap = snapshot(devices)
    check(snap, devices)
    yield "well.pickle", snap, devices, 4

    devices = [Device(0, 400, capacity=2 * GIB)]
    devices[0].work(2500, streams[:2], target=160)
    snap = snapshot(devices)
    check(snap, devices)
    yield "oom.pickle", snap, devices, 4

    # Holes of 8 or of 40 MiB, and a request that fits into none.
    for name, stride, asked in (("torn.pickle", 2, 200 * MIB), ("holes.pickle", 10, 300 * MIB)):
        devices = [Device(0, 450, capacity=600 * MIB)]
        blocks = [devices[0].alloc(8 * MIB) for _ in range(60)]
        for i, block in enumerate(blocks):
            if i % stride >= stride // 2:
                devices[0].free(block)
        assert not devices[0].alloc(asked)
        snap = snapshot(devices)
        check(snap, devices)
        yield name, snap, devices, 4

    devices = [Device(i, 250 + i, capacity=2 * GIB, late=0.2, pool_ids=True) for i in range(2)]
    devices[1].time += 20_000 # device 0 runs out of memory first
    for device in devices:
        device.work(1500, streams[:2], ((0, 0), (0, 0), (0, 1)))
    snap = snapshot(devices)
    check(snap, devices)
    yield "tarn.pickle", tarn_layout(snap), devices, 4

    devices = [Device(0, 500, pool_ids=True)]
    devices[0].work(2000, streams[:2], ((0, 0), (0, 1), (3, 0), (0, 1 << 40)))
    snap = snapshot(devices)
    check(snap, devices)
    yield "pools.pickle", snap, devices, 4

    devices = [Device(i, 600 + i, late=0.2) for i in range(2)]
    for device in devices:
        device.work(3000, streams)
    snap = snapshot(devices, ring=1200)
    check(snap, devices)
    yield "wrapped.pickle", snap, [], 4
    yield "json.pickle", json.loads(json.dumps(snap)), [], 4  # as tools have it that pass it through JSON: pool ids are lists
    yield "state.pickle", {**snap, "device_traces": [[], []]}, [], 4
    yield "state-only.pickle", {"segments": snap["segments"]}, [], 4
    yield "old.pickle", old_layout(snap), [], 4

    devices = [Device(i, 700 + i, late=0.3, pool_ids=True) for i in range(2)]
    for device in devices:
        device.work(60, streams[:2], ((0, 0), (0, 1)), target=15)
        device.event("snapshot", 0, device.reserved, 0, (0, 0))
        device.event("user_defined", 0, 0, 0, (0, 0))
    snap = snapshot(devices)
    check(snap, devices)
    snap["external_annotations"] = [{"name": "step", "stage": "START", "device": 0, "time_us": EPOCH_US}]
    snap["a_key_of_the_future"] = [None, 1.5, -1, 1 << 80, -(1 << 70), b"bytes", (1, 2, 3, 4), [[], [{}]], True, "\u00e9" * 300]
    for protocol in (2, 3, 4, 5):
        # Protocol 2 has no opcode for bytes; Python would have the reader call _codecs.encode.
        future = [v for v in snap["a_key_of_the_future"] if protocol > 2 or not isinstance(v, bytes)]
        yield "small-%d.pickle" % protocol, {**snap, "a_key_of_the_future": future}, [], protocol


def main(folder):
    os.makedirs(folder, exist_ok=True)
    lines = []
    peaks = []
    for name, snap, devices, protocol in make():
        data = pickle.dumps(snap, protocol)
        peaks += [" ".join(map(str, (name, device.index, *device.peak))) for device in devices]
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
        lines.append(summarise(name, snap))
        if name == "small-4.pickle":
            with open(os.path.join(folder, "small-4.pickle.zst"), "wb") as file:
                file.write(zstd_stored(data))
            lines.append(summarise("small-4.pickle.zst", snap))
    with open(os.path.join(folder, "model.plan"), "wb") as file:
        file.write(model_plan())
    with open(os.path.join(folder, "summary.txt"), "w") as file:
        file.write("# " + " ".join(SUMMARY) + "\n" + "\n".join(lines) + "\n")
    with open(os.path.join(folder, "peaks.txt"), "w") as file:
        file.write("# file device peak_requested moment reserved_then peak_reserved\n" + "\n".join(peaks) + "\n")


def plan(arenas):
    """A plan as src/memory/settings/plan_file.h has it, of arenas (pool, requests, bytes, small bytes); requests are (size, offset, end) in
    bytes."""
    file = b""
    for i, (pool, requests, arena, small) in enumerate(arenas):
        header = struct.pack("<8sIIQQQQII", b"tarnplan", 3, len(requests), arena, small, arena, arena, len(arenas) - 1 - i, pool)
        body = b"".join(struct.pack("<III", size // 512, offset // 512, end) for size, offset, end in requests)
        checksum = 0xCBF29CE484222325
        for byte in header + body:
            checksum = (checksum ^ byte) * 0x100000001B3 & (1 << 64) - 1
        file += header + struct.pack("<Q", checksum) + body
    return file


def model_plan():
    """What memory.model and mixed.model ask for half of the time, at places that overlap, for two streams of a device and two pools."""
    random.seed(5)
    arenas = []
    for pool, arena in ((0, 24 << 20), (1, 8 << 20), (0, 16 << 20), (2, 8 << 20), (1, 8 << 20)):
        requests = []
        for i in range(300):
            size = random.randrange(2, 18) * 256 << 10
            requests.append((size, random.randrange(0, arena - size + 1, 512), min(300, i + random.randrange(1, 40))))
        arenas.append((pool, requests, arena, 2 << 20))
    return plan(arenas)


def text_opcodes(value):
    """The pickle of a value in the opcodes that protocol 0 had, which later protocols may still use."""
    if isinstance(value, dict):
        return b"(" + b"".join(text_opcodes(k) + text_opcodes(v) for k, v in value.items()) + b"d"
    if isinstance(value, (list, tuple)):
        return b"(" + b"".join(map(text_opcodes, value)) + (b"l" if isinstance(value, list) else b"t")
    if isinstance(value, bool):
        return b"I01\n" if value else b"I00\n"
    if isinstance(value, int):
        return b"L%dL\n" % value if value >> 31 else b"I%d\n" % value
    if isinstance(value, float):
        return b"F%r\n".replace(b"%r", repr(value).encode())
    return b"V" + value.encode() + b"\np%d\n" % 0


def seeds(folder):
    os.makedirs(folder, exist_ok=True)
    device = Device(0, 1, late=0.5, pool_ids=True)
    device.stacks = [stack[:1] for stack in device.stacks[:2]]
    device.work(9, (0, 0x5581A0C3D2E0), ((0, 0), (0, 1)), target=3)
    device.event("snapshot", 0, 0, 0, (0, 0))
    device.event("oom", GIB, 4 * GIB, 0, (0, 0))
    snap = snapshot([device])
    files = {"protocol-%d" % p: pickle.dumps(snap, p) for p in (2, 3, 4, 5)}
    files["old"] = pickle.dumps(old_layout(snap), 4)
    files["state"] = pickle.dumps({"segments": snap["segments"]}, 4)
    files["text"] = b"\x80\x02" + text_opcodes(snap) + b"."
    files["zstd"] = zstd_stored(files["state"])
    files["tarn"] = pickle.dumps(tarn_layout(snap), 4)
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--seeds":
        seeds(sys.argv[2])
    elif len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        sys.exit("usage: make_snapshots.py [--seeds] OUTDIR")
