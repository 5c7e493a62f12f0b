#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The program that README.md shows is examples/hello.c, letter for letter; it compiles without a warning, runs with the
# shared and the static library, and prints what README.md says; examples/handle.c likewise. What it shows of cuBLAS
# compiles, where there is a header. Every relative link in the documents leads to a file.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_readme: $*" >&2; exit 1; }

# block KIND: the first block of README.md that is fenced as KIND.
block() { awk -v fence="\`\`\`$1" '!inside && !done && $0 == fence { inside = 1; next }
                                   inside && $0 == "```" { inside = 0; done = 1 } inside' README.md; }

block c >"$work/shown.c"
diff -u examples/hello.c "$work/shown.c" >&2 || fail "README.md does not show examples/hello.c as it is"

unset TARN_DRIVER TARN_HOST_DEVICES TARN_HOST_MEMORY TARN_HOST_MAPS TARN_LOG
flags=(-std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude)
"$CC" "${flags[@]}" "$work/shown.c" -L"$TARN_BUILD" -ltarn -Wl,-rpath,"$TARN_BUILD" -o "$work/shared"
"$CC" "${flags[@]}" "$work/shown.c" "$TARN_BUILD/libtarn.a" -pthread -ldl -o "$work/static"
block hello >"$work/expected"
for program in shared static; do
    "$work/$program" >"$work/printed" || fail "the $program program failed"
    diff -u "$work/expected" "$work/printed" >&2 || fail "the $program program does not print what README.md says"
done

"$CC" "${flags[@]}" examples/handle.c -L"$TARN_BUILD" -ltarn -Wl,-rpath,"$TARN_BUILD" -o "$work/handle"
TARN_DRIVER=host "$work/handle" >"$work/printed" || fail "examples/handle.c failed"
grep -qxF -e "$(cat "$work/printed")" README.md || fail "README.md does not say what examples/handle.c prints"

block C >"$work/cublas.c"
[ -s "$work/cublas.c" ] || fail "README.md shows nothing of cuBLAS"
for include in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    if [ -n "$include" ] && [ -e "$include/include/cublas_v2.h" ]; then
        "$CC" "${flags[@]}" -isystem "$include/include" -fsyntax-only "$work/cublas.c"
        break
    fi
done

# Links: [text](path), relative to the file that they stand in.
broken=0
for document in README.md CHANGELOG.md CONTRIBUTING.md docs/*.md examples/traces/README.md tests/mutants/README.md; do
    while IFS= read -r target; do
        target=${target%%#*}
        if [ -n "$target" ] && [ ! -e "$(dirname "$document")/$target" ]; then
            echo "$document: $target does not exist" >&2
            broken=1
        fi
    done < <(grep -oE '\]\([^)]+\)' "$document" | sed 's/^](//; s/)$//' | grep -vE '^(https?|mailto):' || true)
done
[ "$broken" -eq 0 ] || fail "a link leads nowhere"
