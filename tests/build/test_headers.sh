#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Each public header compiles alone, as C11 and as C++11, and all of them together in every standard that the compilers know, with
# no warning. Those of the vendors' types are as their list makes them, and stand on stand-ins for the vendors' headers, and so do the uses of them
# that their pages show. CC and CXX say which compilers.
set -euo pipefail
cd "$TARN_SOURCE"

cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || { echo "no C++ compiler" >&2; exit 77; }
scripts/vendor-headers --check
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The stand-ins: the vendor's header that one of ours includes has the type that its getter gives.
headers=()
for header in include/tarn/*.h; do
    headers+=("tarn/${header##*/}")
    while IFS= read -r vendor; do
        mkdir -p "$work/vendor/$(dirname "$vendor")"
        sed -n 's/^\(static inline .*(\(tarn_stream stream, \)\{0,1\}\| \{20,\}\)\(const \)\{0,1\}\([A-Za-z_]*\) \*\{1,2\}handle)$/\4/p' "$header" | sort -u |
            while IFS= read -r type; do echo "typedef struct type_of_$type *$type;"; done >"$work/vendor/$vendor"
        [ -s "$work/vendor/$vendor" ] || { echo "$header: gives no handle of a type of $vendor" >&2; exit 1; }
    done < <(sed -n 's/^#include <\(.*\)>$/\1/p' "$header" | grep -vE '^(tarn/.*|std(bool|def|int)\.h)$' || true)
done
[ "${#headers[@]}" -gt 20 ] || { echo "only ${#headers[@]} headers" >&2; exit 1; }
printf '#include <%s>\n' "${headers[@]}" >"$work/all.h"

compile() { "$@" -Wall -Wextra -Werror -Iinclude -isystem "$work/vendor" -fsyntax-only; }
knows() { "$@" -fsyntax-only /dev/null 2>/dev/null; }

for header in "${headers[@]}"; do
    echo "#include <$header>" | compile "$CC" -std=c11 -Wpedantic -x c -
    echo "#include <$header>" | compile "$cxx" -std=c++11 -Wpedantic -x c++ -
done
scripts/vendor-headers --examples "$work/uses"
for use in "$work"/uses/*.c; do
    compile "$CC" -std=c11 -Wpedantic "$use"
done
standards=()
for standard in c99 c11 c17 c2x c23; do
    knows "$CC" -std=$standard -x c || continue
    compile "$CC" -std=$standard -Wpedantic -x c "$work/all.h"
    standards+=("$standard")
done
# C++98 has no comma at the end of an enum, which every compiler takes.
for standard in c++98 c++11 c++14 c++17 c++20 c++2b c++23; do
    knows "$cxx" -std=$standard -x c++ || continue
    strict=-Wpedantic
    [ $standard != c++98 ] || strict=-Wno-c++11-extensions
    compile "$cxx" -std=$standard $strict -x c++ "$work/all.h"
    standards+=("$standard")
done
echo "${#headers[@]} headers, ${standards[*]}"
