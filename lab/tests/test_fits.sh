#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# lab/fits, the judge of placement, on one recording and one program that nobody ran; what it says is what `tarn replay` says.
# TARN_SOURCE is the source tree, TARN_PROGRAM the program.
# shellcheck source=tests/support/program.sh
source "$TARN_SOURCE/tests/support/program.sh"
lab=$TARN_SOURCE/lab
trace=$TARN_SOURCE/examples/traces/encoder-finetune.pickle.zst

# Programs that nobody ran are the same for one seed, and others for another.
"$lab/synthetic-traces.py" "$work/one" streams pictures
"$lab/synthetic-traces.py" "$work/again" streams
"$lab/synthetic-traces.py" --seed 2 "$work/two" streams
cmp "$work/one/synthetic-streams.pickle" "$work/again/synthetic-streams.pickle"
! cmp -s "$work/one/synthetic-streams.pickle" "$work/two/synthetic-streams.pickle" || fail "two seeds give one trace"
status=0
"$lab/synthetic-traces.py" "$work/one" nonsense 2>"$work/err" || status=$?
[ "$status" -eq 2 ] && says err 'there is no program nonsense'

status=0
"$lab/fits" --program "$TARN_PROGRAM" --no-synthetic --lag 0,2 --json "$work/fits" "$trace" "$work/one/synthetic-pictures.pickle" \
    >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 0 ] || fail "lab/fits gave status $status: $(cat "$work/err")"
silent err
says out '^recordings, lag 0 ms$' && says out '^synthetic programs, lag 2 ms$' && says out '^encoder-finetune  '
says out '^above expandable, of 1: reserved [01], smallest device [01]; '
! grep -qE ' $' "$work/out" || fail "blanks at the end of a line"
"$TARN_PROGRAM" replay --json --least "$trace" >"$work/replay"
python3 - "$work/fits" "$work/replay" <<'END' || fail "the table is not what the replay says"
import json, sys
fits, replay = (json.load(open(name)) for name in sys.argv[1:])
row, result = fits["rows"][0], replay[0]
assert len(fits["rows"]) == len(fits["summaries"]) == 4 and fits["failures"] == []
assert [(r["lag_ms"], r["synthetic"]) for r in fits["rows"]] == [(0, False), (0, True), (2, False), (2, True)]
for policy, prefix in ("tarn", ""), ("native", "pytorch_"), ("expandable", "expandable_"):
    assert row[policy]["reserved"] == result[prefix + "peak_reserved"] / result["peak_requested"]
    assert row[policy]["least"] == result[prefix + "least"] / result["peak_requested"]
    assert row[policy]["driver_ms"] == result[prefix + "driver_time_us"]["C"] / 1000
for row in fits["rows"]:
    assert row["reserved_above"] == (row["tarn"]["reserved"] > row["expandable"]["reserved"])
    assert row["least_above"] == (row["tarn"]["least"] > row["expandable"]["least"] + 0.0015)
END

# What fails is said, and is no success.
status=0
"$lab/fits" --program "$TARN_PROGRAM" --no-synthetic "$work/missing" >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 1 ] && says err 'missing' && says err 'no trace of over 1 GiB was found'
status=0
"$lab/fits" --program "$TARN_PROGRAM" --no-synthetic --lag 0 "$trace" -- --device-memory 64M >"$work/out" 2>"$work/err" || status=$?
[ "$status" -eq 1 ] && says err 'TARN_ERROR_OUT_OF_MEMORY'
echo "test_fits: ok"
