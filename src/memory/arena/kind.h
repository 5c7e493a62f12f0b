/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The kinds of stores, and one table of what tarn does with the memory of each kind. Code asks the
 * table what it needs to know, not which kind a store is. Only code that makes a store names a
 * kind. */
#ifndef TARN_MEMORY_KIND_H
#define TARN_MEMORY_KIND_H

#include <stdbool.h>

enum store_kind {
    KIND_VIRTUAL,     /* pieces, mapped where the arena has addresses */
    KIND_REGISTRABLE, /* the same, but each run is one piece, so that one registration covers it
                         (registrable.h) */
    KIND_PLAIN,       /* segments from the driver or from a caller's allocator (segment.h) */
    KIND_UNCACHED,    /* the same from the driver, each for one block: tarn_caching_set(false) */
    KIND_DRIVERS,     /* the same from the driver's own stream-ordered pool:
                         backend:cudaMallocAsync */
    STORE_KINDS
};

/* Properties of one store, of which its kind says only whether the store may have them. */
enum store_flag {
    STORE_OF_POOL = 1,  /* the store is the first member of a private pool (pool.h) */
    STORE_REMAPS = 2,   /* memory that is free in stream order may be mapped at a second address */
    STORE_NO_SPLIT = 4, /* a segment serves one block */
    STORE_NO_SLABS = 8, /* small blocks have spans, too */
};

/* What of a store others can open in their process; each includes those before it. */
enum store_exports { EXPORTS_NOTHING, EXPORTS_BLOCKS, EXPORTS_POOL };

struct store_traits {
    const char *name;
    unsigned may; /* STORE_*: the flags that a store of this kind may have */

    bool pieces; /* the memory is pieces in the arena's addresses; otherwise segments, at addresses
                    that their giver chooses */
    bool whole;  /* a run is one piece or segment: nothing joins it, and it comes and goes as a
                    whole */
    bool has_rules; /* the store may have segment sizes and an allocator of its own */
    bool reuses;    /* free memory serves later requests; otherwise it goes back to the driver as
                       soon as it may */
    bool slabs;     /* small blocks are slots of slabs, unless STORE_NO_SLABS is set */
    bool keeps;     /* freed blocks are kept as they are for the next request of their size
                       (kept.h) */
    bool ordered;   /* the driver frees a segment after the work of the stream that it was allocated
                       for */
    bool fixed;     /* where a block lies depends on the store's requests alone, so that it is the
                       same on every rank */

    bool plans;    /* its heaps may follow a plan (plan.h) */
    bool compacts; /* pieces with live blocks may be exchanged for smaller ones (compact.h) */
    bool suspends; /* the memory may leave while the addresses stay (suspend.c) */
    enum store_exports exports;
};

/* Constant; by `enum store_kind`. */
extern const struct store_traits store_kinds[STORE_KINDS];

#endif
