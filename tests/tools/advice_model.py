#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
"""Why the advice on each recording is true: advice_model.py PROGRAM RECORDING... prints a line for each recording, and fails where one is not.

Each figure of a sentence is computed again from the recording alone (truth.py). What a sentence says of other allocators is tried on a device
of just that size: what "reserves 842 MiB" must run to its end on a device of 842 MiB. Where nothing is advised, no threshold of advice.c
is met, and a replay saves no more than that allows. Without a replay the sentences say "may"."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys

from truth import NEVER, read, recordings, truths_of

PROGRAM = sys.argv[1]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1 << 40}
AMOUNT = r"([0-9.]+ [KMGT]?i?B)"
LEAST, GRANULE, ROUNDED = 64 * MIB, 2 * MIB, 32 * MIB
MOST_EVENTS = 60000  # of a recording; larger ones are tried with TARN_NIGHTLY=1
POLICIES = {"native": "pytorch", "expandable": "expandable", "tarn": "tarn"}


class Untrue(Exception):
    pass


def demand(holds, what):
    if not holds:
        raise Untrue(what)


def amount(text):
    number, unit = text.split()
    digits = len(number.partition(".")[2])
    return float(number) * UNITS[unit], 0.51 * 10.0 ** -digits * UNITS[unit]


def same(text, size, what):
    """An amount of a sentence is a number of bytes, to its last digit."""
    said, close = amount(text)
    demand(abs(said - size) <= close, f"{what}: {text}, but truly {size} bytes")


def shown(size):
    unit = next((unit for unit in ("GiB", "MiB", "KiB") if size >= 0.97 * UNITS[unit]), "B")
    return f"{size / UNITS[unit]:.3g} {unit}"


def take(pattern, text, what):
    found = re.search(pattern, text)
    demand(found, f"{what} is not said in: {text}")
    return found.groups()


def tarn(*arguments):
    ran = subprocess.run([PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=900)
    demand(ran.returncode in (0, 3), f"{arguments} ended with {ran.returncode}: {ran.stderr.decode()[:400]}")
    return json.loads(ran.stdout)


class Replay:
    """A recording's device in other allocators; what is asked twice is run once."""

    def __init__(self, path, device):
        self.path, self.device, self.known = path, device, {}
        self.base = next(item for item in tarn("replay", "--json", path) if item["device"] == device)

    def reserved(self, policy):
        return self.base["peak_reserved" if policy == "tarn" else POLICIES[policy] + "_peak_reserved"]

    def fits(self, policy, memory):
        memory = -(-memory // GRANULE) * GRANULE
        if (policy, memory) not in self.known:
            ran = tarn("replay", "--json", "--what-if", f"memory={memory},policy={POLICIES[policy]}", self.path)
            item = next(item for item in ran if item["device"] == self.device and item["what_if"])
            self.known[policy, memory] = item["fits"]
        return self.known[policy, memory]

    def holds(self, policy, size):
        """Runs to its end on a device of that size. What tarn does depends on how near its limit is, so it is given up to a hundredth more."""
        for room in (0, size // 400, size // 100):
            if self.fits(policy, size + room):
                return f"{policy} runs to its end on {shown(size + room)}"
        raise Untrue(f"{policy} does not run on a device of {shown(size)}, which it is said to reserve")


class Device:
    """One device of a recording: what is true of it."""

    def __init__(self, path, said, truth):
        self.path, self.said, self.truth, self.made = path, said, truth, None
        self.most = truth.reserved[truth.peak_reserved]
        self.unused, self.idle, self.beside, self.holes = truth.free_at(truth.peak_reserved)
        self.allocated = max(truth.allocated)
        self.late = truth.traced and self.older() > self.most / 2
        excess = max(0, self.most - self.allocated)
        self.spare = min(excess, self.unused)
        self.torn = self.spare >= LEAST and self.spare >= self.most // 10
        self.waiting = truth.waiting[truth.peak_reserved]
        gone, self.again, self.returned, self.pieces = False, 0, 0, 0
        for event in truth.trace if truth.traced else ():
            if event["action"] in ("segment_free", "segment_unmap"):
                gone, self.returned, self.pieces = True, self.returned + event["size"], self.pieces + 1
            elif event["action"] in ("segment_alloc", "segment_map") and gone:
                self.again += event["size"]

    def older(self):
        """Bytes of what is reserved at the peak that were reserved before the recording."""
        made, bytes_left = [], self.truth.reserved[0]  # what was mapped in the recording: first and last address
        for event in self.truth.trace[:self.truth.peak_reserved]:
            begin, end = event.get("addr"), event.get("addr", 0) + event["size"]
            if event["action"] in ("segment_alloc", "segment_map"):
                made.append((begin, end))
            elif event["action"] in ("segment_free", "segment_unmap"):
                bytes_left -= event["size"] - sum(max(0, min(b, end) - max(a, begin)) for a, b in made)
                made = [(a, b) for x, y in made for a, b in ((x, min(y, begin)), (max(x, end), y)) if a < b]
        return bytes_left

    def replay(self):
        if not self.made:
            self.made = Replay(self.path, self.said["device"])
        return self.made

    def returns(self):
        both = min(self.returned, self.again)
        return both >= LEAST and both >= self.most / 2


# --- the kinds of advice, one function each: what makes it true ------------------------------------------------------

def state_without_trace(device, text):
    same(take(f"^Of the {AMOUNT} reserved", text, "what is reserved")[0], device.most, "reserved")
    parts = []
    if device.idle:
        size, count = take(rf"{AMOUNT} \([0-9.]+ %\) are in ([0-9,]+) segments? without a block", text, "segments without a block")
        same(size, device.idle, "segments without a block")
        parts.append(f"{shown(device.idle)} in {count} segments without a block")
    beside = device.unused - device.idle
    if beside:
        size, count, most = take(rf"{AMOUNT} \([0-9.]+ %\) are free in ([0-9,]+) holes? beside blocks, of at most {AMOUNT}", text, "holes")
        same(size, beside, "holes beside blocks")
        same(most, max(device.beside), "the largest hole")
        demand(int(count.replace(",", "")) == len(device.beside), f"{count} holes, but truly {len(device.beside)}")
        parts.append(f"{shown(beside)} in {count} holes beside blocks")
    demand(("return to the device with" in text) == (device.idle >= LEAST), "whether segments go back for the asking")
    demand(("What may join such holes" in text) == (beside >= LEAST and beside >= device.most // 10), "whether holes can be joined")
    return "counted again: " + " and ".join(parts)


def fragmentation(device, text):
    truth = device.truth
    if not truth.traced:
        return state_without_trace(device, text)
    free, whole, count, largest = take(
        rf"^At the peak of reserved memory, {AMOUNT} of {AMOUNT} \([0-9.]+ %\) are free, in ([0-9,]+) holes? of at most {AMOUNT}\.", text, "the peak")
    for size, true, what in ((free, device.unused, "free"), (whole, device.most, "reserved"), (largest, max(device.holes), "the largest hole")):
        same(size, true, what)
    demand(int(count.replace(",", "")) == len(device.holes), f"{count} holes, but truly {len(device.holes)}")
    demand(device.torn, "it is below the thresholds")
    counted = f"{free} of {whole} free, counted again"
    demand(("before the recording began" in text) == device.late, "whether most was reserved before the recording")
    if device.late:
        demand("replay" not in text, "a replay cannot show what was before")
        return f"{counted}; {shown(device.older())} of it were reserved at event 0, so the cause is not in it"
    never, size = take(rf"(never had more than|never has more than) {AMOUNT} allocated\.", text, "what was allocated")
    same(size, device.allocated, "allocated")
    demand((never == "never has more than") <= all(begin for _, begin, *_ in truth.lives), "blocks from before the recording")
    if "What may join" in text:
        return f"{counted}; nothing was replayed, and it says may"
    if device.truth.ooms:
        return counted + "; with what failed above"
    replay, worth = device.replay(), device.most - device.spare // 4
    reserved = {policy: replay.reserved(policy) for policy in POLICIES}
    reasons = []
    for policy, pattern in (("expandable", rf"(?:reserves|, and) {AMOUNT} with expandable segments"), ("tarn", rf"(?:reserves|, and) {AMOUNT} with tarn")):
        found = re.search(pattern, text)
        if found:
            same(found.group(1), reserved[policy], policy)
            demand(reserved[policy] <= worth, f"{policy} saves too little to be advised")
            reasons.append(replay.holds(policy, reserved[policy]))
        elif "Neither" in text or policy == "tarn":
            demand(not reserved[policy] or reserved[policy] > worth, f"{policy} would save enough to be advised")
            reasons.append(f"{policy} would save too little ({shown(reserved[policy])})")
        else:
            worse = re.search(rf"expandable segments do not help \({AMOUNT}\)", text)
            demand(not worse or reserved[policy] > worth, "expandable segments help")
            if worse:
                same(worse.group(1), reserved[policy], policy)
                reasons.append(f"expandable segments reserve {shown(reserved[policy])}")
    native = reserved["native"]
    said = re.search(rf"It reserves {AMOUNT} with PyTorch's default settings, too,", text)
    demand(bool(said) == (" A replay of the trace reserves" in text and 0 < native <= worth and "tarn.use" not in text and "tarn run" not in text),
           "whether the default settings explain what was reserved")
    if said:
        same(said.group(1), native, "with the default settings")
    return f"{counted}; {'; '.join(reasons)}; the default settings reserve {shown(native)} in the same replay ({native / device.most:.3f} of the recorded)"


def out_of_memory(device, text):
    truth, replay = device.truth, None
    place, event = [(i, event) for i, event in enumerate(truth.trace) if event["action"] == "oom"][-1]
    moment = min(place, len(truth.allocated) - 1)
    asked, free = event["size"], event.get("device_free", 0)
    same(take(rf"request that failed was for {AMOUNT}", text, "what was asked for")[0], asked, "asked")
    unused, _, _, holes = truth.free_at(moment)
    reserved, allocated = truth.reserved[moment], truth.allocated[moment]
    if not reserved:
        demand("does not show how much was reserved" in text, "what is not known")
        same(take(rf"{AMOUNT} were allocated", text, "allocated")[0], allocated, "allocated")
        needs = re.search(rf"fits on a device of (?:.*, of )?{AMOUNT} with tarn", text)
        return f"{shown(allocated)} allocated, counted again; that the cause is not known is said" + (f"; tarn needs {needs.group(1)}" if needs else "")
    size, whole = take(rf"{AMOUNT} of the {AMOUNT} reserved were free", text, "what was free")
    same(size, unused, "free")
    same(whole, reserved, "reserved")
    limit = free >= asked + ROUNDED
    verdict = ("a limit refused it" if limit else "This is fragmentation" if unused + free >= asked else
               "waited for another stream" if unused + free + truth.waiting[moment] >= asked else "too little")
    demand(verdict in text, f"the cause is truly: {verdict}")
    if verdict == "This is fragmentation":
        same(take(rf"the largest hole was {AMOUNT}", text, "the largest hole")[0], max(holes), "the largest hole")
    why = f"{shown(unused)} free of {shown(reserved)} and {shown(free)} on the device for {shown(asked)}, counted again ({verdict})"
    tried = re.search(r"In a replay on a device of that size, (.*?)\. ?(?:The recorded|Judging|$)", text)
    if not tried:
        return why + ("; it says may" if "may" in text else "")
    replay = device.replay()
    serve, _, deny = tried.group(1).partition("; ") if " serve" in tried.group(1).partition(";")[0] and " not" not in tried.group(1).partition(";")[0] \
        else ("", "", tried.group(1))
    for policy, name in (("native", "PyTorch's default settings"), ("expandable", "expandable segments"), ("tarn", "tarn")):
        fits = replay.fits(policy, replay.base["device_memory"])
        demand((re.search(rf"\b{name}", serve) is not None) == fits, f"{name}: whether it serves what failed")
        demand((re.search(rf"\b{name}", deny) is not None) <= (not fits), f"{name}: whether it does not serve what failed")
    return why + f"; on a device of {shown(replay.base['device_memory'])} " + tried.group(1)


def leak(device, text):
    size = take(rf"frees none of it: {AMOUNT} in", text, "what leaks")[0]
    kept = sum(life[0] for life in device.truth.lives if life[2] >= len(device.truth.allocated) and life[1])
    demand(amount(size)[0] <= kept * 1.01, f"{size} leak, but all that is never freed is {kept} bytes")
    return f"{size} of the {shown(kept)} that are never freed"


def waiting(device, text):
    same(take(rf"^At the peak of reserved memory, {AMOUNT} of", text, "what waits")[0], device.waiting, "waiting")
    return f"{shown(device.waiting)} wait, counted again"


def optimizer(device, text):
    """State of the same kind is made by one line for each weight, and is as large: so often the weights, as there are such lines."""
    truth, sites, made = device.truth, {}, 0
    begun = {moment: event for moment, event in enumerate(truth.trace, 1) if event["action"] == "alloc"}
    for size, begin, freed, *_ in truth.lives:
        frames = begun.get(begin, {}).get("frames") or []
        frame = next((frame for frame in frames if frame["filename"].endswith(".py") and
                      ("/optim/" in frame["filename"] or "optimizer" in frame["filename"])), None)
        if not frame:
            continue
        if begin <= truth.peak and freed == NEVER:
            made += size
            sites[frame["filename"], frame["line"]] = sites.get((frame["filename"], frame["line"]), 0) + size
    works = [moment for moment, event in begun.items() if any("optimizer" in frame["filename"] for frame in event.get("frames") or [])]
    renewed = sum(life[0] for life in truth.lives if works and works[0] < life[2] < works[-1] and not life[1])
    anew = re.search("makes anew in each step", text)
    said = amount(take(rf"has {AMOUNT}", text, "what the optimizer has")[0])[0]
    demand(said >= 0.98 * made, f"lines of the optimizer made {made} bytes")
    if anew:
        demand(renewed, "nothing of it was made anew")
        return f"{shown(renewed)} from before were freed while it ran, and it made as much anew; so weights may be among what it has"
    times = float(take(r"([0-9.]+) times the weights", text, "the weights")[0])
    lines = len(sites)
    demand(not lines or abs(times - lines) < 0.15 * lines, f"{times} times the weights, but {lines} lines make state")
    return f"{lines} lines of the optimizer make state, and it has {times} times the weights" if lines else f"{times} times the weights, all from before the recording"


def returns(device, text):
    returned, pieces, again = take(rf"^{AMOUNT} were returned to the driver in ([0-9,]+) pieces?.*, and {AMOUNT} were taken again", text, "what went")
    same(returned, device.returned, "returned")
    same(again, device.again, "taken again")
    demand(int(pieces.replace(",", "")) == device.pieces and device.returns(), f"{pieces} pieces, but truly {device.pieces}")
    trims = device.replay().base["trims"]
    demand(("empty_cache()" in text) <= (trims > 0), "the program never emptied the cache")
    demand(("ran short" in text) == (trims == 0) if "tarn run" not in text else True, "memory ran short, and that is not said")
    return f"{returned} in {pieces} pieces, counted again" + (f"; the program emptied the cache {trims} times" if trims else "; for lack of memory")


def nothing(device):
    """No threshold is met, and a replay finds no more than what lies below them."""
    demand(not device.truth.ooms, "memory ran out")
    demand(not device.torn, f"{shown(device.unused)} are free")
    demand(device.waiting < LEAST or device.waiting < device.most // 10, f"{shown(device.waiting)} wait")
    demand(not device.returns(), "memory goes and comes back")
    share = 100 * device.spare / device.most if device.most else 0
    why = f"nothing is advised: {shown(device.spare)} ({share:.1f} %) more reserved than needed" if device.most else "nothing is advised: it has no segments"
    if not device.truth.traced or not device.most or device.late:
        return why
    best, policy = min((device.replay().reserved(policy) or 1 << 62, policy) for policy in ("expandable", "tarn"))
    demand(device.most - best < max(LEAST, device.most // 10), f"{policy} would save {shown(device.most - best)}")
    return f"{why}, and the best replay ({policy}) saves {max(0, device.most - best) / device.most:.1%}"


KINDS = {kind.__name__: kind for kind in (out_of_memory, leak, fragmentation, waiting, optimizer, returns)}


def judge(path):
    """The lines of a recording, and whether all of it is true."""
    lines, well = [], True
    truths = truths_of(read(path))
    name = os.path.join(*path.split("/")[-2:]) if path.count("/same-name/") else os.path.basename(path)
    if sum(len(truth.trace) for truth in truths.values()) > MOST_EVENTS and os.environ.get("TARN_NIGHTLY") != "1":
        return [], True
    plain = tarn("report", "--json", "--no-what-if", path)
    for said, without in zip(tarn("report", "--json", path), plain):
        device = Device(path, said, truths[said["device"]])
        begin = name + (f", device {said['device']}" if len(truths) > 1 else "")
        try:
            for advice in without["advice"]:
                demand(not re.search("[Ii]n a replay|A replay|serves? ", advice["text"]), "a replay is told that was not made: " + advice["text"])
                demand(not re.search("join|may help", advice["text"]) or " may " in advice["text"], "it does not say may: " + advice["text"])
            kinds = [advice["kind"] for advice in said["advice"]]
            demand(device.torn == ("fragmentation" in kinds) or len(kinds) == 3 or device.truth.ooms, "what is free is not told")
            for advice in said["advice"]:
                lines.append(f"{begin}: {advice['kind']}: {KINDS[advice['kind']](device, advice['text'])}")
            if not said["advice"]:
                lines.append(f"{begin}: {nothing(device)}")
        except Untrue as untrue:
            lines.append(f"{begin}: NOT TRUE: {untrue}")
            well = False
    return lines, well


def main():
    paths = [path for argument in sys.argv[2:] for path in (recordings(argument) if os.path.isdir(argument) else [argument])]
    wrong = 0
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for lines, well in pool.map(judge, paths):
            print("\n".join(lines), flush=True) if lines else None
            wrong += not well
    sys.exit(f"advice_model: of {len(paths)} recordings, {wrong} have advice that is not true" if wrong else 0)


main()
