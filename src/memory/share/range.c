/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public call that returns the mapping under a block. Owns nothing. */
#include "base/status.h"
#include "memory/arena/generation.h"
#include "memory/growth/registrable.h"
#include "memory/growth/segment.h"
#include "memory/pool/pool.h"
#include "memory/share/pointer.h"

#include <tarn/observe.h>

static tarn_status note_range(struct store *store, const tarn_block_info *block, void *argument)
{
    const struct arena *arena = store->arena;
    tarn_mapping *range = argument; /* its address is the pointer that the caller asked about */
    tarn_status status = store_check(store);
    (void)block;
    if (status)
        return status;
    if (!store->kind.pieces) {
        *range = segment_range((uintptr_t)range->address);
        return TARN_OK;
    }
    const struct piece *piece = arena_piece(arena, (uintptr_t)range->address);
    *range = (tarn_mapping){
        .address = (void *)piece->address,
        .bytes = piece->size,
        .generation = generation_at(arena, piece->address),
        .device = arena->device->number,
    };
    return TARN_OK;
}

tarn_status tarn_mapping_get(const void *pointer, tarn_mapping *mapping)
{
    if (!mapping)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "mapping is NULL");
    tarn_mapping found = {.address = (void *)(uintptr_t)pointer};
    tarn_status status = pointer_do(pointer, note_range, &found);
    if (!status)
        *mapping = found;
    return status;
}

tarn_status tarn_pool_segments_get(tarn_pool *public, tarn_mapping *segments, size_t room,
                                   size_t *count)
{
    tarn_status status = pool_check_any(public);
    if (status)
        return status;
    if (!count || (room && !segments))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the place for the result is NULL");
    struct store *store = store_of_public(public);
    if (store->kind.exports != EXPORTS_POOL)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the pool is not registrable, so it has no segments to list");
    status = store_check(store);
    if (status)
        return status;
    uintptr_t start = 0;
    uint64_t serial = 0;
    size_t found = 0, size = 0;
    for (; registrable_next(store, &serial, &start, &size); found++)
        if (found < room)
            segments[found] = (tarn_mapping){.address = (void *)start,
                                             .bytes = size,
                                             .generation = generation_at(store->arena, start),
                                             .device = store->arena->device->number};
    *count = found;
    return TARN_OK;
}
