/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of kinds. What is not named in a row is false. */
#include "memory/arena/kind.h"
#include "memory/arena/arena.h"

const struct store_traits store_kinds[STORE_KINDS] = {
    [KIND_VIRTUAL] =
        {
            .name = "virtual",
            .may = STORE_OF_POOL | STORE_REMAPS | STORE_HELPS,
            .pieces = true,
            .reuses = true,
            .slabs = true,
            .parks = true,
            .plans = true,
            .compacts = true,
            .suspends = true,
            .exports = EXPORTS_BLOCKS,
        },
    [KIND_REGISTRABLE] =
        {
            .name = "registrable",
            .may = STORE_OF_POOL,
            .pieces = true,
            .whole = true,
            .reuses = true,
            .parks = true,
            .fixed = true,
            .suspends = true,
            .exports = EXPORTS_POOL,
        },
    [KIND_PLAIN] =
        {
            .name = "plain",
            .may = STORE_OF_POOL | STORE_NO_SPLIT | STORE_NO_SLABS | STORE_KEPT | STORE_HELPS,
            .whole = true,
            .has_rules = true,
            .reuses = true,
            .slabs = true,
        },
    [KIND_UNCACHED] = {.name = "uncached", .whole = true},
    [KIND_DRIVERS] = {.name = "driver's", .whole = true, .ordered = true},
};

const char *store_contradiction(const struct store *store)
{
    const tarn_segment_sizes *sizes = &store->sizes;
    const struct store_traits *kind = &store->kind;
    bool has_sizes = sizes->small_segment || sizes->large_segment || sizes->own_segment ||
                     sizes->rounding || sizes->max_split || sizes->max_non_split_rounding;
    if (store->flags & ~kind->may)
        return "a store has a flag that its kind does not allow";
    if (!kind->has_rules && (has_sizes || store->allocator.alloc))
        return "a store has segment sizes or an allocator, but its kind has no such segments";
    if (!kind->pieces && store->piece_flags)
        return "a store says how pieces are created, but its kind has none";
    return NULL;
}
