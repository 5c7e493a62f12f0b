/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Suspends and resumes pools. While a pool changes or is suspended, its store is marked: nothing is
 * allocated from it, and no other code maps or unmaps there. The runs of its heaps stay. Only this
 * file, in the thread that changes the state, changes what is mapped in them.
 *
 * A resume first takes free addresses out of the runs, so that only blocks need memory. But graphs
 * write to free addresses too: a pool that a graph holds gets all its memory back. After a resume a
 * run has other pieces, so saved contents are copied. */
#include "base/pages.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/ghost.h"
#include "memory/growth/segment.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/traced.h"
#include "memory/pool/pool.h"
#include "memory/pool/referred.h"
#include "memory/settings/hooks.h"

/* The next of a heap's runs; NULL starts and ends. The lists do not change meanwhile. */
static struct run *next_run(const struct heap *heap, const struct run *run)
{
    if (run && run->next)
        return run->next;
    if (run)
        return run->first->zone == ZONE_SMALL ? heap->zones.of[ZONE_LARGE].runs : NULL;
    return heap->zones.of[ZONE_SMALL].runs ? heap->zones.of[ZONE_SMALL].runs
                                           : heap->zones.of[ZONE_LARGE].runs;
}

/* True for the store of a kept pool. If its contents are saved, its memory stays in place with the
 * owner. If they are discarded, its segments lose their memory one by one (segment.h). */
static bool is_kept(const struct store *store)
{
    return store_has(store, STORE_KEPT);
}

/* Contents ------------------------------------------------------------------------------------- */

/* Allocates host memory for everything that is not free in a heap. */
static tarn_status save_prepare(struct pool *pool, struct heap *heap)
{
    tarn_status status = TARN_OK;
    mutex_lock(&heap->lock);
    for (struct run *run = next_run(heap, NULL); run; run = next_run(heap, run)) {
        const struct span *span = run->first;
        while (span && !status) {
            while (span && span->state == SPAN_FREE)
                span = span->next;
            const struct span *first = span;
            while (span && span->state != SPAN_FREE)
                span = span->next;
            uintptr_t end = span ? span->start : run->end;
            if (first)
                status = contents_add(&pool->contents, first->start, end - first->start);
        }
    }
    mutex_unlock(&heap->lock);
    return status;
}

static tarn_status save_contents(struct pool *pool)
{
    tarn_status status = TARN_OK;
    for (struct heap *heap = heap_next_of(&pool->store, NULL); heap;
         heap = heap_next_of(&pool->store, heap))
        if (!status)
            status = save_prepare(pool, heap);
    if (!status)
        status = contents_copy(&pool->contents, pool->store.arena->device, false);
    if (status && !pool->contents.copies)
        contents_drop(&pool->contents);
    return status;
}

/* Memory --------------------------------------------------------------------------------------- */

/* The first address in a run, from `from` on, that is mapped, or that is not mapped; the run's end
 * if there is none. */
static uintptr_t next_mapped(const struct arena *arena, const struct run *run, uintptr_t from,
                             bool mapped)
{
    while (from < run->end) {
        const struct piece *piece = arena_piece(arena, from);
        if ((piece != NULL) == mapped)
            return from;
        from += piece ? piece->size : arena->granule;
    }
    return run->end;
}

/* Maps memory at the addresses of a run that have none. */
static tarn_status run_fill(struct store *store, struct run *run)
{
    struct arena *arena = store->arena;
    if (is_kept(store))
        return segment_occupy(run);
    for (uintptr_t start = next_mapped(arena, run, run->start, false), end; start < run->end;
         start = next_mapped(arena, run, end, false)) {
        struct piece_list pieces = {0};
        end = next_mapped(arena, run, start, true);
        mutex_lock(&arena->lock);
        size_t largest = store->kind.whole ? end - start : piece_largest_locked(arena);
        mutex_unlock(&arena->lock);
        tarn_status status = pieces_create(store, end - start, largest, CHARGE_RESUME, &pieces);
        if (!status)
            status = pieces_map_claimed(arena, &pieces, start);
        if (status)
            return status;
    }
    /* An earlier attempt may have failed at this step */
    return arena_access(arena, run->start, run->end - run->start);
}

