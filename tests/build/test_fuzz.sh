#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The fuzzer of the public API (tests/fuzz/fuzz_api.c) knows every function that is exported, except for these.
set -euo pipefail
cd "$TARN_SOURCE"

declare -A excepted=(
    [tarn_shutdown]="ends tarn in the process, for every later input: base.process, device.device, memory.pinned_threads"
)

exported=$(sed -n 's/^ *\(tarn_[a-z0-9_]*\);$/\1/p' src/tarn.map)
fuzzed=$(grep -ho 'CALL(tarn_[a-z0-9_]*)' tests/fuzz/api/*.c | sed 's/CALL(\(.*\))/\1/' | LC_ALL=C sort)
[ -n "$exported" ] && [ -n "$fuzzed" ]
status=0
for name in $exported; do
    if [ -n "${excepted[$name]:-}" ]; then
        ! grep -qx "$name" <<<"$fuzzed" || { echo "$name is fuzzed and excepted" && status=1; }
    elif ! grep -qx "$name" <<<"$fuzzed"; then
        echo "$name is exported, and no part of the API's fuzzer (tests/fuzz/api/) calls it"
        status=1
    fi
done
twice=$(uniq -d <<<"$fuzzed")
[ -z "$twice" ] || { echo "more than once: $twice" && status=1; }

# What is stored for it calls each of them.
if [ -x "$TARN_BUILD/tests/fuzz.api" ]; then
    called=$(TARN_FUZZ_SHOW=1 "$TARN_BUILD/tests/fuzz.api" tests/fuzz/corpus/api 2>&1 | sed -n 's/^\(tarn_[a-z0-9_]*\).*/\1/p' | LC_ALL=C sort -u)
    never=$(LC_ALL=C comm -23 <(sort -u <<<"$fuzzed") - <<<"$called")
    [ -z "$never" ] || { echo "no input in tests/fuzz/corpus/api calls:" "$never" && status=1; }
fi
exit "$status"
