#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# docs/tutorial-out-of-memory.md: examples/leak.c runs out of memory and says so as the tutorial does, leaves the text that
# it quotes, and is fixed by the change that it shows. What `tarn report` prints is compared, except for times and the chart.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_tutorial: $*" >&2; exit 1; }
tutorial=$TARN_SOURCE/docs/tutorial-out-of-memory.md

# block KIND: the block of the tutorial that is fenced as KIND.
block() { awk -v fence="\`\`\`$1" '!inside && $0 == fence { inside = 1; found = 1; next } inside && $0 == "```" { inside = 0 } inside
                                   END { exit !found }' "$tutorial" || fail "the tutorial has no block $1"; }
one_line() { tr -s ' \n' ' ' | sed 's/ $//'; }
compile()
{
    "$CC" -g -std=c11 -Wall -Wextra -Wconversion -Wpedantic -Werror "$1" -I"$TARN_SOURCE/include" -L"$TARN_BUILD" -ltarn \
        -Wl,-rpath,"$TARN_BUILD" -o "$2"
}

unset TARN_HOST_DEVICES TARN_HOST_MAPS TARN_LOG TARN_ALLOC_CONF TARN_DEBUG TARN_TRACE TARN_OOM_SNAPSHOT
export TARN_DRIVER=host TARN_HOST_MEMORY=1G
cd "$work"
mkdir -p examples oom
cp "$TARN_SOURCE/examples/leak.c" examples
compile examples/leak.c leak

echo "the error"
! ./leak >printed 2>error || fail "the program does not run out of memory"
diff -u <(block leak) printed >&2 || fail "the program prints something else"
diff -u <(block error | one_line) <(one_line <error) >&2 || fail "the error is another"

echo "what it leaves"
! TARN_TRACE=stacks=alloc TARN_OOM_SNAPSHOT=oom ./leak >printed 2>error || fail "traced, it does not run out of memory"
ending=$(grep -oE 'A snapshot is in .*\.' error | sed -E 's/oom-[0-9]+-/oom-4711-/')
grep -qF -e "\`$ending\`" "$tutorial" || fail "the error ends otherwise: $ending"
snapshot=$(echo oom/*.pickle)
diff -u <(block holders) <(sed -n '/^Live blocks/,$p' "${snapshot%.pickle}.txt" | sed '/^$/{ N; /The whole picture/d; }') >&2 ||
    fail "the text file says something else"

# reduced: without times, the chart, and empty lines.
reduced() { grep -vE '[│└]' | sed -E 's/[0-9.]+ (ns|µs|us|ms|s)\b//g' | grep . || true; }
if "$TARN_PROGRAM" help report >/dev/null 2>&1; then
    echo "the report"
    "$TARN_PROGRAM" report "$snapshot" | reduced >reported
    block report | reduced | while IFS= read -r line; do
        grep -qxF -e "$line" reported || fail "tarn report does not print: $line"
    done
fi

echo "the fix"
block diff >fix.diff
git -C "$work" apply --check fix.diff || fail "the change that the tutorial shows does not apply to examples/leak.c"
git -C "$work" apply fix.diff
compile examples/leak.c fixed
TARN_TRACE=stacks=alloc ./fixed fixed.pickle >printed || fail "fixed, it runs out of memory still"
diff -u <(block fixed) printed >&2 || fail "fixed, it prints something else"
[ -s fixed.pickle ] || fail "it leaves no snapshot"
if "$TARN_PROGRAM" help report >/dev/null 2>&1; then
    "$TARN_PROGRAM" report "$snapshot" fixed.pickle -o both.html
    "$TARN_PROGRAM" diff "$snapshot" fixed.pickle | grep -q 'request/prefill/keys and values' || fail "tarn diff does not name the leak"
fi
