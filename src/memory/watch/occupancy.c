/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads pools and heaps, each under its lock. Owns nothing. A pool's counters are complete only
 * with the counts that the caches of its heaps have not published, and a heap's lock comes before
 * the arena's. So pools are read first, and each heap is added to the pool with its id. Ids are
 * never reused, so a pool that ended meanwhile is not mistaken for another. */
#include "memory/watch/occupancy.h"
#include "memory/heap/cache.h"
#include "memory/heap/hands.h"
#include "memory/heap/heap.h"
#include "memory/pool/pool.h"

static bool is_of(const struct pool_occupancy *view, const struct store *store)
{
    return view->id[0] == store->id[0] && view->id[1] == store->id[1];
}

static struct pool_occupancy occupancy_store_locked(struct store *store, const tarn_stats *stats)
{
    return (struct pool_occupancy){
        .id = {store->id[0], store->id[1]},
        .reserved = store->reserved,
        .limit = store->limit,
        .unmapped = store->unmapped.bytes,
        .requested = stats->requested_bytes[TARN_STAT_ALL].current,
        .allocated = stats->allocated_bytes[TARN_STAT_ALL].current,
        .active = stats->active_bytes[TARN_STAT_ALL].current,
        .plain = !store->kind.pieces,
        .suspended = atomic_load(&store->suspended),
        .held = atomic_load(&store->holds) != 0,
        .of_graphs = store_is_of_graphs(store),
        .left_behind = atomic_load(&store->left_behind),
    };
}

/* The default pool's counters are the device's minus those of private pools. */
static void occupancy_default_locked(struct arena *arena, struct pool_occupancy *view)
{
    tarn_stats stats;
    counters_read(&arena->counters, &stats);
    *view = occupancy_store_locked(&arena->store, &stats);
    view->reserved += arena->uncached.reserved;
    view->unmapped += arena->uncached.unmapped.bytes;
}

static size_t occupancy_stores(struct arena *arena, struct pool_occupancy *views, size_t room)
{
    size_t count = 1;
    struct pool_occupancy standard;
    mutex_lock(&arena->lock);
    occupancy_default_locked(arena, &standard);
    for (struct store *store = arena->pools.list; store; store = store->lists.next, count++) {
        tarn_stats stats;
        counters_read(store->counters, &stats);
        struct pool_occupancy view = occupancy_store_locked(store, &stats);
        standard.requested -= view.requested;
        standard.allocated -= view.allocated;
        standard.active -= view.active;
        if (count < room)
            views[count] = view;
    }
    mutex_unlock(&arena->lock);
    if (room)
        views[0] = standard;
    return count;
}

/* Adds what the caches of a heap have counted and not published. */
static void add_caches(struct heap *heap, struct pool_occupancy *views, size_t count)
{
    tarn_stats stats = {0};
    mutex_lock(&heap->lock);
    for (size_t i = 0; i < count; i++) {
        if (!is_of(&views[i], heap->store))
            continue;
        caches_count_locked(&heap->caches, &stats);
        views[i].requested += stats.requested_bytes[TARN_STAT_ALL].current;
        views[i].allocated += stats.allocated_bytes[TARN_STAT_ALL].current;
        views[i].active += stats.active_bytes[TARN_STAT_ALL].current;
        break;
    }
    mutex_unlock(&heap->lock);
}

/* Counts read at different moments can be negative. */
static void clamp(int64_t *value)
{
    *value = *value > 0 ? *value : 0;
}

size_t occupancy_pools(struct arena *arena, struct pool_occupancy *views, size_t room)
{
    size_t count = occupancy_stores(arena, views, room), filled = count < room ? count : room;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap))
        add_caches(heap, views, filled);
    for (size_t i = 0; i < filled; i++) {
        clamp(&views[i].requested);
        clamp(&views[i].allocated);
        clamp(&views[i].active);
    }
    return count;
}

/* Adds parked blocks, which are free but in no tree. */
static void add_parked_locked(struct heap *heap, struct heap_occupancy *view)
{
    counters_part_lock(&heap->parked.part);
    unsigned count = atomic_load_explicit(&heap->parked.count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++) {
        view->free += heap->parked.blocks[i].size;
        if (heap->parked.blocks[i].size > view->largest_free)
            view->largest_free = heap->parked.blocks[i].size;
    }
    counters_part_unlock(&heap->parked.part);
}

static struct heap_occupancy occupancy_heap_locked(struct heap *heap)
{
    hands_flush_locked(heap);
    struct heap_occupancy view = {
        .pool = {heap->store->id[0], heap->store->id[1]},
        .slot = heap->stream ? heap->stream->slot : 0,
        .incarnation = heap->incarnation,
        .uncached = heap->store == &heap->arena->uncached,
        .retired = heap_is_left_behind_locked(heap),
        .free = heap->zones.free_bytes,
        .largest_free = zones_longest_free(&heap->zones),
        .waiting = heap->waiting.bytes,
    };
    if (!view.retired && heap->stream)
        view.native = (uintptr_t)heap->stream->native;
    for (int zone = 0; zone < ZONES; zone++) {
        for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next)
            view.mapped += run->end - run->start;
    }
    add_parked_locked(heap, &view);
    return view;
}

size_t occupancy_heaps(struct arena *arena, struct heap_occupancy *views, size_t room)
{
    size_t count = 0;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        struct heap_occupancy view = occupancy_heap_locked(heap);
        mutex_unlock(&heap->lock);
        if (view.retired && !view.mapped && !view.waiting)
            continue;
        if (count < room)
            views[count] = view;
        count++;
    }
    return count;
}

size_t occupancy_limit(struct arena *arena)
{
    mutex_lock(&arena->lock);
    size_t limit = arena->limit;
    mutex_unlock(&arena->lock);
    return limit;
}
