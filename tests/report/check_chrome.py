#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""check_chrome.py FILE...: whether a file is JSON of the Trace Event Format, true to itself and whole: with no record left out.

Each end has a beginning before it: regions by thread, blocks by address. Counters do not go below 0, and in the end say of allocated
bytes what the blocks that are not freed, and were there before, come to."""

import json
import sys


def fail(path, text):
    sys.exit(f"{path}: {text}")


def check(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    regions, blocks, last, counters = {}, {}, {}, {}
    for number, event in enumerate(events):
        phase, where = event["ph"], f"event {number}: {event}"
        if phase == "M":
            continue
        if event["ts"] < last.get(event["pid"], 0):
            fail(path, f"time goes back in {where}")
        last[event["pid"]] = event["ts"]
        if phase == "B":
            regions.setdefault(event["tid"], []).append(event["name"])
        elif phase == "E":
            if not regions.get(event["tid"]) or regions[event["tid"]].pop() != event["name"]:
                fail(path, f"an end without its beginning in {where}")
        elif phase == "b":
            block = event["pid"], event["id2"]["local"] # of its device's process, and not of the whole file
            if block in blocks:
                fail(path, f"a block that is there already in {where}")
            blocks[block] = event
        elif phase == "e":
            block = event["pid"], event["id2"]["local"]
            if block not in blocks:
                fail(path, f"an end of what has not begun in {where}")
            if blocks.pop(block)["name"] != event["name"]: # then no viewer ends the block
                fail(path, f"another name at the end in {where}")
        elif phase == "C":
            counters[event["pid"]] = event["args"]
            if min(event["args"].values()) < 0:
                fail(path, f"less than nothing in {where}")
        elif phase != "i":
            fail(path, f"no phase that is written in {where}")
    if any(regions.values()):
        fail(path, f"regions without an end: {regions}")
    for device, counter in counters.items():
        live = sum(block["args"]["size"] for block in blocks.values() if block["pid"] == device)
        if counter["allocated"] != live:
            fail(path, f"{counter['allocated']} bytes are allocated in the end, of blocks of {live}")
    print(f"{path}: right: {len(events)} events, {len(blocks)} blocks in the end")


for argument in sys.argv[1:]:
    check(argument)
