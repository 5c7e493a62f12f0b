/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes and lists the segments of registrable pools. Owns no data. Calls the driver with no lock
 * held except `moving`, which the caller shares, and the arena's `mapping`. What it decides depends
 * on the pool's own requests alone: not on addresses, on what else the device has, or on which work
 * has ended. */
#include "memory/growth/registrable.h"
#include "base/status.h"

#include <stdlib.h>

#define LEAST_SEGMENT ((size_t)32 << 20) /* bytes: large, so that there are few to register */

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* The bytes of a segment for a request. A pool whose own limit, which is the same on all ranks, has
 * no room for one of the usual size has smaller ones. */
static size_t segment_size(struct store *store, size_t size, size_t alignment)
{
    struct arena *arena = store->arena;
    size_t unit = arena->device->properties.recommended;
    size_t needed = round_up(alignment > unit ? size + alignment : size, unit);
    mutex_lock(&arena->lock);
    size_t room = store->limit > store->reserved ? store->limit - store->reserved : 0;
    mutex_unlock(&arena->lock);
    size_t usual = round_up(LEAST_SEGMENT, unit);
    return needed < usual && usual <= room ? usual : needed;
}

/* A piece of exactly this size out of the unmapped ones, or NULL. */
static struct piece *unmapped_take(struct store *store, size_t size)
{
    struct arena *arena = store->arena;
    mutex_lock(&arena->lock);
    struct piece **place = &store->unmapped.first, *piece;
    while (*place && (*place)->size != size)
        place = &(*place)->next;
    piece = *place;
    if (piece) {
        *place = piece->next;
        store->unmapped.bytes -= size;
        store_changed_locked(store);
        piece->next = NULL;
    }
    mutex_unlock(&arena->lock);
    return piece;
}

/* Claims addresses at a multiple of what the driver recommends; 0 where there are none. */
static uintptr_t claim(struct arena *arena, size_t size)
{
    size_t unit = arena->device->properties.recommended;
    mutex_lock(&arena->lock);
    uintptr_t start = arena_find_locked(arena, size + unit - arena->granule);
    if (start) {
        start = round_up(start, unit);
        arena_claim_locked(arena, start, size);
    }
    mutex_unlock(&arena->lock);
    return start;
}

/* Maps the piece at new addresses. On failure it is unmapped, with its store. */
static tarn_status segment_map(struct arena *arena, struct piece *piece, uintptr_t *start)
{
    struct piece_list list = {0};
    size_t size = piece->size, left = 0;
    pieces_push(&list, piece);
    *start = claim(arena, size);
    if (!*start) {
        pieces_to_unmapped(arena, &list);
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "no address range of %zu bytes is free on device %d", size,
                      arena->device->number);
    }
    tarn_status status = map_prepare(*start, size);
    if (!status)
        status = pieces_map(arena, &list, *start, 0, &left);
    else
        pieces_to_unmapped(arena, &list);
    if (status)
        arena_unclaim(arena, *start + left, size - left);
    return status;
}

static uint64_t serial_next(struct store *store)
{
    mutex_lock(&store->arena->lock);
    uint64_t serial = ++store->segments;
    mutex_unlock(&store->arena->lock);
    return serial;
}

tarn_status registrable_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             struct span **span)
{
    struct store *store = heap->store;
    size_t bytes = segment_size(store, size, alignment);
    struct span *fresh = span_create();
    struct run *run = run_create();
    struct piece *piece = NULL;
    uintptr_t start = 0;
    tarn_status status = fresh && run ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status) {
        piece = unmapped_take(store, bytes);
        if (!piece)
            status = piece_create(store, bytes, CHARGE_GROWTH, &piece);
    }
    if (!status)
        status = segment_map(heap->arena, piece, &start);
    if (status) {
        span_destroy(fresh);
        run_destroy(run);
        return status;
    }
    run->serial = serial_next(store);
    mutex_lock(&heap->lock);
    span_return_locked(heap, heap_add_locked(heap, zone, NULL, run, fresh, start, start + bytes));
    status = span_take_locked(heap, zone, size, alignment, span);
    mutex_unlock(&heap->lock);
    return status;
}

/* ---- The list ---- */

static int by_serial(const void *a, const void *b)
{
    const struct registrable_segment *x = a, *y = b;
    return (x->serial > y->serial) - (x->serial < y->serial);
}

static size_t list_heap_locked(const struct heap *heap, struct registrable_segment *list,
                               size_t room)
{
    size_t count = 0;
    bool is_plain = !heap->store->kind.pieces;
    for (int zone = 0; zone < ZONES; zone++)
        for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next, count++)
            if (count < room)
                list[count] = (struct registrable_segment){is_plain ? run->generation : run->serial,
                                                           run->start, run->end - run->start};
    return count;
}

size_t registrable_list(struct store *store, struct registrable_segment *list, size_t room)
{
    size_t count = 0;
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        size_t listed = count < room ? count : room;
        mutex_lock(&heap->lock);
        if (heap->store == store)
            count += list_heap_locked(heap, list ? list + listed : NULL, room - listed);
        mutex_unlock(&heap->lock);
    }
    if (list)
        qsort(list, count < room ? count : room, sizeof *list, by_serial);
    return count;
}
