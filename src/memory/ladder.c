/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The steps of a request that no free span serves, and of a trim. Owns no data; takes each lock for a moment only.
 *
 *   1. blocks of this heap that waited for other streams and need not any more; once, what observers give back; for small ones also
 *      what is left of pieces beside large blocks, empty slabs, and a piece of the least size for large blocks
 *   2. growth: idle memory re-mapped, that of retired heaps too, the rest created
 *   3. empty slabs of this heap's threads, and then idle memory of the device's other heaps, those left behind first; growth again
 *   4. where other threads moved memory meanwhile: growth again while none does, since what a thread has in hand is in no heap
 *   5. free memory of the heap's other zone
 *   6. a wait for the oldest work that holds memory back, this heap's first; then from 1
 *
 * A pool's request may be served from its own heaps, those of the default pool, and what was left behind; that of the default
 * pool from its own heaps and what was left behind (store_serves()).
 *
 * With throw_on_cudamalloc_oom a request that a limit does not allow ends before 3 takes from other heaps.
 *
 * It ends whatever other threads do: it waits for about as many marks as there are when it begins, and takes from others a
 * bounded number of times, as it begins anew for pools that end meanwhile, by graphs that are destroyed.
 *
 * Captures bar none of it: the driver runs these calls relaxed, memory whose last use cannot be marked because a stream
 * captures is not idle, and the wait is for an event that was recorded outside captures, never for a stream or a device.
 *
 * After each step the search starts anew: memory may be free that was not (pytorch/pytorch#189504), and each wait is for one
 * mark, not for the device (#171771). */
#include "memory/ladder.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/cache.h"
#include "memory/config.h"
#include "memory/debug/debug.h"
#include "memory/growth.h"
#include "memory/kept.h"
#include "memory/observe.h"
#include "memory/plan.h"
#include "memory/pool.h"
#include "memory/segment.h"
#include "memory/traced.h"
#include "memory/verify.h"
#include "memory/wait.h"

#include <stdio.h>

/* Moves. Whoever takes memory out of a heap or the cache, to map, unmap or release it, shares `moving` until it is back in one of
 * these; so that who holds it alone finds all memory in its place. */
static _Thread_local uint64_t own_moves;

static void move_begin(struct arena *arena)
{
    shared_lock_shared(&arena->moving);
    atomic_fetch_add(&arena->moves_begun, 1);
    own_moves++;
}

static void move_end(struct arena *arena)
{
    atomic_fetch_add(&arena->moves_ended, 1);
    shared_unlock(&arena->moving);
}

/* Never waits: a caller of a free may have locks. */
void ladder_return(struct heap *heap)
{
    struct error_before before;
    error_attempt_begin(&before);
    if (observe_refuse_moving("giving memory back") == TARN_OK && shared_try_shared(&heap->arena->moving)) {
        atomic_fetch_add(&heap->arena->moves_begun, 1);
        own_moves++;
        segments_return(heap);
        move_end(heap->arena);
    }
    error_attempt_end(&before, TARN_OK);
}

/* What tells whether another thread was moving memory at any time since. */
struct stillness {
    uint64_t begun, own;
    bool still;
};

static struct stillness stillness_begin(struct arena *arena)
{
    struct stillness since = {.own = own_moves};
    uint64_t ended = atomic_load(&arena->moves_ended);
    since.begun = atomic_load(&arena->moves_begun);
    since.still = ended == since.begun;
    return since;
}

static bool was_still(struct arena *arena, const struct stillness *since)
{
    uint64_t begun = atomic_load(&arena->moves_begun);
    return since->still && begun - since->begun == own_moves - since->own;
}

static tarn_status grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    if (store_calls_back(heap->store))
        return heap_grow(heap, zone, size, alignment, span);
    move_begin(heap->arena);
    tarn_status status = store_check(heap->store);
    if (!status)
        status = heap_grow(heap, zone, size, alignment, span);
    move_end(heap->arena);
    return status;
}

/* Bytes reserved by a store, or with NULL by a device. */
static size_t bytes_of(struct arena *arena, struct store *store)
{
    mutex_lock(&arena->lock);
    size_t bytes = store ? store->reserved : arena->reserved;
    mutex_unlock(&arena->lock);
    return bytes;
}

static tarn_status release_cache(struct store *store, size_t keep)
{
    move_begin(store->arena);
    tarn_status status = store_release_cache(store, keep);
    move_end(store->arena);
    return status;
}

/* A small block or a slab that its zone has no room for, without new memory: where it pins no piece, in what empty slabs leave, and
 * where it pins a little. */
static tarn_status take_small_locked(struct heap *heap, size_t size, size_t alignment, struct span **span)
{
    tarn_status status = span_take_aside_locked(heap, size, alignment, 0, span);
    if (status != TARN_ERROR_OUT_OF_MEMORY)
        return status;
    caches_reclaim_locked(heap);
    status = span_take_locked(heap, ZONE_SMALL, size, alignment, span);
    return status == TARN_ERROR_OUT_OF_MEMORY ? span_take_aside_locked(heap, size, alignment, PIECE_LEAST_LARGE, span)
                                              : status;
}

static tarn_status take(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    mutex_lock(&heap->lock);
    (void)wait_collect_locked(heap);
    tarn_status status = store_check(heap->store); /* it may have been suspended meanwhile */
    if (!status)
        status = span_take_locked(heap, zone, size, alignment, span);
    if (status == TARN_ERROR_OUT_OF_MEMORY && zone == ZONE_SMALL)
        status = take_small_locked(heap, size, alignment, span);
    mutex_unlock(&heap->lock);
    return status;
}

/* Gets together what is free in a heap: blocks that no stream uses any more, and the empty slabs of all threads. */
static void collect(struct heap *heap)
{
    mutex_lock(&heap->lock);
    (void)wait_collect_locked(heap);
    caches_reclaim_locked(heap);
    mutex_unlock(&heap->lock);
}

/* Whether idle memory of a store may be taken for another, or the same. */
static bool store_serves(const struct store *store, const struct store *wanting)
{
    return store == wanting || store_is_default(store) || atomic_load(&store->left_behind);
}

/* Has what a heap of `from` has shed serve `to`: segments have gone back to the driver, pieces become its own or go there too. */
static size_t pass_on(struct store *from, struct store *to, size_t wanted, size_t shed)
{
    return from == to || from->plain ? shed : store_take(to, from, wanted);
}

/* Which heaps memory is taken from: those that are left behind, of the same store and of stores that are left behind themselves; all
 * that are left behind and serve the store; and the others that do. */
enum source { NOBODYS, LEFT_BEHIND, IN_USE };

static bool is_source_locked(const struct heap *heap, const struct store *wanting, enum source source)
{
    bool left_behind = heap_is_left_behind_locked(heap), abandoned = atomic_load(&heap->store->left_behind);
    if (!store_serves(heap->store, wanting) || left_behind != (source != IN_USE))
        return false;
    return source != NOBODYS || heap->store == wanting || abandoned;
}

/* The store of a heap that has memory, where another takes it from such; else NULL. */
static struct store *source_of(struct heap *heap, const struct store *wanting, enum source source)
{
    mutex_lock(&heap->lock);
    bool is = is_source_locked(heap, wanting, source) && (heap->zones[ZONE_SMALL].runs || heap->zones[ZONE_LARGE].runs);
    struct store *store = is ? heap->store : NULL;
    mutex_unlock(&heap->lock);
    return store;
}

/* What lies unmapped with pools that are left behind, until it goes to the default pool. Moves are shared, so no store goes away. */
static size_t take_unmapped(struct store *to, size_t wanted)
{
    struct arena *arena = to->arena;
    struct store *store = NULL;
    size_t total = 0;
    do {
        mutex_lock(&arena->lock);
        store = store ? store->next : arena->stores;
        mutex_unlock(&arena->lock);
        if (store && store != to && atomic_load(&store->left_behind))
            total += pass_on(store, to, wanted - total, 0);
    } while (store && total < wanted);
    return total;
}

/* Moves idle memory of other heaps to the cache of this one's store until `wanted` bytes came. */
static size_t take_from(struct heap *own, enum source source, size_t wanted)
{
    struct arena *arena = own->arena;
    struct run *leaving = NULL;
    size_t total = 0;
    move_begin(arena); /* so long no pool goes away */
    if (source == LEFT_BEHIND)
        total = take_unmapped(own->store, wanted);
    for (struct heap *heap = heap_next(arena, NULL); heap && total < wanted; heap = heap_next(arena, heap)) {
        /* While moves are shared no store goes away. The heap may become another's meanwhile, which gives nothing. */
        struct store *store = heap == own ? NULL : source_of(heap, own->store, source);
        size_t given = 0;
        if (!store)
            continue;
        collect(heap);
        total += source != IN_USE ? segments_adopt(own, heap, wanted - total) : 0;
        if (total < wanted)
            (void)heap_shed(heap, store, wanted - total, &given, &leaving);
        total += pass_on(store, own->store, wanted - total, given);
    }
    move_end(arena);
    (void)segments_release(leaving);
    return total;
}

static size_t take_from_others(struct heap *own, size_t wanted)
{
    struct store *shared = &own->arena->store;
    size_t total = 0;
    if (own->store != shared) {
        move_begin(own->arena);
        total = pass_on(shared, own->store, wanted, 0);
        move_end(own->arena);
    }
    total += total < wanted ? take_from(own, LEFT_BEHIND, wanted - total) : 0;
    return total < wanted ? total + take_from(own, IN_USE, wanted - total) : total;
}

/* What streams and pools have left behind is used before new memory is created. The default pool takes all of it, since it serves
 * nobody where it is; a pool, which would have it for itself, what it wants. */
static bool take_what_is_left_behind(struct heap *heap, size_t size)
{
    struct arena *arena = heap->arena;
    pools_collect(arena);
    mutex_lock(&arena->lock);
    bool any = arena->retired > 0;
    mutex_unlock(&arena->lock);
    return any && take_from(heap, NOBODYS, heap->store == &arena->store ? SIZE_MAX : size);
}

/* Waits for the oldest work that holds back memory of one heap. False when nothing does. */
static bool wait_for(struct heap *heap, tarn_status *status)
{
    struct mark *mark = NULL;
    mutex_lock(&heap->lock);
    bool helps = wait_oldest_locked(heap, &mark);
    mutex_unlock(&heap->lock);
    if (!mark)
        return helps;
    *status = mark_wait(mark);
    mark_release(mark);
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, false);
    mutex_unlock(&heap->lock);
    return true;
}

