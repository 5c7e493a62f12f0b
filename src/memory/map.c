/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page map's two levels. The root is a static table of leaves, untouched until used; a leaf covers 2 GiB with 32,768
 * entries. Leaves are never given back. Entries are atomic: an address is only looked up by who owns its block, or under the
 * lock of its heap, so relaxed order is enough but for the publication of a leaf. */
#include "memory/map.h"
#include "base/lock.h"
#include "base/pages.h"
#include "base/status.h"

#include <stdatomic.h>

#define LEAF_BITS 15
#define LEAF_ENTRIES ((size_t)1 << LEAF_BITS)
#define ROOT_ENTRIES ((size_t)1 << (MAP_ADDRESS_BITS - MAP_PAGE_SHIFT - LEAF_BITS))

typedef _Atomic(struct span *) entry;

static _Atomic(entry *) root[ROOT_ENTRIES];
static mutex leaf_lock = MUTEX_INITIALIZER;

static tarn_status leaf_make(size_t index)
{
    tarn_status status = TARN_OK;
    mutex_lock(&leaf_lock);
    if (!atomic_load_explicit(&root[index], memory_order_relaxed)) {
        entry *leaf = pages_map(LEAF_ENTRIES * sizeof *leaf);
        if (leaf)
            atomic_store_explicit(&root[index], leaf, memory_order_release);
        else
            status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a leaf of the page map");
    }
    mutex_unlock(&leaf_lock);
    return status;
}

tarn_status map_prepare(uintptr_t start, size_t size)
{
    uintptr_t last = start + size - 1;
    if (last >> MAP_ADDRESS_BITS)
        return failed(TARN_ERROR_NOT_SUPPORTED, "address %#zx is above the 48 bits that the page map covers",
                      (size_t)last);
    size_t shift = MAP_PAGE_SHIFT + LEAF_BITS;
    for (size_t index = start >> shift; index <= last >> shift; index++) {
        if (atomic_load_explicit(&root[index], memory_order_acquire))
            continue;
        tarn_status status = leaf_make(index);
        if (status)
            return status;
    }
    return TARN_OK;
}

/* The place of an address's entry, or NULL where there is no leaf. */
static entry *entry_at(uintptr_t address)
{
    if (address >> MAP_ADDRESS_BITS)
        return NULL;
    entry *leaf = atomic_load_explicit(&root[address >> (MAP_PAGE_SHIFT + LEAF_BITS)], memory_order_acquire);
    return leaf ? &leaf[(address >> MAP_PAGE_SHIFT) & (LEAF_ENTRIES - 1)] : NULL;
}

struct span *map_get(uintptr_t address)
{
    entry *place = entry_at(address);
    return place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
}

void map_set(uintptr_t address, struct span *span)
{
    atomic_store_explicit(entry_at(address), span, memory_order_release);
}
