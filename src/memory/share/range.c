/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public call that returns the mapping under a block. Owns nothing. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/arena/generation.h"
#include "memory/growth/registrable.h"
#include "memory/growth/segment.h"
#include "memory/pool/pool.h"
#include "memory/settings/hooks.h"
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

/* True if the store has segments that others may register: in registrable pools, and in kept pools,
 * whose segments keep their addresses. */
static bool has_segments(const struct store *store)
{
    return store->kind.exports == EXPORTS_POOL || store_has(store, STORE_KEPT);
}

static tarn_mapping mapping_of(const struct store *store, const struct registrable_segment *segment)
{
    bool is_plain = !store->kind.pieces; /* then the number is that of the mapping */
    return (tarn_mapping){.address = (void *)segment->start,
                          .bytes = segment->size,
                          .generation = is_plain ? segment->serial
                                                 : generation_at(store->arena, segment->start),
                          .device = store->arena->device->number};
}

/* Takes out those that a kept pool has taken over, and returns how many are left. A library that
 * registers a segment exports it. */
static size_t without_taken_over(const struct store *store, struct registrable_segment *list,
                                 size_t count)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (!hooks.keep_took_over(store, list[i].start))
            list[left++] = list[i];
    return left;
}

/* The segments of a store, in a list of its own, which the caller frees. `*room` receives how many
 * have room in it. */
static tarn_status segments_list(struct store *store, struct registrable_segment **list,
                                 size_t *room, size_t *count)
{
    *count = registrable_list(store, NULL, 0);
    do {
        *room = *count + 16; /* other threads may make some meanwhile */
        *list = pages_alloc(*room * sizeof **list);
        if (!*list)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to list %zu segments",
                          *count);
        *count = registrable_list(store, *list, *room);
        if (*count > *room)
            pages_free(*list, *room * sizeof **list);
    } while (*count > *room);
    if (store_has(store, STORE_KEPT))
        *count = without_taken_over(store, *list, *count);
    return TARN_OK;
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
    if (!has_segments(store))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the pool is neither registrable nor kept, so it has no segments to list");
    status = store_check(store);
    if (status)
        return status;
    struct registrable_segment *list = NULL;
    size_t listed = 0, found = 0;
    status = segments_list(store, &list, &listed, &found);
    if (status)
        return status;
    for (size_t i = 0; i < found && i < room; i++)
        segments[i] = mapping_of(store, &list[i]);
    pages_free(list, listed * sizeof *list);
    *count = found;
    return TARN_OK;
}
