/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a device's memory consists of, by pool and by heap, for code that shows it. Each is read
 * under its own lock, so the parts of one reading may be from slightly different moments.
 * Allocates, moves and waits for nothing, and does not call the driver. */
#ifndef TARN_MEMORY_OCCUPANCY_H
#define TARN_MEMORY_OCCUPANCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/* A device's default pool, whose id is (0, 0), or a private one. Sizes in bytes. */
struct pool_occupancy {
    uint64_t id[2];
    size_t reserved, limit; /* SIZE_MAX: no limit */
    size_t unmapped;        /* part of `reserved`: pieces that are mapped nowhere */
    int64_t requested, allocated, active;
    bool plain;
    bool suspended, held; /* held: a graph or an open capture uses its addresses */
    bool of_graphs;       /* held, and no caller has it: it ends with the graphs */
    bool left_behind;     /* nothing can be allocated from it any more */
};

/* What a stream has in a pool. Sizes in bytes. */
struct heap_occupancy {
    uint64_t pool[2];
    unsigned slot, incarnation; /* of the stream */
    /* Memory of the default pool that is not cached (tarn_caching_set()). */
    bool uncached;
    bool retired; /* the stream was retired, or its pool left behind */
    /* The vendor's stream; 0 for the legacy stream and for a retired one. */
    uintptr_t native;
    size_t mapped;       /* mapped memory */
    size_t free;         /* part of `mapped`: free spans */
    size_t largest_free; /* the longest such span */
    size_t waiting;      /* freed, but still used by other streams */
};

/* Writes up to `room` of a device's pools, the default pool first. Returns their number, which may
 * be larger. */
size_t occupancy_pools(struct arena *arena, struct pool_occupancy *views, size_t room);

/* The same for heaps, without empty ones whose stream was retired. */
size_t occupancy_heaps(struct arena *arena, struct heap_occupancy *views, size_t room);

/* Bytes that a device may reserve; SIZE_MAX: no limit. */
size_t occupancy_limit(struct arena *arena);

#endif
