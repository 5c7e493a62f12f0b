#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn plan` from outside, and replays that follow what it writes. TARN_PROGRAM is the program, TARN_TEST_DATA the folder of
# generated snapshots, TARN_SOURCE the source tree.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"

traces=$TARN_SOURCE/examples/traces

# The command line.
run 0 plan --help && says out '^Usage: tarn plan' && silent err
run 2 plan && says err 'no file was named' && silent out
run 2 plan one two && says err 'one file can be planned at a time'
run 2 plan -o && says err '--output needs a value'
run 2 plan --device x file && says err "--device wants a device's number"
run 2 plan --nonsense file && says err 'no option --nonsense'
for bad in '' 'a,b' 'a:b' '[a'; do run 2 plan -o "$bad" file && says err '--output wants a path of at most'; done
"$tarn" --help | grep -q '  plan  ' || fail "tarn --help does not list plan"

# What cannot be planned.
echo 'this is not a pickle' >"$work/rubbish"
run 1 plan "$work/rubbish" -o "$work/plan" && says err "rubbish: byte 0: "
[ ! -e "$work/plan" ] || fail "a plan of rubbish"
run 1 plan "$work/missing" && says err 'missing: cannot open'
run 1 plan "$data/state-only.pickle" && says err 'there is no trace to plan for'
run 1 plan --device 7 "$data/small-4.pickle" && says err 'device 7 has no trace'
run 1 plan "$data/small-4.pickle" -o "$work/none/plan" && says err 'none/plan cannot be written: .*No such file'
printf '%s\n' 'Thread,Time,Action,Pointer,Size,Stream' '1,00:00:01,allocate,0x1000,5000,0x0' >"$work/few.csv"
run 1 plan "$work/few.csv" && says err 'device 0 has no requests above 65536 bytes; a plan has 1 to'

# Blocks with known lifetimes: validity is looked at here, by other means than the solver's.
printf 'id,lower,upper,size\n' >"$work/blocks.csv"
python3 - "$work/blocks.csv" <<'END'
import random, sys
random.seed(5)
with open(sys.argv[1], "a") as out:
    for i in range(60):
        lower = random.randrange(100)
        out.write(f"b{i},{lower},{lower + random.randrange(1, 40)},{random.randrange(1, 60) * 64}\n")
END
run 0 plan --json --steps 100000000 --seconds 1000 "$work/blocks.csv" -o "$work/placed.csv" && silent err
json 'a["blocks"] == 60 and a["bound"] <= a["proved"] <= a["height"] <= a["bound"] * 1.05 and a["steps"] <= 1.1e8'
python3 - "$work/blocks.csv" "$work/placed.csv" "$work/out" <<'END' || fail "the placement is not valid"
import csv, json, sys
given, placed = (list(csv.DictReader(open(path))) for path in sys.argv[1:3])
assert [{k: row[k] for k in ("id", "lower", "upper", "size")} for row in placed] == given
blocks = [[int(row[k]) for k in ("lower", "upper", "size", "offset")] for row in placed]
for i, a in enumerate(blocks):
    for b in blocks[:i]:
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] + a[2] <= b[3] or b[3] + b[2] <= a[3], (a, b)
said = json.load(open(sys.argv[3]))
assert said["height"] == max(b[3] + b[2] for b in blocks)
assert said["bound"] == max(sum(b[2] for b in blocks if b[0] <= t < b[1]) for t in {b[0] for b in blocks})
END
cp "$work/placed.csv" "$work/placed.first"
run 0 plan --steps 100000000 --seconds 1000 "$work/blocks.csv" -o "$work/placed.csv" && says out '60 blocks' && says out 'of the bound'
cmp -s "$work/placed.csv" "$work/placed.first" || fail "the same steps give another placement"
wrong() { # what is said of the lines that standard input has
    cat >"$work/wrong.csv"
    run 1 plan "$work/wrong.csv" -o "$work/none.csv" && says err "wrong.csv: $1" && silent out
    [ ! -e "$work/none.csv" ] || fail "a plan of what is wrong"
}
printf 'id,lower,upper\n' | wrong 'line 1: the columns must be these four: id,lower,upper,size'
printf 'id,lower,upper,weight\n' | wrong 'line 1: a column is "weight", but must be one of'
printf 'id,lower,upper,size\n' | wrong 'line 2: there is no block'
printf 'id,lower,upper,size\n0,1,2,3\n1,5,5,3\n' | wrong 'line 3: upper must be greater than lower'
printf 'id,lower,upper,size\n0,1,2,-3\n' | wrong 'line 2: size is "-3", but must be a whole number'
printf 'id,lower,upper,size\n0,1,2\n' | wrong 'line 2: a block has four fields'
printf 'id,lower,upper,size\n0,1,2,0\n' | wrong 'line 2: size is 0; leave out'
run 2 plan --seconds x "$work/blocks.csv" && says err "seconds wants seconds"
run 1 plan "$work/blocks.csv" -o "$work/none/placed.csv" --steps 0 && says err 'none/placed.csv cannot be written: .*No such file'
size=4 && printf 'size,id,upper,lower\r\n%s,a,7,2\r\n' $size >"$work/other.csv" # the columns in another order, lines as on Windows
run 0 plan --json "$work/other.csv" && json 'a["height"] == a["bound"] == a["proved"] == 4'

