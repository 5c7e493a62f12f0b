#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# `make dist` packs the same bytes from two clones, under the version that the library says. The line of docs/building.md builds the library
# of what was packed, without CMake.
#
# Only the first clone compresses, because that takes most of this test's time and adds nothing to what the clones differ in.
set -euo pipefail
cd "$TARN_SOURCE"
fail() { echo "dist: $*" >&2; exit 1; }
git rev-parse HEAD >/dev/null 2>&1 || { echo "dist: this is no clone"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --shared . "$work/one"
git clone --quiet --shared . "$work/two/deeper"
git -C "$work/two/deeper" config tar.umask user
mkdir "$work/plain"
printf '#!/bin/sh\nexec cat\n' >"$work/plain/xz"
chmod +x "$work/plain/xz"
for way in 'one 022' 'two/deeper 077'; do
    clone=$work/${way% *}
    cp scripts/dist "$clone/scripts" # as it is here, committed or not
    path=$PATH
    [ "$clone" = "$work/one" ] || path=$work/plain:$PATH
    (umask "${way#* }" && cd / && PATH=$path "$clone/scripts/dist" "$clone/build" >/dev/null)
done
packed=$(echo "$work"/one/build/tarn-*.tar.xz)
xz -dc "$packed" | cmp - "$work/two/deeper/build/${packed##*/}" || fail "two clones give two files"

tar -C "$work" -xf "$packed"
cd "$work"/tarn-*/ || exit 1
[ "$PWD.tar.xz" = "$work/${packed##*/}" ] || fail "the folder is not named as the file is"
line=$(sed -n '/^cc .*find src/,/[^\\]$/p' "$TARN_SOURCE/docs/building.md")
[ -n "$line" ] || fail "docs/building.md has no line that builds the library"
eval "${line/cc -O2/"$CC" -O0}"
"$CC" -Iinclude examples/hello.c -o "$work/hello" -L. -ltarn -Wl,-rpath,"$PWD"
"$work/hello" >/dev/null
version=${packed##*/tarn-}
printf '#include <tarn/tarn.h>\n#include <stdio.h>\nint main(void) { return puts(tarn_version()) < 0; }\n' >"$work/version.c"
"$CC" -Iinclude "$work/version.c" -o "$work/version" -L. -ltarn -Wl,-rpath,"$PWD"
[ "$("$work/version").tar.xz" = "$version" ] || fail "the library says that it is another version than $version"
names=$(nm -D --defined-only libtarn.so | awk '$2 != "A" { print $3 }' | grep -v '^tarn_' || true)
[ -z "$names" ] || fail "the library exports $names"
