/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is known of heaps that have not changed: which are bare, and the sums of what is free
 * in them. A heap is looked at again only after it has changed. */
#include "memory/heap/cache.h"
#include "memory/heap/heap.h"
#include "memory/heap/parked.h"

#include <string.h>

#define SPAN_OF(node) TREE_ENTRY(node, struct span, by_size)
#define BY_LONGEST(node) TREE_ENTRY(node, struct heap, by_longest)

/* Whether a free span contains a whole piece, or is a whole segment. It need not be able to leave
 * now: it may not be idle, be anchored, or its pool may be held. */
static bool has_piece_locked(const struct heap *heap, const struct span *span)
{
    const struct arena *arena = heap->arena;
    if (!heap->store->kind.pieces)
        return !span->previous && !span->next;
    if (span->size < arena->granule)
        return false;
    if (atomic_load_explicit(&heap->store->suspended, memory_order_acquire))
        return true; /* it has no pieces now; they return with the resume */
    uintptr_t end = span->start + span->size;
    const struct piece *piece = arena_piece(arena, span->start);
    if (piece->address < span->start && piece->address + piece->size < end)
        piece = arena_piece(arena, piece->address + piece->size);
    return piece->address >= span->start && piece->address + piece->size <= end;
}

static bool has_any_piece_locked(const struct heap *heap)
{
    bool pieces = heap->store->kind.pieces;
    for (int zone = 0; zone < ZONES; zone++)
        for (const struct tree_node *node = tree_last(&heap->zones[zone].free);
             node && (!pieces || SPAN_OF(node)->size >= heap->arena->granule);
             node = tree_previous(node))
            if (has_piece_locked(heap, SPAN_OF(node)))
                return true;
    return false;
}

void heap_bare_locked(struct heap *heap)
{
    if (heap->known & HEAP_BARE)
        return;
    parked_end_locked(heap);
    caches_reclaim_locked(heap);
    if (heap->waiting.blocks || has_any_piece_locked(heap) || !heap->sets[HEAPS_OF_STORE].set)
        return;
    heap_known_locked(heap, HEAP_BARE);
}

/* Sums --------------------------------------------------------------------------------------- */

static bool is_shorter(const struct tree_node *a, const struct tree_node *b)
{
    const struct heap *x = BY_LONGEST(a), *y = BY_LONGEST(b);
    return x->longest != y->longest ? x->longest < y->longest : x->number < y->number;
}

/* The bytes of a free span in pieces that other spans share. Only the first and the last piece of
 * the span can be such. */
static size_t bytes_tied(const struct arena *arena, const struct span *span)
{
    uintptr_t end = span->start + span->size;
    const struct piece *first = arena_piece(arena, span->start),
                       *last = arena_piece(arena, end - 1);
    uintptr_t first_end = first->address + first->size;
    bool over_start = first->address < span->start || first_end > end;
    size_t tied = over_start ? (first_end < end ? first_end : end) - span->start : 0;
    if (last != first && last->address + last->size > end)
        tied += end - last->address;
    return tied;
}

static void look_locked(const struct heap *heap, struct heap_sums *sums, size_t *longest)
{
    *sums = (struct heap_sums){0};
    *longest = 0;
    /* A suspended store has addresses, but no memory. */
    if (atomic_load_explicit(&heap->store->suspended, memory_order_acquire))
        return;
    sums->free = heap->free_bytes;
    sums->waiting = heap->waiting.bytes;
    for (int zone = 0; zone < ZONES; zone++) {
        struct tree_node *last = tree_last(&heap->zones[zone].free);
        size_t size = last ? SPAN_OF(last)->size : 0;
        *longest = size > *longest ? size : *longest;
        for (; last && heap->store->kind.pieces; last = tree_previous(last))
            sums->tied += bytes_tied(heap->arena, SPAN_OF(last));
    }
}

static void replace(struct heap_sums *sums, const struct heap_sums *before,
                    const struct heap_sums *now)
{
    sums->free += now->free - before->free;
    sums->waiting += now->waiting - before->waiting;
    sums->tied += now->tied - before->tied;
}

static void set_sums_locked(struct heap *heap, const struct heap_sums *sums, size_t longest)
{
    struct store *store = heap->store;
    mutex_lock(&heap->arena->sets_lock);
    replace(&heap->arena->sums, &heap->sums, sums);
    replace(&store->sums, &heap->sums, sums);
    heap->sums = *sums;
    if (heap->longest)
        tree_remove(&store->summed, &heap->by_longest);
    heap->longest = longest;
    if (longest)
        tree_insert_by(&store->summed, &heap->by_longest, is_shorter);
    mutex_unlock(&heap->arena->sets_lock);
}

/* A heap in which blocks wait stays among the changed, because readers of the sums want to see
 * which streams it waits for. */
void heap_sum_locked(struct heap *heap)
{
    struct heap_sums sums;
    size_t longest = 0;
    if (heap->known & HEAP_SUMMED || !heap->sets[HEAPS_OF_STORE].set)
        return;
    parked_end_locked(heap);
    look_locked(heap, &sums, &longest);
    set_sums_locked(heap, &sums, longest);
    if (!heap->waiting.blocks)
        heap_known_locked(heap, HEAP_SUMMED);
}

void heap_sum_end_locked(struct heap *heap)
{
    set_sums_locked(heap, &(struct heap_sums){0}, 0);
}

const char *heap_known_contradiction_locked(struct heap *heap)
{
    struct heap_sums sums;
    size_t longest = 0;
    bool used = heap->sets[HEAPS_OF_STORE].set;
    look_locked(heap, &sums, &longest);
    bool giver = heap->sets[HEAPS_GIVING].set, changed = heap->sets[HEAPS_CHANGED].set;
    if (used && (giver == !!(heap->known & HEAP_BARE) || changed == !!(heap->known & HEAP_SUMMED)))
        return "the heap is in a set of those of which something is not known, and it is";
    if (heap->known && atomic_load(&heap->parked_count))
        return "the heap has parked blocks, and something is known of it";
    if (heap->known & HEAP_BARE &&
        (!atomic_load(&heap->resting) || heap->waiting.blocks || has_any_piece_locked(heap)))
        return "the heap has something to give, and no search finds it";
    if (heap->known & HEAP_SUMMED &&
        (memcmp(&sums, &heap->sums, sizeof sums) != 0 || longest != heap->longest))
        return "the sums have other memory of the heap than it has";
    return NULL;
}

struct heap_sums heaps_sums(struct arena *arena, const struct store *store, size_t *longest)
{
    mutex_lock(&arena->sets_lock);
    struct heap_sums sums = store ? store->sums : arena->sums;
    struct tree_node *last = store ? tree_last(&store->summed) : NULL;
    *longest = last ? BY_LONGEST(last)->longest : 0;
    mutex_unlock(&arena->sets_lock);
    return sums;
}