# A recorded run: the plan is close to the bound; with it no call is made after the first mapping, and it fits where it says.
trace=$traces/generate.pickle.zst
run 0 plan --json "$trace" -o "$work/plan" && silent err
json 'a["bound"] <= a["placed"] <= a["bound"] * 1.002 and a["planned"] > 2000 and a["stream"] == 0'
json 'a["peak_requested"] <= a["reserved"] <= a["peak_requested"] * 1.005'
json 'a["smallest_device"]["plan"] == a["reserved"] < a["smallest_device"]["tarn"] < a["smallest_device"]["pytorch"]'
[ "$(find "$work" -name 'plan*' | wc -l)" -eq 1 ] || fail "files are left beside the plan"
reserved=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["reserved"])' "$work/out")
tarn_fits=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["smallest_device"]["tarn"])' "$work/out")
run 3 replay --json --what-if "conf=plan:$work/plan" --what-if "memory=$reserved,conf=plan:$work/plan" --what-if "memory=$tarn_fits" \
    --what-if "memory=$((tarn_fits - 2097152))" --what-if "repeat=3,lag=20,conf=plan:$work/plan" --what-if "vary=3,conf=plan:$work/plan" \
    --what-if vary=3 "$trace"
json '[o["fits"] for o in a] == [True, True, True, True, False, True, True, True] and all(o["divergences"] == 0 for o in a)'
json 'a[1]["peak_reserved"] == a[2]["peak_reserved"] == '"$reserved"
json 'a[1]["driver_calls"]["map"] == a[1]["driver_calls"]["create"] < 260 and a[1]["driver_calls"]["set_access"] < 60 and "unmap" not in a[1]["driver_calls"]'
json 'a[1]["driver_time_us"]["C"] < 10000'
json 'a[5]["repeat"][2]["driver_calls"] == {}'
json 'a[6]["peak_requested"] == a[7]["peak_requested"] != a[0]["peak_requested"]'
json 'a[6]["peak_reserved"] <= a[7]["peak_reserved"]' # a run that differs a little takes no more with the plan than without

# Two streams whose peaks are at one time get an arena each; where they are not, both or one of them.
streams() { # "together": rounds of both; else each as chance has it
    python3 - "$1" <<'END'
import random, sys
random.seed(3)
events, lives, number = [], {0: [], 5: []}, 0
def start(stream):
    global number
    number += 1
    lives[stream].append((f"{number << 36:#x}", random.randrange(1, 40) * (393216 if stream else 262144), stream))
    events.append(("allocate", *lives[stream][-1]))
def end(stream):
    events.append(("free", *lives[stream].pop(random.randrange(len(lives[stream])))))
for i in range(40 if sys.argv[1] == "together" else 600):
    for action in (start,) * 8 + (end,) * 5 + (start,) * 8 + (end,) * 11 if sys.argv[1] == "together" else (None,):
        for stream in (0, 5):
            (action or (end if len(lives[stream]) > 6 or lives[stream] and random.random() < 0.45 else start))(stream)
print("Thread,Time,Action,Pointer,Size,Stream")
for i, (action, pointer, size, stream) in enumerate(events):
    print(f"1,00:00:{i // 1000:02d}.{i % 1000:03d},{action},{pointer},{size},{stream:#x}")
END
}
streams together >"$work/together.csv"
run 0 plan --json --steps 100000000 "$work/together.csv" -o "$work/plan" && silent err
json '[o["stream"] for o in a["arenas"]] == [0, 5] and all(o["bound"] <= o["placed"] <= 1.01 * o["bound"] for o in a["arenas"])'
json 'all(sum(o[key] for o in a["arenas"]) == a[key] for key in ("planned", "bound", "proved", "placed", "small"))'
json 'a["planned"] == 1280 and a["reserved"] <= a["bound"] * 1.06 and a["smallest_device"]["plan"] <= a["smallest_device"]["tarn"]'
run 0 replay --json --what-if "conf=plan:$work/plan" --what-if "repeat=3,lag=20,conf=plan:$work/plan" \
    --what-if "vary=3,lag=1,conf=plan:$work/plan" "$work/together.csv"