/* A range of addresses whose memory was unmapped, and its pieces, from the highest address down. */
struct taken {
    struct taken *next;
    uintptr_t start;
    struct piece_list pieces;
};

static struct object_pool taken_objects = OBJECT_POOL(struct taken);

/* Unmaps the memory of a run, one range after the other. */
static tarn_status run_empty(struct arena *arena, const struct run *run, struct taken **list)
{
    for (uintptr_t start = next_mapped(arena, run, run->start, true), end; start < run->end;
         start = next_mapped(arena, run, end, true)) {
        struct taken *taken = object_alloc(&taken_objects);
        if (!taken)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to unmap a pool's memory");
        end = next_mapped(arena, run, start, false);
        *taken = (struct taken){.next = *list, .start = start};
        tarn_status status = pieces_unmap(arena, start, end - start, &taken->pieces);
        if (status) {
            object_free(&taken_objects, taken);
            return status;
        }
        *list = taken;
    }
    return TARN_OK;
}

/* The same with every run of a store. */
static tarn_status empty_all(struct store *store, struct taken **list)
{
    tarn_status status = TARN_OK;
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap))
        for (struct run *run = next_run(heap, NULL); run; run = next_run(heap, run))
            if (!status)
                status = is_kept(store) ? segment_vacate(run) : run_empty(store->arena, run, list);
    return status;
}

/* Maps the pieces back at their addresses. Those for which this fails stay unmapped. Returns the
 * first failure. */
static tarn_status put_back(struct arena *arena, struct taken *list)
{
    tarn_status first = TARN_OK;
    for (struct taken *taken = list, *next; taken; taken = next) {
        struct piece_list upwards = {0};
        struct piece *piece;
        next = taken->next;
        while ((piece = pieces_pop(&taken->pieces)))
            pieces_push(&upwards, piece);
        size_t size = upwards.bytes;
        tarn_status status = pieces_map_claimed(arena, &upwards, taken->start);
        if (!status)
            status = arena_access(arena, taken->start, size);
        first = first ? first : status;
        object_free(&taken_objects, taken);
    }
    return first;
}

static void taken_to_unmapped(struct store *store, struct taken *list)
{
    for (struct taken *taken = list, *next; taken; taken = next) {
        next = taken->next;
        pieces_to_unmapped(store->arena, &taken->pieces);
        object_free(&taken_objects, taken);
    }
}

/* Gives the pieces to the driver, and unmaps and gives those that an earlier call failed to unmap.
 * What the driver refuses stays unmapped. */
static tarn_status release_all(struct store *store, struct taken *list)
{
    taken_to_unmapped(store, list);
    tarn_status freed = arena_free_stuck(store->arena), status = store_release_unmapped(store, 0);
    return freed ? freed : status;
}

static tarn_status fill_all(struct store *store)
{
    tarn_status status = TARN_OK;
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap))
        for (struct run *run = next_run(heap, NULL); run; run = next_run(heap, run))
            if (!status)
                status = run_fill(store, run);
    return status;
}

/* Free ranges ---------------------------------------------------------------------------------- */

/* The last whole granules in a row that lie in a free span and have no memory. */
static bool last_hole(const struct arena *arena, const struct span *span, uintptr_t *start,
                      uintptr_t *end)
{
    uintptr_t first = (span->start + arena->granule - 1) / arena->granule * arena->granule;
    uintptr_t at = (span->start + span->size) / arena->granule * arena->granule;
    while (at > first && arena_piece(arena, at - arena->granule))
        at -= arena->granule;
    *end = at;
    while (at > first && !arena_piece(arena, at - arena->granule))
        at -= arena->granule;
    *start = at;
    return *start < *end;
}

