/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Gives idle memory back to the driver. Owns no data. Holds each lock only briefly. */
#include "memory/pressure/trim.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/ghost.h"
#include "memory/growth/growth.h"
#include "memory/growth/segment.h"
#include "memory/heap/idle/wait.h"
#include "memory/pool/pool.h"
#include "memory/pressure/ladder.h"
#include "memory/range/range.h"
#include "memory/settings/hooks.h"

/* Bytes that a store has reserved; with NULL, the device. */
static size_t bytes_of(struct arena *arena, struct store *store)
{
    mutex_lock(&arena->lock);
    size_t bytes = store ? store->reserved : arena->reserved;
    mutex_unlock(&arena->lock);
    return bytes;
}

static void begin(struct arena *arena, bool alone)
{
    if (alone)
        move_begin_alone(arena);
    else
        move_begin(arena);
}

static tarn_status release_unmapped(struct store *store, size_t keep, bool alone)
{
    begin(store->arena, alone);
    tarn_status status = store_release_unmapped(store, keep);
    move_end(store->arena);
    return status;
}

/* How many bytes one store may keep, so that all trimmed stores together keep `keep`. */
static size_t share_of(struct arena *arena, struct store *store, struct store *trimmed, size_t keep)
{
    size_t own = bytes_of(arena, store), all = bytes_of(arena, trimmed),
           excess = all > keep ? all - keep : 0;
    return own > excess ? own - excess : 0;
}

/* The next heap of the trimmed stores; NULL starts and ends. */
static struct heap *next_heap(struct arena *arena, struct store *trimmed, struct heap *heap)
{
    return trimmed ? heap_next_of(trimmed, heap) : heap_next_serving(&arena->store, heap);
}

/* Ends idle ghosts that the driver refused to unmap before. The pieces that were mapped there may
 * be in another heap now. */
static tarn_status end_ghosts(struct arena *arena, struct store *trimmed, bool alone)
{
    tarn_status first = TARN_OK;
    begin(arena, alone);
    for (struct heap *heap = next_heap(arena, trimmed, NULL); heap;
         heap = next_heap(arena, trimmed, heap)) {
        mutex_lock(&heap->lock);
        bool is = trimmed ? heap->store == trimmed : store_serves(heap->store, &arena->store);
        struct ghost *ghosts = is ? ghosts_take_locked(heap) : NULL;
        mutex_unlock(&heap->lock);
        tarn_status status = ghosts_end(heap, ghosts);
        first = first ? first : status;
    }
    move_end(arena);
    return first;
}

/* The same for pages of ranges that are decommitted and idle. */
static tarn_status trim_ranges(struct arena *arena, struct store *store, size_t keep, bool alone)
{
    size_t now = bytes_of(arena, store);
    if (now <= keep || !ranges_any())
        return TARN_OK;
    begin(arena, alone);
    tarn_status first = ranges_trim(arena, store, now - keep);
    struct store *own = store ? store : &arena->store;
    tarn_status status = store_release_unmapped(own, share_of(arena, own, store, keep));
    move_end(arena);
    return first ? first : status;
}

/* One pass over the heaps of a store; with NULL, of the default pool and of what was left behind:
 * unmaps and releases idle memory, down to `keep`. With `alone`, no other thread moves memory
 * during each step. */
