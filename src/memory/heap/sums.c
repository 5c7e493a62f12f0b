/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is known of heaps that have not changed: which are bare, the sums of what is free in
 * them, and the indices by what each could give. A heap is looked at again only after it has
 * changed. */
#include "memory/heap/cache.h"
#include "memory/heap/heap.h"
#include "memory/heap/help.h"
#include "memory/heap/idle/awaited.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"

#include <string.h>

#define SPAN_OF(node) TREE_ENTRY(node, struct span, by_size)
#define BY_LONGEST(node) TREE_ENTRY(node, struct heap, summed.by_longest)
#define BY_OLDEST(node) TREE_ENTRY(node, struct heap, summed.by_oldest)

static bool has_any_piece_locked(const struct heap *heap)
{
    bool pieces = heap->store->kind.pieces;
    for (int zone = 0; zone < ZONES; zone++)
        for (const struct tree_node *node = tree_last(&heap->zones.of[zone].free);
             node && (!pieces || SPAN_OF(node)->size >= heap->arena->granule);
             node = tree_previous(node))
            if (span_covers_piece_locked(heap, SPAN_OF(node)))
                return true;
    return false;
}

void heap_bare_locked(struct heap *heap)
{
    if (heap->sets.known & (HEAP_BARE | HEAP_AWAITS))
        return;
    parked_end_locked(heap);
    caches_reclaim_locked(heap);
    if (!heap->sets.of[HEAPS_OF_STORE].set)
        return;
    if (heap->waiting.blocks || has_any_piece_locked(heap))
        heap_await_locked(heap);
    else
        heap_known_locked(heap, HEAP_BARE);
}

/* Sums --------------------------------------------------------------------------------------- */

static bool is_shorter(const struct tree_node *a, const struct tree_node *b)
{
    const struct heap *x = BY_LONGEST(a), *y = BY_LONGEST(b);
    return x->summed.gives.longest != y->summed.gives.longest
               ? x->summed.gives.longest < y->summed.gives.longest
               : x->number < y->number;
}