/* Takes the granules of a free span that have no memory out of the heap. Drops the contents that
 * they had as blocks, because other heaps may get the addresses at once. A segment of a registrable
 * pool leaves as a whole, or stays. */
static tarn_status span_give_up_locked(struct heap *heap, struct span *span,
                                       struct contents *contents)
{
    uintptr_t start, end;
    while (span && last_hole(heap->arena, span, &start, &end)) {
        size_t size = end - start;
        struct span *rest = start > span->start ? span : NULL;
        if (heap->store->kind.whole && (span->previous || span->next || span->size > size))
            return TARN_OK;
        struct run *spare = run_create();
        tarn_status status =
            spare ? contents_leave_out(contents, start, size) : TARN_ERROR_OUT_OF_HOST_MEMORY;
        if (!status)
            status = span_take_place_locked(heap, span, start, size, &span);
        if (!status) {
            span_leave_locked(heap, span, &spare);
            heap_unclaim_locked(heap, start, size);
        }
        run_destroy(spare);
        if (status)
            return status;
        span = rest;
    }
    return TARN_OK;
}

/* Goes from the end of each run to its start, because the spans behind a range that leaves get
 * another run. */
static tarn_status heap_give_up_free(struct heap *heap, const struct store *store,
                                     struct contents *contents)
{
    tarn_status status = TARN_OK;
    if (is_kept(store)) {
        segments_drop_absent(heap);
        return TARN_OK;
    }
    heap_collect(heap);
    mutex_lock(&heap->lock);
    for (int zone = 0; zone < ZONES && heap->store == store; zone++)
        for (struct run *run = heap->zones.of[zone].runs, *next; run; run = next) {
            next = run->next;
            for (struct span *span = run->last, *before; span && !status; span = before) {
                before = span->previous;
                if (span->state == SPAN_FREE)
                    status = span_give_up_locked(heap, span, contents);
            }
        }
    mutex_unlock(&heap->lock);
    return status;
}

/* Gives up free addresses of a suspended pool, which need no memory, unless graphs may write to
 * them. */
static tarn_status give_up_free(struct pool *pool)
{
    struct store *store = &pool->store;
    tarn_status status = TARN_OK;
    if (atomic_load(&store->holds))
        return TARN_OK;
    for (struct heap *heap = heap_next_of(store, NULL); heap && !status;
         heap = heap_next_of(store, heap))
        status = heap_give_up_free(heap, store, &pool->contents);
    return status;
}

/* The states ----------------------------------------------------------------------------------- */

static const char *state_text(int state)
{
    static const char *const texts[] = {
        [TARN_POOL_RUNS] = "runs",
        [TARN_POOL_CHANGES] = "is being suspended or resumed by another thread",
        [TARN_POOL_SAVED] = "is suspended",
        [TARN_POOL_DISCARDED] = "is suspended",
    };
    return texts[state];
}

/* Begins a change from one of two states. */
static tarn_status change_begin(struct pool *pool, int from, int or_from, const char *what,
                                int *before)
{
    *before = from;
    if (atomic_compare_exchange_strong(&pool->state, before, TARN_POOL_CHANGES))
        return TARN_OK;
    if (*before == or_from &&
        atomic_compare_exchange_strong(&pool->state, before, TARN_POOL_CHANGES))
        return TARN_OK;
    return failed(TARN_ERROR_SUSPENDED, "%s: pool (%llu, %llu) %s", what,
                  (unsigned long long)pool->store.id[0], (unsigned long long)pool->store.id[1],
                  state_text(*before));
}

/* Begins a suspend. The free memory of a kept pool goes now, since the rest stays. While a pool is
 * being adopted, its sealed blocks may still be free memory. */