static tarn_status trim_pass(struct arena *arena, struct store *store, size_t keep, bool alone)
{
    struct store *first_store = store ? store : &arena->store;
    uint64_t let_go = 0;
    if (bytes_of(arena, store) > keep)
        (void)debug_relieves(arena, &let_go);
    tarn_status first = arena_free_stuck(arena);
    tarn_status status = segments_free_stuck(arena);
    first = first ? first : status;
    status = end_ghosts(arena, store, alone);
    first = first ? first : status;
    status = release_unmapped(first_store, share_of(arena, first_store, store, keep), alone);
    first = first ? first : status;
    for (struct heap *heap = next_heap(arena, store, NULL); heap && bytes_of(arena, store) > keep;
         heap = next_heap(arena, store, heap)) {
        struct run *leaving = NULL;
        size_t given = 0;
        begin(arena, alone);
        struct store *own = heap_store(heap);
        if (store ? own == store : store_serves(own, &arena->store)) {
            if (atomic_load(&own->suspended) && atomic_load(&own->left_behind))
                pool_suspension_complete(pool_of_store(own));
            heap_collect(heap);
            size_t now = bytes_of(arena, store);
            status = now > keep ? heap_shed(heap, own, now - keep, &given, &leaving) : TARN_OK;
            first = first ? first : status;
            status = store_release_unmapped(own, share_of(arena, own, store, keep));
            first = first ? first : status;
        }
        move_end(arena);
        status = segments_release(leaving);
        first = first ? first : status;
    }
    status = trim_ranges(arena, store, keep, alone);
    return first ? first : status;
}

void trim_without_waiting(struct arena *arena, struct store *store)
{
    struct error_before before;
    error_attempt_begin(&before);
    /* In a callback, the next trim does it. */
    if (observe_refuse_moving("giving a pool's memory back") == TARN_OK)
        (void)trim_pass(arena, store, 0, false);
    error_attempt_end(&before, TARN_OK);
}

/* One pass. If the pass fails while other threads move memory, makes a second pass: another thread
 * may have been unmapping old addresses of a piece that the first pass wanted to release. */
static tarn_status trim_pass_settled(struct arena *arena, struct store *store, size_t keep)
{
    struct stillness since = stillness_begin(arena);
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = trim_pass(arena, store, keep, false);
    if (status && !was_still(arena, &since))
        status = trim_pass(arena, store, keep, true);
    error_attempt_end(&before, status);
    return status;
}

/* Waits until some work has ended that holds memory of the trimmed stores back. False: there is
 * none. */
static bool wait_for_any(struct arena *arena, struct store *trimmed, tarn_status *status)
{
    struct wait_any any = {.count = 0};
    for (struct heap *heap = next_heap(arena, trimmed, NULL); heap && !any.ended;
         heap = next_heap(arena, trimmed, heap))
        if (trimmed ? heap_store(heap) == trimmed : heap_serves(heap, &arena->store))
            wait_any_add(&any, heap);
    ranges_wait_add(&any, arena, trimmed, false, UNTIL_ENDED);
    return wait_any(&any, arena, UNTIL_ENDED, status);
}

/* Whether at most `keep` bytes remain. With `keep` 0 also waits until suspended pools that were
 * left behind, which have no memory, are destroyed, because no other code would. */
static bool is_enough(struct arena *arena, struct store *store, size_t keep)
{
    return bytes_of(arena, store) <= keep && (keep || store || !atomic_load(&arena->pools.waiting));
}

/* Passes and waits, until at most `keep` bytes remain or nothing is left to wait for. */
static tarn_status trim_waiting(struct arena *arena, struct store *store, size_t keep)
{
    uint64_t let_go = 0;
    /* Waits only for work that is queued now. */
    for (size_t waits = waits_ahead(arena, store) + ranges_waits(arena, UNTIL_ENDED);; waits--) {
        tarn_status status = trim_pass_settled(arena, store, keep);
        if (status || is_enough(arena, store, keep) || waits == 0)
            return status;
        bool more = wait_for_any(arena, store, &status);
        /* Work may have ended since the pass looked at debug mode's blocks. Then nothing is left to
         * wait for, but blocks are left to free. */
        if (status || (!more && !debug_relieves(arena, &let_go)))
            return status;
    }
}

tarn_status trim(struct arena *arena, struct store *store, size_t keep)
{
    tarn_status status = observe_refuse_moving("a trim");
    if (status || store)
        return status ? status : trim_waiting(arena, store, keep);
    /* A pool's last graph or scope may have ended in a thread that could not destroy it. */
    pools_collect_all(arena);
    status = trim_waiting(arena, NULL, keep);
    pools_collect_all(arena);
    return status;
}

void trim_make_room(struct arena *arena, size_t keep)
{
    (void)ladder_relieve(arena);
    (void)trim(arena, NULL, keep);
}
