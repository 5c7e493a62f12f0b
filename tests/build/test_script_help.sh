#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Every script in scripts/ and lab/ has a --help: a summary sentence, and a usage line that names the script. It ends at once with status 0,
# and does nothing else: it runs in an empty folder, with no program of the build and nothing set up.
set -euo pipefail
fail() { echo "test_script_help: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/here"
cd "$work/here"

count=0
for script in "$TARN_SOURCE"/{scripts,lab}/*; do
    name=${script#"$TARN_SOURCE"/}
    if [ ! -f "$script" ] || [ ! -x "$script" ]; then continue; fi
    count=$((count + 1))
    env -i PATH=/usr/bin:/bin LC_ALL=C.UTF-8 COLUMNS=130 PYTHONDONTWRITEBYTECODE=1 timeout 60 "$script" --help >"$work/out" 2>"$work/err" </dev/null ||
        fail "$name --help ends with status $?: $(head -3 "$work/err")"
    [ ! -s "$work/err" ] || fail "$name --help writes to standard error: $(head -1 "$work/err")"
    [ -z "$(ls -A)" ] || fail "$name --help leaves $(ls -A)"
    grep -qiE "^usage: $name( |\$)" "$work/out" || fail "$name --help has no line \"Usage: $name\""
    grep -qE '^[A-Z].*[.]$' "$work/out" || fail "$name --help has no summary that is a sentence"
    ! awk 'length > 150' "$work/out" | grep . || fail "$name --help has a line of more than 150 columns"
    # The summary comes first, except where argparse writes the usage there.
    head -1 "$work/out" | grep -qE '^[A-Z][a-z]+s (.*[^.:,;]|.*\.)$|^usage: ' || fail "$name --help begins with: $(head -1 "$work/out")"
done
[ "$count" -ge 50 ] || fail "only $count scripts were found"
echo "$count scripts"
