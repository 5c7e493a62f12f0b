#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `make help` lists every target that is for people, once, with its descriptions in one column, and each begins with a verb.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "test_make_help: $*" >&2; exit 1; }

help=$(make --no-print-directory help)
[ "$(wc -l <<<"$help")" -ge 20 ] || fail "lists fewer than 20 targets"
columns=$(sed -nE 's/^(  make [a-z-]+ +)[A-Z][a-z]+ .*/\1/p' <<<"$help" | awk '{ print length }' | sort -u)
[ "$(wc -w <<<"$columns")" = 1 ] || fail "descriptions begin in these columns: $(tr '\n' ' ' <<<"$columns")"
[ "$(grep -cE '^  make [a-z-]+ +[A-Z][a-z]+ ' <<<"$help")" = "$(wc -l <<<"$help")" ] || fail "a line is not 'make TARGET  Verb ...'"
! awk 'length > 140' <<<"$help" | grep . || fail "a line is longer than 140 columns"

listed=$(awk '{ print $2 }' <<<"$help" | sort)
[ "$(sort -u <<<"$listed")" = "$listed" ] || fail "a target is listed twice"
phony=$(sed -n 's/^\.PHONY: *//p' Makefile | tr ' ' '\n' | grep -vE '^(all|require-.*)$' | sort)
[ "$listed" = "$phony" ] || fail "listed and .PHONY differ: $(diff <(echo "$listed") <(echo "$phony") | grep '^[<>]' | tr '\n' ' ')"
for target in $listed; do
    make --no-print-directory --dry-run "$target" >/dev/null 2>&1 || fail "there is no target $target"
done