/* What the memory is for that a wait may set free: a request of a heap, or a trim of a store, NULL for the default pool and what is
 * left behind. */
struct purpose {
    struct heap *heap;
    struct store *trimmed;
};

static bool helps(struct heap *heap, const struct purpose *purpose)
{
    mutex_lock(&heap->lock);
    const struct store *wanting = purpose->heap ? purpose->heap->store : &heap->arena->store;
    bool does = purpose->trimmed ? heap->store == purpose->trimmed : store_serves(heap->store, wanting);
    mutex_unlock(&heap->lock);
    return does;
}

/* More than the waits after which all that is queued now has ended and set its memory free, if nothing is queued meanwhile: for
 * each mark, and for the batch that what it sets free is then in. */
static size_t waits_ahead(struct arena *arena)
{
    size_t waits = 0;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        for (struct use *uses = heap->waiting; uses; uses = uses->next_waiting)
            for (struct use *use = uses; use; use = use->next)
                waits += 4;
        waits += 4 * (HEAP_BATCHES + 1);
        mutex_unlock(&heap->lock);
    }
    return waits;
}

/* The same for the heaps that help, that of a request first. */
static bool wait_for_any(struct arena *arena, const struct purpose *purpose, tarn_status *status)
{
    if (purpose->heap && wait_for(purpose->heap, status))
        return true;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap))
        if (heap != purpose->heap && helps(heap, purpose) && wait_for(heap, status))
            return true;
    return false;
}

