#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# No include in the tree climbs; and the check that says so notices one that does.
set -euo pipefail
check=$TARN_SOURCE/scripts/check-layers

"$check" "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_layers: $*" >&2; exit 1; }

# expect FILE LINE TEXT...: a tree with this one file is refused at that line.
expect()
{
    local file=$1 line=$2
    shift 2
    rm -rf "$work/tree"
    mkdir -p "$work/tree/$(dirname "$file")"
    printf '%s\n' "$@" >"$work/tree/$file"
    if "$check" "$work/tree" >"$work/out"; then
        fail "accepted $file: $*"
    fi
    grep -q "^$file:$line: " "$work/out" || fail "did not name $file:$line but: $(cat "$work/out")"
}
expect src/device/stream.c 2 '#include "base/status.h"' '#include "memory/heap.h"'
expect src/base/status.h 1 '#  include <record/trace.h>'
expect src/handle/libraries/cusparse.c 1 '#include "report/html.h"'
expect src/memory/heap.c 1 '#include "../report/html.h"'
expect src/memory/heap.c 1 '#include "heap.h"'
expect src/other/heap.c 1 'int x;'
expect include/tarn/pool.h 1 '#include "base/status.h"'
expect src/memory/heap/heap.c 1 '#include "memory/pool/pool.h"'
expect src/memory/share/share.c 1 '#include "memory/malloc.h"'
expect src/memory/attic/heap.c 1 '#include "memory/heap/heap.h"'

rm -rf "$work/tree"
mkdir -p "$work/tree/adaptors/dlpack"
printf '%s\n' '#include "tarn_dlpack.h"' '#include "memory/heap.h"' >"$work/tree/adaptors/dlpack/a.c"
! "$check" "$work/tree" >"$work/out" 2>&1 || fail "accepted an adaptor that is no guest"
grep -q "^adaptors/dlpack/a.c:2:" "$work/out" || fail "did not name the adaptor but: $(cat "$work/out")"

rm -rf "$work/tree"
mkdir -p "$work/tree/src/memory" "$work/tree/tools/tarn"
printf '%s\n' '#include <stdint.h>' '#include <sys/mman.h>' '#include <tarn/pool.h>' '#include "tarn/tarn.h"' \
    '#include "memory/heap.h"' '#include "base/status.h"' '/* #include "report/html.h" */' >"$work/tree/src/memory/heap.c"
printf '%s\n' '#include "snapshot.h"' '#include "report/html.h"' >"$work/tree/tools/tarn/main.c"
"$check" "$work/tree" || fail "refused a tree in which nothing climbs"

# Pointers to functions are in hooks.h, or a public callback, or in the files that the script names.
expect src/memory/heap/heap.c 2 'int plain(int *(x));' 'static void (*upper)(struct heap *heap);'
expect src/memory/heap/heap.h 1 'typedef bool (*predicate)(int);'
expect src/memory/heap/heap.h 1 'typedef bool predicate(int);'
expect src/memory/pool/scope.c 1 'static int (*const table[])(void) = {0};'
expect src/memory/plan/plan.c 1 'static bool (*_Atomic callback)(int device);'
expect src/memory/control.c 1 'static void (*each)(const tarn_kind *kind, void *user);' # no header has it
rm -rf "$work/tree"
mkdir -p "$work/tree/src/memory/settings" "$work/tree/src/memory/pool" "$work/tree/include/tarn"
printf '%s\n' 'struct hooks {' '    void (*begin)(void);' '};' >"$work/tree/src/memory/settings/hooks.h"
printf '%s\n' 'TARN_API void tarn_list(void (*each)(const tarn_kind *kind, size_t size, void *user), void *user);' \
    'TARN_API void tarn_go(void (*go)(int kind));' >"$work/tree/include/tarn/pool.h"
printf '%s\n' 'static void (*each)(const tarn_kind *, size_t, void *);' 'void f(void (*each)(const tarn_kind *of, size_t bytes, void *user));' \
    >"$work/tree/src/memory/control.c"
"$check" "$work/tree" || fail "refused struct hooks, or a public callback"
printf '%s\n' 'static void (*each)(const tarn_kind *, size_t *, void *);' >"$work/tree/src/memory/control.c"
! "$check" "$work/tree" >"$work/out" || fail "accepted a callback of another type"
printf '%s\n' 'static void (*go)(int kind);' >"$work/tree/src/memory/control.c"
! "$check" "$work/tree" >"$work/out" || fail "accepted one that has no user"
rm "$work/tree/src/memory/control.c"
printf '%s\n' 'struct visitor;' >"$work/tree/src/memory/pool/pool.h"
! "$check" "$work/tree" >"$work/out" || fail "accepted a file that is named and has none"
grep -q '^src/memory/pool/pool.h: ' "$work/out" || fail "did not name the file but: $(cat "$work/out")"
