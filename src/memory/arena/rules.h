/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The sizes of plain segments and when they are split: PyTorch's rules and numbers
 * (c10/cuda/CUDACachingAllocator.cpp). Only arithmetic: no state, no lock. */
#ifndef TARN_MEMORY_RULES_H
#define TARN_MEMORY_RULES_H

#include "memory/settings/config.h"

#include <tarn/pool.h>

#define RULES_NONE CONFIG_NONE /* bytes: no such limit */
/* Bytes: a large block is cut off if more than this is left. */
#define RULES_LARGE_REST ((size_t)1 << 20)

struct segment_rules {
    size_t small_segment; /* bytes: for a request of up to 1 MiB */
    size_t large_segment; /* bytes: for a larger request below `own_segment` */
    /* Bytes: from this size on a request has a segment of its own size, rounded up to a multiple of
     * `rounding` bytes. */
    size_t own_segment;
    size_t rounding;
    /* Bytes: a span of this size or more is *oversize*: not cut, and not used for a smaller
     * request; RULES_NONE: none is. */
    size_t max_split;
    /* Bytes: an oversize request may use a span less than this much larger. */
    size_t max_non_split_rounding;
    /* Bytes: the largest block from a slab; up to here, slots have exactly the rounded size. */
    size_t slab_most;
};

/* The rules of the settings, with the sizes that a pool has of its own. */
struct segment_rules rules_of(const struct memory_config *config, const tarn_segment_sizes *own);

/* The bytes of the segment to get for a block of `size`; a multiple of TARN_BLOCK_UNIT. */
size_t rules_segment(const struct segment_rules *rules, size_t size);

/* Whether a free span of `found` bytes may serve a block of `size`. The caller asks only for the
 * smallest span that is large enough. */
bool rules_may_serve(const struct segment_rules *rules, size_t size, size_t found);

/* Whether the `rest` bytes behind a block of `size` are cut off. `large`: the segment is one of
 * large blocks. */
bool rules_cut(const struct segment_rules *rules, bool large, size_t size, size_t rest);

#endif
