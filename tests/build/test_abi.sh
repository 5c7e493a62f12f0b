#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# A program that was built with the baseline's headers finds all its symbols in today's library and runs with it. Where libabigail is
# installed, it compares the whole ABI too, and must find what is made wrong here on purpose.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_abi: $*" >&2; exit 1; }
baseline=$TARN_SOURCE/tests/abi/baseline
library=$TARN_BUILD/libtarn.so

echo "symbols"
sed -n "s/.*<elf-symbol name='\([^']*\)' version='\([^']*\)'.*/\1@@\2/p" "$baseline/libtarn.abi" | LC_ALL=C sort >"$work/promised"
[ -s "$work/promised" ] || fail "the baseline has no symbols"
nm -D --defined-only "$library" | awk '$2 != "A" { print $NF }' | LC_ALL=C sort >"$work/exported"
missing=$(LC_ALL=C comm -23 "$work/promised" "$work/exported")
[ -z "$missing" ] || fail "the library does not export any more:"$'\n'"$missing"

echo "programs"
for program in "$baseline"/program-*.i; do
    [ -f "$program" ] || fail "no $program: \`scripts/abi-baseline --write\` writes it"
    name=$(basename "$program" .i)
    "$CC" -Wall -Werror "$program" -L"$TARN_BUILD" -ltarn -Wl,-rpath,"$TARN_BUILD" -o "$work/$name"
    env -u TARN_ALLOC_CONF -u TARN_DEBUG -u TARN_TRACE -u TARN_NO_CACHING -u LD_LIBRARY_PATH "$work/$name"
done

command -v abidw >/dev/null && [ "$(uname -m)" = x86_64 ] || exit 0
echo "libabigail"
"$TARN_SOURCE/scripts/abi-baseline" "$library"

# notices WHAT SED_SCRIPT: with a baseline that was other than the library is, it is refused.
mkdir -p "$work/tree/scripts" "$work/tree/tests/abi/baseline"
cp "$TARN_SOURCE"/scripts/{abi-baseline,help.sh} "$work/tree/scripts/"
cp "$TARN_SOURCE/tests/abi/private.abignore" "$work/tree/tests/abi/"
notices()
{
    sed "$2" "$baseline/libtarn.abi" >"$work/tree/tests/abi/baseline/libtarn.abi"
    ! cmp -s "$baseline/libtarn.abi" "$work/tree/tests/abi/baseline/libtarn.abi" || fail "cannot make $1"
    ! "$work/tree/scripts/abi-baseline" "$library" >"$work/out" 2>&1 || fail "does not notice $1"
    grep -q "$3" "$work/out" || fail "does not name $1: $(cat "$work/out")"
}
notices "a structure of another size" "s/\(name='tarn_alloc_options' size-in-bits=\)'[0-9]*'/\1'256'/" tarn_alloc_options
notices "a value of another number" "s/\(name='TARN_ERROR_BUSY' value=\)'9'/\1'10'/" TARN_ERROR_BUSY
notices "a function that is gone" "s/'tarn_device_trim\b/'tarn_prune/g" tarn_prune
notices "a field that has moved" "/name='tarn_mapping'/,/class-decl>/s/offset-in-bits='64'/offset-in-bits='96'/" bytes