static tarn_status suspend_begin(struct pool *pool, const char *what)
{
    struct store *store = &pool->store;
    int before = 0;
    tarn_status status = TARN_OK;
    if (atomic_load(&pool->unready))
        return failed(TARN_ERROR_BUSY, "%s: pool (%llu, %llu) is being adopted", what,
                      (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
    if (is_kept(store) && atomic_load(&pool->state) == TARN_POOL_RUNS)
        status = hooks.trim(store->arena, store, 0);
    if (!status)
        status = change_begin(pool, TARN_POOL_RUNS, TARN_POOL_RUNS, what, &before);
    if (status || !is_kept(store))
        return status;
    status = hooks.keep_refuse_suspend(store, what);
    if (status)
        atomic_store(&pool->state, TARN_POOL_RUNS);
    return status;
}

/* Stops a store: from here on nothing is allocated from it, and nothing is mapped or unmapped in
 * it. store_check() explains the memory order. */
static void stop(struct store *store)
{
    atomic_store(&store->suspended, true);
    moves_flush(store->arena);
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        caches_close_locked(heap);
        heap_changed_locked(heap);
        mutex_unlock(&heap->lock);
    }
    atomic_fetch_add(&referred_changes, 1);
}

static void go_on(struct store *store)
{
    atomic_store(&store->suspended, false);
    atomic_fetch_add(&referred_changes, 1);
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        if (!heap_is_left_behind_locked(heap))
            caches_open_locked(heap);
        heap_changed_locked(heap); /* after a resume other pieces may be there */
        mutex_unlock(&heap->lock);
    }
}

/* Waits for the work of other streams on live blocks of a heap. */
static tarn_status wait_for_users(struct heap *heap)
{
    struct use *users = NULL;
    mutex_lock(&heap->lock);
    tarn_status status = uses_sum_locked(heap, &users);
    mutex_unlock(&heap->lock);
    tarn_status waited = uses_wait(heap->arena, users);
    return status ? status : waited;
}

/* The stream of a heap of the store. False: another store has the heap by now, since heaps that
 * nobody uses are reused. */
static bool stream_of(struct heap *heap, const struct store *store, struct stream **stream,
                      unsigned *incarnation)
{
    mutex_lock(&heap->lock);
    bool is_of_store = heap->store == store;
    *stream = heap->stream;
    *incarnation = heap->incarnation;
    mutex_unlock(&heap->lock);
    return is_of_store;
}

/* Waits for the work of a heap's stream. For a found stream, waits for the device and sets
 * `waited`. */
static tarn_status wait_for_stream(struct heap *heap, const struct store *store, bool *waited)
{
    struct stream *stream;
    unsigned incarnation;
    struct mark *mark = NULL;
    if (!stream_of(heap, store, &stream, &incarnation))
        return TARN_OK;
    tarn_status status = mark_of_stream(stream, incarnation, &mark);
    if (!status && mark) {
        bool is_of_device = mark_is_of_device(mark);
        status = mark_wait(mark);
        *waited = *waited || (is_of_device && !status);
    }
    mark_release(mark);
    return status;
}

/* Waits for work that may use the store's memory. A wait for the device asks all its streams, so a
 * call makes it once for all pools of the device: `waited` says whether it was made. Streams of
 * other devices may use blocks, too. */
static tarn_status wait_for_work(struct store *store, bool *waited)
{
    struct arena *arena = store->arena;
    tarn_status status = heaps_settle(arena, store);
    debug_settles(store);
    if (!status && !*waited && atomic_load(&store->holds)) {
        /* a graph may be launched on any stream */
        status = device_wait(arena->device, "a wait for the work of graphs");
        *waited = !status;
    }
    for (struct heap *heap = heap_next_of(store, NULL); heap && !status;
         heap = heap_next_of(store, heap)) {
        status = *waited ? TARN_OK : wait_for_stream(heap, store, waited);
        if (!status)
            status = wait_for_users(heap);
    }
    return status;
}

