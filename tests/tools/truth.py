# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""What is true of a recording, computed from the pickle or the log alone, by a program that shares nothing with the first: sums at each
moment, and where free memory lies at one of them. The models of commands and of advice hold the first program to it."""

import os
import pickle
import subprocess

NEVER = 1 << 62
UNIT = 512


class Truth:
    """One device of a snapshot, moment by moment."""

    def __init__(self, snapshot, device):
        trace = snapshot.get("device_traces", [[]] * (device + 1))
        self.trace = trace[device] if device < len(trace) else []
        self.segments = [segment for segment in snapshot.get("segments", []) if segment["device"] == device]
        self.lives = []  # [size, begin, freed, end, address, room]
        self.rooms = {}
        for segment in self.segments:
            address = segment["address"]
            for block in segment["blocks"]:
                place = block.get("address", address)
                address = place + block["size"]
                if block["state"] != "inactive":
                    self.rooms[place] = block["size"]
        self.traced = any(event["action"] in ("alloc", "free_requested", "free_completed") for event in self.trace)
        self.walk()
        self.sum_up()

    def walk(self):
        here, completes = {}, any(event["action"] == "free_completed" for event in self.trace)
        for moment, event in enumerate(self.trace, 1):
            action, address, size = event["action"], event.get("addr"), event["size"]
            if action == "alloc":
                self.end(here.get(address), moment)
                here[address] = self.add(size, moment, address)
            elif action in ("free_requested", "free_completed"):
                requested = action == "free_requested"
                block = here.setdefault(address, None) or self.add(size, 0, address)
                if here[address] is None:
                    here[address] = block
                    block[2] = NEVER if requested else 0  # what only completes was freed before the recording
                if block[3] != NEVER or (requested and block[2] != NEVER):
                    continue
                block[2] = min(block[2], moment)
                if not (requested and completes):
                    block[3] = moment
        for segment in self.segments:
            address = segment["address"]
            for block in segment["blocks"]:
                place = block.get("address", address)
                address = place + block["size"]
                if block["state"] != "inactive" and place not in here:
                    made = self.add(block.get("requested_size") or block["size"], 0, place)
                    if block["state"] != "active_allocated":
                        made[2] = 0

    def add(self, size, moment, address):
        self.lives.append([size, moment, NEVER, NEVER, address, -(-size // UNIT) * UNIT])
        return self.lives[-1]

    @staticmethod
    def end(block, moment):
        if block:
            block[2], block[3] = min(block[2], moment), min(block[3], moment)

    def sum_up(self):
        count = (len(self.trace) if self.traced else 0) + 1
        allocated, waiting, reserved = [0] * (count + 1), [0] * (count + 1), [0] * (count + 1)

        def life(sums, size, begin, end):
            if begin < min(end, count):
                sums[begin] += size
                sums[min(end, count)] -= size
        for size, begin, freed, end, *_ in self.lives:
            life(allocated, size, begin, freed)
            life(waiting, size, max(freed, begin), end)
        total = sum(segment["total_size"] for segment in self.segments)
        for moment in range(count - 1, -1, -1):
            reserved[moment] = total
            event = self.trace[moment - 1] if moment else {"action": ""}
            total -= event["size"] if event["action"] in ("segment_alloc", "segment_map") else 0
            total += event["size"] if event["action"] in ("segment_free", "segment_unmap") else 0
        for sums in (allocated, waiting):
            for moment in range(1, count):
                sums[moment] += sums[moment - 1]
        self.allocated, self.waiting, self.reserved = allocated[:count], waiting[:count], reserved[:count]
        self.peak = max(range(count), key=lambda i: (self.allocated[i], -i))
        self.peak_reserved = max(range(count), key=lambda i: (self.reserved[i], self.allocated[i], -i))
        self.blocks = sum(freed >= count and begin < count for _, begin, freed, *_ in self.lives)
        self.ooms = [event["size"] for event in self.trace if event["action"] == "oom"]
        self.allocations = sum(event["action"] == "alloc" for event in self.trace)

    def ranges_at(self, moment):
        """What was reserved after so many events, back from the final segments: [address, end, whether a hole goes on in the next, whose]."""
        ranges = [[segment["address"], segment["address"] + segment["total_size"], bool(segment.get("is_expandable")),
                   (segment["stream"], tuple(segment.get("segment_pool_id", (0, 0))))] for segment in self.segments]
        for event in reversed(self.trace[moment:]):
            if event["action"] not in ("segment_alloc", "segment_map", "segment_free", "segment_unmap"):
                continue
            begin, end = event["addr"], event["addr"] + event["size"]
            joins, whose = event["action"] in ("segment_map", "segment_unmap"), (event["stream"], tuple(event.get("segment_pool_id", (0, 0))))
            if event["action"] in ("segment_free", "segment_unmap"):
                ranges.append([begin, end, joins, whose])
                continue
            kept = []
            for low, high, *rest in ranges:
                kept += [[low, min(high, begin), *rest]] if low < begin else []
                kept += [[max(low, end), high, *rest]] if high > end else []
            ranges = kept
        joined = []
        for low, high, joins, whose in sorted(ranges):
            if joined and joins and joined[-1][1:] == [low, True, whose]:
                joined[-1][1] = high
            else:
                joined.append([low, high, joins, whose])
        return joined

    def free_at(self, moment):
        """(bytes free in what is reserved, those in ranges without a block, the holes beside blocks, all holes)"""
        blocks = sorted((address, address + (self.rooms.get(address, room) if end == NEVER else room))
                        for _, begin, _, end, address, room in self.lives if begin <= moment < end)
        idle, beside, place = [], [], 0
        for low, high, *_ in self.ranges_at(moment):
            holes, at, first = [], low, place
            while place < len(blocks) and blocks[place][0] < high:
                if blocks[place][0] > at:
                    holes.append(blocks[place][0] - at)
                at = max(at, blocks[place][1])
                place += 1
            if at < high:
                holes.append(high - at)
            (idle if place == first else beside).extend(holes)
        return sum(idle) + sum(beside), sum(idle), beside, idle + beside


def read(path):
    """A recording as a snapshot: a pickle, plain or by zstd, or RMM's log."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] == b"\x28\xb5\x2f\xfd":
        data = subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, check=True).stdout
    if data.lstrip(b"\xef\xbb\xbf").startswith(b"Thread,Time"):
        return log_as_snapshot(data.decode("utf-8-sig"))
    return pickle.loads(data)


def recordings(folders):
    """The paths of all recordings below folders that are joined by colons."""
    found = []
    for folder in folders.split(":"):
        for place, _, names in os.walk(folder):
            found += [os.path.join(place, name) for name in names if name.endswith((".pickle", ".pickle.zst", ".csv"))]
    return sorted(found)


def truths_of(snapshot):
    devices = max([len(snapshot.get("device_traces", []))] + [segment["device"] + 1 for segment in snapshot.get("segments", [])])
    found = {device: Truth(snapshot, device) for device in range(devices)}
    return {device: truth for device, truth in found.items() if truth.trace or truth.segments}


def log_as_snapshot(text):
    """RMM's log: a free completes itself."""
    actions = {"allocate": "alloc", "free": "free_requested", "allocate failure": "oom"}
    trace = []
    for line in text.splitlines()[1:]:
        fields = line.split(",")
        if len(fields) == 6:
            trace.append({"action": actions[fields[2]], "addr": int(fields[3], 16), "size": int(fields[4])})
    return {"segments": [], "device_traces": [trace]}
