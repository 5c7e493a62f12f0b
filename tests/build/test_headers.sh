#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# tarn.h, and each header that it includes, compiles alone: as C11 and C17, and as C++ from C++11 on, with no warning.
set -euo pipefail
cd "$TARN_SOURCE"

headers=(tarn/tarn.h)
while IFS= read -r header; do headers+=("$header"); done < \
    <(sed -n 's/^#[[:space:]]*include[[:space:]]*[<"]\(tarn\/[a-z_]*\.h\)[>"].*/\1/p' include/tarn/tarn.h)
for header in "${headers[@]}"; do
    for standard in c11 c17; do
        echo "#include <$header>" | "$CC" -std=$standard -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c -
    done
    if ! command -v c++ >/dev/null; then
        echo "no C++ compiler" >&2
        exit 77
    fi
    for standard in c++11 c++20; do
        echo "#include <$header>" | c++ -std=$standard -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ -
    done
done
echo "${#headers[@]} headers"
