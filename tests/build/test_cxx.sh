#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# A C++ program that uses every class of tarn.hpp, and the example, compile without a warning, by each compiler and each standard from C++17
# on, and run.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TARN_DRIVER=host TARN_HOST_DEVICES=2 TARN_HOST_MEMORY=268435456
compilers=("${CXX:-c++}")
! command -v clang++ >/dev/null || compilers+=(clang++)
command -v "${compilers[0]}" >/dev/null || { echo "test_cxx: no C++ compiler; scripts/setup test installs one" >&2; exit 77; }
for cxx in "${compilers[@]}"; do
    for standard in c++17 c++20; do
        "$cxx" -std=$standard -O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -Iinclude \
            tests/cxx/program.cc -o "$work/program" -L"$TARN_BUILD" -ltarn -Wl,-rpath,"$TARN_BUILD" -pthread
        "$work/program"
        "$cxx" -std=$standard -Wall -Wextra -Wpedantic -Werror -Iinclude examples/hello.cc -o "$work/hello" -L"$TARN_BUILD" -ltarn \
            -Wl,-rpath,"$TARN_BUILD"
        [ "$("$work/hello")" = 'same stream: the same memory; another stream: other memory' ] || { echo "test_cxx: examples/hello.cc" >&2; exit 1; }
    done
done
while IFS= read -r class; do
    grep -q "tarn::$class\b" tests/cxx/program.cc ||
        { echo "test_cxx: tests/cxx/program.cc does not use tarn::$class" >&2; exit 1; }
done < <(sed -n 's/^class \([a-z_]*\) : public \(detail\|std::pmr\).*/\1/p' include/tarn/tarn.hpp)
