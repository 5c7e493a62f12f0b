/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table from streams to heaps in each pool. Creates heaps, ends them with their stream or
 * pool, and reuses them. A heap is never destroyed: an empty one is reused, with the caches that
 * threads have for it. `heaps_lock` protects the table, the lists of streams, and the queue of
 * unused heaps. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/cache.h"
#include "memory/heap/heap.h"
#include "memory/heap/parked.h"
#include "memory/heap/traced.h"
#include "memory/settings/hooks.h"

#include <string.h>

static struct object_pool heaps = OBJECT_POOL(struct heap);

static struct heap *heap_create(struct arena *arena)
{
    static atomic_uint numbers;
    struct heap *heap = object_alloc(&heaps);
    if (!heap) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a heap");
        return NULL;
    }
    mutex_init(&heap->lock, LOCK_HEAP);
    mutex_init(&heap->caches.lock, LOCK_LEAF);
    atomic_init(&heap->caches.resting, true);
    heap->arena = arena;
    heap->number = atomic_fetch_add(&numbers, 1);
    return heap;
}

struct heap *heap_next(struct arena *arena, struct heap *heap)
{
    mutex_lock(&arena->lock);
    struct heap *next = heap ? heap->lists.next : arena->heaps.all;
    mutex_unlock(&arena->lock);
    return next;
}

struct store *heap_store(struct heap *heap)
{
    mutex_lock(&heap->lock);
    struct store *store = heap->store;
    mutex_unlock(&heap->lock);
    return store;
}

bool heap_serves(struct heap *heap, const struct store *wanting)
{
    mutex_lock(&heap->lock); /* keeps its store alive */
    bool serves = store_serves(heap->store, wanting);
    mutex_unlock(&heap->lock);
    return serves;
}

bool heap_is_left_behind_locked(const struct heap *heap)
{
    return heap->retired || atomic_load_explicit(&heap->store->left_behind, memory_order_relaxed);
}

/* Whether the heap has no runs, no ghosts, and no batch that may not be idle. Queries marks. */
static bool heap_is_empty_locked(struct heap *heap)
{
    return batches_are_idle_locked(heap) && !zones_have_runs(&heap->zones) && !heap->ghosts;
}

/* The queue of retired heaps. Those that are empty are reused. heaps_lock. */
static void unused_push_locked(struct heap *heap)
{
    struct arena_heaps *of = &heap->arena->heaps;
    heap->lists.next_unused = NULL;
    *(of->unused_last ? &of->unused_last->lists.next_unused : &of->unused_first) = heap;
    of->unused_last = heap;
}

static struct heap *unused_pop_locked(struct arena_heaps *of)
{
    struct heap *heap = of->unused_first;
    of->unused_first = heap->lists.next_unused;
    if (!of->unused_first)
        of->unused_last = NULL;
    return heap;
}

/* An empty heap that no code can reach, to be reused; NULL if there is none. Threads may have
 * caches for it; these are empty, and serve the same threads again. Looks at no more than 8 heaps,
 * in turn: many may have blocks that were never freed. heaps_lock. */
static struct heap *heap_unused_locked(struct arena_heaps *of)
{
    const struct heap *last = of->unused_last;
    for (int looks = 8; looks > 0 && of->unused_first; looks--) {
        struct heap *heap = unused_pop_locked(of);
        mutex_lock(&heap->lock);
        bool unused = heap_is_empty_locked(heap);
        mutex_unlock(&heap->lock);
        if (unused)
            return heap;
        unused_push_locked(heap);
        if (heap == last)
            break;
    }
    return NULL;
}

/* The list of a stream's heaps. heaps_lock. */
static void stream_enter_locked(struct heap *heap)
{
    struct heap *next = heap->stream->heaps;
    heap->lists.previous_of_stream = NULL;
    heap->lists.next_of_stream = next;
    if (next)
        next->lists.previous_of_stream = heap;
    heap->stream->heaps = heap;
}

static void stream_leave_locked(struct heap *heap)
{
    struct heap *next = heap->lists.next_of_stream, *previous = heap->lists.previous_of_stream;
    if (next)
        next->lists.previous_of_stream = previous;
    if (previous)
        previous->lists.next_of_stream = next;
    else
        heap->stream->heaps = next;
}

static void count_retired(struct arena *arena, int change)
{
    mutex_lock(&arena->lock);
    arena->heaps.retired += (unsigned)change;
    mutex_unlock(&arena->lock);
}

/* Taken before the locks of heaps and arenas. */
static mutex heaps_lock = MUTEX_INITIALIZER(LOCK_HEAPS);