void moves_flush(struct arena *arena)
{
    shared_lock_alone(&arena->moving);
    shared_unlock(&arena->moving);
}

tarn_status ladder_settle(struct arena *arena, struct store *store)
{
    tarn_status status = TARN_OK;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        if (store && heap_store(heap) != store)
            continue;
        for (size_t waits = waits_ahead(arena); waits > 0 && !status && wait_for(heap, &status); waits--)
            ;
    }
    return status;
}

/* Whether a request is above what the device, or the limit, could ever hold: then no step helps, and none is taken. */
static bool is_hopeless(struct arena *arena, const struct store *store, size_t size)
{
    mutex_lock(&arena->lock);
    size_t most = arena->limit > arena->reserved ? arena->limit : arena->reserved;
    size_t own = store->limit > store->reserved ? store->limit : store->reserved;
    mutex_unlock(&arena->lock);
    most = own < most ? own : most;
    return size > most || size > arena->device->properties.memory;
}

/* Whether the settings ask to fail a request above a limit at once, where the heap's own memory and the cache do not serve
 * it (pytorch/pytorch#177356). */
static bool is_rejected(struct arena *arena, const struct store *store, size_t size)
{
    if (!memory_config()->throw_on_cudamalloc_oom)
        return false;
    mutex_lock(&arena->lock);
    bool above = arena->reserved > arena->limit || size > arena->limit - arena->reserved ||
                 store->reserved > store->limit || size > store->limit - store->reserved;
    mutex_unlock(&arena->lock);
    return above;
}

