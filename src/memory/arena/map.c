/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page map's two levels. The root is a static table of leaves, untouched until used; a leaf
 * covers 2 GiB with 32,768 entries. Leaves are never given back. Entries are atomic: an address is
 * only looked up by code that owns its block, or under the lock of its heap. */
#include "memory/arena/map.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/lock.h"

_Atomic(_Atomic(map_entry) *) map_root[MAP_ROOT_ENTRIES];
static atomic_uint_fast64_t leaf_bytes;
static mutex leaves_lock = MUTEX_INITIALIZER(LOCK_LEAF);

static tarn_status leaf_make(size_t index)
{
    tarn_status status = TARN_OK;
    mutex_lock(&leaves_lock);
    if (!atomic_load_explicit(&map_root[index], memory_order_relaxed)) {
        _Atomic(map_entry) *leaf = pages_map(MAP_LEAF_ENTRIES * sizeof *leaf);
        if (leaf) {
            atomic_fetch_add_explicit(&leaf_bytes, MAP_LEAF_ENTRIES * sizeof *leaf,
                                      memory_order_relaxed);
            atomic_store_explicit(&map_root[index], leaf, memory_order_release);
        } else {
            status =
                failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a leaf of the page map");
        }
    }
    mutex_unlock(&leaves_lock);
    return status;
}

uint64_t map_bytes(void)
{
    return atomic_load_explicit(&leaf_bytes, memory_order_relaxed);
}

tarn_status map_prepare(uintptr_t start, size_t size)
{
    uintptr_t last = start + size - 1;
    if (last < start || last >> MAP_ADDRESS_BITS)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "%zu bytes at %#zx reach above the 48 bits that the page map covers", size,
                      (size_t)start);
    size_t shift = MAP_PAGE_SHIFT + MAP_LEAF_BITS;
    for (size_t index = start >> shift; index <= last >> shift; index++) {
        if (atomic_load_explicit(&map_root[index], memory_order_acquire))
            continue;
        tarn_status status = leaf_make(index);
        if (status)
            return status;
    }
    return TARN_OK;
}

bool map_replace(uintptr_t address, map_entry *before, map_entry entry)
{
    _Atomic(map_entry) *leaf = atomic_load_explicit(
        &map_root[address >> (MAP_PAGE_SHIFT + MAP_LEAF_BITS)], memory_order_acquire);
    map_entry found = *before;
    bool replaced = atomic_compare_exchange_strong_explicit(
        &leaf[(address >> MAP_PAGE_SHIFT) & (MAP_LEAF_ENTRIES - 1)], &found, entry,
        memory_order_acq_rel, memory_order_acquire);
    *before = found;
    return replaced;
}

#define GROUP 8 /* entries that are looked at together */

static map_entry entry_at(const _Atomic(map_entry) *leaf, size_t index)
{
    return atomic_load_explicit(&leaf[index], memory_order_relaxed);
}

/* Written out, as compilers do not unroll a loop of atomic loads. */
static bool has_entries(const _Atomic(map_entry) *leaf, size_t first)
{
    return entry_at(leaf, first) | entry_at(leaf, first + 1) | entry_at(leaf, first + 2) |
           entry_at(leaf, first + 3) | entry_at(leaf, first + 4) | entry_at(leaf, first + 5) |
           entry_at(leaf, first + 6) | entry_at(leaf, first + 7);
}

/* Where the last entry of leaf[first] to leaf[end - 1] ends; `first` if there is none. */
static size_t last_of_leaf(const _Atomic(map_entry) *leaf, size_t first, size_t end)
{
    while (end > first) {
        if (end % GROUP == 0 && !has_entries(leaf, end - GROUP))
            end -= GROUP;
        else if (entry_at(leaf, end - 1))
            return end;
        else
            end--;
    }
    return first;
}

uintptr_t map_last(uintptr_t start, uintptr_t end)
{
    size_t first = start >> MAP_PAGE_SHIFT, at = end >> MAP_PAGE_SHIFT;
    while (at > first) {
        size_t base = (at - 1) & ~(MAP_LEAF_ENTRIES - 1), low = base > first ? base : first;
        const _Atomic(map_entry) *leaf =
            atomic_load_explicit(&map_root[base >> MAP_LEAF_BITS], memory_order_acquire);
        size_t found = leaf ? base + last_of_leaf(leaf, low - base, at - base) : low;
        if (found > low)
            return (found - 1) << MAP_PAGE_SHIFT;
        at = low;
    }
    return 0;
}