json 'all(o["divergences"] == 0 and o["fits"] for o in a)'
json 'a[1]["driver_calls"]["map"] == a[1]["driver_calls"]["create"] and a[1]["driver_calls"]["set_access"] < 200 and "unmap" not in a[1]["driver_calls"]'
json 'a[2]["repeat"][2]["driver_calls"] == {}'
run 0 plan --steps 100000000 "$work/together.csv" && says out '1,280 of 1,280 allocations, those above 64 KiB on 2 streams' && says out 'stream 0x5, 1\.0'
# Private pools whose peaks are at one time get arenas too, and a replay follows them. Pools that are not are left out.
# The recording is of a GPU; a sanitizer finds in it what it finds in the other.
pooled=("$data/pools.pickle")
[ -n "${TARN_SANITIZE:-}" ] || pooled+=("$traces/h200-captures.pickle.zst")
for file in "${pooled[@]}"; do
    run 0 plan --json --steps 100000000 "$file" -o "$work/plan" && silent err
    json 'len({o["pool"] for o in a["arenas"]} - {0}) >= 1 and a["arenas"][0]["pool"] <= 1 and all(o["bound"] <= o["placed"] for o in a["arenas"])'
    json 'sum(o["planned"] for o in a["arenas"]) == a["planned"] and a["smallest_device"]["plan"] < a["smallest_device"]["tarn"]'
    reserved=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["reserved"])' "$work/out")
    run 0 replay --json --what-if "conf=plan:$work/plan" --what-if "repeat=3,lag=20,conf=plan:$work/plan" --what-if "vary=3,conf=plan:$work/plan" "$file"
    json 'all(o["divergences"] == 0 and o["fits"] for o in a) and a[0]["peak_reserved"] > a[1]["peak_reserved"] == '"$reserved"
done
streams apart >"$work/apart.csv"
run 0 plan --json --steps 100000000 "$work/apart.csv" && json 'a["reserved"] < 1.21 * a["peak_requested"] and a["smallest_device"]["plan"] < a["smallest_device"]["tarn"]'

# The table, and without an output nothing is written.
cd "$work"
run 0 plan "$data/small-4.pickle" && sed -n 2p "$work/out" | grep -q '^a device of .*B is enough with the plan, one of .*B without$' && sed -n 3p "$work/out" | grep -q 'placed / lower bound: ' && says out 'planned: .* of .* allocations' && says out 'smallest device, with the plan' && ! grep -q written "$work/out"
run 0 plan --seconds 0 "$data/small-4.pickle"
sed -n 2p "$work/out" | grep -q '^with the plan at most .*B are reserved, for at most .*B requested$' || fail "no verdict: $(sed -n 2p "$work/out")"
run 0 plan "$data/small-4.pickle"
lacks out 'before the recording' && says out 'not planned: 1 other device of this file; --device N plans device N$'
run 0 plan "$data/wrapped.pickle" && says out 'not planned: what was freed before the recording began, and the order of the [0-9]* blocks from before; record from the start'
run 0 plan "$data/torn.pickle" && says out 'not planned: 1 request that failed; the smallest devices have room for it$' && lacks out 'other device'
run 0 plan --json "$data/holes.pickle"
json 'a["initial_blocks"] == a["other_devices"] == 0 and a["recorded_ooms"] == 1 and a["smallest_device"]["plan"] >= 540 << 20 and a["smallest_device"]["pytorch"] > 600 << 20'
TMPDIR=$work/none run 0 plan "$data/small-4.pickle" && silent err # it is tried without a file
name=$(printf '%0255d' 0)
(cd "$work" && run 0 plan "$data/small-4.pickle" -o "$name" && [ -s "$name" ] && rm "$name") || fail "a name of 255 bytes"

