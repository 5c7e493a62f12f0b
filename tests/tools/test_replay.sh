#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program from outside: what `tarn replay` prints, where, and with which status. TARN_PROGRAM is the program,
# TARN_TEST_DATA the folder of generated snapshots.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"

# The program itself.
run 0 --help && says out 'replay' && silent err
run 0 help && says out 'Usage: tarn'
run 0 help --help && says out 'Usage: tarn'
run 0 --version && says out '^tarn [0-9]'
run 0 help replay && says out 'Usage: tarn replay' && says out '--device-memory'
run 0 replay --help && says out 'Usage: tarn replay' && silent err
run 2 && silent out && says err 'Usage: tarn'
run 2 reply && says err 'did you mean "replay"' && silent out
run 2 help nonsense && says err 'no command "nonsense"'
run 2 --nonsense && says err 'no option --nonsense'
run 2 replay && says err 'no file' && silent out
run 2 replay --nonsense=1 x && says err 'no option --nonsense$'
run 2 replay --d=1 x && says err 'the option --d may mean more than one$'
run 2 replay -x file && says err 'no option -x'
run 2 replay file --lag && says err '--lag needs a value'
run 2 replay --json=yes file && says err '--json takes no value'
for bad in -1 1e3 '' 5x 0x10 nan; do run 2 replay "--lag=$bad" file && says err '--lag wants'; done
for bad in 0 -1 1.5 10001 x; do run 2 replay "--repeat=$bad" file && says err '--repeat wants'; done
for bad in 0 -1 1.5 257 x; do run 2 replay "--deal-streams=$bad" file && says err '--deal-streams wants'; done
for bad in 0 -1 1.5 1025 x; do run 2 replay "--deal-threads=$bad" file && says err '--deal-threads wants'; done
for bad in 0 -1 x 1000000001; do run 2 replay "--vary=$bad" file && says err '--vary wants'; done
for bad in 0 1M 80Q 1.5 -80G 99999999999999999999 9E; do
    run 2 replay "--device-memory=$bad" file && says err '--device-memory wants'
done

# Invalid files.
: >"$work/empty"
echo 'this is not a pickle' >"$work/rubbish"
head -c 3000 "$data/small-4.pickle" >"$work/truncated"
head -c 700 "$data/small-4.pickle.zst" >"$work/truncated.zst"
mkdir "$work/folder"
bad=("$work/empty" "$work/rubbish" "$work/truncated" "$work/truncated.zst" "$work/folder" "$work/missing")
run 1 replay "$work/missing" && says err 'missing: cannot open: '
for file in "${bad[@]}"; do
    run 1 replay "$file" && says err "tarn replay: $file: ."
    run 1 replay --json "$file" && json 'len(a) == 1 and set(a[0]) == {"file", "error"} and a[0]["error"]'
done
run 1 replay --json "$data/small-4.pickle" "${bad[@]}" "$data/small-2.pickle"
json 'len(a) == 10 and ["error" in o for o in a] == [False] * 2 + [True] * 6 + [False] * 2'
name=$work/$'odd\nna\xffme"\\.pickle'
cp "$data/small-4.pickle" "$name"
run 0 replay --json "$name" && json 'len(a) == 2 and a[0]["file"].endswith("odd\nna?me\"\\.pickle")'

# Names reach a terminal without what it would take for commands; JSON is whole whatever they are.
name=$work/$'evil\e[31m\xc2\x9b1mé\xff\r.pickle'
cp "$data/torn.pickle" "$name"
run 0 replay "$name" && says out '^evil?\[31m??1mé??.pickle, device 0$'
cp "$work/rubbish" "$name.bad"
for line in 'replay' 'report' 'diff x' 'plan'; do
    # shellcheck disable=SC2086
    run 1 $line "$name.bad"
    ! grep -q $'\e' "$work/err" || fail "$line prints escape sequences"
