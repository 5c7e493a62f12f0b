/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page map: leads from an address to the block or slab that contains it, for all devices.
 *
 * A page is 64 KiB. Its entry is the slab that it lies in, or the span of the first block that
 * begins in it. Free memory has no entry. In virtual memory a block with its own span has at least
 * a page, except restored small blocks, so at most one begins in a page. In plain segments several
 * may: the others follow the first in its run. */
#ifndef TARN_MEMORY_MAP_H
#define TARN_MEMORY_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#define MAP_PAGE_SHIFT 16
#define MAP_PAGE ((size_t)1 << MAP_PAGE_SHIFT)
#define MAP_ADDRESS_BITS 48
#define MAP_LEAF_BITS 15
#define MAP_LEAF_ENTRIES ((size_t)1 << MAP_LEAF_BITS)
#define MAP_ROOT_ENTRIES ((size_t)1 << (MAP_ADDRESS_BITS - MAP_PAGE_SHIFT - MAP_LEAF_BITS))

struct span;
struct slab;

/* A pointer to a span, or to a slab with the lowest bit set; 0 is nothing. */
typedef uintptr_t map_entry;

static inline map_entry map_entry_of_span(const struct span *span)
{
    return (map_entry)span;
}

static inline map_entry map_entry_of_slab(const struct slab *slab)
{
    return (map_entry)slab | 1;
}

static inline bool map_is_slab(map_entry entry)
{
    return entry & 1;
}

/* The slab that an entry names, or NULL. */
static inline struct slab *map_slab(map_entry entry)
{
    return map_is_slab(entry) ? (struct slab *)(entry - 1) : NULL;
}

/* The span that an entry names, or NULL. */
static inline struct span *map_span(map_entry entry)
{
    return entry & 3 ? NULL : (struct span *)entry;
}

extern _Atomic(_Atomic(map_entry) *) map_root[MAP_ROOT_ENTRIES];

/* The entry of a page that several plain segments share. The table of segments (segment.h) finds
 * the block. */
#define MAP_SHARED ((map_entry)2)

/* The entry of an address's page; 0 if none was prepared. Two loads, no lock. */
static inline map_entry map_get(uintptr_t address)
{
    if (address >> MAP_ADDRESS_BITS)
        return 0;
    _Atomic(map_entry) *leaf = atomic_load_explicit(
        &map_root[address >> (MAP_PAGE_SHIFT + MAP_LEAF_BITS)], memory_order_acquire);
    return leaf ? atomic_load_explicit(&leaf[(address >> MAP_PAGE_SHIFT) & (MAP_LEAF_ENTRIES - 1)],
                                       memory_order_acquire)
                : 0;
}

/* Makes room for entries of a range. May fail; afterwards map_set() in it cannot. */
tarn_status map_prepare(uintptr_t start, size_t size);
static inline void map_set(uintptr_t address, map_entry entry)
{
    _Atomic(map_entry) *leaf = atomic_load_explicit(
        &map_root[address >> (MAP_PAGE_SHIFT + MAP_LEAF_BITS)], memory_order_acquire);
    atomic_store_explicit(&leaf[(address >> MAP_PAGE_SHIFT) & (MAP_LEAF_ENTRIES - 1)], entry,
                          memory_order_release);
}
/* The last page of a range that has an entry; 0: none has. Both ends are multiples of a page. Takes
 * 6 us for each GiB without entries, and none for 2 GiB that never had memory. */
uintptr_t map_last(uintptr_t start, uintptr_t end);
/* Bytes of all leaves. */
uint64_t map_bytes(void);
/* Sets an entry if it is still `*before`; otherwise returns false and sets `*before` to the present
 * entry. */
bool map_replace(uintptr_t address, map_entry *before, map_entry entry);

#endif
