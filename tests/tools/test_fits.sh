#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn report --fits`: what it says, beside what `tarn replay` makes of a device with the memory that remains.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*" >&2; cat "$work/err" >&2; exit 1; }
refuses() { # STATUS TEXT ARGUMENT...
    local status=0
    "$TARN_PROGRAM" report "${@:3}" >"$work/out" 2>"$work/err" || status=$?
    [ "$status" = "$1" ] || fail "status $status: ${*:3}"
    grep -q "$2" "$work/err" || fail "another error: ${*:3}"
}

refuses 2 'fits wants a size of 2 MiB' --fits 24 "$TARN_TEST_DATA/well.pickle"
refuses 2 'outside wants a size' --fits 24G --outside much "$TARN_TEST_DATA/well.pickle"
refuses 2 'outside goes with --fits' --outside 1G "$TARN_TEST_DATA/well.pickle"
refuses 2 'for one file' --fits 24G -o "$work/page.html" "$TARN_TEST_DATA/well.pickle"
refuses 2 'for one file' --fits 24G "$TARN_TEST_DATA/well.pickle" "$TARN_TEST_DATA/oom.pickle"
refuses 2 'leave out --at and --by' --fits 24G --at oom "$TARN_TEST_DATA/oom.pickle"
refuses 2 'leave out --at and --by' --fits 24G --by stream "$TARN_TEST_DATA/oom.pickle"
refuses 1 'has nothing left of it: 1.00 GiB lie outside' --fits 1G --outside 1G "$TARN_TEST_DATA/well.pickle"
refuses 1 'this file has none: it is a state' --fits 1G "$TARN_TEST_DATA/state-only.pickle"

cat >"$work/check.py" <<'END_OF_PROGRAM'
import json, os, subprocess, sys

program, source, data, work = sys.argv[1:]
MIB, POLICIES = 1 << 20, {"native": "pytorch", "expandable": "expandable", "tarn": "tarn"}


def tarn(*arguments):
    done = subprocess.run([program, *arguments], capture_output=True)
    assert done.returncode in (0, 3), (arguments, done.stderr)
    return json.loads(done.stdout)


def replay(path, device, name, memory):
    found = tarn("replay", "--json", "--what-if", "memory=%d,policy=%s" % (memory, POLICIES[name]), path)
    return next(item for item in found if item["device"] == device and item["what_if"])


verdicts = set()
for path, sizes in ((data + "/well.pickle", (600, 1300)), (data + "/oom.pickle", (100, 2200, 2600)), (data + "/streams.pickle", (1700, 4000)),
                    (data + "/tarn.pickle", (2200,)), (source + "/tests/tools/recordings/cnn-sgd.pickle.zst", (300, 830, 1500))):
    for memory in sizes:
        outside = 37 * MIB
        for found in tarn("report", "--json", "--fits", "%dM" % memory, "--outside", str(outside), path):
            assert (found["memory"], found["outside"], found["outside_from"]) == (memory * MIB, outside, "given"), found
            room = (memory * MIB - outside) // (2 * MIB) * 2 * MIB
            assert found["room"] == room, found
            for said in found["allocators"]:
                where, name = (path, found["device"], said["name"]), said["name"]
                ran = replay(*where, room)
                verdicts.add((name, said["finishes"]))
                assert (said["finishes"] == "no") == (not ran["fits"]), (where, memory, said, ran)
                assert said["finishes"] != "open" or found["begins_late"], where
                if not ran["fits"]:
                    stop = ran["out_of_memory"]
                    assert (said["event"], said["request"]) == (stop["event"], stop["size"]), (where, said, stop)
                    assert said["missing"] == max(0, said["least"] - room), (where, said)
                assert replay(*where, said["least"])["fits"] and not replay(*where, said["least"] - 2 * MIB)["fits"], (where, said)
                more = said["least_at_most"] - said["least"]
                assert (more > 0) == found["begins_late"], (where, said)
assert {"yes", "no"} <= {verdict for _, verdict in verdicts}, verdicts
assert ("native", "open") in verdicts or ("tarn", "open") in verdicts, verdicts

# What lies outside is measured where tarn recorded it: what the device has less what is free and what tarn reserves.
import pickle
kept = pickle.load(open(data + "/tarn.pickle", "rb"))
kept["tarn"]["devices"][0].update(total=4000 * MIB, free=1000 * MIB, reserved=2500 * MIB)
pickle.dump(kept, open(work + "/measured.pickle", "wb"), 2)
found = tarn("report", "--json", "--device", "0", "--fits", "4G", work + "/measured.pickle")[0]
assert (found["outside"], found["outside_from"], found["room"]) == (500 * MIB, "recording", 3596 * MIB), found
found = tarn("report", "--json", "--device", "0", "--fits", "4G", data + "/well.pickle")[0]
assert (found["outside"], found["outside_from"]) == (0, "not known"), found

# A recording that ends with a request that failed: what the program wanted afterwards is not known.
found = tarn("report", "--json", "--fits", "8G", data + "/torn.pickle")[0]
events = pickle.load(open(data + "/torn.pickle", "rb"))["device_traces"][0]
assert [event["action"] for event in events].index("oom") == found["ended_by"], found
assert {said["finishes"] for said in found["allocators"]} == {"past"}, found
text = subprocess.run([program, "report", "--fits", "8G", data + "/torn.pickle"], check=True, capture_output=True, text=True).stdout
assert text.count("  gets past the request that failed at event %s; what follows was not recorded;" % format(found["ended_by"], ",")) == 3, text
assert "finishes" not in text, text
assert tarn("report", "--json", "--fits", "8G", data + "/oom.pickle")[0]["ended_by"] is None # it went on

# The memory of the host, which a profile lists, is no device.
profile = source + "/tests/tools/profiles/trace-cuda.json.zst"
devices = {device["device"] for device in tarn("report", "--json", profile)}
assert len(devices) > 1 and {found["device"] for found in tarn("report", "--json", "--fits", "80G", profile)} == devices - {max(devices)}, devices

# The smallest device that the text names is large enough when it is typed in, though it was rounded.
import re
for path in (data + "/well.pickle", source + "/tests/tools/recordings/cnn-sgd.pickle.zst"):
    for outside in ("0", "37M"):
        command = [program, "report", "--device", "0", "--outside", outside, path, "--fits"]
        text = subprocess.run([*command, "8G"], check=True, capture_output=True, text=True).stdout
        sizes = re.findall(r"^  (\S+) .*smallest device: (?:\S+ \S+ to )?(\S+ \S+)$", text, re.M)
        assert len(sizes) == 3, text
        for name, size in sizes:
            said = json.loads(subprocess.run([*command, size, "--json"], check=True, capture_output=True).stdout)[0]
            assert next(item["finishes"] for item in said["allocators"] if item["name"] == name) == "yes", (path, outside, name, size)
END_OF_PROGRAM
python3 "$work/check.py" "$TARN_PROGRAM" "$TARN_SOURCE" "$TARN_TEST_DATA" "$work"

"$TARN_PROGRAM" report --fits 100M "$TARN_TEST_DATA/well.pickle" >"$work/out"
grep -q '^  native      runs out of memory at event 5, at a request of 60.0 MiB; 1.08 GiB are missing; smallest device: 1.18 GiB$' "$work/out" || fail "$(cat "$work/out")"
