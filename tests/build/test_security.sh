#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Each promise of SECURITY.md names what holds it, and all that it names is there.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "security: $*" >&2; exit 1; }
rows=$(sed -n '/^## What is promised/,/^## What is not/p' SECURITY.md | grep '^| [A-Z]')
[ "$(wc -l <<<"$rows")" -ge 15 ] || fail "the promises are not found"
tests=$(ctest --test-dir "$TARN_BUILD" -N | sed -n 's/^ *Test *#[0-9]*: //p')
while IFS= read -r row; do
    # shellcheck disable=SC2016 # backquotes are looked for
    held=$(awk -F'|' '{ print $3 }' <<<"$row" | grep -oE '`[^`]+`' | tr -d '`') || fail "nothing holds: $row"
    for name in $held; do
        case $name in
        make | fuzz) ;;
        */*) [ -e "$name" ] || fail "there is no $name" ;;
        *) grep -qx "${name//./[.]}" <<<"$tests" || fail "there is no test $name" ;;
        esac
    done
done <<<"$rows"
