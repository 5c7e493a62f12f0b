#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The library as other programs have it: opened and closed again and again, twice in a process, in namespaces of the loader, where
# static thread-local storage is short, and owned by static objects of C++. What is done in each is at the top of its source,
# tests/build/life/. CC and CXX say which compilers.
set -euo pipefail

source=$TARN_SOURCE/tests/build/life
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TARN_HOST_MEMORY=1G TARN_DRIVER=host XDG_RUNTIME_DIR=$work
fail() { echo "test_life: $*" >&2; exit 1; }

cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || { echo "no C++ compiler" >&2; exit 77; }
libc=$({ "$CC" -dM -E -include features.h -x c /dev/null || true; } | sed -n 's/^#define __GLIBC__ .*/glibc/p')
lib=$TARN_BUILD/libtarn.so
warn=(-Wall -Wextra -Werror -g -I"$TARN_SOURCE/include")
compile() { "$CC" -std=c11 -D_GNU_SOURCE "${warn[@]}" "$source/$1.c" -o "$work/${2:-$1}" "${@:3}" -pthread -ldl; }

echo "opened and closed"
compile reopen
"$work/reopen" "$lib" 4000

echo "two copies"
cp "$lib" "$work/libother.so"
compile copies
compile copies copies-static -DCOPIES_STATIC -rdynamic "$TARN_BUILD/libtarn.a"
"$work/copies" "$lib" "$work/libother.so"
"$work/copies-static" - "$lib"
"$work/copies-static" "$lib" -
if [ -e "$TARN_BUILD/sim/libcuda.so.1" ]; then
    for driver in cuda hip; do
        LD_LIBRARY_PATH=$TARN_BUILD/sim TARN_DRIVER=$driver TARN_HIP_VMM=1 "$work/copies" "$lib" "$work/libother.so"
    done
fi
names=$(readelf -rW "$lib" | grep -E ' tarn_' || true)
[ -z "$names" ] || fail "asks for its own functions by name, which another copy may answer: $names"

if [ "$libc" = glibc ]; then
    echo "namespaces"
    compile spaces
    "$work/spaces" "$lib"
fi

echo "thread-local storage"
# What the loader keeps for libraries that are opened at run time is 1,664 bytes with glibc, and other libraries want some.
size=$(readelf -lW "$lib" | awk '$1 == "TLS" { print $6 }')
[ $((size)) -le 256 ] || fail "takes $((size)) bytes of static thread-local storage"
compile crowd
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    echo "__thread char some[512] = {1}; char *get(void) { return some; }" |
        "$CC" -shared -fPIC -ftls-model=initial-exec -x c - -o "$work/crowd$number.so"
done
"$work/crowd" "$lib" "$work"/crowd?*.so

if [ "$libc" = glibc ]; then
    echo "exceptions"
    "$cxx" -std=c++11 "${warn[@]}" "$source/throws.cc" -o "$work/throws" "$lib" -Wl,-rpath,"$TARN_BUILD" -pthread
    "$cxx" -std=c++11 "${warn[@]}" "$source/throws.cc" -o "$work/throws-static" "$TARN_BUILD/libtarn.a" -pthread -ldl
    "$work/throws"
    "$work/throws-static"
fi

echo "static objects of C++"
"$cxx" -std=c++11 "${warn[@]}" "$source/statics.cc" -o "$work/statics" "$lib" -Wl,-rpath,"$TARN_BUILD" -pthread
"$cxx" -std=c++11 "${warn[@]}" "$source/statics.cc" -o "$work/statics-static" "$TARN_BUILD/libtarn.a" -pthread -ldl
drivers=(host)
if [ -e "$TARN_BUILD/sim/libcuda.so.1" ]; then
    drivers+=(cuda hip)
    export LD_LIBRARY_PATH=$TARN_BUILD/sim
fi
for driver in "${drivers[@]}"; do
    for program in statics statics-static; do
        for how in return exit shutdown thread busy busy busy; do
            status=0
            TARN_DRIVER=$driver "$work/$program" "$how" || status=$?
            [ $status -eq 7 ] || fail "$program $how on $driver ended with $status"
        done
    done
done
