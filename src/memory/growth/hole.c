/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Maps memory in the holes of a heap's reservation (following.h). Owns no data. No memory moves or
 * is borrowed for it: what is missing is created. Calls the driver with no lock held except
 * `moving`, which the caller shares. */
#include "base/status.h"
#include "memory/growth/ghost.h"
#include "memory/growth/growth.h"
#include "memory/heap/following.h"

/* Takes the hole, and unmapped pieces for it. TARN_ERROR_OUT_OF_MEMORY, without a text, if it is no
 * hole any more. */
static tarn_status hole_take_locked(struct heap *heap, uintptr_t start, size_t size,
                                    struct piece_list *pieces)
{
    struct arena *arena = heap->arena;
    uintptr_t hole = 0;
    heap_learn_locked(heap, true);
    if (!heap->following || reservation_hole(&heap->following->reservation, arena->granule, start,
                                             start + size, &hole) != size)
        return TARN_ERROR_OUT_OF_MEMORY;
    reservation_take_hole(&heap->following->reservation, arena->granule, start, size);
    heap->growths.saves =
        true; /* memory outside the reservation keeps no more in place than it must */
    mutex_lock(&arena->lock);
    pieces_from_unmapped_locked(heap->store, size, size, pieces);
    mutex_unlock(&arena->lock);
    return TARN_OK;
}

/* Creates what is missing in `pieces`, and maps them into the hole. On failure the pieces are
 * unmapped and stay with their store, and the addresses are a hole again. */
static tarn_status hole_map(struct heap *heap, uintptr_t start, size_t size, size_t largest,
                            struct piece_list *pieces)
{
    struct arena *arena = heap->arena;
    struct piece_list created = {0};
    size_t left = 0;
    tarn_status status = map_prepare(start, size);
    if (!status)
        status = device_check(arena->device);
    if (!status && pieces->bytes < size)
        status = pieces_create(heap->store, size - pieces->bytes, largest, CHARGE_GROWTH, &created);
    pieces_append(pieces, &created);
    if (!status)
        status = pieces_map(arena, pieces, start, 0, &left);
    else
        pieces_to_unmapped(arena, pieces);
    if (status)
        heap_unclaim(heap, start + left, size - left);
    return status;
}

tarn_status heap_grow_hole(struct heap *heap, uintptr_t start, size_t size, size_t largest)
{
    struct span *span = span_create();
    struct run *run = run_create();
    struct piece_list pieces = {0};
    tarn_status status = span && run ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status) {
        mutex_lock(&heap->lock);
        status = hole_take_locked(heap, start, size, &pieces);
        struct ghost *ghosts = ghosts_take_locked(heap);
        mutex_unlock(&heap->lock);
        (void)ghosts_end(heap, ghosts);
    }
    if (!status)
        status = hole_map(heap, start, size, largest, &pieces);
    if (status) {
        span_destroy(span);
        run_destroy(run);
        return status;
    }
    mutex_lock(&heap->lock);
    growth_count_locked(heap, size, 0, 0);
    heap_rest_grown_locked(heap, start, size);
    span_return_locked(heap,
                       heap_add_locked(heap, ZONE_LARGE, NULL, run, span, start, start + size));
    mutex_unlock(&heap->lock);
    return TARN_OK;
}