bool ladder_rejects(struct arena *arena, const struct store *store, size_t size)
{
    return is_hopeless(arena, store, size) || is_rejected(arena, store, size);
}

/* Counts a request as refused before the driver was asked. */
static tarn_status reject(const struct heap *heap)
{
    COUNT(heap->store->counters, num_oom_rejections);
    return TARN_ERROR_OUT_OF_MEMORY;
}

/* Step 4: the one attempt whose failure says that the memory is not there. */
static tarn_status grow_alone(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    struct arena *arena = heap->arena;
    struct run *leaving = NULL;
    size_t total = 0;
    if (store_calls_back(heap->store))
        return grow(heap, zone, size, alignment, span); /* nobody can be kept from moving while a caller's code runs */
    shared_lock_alone(&arena->moving);
    atomic_fetch_add(&arena->moves_begun, 1);
    own_moves++;
    for (struct heap *other = heap_next(arena, NULL); other && total < size; other = heap_next(arena, other)) {
        struct store *store = heap_store(other);
        size_t given = 0;
        if (!store_serves(store, heap->store) || store_calls_back(store))
            continue;
        collect(other);
        if (other != heap)
            (void)heap_shed(other, store, size - total, &given, &leaving);
        total += pass_on(store, heap->store, size - total, given);
    }
    tarn_status status = take(heap, zone, size, alignment, span);
    if (status == TARN_ERROR_OUT_OF_MEMORY && !(status = store_check(heap->store)))
        status = heap_grow(heap, zone, size, alignment, span);
    move_end(arena);
    return status;
}