/* The default pool keeps its heap in the stream, any other pool in a table by the stream's slot. */
struct heap *heap_if_used(struct store *store, struct stream *stream)
{
    struct heap *heap = NULL;
    if (store == &store->arena->store)
        return atomic_load_explicit(&stream->heap, memory_order_acquire);
    mutex_lock(&store->heaps.lookup);
    if (stream->slot < store->heaps.slots)
        heap = store->heaps.of[stream->slot];
    mutex_unlock(&store->heaps.lookup);
    return heap;
}

/* Makes room for heap_enter() in the table. */
static tarn_status heap_enter_prepare(struct store *store, const struct stream *stream)
{
    unsigned slots = store->heaps.slots ? store->heaps.slots : 8;
    if (store == &store->arena->store || stream->slot < store->heaps.slots)
        return TARN_OK;
    while (slots <= stream->slot)
        slots *= 2;
    struct heap **table = pages_alloc(slots * sizeof *table);
    if (!table)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a pool's table of heaps");
    mutex_lock(&store->heaps.lookup);
    struct heap **before = store->heaps.of;
    size_t bytes = store->heaps.slots * sizeof *table;
    if (before)
        memcpy(table, before, bytes);
    store->heaps.of = table;
    store->heaps.slots = slots;
    mutex_unlock(&store->heaps.lookup);
    pages_free(before, bytes);
    return TARN_OK;
}

static void heap_enter(struct store *store, struct stream *stream, struct heap *heap)
{
    if (store == &store->arena->store) {
        atomic_store_explicit(&stream->heap, heap, memory_order_release);
        return;
    }
    mutex_lock(&store->heaps.lookup);
    store->heaps.of[stream->slot] = heap;
    mutex_unlock(&store->heaps.lookup);
}

static tarn_status heap_make_locked(struct store *store, struct stream *stream,
                                    struct heap **result)
{
    struct arena *arena = store->arena;
    tarn_status status = heap_enter_prepare(store, stream);
    if (status)
        return status;
    struct heap *heap = heap_unused_locked(&arena->heaps);
    bool fresh = !heap;
    if (fresh) {
        heap = heap_create(arena);
        if (!heap)
            return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }

    /* A request that was in progress when the store was left behind may still create a heap. */
    bool left_behind = atomic_load(&store->left_behind);
    if (fresh ? left_behind : !left_behind)
        count_retired(arena, left_behind ? 1 : -1);
    mutex_lock(&heap->lock);
    if (!fresh) {
        counters_keep_splits(heap->store->counters, &heap->zones.splits);
        counters_part_close(&heap->parked.part);
        hands_counters_close(&heap->hands);
        heap_sum_end_locked(heap);
        heap->sets.known = 0;
    }
    heap->store = store;
    zones_init(&heap->zones, store->kind.fixed);
    heap->stream = stream;
    heap->incarnation = atomic_load(&stream->incarnation);
    trace_place_drop(atomic_exchange(&heap->place, 0));
    heap->retired = false;
    batches_begin_locked(heap);
    heap->rest = (struct rest){0};
    heap->growths = (struct growths){0};
    heap->growths.saves = false;
    heap->sets.news = 0;
    if (!left_behind)
        caches_open_locked(heap);
    heap_sets_update_locked(heap, false);
    mutex_unlock(&heap->lock);
    stream_enter_locked(heap);
    if (fresh) {
        mutex_lock(&arena->lock);
        heap->lists.next = arena->heaps.all;
        arena->heaps.all = heap;
        mutex_unlock(&arena->lock);
    }
    heap_enter(store, stream, heap);
    *result = heap;
    return TARN_OK;
}

tarn_status heap_of(struct store *store, struct stream *stream, struct heap **heap)
{
    *heap = heap_if_used(store, stream);
    if (*heap)
        return TARN_OK;
    tarn_status status = TARN_OK;
    mutex_lock(&heaps_lock);
    *heap = heap_if_used(store, stream);
    if (!*heap)
        status = heap_make_locked(store, stream, heap);
    mutex_unlock(&heaps_lock);
    return status;
}

/* The part of a retirement that cannot fail. batches_end_prepare_locked() has recorded the last
 * mark. */
static void retire_locked(struct heap *heap)
{
    batches_end_locked(heap);
    if (!heap_is_left_behind_locked(heap)) {
        count_retired(heap->arena, 1);
        caches_close_locked(heap);
    }
    heap->retired = true;
    hooks.plan_end_locked(heap);
    heap_enter(heap->store, heap->stream, NULL);
    heap_sets_update_locked(heap, false);
    unused_push_locked(heap);
}

