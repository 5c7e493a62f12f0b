#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What a generator of bindings sees in the public headers is all that there is: every exported function, and every constant with the
# value that C and C++ give it. A Rust program that has nothing but what bindgen wrote runs on the library, and a Python one by ctypes.
# RUSTC and BINDGEN say which; without them the Python half is all.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_bindings: $*" >&2; exit 1; }
export LC_ALL=C TARN_DRIVER=host TARN_HOST_DEVICES=2 TARN_HOST_MEMORY=268435456
library=$TARN_BUILD/libtarn.so

# The headers that need no vendor's.
grep -LE '^#include <(cu|hip|roc|miopen|cudnn)' include/tarn/*.h | sed 's:include/\(.*\):#include <\1>:' >"$work/all.h"
sed -n '/global:/,/local:/s/^ *\(tarn_[a-z0-9_]*\);$/\1/p' src/tarn.map | sort >"$work/functions"
[ "$(wc -l <"$work/functions")" -gt 100 ] || fail "src/tarn.map has few functions"

# The constants that are macros, except for what has arguments or no value: NAME VALUE.
"$CC" -E -dM -Iinclude -x c "$work/all.h" | sed -n 's/^#define \(TARN_[A-Z0-9_]*\) \(..*\)/\1 \2/p' |
    grep -vE '^TARN_(API|[A-Z]*_H) ' | sort >"$work/macros"
[ "$(wc -l <"$work/macros")" -gt 10 ] || fail "few constants: $(cat "$work/macros")"

# Python's program reads them as they stand there: no cast, which generators drop.
python3 -B tests/bindings/program.py "$library" "$work/functions" "$work/macros"

rustc=${RUSTC:-rustc} bindgen=${BINDGEN:-bindgen}
for tool in "$rustc" "$bindgen"; do
    command -v "$tool" >/dev/null || { echo "test_bindings: $tool is missing; scripts/setup test installs it"; exit 77; }
done

# Newer ones take size_t for usize by themselves.
usize=$("$bindgen" --help | grep -o -m 1 -- ' --size_t-is-usize' || true)
"$bindgen" "$work/all.h" ${usize:+--size_t-is-usize} --no-prepend-enum-name --allowlist-function 'tarn_.*' --allowlist-type 'tarn_.*' \
    --allowlist-var 'TARN_.*' -o "$work/bindings.rs" -- -Iinclude

sed -n 's/^ *pub fn \(tarn_[a-z0-9_]*\)(.*/\1/p; s/^ *pub fn \(tarn_[a-z0-9_]*\)($/\1/p' "$work/bindings.rs" | sort -u >"$work/bound"
lost=$(comm -23 "$work/functions" "$work/bound")
[ -z "$lost" ] || fail "bindgen leaves out functions: $lost"
sed -n 's/^pub const \(TARN_[A-Z0-9_]*\): [a-z0-9_]* = \(-\{0,1\}[0-9]*\);$/\1 \2/p' "$work/bindings.rs" | sort >"$work/constants"
lost=$(comm -23 <(cut -d' ' -f1 "$work/macros") <(cut -d' ' -f1 "$work/constants"))
[ -z "$lost" ] || fail "bindgen leaves out constants: $lost"

# The same values in C and C++, enumerators too.
{
    cat "$work/all.h"
    echo '#ifndef __cplusplus'
    echo '#define static_assert _Static_assert'
    echo '#endif'
    sed 's/\(.*\) \(.*\)/static_assert((long long)\1 == \2, "\1");/' "$work/constants" # bindgen has the last bit for a sign
} >"$work/values.h"
"$CC" -std=c11 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c "$work/values.h"
cxx=${CXX:-c++}
! command -v "$cxx" >/dev/null || "$cxx" -std=c++11 -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ "$work/values.h"

TARN_BINDINGS=$work/bindings.rs "$rustc" --edition 2021 -D warnings -L "$TARN_BUILD" -o "$work/program" tests/bindings/program.rs
LD_LIBRARY_PATH=$TARN_BUILD "$work/program"
[ ! -d "$TARN_BUILD/sim" ] || TARN_DRIVER=cuda LD_LIBRARY_PATH=$TARN_BUILD:$TARN_BUILD/sim "$work/program" cublas cudnn
echo "test_bindings: $(wc -l <"$work/bound") functions, $(wc -l <"$work/constants") constants, $("$rustc" --version), $("$bindgen" --version)"
