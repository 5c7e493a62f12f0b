/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the index of offers, in each arena's `offers`, by stream, kind and size. A heap has one
 * offer for its longest free span, and one for each class of which it has a free slot. They are as
 * the heap was when it was last looked at. So after heaps_sum_helpers() they are true, unless other
 * threads have changed the heap since.
 *
 * A pool that a graph or capture holds gives nothing. That begins and ends without a lock. A search
 * that comes to a heap of such a pool sets the heap aside: it takes its offers out of the index.
 * The end of a hold puts the store on a stack, and the next search lists its offers again. A store
 * is `aside` before the search reads `holds` again, and the end of a hold reads `aside` after it
 * has changed `holds`. So one of the two sees the other. tests/spin/help_aside.pml is a model of
 * this. */
#include "memory/heap/help.h"
#include "base/pages.h"
#include "memory/heap/cache.h"

struct offer {
    struct tree_node node; /* in the arena's `offers` */
    struct offer *next;    /* of the same heap */
    struct heap *heap;
    struct store *store; /* the heap's */
    unsigned slot;       /* of the heap's stream */
    unsigned kind;
    size_t size; /* bytes of the longest free span; 0 for slots */
};

static struct object_pool offers = OBJECT_POOL(struct offer);

#define OFFER_OF(at) TREE_ENTRY(at, struct offer, node)
#define HEAP_OF(at) (TREE_ENTRY(at, struct heap_member, node)->heap)

static bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    const struct offer *x = OFFER_OF(a), *y = OFFER_OF(b);
    if (x->slot != y->slot)
        return x->slot < y->slot;
    if (x->kind != y->kind)
        return x->kind < y->kind;
    return x->size != y->size ? x->size < y->size : x->heap->number < y->heap->number;
}

/* Whether an offer is at the place of a search, or behind it. */
static bool is_behind(const struct tree_node *node, uint64_t place)
{
    const struct help_search *search = (const struct help_search *)(uintptr_t)place;
    const struct offer *offer = OFFER_OF(node);
    if (offer->slot != search->stream->slot)
        return offer->slot > search->stream->slot;
    if (offer->kind != search->kind)
        return offer->kind > search->kind;
    return offer->size != search->least ? offer->size > search->least
                                        : offer->heap->number >= search->next;
}

static bool offer_add(struct heap *heap, struct offer **list, unsigned kind, size_t size)
{
    struct offer *offer = object_alloc(&offers);
    if (!offer)
        return false;
    *offer = (struct offer){.next = *list,
                            .heap = heap,
                            .store = heap->store,
                            .slot = heap->stream->slot,
                            .kind = kind,
                            .size = size};
    *list = offer;
    return true;
}

static void list_all(struct heap *heap)
{
    for (struct offer *offer = heap->offers; offer; offer = offer->next)
        tree_insert_by(&heap->arena->sets.offers, &offer->node, is_before);
}

static void unlist_all(struct heap *heap)
{
    for (struct offer *offer = heap->offers; offer; offer = offer->next)
        tree_remove(&heap->arena->sets.offers, &offer->node);
}

void heap_offer_end(struct heap *heap)
{
    if (heap->sets.of[HEAPS_ASIDE].set)
        heap_enter_aside(heap, NULL);
    else
        unlist_all(heap);
    while (heap->offers) {
        struct offer *offer = heap->offers;
        heap->offers = offer->next;
        object_free(&offers, offer);
    }
}

bool heap_offer_locked(struct heap *heap, const struct heap_gives *gives)
{
    struct offer *list = NULL;
    bool all = true;
    if (heap_helps_locked(heap) && heap->store->kind.reuses) {
        unsigned kind = heap->store->kind.pieces ? OFFER_OF_PIECES : OFFER_OF_SEGMENTS;
        if (gives->longest)
            all = offer_add(heap, &list, kind, gives->longest);
        for (uint64_t slots = gives->slots; slots && all; slots &= slots - 1)
            all = offer_add(heap, &list, (unsigned)__builtin_ctzll(slots), 0);
    }
    if (!list && !heap->offers)
        return all;
    mutex_lock(&heap->arena->sets.lock);
    heap_offer_end(heap);
    heap->offers = list;
    list_all(heap);
    mutex_unlock(&heap->arena->sets.lock);
    return all;
}

