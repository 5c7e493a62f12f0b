#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The sentence that `tarn diff` begins with. Its figures are computed here a second way, from the events as they are written, without
# anything of tarn.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/make.py" <<'END_OF_PROGRAM'
import json, pickle, random, re, subprocess, sys

program, work = sys.argv[1:]
KIB = 1 << 10


def make(path, seed, loads, keeps, moved, lines):
    """Allocates at random by four functions, `loads` blocks of load() among them. Gives the peak, what each function has then, and how
    often each allocated."""
    random.seed(seed)
    wanted = ["load"] * loads + ["step"] * 40 + ["norm"] * 30 + ["head"] * keeps
    random.shuffle(wanted)
    events, live, address = [], [], 1 << 30
    now, peak, at_peak, times = {}, 0, {}, {}
    for name in wanted:
        size = random.randrange(1, 400) * 4 * KIB + (100 * KIB if name == "load" else 0)
        address += 4 << 20
        frames = [{"name": name, "filename": "/home/me/train.py", "line": lines[name] + (moved if name != "norm" else 0)}]
        events.append({"action": "alloc", "addr": address, "size": size, "stream": 0, "time_us": len(events), "frames": frames})
        live.append((address, size, name))
        now[name] = now.get(name, 0) + size
        times[name] = times.get(name, 0) + 1
        if sum(now.values()) > peak:
            peak, at_peak = sum(now.values()), dict(now)
        if random.random() < 0.3 and name != "head":
            gone, size, name = live.pop(random.randrange(len(live)))
            now[name] -= size
            for action in ("free_requested", "free_completed"):
                events.append({"action": action, "addr": gone, "size": size, "stream": 0, "time_us": len(events)})
    with open(path, "wb") as out:
        pickle.dump({"segments": [], "device_traces": [events]}, out, 4)
    return peak, at_peak, times


def size_text(size):
    sign, value, unit = "-" if size < 0 else "+", float(abs(size)), 0
    while value >= 999.5:
        value, unit = value / 1024, unit + 1
    return sign + ("%d B" % value if not unit else "%.*f %s" % (2 if value < 9.995 else 1 if value < 99.95 else 0, value,
                                                               (None, "KiB", "MiB", "GiB")[unit]))


lines = {"load": 31, "step": 44, "norm": 58, "head": 70}
checked = set()
for seed in range(12):
    loads, moved = 20 + 13 * (seed % 5), seed % 3
    before, after = "%s/before-%d.pickle" % (work, seed), "%s/after-%d.pickle" % (work, seed)
    one = make(before, seed, 40, 10, 0, lines)
    two = make(after, seed + 100, loads, 10 + seed, moved, lines)
    growth = two[0] - one[0]
    changes = {name: two[1].get(name, 0) - one[1].get(name, 0) for name in lines}
    name = max((name for name in lines if changes[name] * growth > 0), key=lambda name: abs(changes[name]))
    more = two[2][name] - one[2][name]
    line = lines[name] + (moved if name != "norm" else 0)
    wanted = "%s at the peak%s%s by %s  train.py:%d%s." % (
        size_text(growth), ", of which " if abs(changes[name]) <= abs(growth) else "; ", size_text(changes[name]), name, line,
        "" if not more else ", allocated %d %s time%s" % (abs(more), "more" if more > 0 else "fewer", "" if abs(more) == 1 else "s"))
    said = json.loads(subprocess.run([program, "diff", "--json", before, after], check=True, capture_output=True).stdout)[0]
    assert said["said"] == wanted, "seed %d:\n%s\n%s" % (seed, said["said"], wanted)
    text = subprocess.run([program, "diff", before, after], check=True, capture_output=True, text=True).stdout
    assert " ".join(text.split()).startswith("* " + " ".join(wanted.split())), text
    assert len(said["changes"]["call_site"]) <= len(lines), "a call site that moved is there twice"
    checked.add((", of which " in wanted, growth > 0, moved > 0, more != 0))
