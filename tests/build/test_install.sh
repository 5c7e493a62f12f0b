#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# Installs into an empty folder, moves it, and builds and runs examples/consumer against it in each way that users have:
# CMake and pkg-config, shared and static. Then looks at what the libraries carry and what is installed beside them. What is
# uninstalled leaves nothing, and takes nothing else along. Where the build needs something that is missing, it says all of it and the remedy.
set -euo pipefail
cd "$TARN_SOURCE"

work=$(mktemp -d)
# The list of what `make install` wrote is its user's: it is put back, or goes again.
manifest=$TARN_BUILD/install_manifest.txt
[ ! -e "$manifest" ] || cp "$manifest" "$work/manifest"
clean_up()
{
    if [ -e "$work/manifest" ]; then cp "$work/manifest" "$manifest"; else rm -f "$manifest"; fi
    rm -rf "$work"
}
trap clean_up EXIT
fail() { echo "test_install: $*" >&2; exit 1; }

cmake --install "$TARN_BUILD" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/prefix" # an installation may be moved
prefix=$work/prefix
libdir=$(dirname "$(find "$prefix" -name 'libtarn.so')")
[ -f "$libdir/libtarn.a" ] || fail "no libtarn.a"
[ "$(readlink "$libdir/libtarn.so")" = libtarn.so.0 ] || fail "libtarn.so does not lead to libtarn.so.0"

echo "CMake"
cmake -S "$TARN_SOURCE/examples/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" >/dev/null
cmake --build "$work/consumer" >/dev/null
"$work/consumer/consumer"
"$work/consumer/consumer-static"

echo "pkg-config"
export PKG_CONFIG_PATH=$libdir/pkgconfig
main=$TARN_SOURCE/examples/consumer/main.c
read -r -a flags <<<"$(pkg-config --cflags --libs tarn)"
"$CC" "$main" "${flags[@]}" -Wl,-rpath,"$libdir" -o "$work/shared"
"$work/shared"
read -r -a flags <<<"$(pkg-config --cflags --libs tarn-static)"
"$CC" "$main" "${flags[@]}" -o "$work/static"
! readelf -d "$work/static" | grep -q libtarn || fail "the static program needs libtarn.so"
"$work/static"

echo "a subproject, whose parent wants other things"
mkdir "$work/parent"
cat >"$work/parent/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(parent LANGUAGES C)
add_subdirectory($TARN_SOURCE tarn EXCLUDE_FROM_ALL)
add_executable(static $main)
target_link_libraries(static PRIVATE tarn::tarn_static)
END
cmake -S "$work/parent" -B "$work/parent/build" -G Ninja -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS='-O0 -flto' -DCMAKE_UNITY_BUILD=ON \
    -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON >/dev/null
cmake --build "$work/parent/build" >"$work/said" 2>&1 || fail "$(grep -E 'error|undefined|plugin' "$work/said")"
"$work/parent/build/static"

echo "the shared library"
dynamic=$(readelf -d "$libdir/libtarn.so")
grep -q 'SONAME.*\[libtarn\.so\.0\]' <<<"$dynamic" || fail "soname is not libtarn.so.0"
grep -q 'NODELETE' <<<"$dynamic" || fail "not linked -z nodelete"
! grep -qE 'R(UN)?PATH' <<<"$dynamic" || fail "has a search path of its own"
foreign=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic" | grep -vE '^(libc|libpthread|libdl|ld-linux.*)\.so\.[0-9]+$' || true)
[ -z "$foreign" ] || fail "needs more than the C library: $foreign"

echo "the static library"
names=$(nm -g --defined-only "$libdir/libtarn.a" | awk 'NF == 3 { print $3 }' | grep -v '^tarn_' || true)
[ -z "$names" ] || fail "names that could clash with a user's: $names"

echo "the manual"
[ -d "$TARN_BUILD/man/man3" ] || fail "there are no manual pages of the functions; is Python 3 missing?"
for page in "$TARN_BUILD"/man/man3/*; do
    cmp "$page" "$prefix/share/man/man3/$(basename "$page")" || fail "a manual page was not installed: $page"
done
if command -v man >/dev/null; then
    MANWIDTH=100 man -M "$prefix/share/man" 3 tarn_alloc_on | grep -q 'tarn_status tarn_alloc_on(tarn_stream stream' ||
        fail "man 3 tarn_alloc_on does not show the function"
fi

if [ -x "$TARN_BUILD/tarn" ]; then
    echo "the program"
    "$TARN_BUILD/tarn" --help >/dev/null
    "$prefix/bin/tarn" --help >/dev/null
    if [ -d "$TARN_BUILD/man/man1" ]; then # else help2man was missing
        for page in "$TARN_BUILD"/man/man1/*; do
            cmp "$page" "$prefix/share/man/man1/$(basename "$page")" || fail "a manual page was not installed: $page"
        done
    fi
fi

echo "licence, documents, examples"
doc=$prefix/share/doc/tarn
cmp LICENSE "$doc/LICENSE" || fail "the licence was not installed"
for file in README.md CHANGELOG.md docs/*.md docs/*/*.md; do
    [ -s "$doc/$file" ] || fail "$file was not installed"
