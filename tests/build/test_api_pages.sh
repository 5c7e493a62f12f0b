#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Every exported function has a manual page that shows its declaration and what its comment says of it, each status that the
# comment names is among the page's errors, and two renderers find nothing to complain about.
set -euo pipefail
export LC_ALL=C.UTF-8 MANWIDTH=160

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_api_pages: $*" >&2; exit 1; }
for tool in man mandoc python3; do
    command -v "$tool" >/dev/null || { echo "test_api_pages: $tool is missing; scripts/setup test installs it"; exit 77; }
done

pages=$work/man/man3
SOURCE_DATE_EPOCH=0 "$TARN_SOURCE/scripts/api-pages" "$pages"
SOURCE_DATE_EPOCH=0 "$TARN_SOURCE/scripts/api-pages" "$work/again"
diff -r "$pages" "$work/again" >&2 || fail "two runs make different pages"
grep -q '1970-01-01' "$pages/tarn_alloc_on.3" || fail "the date is not SOURCE_DATE_EPOCH's"

count=0
while read -r name; do
    page=$pages/$name.3
    [ -f "$page" ] || fail "$name has no page"
    count=$((count + 1))
    main=$page
    ! grep -q '^\.so ' "$page" || main=$work/man/$(sed 's/^\.so //' "$page")
    [ -f "$main" ] || fail "$name leads to no page"
    grep -q "^\\.B .*[ *]$name(" "$main" || fail "the page of $name does not declare it"
    sed -n '/^\.SH NAME/{n;p}' "$main" | grep -q "\\b$name\\b.* \\\\- [a-zA-Z0-9\`'\"]" ||
        fail "the page of $name has no summary"
done < <(sed -nE 's/^\s+(tarn_\w+);.*/\1/p' "$TARN_SOURCE/src/tarn.map")
[ "$count" -gt 150 ] || fail "only $count functions were looked at"

mapfile -t whole < <(grep -L '^\.so ' "$pages"/*.3)
mandoc -T lint -W warning "${whole[@]}" >"$work/warnings" || true
[ ! -s "$work/warnings" ] || fail "mandoc: $(head "$work/warnings")"
for name in tarn_alloc_on tarn_pool_create tarn_tarn.h; do
    man --warnings "$pages/$name.3" 2>"$work/warnings" >"$work/rendered" || fail "man does not show $name"
    [ ! -s "$work/warnings" ] || fail "$name: $(cat "$work/warnings")"
done

# What a comment says arrives: a sentence, an inherited status, a shared page, a structure.
shows() { man -M "$work/man" 3 "$1" | tr -s ' \n' ' ' | grep -qF -e "$2" || fail "the page of $1 does not say: $2"; }
shows tarn_alloc_on '#include <tarn/core.h>'
shows tarn_alloc_on 'TARN_ERROR_MAPPING_LIMIT The process has no mapping left.'
shows tarn_alloc_on 'Every function of <tarn/core.h> may also return TARN_ERROR_FORKED'
shows tarn_free 'TARN_ERROR_DOUBLE_FREE'
shows tarn_range_unhold 'tarn_range_hold, tarn_range_unhold - holds committed pages for a graph that uses them'
shows tarn_tarn.h 'CORE tarn_core.h(3)'
shows tarn_pool_create 'typedef struct tarn_pool_options {'
shows tarn_cublas_handle 'cublasHandle_t *handle'
echo "$count functions"
