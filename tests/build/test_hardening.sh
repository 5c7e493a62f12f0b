#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# What is shipped is bound when it is loaded, has tables that cannot be written to and guards on its stack, and calls the C library's checked
# functions. Functions of the library begin as the processor's check of indirect jumps wants it; those of the shim of `tarn run` do not.
set -euo pipefail
fail() { echo "hardening: $*" >&2; exit 1; }
command -v readelf >/dev/null || fail "readelf is missing; \`scripts/setup test\` installs it"
build=$TARN_BUILD
grep -qE '^CMAKE_BUILD_TYPE:[A-Z]+=(Release|RelWithDebInfo|MinSizeRel)$' "$build/CMakeCache.txt" || { echo "not optimised"; exit 77; }

for file in tarn libtarn.so libtarn_adaptors.so run/libcuda.so.1 run/pool/libcuda.so.1 run/libamdhip64.so.0 run/libtarn_run_audit.so; do
    [ -e "$build/$file" ] || continue
    readelf -Wd "$build/$file" | grep -qE 'BIND_NOW|\bNOW\b' || fail "$file is not bound when it is loaded"
    readelf -Wl "$build/$file" | grep -q GNU_RELRO || fail "$file has tables that can be written to"
    readelf -Wl "$build/$file" | grep -E 'GNU_STACK' | grep -q 'RW ' || fail "$file has a stack that can be run"
done
for file in tarn libtarn.so run/libcuda.so.1; do
    symbols=$(readelf -W --dyn-syms "$build/$file")
    if grep -q '^TARN_HAVE_STACK_PROTECTOR:INTERNAL=1' "$build/CMakeCache.txt"; then
        grep -q __stack_chk_fail <<<"$symbols" || fail "$file has no guards on its stack"
    fi
    if getconf GNU_LIBC_VERSION >/dev/null 2>&1; then
        grep -qE '__[a-z_]+_chk\b' <<<"$symbols" || fail "$file calls no checked functions"
    fi
done
# begins FILE FUNCTION: the first instruction.
begins() { objdump -d --no-show-raw-insn --disassemble="$2" "$1" | awk '/^[0-9a-f]+ </ { getline; print $2; exit }'; }
if [ "$(uname -m)" = x86_64 ] && command -v objdump >/dev/null; then
    if grep -q '^TARN_HAVE_CF_PROTECTION_FULL:INTERNAL=1' "$build/CMakeCache.txt"; then
        [ "$(begins "$build/libtarn.so" tarn_malloc)" = endbr64 ] || fail "tarn_malloc() begins with $(begins "$build/libtarn.so" tarn_malloc)"
    fi
    if [ -e "$build/run/libcuda.so.1" ]; then
        [ "$(begins "$build/run/libcuda.so.1" cuMemAlloc_v2)" != endbr64 ] || fail "the shim's functions begin with endbr64"
    fi
fi
