#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Each subcommand of `tarn` that reads or shows something, with each kind of input and of output: commands_model.py PROGRAM FOLDER

What is held: the exit status; no signal; what is on standard output is whole (JSON is JSON, text is UTF-8 without control characters, a page
ends); what fails says why on standard error. And no lie about totals: the peaks, the end and the errors of each device are computed
here once more, from the pickle or the log alone, by a program that shares nothing with the first. FOLDER is filled with small inputs."""

import concurrent.futures
import copy
import json
import os
import pickle
import random
import re
import subprocess
import sys

import commands_programs
import make_snapshots as make
from page_data import description_of
from truth import log_as_snapshot, read, recordings, truths_of

PROGRAM, FOLDER = sys.argv[1:3]
MIB = 1 << 20


# --- inputs ----------------------------------------------------------------------------------------------------------

def inputs():
    """{name: (path, truths or None where the file is none)}"""
    found = {}

    def put(name, data, snapshot):
        path = os.path.join(os.fsencode(FOLDER), name if isinstance(name, bytes) else name.encode())
        with open(path, "wb") as file:
            file.write(data)
        found[name] = (path, truths_of(snapshot) if snapshot is not None else None)

    devices = [make.Device(i, 40 + i, late=0.3, pool_ids=True) for i in range(2)]
    for device in devices:
        device.work(150, (0, 0x55), ((0, 0), (0, 1)), target=20)
    good = make.snapshot(devices)
    data = pickle.dumps(good, 4)
    put("good.pickle", data, good)
    put("good.pickle.zst", make.zstd_stored(data), good)
    put("tarn.pickle", pickle.dumps(make.tarn_layout(copy.deepcopy(good)), 4), good)
    old = make.old_layout(copy.deepcopy(good))
    put("old.pickle", pickle.dumps(old, 2), old)
    put("state.pickle", pickle.dumps({"segments": good["segments"]}, 4), {"segments": good["segments"]})
    ring = make.snapshot(devices, ring=100)
    put("ring.pickle", pickle.dumps(ring, 4), ring)
    put(b"name-\xff\x1b[31m.pickle", data, good)

    device = make.Device(0, 44, capacity=600 * MIB)
    blocks = [device.alloc(8 * MIB) for _ in range(60)]
    for block in blocks[::2]:
        device.free(block)
    assert not device.alloc(200 * MIB)
    torn = make.snapshot([device])
    put("torn.pickle", pickle.dumps(torn, 4), torn)

    lone = {"segments": [{"device": 0, "address": 1 << 30, "total_size": 4 * MIB, "stream": 0, "is_expandable": False, "blocks": [
        {"address": 1 << 30, "size": MIB, "requested_size": MIB - 9, "state": "active_pending_free"},
        {"address": (1 << 30) + MIB, "size": 3 * MIB, "requested_size": 0, "state": "inactive"}]}],
        "device_traces": [[{"action": "free_completed", "addr": (1 << 30) + 2 * MIB, "size": 777, "stream": 0, "time_us": 5},
                           {"action": "alloc", "addr": (1 << 30) + 2 * MIB, "size": 5000, "stream": 0, "time_us": 9},
                           {"action": "free_requested", "addr": (1 << 30) + 2 * MIB, "size": 5000, "stream": 0, "time_us": 11}]]}
    put("lone.pickle", pickle.dumps(lone, 4), lone)
    nothing = {"segments": [], "device_traces": [[], []]}
    put("nothing.pickle", pickle.dumps(nothing, 4), nothing)

    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    source, live = random.Random(6), {}
    for i in range(120):
        if live and source.random() < 0.45:
            address = source.choice(sorted(live))
            lines.append(f"7,10:00:{i % 60:02}.5,free,{address:#x},{live.pop(address)},0x0")
        else:
            address, size = (i + 1) << 20, source.randint(1, MIB)
            live[address] = size
            lines.append(f"{7 + i % 2},10:00:{i % 60:02}.5,allocate,{address:#x},{size},0x0")
    lines.append("7,10:00:59.9,allocate failure,0x0,1099511627776,0x0")
    log = "\n".join(lines) + "\n"
    put("log.csv", log.encode(), log_as_snapshot(log))
    put("cut.csv", ("\ufeff" + log + "8,10:00:59.9,alloc").encode(), log_as_snapshot(log))

    put("empty", b"", None)
    put("text", b"this is not a pickle\n", None)
    put("zip", b"PK\x03\x04" + bytes(40), None)
    for i, at in enumerate((1, 100, len(data) // 2, len(data) - 1)):
        put(f"cut-{i}", data[:at], None)
    for i in range(6):  # what a byte more or less makes of it is not known, except that it is no crash
        where, mangled = source.randrange(len(data)), bytearray(data)
        mangled[where] ^= 1 << source.randrange(8)
        put(f"mangled-{i}", bytes(mangled), None)
    huge = copy.deepcopy(lone)
    huge["device_traces"][0][1]["size"] = (1 << 63) + 5
    huge["device_traces"][0].append({"action": "oom", "device_free": (1 << 64) - 1, "size": 1 << 62, "stream": 0, "time_us": 12})
    put("huge", pickle.dumps(huge, 4), None)
    os.mkdir(os.path.join(FOLDER, "folder"))
    found["folder"] = (os.path.join(os.fsencode(FOLDER), b"folder"), None)
    found["missing"] = (os.path.join(os.fsencode(FOLDER), b"missing"), None)
    return found


# --- what the program says -------------------------------------------------------------------------------------------

def fail(arguments, why, ran=None):
    said = b"" if ran is None else ran.stdout[:600] + b"\n" + ran.stderr[:600]
    sys.exit(f"commands_model: {b' '.join(arguments)!r}: {why}\n{said.decode(errors='replace')}")


def run(*arguments, stdin=None, statuses=(0, 1, 2, 3), env=None):
    arguments = [argument if isinstance(argument, bytes) else argument.encode() for argument in arguments]
    ran = subprocess.run([PROGRAM.encode(), *arguments], input=stdin if stdin is not None else b"", capture_output=True, timeout=600, env=env)
    if ran.returncode not in statuses:
        fail(arguments, f"ended with {ran.returncode}", ran)
    if statuses == (0, 1, 2, 3) and ran.returncode in (1, 2) and not ran.stderr and b"failed" not in ran.stdout and b'"error"' not in ran.stdout:
        fail(arguments, "fails and does not say why", ran)
    for stream in (ran.stdout, ran.stderr):
        try:
            text = stream.decode("utf-8")
        except UnicodeDecodeError as error:
            fail(arguments, f"prints no UTF-8: {error}", ran)
        if b"-o" not in arguments and re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
            fail(arguments, "prints control characters", ran)
    made = None
    if b"--json" in arguments and (ran.stdout or ran.returncode == 0):
        try:
            made = json.loads(ran.stdout)
        except ValueError as error:
            fail(arguments, f"prints no JSON: {error}", ran)
    return arguments, ran, made


def expect(arguments, what, got, wanted):
    if got != wanted:
        fail(arguments, f"{what} is {got!r}, but truly {wanted!r}")


def check_state(arguments, name, state, truth, moment):
    expect(arguments, name + ": the moment", state["event"], moment)
    expect(arguments, name + ": allocated", state["allocated"], truth.allocated[moment])
    expect(arguments, name + ": waiting", state["waiting"], truth.waiting[moment])
    expect(arguments, name + ": reserved", state["reserved"], truth.reserved[moment])


def check_report(arguments, said, truths):
    expect(arguments, "the devices", [item["device"] for item in said], sorted(truths))
    for item in said:
        truth = truths[item["device"]]
        check_state(arguments, "the peak", item["peak"], truth, truth.peak)
        check_state(arguments, "the peak of reserved memory", item["peak_reserved"], truth, truth.peak_reserved)
        check_state(arguments, "the end", item["at"], truth, len(truth.allocated) - 1)
        expect(arguments, "live blocks", item["at"]["blocks"], truth.blocks)
        expect(arguments, "errors", [oom["asked"] for oom in item["out_of_memory"]], truth.ooms)
        if truth.traced:
            expect(arguments, "allocations", item["allocations"], truth.allocations)


def check_replay(arguments, said, truths):
    replayed = {device: truth for device, truth in truths.items() if truth.traced}
    for item in said:
        if "state" in item:
            if "device" in item:
                expect(arguments, "reserved", item["state"]["reserved"], truths[item["device"]].reserved[-1])
            continue
        truth = replayed.pop(item["device"])
        expect(arguments, "requested", item["peak_requested"], max(truth.allocated))
        expect(arguments, "events", item["events"], len(truth.trace))
        expect(arguments, "allocations", item["allocations"], truth.allocations)
        expect(arguments, "errors", item["recorded_ooms"], len(truth.ooms))
        expect(arguments, "divergences", item["divergences"], 0)
        if item["recorded_peak_reserved"] is not None:
            expect(arguments, "reserved in the recording", item["recorded_peak_reserved"], max(truth.reserved))
        for policy in ("peak_reserved", "pytorch_peak_reserved", "expandable_peak_reserved"):
            ooms = item.get(policy.replace("peak_reserved", "ooms"), 0) if policy != "peak_reserved" else 0
            if not ooms and item[policy] < max(truth.allocated):
                fail(arguments, f"{policy} is below what was requested")
    expect(arguments, "devices that were not replayed", list(replayed), [])


def check_diff(arguments, said, truths):
    for item in said:
        truth = truths[item["device"]]
        for side in ("before", "after"):
            check_state(arguments, side, item[side]["at"] if "at" in item[side] else item[side], truth, truth.peak)


def check_page(arguments, ran, truths):
    if not ran.stdout.decode().rstrip().endswith("</html>"):
        fail(arguments, "the page has no end")
    for item in description_of(ran.stdout)["files"][0]["traces"]:
        truth = truths[item["device"]]
        expect(arguments, "the page's peaks", (item["peak"], item["peakReserved"], len(item["ooms"])),
               (truth.peak, truth.peak_reserved, len(truth.ooms)))


LINES = (("report", "--json", "--at", "end"), ("report", "--text"), ("report", "--no-what-if", "-o", "-"), ("replay", "--json"),
         ("replay",), ("replay", "--json", "--what-if", "policy=pytorch"), ("diff", "--json"), ("diff",),
         ("plan", "--json", "--seconds", "0"), ("plan", "--seconds", "0"))


def of_input(name, path, truths, lines=LINES, pipes=True):
    """What reads one file."""
    bad = truths is None
    certain = not name.startswith("mangled") and name != "huge" if isinstance(name, str) else True
    done = 0

    def status(ran, arguments, wanted):
        if certain and ran.returncode not in wanted:
            fail(arguments, f"status {ran.returncode}, not {wanted}", ran)

    empty = not bad and not truths
    for line in lines:
        arguments, ran, said = run(*line, path, *([path] if line[0] == "diff" else []))
        done += 1
        planned = not bad and any(truth.traced for truth in truths.values())
        wanted = (1,) if bad else (0, 3) if "--what-if" in line else (0,)
        if empty and line[0] in ("report", "diff") or line[0] == "plan" and not planned:
            wanted = (1,)
        if line[0] == "plan" and planned:
            wanted = (0, 1)  # where nothing is above 64 KiB there is nothing to plan
        status(ran, arguments, wanted)
        if bad or ran.returncode == 1:
            if line[0] != "replay" and certain and ran.stdout:
                fail(arguments, "prints something, and fails", ran)
            continue
        if line[0] == "report" and said is not None:
            check_report(arguments, said, truths)
        elif line[0] == "replay" and said is not None and "--what-if" not in line:
            check_replay(arguments, said, truths)
        elif line[0] == "diff" and said is not None:
            check_diff(arguments, said, truths)
        elif line[0] == "plan" and said is not None:
            truth = truths[said["device"]]
            expect(arguments, "requested", said["peak_requested"], max(truth.allocated))
        elif "-o" in line:
            check_page(arguments, ran, truths)
    if pipes and isinstance(name, str) and os.path.isfile(path):  # the same through a pipe
        with open(path, "rb") as file:
            data = file.read()
        for line in (("report", "--json", "--at", "end", "-"), ("replay", "--json", "-"), ("plan", "--json", "--seconds", "0", "-")):
            arguments, ran, said = run(*line, stdin=data)
            done += 1
            status(ran, arguments, (1,) if bad else (0, 1) if line[0] == "plan" or empty else (0,))
            if not bad and said is not None and ran.returncode == 0 and line[0] == "report":
                check_report(arguments, said, truths)
            elif not bad and said is not None and ran.returncode == 0 and line[0] == "replay":
                check_replay(arguments, said, truths)
    return done


def others():
    """What reads no file, or several."""
    done = 0
    for command in ("check", "diff", "metrics", "plan", "replay", "report", "run", "sim", "top"):
        for line in ((command, "--help"), ("help", command), (command, "--no-such-option")):
            arguments, ran, _ = run(*line)
            expect(arguments, "the status", ran.returncode, 2 if "--no-such-option" in line else 0)
            done += 1
    for line in (("check",), ("check", "--json"), ("metrics",), ("top", "--once"), ("top", "--json"), ("sim", "--path")):
        arguments, ran, _ = run(*line)
        done += 1
        if ran.returncode and (line[0], ran.returncode) != ("top", 1):  # perhaps nobody publishes
            fail(arguments, f"status {ran.returncode}", ran)
    return done


# --- recordings that are given: TARN_TRACES and TARN_CASES, folders joined by colons ----------------------------------

SMALL, LARGE = 50000, 400000  # bytes of a file; of the larger ones a part is tried, and the largest with TARN_NIGHTLY=1


def of_recording(path, place):
    """A recording whole, cut short and with bits turned: small ones in every way, of others two ways that change with their place."""
    whole = os.environ.get("TARN_NIGHTLY") == "1" or os.path.getsize(path) <= SMALL
    with open(path, "rb") as file:
        data = file.read()
    done = of_input(path, os.fsencode(path), truths_of(read(path)), LINES if whole else (LINES[0], LINES[1 + place % (len(LINES) - 1)]), whole)
    source = random.Random(place)
    for i in range(6 if whole else 1):
        mangled = bytearray(data[:len(data) - source.randrange(len(data)) // 2] if i % 2 else data)
        for _ in range(i + 1):
            mangled[source.randrange(len(mangled))] ^= 1 << source.randrange(8)
        changed = os.path.join(FOLDER, f"mangled-{place}-{i}")
        with open(changed, "wb") as file:
            file.write(mangled)
        done += of_input(f"mangled-{place}-{i}", os.fsencode(changed), None, LINES if whole else LINES[place % 4:place % 4 + 1], whole)
        os.unlink(changed)
    return done


def given():
    folders = [os.environ[name] for name in ("TARN_TRACES", "TARN_CASES") if os.environ.get(name)]
    found = [path for list_of in folders for path in recordings(list_of)]
    if os.environ.get("TARN_NIGHTLY") == "1":
        return found
    few = [path for path in found if os.path.getsize(path) <= LARGE]
    return [path for i, path in enumerate(few) if os.path.getsize(path) <= SMALL or i % 4 == 0]


class Model:
    """What the part about programs takes from here."""
    program, run, fail, expect = PROGRAM, staticmethod(run), staticmethod(fail), staticmethod(expect)

    @staticmethod
    def truths(path):
        return truths_of(read(path))

    @staticmethod
    def of_snapshot(name, path, replayed):
        return of_input(name, path, truths_of(read(path)), LINES[:4:3] if replayed else LINES[:3:2], False)

    @staticmethod
    def outputs(line, environment):
        """Where nothing can be written that is said; a reader that goes ends it, quietly."""
        with open("/dev/full", "wb") as full:
            ran = subprocess.run([PROGRAM, *line], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, timeout=60)
        if ran.returncode != 1 or b"No space left" not in ran.stderr:
            fail([os.fsencode(word) for word in line], f"status {ran.returncode} where the disk is full, and says {ran.stderr!r}")
        reading, writing = os.pipe()
        os.close(reading)
        ran = subprocess.run([PROGRAM, *line], stdout=writing, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment, timeout=60)
        os.close(writing)
        if ran.returncode not in (1, -13):
            fail([os.fsencode(word) for word in line], f"status {ran.returncode} where nobody reads")


def main():
    found, recorded = inputs(), given()
    os.environ.update(TARN_DRIVER="host", TARN_LIVE_DIRECTORY=FOLDER, TERM="dumb", LC_ALL="C.UTF-8")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = [pool.submit(others), pool.submit(commands_programs.programs, Model, FOLDER)]
        jobs += [pool.submit(of_recording, path, place) for place, path in enumerate(recorded)]
        jobs += [pool.submit(of_input, name, *rest) for name, rest in found.items()]
        for line in LINES:
            pool.submit(Model.outputs, [*line, *[found["good.pickle"][0]] * (2 if line[0] == "diff" else 1)], None).result()
        print(f"commands: {sum(job.result() for job in jobs)} runs on {len(found)} inputs and {len(recorded)} recordings")


main()
