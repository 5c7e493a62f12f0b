#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The tarn authors
#
# The list of locks says what is in the sources, and names say who lets a lock go; and the check that says so notices what is not.
set -euo pipefail
check=$TARN_SOURCE/scripts/check-locks

"$check" "$TARN_SOURCE"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "test_locks: $*" >&2; exit 1; }

# refuse TEXT FILE EDIT: with an edit of a file the check says TEXT.
refuse()
{
    rm -rf "$work/tree"
    mkdir "$work/tree"
    cp -r "$TARN_SOURCE"/{src,sim,run,tools} "$work/tree"
    sed -i "$3" "$work/tree/$2"
    ! cmp -s "$TARN_SOURCE/$2" "$work/tree/$2" || fail "$3 changes nothing in $2"
    ! "$check" "$work/tree" >"$work/out" || fail "accepted $3 in $2"
    grep -qF -- "$1" "$work/out" || fail "did not say \"$1\" but: $(cat "$work/out")"
}
refuse 'no lock is made with LOCK_PEARS' src/base/thread/lock_order.h 's/^    X(SETUP, /    X(PEARS, "pears_lock (device.c)", "pears") &/'
refuse 'LOCK_SETUP has no row' src/base/thread/lock_order.h 's/X(SETUP, /X(SET_UP, /'
refuse 'and this is "opening_lock"' src/device/device.c 's/setup_lock/opening_lock/'
refuse 'the leaf opening_lock has no row' src/memory/arena/map.c 's/leaves_lock/opening_lock/'
refuse '1 rows of leaves say lookup, which 0 files make' src/memory/arena/arena.c 's/mutex_init(&store->heaps.lookup, LOCK_LEAF)/mutex_init(\&store->heaps.lookup, LOCK_ARENA)/'
refuse '6 rows of leaves say lock, which 7 files make' src/memory/arena/map.c '$ a static mutex lock = MUTEX_INITIALIZER(LOCK_LEAF);'
refuse 'peers.c declares no enable_lock' src/base/thread/lock_order.h 's/(peer[.]c)/(peers.c)/'
refuse 'has the name streams_lock too' src/device/capture.c 's/captures_lock/streams_lock/'
# What lets a lock go that it did not take says so in its name, and so does what calls it; and nothing else does.
refuse 'create_locked lets its lock go, by mutex_unlock()' src/handle/supply.c 's/create_relocking/create_locked/'
refuse 'wait_for_first_locked lets its lock go, by condition_wait()' src/handle/supply.c 's/wait_for_first_relocking/wait_for_first_locked/'
refuse 'bind_locked lets its lock go, by workspace_wanted_relocking()' src/handle/vendor.c 's/bind_relocking/bind_locked/'
refuse 'pop_relocking keeps its lock throughout' src/handle/supply.c 's/pop_locked/pop_relocking/'
echo "test_locks: ok"
