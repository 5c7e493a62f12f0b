/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What there is of a device's memory, pool by pool and heap by heap, for code that shows it. Each
 * is read under its own lock and none is held from one to the next, so the parts of one reading may
 * be of slightly different moments. Nothing is allocated, moved or waited for, and the driver is
 * not called. */
#ifndef TARN_MEMORY_OCCUPANCY_H
#define TARN_MEMORY_OCCUPANCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/* The device's default pool, of id (0, 0), or a private one. Bytes. */
struct pool_occupancy {
    uint64_t id[2];
    size_t reserved, limit; /* SIZE_MAX: no limit */
    size_t unmapped;        /* of reserved: pieces that are mapped nowhere */
    int64_t requested, allocated, active;
    bool plain;
    bool suspended, held; /* held: by a graph or an open capture */
    bool left_behind;     /* nobody can allocate from it any more */
};

/* What a stream has in a pool. Bytes. */
struct heap_occupancy {
    uint64_t pool[2];
    unsigned slot, incarnation; /* of the stream */
    bool uncached;              /* of the default pool's memory that is not cached:
                                   tarn_caching_set() */
    bool retired;               /* the stream is gone, or its pool left behind */
    uintptr_t native;           /* the vendor's; 0 for the legacy stream, and where retired */
    size_t mapped;              /* memory in its address space */
    size_t free;                /* of these, in spans that nobody has */
    size_t largest_free;        /* the longest such span */
    size_t waiting;             /* freed, and other work still uses it */
};

/* Gives as many as `room` of a device's pools, the default one first, and says how many there
 * are. */
size_t occupancy_pools(struct arena *arena, struct pool_occupancy *views, size_t room);

/* The same of its heaps, without those that are empty and of no stream any more. */
size_t occupancy_heaps(struct arena *arena, struct heap_occupancy *views, size_t room);

/* The most that a device may reserve; SIZE_MAX: no limit. */
size_t occupancy_limit(struct arena *arena);

#endif
