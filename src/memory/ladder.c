/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The steps of a request that no free span serves, and of a trim. Owns no data; takes each lock for a moment only.
 *
 *   1. blocks of this heap that waited for other streams and need not any more
 *   2. growth: idle memory re-mapped, that of retired heaps too, the rest created
 *   3. empty slabs of this heap's threads, and then idle memory of the device's other heaps, retired ones first; growth again
 *   4. where other threads moved memory meanwhile: growth again while none does, since what a thread has in hand is in no heap
 *   5. free memory of the heap's other zone
 *   6. a wait for the oldest work that holds memory back, this heap's first; then from 1
 *
 * It ends whatever other threads do: it waits for about as many marks as there are when it begins, and takes from others a
 * bounded number of times.
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
#include "memory/growth.h"
#include "memory/verify.h"
#include "memory/wait.h"

#include <stdio.h>

/* The heap after `heap` in the arena's list; NULL starts and ends. Heaps are never destroyed. */
static struct heap *heap_next(struct arena *arena, struct heap *heap)
{
    mutex_lock(&arena->lock);
    struct heap *next = heap ? heap->next : arena->heaps;
    mutex_unlock(&arena->lock);
    return next;
}

/* Moves. Whoever takes memory out of a heap or the cache, to map, unmap or release it, shares `moving` until it is back in one of
 * these; so that who holds it alone finds all memory in its place. */
static _Thread_local uint64_t own_moves;

static void move_begin(struct arena *arena)
{
    pthread_rwlock_rdlock(&arena->moving);
    atomic_fetch_add(&arena->moves_begun, 1);
    own_moves++;
}

static void move_end(struct arena *arena)
{
    atomic_fetch_add(&arena->moves_ended, 1);
    pthread_rwlock_unlock(&arena->moving);
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
    move_begin(heap->arena);
    tarn_status status = heap_grow(heap, zone, size, alignment, span);
    move_end(heap->arena);
    return status;
}

static tarn_status shed(struct heap *heap, size_t wanted, size_t *given)
{
    move_begin(heap->arena);
    tarn_status status = heap_shed(heap, wanted, given);
    move_end(heap->arena);
    return status;
}

static tarn_status release_cache(struct arena *arena, size_t keep)
{
    move_begin(arena);
    tarn_status status = arena_release_cache(arena, keep);
    move_end(arena);
    return status;
}

static tarn_status take(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    mutex_lock(&heap->lock);
    (void)wait_collect_locked(heap);
    tarn_status status = span_take_locked(heap, zone, size, alignment, span);
    if (status == TARN_ERROR_OUT_OF_MEMORY && zone == ZONE_SMALL) { /* where slabs are: empty ones before new memory */
        caches_reclaim_locked(heap);
        status = span_take_locked(heap, zone, size, alignment, span);
    }
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

/* Whether a heap has memory and is retired, or is not. */
static bool has_memory(struct heap *heap, bool retired)
{
    mutex_lock(&heap->lock);
    bool has = heap->retired == retired && (heap->zones[ZONE_SMALL].runs || heap->zones[ZONE_LARGE].runs);
    mutex_unlock(&heap->lock);
    return has;
}

/* Moves idle memory of the other heaps that are retired, or are not, to the cache until `wanted` bytes came. */
static size_t take_from(struct heap *own, bool retired, size_t wanted)
{
    struct arena *arena = own->arena;
    size_t total = 0;
    for (struct heap *heap = heap_next(arena, NULL); heap && total < wanted; heap = heap_next(arena, heap)) {
        if (heap == own || !has_memory(heap, retired))
            continue;
        size_t given = 0;
        collect(heap);
        (void)shed(heap, wanted - total, &given);
        total += given;
    }
    return total;
}

static size_t take_from_others(struct heap *own, size_t wanted)
{
    size_t total = take_from(own, true, wanted);
    return total < wanted ? total + take_from(own, false, wanted - total) : total;
}

/* What streams have left behind is used before new memory is created: all of it, since it serves nobody where it is. */
static void take_what_is_left_behind(struct heap *heap)
{
    struct arena *arena = heap->arena;
    mutex_lock(&arena->lock);
    bool any = arena->retired > 0;
    mutex_unlock(&arena->lock);
    if (any)
        (void)take_from(heap, true, SIZE_MAX);
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

/* The same for a device's heaps, `own` first, which may be NULL. */
static bool wait_for_any(struct arena *arena, struct heap *own, tarn_status *status)
{
    if (own && wait_for(own, status))
        return true;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap))
        if (heap != own && wait_for(heap, status))
            return true;
    return false;
}

