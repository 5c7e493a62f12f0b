/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a heap has while it follows a plan: its reservation, and its free spans by address. The plan
 * room says which request goes where (plan.h).
 *
 *   reservation   |  run  |  hole  |      run      |  ghost  |   hole   |
 *
 * A reservation is a range of addresses that is set aside for one heap. A part of it without memory
 * is a *hole*: it is claimed, belongs to no run, and only this heap maps pieces there. When memory
 * leaves the reservation, to be mapped elsewhere or to be given back, a hole is left. */
#ifndef TARN_MEMORY_FOLLOWING_H
#define TARN_MEMORY_FOLLOWING_H

#include "memory/heap/span.h"

struct reservation {
    uintptr_t start;
    size_t size;     /* bytes, whole granules */
    uint64_t *holes; /* by granule: whether it is a hole */
};

/* The first member of plan.c's follower, which makes and destroys it. `heap->following` is NULL
 * before and after. The heap's lock. */
struct following {
    struct reservation reservation;
    struct tree free; /* the heap's free spans of the large zone, by address */
};

/* Claims a range that is all holes. TARN_ERROR_OUT_OF_MEMORY where no such range is free. */
tarn_status reservation_begin(struct reservation *reservation, struct arena *arena, size_t size);
/* Ends a reservation: its holes are unclaimed. What is mapped in it stays where it is. The lock of
 * one of the arena's heaps may be held. */
void reservation_end(struct reservation *reservation, struct arena *arena);

/* The first hole in [from, end): its bytes there, from `start` on; 0 where there is none. */
size_t reservation_hole(const struct reservation *reservation, size_t granule, uintptr_t from,
                        uintptr_t end, uintptr_t *start);
/* Takes a hole, or a part of it, to map pieces there. */
void reservation_take_hole(struct reservation *reservation, size_t granule, uintptr_t start,
                           size_t size);
size_t reservation_hole_bytes(const struct reservation *reservation, size_t granule);

/* The heap begins to follow a plan: its free spans are entered. It ends with `heap->following` set
 * to NULL. */
void following_begin_locked(struct heap *heap, struct following *following);

/* A span has become free, or is free no longer. */
static inline void following_file_locked(struct following *following, struct span *span)
{
    if (span->zone == ZONE_LARGE)
        tree_insert(&following->free, &span->by_start);
}

static inline void following_remove_locked(struct following *following, struct span *span)
{
    if (span->zone == ZONE_LARGE)
        tree_remove(&following->free, &span->by_start);
}

/* The first free span of the large zone that ends behind an address; NULL if there is none. */
struct span *span_ending_behind_locked(const struct following *following, uintptr_t address);

#endif
