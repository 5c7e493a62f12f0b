/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a heap has while it follows a plan: a reservation of addresses, and an order of its free
 * spans by address. The plan room decides which request goes where (plan.h).
 *
 *   reservation   |  run  |  hole  |      run      |  ghost  |   hole   |
 *
 * A reservation is a range of addresses that is claimed for one heap. A part of it without memory
 * is a *hole*: it belongs to no run, and only this heap maps pieces there. When memory leaves the
 * reservation, it leaves a hole. */
#ifndef TARN_MEMORY_FOLLOWING_H
#define TARN_MEMORY_FOLLOWING_H

#include "memory/heap/span.h"

struct reservation {
    uintptr_t start;
    size_t size;     /* bytes, whole granules */
    uint64_t *holes; /* one bit per granule: it is a hole */
};

/* The first member of plan.c's follower, which creates and destroys it. `heap->following` points to
 * it only in between. Under the heap's lock. */
struct following {
    struct reservation reservation;
    struct tree free; /* the heap's free spans of the large zone, by address */
};

/* Claims a range; all of it is one hole. TARN_ERROR_OUT_OF_MEMORY if no such range is free. */
tarn_status reservation_begin(struct reservation *reservation, struct arena *arena, size_t size);
/* Unclaims the holes of a reservation. What is mapped in it stays. The caller may hold the lock of
 * one of the arena's heaps. */
void reservation_end(struct reservation *reservation, struct arena *arena);

/* Finds the first hole in [from, end). Returns its bytes in that range and sets `start`; 0 if there
 * is none. */
size_t reservation_hole(const struct reservation *reservation, size_t granule, uintptr_t from,
                        uintptr_t end, uintptr_t *start);
/* Marks a hole, or a part of it, as memory. */
void reservation_take_hole(struct reservation *reservation, size_t granule, uintptr_t start,
                           size_t size);
size_t reservation_hole_bytes(const struct reservation *reservation, size_t granule);

/* Makes the heap follow a plan: enters its free spans. To end it, set `heap->following` to NULL. */
void following_begin_locked(struct heap *heap, struct following *following);

/* Called when a span becomes free, and when it is free no longer. */
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

/* The first free span of the large zone whose end is above an address; NULL if there is none. */
struct span *span_ending_behind_locked(const struct following *following, uintptr_t address);

#endif
