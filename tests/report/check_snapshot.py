#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""check_snapshot.py [--moving] FILE...: whether a snapshot is what PyTorch's readers and docs/snapshots.md say, and true to itself.

The keys and the opcodes are those that torch/utils/viz/MemoryViz.js and torch/cuda/_memory_viz.py of pytorch/pytorch read. Like
MemoryViz.js the trace is read backwards from `segments`: what an entry undoes must be there, and what it brings back must not be.
With --moving other threads moved memory meanwhile: what is on its way from one heap to another may lie in segments of both, so
that these have more than is reserved. Prints a line per file; the exit status is 1 where one is wrong, and each fault that was found first in its kind is named.
"""

import bisect
import pickle
import pickletools
import sys

OPCODES = set(
    "PROTO FRAME STOP MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE APPEND APPENDS SETITEM SETITEMS DICT LIST TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINUNICODE BINUNICODE BINPUT LONG_BINPUT MEMOIZE BINGET "
    "LONG_BINGET".split()
)
STATES = {"active_allocated": "live", "active_pending_free": "waiting", "inactive": None}
ACTIONS = set("alloc free_requested free_completed segment_alloc segment_free segment_map segment_unmap oom snapshot".split())


def is_int(value):
    return type(value) is int


def is_size(value):
    return type(value) is int and value >= 0


def is_text(value):
    return type(value) is str


def is_bool(value):
    return type(value) is bool


def is_pool(value):
    return type(value) is tuple and len(value) == 2 and all(is_size(part) for part in value)


def is_limit(value):
    return value is None or is_size(value)


def is_frames(value):
    return type(value) is list and all(
        type(frame) is dict
        and is_text(frame.get("name"))
        and is_text(frame.get("filename"))
        and is_int(frame.get("line"))
        for frame in value
    )


SEGMENT = {
    "device": is_size,
    "address": is_size,
    "total_size": is_size,
    "allocated_size": is_size,
    "active_size": is_size,
    "requested_size": is_size,
    "stream": is_size,
    "segment_type": lambda value: value in ("small", "large"),
    "segment_pool_id": is_pool,
    "is_expandable": is_bool,
    "frames": is_frames,
    "blocks": lambda value: type(value) is list,
}
BLOCK = {
    "address": is_size,
    "size": is_size,
    "requested_size": is_size,
    "state": lambda value: value in STATES,
    "frames": is_frames,
    "user_metadata": is_text,
}
ENTRY = {
    "action": lambda value: value in ACTIONS,
    "size": is_size,
    "stream": is_size,
    "time_us": is_size,
    "compile_context": is_text,
    "user_metadata": is_text,
    "pool_id": is_pool,
    "thread": is_size,
}
SETTINGS = {
    "PYTORCH_CUDA_ALLOC_CONF": is_text,
    "max_split_size": is_int,
    "garbage_collection_threshold": lambda value: type(value) is float,
    "expandable_segments": is_bool,
    "pinned_num_register_threads": is_int,
    "release_lock_on_cudamalloc": is_bool,
    "pinned_use_cuda_host_register": is_bool,
    "graph_capture_record_stream_reuse": is_bool,
    "roundup_power2_divisions": lambda value: type(value) is dict
    and all(is_text(name) and is_int(part) for name, part in value.items()),
}
ANNOTATION = {
    "name": is_text,
    "stage": lambda value: value in ("START", "END"),
    "device": is_size,
    "time_us": is_size,
}
TARN = {
    "version": lambda value: value == 1,
    "library": lambda value: is_text(value) and value.startswith("tarn "),
    "driver": lambda value: value in ("host", "cuda", "hip"),
    "taken_ns": is_size,
    "overwritten": is_size,
    "exact_from": lambda value: type(value) is list and all(is_size(index) for index in value),
}
TARN_LISTS = {
    "devices": {"name": is_text, "total": is_size, "free": is_size, "reserved": is_size, "limit": is_limit},
    "pools": {
        "device": is_size,
        "id": is_pool,
        "reserved": is_size,
        "allocated": is_size,
        "active": is_size,
        "waiting": is_size,
        "suspended": is_bool,
        "held": is_bool,
        "of_graphs": is_bool,
    },
    "graphs": {
        "number": is_size,
        "device": is_size,
        "pool_id": is_pool,
        "count": is_size,
        "size": is_size,
        "gone": is_size,
        "gone_size": is_size,
    },
    "handles": {"device": is_size, "library": is_text, "count": is_size, "in_use": is_size},
    "workspaces": {"device": is_size, "stream": is_size, "size": is_size, "address": is_size},
    "threads": {"number": is_size, "name": is_text},
    "events": {
        "device": is_size,
        "at": is_size,
        "time_us": is_size,
        "thread": is_size,
        "kind": is_text,
        "stream": is_size,
    },
}
EVENTS = {
    "record_stream": {"addr": is_size},
    "free_on": {"addr": is_size},
    "wait": {},
    "capture_begin": {"capture": is_size},
    "capture_end": {"capture": is_size},
    "pool_create": {"pool_id": is_pool},
    "pool_release": {"pool_id": is_pool},
    "scope_begin": {"pool_id": is_pool, "how": lambda value: value in ("thread", "stream", "capture", "always")},
    "scope_end": {"pool_id": is_pool, "how": lambda value: value in ("thread", "stream", "capture", "always")},
    "suspend": {"pool_id": is_pool},
    "resume": {"pool_id": is_pool},
    "handle_create": {"name": is_text},
    "region_begin": {"name": is_text},
    "region_end": {"name": is_text},
}


class Faults:
    def __init__(self):
        self.count = 0
        self.texts = []
        self.kinds = set()

    def __call__(self, kind, where, text=""):
        self.count += 1
        if kind not in self.kinds and len(self.texts) < 20:
            self.kinds.add(kind)
            self.texts.append(f"{where}: {kind}{': ' if text else ''}{text}")

    def keys(self, where, found, wanted):
        """Whether a dict has all wanted keys, with the values that they take."""
        if type(found) is not dict:
            self("no dict", where)
            return False
        good = True
        for key, takes in wanted.items():
            if key not in found:
                self(f"no key {key}", where)
                good = False
            elif not takes(found[key]):
                self(f"{key} is not what it may be", where, repr(found[key])[:200])
                good = False
        return good


class Ranges:
    """Ranges of addresses that share no byte, each with a value; those that touch and have the same, not None, are one."""

    def __init__(self):
        self.starts, self.ends, self.values = [], [], []

    def meets(self, start, end):
        """The index of the first range that has a byte of [start, end), or None."""
        at = bisect.bisect_right(self.starts, start)
        if at and self.ends[at - 1] > start:
            return at - 1
        return at if at < len(self.starts) and self.starts[at] < end else None

    def holds(self, start, end):
        """The index of the one range that has all of [start, end), or None."""
        at = bisect.bisect_right(self.starts, start) - 1
        return at if at >= 0 and self.ends[at] >= end else None

    def add(self, start, end, value):
        at = bisect.bisect_left(self.starts, start)
        if value is not None and at and self.ends[at - 1] == start and self.values[at - 1] == value:
            at -= 1
            self.ends[at] = end
        else:
            self.put(at, start, end, value)
        if value is not None and self.starts[at + 1 : at + 2] == [end] and self.values[at + 1] == value:
            self.ends[at] = self.ends[at + 1]
            self.drop(at + 1)

    def put(self, at, start, end, value):
        self.starts.insert(at, start)
        self.ends.insert(at, end)
        self.values.insert(at, value)

    def drop(self, at):
        del self.starts[at], self.ends[at], self.values[at]

    def cut(self, at, start, end):
        """Takes [start, end) out of the range that holds it."""
        first, last, value = self.starts[at], self.ends[at], self.values[at]
        self.drop(at)
        if last > end:
            self.put(at, end, last, value)
        if first < start:
            self.put(at, first, start, value)


class Device:
    """What lies where on a device, at a moment that goes backwards."""

    def __init__(self):
        self.segments = Ranges()  # value: (stream, pool)
        self.blocks = {}  # by address: [size, "live" or "waiting"]
        self.places = Ranges()  # of the blocks


def check_opcodes(data, faults):
    marks, items = [], 0  # how much lies on the reader's stack above each mark
    for opcode, argument, place in pickletools.genops(data):
        if opcode.name == "MARK":
            marks.append(items)
            items = 0
        elif opcode.name in ("APPENDS", "SETITEMS"):
            if items > 2000:
                faults("more items at once than MemoryViz.js should have on its stack", f"byte {place}", str(items))
            items = marks.pop()
        elif opcode.name == "TUPLE2":
            items -= 1
        elif opcode.name not in ("PROTO", "STOP", "BINPUT", "LONG_BINPUT"):
            items += 1
        if opcode.name not in OPCODES:
            faults(f"opcode {opcode.name}", f"byte {place}")
        if opcode.name == "PROTO" and argument not in (2, 3, 4):
            faults("protocol", f"byte {place}", str(argument))


def check_segment(segment, where, device, sums, faults):
    if not faults.keys(where, segment, SEGMENT):
        return
    start, size = segment["address"], segment["total_size"]
    if device.segments.meets(start, start + size) is not None:
        faults("a segment lies in another", where, hex(start))
        return
    owner = (segment["stream"], segment["segment_pool_id"])
    device.segments.put(bisect.bisect_left(device.segments.starts, start), start, start + size, owner)  # joined by no unmap yet
    at, sizes = start, {"active_allocated": 0, "active_pending_free": 0, "inactive": 0}
    requested = 0
    for number, block in enumerate(segment["blocks"]):
        if not faults.keys(f"{where}.blocks[{number}]", block, BLOCK):
            return
        if block["address"] != at or not block["size"]:
            faults("blocks do not cover their segment", f"{where}.blocks[{number}]", f"{block['address']:#x}, not {at:#x}")
            return
        at += block["size"]
        sizes[block["state"]] += block["size"]
        requested += block["requested_size"]
        state = STATES[block["state"]]
        if state is None and block["requested_size"]:
            faults("a free block was asked for", f"{where}.blocks[{number}]")
        if state is not None:
            if not 0 < block["requested_size"] <= block["size"]:
                faults("a block is smaller than was asked for", f"{where}.blocks[{number}]")
            device.blocks[block["address"]] = [block["requested_size"], state]
            device.places.add(block["address"], block["address"] + max(1, block["requested_size"]), None)
    if at != start + size:
        faults("blocks do not cover their segment", where)
    live, waiting = sizes["active_allocated"], sizes["active_pending_free"]
    for key, wanted in (("allocated_size", live), ("active_size", live + waiting), ("requested_size", requested)):
        if segment[key] != wanted:
            faults(f"{key} is no sum of blocks", where, f"{segment[key]}, not {wanted}")
    total = sums.setdefault((segment["device"], segment["segment_pool_id"]), [0, 0, 0, 0])
    for index, value in enumerate((size, live, live + waiting, waiting)):
        total[index] += value


def undo_block(device, entry, where, faults):
    action, address, size = entry["action"], entry["addr"], entry["size"]
    block = device.blocks.get(address)
    if action == "free_completed":
        if device.places.meets(address, address + max(1, size)) is not None:
            faults("free_completed of what is not free", where, f"{address:#x} {block}")
            return
        segment = device.segments.holds(address, address + size)
        if segment is None:
            faults("free_completed outside all segments", where, hex(address))
        elif device.segments.values[segment] != (entry["stream"], entry["pool_id"]):
            faults("a block of another stream or pool than its segment", where, str(device.segments.values[segment]))
        device.blocks[address] = [size, "waiting"]
        device.places.add(address, address + max(1, size), None)
        return
    wanted = "waiting" if action == "free_requested" else "live"
    if block is None or block[1] != wanted:
        faults(f"{action} of a block that is not {wanted}", where, f"{address:#x} {block}")
        return
    if block[0] != size:
        faults(f"{action} of another size than the block's", where, f"{address:#x}: {size}, not {block[0]}")
    if action == "free_requested":
        block[1] = "live"
        return
    del device.blocks[address]
    at = device.places.holds(address, address + 1)
    device.places.drop(at)
    segment = device.segments.holds(address, address + size)
    if segment is None:
        faults("alloc outside all segments", where, hex(address))
    elif device.segments.values[segment] != (entry["stream"], entry["pool_id"]):
        faults("a block of another stream or pool than its segment", where, str(device.segments.values[segment]))


def undo_segment(device, entry, where, faults):
    action, start, end = entry["action"], entry["addr"], entry["addr"] + entry["size"]
    owner = (entry["stream"], entry["pool_id"])
    if start == end:
        faults("an empty segment", where)
    elif action in ("segment_free", "segment_unmap"):
        if device.segments.meets(start, end) is not None:
            faults(f"{action} of what is there afterwards", where, f"{start:#x} to {end:#x}")
            return
        device.segments.add(start, end, owner)
    else:
        at = device.segments.holds(start, end)
        if at is None:
            faults(f"{action} of what is not there afterwards", where, f"{start:#x} to {end:#x}")
            return
        if device.segments.values[at] != owner:
            faults(f"{action} of another stream or pool", where, f"{owner}, not {device.segments.values[at]}")
        if device.places.meets(start, end) is not None:
            faults(f"{action} of what has blocks in it before", where, f"{start:#x} to {end:#x}")
        device.segments.cut(at, start, end)


def check_trace(trace, where, device, exact_from, faults):
    last = None
    for index, entry in enumerate(trace):
        here = f"{where}[{index}]"
        if not faults.keys(here, entry, ENTRY):
            return
        if not faults.keys(here, entry, {"device_free" if entry["action"] == "oom" else "addr": is_size}):
            return
        if "frames" in entry and not is_frames(entry["frames"]):
            faults("frames are no frames", here)
        if last is not None and entry["time_us"] < last:
            faults("time goes back", here, f"{entry['time_us']} after {last}")
        last = entry["time_us"]
    for index in range(len(trace) - 1, exact_from - 1, -1):
        here, entry = f"{where}[{index}]", trace[index]
        if entry["action"].startswith("segment_"):
            undo_segment(device, entry, here, faults)
        elif entry["action"] not in ("oom", "snapshot"):
            undo_block(device, entry, here, faults)


def check_events(snapshot, faults):
    last = {}
    for index, event in enumerate(snapshot["tarn"]["events"]):
        where = f"tarn.events[{index}]"
        if event["device"] >= len(snapshot["device_traces"]):
            faults("an event of no device", where)
            return
        if event["at"] > len(snapshot["device_traces"][event["device"]]):
            faults("an event behind its trace", where)
        now = (event["at"], event["time_us"])
        if event["device"] in last and (now[0] < last[event["device"]][0] or now[1] < last[event["device"]][1]):
            faults("events go back", where, f"{now} after {last[event['device']]}")
        last[event["device"]] = now
        faults.keys(where, event, EVENTS.get(event["kind"], {}))


def check_own(snapshot, sums, moving, faults):
    tarn = snapshot["tarn"]
    if not faults.keys("tarn", tarn, TARN):
        return
    good = True
    for key, wanted in TARN_LISTS.items():
        if type(tarn.get(key)) is not list:
            faults("no list", f"tarn.{key}")
            return
        for index, item in enumerate(tarn[key]):
            good = faults.keys(f"tarn.{key}[{index}]", item, wanted) and good
    if not good:
        return
    count = len(snapshot["device_traces"])
    if len(tarn["exact_from"]) != count or len(tarn["devices"]) != count:
        faults("a list by device is not as long as there are devices", "tarn")
    for device, (index, trace) in enumerate(zip(tarn["exact_from"], snapshot["device_traces"])):
        if index > len(trace):
            faults("exact_from is behind the trace", f"device {device}")
    for index, pool in enumerate(tarn["pools"]):
        total = sums.get((pool["device"], pool["id"]), [0, 0, 0, 0])
        for key, value in zip(("allocated", "active", "waiting"), total[1:]):
            if pool[key] != value:
                faults(f"{key} of a pool is no sum of its segments", f"tarn.pools[{index}]", f"{pool[key]}, not {value}")
        if not moving and pool["reserved"] < total[0]:
            faults("a pool has less than its segments", f"tarn.pools[{index}]", f"{pool['reserved']}, not {total[0]}")
    for number, device in enumerate(tarn["devices"]):
        mapped = sum(total[0] for (of, _), total in sums.items() if of == number)
        if not moving and device["reserved"] < mapped:
            faults("a device has less than its segments", f"tarn.devices[{number}]", f"{device['reserved']}, not {mapped}")
    check_events(snapshot, faults)


def check_snapshot(snapshot, moving, faults):
    if not faults.keys(
        "the file",
        snapshot,
        {
            "segments": lambda value: type(value) is list,
            "device_traces": lambda value: type(value) is list and all(type(trace) is list for trace in value),
            "allocator_settings": lambda value: type(value) is dict,
            "external_annotations": lambda value: type(value) is list,
            "tarn": lambda value: type(value) is dict,
        },
    ):
        return
    faults.keys("allocator_settings", snapshot["allocator_settings"], SETTINGS)
    for index, note in enumerate(snapshot["external_annotations"]):
        faults.keys(f"external_annotations[{index}]", note, ANNOTATION)
    traces = snapshot["device_traces"]
    devices = [Device() for _ in traces]
    sums, last = {}, -1
    for index, segment in enumerate(snapshot["segments"]):
        if segment["device"] >= len(devices):
            faults("a segment of no device", f"segments[{index}]")
            return
        if segment["address"] <= last:
            faults("segments are not in the order of addresses", f"segments[{index}]")
        last = segment["address"]
        check_segment(segment, f"segments[{index}]", devices[segment["device"]], sums, faults)
    check_own(snapshot, sums, moving, faults)
    if faults.count:
        return  # what follows would be found wrong for that alone
    for number, trace in enumerate(traces):
        check_trace(trace, f"device_traces[{number}]", devices[number], snapshot["tarn"]["exact_from"][number], faults)


def check_file(path, moving=False):
    """Checks a file; gives what it found wrong, and the snapshot."""
    faults, snapshot = Faults(), None
    with open(path, "rb") as file:
        data = file.read()
    try:
        check_opcodes(data, faults)
        snapshot = pickle.loads(data)
    except Exception as error:  # whatever pickle makes of it
        faults("no pickle", "the file", str(error))
    if snapshot is not None:
        check_snapshot(snapshot, moving, faults)
    return faults, snapshot


def main(paths):
    if not paths or paths[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if paths else 2
    moving = paths[0] == "--moving"
    paths = paths[1:] if moving else paths
    wrong = False
    for path in paths:
        faults, snapshot = check_file(path, moving)
        wrong = wrong or faults.count > 0
        if faults.count:
            print(f"{path}: wrong in {faults.count} places")
            for text in faults.texts:
                print(f"  {text}")
            continue
        entries = sum(len(trace) for trace in snapshot["device_traces"])
        exact = entries - sum(snapshot["tarn"]["exact_from"])
        blocks = sum(len(segment["blocks"]) for segment in snapshot["segments"])
        print(
            f"{path}: right: {len(snapshot['segments'])} segments, {blocks} blocks, {entries} entries, {exact} of them exact, "
            f"{len(snapshot['tarn']['events'])} events"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
