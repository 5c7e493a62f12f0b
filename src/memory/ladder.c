/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The steps of a request that no free span serves, and of a trim. Owns no data; takes each lock for a moment only.
 *
 *   1. blocks of this heap that waited for other streams and need not any more
 *   2. growth: idle memory re-mapped, the rest created
 *   3. idle memory of the device's other heaps, retired ones first; growth again
 *   4. a wait for the oldest work that holds memory back, this heap's first; then from 1
 *
 * Captures bar none of it: the driver runs these calls relaxed, memory whose last use cannot be marked because a stream
 * captures is not idle, and the wait is for an event that was recorded outside captures, never for a stream or a device.
 *
 * After each step the search starts anew: memory may be free that was not (pytorch/pytorch#189504), and each wait is for one
 * mark, not for the device (#171771). */
#include "memory/ladder.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/growth.h"
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

static tarn_status take(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    mutex_lock(&heap->lock);
    tarn_status status = TARN_ERROR_OUT_OF_MEMORY;
    if (heap->waiting && wait_collect_locked(heap))
        status = span_take_locked(heap, zone, size, alignment, span);
    mutex_unlock(&heap->lock);
    return status;
}

static size_t collect(struct heap *heap)
{
    mutex_lock(&heap->lock);
    size_t ended = wait_collect_locked(heap);
    mutex_unlock(&heap->lock);
    return ended;
}

static bool is_retired(struct heap *heap)
{
    mutex_lock(&heap->lock);
    bool retired = heap->retired;
    mutex_unlock(&heap->lock);
    return retired;
}

/* Moves idle memory of the other heaps to the cache until `wanted` bytes are there. Gives what came. */
static size_t take_from_others(struct heap *own, size_t wanted)
{
    struct arena *arena = own->arena;
    size_t total = 0;
    for (int retired = 1; retired >= 0; retired--) {
        for (struct heap *heap = heap_next(arena, NULL); heap && total < wanted; heap = heap_next(arena, heap)) {
            if (heap == own || is_retired(heap) != (bool)retired)
                continue;
            size_t given = 0;
            collect(heap);
            (void)heap_shed(heap, wanted - total, &given);
            total += given;
        }
    }
    return total;
}

/* Waits for the oldest work that holds back memory of one heap. False when nothing does. */
static bool wait_for(struct heap *heap, tarn_status *status)
{
    mutex_lock(&heap->lock);
    struct mark *mark = wait_oldest_locked(heap);
    mutex_unlock(&heap->lock);
    if (!mark)
        return false;
    *status = mark_wait(mark);
    mark_release(mark);
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, false);
    mutex_unlock(&heap->lock);
    return true;
}

static bool wait_for_any(struct heap *own, tarn_status *status)
{
    if (wait_for(own, status))
        return true;
    for (struct heap *heap = heap_next(own->arena, NULL); heap; heap = heap_next(own->arena, heap))
        if (heap != own && wait_for(heap, status))
            return true;
    return false;
}

/* The largest free span and the free and waiting bytes of a device's heaps, for the text below. */
struct holdings {
    size_t largest, free, waiting, cached, reserved, limit;
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
    mutex_unlock(&arena->lock);
    return sum;
}

static tarn_status out_of_memory(struct heap *heap, size_t size)
{
    struct arena *arena = heap->arena;
    struct holdings sum = holdings_of(arena);
    size_t free_bytes = 0, total_bytes = arena->device->properties.memory;
    char limit[64] = "no limit is set";
    const char *capture =
        captures_open(arena->device) ? "; what the streams of an open capture have freed serves them alone" : "";
    if (sum.limit != SIZE_MAX)
        snprintf(limit, sizeof limit, "the limit is %zu", sum.limit);
    (void)driver->memory_info(arena->device->number, &free_bytes, &total_bytes);
    COUNT(&arena->counters, num_ooms);
    return failed(
        TARN_ERROR_OUT_OF_MEMORY,
        "%zu bytes on device %d: it has %zu bytes, %zu of them free; tarn reserves %zu (%s), of which %zu are "
        "live, %zu free in its heaps (the largest stretch %zu), %zu unmapped and %zu wait for streams%s",
        size, arena->device->number, total_bytes, free_bytes, sum.reserved, limit,
        sum.reserved - sum.free - sum.cached - sum.waiting, sum.free, sum.largest, sum.cached, sum.waiting, capture);
}

tarn_status ladder_climb(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span)
{
    for (;;) {
        tarn_status status = take(heap, zone, size, alignment, span);
        if (status == TARN_ERROR_OUT_OF_MEMORY)
            status = heap_grow(heap, zone, size, alignment, span);
        if (status != TARN_ERROR_OUT_OF_MEMORY)
            return status;

        if (take_from_others(heap, size)) {
            COUNT(&heap->arena->counters, num_alloc_retries);
            continue;
        }
        status = TARN_OK;
        if (!wait_for_any(heap, &status))
            return out_of_memory(heap, size);
        if (status)
            return status;
    }
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
    tarn_status first = arena_free_stuck(arena), status = arena_release_cache(arena, keep);
    first = first ? first : status;
    for (struct heap *heap = heap_next(arena, NULL); heap && reserved(arena) > keep; heap = heap_next(arena, heap)) {
        size_t given = 0;
        collect(heap);
        status = heap_shed(heap, reserved(arena) - keep, &given);
        first = first ? first : status;
        status = arena_release_cache(arena, keep);
        first = first ? first : status;
    }
    return first;
}

tarn_status ladder_trim(struct arena *arena, size_t keep)
{
    tarn_status status = trim_pass(arena, keep);
    for (struct heap *heap = heap_next(arena, NULL); !status && heap; heap = heap_next(arena, heap)) {
        /* What a wait makes free may be in order only, behind work of its own stream: then there is more to wait for. */
        bool waited;
        do {
            waited = false;
            while (!status && reserved(arena) > keep && wait_for(heap, &status))
                waited = true;
            if (!status && waited && reserved(arena) > keep)
                status = trim_pass(arena, keep);
        } while (!status && waited);
    }
    return status;
}
