/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A site: a range of addresses that is set aside for one heap.
 *
 *   site   |  run  |  hole  |      run      |  ghost  |   hole   |
 *
 * What of it has no memory is a *hole*: claimed, in no run, and for nobody but the heap to map pieces in. Memory that leaves the site, to be
 * mapped elsewhere or to be given back, leaves a hole. */
#ifndef TARN_MEMORY_SITE_H
#define TARN_MEMORY_SITE_H

#include "memory/arena/arena.h"

struct heap;

struct site {
    uintptr_t start;
    size_t size;     /* bytes, whole granules; 0: the heap has no site */
    uint64_t *holes; /* by granule: whether it is a hole */
};

/* Claims a range that is all holes. TARN_ERROR_OUT_OF_MEMORY where no such range is free. */
tarn_status site_begin(struct site *site, struct arena *arena, size_t size);
/* Ends a site: its holes are unclaimed. What is mapped in it stays where it is. An arena's heap lock may be held. */
void site_end(struct site *site, struct arena *arena);

/* The first hole in [from, end): its bytes there, from `start` on; 0 where there is none. */
size_t site_hole(const struct site *site, size_t granule, uintptr_t from, uintptr_t end, uintptr_t *start);
/* Takes a hole, or a part of it, to map pieces there. */
void site_take_hole(struct site *site, size_t granule, uintptr_t start, size_t size);
size_t site_hole_bytes(const struct site *site, size_t granule);

/* Addresses of a heap that have no memory any more: holes of its site where they are in it, otherwise unclaimed. */
void heap_unclaim(struct heap *heap, uintptr_t start, size_t size);
void heap_unclaim_locked(struct heap *heap, uintptr_t start, size_t size);

#endif
