#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `tarn replay --what-if` from outside: the same trace with other things, side by side. TARN_PROGRAM is the program,
# TARN_TEST_DATA the folder of generated snapshots.
# shellcheck source=tests/support/program.sh
source "$(dirname "$0")/../support/program.sh"
command=("$tarn" replay)
json_more='w = {o.get("what_if"): o for o in reversed(a)}'

# What makes no sense is named, before anything runs.
while read -r spec error; do
    run 2 --what-if "$spec" "$work/missing" && silent out
    says err "--what-if $spec: $error"
done <<'END'
nonsense "nonsense" is no item
memory "memory" is no item
size=3G "size" is no item
memory=1M memory wants a size of 2 MiB or more, as 80G, not "1M"
lag=-1 lag wants milliseconds
repeat=0 repeat wants a number from 1 to 10000, not "0"
deal-streams=257 deal-streams wants a number from 1 to 256
vary=0 vary wants a seed from 1 to 10^9, not "0"
deal-threads=x deal-threads wants a number from 1 to 1024
policy=c10 policy wants tarn, pytorch or expandable, not "c10"
least=1 least wants yes or no, not "1"
memory=3G,memory=4G memory is there twice
memory=3G,,lag=1 "" is no item
memory=3G, nothing follows the last comma
conf= conf wants what TARN_ALLOC_CONF may say
policy=pytorch,deal-threads=2 deal-threads is tarn's
policy=pytorch,conf=segments:plain conf: "segments" is not a PyTorch setting that the model knows
policy=expandable,conf=max_split_size_mb:4 conf: max_split_size_mb wants a number of MiB from 20 on, not "4"
END
run 2 --what-if '' "$work/missing" && says err 'nothing is said'
run 2 --what-if

# The options of the command line count where a SPEC says nothing else; a conf has its own commas, and names its errors.
run 0 --json --lag 2 --what-if lag=5 --what-if repeat=3,conf=leave_free_mb:1,max_split_size_mb:32 --what-if policy=pytorch "$data/small-4.pickle"
silent err
json 'len(a) == 8 and [o["device"] for o in a] == [0, 1] * 4 and all(o["divergences"] == 0 for o in a)'
json '[o["what_if"] for o in a[::2]] == [None, "lag=5", "repeat=3,conf=leave_free_mb:1,max_split_size_mb:32", "policy=pytorch"]'
json '[o["lag_ms"] for o in a[::2]] == [2, 5, 2, 2] and [len(o["repeat"]) for o in a[:6:2]] == [1, 1, 3]'
json 'all(o["fits"] and o["out_of_memory"] is None and 0 <= o["wasted"] < o["peak_reserved"] for o in a)'
json 'a[6]["policy"] == "pytorch" and a[6]["peak_reserved"] == a[0]["pytorch_peak_reserved"] and a[6]["driver_calls"] == a[0]["pytorch_driver_calls"]'
run 1 --json --what-if conf=segments:small "$data/small-4.pickle" && says err "conf=segments:small: conf=segments:small: tarn_configuration_set(), column 10"
json 'len(a) == 3 and "column 10" in a[2]["error"] and a[2]["what_if"] == "conf=segments:small" and a[0]["fits"]'

