#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Prometheus' own promtool finds no fault with the metrics of two processes.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "test_promtool: $*" >&2; exit 1; }
promtool=$(command -v promtool || echo build/promtool/promtool)
[ -x "$promtool" ] || { echo "promtool is missing; scripts/promtool downloads it"; exit 77; }

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
trace=examples/traces/generate.pickle.zst
for rank in 0 1; do
    RANK=$rank TARN_LIVE=1 TARN_LIVE_DIRECTORY=$work "$TARN_PROGRAM" replay --repeat 10000 "$trace" >/dev/null 2>&1 &
done
for _ in $(seq 600); do
    "$TARN_PROGRAM" metrics --directory "$work" >"$work/all.prom"
    [ "$(grep -c '^tarn_allocations_total{.*large' "$work/all.prom")" -lt 2 ] || break
    sleep 0.1
done
grep -q '^tarn_allocations_total{' "$work/all.prom" || fail "no process publishes"
"$promtool" check metrics <"$work/all.prom" || fail "promtool finds fault"