assert len(checked) >= 6, checked

same = json.loads(subprocess.run([program, "diff", "--json", before, before], check=True, capture_output=True).stdout)[0]["said"]
assert same == "Both have %s allocated at the peak." % size_text(one[0])[1:], same



def recording(name, sites):
    """A file with a block of so many MiB at each line of one function. Those with fewer than 0 are freed at once."""
    events = [{"action": action, "addr": i << 32, "size": abs(size) << 20, "stream": 0,
               "frames": [{"name": "load", "filename": "train.py", "line": line}]} for i, (line, size) in enumerate(sites, 1)
              for action in (["alloc", "free_requested", "free_completed"] if size < 0 else ["alloc"])]
    pickle.dump({"segments": [], "device_traces": [events]}, open("%s/%s.pickle" % (work, name), "wb"))
    return "%s/%s.pickle" % (work, name)


def changes(before, after):
    """The name and the sizes of each changed call site, in MiB."""
    said = json.loads(subprocess.run([program, "diff", "--json", recording("before", before), recording("after", after)], check=True,
                                     capture_output=True).stdout)[0]
    return sorted((change["name"], change["before"] >> 20, change["after"] >> 20) for change in said["changes"]["call_site"]
                  if change["before"] != change["after"])


# Several call sites of a function that moved: in the order of their lines, as numbers, where both sides have as many.
assert changes([(9, 1), (11, 2)], [(99, 1), (101, 2)]) == []
assert changes([(9, 1), (11, 2)], [(99, 1), (101, 7)]) == [("load  train.py:101", 2, 7)]
# Otherwise the largest takes the nearest.
assert changes([(1, 30), (2, 10)], [(14, 9), (15, 4), (16, 29)]) == [
    ("load  train.py:14", 10, 9), ("load  train.py:15", 0, 4), ("load  train.py:16", 30, 29)]
assert changes([(1, 8), (2, 9), (3, 20)], [(15, 8)]) == [("load  train.py:2", 9, 0), ("load  train.py:3", 20, 0)]

# A call site that both sides have did not move, though it has memory at the peak of one side only.
assert changes([(20, -5), (10, 100), (30, 300)], [(10, -5), (20, 300), (30, 300)]) == [("load  train.py:10", 100, 0), ("load  train.py:20", 0, 300)]

# A long name loses its middle in the sentence, and keeps its file.
name = "Kernel_" + "x" * 300
for path, size in (("long-a", 1), ("long-b", 3)):
    events = [{"action": "alloc", "addr": 1 << 32, "size": size << 20, "stream": 0, "frames": [{"name": name, "filename": "train.py", "line": 7}]}]
    pickle.dump({"segments": [], "device_traces": [events]}, open("%s/%s.pickle" % (work, path), "wb"))
said = json.loads(subprocess.run([program, "diff", "--json", work + "/long-a.pickle", work + "/long-b.pickle"], check=True, capture_output=True).stdout)[0]["said"]
assert re.fullmatch(r"\+2.00 MiB at the peak, of which \+2.00 MiB by Kernel_x+\.\.\.x+  train.py:7\.", said), said
assert len(said.split(" by ")[1]) == 121, said

# What was not recorded is no 0: a trace without segments, and a state, which has no errors.
block = {"size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated", "frames": []}
segments = [{"device": 0, "address": 1 << 32, "total_size": 2 << 20, "stream": 0, "segment_type": "large", "blocks": [block]}]
pickle.dump({"segments": segments, "device_traces": []}, open(work + "/state.pickle", "wb"))
text = subprocess.run([program, "diff", work + "/state.pickle", work + "/long-a.pickle"], check=True, capture_output=True, text=True).stdout
assert re.search(r"^reserved +2.00 MiB +-$", text, re.M) and re.search(r"^times out of memory +- +0$", text, re.M), text
END_OF_PROGRAM
LC_ALL=C python3 "$work/make.py" "$TARN_PROGRAM" "$work"
