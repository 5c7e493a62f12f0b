#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Examples for CUDA compile without a warning: those in C against the toolkit's headers, and they run on the simulated driver; those for nvcc
# by nvcc. Those that show a program before and after do both.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_cuda_examples: $*" >&2; exit 1; }
toolkit=
for found in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    [ -z "$found" ] || [ ! -e "$found/include/cuda_runtime.h" ] || { toolkit=$found; break; }
done
[ -n "$toolkit" ] || { echo "no cuda_runtime.h; set CUDA_HOME"; exit 77; }

for file in examples/cuda/*.c; do
    grep -q USE_TARN "$file" && variants=(-UUSE_TARN -DUSE_TARN) || variants=(-UUSE_TARN)
    for variant in "${variants[@]}"; do
        scripts/example --sim "$variant" "$file" >"$work/printed" || fail "$file failed ($variant)"
        [ -s "$work/printed" ] || fail "$file prints nothing ($variant)"
    done
done
if [ -x "$toolkit/bin/nvcc" ]; then
    for file in examples/cuda/*.cu; do
        "$toolkit/bin/nvcc" -Werror all-warnings -Iinclude -c "$file" -o "$work/object.o" || fail "$file does not compile"
    done
fi

# What docs/handles.md shows of cuBLAS.
awk '!inside && $0 == "```C" { inside = 1; next } $0 == "```" { inside = 0 } inside' docs/handles.md >"$work/cublas.c"
[ -s "$work/cublas.c" ] || fail "docs/handles.md shows nothing of cuBLAS"
"$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -isystem "$toolkit/include" -fsyntax-only "$work/cublas.c" ||
    fail "what docs/handles.md shows does not compile"
