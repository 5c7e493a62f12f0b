/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns which granules of a site are holes, and the order of a following heap's free spans by
 * address, under the heap's lock. Makes no driver call. */
#include "memory/heap/following.h"
#include "base/bits.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/heap.h"

#define SPAN_BY_START(node) TREE_ENTRY(node, struct span, by_start)

tarn_status site_begin(struct site *site, struct arena *arena, size_t size)
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
    *site = (struct site){start, size, holes};
    return TARN_OK;
}

size_t site_hole(const struct site *site, size_t granule, uintptr_t from, uintptr_t end,
                 uintptr_t *start)
{
    if (from < site->start)
        from = site->start;
    if (end > site->start + site->size)
        end = site->start + site->size;
    if (from >= end)
        return 0;
    size_t count = (end - site->start + granule - 1) / granule, at = (from - site->start) / granule;
    size_t first = bits_next(site->holes, count, at, true),
           behind = bits_next(site->holes, count, first, false);
    if (first == count)
        return 0;
    *start = site->start + first * granule;
    return (behind - first) * granule;
}

static void mark(struct site *site, size_t granule, uintptr_t start, size_t size, bool hole)
{
    size_t first = (start - site->start) / granule;
    bits_mark(site->holes, first, first + size / granule, hole);
}

void site_take_hole(struct site *site, size_t granule, uintptr_t start, size_t size)
{
    mark(site, granule, start, size, false);
}

size_t site_hole_bytes(const struct site *site, size_t granule)
{
    size_t bytes = 0, size;
    uintptr_t end = site->start + site->size, start = 0;
    for (uintptr_t from = site->start; (size = site_hole(site, granule, from, end, &start));
         from = start + size)
        bytes += size;
    return bytes;
}

void site_end(struct site *site, struct arena *arena)
{
    uintptr_t end = site->start + site->size, start = 0;
    size_t size;
    for (uintptr_t from = site->start; (size = site_hole(site, arena->granule, from, end, &start));
         from = start + size)
        arena_unclaim(arena, start, size);
    pages_free(site->holes, bits_bytes(site->size / arena->granule));
    *site = (struct site){0};
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
    struct tree_node *node = tree_first(&heap->zones[ZONE_LARGE].free);
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
    struct site *site = heap->following ? &heap->following->site : NULL;
    uintptr_t end = start + size, from = start, to = start;
    if (site) {
        from = start > site->start ? start : site->start;
        to = end < site->start + site->size ? end : site->start + site->size;
    }
    if (from >= to) {
        arena_unclaim(heap->arena, start, size);
        return;
    }
    mark(site, heap->arena->granule, from, to - from, true);
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
