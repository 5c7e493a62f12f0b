/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The steps that a request takes if no free span serves it. Owns no data, and holds each lock only
 * briefly. Each function is one step of the list in docs/architecture.md ("The way of a request"),
 * with the same number. climb_once() is the list.
 *
 * After each step that has freed memory, the search starts again, because other memory may have
 * become free (pytorch/pytorch#189504). The ladder waits until any mark ends that holds memory
 * back, since that memory may suffice. It waits for the device only if there is no other mark
 * (#171771).
 *
 * The ladder ends whatever other threads do. It waits for about as many marks as exist when it
 * begins. It takes memory from others a bounded number of times, and starts again for pools that
 * end meanwhile a bounded number of times.
 *
 * A capture prevents no step. Driver calls are made in relaxed mode. Memory whose last use cannot
 * be marked, because a stream captures, is not idle. Waits are for events recorded outside
 * captures, or for a device on which none is open. */
#include "memory/pressure/ladder.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/growth.h"
#include "memory/growth/segment.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/wait.h"
#include "memory/pressure/compact.h"
#include "memory/pressure/taking.h"
#include "memory/range/range.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"

#define TAKINGS 16 /* how often a climb takes from others between two waits */
#define ENDINGS 16 /* how often it starts again because something has ended */

/* One climb: the request and its progress. Only its thread uses it. */
struct climb {
    struct heap *heap;
    enum zone_kind zone;
    size_t size, alignment; /* bytes */
    uint64_t until;         /* how long it may wait */
    struct span **span;
    tarn_status status; /* the result, once it is over */

    bool observers_asked, layer_above_asked; /* at any time in this climb */
    bool compacted;                          /* at any time in this climb */
    bool slabs_collected;                    /* since the last wait */
    bool looked;                             /* at all marks that heaps await, in this climb */
    int takings;                             /* left until the next wait */
    struct stillness since;
    size_t waits;      /* left; SIZE_MAX: not counted yet */
    int endings;       /* left */
    uint64_t let_go;   /* the arena's `pools.let_go` when this round began */
    uint64_t relieved; /* blocks that debug mode had released at the last look */
};

enum outcome {
    ON,    /* go on with the next step */
    AGAIN, /* memory has become free: start again with step 1 */
    OVER,  /* the climb ends with `status` */
};

static enum outcome end(struct climb *climb, tarn_status status)
{
    climb->status = status;
    return OVER;
}

/* A wait that might help would not be over in time. */
static enum outcome end_unready(struct climb *climb, const char *what)
{
    return end(climb,
               failed(TARN_ERROR_NOT_READY, "%zu bytes on device %d would have to wait%s for %s",
                      climb->size, climb->heap->arena->device->number,
                      climb->until == UNTIL_NOW ? "" : " longer", what));
}

/* The outcome of a search: go on if nothing was found. */
static enum outcome searched(struct climb *climb, tarn_status status)
{
    return status == TARN_ERROR_OUT_OF_MEMORY ? ON : end(climb, status);
}

bool ladder_is_hopeless(struct arena *arena, const struct store *store, size_t size)
{
    mutex_lock(&arena->lock);
    size_t most = arena->limit > arena->reserved ? arena->limit : arena->reserved;
    size_t own = store->limit > store->reserved ? store->limit : store->reserved;
    mutex_unlock(&arena->lock);
    most = own < most ? own : most;
    return size > most || size > arena->device->properties.memory;
}

/* Whether the settings demand that a request above a limit fails at once, if the heap's own memory
 * and unmapped pieces do not serve it (pytorch/pytorch#177356). */
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
    return ladder_is_hopeless(arena, store, size) || is_rejected(arena, store, size);
}

/* Refuses a request before the driver is asked, and counts that. */
static tarn_status reject(const struct heap *heap)
{
    COUNT(heap->store->counters, num_oom_rejections);
    return TARN_ERROR_OUT_OF_MEMORY;
}

bool ladder_relieve(const struct arena *arena)
{
    relieve_hook *relieve = atomic_load(&upper_hooks.relieve);
    return relieve && relieve(arena->device->number);
}

/* Searching ------------------------------------------------------------------------------------ */

/* Serves a small block or a slab whose zone has no room, without new memory: first where it ties no
 * piece, then in memory of empty slabs, then where it ties little. */
static tarn_status take_small_locked(struct heap *heap, size_t size, size_t alignment,
                                     struct span **span)
{
    tarn_status status = span_take_aside_locked(heap, size, alignment, 0, span);
    if (status != TARN_ERROR_OUT_OF_MEMORY)
        return status;
    caches_reclaim_locked(heap);
    status = span_take_locked(heap, ZONE_SMALL, size, alignment, span);
    return status == TARN_ERROR_OUT_OF_MEMORY
               ? span_take_aside_locked(heap, size, alignment, PIECE_LEAST_LARGE, span)
               : status;
}

static tarn_status take(const struct climb *climb, enum zone_kind zone)
{
    struct heap *heap = climb->heap;
    mutex_lock(&heap->lock);
    (void)wait_collect_locked(heap);
    tarn_status status = store_check(heap->store); /* it may have been suspended meanwhile */
    if (!status)
        status = span_take_locked(heap, zone, climb->size, climb->alignment, climb->span);
    if (status == TARN_ERROR_OUT_OF_MEMORY && zone == ZONE_SMALL && !heap->store->kind.fixed)
        status = take_small_locked(heap, climb->size, climb->alignment, climb->span);
    mutex_unlock(&heap->lock);
    return status;
}

/* Grows the heap. Shares moves meanwhile, unless the caller has them (`held`), or the growth calls
 * a caller's allocator, for which no lock is held. Does not grow if a thread that moves memory
 * alone takes too long: step_alone() finds that. */
static tarn_status grow(const struct climb *climb, bool held)
{
    struct heap *heap = climb->heap;
    bool shares = !held && !store_calls_back(heap->store);
    if (shares && !move_begin_by(heap->arena, climb->until))
        return TARN_ERROR_OUT_OF_MEMORY;
    tarn_status status = store_check(heap->store);
    if (!status)
        status = heap_grow(heap, climb->zone, climb->size, climb->alignment, climb->span);
    if (shares)
        move_end(heap->arena);
    return status;
}

/* The steps ------------------------------------------------------------------------------------ */

/* Step 1: the heap's free memory, also what has become free meanwhile. Free memory of a lost device
 * serves no request. */
static enum outcome step_own(struct climb *climb)
{
    climb->let_go = atomic_load(&climb->heap->arena->pools.let_go);
    tarn_status status = device_check(climb->heap->arena->device);
    return searched(climb, status ? status : take(climb, climb->zone));
}

/* Step 2, once: memory that observers give back. */
static enum outcome step_observers(struct climb *climb)
{
    if (climb->observers_asked)
        return ON;
    climb->observers_asked = true;
    return observe_before_growth(climb->heap->arena->device->number, climb->size) ? AGAIN : ON;
}

/* Step 3: growth, first from memory that pools have left behind. */
static enum outcome step_growth(struct climb *climb)
{
    bool taken = take_what_is_left_behind(climb->heap, climb->size, climb->until);
    tarn_status status = taken && !climb->heap->store->kind.pieces ? take(climb, climb->zone)
                                                                   : TARN_ERROR_OUT_OF_MEMORY;
    return searched(climb, status == TARN_ERROR_OUT_OF_MEMORY ? grow(climb, false) : status);
}

/* Step 4: blocks that only debug mode still holds. */
static enum outcome step_debug(struct climb *climb)
{
    if (climb->takings == 0 || !debug_relieves(climb->heap->arena, &climb->relieved))
        return ON;
    climb->takings--;
    return AGAIN;
}

/* Step 5, once until the next wait: the empty slabs of the heap's threads. */
static enum outcome step_slabs(struct climb *climb)
{
    if (climb->slabs_collected)
        return ON;
    climb->slabs_collected = true;
    heap_collect(climb->heap);
    return AGAIN;
}

/* Takes idle memory of other heaps and of ranges. Whether there was any. */
static bool take_idle(const struct climb *climb)
{
    return take_from_others(climb->heap, climb->size, climb->until) ||
           ranges_relieve(climb->heap->arena, climb->size, climb->until);
}

/* Searches again while no thread moves memory: memory that is being moved is in no heap, so earlier
 * steps may have missed it. Repeats step 1 and the growth of step 3, and with `takes_from_others`
 * first that part of step 6 which takes from heaps, with the empty slabs of their caches. Does
 * nothing if no other thread has moved memory since the climb began or last waited. For a pool with
 * an allocator it only grows once more, not alone. A bounded request that does not get `moving` in
 * time ends with TARN_ERROR_NOT_READY. */
static enum outcome search_alone(struct climb *climb, bool takes_from_others)
{
    struct heap *heap = climb->heap;
    if (was_still(heap->arena, &climb->since))
        return ON;
    /* Other threads cannot be stopped while a caller's code runs. */
    if (store_calls_back(heap->store))
        return searched(climb, grow(climb, false));
    if (!move_begin_alone_by(heap->arena, climb->until))
        return end_unready(climb, "other threads, which move memory");
    if (takes_from_others)
        take_from_all(heap, climb->size);
    tarn_status status = take(climb, climb->zone);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = grow(climb, true);
    move_end(heap->arena);
    return searched(climb, status);
}

/* Step 6: idle memory of other heaps. If the settings demand that a request above a limit fails, it
 * fails here, after a search alone that takes nothing from other heaps. */
static enum outcome step_others(struct climb *climb)
{
    if (is_rejected(climb->heap->arena, climb->heap->store, climb->size)) {
        enum outcome outcome = search_alone(climb, false);
        return outcome == ON ? end(climb, reject(climb->heap)) : outcome;
    }
    if (!climb->looked)
        awaited_look(climb->heap->store, SIZE_MAX);
    climb->looked = true;
    if (climb->takings == 0 || !take_idle(climb))
        return ON;
    COUNT(climb->heap->store->counters, num_alloc_retries);
    climb->takings--;
    return AGAIN;
}

/* Step 7: parts of steps 1, 3 and 6 again, as search_alone() says. */
static enum outcome step_alone(struct climb *climb)
{
    return search_alone(climb, true);
}

/* Step 8: free memory of the heap's other zone. Not in a store with fixed places. */
static enum outcome step_other_zone(struct climb *climb)
{
    if (climb->heap->store->kind.fixed)
        return ON;
    return searched(climb, take(climb, zone_other(climb->zone)));
}

/* Step 9, once: unused workspaces, which the handle layer frees. */
static enum outcome step_layer_above(struct climb *climb)
{
    if (climb->layer_above_asked)
        return ON;
    climb->layer_above_asked = true;
    return ladder_relieve(climb->heap->arena) ? AGAIN : ON;
}

/* Waits until some work has ended that holds memory back which may serve the heap. False: there is
 * none. */
static bool wait_for_any(struct heap *own, uint64_t until, tarn_status *status)
{
    struct wait_any any = {.count = 0};
    wait_any_add(&any, own);
    for (struct heap *heap = heap_next_giving(own->store, NULL); heap && !any.ended;
         heap = heap_next_giving(own->store, heap))
        if (heap != own && heap_serves(heap, own->store))
            wait_any_add(&any, heap);
    if (!any.ended)
        awaited_add(&any, own->store);
    ranges_wait_add(&any, own->arena, NULL, true, until);
    return wait_any(&any, own->arena, until, status);
}

/* Whether something has ended since the last look that no wait would find: a pool, a block that
 * debug mode holds, a move of another thread. */
static bool has_more(struct climb *climb)
{
    struct arena *arena = climb->heap->arena;
    return atomic_load(&arena->pools.let_go) != climb->let_go ||
           debug_relieves(arena, &climb->relieved) || take_idle(climb);
}

/* Step 10: waits until some work has ended that holds memory back. Goes on if there is none. */
static enum outcome step_wait(struct climb *climb)
{
    struct arena *arena = climb->heap->arena;
    tarn_status status = TARN_OK;
    bool waited = climb->waits > 0 && wait_for_any(climb->heap, climb->until, &status);
    if (status == TARN_ERROR_NOT_READY)
        return end_unready(climb, "work that holds memory back");
    if (waited)
        climb->waits = climb->waits == SIZE_MAX ? waits_ahead_serving(climb->heap->store) +
                                                      ranges_waits(arena, climb->until)
                                                : climb->waits - 1;
    else {
        bool more = has_more(climb);
        if (climb->endings-- == 0 || !more)
            return ON;
    }
    if (status)
        return end(climb, status);
    if (waited)
        awaited_look(climb->heap->store, MARKS_MOST); /* those that the wait was for */
    climb->since = stillness_begin(arena);
    climb->takings = TAKINGS;
    climb->slabs_collected = false;
    return AGAIN;
}

/* Bytes that can still be created, by the limits and the driver's count. */
static size_t room_of(struct arena *arena, struct store *store)
{
    size_t free_bytes = 0, total_bytes = 0, leave = memory_config()->leave_free;
    if (driver->memory_info(arena->device->number, &free_bytes, &total_bytes))
        free_bytes = arena->device->properties.memory;
    free_bytes = free_bytes > leave ? free_bytes - leave : 0;
    mutex_lock(&arena->lock);
    size_t room = arena->limit > arena->reserved ? arena->limit - arena->reserved : 0;
    size_t own = store->limit > store->reserved ? store->limit - store->reserved : 0;
    mutex_unlock(&arena->lock);
    room = own < room ? own : room;
    return free_bytes < room ? free_bytes : room;
}

/* Step 11, once, if the settings allow it and the request may wait for all work: compaction. If it
 * frees nothing, the climb ends. */
static enum outcome step_compact(struct climb *climb)
{
    struct heap *heap = climb->heap;
    size_t granule = heap->arena->granule, gained = 0;
    if (climb->compacted || climb->until != UNTIL_ENDED || !compact_is_allowed())
        return end(climb, TARN_ERROR_OUT_OF_MEMORY);
    climb->compacted = true;
    climb->endings = ENDINGS;
    size_t room = room_of(heap->arena, heap->store) + granule,
           least = climb->size > room ? climb->size - room : 0;
    if (compact_may_free(heap->store, least))
        (void)compact(heap->arena, heap->store, least, climb->size + climb->alignment + granule,
                      &gained);
    return gained ? AGAIN : end(climb, TARN_ERROR_OUT_OF_MEMORY);
}

/* One round: each step in turn, until one frees memory or ends the climb. */
static enum outcome climb_once(struct climb *climb)
{
    enum outcome outcome = step_own(climb);
    outcome = outcome ? outcome : step_observers(climb);
    outcome = outcome ? outcome : step_growth(climb);
    outcome = outcome ? outcome : step_debug(climb);
    outcome = outcome ? outcome : step_slabs(climb);
    outcome = outcome ? outcome : step_others(climb);
    outcome = outcome ? outcome : step_alone(climb);
    outcome = outcome ? outcome : step_other_zone(climb);
    outcome = outcome ? outcome : step_layer_above(climb);
    outcome = outcome ? outcome : step_wait(climb);
    outcome = outcome ? outcome : step_compact(climb);
    return outcome ? outcome : AGAIN;
}

tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                         uint64_t until, struct span **span)
{
    struct error_before before;
    tarn_status status = observe_refuse_moving("an allocation that no memory at hand serves");
    if (status)
        return status;
    if (ladder_is_hopeless(heap->arena, heap->store, size))
        return reject(heap);
    struct climb climb = {
        .heap = heap,
        .zone = zone,
        .size = size,
        .alignment = alignment,
        .until = until,
        .span = span,
        .takings = TAKINGS,
        .since = stillness_begin(heap->arena),
        .waits = SIZE_MAX,
        .endings = ENDINGS,
    };
    error_attempt_begin(&before);
    while (climb_once(&climb) != OVER)
        ;
    error_attempt_end(&before, climb.status == TARN_ERROR_OUT_OF_MEMORY ? TARN_OK : climb.status);
    return climb.status;
}
