#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What the scripts have in common that try the program from outside: `source` it first. Gives `$tarn`, the program, and `$work`, a
# folder that goes when the script ends, after the script's own function `at_exit`, if there is one.
set -euo pipefail

tarn=$TARN_PROGRAM
# shellcheck disable=SC2034 # theirs to use
data=${TARN_TEST_DATA:-}
work=$(mktemp -d)
command=("$tarn")  # what `run` puts before its arguments
json_more=''       # Python that `json` runs before it looks
: >"$work/out" && : >"$work/err"
clean_up()
{
    if [ "$(type -t at_exit)" = function ]; then at_exit; fi
    rm -rf "$work"
}
trap clean_up EXIT
# What vendors' libraries allocate when they are opened is theirs.
echo 'leak:libamdhip64.so' >"$work/suppressions"
export LSAN_OPTIONS="${LSAN_OPTIONS:-}:suppressions=$work/suppressions"
fail() { echo "$(basename "$0" .sh): $*" >&2; head -c 4000 "$work/out" "$work/err" >&2; exit 1; }

# run STATUS ARGUMENT...: runs it and wants that status; leaves the files out and err.
run()
{
    local wanted=$1 status=0
    shift
    "${command[@]}" "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ "$status" -eq "$wanted" ] || fail "status $status, not $wanted: ${command[*]} $*"
}
# says FILE PATTERN, and the contrary.
says() { grep -qe "$2" "$work/$1" || fail "$1 does not say: $2"; }
lacks() { ! grep -qe "$2" "$work/$1" || fail "$1 should not say: $2"; }
silent() { [ ! -s "$work/$1" ] || fail "$1 should be empty"; }

# json EXPRESSION: what it printed is JSON, called `a` here, and the expression holds of it.
json()
{
    python3 - "$work/out" "$1" "$json_more" <<'END' || fail "not so: $1"
import json, sys
with open(sys.argv[1]) as file:
    a = json.load(file)
exec(sys.argv[3])
sys.exit(0 if eval(sys.argv[2]) else 1)
END
}