done
for file in docs/pictures/*.png examples/*.c* examples/cuda/* examples/consumer/*; do
    cmp "$file" "$doc/$file" || fail "$file was not installed"
done
scripts/check-links "$doc" || fail "links of the installed documents lead nowhere"
for licence in d3 wasi-libc; do
    [ ! -x "$TARN_BUILD/tarn" ] || cmp "licences/$licence.txt" "$doc/licences/$licence.txt" || fail "the program came without the licence of $licence"
done

echo "starting a program"
# As root `make install` runs ldconfig, which is for the folders of /etc/ld.so.conf; elsewhere it says what to set.
scripts/after-install "$TARN_BUILD" >"$work/said"
grep -qF "export LD_LIBRARY_PATH=" "$work/said" || fail "after-install does not say how a program finds the library"
LD_LIBRARY_PATH=$libdir "$work/shared"

echo "completions"
if [ -x "$TARN_BUILD/tarn" ]; then
    for file in bash-completion/completions/tarn zsh/site-functions/_tarn fish/vendor_completions.d/tarn.fish; do
        [ -s "$prefix/share/$file" ] || fail "share/$file was not installed"
    done
fi

echo "uninstalling, with DESTDIR"
root="$work/root[1]" # a name that is no pattern
DESTDIR=$root cmake --install "$TARN_BUILD" --prefix /usr >/dev/null
mkdir -p "$root/usr/lib/tarn"
echo keep >"$root/usr/include/other.h"
echo keep >"$root/usr/lib/tarn/theirs"
echo keep >"$root/usr/share/doc/tarn/theirs"
DESTDIR=$root cmake -DMANIFEST="$manifest" -P "$TARN_SOURCE/cmake/uninstall.cmake" >/dev/null 2>&1 || fail "uninstalling failed"
left=$(cd "$root" && find . -type f -o -type l | sort | tr '\n' ' ')
[ "$left" = "./usr/include/other.h ./usr/lib/tarn/theirs ./usr/share/doc/tarn/theirs " ] || fail "uninstalling left: $left"
[ ! -e "$root/usr/include/tarn" ] || fail "uninstalling left an empty folder"
! cmake -DMANIFEST="$work/nothing" -P "$TARN_SOURCE/cmake/uninstall.cmake" >"$work/said" 2>&1 || fail "uninstalled nothing, and said that all is well"
grep -q 'nothing was installed' "$work/said" || fail "does not say why nothing can be uninstalled"

echo "what is missing"
mkdir "$work/bin"
ln -s "$(command -v cmake)" "$(command -v ninja)" "$work/bin"
# lacks WORD...: the build stops on a machine with the programs of $work/bin, and says each word.
lacks()
{
    local word
    rm -rf "$work/bare"
    ! env -i PATH="$work/bin" ${with[@]+"${with[@]}"} cmake -S . -B "$work/bare" -G Ninja >"$work/said" 2>&1 || fail "builds without $1"
    for word; do grep -qF -- "$word" <<<"$(tr -s '\n ' ' ' <"$work/said")" || fail "does not say \"$word\" but: $(cat "$work/said")"; done
    ! grep -q CMAKE_C_COMPILER "$work/said" || fail "leaves it to CMake to say that there is no compiler"
}
lacks 'needs a C compiler' 'gcc libc6-dev pkg-config libzstd-dev libjansson-dev libsmartcols-dev zlib1g-dev'
with=(CC='x86_64-linux-gnu-gcc -pthread') # which is what Debian's Python says
lacks 'needs a C compiler, and there is none of these: x86_64-linux-gnu-gcc.' 'gcc libc6-dev pkg-config'
with=(PATH="$PATH" CC="$CC" PKG_CONFIG_LIBDIR="$work/nothing")
lacks 'needs libzstd, jansson, smartcols, zlib' 'libzstd-dev libjansson-dev libsmartcols-dev zlib1g-dev' '-DTARN_PROGRAM=OFF'