/* The largest free span and the free and waiting bytes of a device's heaps, for the text below. */
struct holdings {
    size_t largest, free, waiting, cached, reserved, limit, addresses;
};

static struct holdings holdings_of(struct arena *arena)
{
    struct holdings sum = {0};
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        sum.free += heap->free_bytes;
        sum.waiting += heap->waiting_bytes;
        for (int zone = 0; zone < ZONES; zone++) {
            struct tree_node *last = tree_last(&heap->zones[zone].free);
            size_t size = last ? TREE_ENTRY(last, struct span, by_size)->size : 0;
            sum.largest = size > sum.largest ? size : sum.largest;
        }
        mutex_unlock(&heap->lock);
    }
    mutex_lock(&arena->lock);
    sum.cached = arena->cache.bytes;
    sum.reserved = arena->reserved;
    sum.limit = arena->limit;
    sum.addresses = arena_longest_locked(arena);
    mutex_unlock(&arena->lock);
    return sum;
}

static tarn_status out_of_memory(struct heap *heap, size_t size)
{
    struct arena *arena = heap->arena;
    struct holdings sum = holdings_of(arena);
    size_t idle = sum.free + sum.cached + sum.waiting; /* may be a little more when other threads allocate meanwhile */
    size_t free_bytes = 0, total_bytes = arena->device->properties.memory;
    char limit[64] = "no limit is set";
    const char *capture =
        captures_open(arena->device) ? "; what the streams of an open capture have freed serves them alone" : "";
    char addresses[96] = "";
    if (sum.addresses < size)
        snprintf(addresses, sizeof addresses, "; at most %zu bytes of addresses are left in a row", sum.addresses);
    if (sum.limit != SIZE_MAX)
        snprintf(limit, sizeof limit, "the limit is %zu", sum.limit);
    (void)driver->memory_info(arena->device->number, &free_bytes, &total_bytes);
    COUNT(&arena->counters, num_ooms);
    return failed(
        TARN_ERROR_OUT_OF_MEMORY,
        "%zu bytes on device %d: it has %zu bytes, %zu of them free; tarn reserves %zu (%s), of which %zu are "
        "live, %zu free in its heaps (the largest stretch %zu), %zu unmapped and %zu wait for streams%s%s",
        size, arena->device->number, total_bytes, free_bytes, sum.reserved, limit,
        sum.reserved > idle ? sum.reserved - idle : 0, sum.free, sum.largest, sum.cached, sum.waiting, addresses,
        capture);
}

/* Whether a request is above what the device, or the limit, could ever hold: then no step helps, and none is taken. */
static bool is_hopeless(struct arena *arena, size_t size)
{
    mutex_lock(&arena->lock);
    size_t most = arena->limit > arena->reserved ? arena->limit : arena->reserved;
    mutex_unlock(&arena->lock);
    return size > most || size > arena->device->properties.memory;
}

/* Step 4: the one attempt whose failure says that the memory is not there. */
static tarn_status grow_alone(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    struct arena *arena = heap->arena;
    size_t total = 0;
    pthread_rwlock_wrlock(&arena->moving);
    atomic_fetch_add(&arena->moves_begun, 1);
    own_moves++;
    for (struct heap *other = heap_next(arena, NULL); other && total < size; other = heap_next(arena, other)) {
        size_t given = 0;
        collect(other);
        if (other != heap)
            (void)heap_shed(other, size - total, &given);
        total += given;
    }
    tarn_status status = take(heap, zone, size, alignment, span);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = heap_grow(heap, zone, size, alignment, span);
    move_end(arena);
    return status;
}