/* All heaps are prepared before any is retired. If one fails, none is retired. Those before it keep
 * their new mark. */
tarn_status heap_retire(struct stream *stream)
{
    tarn_status status = TARN_OK;
    mutex_lock(&heaps_lock);
    for (struct heap *heap = stream->heaps; heap && !status; heap = heap->lists.next_of_stream) {
        mutex_lock(&heap->lock);
        status = batches_end_prepare_locked(heap);
        mutex_unlock(&heap->lock);
    }
    while (stream->heaps && !status) {
        struct heap *heap = stream->heaps;
        stream_leave_locked(heap);
        mutex_lock(&heap->lock);
        retire_locked(heap);
        mutex_unlock(&heap->lock);
    }
    mutex_unlock(&heaps_lock);
    return status;
}

void heaps_leave_behind(struct store *store)
{
    mutex_lock(&heaps_lock);
    /* First, so that caches created from now on are closed. */
    atomic_store(&store->left_behind, true);
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        if (!heap->retired) {
            count_retired(heap->arena, 1);
            caches_close_locked(heap);
            caches_reclaim_locked(heap); /* so that heaps_learn() finds all free memory */
            hooks.plan_end_locked(heap); /* so that the next pool may follow the plan */
        }
        heap_sets_update_locked(heap, false);
        mutex_unlock(&heap->lock);
    }
    mutex_unlock(&heaps_lock);
}

void heaps_learn(struct stream *stream)
{
    struct arena *arena = arena_if_used(stream->device);
    mutex_lock(&heaps_lock);
    for (struct heap *heap = arena ? heap_next_unmarked(arena, stream, NULL) : NULL, *next; heap;
         heap = next) {
        next = heap_next_unmarked(arena, stream, heap);
        mutex_lock(&heap->lock);
        heap_learn_locked(heap, true);
        heap_unmarked_end_locked(heap);
        mutex_unlock(&heap->lock);
    }
    mutex_unlock(&heaps_lock);
}

bool heaps_give_up(struct store *store)
{
    bool empty = true;
    mutex_lock(&heaps_lock);
    for (struct heap *heap = heap_next_of(store, NULL); heap && empty;
         heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        empty = heap_is_empty_locked(heap);
        mutex_unlock(&heap->lock);
    }
    for (struct heap *heap = heap_next_of(store, NULL); heap && empty;
         heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        if (!heap->retired) {
            heap_enter(store, heap->stream, NULL);
            stream_leave_locked(heap);
            unused_push_locked(heap);
        }
        caches_publish_locked(&heap->caches); /* while the pool's counters exist */
        counters_part_close(&heap->parked.part);
        hands_counters_close(&heap->hands);
        span_reserve_empty_locked(&heap->reserve);
        heap->retired = true;
        /* A request in progress may have begun it after the pool was left behind. */
        hooks.plan_end_locked(heap);
        heap_sum_end_locked(heap);
        heap->sets.known = 0;
        heap->store = &store->arena->store;
        heap_sets_update_locked(heap, true);
        mutex_unlock(&heap->lock);
    }
    mutex_unlock(&heaps_lock);
    return empty;
}

void heaps_stop(struct arena *arena)
{
    mutex_lock(&heaps_lock);
    for (struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next) {
        mutex_lock(&heap->lock);
        parked_pause_locked(heap);
        caches_stop_locked(&heap->caches);
    }
}

void heaps_go_on(struct arena *arena)
{
    for (struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next) {
        caches_go_on_locked(&heap->caches);
        parked_go_on_locked(heap);
        mutex_unlock(&heap->lock);
    }
    mutex_unlock(&heaps_lock);
}

void heaps_close(struct arena *arena)
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        caches_close_locked(heap);
        mutex_unlock(&heap->lock);
    }
}

void heaps_lose(struct arena *arena)
{
    mutex_lock(&arena->lock); /* protects the list; the caller may hold heaps' locks */
    for (struct heap *heap = arena->heaps.all; heap; heap = heap->lists.next) {
        (void)stack_set_parks(&heap->parked, false); /* what is parked stays so until a flush */
        caches_lose(&heap->caches);
    }
    mutex_unlock(&arena->lock);
}

void heaps_trace_turned(void)
{
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        for (struct heap *heap = arena ? heap_next(arena, NULL) : NULL; heap;
             heap = heap_next(arena, heap)) {
            mutex_lock(&heap->lock);
            caches_publish_locked(&heap->caches);
            mutex_unlock(&heap->lock);
        }
    }
}