done
run 0 replay --json "$name" && json 'a[0]["file"].endswith("evil\x1b[31m\x9b1mé?\r.pickle")'
run 0 report "$name"
! grep -q $'\e' "$work/out" || fail "report prints escape sequences"
run 0 report --json "$name" && json 'a[0]["file"].endswith("evil\x1b[31m\x9b1mé?\r.pickle")'
run 0 report --json "$name" "$name" "$name" && json 'len(a["ranks"]) == 3 and all(r["file"].endswith("?\r.pickle") for r in a["ranks"])'
run 0 report --json "$name" "$name" && json 'a and all(d[side]["file"].endswith("?\r.pickle") for d in a for side in ("before", "after"))'
run 0 diff --json "$name" "$name" && run 0 diff "$name" "$name"
! grep -q $'\e' "$work/out" || fail "diff prints escape sequences"
run 0 plan --json "$name" && json 'a["file"].endswith("?\r.pickle")'
run 0 report -o "$work/page.html" "$name"
grep -q '<title>evil?' "$work/page.html" || fail "the page's title is the name"
run 2 $'no\e[31m'
! grep -q $'\e' "$work/err" || fail "the command's name reaches the terminal"
run 2 replay --lag=$'\e[31m' x
! grep -q $'\e' "$work/err" || fail "a value reaches the terminal"
run 2 nope && lacks err 'did you mean' && run 2 diffs && says err 'did you mean "diff"'

# What can be read once is read once, however often it is run.
for what in '' '--what-if policy=pytorch --what-if lag=1'; do
    # shellcheck disable=SC2086
    "$tarn" replay --json $what - <"$data/small-4.pickle" >"$work/out" && json 'all("error" not in o and o["file"] == "-" for o in a)'
    # shellcheck disable=SC2086
    dd status=none if="$data/small-4.pickle.zst" | "$tarn" replay --json $what - >"$work/out" && json 'all("error" not in o for o in a)'
done
"$tarn" replay --json - <(cat "$data/torn.pickle") <"$data/small-4.pickle" >"$work/out" && json 'len(a) == 3 and all("error" not in o for o in a)'
"$tarn" report - <"$data/torn.pickle" | tr -s '\n ' ' ' >"$work/out" && says out 'In a replay on a device of that size'
(cat "$data/small-4.pickle"; cat "$data/small-4.pickle") >"$work/two" && (head -c "$(stat -c %s "$data/small-4.pickle")" >/dev/null; "$tarn" replay --json -) <"$work/two" >"$work/out" && json 'a[0]["events"] > 0'

# What there is to say of a trace.
run 0 replay --json "$data"/{streams,late-frees,expandable,oom,pools,wrapped,old,small-2,small-3,small-5}.pickle "$data/small-4.pickle.zst"
silent err
json 'all(o["divergences"] == 0 and "error" not in o for o in a)'
json 'all(type(o[k]) is int for o in a for k in ("device", "events", "streams", "peak_requested", "peak_active", "peak_reserved", "divergences", "pytorch_peak_reserved", "expandable_peak_reserved"))'
json 'all(o["peak_requested"] <= o["peak_active"] <= o["peak_reserved"] for o in a)'
json 'all(o["recorded_peak_reserved"] is None or o["recorded_peak_reserved"] >= o["peak_requested"] for o in a)'
json 'all(set(o["driver_time_us"]) == {"A", "B", "C"} and o["driver_time_us"]["A"] > 0 and o["seconds"] > 0 for o in a)'
json 'all(sum(o["driver_calls"].values()) > 0 and o["driver_calls"] == o["repeat"][0]["driver_calls"] for o in a)'
json '{o["device"] for o in a if o["file"].endswith("streams.pickle")} == {0, 1}'
json 'all(o["streams"] == 4 and o["late_frees"] > 0 for o in a if o["file"].endswith("streams.pickle"))'
json 'all(o["recorded_ooms"] > 0 for o in a if o["file"].endswith("/oom.pickle"))'
json 'all(o["pools"] > 1 for o in a if o["file"].endswith("/pools.pickle"))'
json 'all(o["initial_blocks"] > 0 for o in a if o["file"].endswith("/wrapped.pickle"))'
json 'sum(o["lost_events"] for o in a) == 0'

