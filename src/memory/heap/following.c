/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns which granules of a reservation are holes, and the address order of the free spans of a heap
 * that follows a plan. Under the heap's lock. Makes no driver call. */
#include "memory/heap/following.h"
#include "base/bits.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/heap.h"

#define SPAN_BY_START(node) TREE_ENTRY(node, struct span, by_start)

tarn_status reservation_begin(struct reservation *reservation, struct arena *arena, size_t size)
{
    size_t count = size / arena->granule;
    uint64_t *holes = pages_alloc(bits_bytes(count));
    if (!holes)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the holes of %zu bytes",
                      size);
    mutex_lock(&arena->lock);
    uintptr_t start = arena_find_locked(arena, size);
    if (start)
        arena_claim_locked(arena, start, size);
    mutex_unlock(&arena->lock);
    if (!start) {
        pages_free(holes, bits_bytes(count));
        return failed(TARN_ERROR_OUT_OF_MEMORY, "no %zu bytes of addresses in a row are left",
                      size);
    }
    bits_mark(holes, 0, count, true);
    *reservation = (struct reservation){start, size, holes};
    return TARN_OK;
}

size_t reservation_hole(const struct reservation *reservation, size_t granule, uintptr_t from,
                        uintptr_t end, uintptr_t *start)
{
    if (from < reservation->start)
        from = reservation->start;
    if (end > reservation->start + reservation->size)
        end = reservation->start + reservation->size;
    if (from >= end)
        return 0;
    size_t count = (end - reservation->start + granule - 1) / granule,
           at = (from - reservation->start) / granule;
    size_t first = bits_next(reservation->holes, count, at, true),
           behind = bits_next(reservation->holes, count, first, false);
    if (first == count)
        return 0;
    *start = reservation->start + first * granule;
    return (behind - first) * granule;
}

static void mark(struct reservation *reservation, size_t granule, uintptr_t start, size_t size,
                 bool hole)
{
    size_t first = (start - reservation->start) / granule;
    bits_mark(reservation->holes, first, first + size / granule, hole);
}

void reservation_take_hole(struct reservation *reservation, size_t granule, uintptr_t start,
                           size_t size)
{
    mark(reservation, granule, start, size, false);
}

size_t reservation_hole_bytes(const struct reservation *reservation, size_t granule)
{
    size_t bytes = 0, size;
    uintptr_t end = reservation->start + reservation->size, start = 0;
    for (uintptr_t from = reservation->start;
         (size = reservation_hole(reservation, granule, from, end, &start)); from = start + size)
        bytes += size;
    return bytes;
}

void reservation_end(struct reservation *reservation, struct arena *arena)
{
    uintptr_t end = reservation->start + reservation->size, start = 0;
    size_t size;
    for (uintptr_t from = reservation->start;
         (size = reservation_hole(reservation, arena->granule, from, end, &start));
         from = start + size)
        arena_unclaim(arena, start, size);
    pages_free(reservation->holes, bits_bytes(reservation->size / arena->granule));
    *reservation = (struct reservation){0};
}

static int by_start(const struct tree_node *a, const struct tree_node *b)
{
    const struct span *x = SPAN_BY_START(a), *y = SPAN_BY_START(b);
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool is_ending_behind(const struct tree_node *node, uint64_t address)
{
    return SPAN_BY_START(node)->start + SPAN_BY_START(node)->size > address;
}

void following_begin_locked(struct heap *heap, struct following *following)
{
    struct tree_node *node = tree_first(&heap->zones.of[ZONE_LARGE].free);
    following->free = (struct tree){.order = by_start};
    for (; node; node = tree_next(node))
        tree_insert(&following->free, &TREE_ENTRY(node, struct span, by_size)->by_start);
    heap->following = following;
}

struct span *span_ending_behind_locked(const struct following *following, uintptr_t address)
{
    struct tree_node *node = tree_find_first(&following->free, is_ending_behind, address);
    return node ? SPAN_BY_START(node) : NULL;
}

void heap_unclaim_locked(struct heap *heap, uintptr_t start, size_t size)
{
    struct reservation *reservation = heap->following ? &heap->following->reservation : NULL;
    uintptr_t end = start + size, from = start, to = start;
    if (reservation) {
        from = start > reservation->start ? start : reservation->start;
        to = end < reservation->start + reservation->size ? end
                                                          : reservation->start + reservation->size;
    }
    if (from >= to) {
        arena_unclaim(heap->arena, start, size);
        return;
    }
    mark(reservation, heap->arena->granule, from, to - from, true);
    if (start < from)
        arena_unclaim(heap->arena, start, from - start);
    if (to < end)
        arena_unclaim(heap->arena, to, end - to);
}

void heap_unclaim(struct heap *heap, uintptr_t start, size_t size)
{
    mutex_lock(&heap->lock);
    heap_unclaim_locked(heap, start, size);
    mutex_unlock(&heap->lock);
}