/* Refuses to suspend while a stream captures, before anything changes. */
static tarn_status refuse_shown(struct store *store)
{
    tarn_status status = TARN_OK;
    struct stream *stream;
    unsigned incarnation;
    for (struct heap *heap = heap_next_of(store, NULL); heap && !status;
         heap = heap_next_of(store, heap))
        if (stream_of(heap, store, &stream, &incarnation) && !stream_is_found(stream) &&
            !stream_is_foreign(stream))
            status = stream_refuse_shown(stream, incarnation, "a suspend");
    return status;
}

/* Unmaps old addresses (ghosts) at which the store's memory is also mapped. All are idle: none has
 * begun since the store was stopped, and the work of each heap's stream was waited for. The driver
 * is not asked, because an event recorded now may come after work that other threads have queued
 * meanwhile. Memory must not be released while it is mapped at an old address. */
static tarn_status end_ghosts(struct store *store)
{
    tarn_status status = TARN_OK;
    for (struct heap *heap = heap_next_of(store, NULL); heap && !status;
         heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        struct ghost *ghosts = ghosts_take_all_locked(heap);
        mutex_unlock(&heap->lock);
        status = ghosts_end(heap, ghosts);
    }
    return status;
}

/* The address of anchored memory of a run, or NULL. */
static void *anchored_in(const struct arena *arena, const struct run *run)
{
    if (run->store && is_kept(run->store))
        return atomic_load(&run->anchors) ? (void *)run->start : NULL;
    for (uintptr_t at = run->start; at < run->end; at += arena_piece(arena, at)->size)
        if (piece_is_anchored(arena_piece(arena, at)))
            return (void *)at;
    return NULL;
}

/* Refuses if other code, in this process or another, may use anchored memory. The store is
 * suspended already, so no anchor is added. */
static tarn_status refuse_anchored(struct store *store)
{
    void *anchored = NULL;
    for (struct heap *heap = heap_next_of(store, NULL); heap && !anchored;
         heap = heap_next_of(store, heap))
        for (struct run *run = next_run(heap, NULL); run && !anchored; run = next_run(heap, run))
            anchored = anchored_in(store->arena, run);
    if (!anchored)
        return TARN_OK;
    return failed(TARN_ERROR_BUSY,
                  "memory of pool (%llu, %llu) at %p is anchored or exported: it cannot be "
                  "suspended before tarn_unanchor() "
                  "or tarn_share_close()",
                  (unsigned long long)store->id[0], (unsigned long long)store->id[1], anchored);
}

/* The states in which a change may end. */
struct change {
    int state;
    tarn_status status;
};

static struct change in_part(const struct pool *pool, bool save, tarn_status status)
{
    return (struct change){
        save ? TARN_POOL_SAVED : TARN_POOL_DISCARDED,
        failed_within(status, "pool (%llu, %llu) is suspended in part: resume it",
                      (unsigned long long)pool->store.id[0], (unsigned long long)pool->store.id[1]),
    };
}