static bool is_older(const struct tree_node *a, const struct tree_node *b)
{
    const struct heap *x = BY_OLDEST(a), *y = BY_OLDEST(b);
    return x->summed.gives.oldest != y->summed.gives.oldest
               ? x->summed.gives.oldest < y->summed.gives.oldest
               : x->number < y->number;
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

/* The bytes of the whole granules in a free span. */
static size_t bytes_whole(const struct arena *arena, const struct span *span)
{
    size_t granule = arena->granule;
    uintptr_t start = (span->start + granule - 1) / granule * granule,
              end = (span->start + span->size) / granule * granule;
    return end > start ? end - start : 0;
}

static void look_at_pieces_locked(const struct heap *heap, struct tree_node *last,
                                  struct heap_sums *sums)
{
    for (; last; last = tree_previous(last)) {
        sums->tied += bytes_tied(heap->arena, SPAN_OF(last));
        sums->holes += heap->store->kind.compacts ? bytes_whole(heap->arena, SPAN_OF(last)) : 0;
    }
}

static void look_at_segments_locked(struct tree_node *last, struct heap_gives *gives)
{
    for (; last; last = tree_previous(last)) {
        const struct span *span = SPAN_OF(last);
        if (span->previous || span->next)
            continue;
        gives->sums.segments++;
        gives->sums.freed_at += span->freed_at;
        gives->oldest = span->freed_at < gives->oldest ? span->freed_at : gives->oldest;
    }
}

static struct heap_gives look_locked(const struct heap *heap)
{
    struct heap_gives gives = {.oldest = UINT64_MAX};
    /* A suspended store has addresses, but no memory. */
    if (atomic_load_explicit(&heap->store->suspended, memory_order_acquire))
        return gives;
    gives.sums.free = heap->zones.free_bytes;
    gives.sums.waiting = heap->waiting.bytes;
    gives.longest = zones_longest_free(&heap->zones);
    for (int zone = 0; zone < ZONES; zone++) {
        struct tree_node *last = tree_last(&heap->zones.of[zone].free);
        if (heap->store->kind.pieces)
            look_at_pieces_locked(heap, last, &gives.sums);
        else if (zone == ZONE_LARGE)
            look_at_segments_locked(last, &gives);
    }
    if (heap_helps_locked(heap) && atomic_load(&heap->caches.resting))
        gives.slots = caches_slots_locked(&heap->caches);
    return gives;
}

static void replace(struct heap_sums *sums, const struct heap_sums *before,
                    const struct heap_sums *now)
{
    sums->free += now->free - before->free;
    sums->waiting += now->waiting - before->waiting;
    sums->tied += now->tied - before->tied;
    sums->holes += now->holes - before->holes;
    sums->segments += now->segments - before->segments;
    sums->freed_at += now->freed_at - before->freed_at;
}

void heap_sums_add(struct heap_sums *sums, const struct summed *summed)
{
    replace(sums, &(struct heap_sums){0}, &summed->gives.sums);
}

void heap_sums_are_common(struct arena *arena, const struct summed *summed, bool common)
{
    const struct heap_sums none = {0};
    replace(&arena->sets.common_sums, common ? &none : &summed->gives.sums,
            common ? &summed->gives.sums : &none);
}

static void set_gives_locked(struct heap *heap, const struct heap_gives *gives)
{
    struct store *store = heap->store;
    struct arena *arena = heap->arena;
    struct summed *summed = &heap->summed;
    mutex_lock(&arena->sets.lock);
    replace(&arena->sets.sums, &summed->gives.sums, &gives->sums);
    replace(&store->sets.sums, &summed->gives.sums, &gives->sums);
    if (heap->sets.of[HEAPS_COMMON].set)
        replace(&arena->sets.common_sums, &summed->gives.sums, &gives->sums);
    if (summed->gives.longest)
        tree_remove(&store->sets.summed, &summed->by_longest);
    if (summed->gives.sums.segments)
        tree_remove(&store->sets.aged, &summed->by_oldest);
    summed->gives = *gives;
    if (gives->longest)
        tree_insert_by(&store->sets.summed, &summed->by_longest, is_shorter);
    if (gives->sums.segments)
        tree_insert_by(&store->sets.aged, &summed->by_oldest, is_older);
    mutex_unlock(&arena->sets.lock);
}

/* A heap in which blocks wait stays among the changed, because readers of the sums want to see
 * which streams it waits for. */
void heap_sum_locked(struct heap *heap)
{
    if (heap->sets.known & HEAP_SUMMED || !heap->sets.of[HEAPS_OF_STORE].set)
        return;
    if (heap_helps_locked(heap))
        (void)wait_collect_locked(heap);
    parked_end_locked(heap);
    if (heap_helps_locked(heap))
        caches_reclaim_locked(heap);
    struct heap_gives gives = look_locked(heap);
    set_gives_locked(heap, &gives);
    if (heap_offer_locked(heap, &gives) && !heap->waiting.blocks)
        heap_known_locked(heap, HEAP_SUMMED);
}

void heap_sum_end_locked(struct heap *heap)
{
    set_gives_locked(heap, &(struct heap_gives){.oldest = UINT64_MAX});
}

const char *heap_known_contradiction_locked(struct heap *heap)
{
    struct heap_gives gives = look_locked(heap);
    bool used = heap->sets.of[HEAPS_OF_STORE].set;
    bool giver = heap->sets.of[HEAPS_GIVING].set, changed = heap->sets.of[HEAPS_CHANGED].set;
    bool nothing = heap->sets.known & (HEAP_BARE | HEAP_AWAITS);
    if (used && (giver == nothing || changed == !!(heap->sets.known & HEAP_SUMMED)))
        return "the heap is in a set of those of which something is not known, and it is";
    if (heap->sets.known && atomic_load(&heap->parked.count))
        return "the heap has parked blocks, and something is known of it";
    if (heap->sets.known & HEAP_BARE &&
        (!atomic_load(&heap->caches.resting) || heap->waiting.blocks || has_any_piece_locked(heap)))
        return "the heap has something to give, and no search finds it";
    if (heap->sets.known & HEAP_SUMMED && memcmp(&gives, &heap->summed.gives, sizeof gives) != 0)
        return "the sums have other memory of the heap than it has";
    if (heap->sets.known & HEAP_SUMMED && !heap_offers_agree(heap))
        return "the heap offers other memory than it has";
    return NULL;
}

void heaps_sum(struct arena *arena)
{
    for (struct heap *heap = heap_next_changed(arena, NULL); heap;
         heap = heap_next_changed(arena, heap)) {
        mutex_lock(&heap->lock);
        heap_sum_locked(heap);
        mutex_unlock(&heap->lock);
    }
}

struct heap_sums heaps_sums(struct arena *arena, const struct store *store, size_t *longest)
{
    mutex_lock(&arena->sets.lock);
    struct heap_sums sums = store ? store->sets.sums : arena->sets.sums;
    struct tree_node *last = store ? tree_last(&store->sets.summed) : NULL;
    *longest = last ? BY_LONGEST(last)->summed.gives.longest : 0;
    mutex_unlock(&arena->sets.lock);
    return sums;
}

struct heap_sums heaps_sums_serving(struct store *wanting, bool own)
{
    const struct heap_sums none = {0};
    mutex_lock(&wanting->arena->sets.lock);
    struct heap_sums sums = wanting->arena->sets.common_sums;
    if (own && !store_is_common(wanting))
        replace(&sums, &none, &wanting->sets.sums);
    mutex_unlock(&wanting->arena->sets.lock);
    return sums;
}

static bool is_behind(const struct tree_node *node, uint64_t place)
{
    const struct heap_age *after = (const struct heap_age *)(uintptr_t)place;
    const struct heap *heap = BY_OLDEST(node);
    return heap->summed.gives.oldest != after->oldest ? heap->summed.gives.oldest > after->oldest
                                                      : heap->number >= after->next;
}

struct heap *heap_next_aged(struct store *store, struct heap_age *place, uint64_t latest)
{
    struct heap *heap = NULL;
    mutex_lock(&store->arena->sets.lock);
    struct tree_node *node = tree_find_first(&store->sets.aged, is_behind, (uintptr_t)place);
    if (node && BY_OLDEST(node)->summed.gives.oldest <= latest) {
        heap = BY_OLDEST(node);
        *place = (struct heap_age){heap->summed.gives.oldest, heap->number + 1};
        store->arena->sets.looks++;
    }
    mutex_unlock(&store->arena->sets.lock);
    return heap;
}