# Protocols and compression make no difference.
json 'len({json.dumps({k: v for k, v in o.items() if k not in ("file", "seconds", "setup_seconds", "repeat")}) for o in a if "/small-" in o["file"] and o["device"] == 0}) == 1'

# Cost table C: that of an H200, one of one's own, or none. With the costs of A it says what A says.
json 'all(o["expandable_driver_time_us"]["C"] > 0 for o in a)' && cp "$work/out" "$work/first"
here=$(cd "$(dirname "$0")/../.." && pwd)
TARN_HOST_COSTS=$here/docs/costs-h200.txt run 0 replay --json "$data/small-4.pickle.zst"
json 'a[0]["driver_time_us"] == next(o["driver_time_us"] for o in json.load(open(sys.argv[1].replace("/out", "/first"))) if o["file"] == a[0]["file"])'
TARN_HOST_COSTS='' run 0 replay --json "$data/small-4.pickle" && json 'all(set(o["driver_time_us"]) == {"A", "B"} for o in a)'
TARN_HOST_COSTS='' run 0 replay "$data/small-4.pickle" && says out 'driver time, cost table B'
printf '%s\n' '# of A' 'alloc 160000 16000' '' 'create 160000 16000 # a piece' 'map 0 0 1500' 'set_access 36000 0' \
    'unmap 0 0 26000' 'release 50000 0' 'free 50000 0' 'reserve 19000 0' 'event_record 500 0' 'event_query 300 0' >"$work/costs"
TARN_HOST_COSTS=$work/costs run 0 replay --json "$data/streams.pickle"
json 'all(set(o["driver_time_us"]) == {"A", "B", "C"} and o["driver_time_us"]["C"] == o["driver_time_us"]["A"] for o in a)'
json 'all(abs(o[p + "_driver_time_us"]["C"] / o[p + "_driver_time_us"]["A"] - 1) < 0.001 for o in a for p in ("pytorch", "expandable"))'
TARN_HOST_COSTS=$work/costs run 0 replay "$data/small-4.pickle" && says out 'driver time, cost table C'
for line in 'fly 1 2' 'map 1' 'map 1 2 3 4' 'map -1 0' 'map 1 4294967296' 'map 1.5 0' 'alloc 1 1'; do
    printf 'alloc 1 1\n\n%s\n' "$line" >"$work/costs"
    TARN_HOST_COSTS=$work/costs run 1 replay "$data/small-4.pickle" && says out "TARN_HOST_COSTS=$work/costs: line 3: "
done
TARN_HOST_COSTS=$work/none run 1 replay "$data/small-4.pickle" && says out "cannot be read"