/* Takes the steps of the file's head, in turn and again, until one serves the request. */
static tarn_status climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    struct arena *arena = heap->arena;
    struct stillness since = stillness_begin(arena);
    size_t waits = SIZE_MAX; /* left; not counted yet */
    int takings = 16;        /* from others, until the next wait */
    bool reclaimed = false;
    for (;;) {
        tarn_status status = take(heap, zone, size, alignment, span);
        if (status == TARN_ERROR_OUT_OF_MEMORY) {
            take_what_is_left_behind(heap);
            status = grow(heap, zone, size, alignment, span);
        }
        if (status != TARN_ERROR_OUT_OF_MEMORY)
            return status;

        if (!reclaimed) {
            reclaimed = true;
            collect(heap);
            continue;
        }
        if (takings > 0 && take_from_others(heap, size)) {
            COUNT(&arena->counters, num_alloc_retries);
            takings--;
            continue;
        }
        if (!was_still(arena, &since)) {
            status = grow_alone(heap, zone, size, alignment, span);
            if (status != TARN_ERROR_OUT_OF_MEMORY)
                return status;
        }
        status = take(heap, zone == ZONE_SMALL ? ZONE_LARGE : ZONE_SMALL, size, alignment, span);
        if (status != TARN_ERROR_OUT_OF_MEMORY)
            return status;
        status = TARN_OK;
        if (waits == SIZE_MAX)
            waits = waits_ahead(arena);
        if (waits-- == 0 || !wait_for_any(arena, heap, &status))
            return out_of_memory(heap, size);
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
    if (is_hopeless(heap->arena, size)) {
        COUNT(&heap->arena->counters, num_oom_rejections);
        return out_of_memory(heap, size);
    }
    error_attempt_begin(&before);
    tarn_status status = climb(heap, zone, size, alignment, span);
    error_attempt_end(&before, status);
    heap_check(heap);
    return status;
}

static size_t reserved(struct arena *arena)
{
    mutex_lock(&arena->lock);
    size_t bytes = arena->reserved;
    mutex_unlock(&arena->lock);
    return bytes;
}

/* One pass over the heaps: moves idle memory to the cache and releases it, down to `keep`. */
static tarn_status trim_pass(struct arena *arena, size_t keep)
{
    tarn_status first = arena_free_stuck(arena), status = release_cache(arena, keep);
    first = first ? first : status;
    for (struct heap *heap = heap_next(arena, NULL); heap && reserved(arena) > keep; heap = heap_next(arena, heap)) {
        size_t given = 0;
        collect(heap);
        size_t now = reserved(arena);
        if (now <= keep)
            break;
        status = shed(heap, now - keep, &given);
        first = first ? first : status;
        status = release_cache(arena, keep);
        first = first ? first : status;
    }
    return first;
}

tarn_status ladder_trim(struct arena *arena, size_t keep)
{
    for (size_t waits = waits_ahead(arena);; waits--) { /* what other threads queue from now on is theirs to trim */
        tarn_status status = trim_pass(arena, keep);
        if (status || reserved(arena) <= keep || waits == 0 || !wait_for_any(arena, NULL, &status) || status)
            return status;
    }
}

/* Makes a call on each heap of a device, under its lock. */
static void each_heap(struct arena *arena, void (*call)(struct heap *heap))
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        call(heap);
        mutex_unlock(&heap->lock);
    }
}

void ladder_close(struct arena *arena)
{
    each_heap(arena, caches_close_locked);
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
    caches_publish_locked(heap);
    counters_splits_reset_peak(&heap->splits);
}

static void reset_accumulated_locked(struct heap *heap)
{
    caches_publish_locked(heap);
    counters_splits_reset_accumulated(&heap->splits);
}

void ladder_reset_peak(struct arena *arena)
{
    each_heap(arena, reset_peak_locked);
    counters_reset_peak(&arena->counters);
}

void ladder_reset_accumulated(struct arena *arena)
{
    each_heap(arena, reset_accumulated_locked);
    counters_reset_accumulated(&arena->counters);
}

void ladder_count(struct arena *arena, tarn_stats *stats)
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        caches_count_locked(heap, stats);
        counters_add_splits(stats, &heap->splits);
        mutex_unlock(&heap->lock);
    }
}