/* Waits for the work of a store that was stopped. */
static tarn_status wait_for_all(struct store *store, bool *waited)
{
    tarn_status status = wait_for_work(store, waited);
    if (status == TARN_ERROR_CAPTURE)
        status = failed(status,
                        "a suspend: a stream captures whose work pool (%llu, %llu) waits for; "
                        "first end the capture",
                        (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
    if (!status)
        status = hooks.ranges_leave(store);
    return status ? status : end_ghosts(store);
}

/* Does everything that comes before memory is unmapped. */
static tarn_status get_ready(struct pool *pool, bool save, bool *waited)
{
    tarn_status status = wait_for_all(&pool->store, waited);
    return !status && save && !is_kept(&pool->store) ? save_contents(pool) : status;
}

/* Suspends a kept pool whose work has ended. With `save` its memory stays with the owner. Without,
 * the pool gives up all seals, and then segment by segment, up to the first that the driver refuses
 * to unmap. That one and those not yet given up keep their memory and count as reserved; the pool
 * is TARN_POOL_DISCARDED all the same, in part. */
static struct change suspended_kept(struct pool *pool, bool save)
{
    struct taken *none = NULL;
    if (save)
        return (struct change){TARN_POOL_SAVED, TARN_OK};
    hooks.keep_forget_all(&pool->store);
    tarn_status status = empty_all(&pool->store, &none);
    return status ? in_part(pool, save, status) : (struct change){TARN_POOL_DISCARDED, TARN_OK};
}

static struct change suspend(struct pool *pool, bool save)
{
    struct store *store = &pool->store;
    struct taken *taken = NULL;
    bool waited = false;
    tarn_status status = refuse_anchored(store);
    if (!status)
        status = get_ready(pool, save, &waited);
    if (status && pool->contents.copies)
        return in_part(pool, save, status);
    if (status)
        return (struct change){TARN_POOL_RUNS, status};
    if (is_kept(store))
        return suspended_kept(pool, save);

    status = empty_all(store, &taken);
    if (!status)
        return (struct change){save ? TARN_POOL_SAVED : TARN_POOL_DISCARDED,
                               release_all(store, taken)};
    struct error_before before;
    error_attempt_begin(&before);
    bool undone = put_back(store->arena, taken) == TARN_OK;
    error_attempt_end(&before, TARN_OK);
    if (!undone)
        return in_part(pool, save, status);
    contents_drop(&pool->contents);
    return (struct change){TARN_POOL_RUNS, status};
}

/* Ends a change: the pool runs again, or is suspended. Discarded contents have no red zones. */
static tarn_status change_end(struct pool *pool, struct change change)
{
    if (change.state == TARN_POOL_DISCARDED && debug_has(DEBUG_CONTENTS))
        hooks.debug_forget(&pool->store);
    if (change.state == TARN_POOL_RUNS)
        go_on(&pool->store);
    atomic_store(&pool->state, change.state);
    return change.status;
}

/* In two steps --------------------------------------------------------------------------------- */

/* Other threads see a prepared pool as one that another thread is suspending. */
tarn_status pool_sleep_prepare(struct pool *pool, bool save, bool anchored_too, bool *waited)
{
    tarn_status status = suspend_begin(pool, "a sleep");
    if (status)
        return status;
    debug_settles(&pool->store);
    stop(&pool->store);
    if (!anchored_too)
        status = refuse_anchored(&pool->store);
    if (!status)
        status = get_ready(pool, save, waited);
    if (!status) {
        pool->prepared = true;
        pool->saves_contents = save;
        return TARN_OK;
    }
    if (pool->contents.copies)
        return change_end(pool, in_part(pool, save, status));
    contents_drop(&pool->contents);
    return change_end(pool, (struct change){TARN_POOL_RUNS, status});
}

void pool_sleep_cancel(struct pool *pool)
{
    pool->prepared = false;
    contents_drop(&pool->contents);
    (void)change_end(pool, (struct change){TARN_POOL_RUNS, TARN_OK});
}

tarn_status pool_sleep_refuse_anchored(struct pool *pool)
{
    return refuse_anchored(&pool->store);
}

tarn_status pool_sleep_put_back(struct pool *pool)
{
    tarn_status status = put_back(pool->store.arena, pool->taken);
    pool->taken = NULL;
    if (!status)
        return TARN_OK;
    pool->prepared = false;
    return change_end(pool, in_part(pool, pool->saves_contents, status));
}

tarn_status pool_sleep_unmap(struct pool *pool, bool *waited)
{
    tarn_status status = wait_for_all(&pool->store, waited);
    if (!status && !is_kept(&pool->store))
        status = empty_all(&pool->store, &pool->taken);
    if (!status || !pool->taken)
        return status;
    struct error_before before;
    error_attempt_begin(&before);
    (void)pool_sleep_put_back(pool);
    error_attempt_end(&before, TARN_OK);
    return status;
}

tarn_status pool_sleep_release(struct pool *pool)
{
    struct taken *taken = pool->taken;
    pool->taken = NULL;
    pool->prepared = false;
    struct change change = {pool->saves_contents ? TARN_POOL_SAVED : TARN_POOL_DISCARDED, TARN_OK};
    if (is_kept(&pool->store))
        change = suspended_kept(pool, pool->saves_contents);
    else
        change.status = release_all(&pool->store, taken);
    trace_store(TRACE_suspend, &pool->store, pool->saves_contents);
    return change_end(pool, change);
}

/* The calls ------------------------------------------------------------------------------------ */

tarn_status tarn_pool_suspend(tarn_pool *public, bool save)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = pool_check(public);
    if (!status && !pool_suspends(pool))
        status = failed(TARN_ERROR_NOT_SUPPORTED,
                        "the pool has plain segments, whose addresses are tied to their memory");
    if (!status)
        status = observe_refuse_moving("a suspend");
    if (!status)
        status = captures_bar(pool->store.arena->device, "a suspend");
    if (status)
        return status;
    status = refuse_shown(&pool->store);
    if (!status)
        status = suspend_begin(pool, "a suspend");
    if (!status) {
        debug_settles(&pool->store); /* while the pool's memory can still be read */
        stop(&pool->store);
        status = change_end(pool, suspend(pool, save));
        if (!status)
            trace_store(TRACE_suspend, &pool->store, save);
    }
    captures_unbar(pool->store.arena->device);
    return status;
}

static size_t bytes_absent(struct store *store)
{
    size_t bytes = 0;
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap))
        for (struct run *run = next_run(heap, NULL); run; run = next_run(heap, run))
            bytes += run->absent ? run->end - run->start : 0;
    return bytes;
}

