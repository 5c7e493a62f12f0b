/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads and resets the counters of a device or a pool, including counts that its heaps have not
 * published. Owns nothing. */
#include "memory/watch/statistics.h"
#include "base/status.h"
#include "memory/heap/cache.h"
#include "memory/heap/parked.h"

/* The next heap of a store; if it is NULL, of the device. NULL starts and ends. */
static struct heap *next_heap(struct arena *arena, struct store *store, struct heap *heap)
{
    if (!store)
        return heap_next(arena, heap);
    return store_is_default(store) ? heap_next_serving(store, heap) : heap_next_of(store, heap);
}

/* Whether a heap belongs to a store, or any if that is NULL. The default pool has two stores. Heap
 * lock. */
static bool is_of(const struct heap *heap, const struct store *store)
{
    return !store || heap->store == store ||
           (store_is_default(store) && store_is_default(heap->store));
}

/* Resets what the heaps themselves count. */
static void reset_heaps(struct arena *arena, bool peak)
{
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        parked_flush_locked(heap);
        caches_publish_locked(&heap->caches);
        if (peak)
            counters_splits_reset_peak(&heap->zones.splits);
        else
            counters_splits_reset_accumulated(&heap->zones.splits);
        mutex_unlock(&heap->lock);
    }
}

tarn_status statistics_reset(struct arena *arena, tarn_stats_what what)
{
    if ((unsigned)what > TARN_STATS_ACCUMULATED)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a tarn_stats_what value", (int)what);
    if (!arena)
        return TARN_OK;
    reset_heaps(arena, what == TARN_STATS_PEAK);
    if (what == TARN_STATS_PEAK)
        counters_reset_peak(&arena->counters);
    else
        counters_reset_accumulated(&arena->counters);
    return TARN_OK;
}

void statistics_read(struct arena *arena, struct store *store, tarn_stats *stats)
{
    counters_read(store ? store->counters : &arena->counters, stats);
    for (struct heap *heap = next_heap(arena, store, NULL); heap;
         heap = next_heap(arena, store, heap)) {
        mutex_lock(&heap->lock);
        if (is_of(heap, store)) {
            parked_flush_locked(heap);
            caches_count_locked(&heap->caches, stats);
            counters_add_splits(stats, &heap->zones.splits);
        }
        mutex_unlock(&heap->lock);
    }
}