/* Takes the steps of the file's head, in turn and again, until one serves the request. */
static tarn_status climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    struct arena *arena = heap->arena;
    struct stillness since = stillness_begin(arena);
    const struct purpose purpose = {.heap = heap};
    size_t waits = SIZE_MAX; /* left; not counted yet */
    int takings = 16;        /* from others, until the next wait */
    bool reclaimed = false, asked = false;
    uint64_t let_go = 0; /* by debug mode */
    int endings = 16;    /* of pools meanwhile, for which everything is tried again */
    for (;;) {
        uint64_t counts = atomic_load(&arena->let_go);
        tarn_status status = device_check(arena->device); /* what a loss set free is for nobody */
        status = status ? status : take(heap, zone, size, alignment, span);
        if (status == TARN_ERROR_OUT_OF_MEMORY && !asked) {
            asked = true;
            if (observe_reclaim(arena->device->number, size))
                continue;
        }
        if (status == TARN_ERROR_OUT_OF_MEMORY) {
            bool taken = take_what_is_left_behind(heap, size);
            status = taken && heap->store->plain ? take(heap, zone, size, alignment, span) : TARN_ERROR_OUT_OF_MEMORY;
            if (status == TARN_ERROR_OUT_OF_MEMORY)
                status = grow(heap, zone, size, alignment, span);
        }
        if (status != TARN_ERROR_OUT_OF_MEMORY)
            return status;

        if (takings > 0 && debug_relieve(arena, &let_go)) {
            takings--;
            continue;
        }
        if (!reclaimed) {
            reclaimed = true;
            collect(heap);
            continue;
        }
        if (is_rejected(arena, heap->store, size))
            return reject(heap);
        if (takings > 0 && take_from_others(heap, size)) {
            COUNT(heap->store->counters, num_alloc_retries);
            takings--;
            continue;
        }
        if (!was_still(arena, &since)) {
            status = grow_alone(heap, zone, size, alignment, span);
            if (status != TARN_ERROR_OUT_OF_MEMORY)
                return status;
        }
        status = take(heap, zone_other(zone), size, alignment, span);
        if (status != TARN_ERROR_OUT_OF_MEMORY)
            return status;
        status = TARN_OK;
        if (waits == SIZE_MAX)
            waits = waits_ahead(arena);
        if (waits-- == 0 || !wait_for_any(arena, &purpose, &status)) {
            /* What has ended since debug mode's blocks were looked at is waited for no more, and still to be let go. */
            bool anew =
                atomic_load(&arena->let_go) != counts || debug_relieve(arena, &let_go) || take_from_others(heap, size);
            if (endings-- == 0 || !anew)
                return TARN_ERROR_OUT_OF_MEMORY;
        }
        if (status)
            return status;
        since = stillness_begin(arena);
        takings = 16;
        reclaimed = false;
    }
}

tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    struct error_before before;
    tarn_status status = observe_refuse_moving("an allocation that no memory at hand serves");
    if (status)
        return status;
    if (is_hopeless(heap->arena, heap->store, size))
        return reject(heap);
    error_attempt_begin(&before);
    status = climb(heap, zone, size, alignment, span);
    error_attempt_end(&before, status == TARN_ERROR_OUT_OF_MEMORY ? TARN_OK : status);
    heap_check(heap);
    return status;
}

void ladder_plan(struct heap *heap)
{
    struct error_before before;
    error_attempt_begin(&before);
    if (observe_refuse_moving("the memory of a plan") == TARN_OK) {
        move_begin(heap->arena);
        plan_begin(heap);
        move_end(heap->arena);
    }
    error_attempt_end(&before, TARN_OK);
    heap_check(heap);
}

/* What a store may keep so that all that is trimmed comes to `keep`. */
static size_t share_of(struct arena *arena, struct store *store, struct store *trimmed, size_t keep)
{
    size_t own = bytes_of(arena, store), all = bytes_of(arena, trimmed), excess = all > keep ? all - keep : 0;
    return own > excess ? own - excess : 0;
}

/* One pass over the heaps of a store, or with NULL of the default pool and what is left behind: moves idle memory to the cache
 * and releases it, down to `keep`. */