# The program empties its cache, with one private pool alive and one gone: the same for everybody.
python3 - "$work/trimmed.pickle" <<'END'
import pickle, sys
events, MIB = [], 1 << 20
def event(action, addr, size, pool=(0, 0)):
    events.append({"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 20 * len(events), "pool_id": pool})
def use(addr, size, pool=(0, 0)):
    event("segment_alloc", addr, size, pool)
    event("alloc", addr, size, pool)
    event("free_requested", addr, size, pool)
    event("free_completed", addr, size, pool)
use(0x10000000, 100 * MIB)
use(0x20000000, 50 * MIB, (0, 1))
use(0x30000000, 30 * MIB, (0, 2))
event("segment_free", 0x10000000, 100 * MIB)
event("segment_free", 0x30000000, 30 * MIB, (0, 2))
event("snapshot", 0, 0)
use(0x10000000, 60 * MIB)
with open(sys.argv[1], "wb") as file:
    pickle.dump({"segments": [], "device_traces": [events]}, file, 4)
END
for options in '' '--lag 2' '--repeat 3' '--deal-streams 2' '--deal-threads 2'; do
    # shellcheck disable=SC2086
    run 0 replay --json $options "$work/trimmed.pickle" && silent err
    json 'a[0]["divergences"] == 0 and a[0]["trims"] == 1 and a[0]["pools"] == 3'
    json 'a[0]["peak_reserved"] == a[0]["pytorch_peak_reserved"] == 180 << 20 and a[0]["expandable_peak_reserved"] == (100 + 60 + 40) << 20'
    json 'a[0]["driver_calls"]["release"] > 0 and a[0]["pytorch_driver_calls"]["free"] == 2 and a[0]["expandable_driver_calls"]["unmap"] == 7'
done
run 0 replay --json --lag 50 "$work/trimmed.pickle" && json 'a[0]["waited_us"] == 0 and a[0]["driver_time_us"]["C"] < 10000'
run 0 replay "$work/trimmed.pickle" && says out 'the program gave back what was cached: 1$'

# Lag and repetitions.
run 0 replay --json --lag 2.5 --repeat 4 "$data/streams.pickle"
json 'all(o["divergences"] == 0 and o["lag_ms"] == 2.5 and len(o["repeat"]) == 4 for o in a)'
json 'all(o["peak_reserved"] == max(r["peak_reserved"] for r in o["repeat"]) for o in a)'

# Dealt over streams and threads, the same each time, whatever the threads do.
for options in '--deal-streams 4 --lag 2' '--deal-threads 8' '--deal-streams 3 --deal-threads 5 --lag 1 --repeat 2'; do
    # shellcheck disable=SC2086
    run 0 replay --json $options "$data"/{streams,late-frees,pools,wrapped}.pickle && silent err
    json 'all(o["divergences"] == 0 and "error" not in o for o in a)'
    json 'all(o["peak_requested"] <= o["peak_active"] <= o["peak_reserved"] for o in a)'
    mv "$work/out" "$work/first"
    # shellcheck disable=SC2086
    run 0 replay --json $options "$data"/{streams,late-frees,pools,wrapped}.pickle
    cp "$work/out" "$work/second"
    python3 -c 'import json, sys
a, b = ([{k: v for k, v in o.items() if "seconds" not in k and k != "repeat"} for o in json.load(open(f))] for f in sys.argv[1:])
sys.exit(a != b)' "$work/first" "$work/second" || fail "two replays differ: $options"
done
json 'all(o["deal_streams"] == 3 and o["deal_threads"] == 5 and o["streams"] == 3 for o in a)'
run 0 replay --json --deal-streams 4 "$data/small-4.pickle"
json 'all(o["late_frees"] > 0 and o["pytorch_driver_calls"]["event_record"] > 0 and "deal_threads" not in o for o in a)'
run 0 replay --json "$data/small-4.pickle" && cp "$work/out" "$work/first"
run 0 replay --deal-streams 2 --deal-threads 3 "$data/small-4.pickle"
says out 'dealt over 2 streams, dealt over 3 threads' && says out 'reserved / active'

# A run that differs a little: by its seed.
run 0 replay --json "$data"/{streams,late-frees,pools,wrapped}.pickle && cp "$work/out" "$work/first"
run 0 replay --json --vary 5 "$data"/{streams,late-frees,pools,wrapped}.pickle && silent err
json 'all(o["divergences"] == 0 and "error" not in o for o in a)'
json 'all(o["driver_calls"] != p["driver_calls"] for o, p in zip(a, json.load(open(sys.argv[1].replace("/out", "/first")))))'

# A device that is too small: which event, and how much.
run 1 replay --json --device-memory 64M "$data/small-4.pickle"
json 'len(a) == 2 and all("error" in o and "file" in o for o in a)'
json 'all("event" in o["error"] and "TARN_ERROR_OUT_OF_MEMORY" in o["error"] for o in a)'
json 'all(o["peak_requested"] > 0 and o["events"] > 0 and o["peak_reserved"] is None for o in a)'
run 1 replay --device-memory 64M "$data/small-4.pickle" && says out 'failed: device 0, event'
run 0 replay --json --device-memory 1.5GiB "$data/small-4.pickle" && json 'a[0]["device_memory"] == 3 << 29'
run 1 replay --json --device-memory 9T "$data/small-4.pickle" && json '"at most" in a[0]["error"]'
run 1 replay --json --driver nonsense "$data/small-4.pickle" && json '"nonsense" in a[0]["error"]'

# A log of RMM's: 3 threads, 2 streams, frees by other threads and in the order of other streams, and a failure.
python3 - "$work/rmm.csv" <<'END'
import random, sys
random.seed(7)
live, lines = [], []
for i in range(3000):
    thread, stream = random.randrange(3), random.choice([0, 0x7f8a38001020])
    head = "%d,23:59:%09.6f," % (140573312345856 + thread, 50 + i / 1000)
    if live and i != 1500 and random.random() < 0.5:
        address, size, own = live.pop(random.randrange(len(live)))
        lines.append("%sfree,0x%x,%d,0x%x" % (head, address, size, random.choice([own, own, stream])))
    elif i == 1500:
        lines.append("%sallocate failure,(nil),%d,0x%x" % (head, 1 << 40, stream))
    else:
        address, size = 0x7f0000000000 + (i << 24), random.choice([300, 5000, 1 << 20, 5 << 20]) + i
        live.append((address, size, stream))
        lines.append("%sallocate,0x%x,%d,0x%x" % (head, address, size, stream))
with open(sys.argv[1], "w") as file:
    file.write("\n".join(["Thread,Time,Action,Pointer,Size,Stream"] + lines) + "\n")
END
for options in '' '--lag 3' '--deal-streams 2 --deal-threads 2'; do
    # shellcheck disable=SC2086
    run 0 replay --json $options "$work/rmm.csv" && silent err
    json 'len(a) == 1 and a[0]["divergences"] == 0 and a[0]["events"] == 3000 and a[0]["threads"] == 3 and a[0]["streams"] == 2'
    json 'a[0]["recorded_ooms"] == 1 and a[0]["lost_events"] == 0 and a[0]["recorded_peak_reserved"] is None'
    json "(a[0]['moved_frees'] > 100) == ('$options' == '' or 'lag' in '$options')"
done
run 0 replay "$work/rmm.csv" && says out ', 3 threads' && says out "frees in the order of another stream"
echo 'x,1' >>"$work/rmm.csv"
run 1 replay "$work/rmm.csv" && says err 'rmm.csv: line 3002: has 2 fields, where the header names 6'

# A recording by tarn: two threads, two streams that wait for each other, a block that both use, a free in the other's order, a
# capture with a pool of its own, and a request that fails again.
python3 - "$work/own.pickle" <<'END'
import pickle, sys
events, marks, MIB = [], [], 1 << 20
def event(action, addr, size, stream, pool=(0, 0), thread=1):
    events.append({"action": action, "device_free" if action == "oom" else "addr": addr, "size": size, "stream": stream,
                   "time_us": 1000 + 20 * len(events), "pool_id": pool, "thread": thread, "user_metadata": ""})
def mark(kind, stream, **more):
    marks.append({"device": 0, "at": len(events), "time_us": 1000 + 20 * len(events), "thread": 2, "kind": kind, "stream": stream, **more})
def free(addr, size, stream, pool=(0, 0), thread=1):
    event("free_requested", addr, size, stream, pool, thread)
    event("free_completed", addr, size, stream, pool, thread)
A, B = 0xA0, 0xB0
for step in range(20):
    base = 0x7F0000000000 + step * 0x40000000
    if step == 4:
        mark("trim", A, pool_id=(0, 0), keep=0)
        mark("trim", A, pool_id=(0, 3), keep=0)
    if step == 5:
        mark("trim", A, pool_id=(0, 0), keep=MIB)
    event("alloc", base, 30 * MIB, A)
    mark("record_stream", B, addr=base)
    event("free_requested", base, 30 * MIB, A)
    event("alloc", base + 0x8000000, 5 * MIB, B, thread=2)
    event("free_completed", base, 30 * MIB, A)
    mark("wait", A, other=B)
    mark("free_on", A, addr=base + 0x8000000)
    free(base + 0x8000000, 5 * MIB, B)
    mark("capture_begin", B, capture=step)
    event("alloc", base + 0x10000000, 9 * MIB, B, (0, 3), 2)
    mark("wait", A, other=B)
    event("alloc", base + 0x18000000, 3 * MIB, A, (0, 3))
    mark("wait", B, other=A)
    free(base + 0x10000000, 9 * MIB, B, (0, 3), 2)
    mark("capture_end", B, capture=step)
    free(base + 0x18000000, 3 * MIB, A, (0, 3))
    if step == 10:
        event("oom", MIB, 300 * MIB, A)
        event("oom", MIB, 100 * MIB, A)
marks.append({"device": 0, "at": len(events), "kind": "of the future", "stream": A})
device = {"name": "small", "total": 512 * MIB, "free": MIB, "reserved": 0, "limit": 256 * MIB}
tarn = {"version": 1, "library": "tarn 0.1.0", "driver": "host", "taken_ns": 1, "exact_from": [0], "overwritten": 0,
        "devices": [device], "pools": [], "handles": [], "workspaces": [], "threads": [], "events": marks}
with open(sys.argv[1], "wb") as file:
    pickle.dump({"segments": [], "device_traces": [events], "tarn": tarn}, file, 4)
END
for options in '' '--repeat 3' '--lag 2' '--deal-threads 4'; do
    # shellcheck disable=SC2086
    run 0 replay --json $options "$work/own.pickle" && silent err
    json 'a[0]["divergences"] == 0 and a[0]["lost_events"] == 0 and a[0]["threads"] == 2 and a[0]["streams"] == 2 and a[0]["pools"] == 2'
    json 'a[0]["waits"] == 60 and a[0]["captures"] == 20 and a[0]["refused"] == 0 and a[0]["moved_frees"] == 20 and a[0]["late_frees"] == 20'
    json 'a[0]["trims"] == 2 and a[0]["pytorch_driver_calls"]["free"] > 0'
    json 'a[0]["device_memory"] == 256 << 20 and a[0]["recorded_ooms"] == 2 and a[0]["ooms_tried"] == 2 * len(a[0]["repeat"]) and a[0]["ooms_here"] == len(a[0]["repeat"])'
    json 'a[0]["driver_calls"]["capture_begin"] == a[0]["driver_calls"]["capture_end"] == 20 and a[0]["driver_calls"]["stream_wait_event"] >= 60'
done
run 0 replay "$work/own.pickle" && says out 'pools: 2, each one of its own' && says out 'waits of streams: 60, captures: 20$' && says out 'of 2 that were tried, 1 fail here'
run 0 replay --json --deal-streams 3 "$work/own.pickle"
json 'a[0]["divergences"] == 0 and "captures" not in a[0] and "capture_begin" not in a[0]["driver_calls"]'
run 0 replay --json --vary 3 "$data/tarn.pickle" "$work/own.pickle" && json 'all(o["divergences"] == 0 for o in a)'

# What failed is tried again, on a device of the recorded size, by each policy; and the smallest device serves it.
run 0 replay --json --least "$data/torn.pickle" "$data/holes.pickle" && silent err
json '[o["device_memory"] for o in a] == [600 << 20] * 2 and all(o["recorded_ooms"] == o["ooms_tried"] == 1 and o["ooms_here"] == 0 for o in a)'
json '[(o["pytorch_ooms_here"], o["expandable_ooms_here"]) for o in a] == [(1, 1), (1, 0)] and all(o["pytorch_ooms"] == o["expandable_ooms"] == 0 for o in a)'
json 'all(o["least"] <= 600 << 20 < o["pytorch_least"] for o in a) and a[0]["expandable_least"] > 600 << 20 >= a[1]["expandable_least"]'
json '[o["least"] >= v << 20 for o, v in zip(a, (440, 540))] == [True, True]'
run 0 replay "$data/torn.pickle" && says out 'of 1 that were tried, 0 fail here' && says out "native policy, 1 fail; with expandable segments 1$"
run 3 replay --json --what-if policy=pytorch --what-if policy=expandable --what-if memory=500M "$data/holes.pickle"
json '[o["fits"] for o in a] == [True, False, True, False] and all(o["out_of_memory"] == {"event": 162, "size": 300 << 20} for o in a if not o["fits"])'
run 0 replay --json --deal-streams 2 "$data/torn.pickle" && json 'a[0]["recorded_ooms"] == 1 and a[0]["ooms_tried"] == 0'
printf '%s\n' Thread,Time,Action,Pointer,Size,Stream '1,10:00:00:000001,allocate,0x1000,1048576,0' \
    '1,10:00:00:000002,allocate failure,0x0,1073741824,0' >"$work/failed.csv" # nothing speaks of the device
run 0 replay --json "$work/failed.csv" && json 'a[0]["recorded_ooms"] == 1 and a[0]["ooms_tried"] == 0 and a[0]["peak_reserved"] < 100 << 20'
run 0 replay "$work/failed.csv" && says out 'in the recording: 1, not tried, since it does not show how large the device was; --device-memory'
run 0 replay --least --json "$work/failed.csv" && json '1025 << 20 <= a[0]["least"] < 1100 << 20'
run 0 report "$work/failed.csv" && says out 'does not show how much was reserved' && says out '1.01 GiB with tarn (tarn.use(rmm=True))'
run 0 report --no-what-if "$work/failed.csv" && says out 'does not show how much was reserved' && lacks out 'fits on a device' && lacks out 'least'
awk 'NR == 3 { for (i = 0; i < 25000; i++) print "1,10:00:00:000001,allocate,0x200000,512,0\n1,10:00:00:000001,free,0x200000,512,0" } { print }' \
    "$work/failed.csv" >"$work/long.csv" # a search takes long
run 0 report "$work/long.csv" && lacks out 'with tarn' && says out 'tarn report --least'
run 0 report --least "$work/long.csv" && says out '1.01 GiB with tarn' && lacks out 'tarn report --least'
run 0 replay --json --device-memory 512M "$work/failed.csv" && json 'a[0]["ooms_tried"] == a[0]["ooms_here"] == a[0]["pytorch_ooms_here"] == 1'

# A state without a trace.
run 0 replay --json "$data/state-only.pickle"
json 'all("state" in o and o["state"]["segments"] > 0 and "error" not in o for o in a)'
json 'all(o["state"]["reserved"] == sum(p["reserved"] for p in o["state"]["by_stream_and_pool"]) for o in a)'
run 0 replay "$data/state-only.pickle" && says out 'no trace' && says out 'largest free'

# The tables: no escape sequences in a file, nothing at the ends of lines, no line beyond 100 columns.
run 0 replay --repeat 2 --lag 1 "$data"/{streams,pools,oom,small-4,state-only}.pickle && silent err
says out 'peak reserved'
says out 'driver time, cost table C'
says out 'expandable'
says out 'every step was verified: no divergence'
sed -n 2p "$work/out" | grep -q '^tarn reserves at most .*, PyTorch native .*, expandable ' || fail "the verdict is not first"
says out 'pools: .*, each one of its own, held as by graphs'
says out 'out-of-memory errors in the recording'
says out 'geometric mean'
says out '^repetition'
says out '^driver calls, repetition 1 '
says out 'events a second in repetition 1 '
! grep -q $'\033' "$work/out" || fail "escape sequences in a file"
! grep -qE ' $' "$work/out" || fail "blanks at the end of a line"
! grep -qE '.{101}' "$work/out" || fail "a line of more than 100 columns"

# A result that cannot be written is a failure.
if [ -w /dev/full ]; then
    status=0
    "$tarn" replay "$data/small-4.pickle" >/dev/full 2>"$work/err" || status=$?
    [ "$status" -eq 1 ] || fail "a full disk gave status $status"
fi
# A log of as many streams as events on a device that they fill: nothing looks at all of them for each.
awk 'BEGIN {
    print "Thread,Time,Action,Pointer,Size,Stream"
    for (i = 0; i < 120000; i++)
        printf "1,10:%02d:%02d.%06d,%s,0x%x,1024,0x%x\n", i / 60000, i / 1000 % 60, i % 1000, i < 60000 ? "allocate" : "free",
            268435456 + i % 60000 * 4096, i % 60000 + 1
}' >"$work/streams.csv"
status=0
timeout 60 "$tarn" replay "$work/streams.csv" >"$work/out" 2>"$work/err" || status=$?
[ "$status" -le 1 ] || fail "status $status with 60,000 streams" # 1: PyTorch's policies find no memory for as many segments
says out ', 60,000 streams,'
echo "test_replay: ok"