# Every file is served with its plan, on the device that it is of.
for file in late-frees pools wrapped small-4; do
    run 0 plan "$data/$file.pickle" -o "$work/plan" && says out 'TARN_ALLOC_CONF=plan:'
    [ $file != pools ] || { says out 'above 64 KiB .*in 3 private pools' && says out '^ *pool 1, stream 0x0, 1\.0'; }
    run 0 replay --json --what-if "conf=plan:$work/plan" --what-if "conf=segments:plain,plan:$work/plan" --what-if "vary=3,lag=1,conf=large_segment_size_mb:24,plan:$work/plan" "$data/$file.pickle"
    json 'all(o["divergences"] == 0 and o["fits"] for o in a)'
done
run 0 plan --json --device 1 "$data/small-4.pickle" -o "$work/plan" && json 'a["device"] == 1'

# The smallest device without a plan is that of `tarn replay --least`. tarn fails on some devices larger than it.
python3 - "$work/random.pickle" <<'END'
import pickle, random, sys
r, live, trace, address = random.Random(53), [], [], 1 << 40
streams = r.choice([1, 1, 2, 3])
for _ in range(r.choice([200, 600, 1500])):
    if live and (r.random() < 0.48 or len(live) > r.choice([30, 60])):
        block = live.pop(r.randrange(len(live)))
        trace += [{"action": action, **block} for action in ("free_requested", "free_completed")]
    else:
        size = int(2 ** r.uniform(14, 25.5)) if r.random() < 0.7 else r.choice([3, 5, 9, 17, 33]) << 20
        live.append({"addr": address, "size": size, "stream": r.randrange(streams)})
        trace.append({"action": "alloc", **live[-1]})
        address += size + (1 << 20)
pickle.dump({"segments": [], "device_traces": [trace]}, open(sys.argv[1], "wb"))
END
run 0 replay --least --json "$work/random.pickle" && cp "$work/out" "$work/replayed"
run 0 plan --json --steps 1 "$work/random.pickle" && json 'a["smallest_device"]["tarn"] == json.load(open(sys.argv[1].replace("/out", "/replayed")))[0]["least"]'

# Standard input and pipes, which can be read once, are as good as files. Standard output is none for a plan.
run 0 plan --json --steps 100000 "$data/small-4.pickle" && cp "$work/out" "$work/first"
"$tarn" plan --json --steps 100000 - <"$data/small-4.pickle" >"$work/out" && json '{**a, "file": 0} == {**json.load(open(sys.argv[1].replace("/out", "/first"))), "file": 0}'
dd status=none if="$data/small-4.pickle.zst" | "$tarn" plan --json --steps 100000 - >"$work/out" && json '{**a, "file": 0} == {**json.load(open(sys.argv[1].replace("/out", "/first"))), "file": 0}'
"$tarn" plan --json --steps 100000 <(cat "$data/small-4.pickle") >"$work/out" && json 'a["file"].startswith("/") and a["smallest_device"]["plan"]'
printf '%s\n' id,lower,upper,size a,0,4,100 b,2,6,200 | "$tarn" plan --json - >"$work/out" && json 'a["blocks"] == 2 and a["height"] == 300 and a["file"] == "-"'
(cd "$work" && run 2 plan -o - "$data/small-4.pickle" && says err 'output wants a path' && [ ! -e - ]) || fail "a plan named -"
run 1 plan - && says err 'tarn plan: -: byte 0: the file is empty'

# Nothing is searched in no time.
run 0 plan --seconds 0 --json "$data/small-4.pickle" && json 'set(a["smallest_device"].values()) == {None} and a["planned"] > 0 and a["reserved"] > 0'
run 0 plan --seconds 0 "$data/small-4.pickle" && says out 'smallest device, with the plan *not known$'

# A plan that was cut is refused when the settings are read.
head -c 70 "$work/plan" >"$work/cut"
run 1 replay --json --what-if "conf=plan:$work/cut" "$data/small-4.pickle" && says err "plan:$work/cut: byte 12: requests is"
run 1 replay --json --what-if "conf=plan:$work/gone" "$data/small-4.pickle" && says err 'gone: cannot open: No such file'
echo "test_plan: ok"
