/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The kinds of stores, and one table of what tarn does with the memory of each. Code asks the table
 * for a property, not for the kind. Only code that creates a store names a kind. */
#ifndef TARN_MEMORY_KIND_H
#define TARN_MEMORY_KIND_H

#include <stdbool.h>

enum store_kind {
    KIND_VIRTUAL, /* pieces, mapped where the arena has addresses */
    /* As KIND_VIRTUAL, but each run is one piece that one registration covers (registrable.h). */
    KIND_REGISTRABLE,
    KIND_PLAIN, /* segments from the driver or from a caller's allocator (segment.h) */
    /* Segments from the driver, each for one block (tarn_caching_set(false)). Only the arena's
     * store `uncached` has this kind or the next one. */
    KIND_UNCACHED,
    /* Segments from the driver's own stream-ordered pool (backend:cudaMallocAsync). */
    KIND_DRIVERS,
    STORE_KINDS
};

/* Flags of one store. The store's kind says which flags are allowed. */
enum store_flag {
    STORE_OF_POOL = 1, /* the store is the first member of a private pool (pool.h) */
    /* Memory that is free in stream order may be mapped at a second address: the device has
     * `alias`, and the pool is not `no_remap`. */
    STORE_REMAPS = 2,
    STORE_NO_SPLIT = 4, /* a segment serves one block only */
    STORE_NO_SLABS = 8, /* small blocks have their own spans too */
    STORE_KEPT = 16,    /* the memory outlives the process; the allocator is tarn's (keep.h) */
    /* `use_on_oom`: its free memory serves requests of the default pool that would fail. */
    STORE_HELPS = 32,
};

/* What of a store another process can open. Each value includes those before it. */
enum store_exports { EXPORTS_NOTHING, EXPORTS_BLOCKS, EXPORTS_POOL };

struct store_traits {
    const char *name;
    unsigned may; /* STORE_*: the flags that a store of this kind may have */

    /* The memory is pieces in the arena's addresses; otherwise segments at addresses that the
     * driver or allocator chooses. */
    bool pieces;
    /* A run is one piece or segment: it is never joined, and comes and goes as a whole. */
    bool whole;
    bool has_rules; /* the store may have segment sizes and an allocator of its own */
    /* Free memory serves later requests; otherwise it goes back to the driver as soon as
     * possible. */
    bool reuses;
    bool slabs; /* small blocks are slots of slabs, unless STORE_NO_SLABS is set */
    /* Freed blocks are parked as they are for the next request of their size (parked.h). */
    bool parks;
    /* The driver frees a segment in order, after the work of the stream it was allocated for. */
    bool ordered;
    /* Where a block is placed depends only on the store's requests, so that it is the same on
     * every rank. So idle memory does not go back by itself; that of other stores with pieces
     * does (store_idle_release()). */
    bool fixed;

    bool plans;    /* its heaps may follow a plan (plan.h) */
    bool compacts; /* pieces with live blocks may be exchanged for smaller ones (compact.h) */
    /* The memory may leave while the addresses stay (suspend.c). That of STORE_KEPT may too, and
     * that of a default pool never. */
    bool suspends;
    enum store_exports exports;
};

/* Constant; by `enum store_kind`. */
extern const struct store_traits store_kinds[STORE_KINDS];

#endif