/* Bytes that a suspended store needs to resume. */
static size_t bytes_missing(struct store *store)
{
    size_t bytes = 0;
    if (is_kept(store))
        return bytes_absent(store);
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap))
        for (struct run *run = next_run(heap, NULL); run; run = next_run(heap, run))
            for (uintptr_t start = next_mapped(store->arena, run, run->start, false), end;
                 start < run->end; start = next_mapped(store->arena, run, end, false)) {
                end = next_mapped(store->arena, run, start, true);
                bytes += end - start;
            }
    return bytes;
}

/* Maps memory at all addresses. If necessary, first gives idle memory of other pools back to the
 * driver. */
static tarn_status fill_or_make_room(struct store *store)
{
    struct arena *arena = store->arena;
    tarn_status status = fill_all(store);
    if (status != TARN_ERROR_OUT_OF_MEMORY)
        return status;
    struct error_before before;
    error_attempt_begin(&before);
    /* Pieces that the driver refused when the pool was suspended. */
    (void)store_release_unmapped(store, 0);
    error_attempt_end(&before, TARN_OK);
    size_t missing = bytes_missing(store);
    mutex_lock(&arena->lock);
    size_t keep = arena->reserved > missing ? arena->reserved - missing : 0;
    mutex_unlock(&arena->lock);
    hooks.make_room(arena, keep);
    return fill_all(store);
}

static struct change resume(struct pool *pool, int before)
{
    struct store *store = &pool->store;
    struct taken *taken = NULL;
    /* The suspend got no further: only the memory that still exists has the contents. */
    bool whole = pool->contents.copies == COPIES_OUT;
    if (is_kept(store) && before == TARN_POOL_SAVED)
        return (struct change){TARN_POOL_RUNS, TARN_OK};
    tarn_status status = contents_settle(&pool->contents, store->arena->device);
    if (whole)
        return (struct change){status ? before : TARN_POOL_RUNS, status};
    if (!status)
        status = give_up_free(pool);
    if (!status)
        status = fill_or_make_room(store);
    if (!status)
        status = contents_copy(&pool->contents, store->arena->device, true);
    if (!status) {
        contents_drop(&pool->contents);
        return (struct change){TARN_POOL_RUNS, TARN_OK};
    }
    if (pool->contents.copies)
        return (struct change){before, status};
    struct error_before cause;
    error_attempt_begin(&cause);
    (void)empty_all(store, &taken); /* memory that stays mapped is used by the next attempt */
    (void)release_all(store, taken);
    error_attempt_end(&cause, TARN_OK);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        hooks.refuse_resume(store, bytes_missing(store));
    return (struct change){before, status};
}