# PyTorch's policies, and its settings; the smallest devices, on which it runs, and on which a granule less is too little.
run 0 --json --what-if policy=expandable --what-if policy=pytorch,conf=expandable_segments:True --what-if policy=pytorch,conf=large_segment_size_mb:64 "$data/small-4.pickle"
silent err
json 'all(o["fits"] for o in a) and [o["policy"] for o in a[::2]] == ["tarn", "expandable", "pytorch", "pytorch"]'
json 'a[2]["peak_reserved"] == a[4]["peak_reserved"] == a[0]["expandable_peak_reserved"] and a[2]["driver_calls"] == a[4]["driver_calls"] == a[0]["expandable_driver_calls"]'
json 'a[6]["peak_reserved"] != a[0]["pytorch_peak_reserved"] and a[2]["driver_calls"]["map"] == a[2]["driver_calls"]["create"] > a[2]["driver_calls"]["set_access"] > 0'
json 'all("least" not in o for o in a)'
run 0 --json --least "$data/small-4.pickle"
json 'all(o["peak_requested"] <= o[k] and o[k] % (2 << 20) == 0 for o in a for k in ("least", "pytorch_least", "expandable_least"))'
read -r least native expandable < <(python3 -c 'import json, sys
print(*[json.load(open(sys.argv[1]))[0][k] for k in ("least", "pytorch_least", "expandable_least")])' "$work/out")
run 3 --json --what-if "memory=$least,least=yes" --what-if "memory=$((least - 2097152))" --what-if "memory=$native,policy=pytorch" \
    --what-if "memory=$((native - 2097152)),policy=pytorch" --what-if "memory=$expandable,policy=expandable" \
    --what-if "memory=$((expandable - 2097152)),policy=expandable" "$data/small-4.pickle"
json '[o["fits"] for o in a if o["device"] == 0] == [True, True, False, True, False, True, False]'
json "a[2]['least'] == $least and 'least' not in a[0]"
run 0 --what-if least=yes,policy=pytorch "$data/small-4.pickle" && says out '^what if .* least$'

# A device that is too small is an answer: which event, and what it asked for; by status 3. A failure outweighs it.
run 0 --json --what-if policy=pytorch "$data/small-4.pickle"
cp "$work/out" "$work/first"
peak=$(python3 -c 'import json, sys; print(max(o["peak_requested"] for o in json.load(open(sys.argv[1]))))' "$work/first")
small=$((peak / 2097152 * 2097152))
run 3 --json --what-if "memory=$small" --what-if "memory=$small,policy=pytorch" "$data/small-4.pickle" && silent err
json "not w['memory=$small']['fits'] or not [o for o in a if o['what_if'] == 'memory=$small'][1]['fits']"
json 'all((o["out_of_memory"] is None) == o["fits"] for o in a)'
json 'all(o["out_of_memory"]["size"] > 0 and o["wasted"] is None for o in a if not o["fits"])'
json "any(o['pytorch_ooms'] > 0 and o['out_of_memory']['event'] < o['events'] for o in a if o['what_if'] and 'pytorch' in o['what_if'])"
run 1 --json --what-if "memory=$small" --what-if conf=x "$data/small-4.pickle"
run 3 --device-memory "$small" --what-if memory=80G "$data/small-4.pickle" && says out '^as it is  *no: ' && says out '^memory=80G  *yes'
run 1 --device-memory "$small" "$data/small-4.pickle"

# The table: no escape sequences, nothing at the ends of lines; a failed run has a line too; a state stays a state.
run 1 --what-if memory=9T --what-if lag=1 "$data"/{small-4,state-only}.pickle
says out '^as it is  *yes  *[0-9.]* [KMG]iB  *[0-9.]* [KM]*i*B ' && says out '^memory=9T  *failed' && says out 'no trace to replay'
says err 'small-4.pickle: memory=9T: this needs a device of'
! grep -qE $'\033| $' "$work/out" || fail "escape sequences, or blanks at the end of a line"

# Each is a run of its own: the one without a SPEC is what it is without --what-if.
run 0 --json "$data/streams.pickle" && cp "$work/out" "$work/first"
run 0 --json --what-if deal-streams=2 "$data/streams.pickle"
json '[{k: v for k, v in o.items() if k not in ("seconds", "setup_seconds", "repeat", "what_if", "policy", "fits", "out_of_memory", "wasted")} for o in a if not o["what_if"]] == [{k: v for k, v in o.items() if k not in ("seconds", "setup_seconds", "repeat")} for o in json.load(open(sys.argv[1].replace("/out", "/first")))]'
echo "test_what_if: ok"