static tarn_status trim_pass(struct arena *arena, struct store *store, size_t keep)
{
    struct store *first_store = store ? store : &arena->store;
    uint64_t let_go = 0;
    if (bytes_of(arena, store) > keep)
        (void)debug_relieve(arena, &let_go);
    tarn_status first = arena_free_stuck(arena);
    tarn_status status = segments_free_stuck(arena);
    first = first ? first : status;
    status = release_cache(first_store, share_of(arena, first_store, store, keep));
    first = first ? first : status;
    for (struct heap *heap = heap_next(arena, NULL); heap && bytes_of(arena, store) > keep;
         heap = heap_next(arena, heap)) {
        struct run *leaving = NULL;
        size_t given = 0;
        if (store && heap_store(heap) != store)
            continue;
        move_begin(arena);
        struct store *own = heap_store(heap);
        if (store ? own == store : store_serves(own, &arena->store)) {
            if (atomic_load(&own->suspended) && atomic_load(&own->left_behind))
                pool_suspension_complete(pool_of_store(own));
            collect(heap);
            size_t now = bytes_of(arena, store);
            status = now > keep ? heap_shed(heap, own, now - keep, &given, &leaving) : TARN_OK;
            first = first ? first : status;
            status = store_release_cache(own, share_of(arena, own, store, keep));
            first = first ? first : status;
        }
        move_end(arena);
        status = segments_release(leaving);
        first = first ? first : status;
    }
    return first;
}

void ladder_give_back(struct arena *arena, struct store *store)
{
    struct error_before before;
    error_attempt_begin(&before);
    if (observe_refuse_moving("giving a pool's memory back") == TARN_OK) /* else a trim does it */
        (void)trim_pass(arena, store, 0);
    error_attempt_end(&before, TARN_OK);
}

tarn_status ladder_trim(struct arena *arena, struct store *store, size_t keep)
{
    const struct purpose purpose = {.trimmed = store};
    tarn_status refused = observe_refuse_moving("a trim");
    if (refused)
        return refused;
    uint64_t let_go = 0;
    for (size_t waits = waits_ahead(arena);; waits--) { /* what other threads queue from now on is theirs to trim */
        tarn_status status = trim_pass(arena, store, keep);
        if (status || bytes_of(arena, store) <= keep || waits == 0)
            return status;
        bool more = wait_for_any(arena, &purpose, &status);
        /* What has ended since the pass looked at the debug mode's blocks is waited for no more, and still to be let go. */
        if (status || (!more && !debug_relieve(arena, &let_go)))
            return status;
    }
}

/* Makes a call on each heap of a store, or with NULL of a device, under its lock. */
static void each_heap(struct arena *arena, const struct store *store, void (*call)(struct heap *heap))
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        if (!store || heap->store == store)
            call(heap);
        mutex_unlock(&heap->lock);
    }
}

void ladder_close(struct arena *arena)
{
    each_heap(arena, NULL, caches_close_locked);
}

void ladder_lose(struct arena *arena)
{
    mutex_lock(&arena->lock); /* of the list; heaps' locks may be held by the caller */
    for (struct heap *heap = arena->heaps; heap; heap = heap->next)
        caches_lose(heap);
    mutex_unlock(&arena->lock);
}

static void reset_peak_locked(struct heap *heap)
{
    kept_flush_locked(heap);
    caches_publish_locked(heap);
    counters_splits_reset_peak(&heap->splits);
}

static void reset_accumulated_locked(struct heap *heap)
{
    kept_flush_locked(heap);
    caches_publish_locked(heap);
    counters_splits_reset_accumulated(&heap->splits);
}

static struct counters *counters_of(struct arena *arena, const struct store *store)
{
    return store ? store->counters : &arena->counters;
}

void ladder_reset_peak(struct arena *arena, const struct store *store)
{
    each_heap(arena, store, reset_peak_locked);
    counters_reset_peak(counters_of(arena, store));
}

void ladder_reset_accumulated(struct arena *arena, const struct store *store)
{
    each_heap(arena, store, reset_accumulated_locked);
    counters_reset_accumulated(counters_of(arena, store));
}

void ladder_count(struct arena *arena, const struct store *store, tarn_stats *stats)
{
    counters_read(counters_of(arena, store), stats);
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        if (!store || heap->store == store) {
            kept_flush_locked(heap);
            caches_count_locked(heap, stats);
            counters_add_splits(stats, &heap->splits);
        }
        mutex_unlock(&heap->lock);
    }
}
