/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Takes idle memory of other heaps for one. Owns no data. Holds each lock only briefly, and shares
 * `moving` while memory is in no heap. */
#include "memory/pressure/taking.h"
#include "memory/arena/moves.h"
#include "memory/arena/owners.h"
#include "memory/growth/growth.h"
#include "memory/growth/segment.h"
#include "memory/heap/idle/wait.h"
#include "memory/pool/pool.h"

/* Lets `to` use what a heap of `from` has shed. Pieces move to `to`, if it creates pieces in the
 * same way. Segments and other pieces have gone back to the driver, or go now, to make room. */
static size_t pass_on(struct store *from, struct store *to, size_t wanted, size_t shed)
{
    return from == to || !from->kind.pieces ? shed : store_take(to, from, wanted);
}

/* Which heaps memory is taken from. NOBODYS: left behind, in the same store or with their store.
 * RETURNED: of the same store, whose stream is returned and not leased. LEFT_BEHIND: all left
 * behind that may serve the store. IN_USE: all others that may. */
enum source { NOBODYS, RETURNED, LEFT_BEHIND, IN_USE };

static bool is_source_locked(const struct heap *heap, const struct store *wanting,
                             enum source source)
{
    /* On another rank there may be no shortage, and which memory serves a request must not
     * depend on that. */
    if (heap->store == wanting && wanting->kind.fixed)
        return false;
    if (source == RETURNED)
        return heap->store == wanting && heap->stream && atomic_load(&heap->stream->returned);
    bool left_behind = heap_is_left_behind_locked(heap),
         abandoned = atomic_load(&heap->store->left_behind);
    if (!store_serves(heap->store, wanting) || left_behind != (source != IN_USE))
        return false;
    return source != NOBODYS || heap->store == wanting || abandoned;
}

/* The store of a heap, if `source` includes the heap; otherwise NULL. */
static struct store *source_of(struct heap *heap, const struct store *wanting, enum source source)
{
    mutex_lock(&heap->lock);
    struct store *store = is_source_locked(heap, wanting, source) ? heap->store : NULL;
    mutex_unlock(&heap->lock);
    return store;
}

/* Takes unmapped pieces of pools left behind. Moves are shared, so no store ends. */
static size_t take_unmapped(struct store *to, size_t wanted)
{
    struct arena *arena = to->arena;
    struct store *store = NULL;
    size_t total = 0;
    do {
        mutex_lock(&arena->lock);
        store = leftover_next_locked(arena, store);
        mutex_unlock(&arena->lock);
        if (store && store != to)
            total += pass_on(store, to, wanted - total, 0);
    } while (store && total < wanted);
    return total;
}

/* Takes at most `wanted` bytes of idle memory of one heap. Moves are shared, so no store ends.
 * Gives nothing if the heap has got another store meanwhile. */
static size_t take_of(struct heap *heap, struct heap *own, enum source source, size_t wanted,
                      struct run **leaving)
{
    struct store *store = heap == own ? NULL : source_of(heap, own->store, source);
    size_t total = 0, given = 0;
    if (!store)
        return 0;
    heap_collect(heap);
    total += source != IN_USE ? segments_adopt(own, heap, wanted) : 0;
    if (total < wanted)
        (void)heap_shed(heap, store, wanted - total, &given, leaving);
    mutex_lock(&heap->lock);
    heap_bare_locked(heap);
    mutex_unlock(&heap->lock);
    return total + pass_on(store, own->store, wanted - total, given);
}

/* Moves idle memory of other heaps to the unmapped pieces of `own`'s store, until `wanted` bytes
 * came. */
static size_t take_from_givers(struct heap *own, enum source source, size_t wanted, uint64_t until)
{
    struct arena *arena = own->arena;
    struct run *leaving = NULL;
    size_t total = 0;
    if (!move_begin_by(arena, until)) /* no pool ends until move_end() */
        return 0;
    for (struct heap *heap = heap_next_giving(own->store, NULL); heap && total < wanted;
         heap = heap_next_giving(own->store, heap))
        total += take_of(heap, own, source, wanted - total, &leaving);
    move_end(arena);
    (void)segments_release(leaving);
    return total;
}

/* The same for a part of a set of heaps: those that nobody uses, or that may lend. */
static size_t take_from_set(struct heap *own, enum source source, struct heap_set *set,
                            size_t wanted, uint64_t until)
{
    struct heap_walk walk = {.arena = own->arena, .set = set};
    struct run *leaving = NULL;
    size_t total = 0;
    if (!move_begin_by(own->arena, until))
        return 0;
    while (total < wanted && heap_walk_next(&walk)) {
        size_t taken = take_of(walk.heap, own, source, wanted - total, &leaving);
        total += taken;
        walk.vain += !taken;
        mutex_lock(&walk.heap->lock);
        if (source != RETURNED)
            heap_nobodys_end_locked(walk.heap);
        else
            heap_lends_end_locked(walk.heap);
        mutex_unlock(&walk.heap->lock);
    }
    move_end(own->arena);
    (void)segments_release(leaving);
    return total;
}

size_t take_from_others(struct heap *own, size_t wanted, uint64_t until)
{
    struct store *shared = &own->arena->store;
    size_t total = 0;
    if (!move_begin_by(own->arena, until))
        return 0;
    if (own->store != shared)
        total = pass_on(shared, own->store, wanted, 0);
    if (total < wanted)
        total += take_unmapped(own->store, wanted - total);
    move_end(own->arena);
    total += total < wanted ? take_from_givers(own, LEFT_BEHIND, wanted - total, until) : 0;
    return total < wanted ? total + take_from_givers(own, IN_USE, wanted - total, until) : total;
}

bool take_what_is_left_behind(struct heap *heap, size_t size, uint64_t until)
{
    struct arena *arena = heap->arena;
    size_t wanted = heap->store == &arena->store ? SIZE_MAX : size, taken = 0;
    pools_collect(arena);
    mutex_lock(&arena->lock);
    bool any = arena->heaps.retired > 0;
    mutex_unlock(&arena->lock);
    if (any)
        taken = take_from_set(heap, NOBODYS, &heap->store->sets.retired, wanted, until);
    if (any && taken < wanted)
        taken += take_from_set(heap, NOBODYS, &arena->sets.abandoned, wanted - taken, until);
    mutex_lock(&arena->lock);
    size_t unmapped = heap->store->unmapped.bytes;
    mutex_unlock(&arena->lock);
    if (unmapped < size && taken < size && streams_returned(arena->device))
        taken += take_from_set(heap, RETURNED, &heap->store->sets.lenders, size - unmapped, until);
    return taken;
}

void take_from_all(struct heap *own, size_t wanted)
{
    struct run *leaving = NULL; /* stays empty: segments of a caller's allocator are not taken */
    size_t total = 0;
    for (struct heap *heap = heap_next_giving(own->store, NULL); heap && total < wanted;
         heap = heap_next_giving(own->store, heap)) {
        struct store *store = heap_store(heap);
        size_t given = 0;
        if (!store_serves(store, own->store) || store_calls_back(store))
            continue;
        heap_collect(heap);
        if (heap != own && !(store == own->store && store->kind.fixed))
            (void)heap_shed(heap, store, wanted - total, &given, &leaving);
        total += pass_on(store, own->store, wanted - total, given);
    }
}