bool heap_offers_agree(const struct heap *heap)
{
    const struct heap_gives *gives = &heap->summed.gives;
    uint64_t slots = 0;
    size_t longest = 0;
    for (const struct offer *offer = heap->offers; offer; offer = offer->next) {
        slots |= offer->kind < SLAB_CLASSES ? UINT64_C(1) << offer->kind : 0;
        longest = offer->size > longest ? offer->size : longest;
        if (offer->store != heap->store || offer->slot != heap->stream->slot)
            return false;
    }
    bool helps = heap_helps_locked(heap) && heap->store->kind.reuses;
    return slots == (helps ? gives->slots : 0) && longest == (helps ? gives->longest : 0);
}

void heaps_sum_helpers(struct arena *arena)
{
    for (struct heap *heap = heap_next_changed_helper(arena, NULL); heap;
         heap = heap_next_changed_helper(arena, heap)) {
        mutex_lock(&heap->lock);
        heap_sum_locked(heap);
        mutex_unlock(&heap->lock);
    }
}

/* Lists the offers of a store's heaps again that were set aside. Under `sets.lock`. */
static void put_back(struct store *store)
{
    struct tree_node *node;
    atomic_store(&store->sets.is_aside, false);
    while ((node = tree_first(&store->sets.aside.heaps))) {
        struct heap *heap = HEAP_OF(node);
        heap_enter_aside(heap, NULL);
        list_all(heap);
    }
}

/* Under `sets.lock`. */
static void set_aside(struct heap *heap, struct store *store)
{
    unlist_all(heap);
    heap_enter_aside(heap, store);
    atomic_store(&store->sets.is_aside, true);
    if (!atomic_load(&store->holds)) /* the hold ended meanwhile, and did not see this */
        put_back(store);
}

void help_tell(struct store *store)
{
    struct arena *arena = store->arena;
    if (!atomic_load(&store->sets.is_aside) || atomic_exchange(&store->sets.is_told, true))
        return;
    inbox_add(&arena->sets.told, &store->sets.told);
}

void help_return_locked(struct arena *arena)
{
    struct inbox_item *item = inbox_take(&arena->sets.told);
    while (item) {
        struct store *store = INBOX_ENTRY(item, struct store, sets.told);
        item = item->next;
        /* Before `holds` is read, so that an end from now on tells. */
        atomic_store(&store->sets.is_told, false);
        mutex_lock(&arena->sets.lock);
        if (!atomic_load(&store->holds))
            put_back(store);
        mutex_unlock(&arena->sets.lock);
    }
}

/* The first offer at the place of a search, which moves behind it. Under `sets.lock`. */
static struct offer *offer_next(struct arena *arena, struct help_search *search)
{
    struct tree_node *node = tree_find_first(&arena->sets.offers, is_behind, (uintptr_t)search);
    struct offer *offer = node ? OFFER_OF(node) : NULL;
    if (!offer || offer->slot != search->stream->slot || offer->kind != search->kind ||
        offer->size > search->most)
        return NULL;
    search->least = offer->size;
    search->next = offer->heap->number + 1;
    arena->sets.looks++;
    return offer;
}

struct store *help_next_locked(struct arena *arena, struct help_search *search)
{
    struct offer *offer;
    struct store *found = NULL;
    help_return_locked(arena);
    mutex_lock(&arena->sets.lock);
    while (!found && (offer = offer_next(arena, search))) {
        if (atomic_load(&offer->store->holds))
            set_aside(offer->heap, offer->store);
        else
            found = offer->store;
    }
    mutex_unlock(&arena->sets.lock);
    return found;
}
