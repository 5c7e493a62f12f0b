/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a heap has while it follows a plan: its site, and its free spans by address. The plan room
 * says which request goes where (plan.h).
 *
 *   site   |  run  |  hole  |      run      |  ghost  |   hole   |
 *
 * A site is a range of addresses that is set aside for one heap. What of it has no memory is a
 * *hole*: claimed, in no run, and for nobody but the heap to map pieces in. Memory that leaves the
 * site, to be mapped elsewhere or to be given back, leaves a hole. */
#ifndef TARN_MEMORY_FOLLOWING_H
#define TARN_MEMORY_FOLLOWING_H

#include "memory/heap/span.h"

struct site {
    uintptr_t start;
    size_t size;     /* bytes, whole granules */
    uint64_t *holes; /* by granule: whether it is a hole */
};

/* The first member of plan.c's follower, which makes and destroys it. `heap->following` is NULL
 * before and after. The heap's lock. */
struct following {
    struct site site;
    struct tree free; /* the heap's free spans of the large zone, by address */
};

/* Claims a range that is all holes. TARN_ERROR_OUT_OF_MEMORY where no such range is free. */
tarn_status site_begin(struct site *site, struct arena *arena, size_t size);
/* Ends a site: its holes are unclaimed. What is mapped in it stays where it is. An arena's heap
 * lock may be held. */
void site_end(struct site *site, struct arena *arena);

/* The first hole in [from, end): its bytes there, from `start` on; 0 where there is none. */
size_t site_hole(const struct site *site, size_t granule, uintptr_t from, uintptr_t end,
                 uintptr_t *start);
/* Takes a hole, or a part of it, to map pieces there. */
void site_take_hole(struct site *site, size_t granule, uintptr_t start, size_t size);
size_t site_hole_bytes(const struct site *site, size_t granule);

/* The heap begins to follow a plan: its free spans are entered. It ends with `heap->following` set
 * to NULL. */
void following_begin_locked(struct heap *heap, struct following *following);

/* A span has become free, or is free no longer. */
static inline void following_file_locked(struct following *following, struct span *span)
{
    if (span->zone == ZONE_LARGE)
        tree_insert(&following->free, &span->by_start);
}

static inline void following_hold_locked(struct following *following, struct span *span)
{
    if (span->zone == ZONE_LARGE)
        tree_remove(&following->free, &span->by_start);
}

/* The first free span of the large zone that ends behind an address; NULL if there is none. */
struct span *span_ending_behind_locked(const struct following *following, uintptr_t address);

#endif