tarn_status tarn_pool_resume(tarn_pool *public)
{
    struct pool *pool = pool_of_public(public);
    int before = 0;
    tarn_status status = pool_check(public);
    if (!status)
        status = observe_refuse_moving("a resume");
    if (!status)
        status = device_check(pool->store.arena->device);
    if (!status)
        status = captures_bar(pool->store.arena->device, "a resume");
    if (status)
        return status;
    status = change_begin(pool, TARN_POOL_SAVED, TARN_POOL_DISCARDED, "a resume", &before);
    if (!status)
        status = change_end(pool, resume(pool, before));
    if (!status)
        trace_store(TRACE_resume, &pool->store, 0);
    captures_unbar(pool->store.arena->device);
    return status;
}

/* A run without memory and without live blocks, or NULL. */
static struct run *empty_run_locked(struct heap *heap)
{
    for (struct run *run = next_run(heap, NULL); run; run = next_run(heap, run))
        if (run->first == run->last && run->first->state == SPAN_FREE &&
            next_mapped(heap->arena, run, run->start, true) == run->end)
            return run;
    return NULL;
}

/* Gets the right to change a suspended pool; false if it runs, or another thread is changing it. */
static bool suspended_begin(struct pool *pool, int *state)
{
    *state = TARN_POOL_DISCARDED;
    if (atomic_compare_exchange_strong(&pool->state, state, TARN_POOL_CHANGES))
        return true;
    return *state == TARN_POOL_SAVED &&
           atomic_compare_exchange_strong(&pool->state, state, TARN_POOL_CHANGES);
}

void pool_suspension_complete(struct pool *pool)
{
    struct taken *taken = NULL;
    int state;
    if (is_kept(&pool->store) || !suspended_begin(pool, &state))
        return;
    if (contents_are_settled(&pool->contents, pool->store.arena->device))
        (void)empty_all(&pool->store, &taken);
    taken_to_unmapped(&pool->store, taken);
    atomic_store(&pool->state, state);
}

/* A kept pool whose segments all have memory runs again, so that what is free goes back. */
static void kept_suspension_end(struct pool *pool, int state)
{
    struct store *store = &pool->store;
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap))
        segments_drop_absent(heap);
    if (bytes_absent(store) == 0)
        (void)change_end(pool, (struct change){TARN_POOL_RUNS, TARN_OK});
    else
        atomic_store(&pool->state, state);
}

bool pool_suspension_end(struct pool *pool)
{
    int state;
    if (!suspended_begin(pool, &state))
        return state == TARN_POOL_RUNS;
    if (is_kept(&pool->store)) {
        kept_suspension_end(pool, state);
        return true;
    }
    if (!contents_are_settled(&pool->contents, pool->store.arena->device)) {
        atomic_store(&pool->state, state);
        return false;
    }
    contents_drop(&pool->contents);
    for (struct heap *heap = heap_next_of(&pool->store, NULL); heap;
         heap = heap_next_of(&pool->store, heap)) {
        struct run *run, *spare = NULL;
        mutex_lock(&heap->lock);
        (void)wait_collect_locked(heap);
        while ((run = empty_run_locked(heap))) {
            struct span *span = run->first;
            uintptr_t start = run->start, end = run->end;
            span_remove_locked(heap, span);
            span_leave_locked(heap, span, &spare);
            heap_unclaim_locked(heap, start, end - start);
        }
        mutex_unlock(&heap->lock);
    }
    atomic_store(&pool->state, state);
    return true;
}
