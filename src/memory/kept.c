/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slow side of kept spans, and of which blocks are live. A kept span is a block by its state and in the page map, in no tree,
 * and not live. Under the heap's lock; the counters' is taken inside it. */
#include "memory/kept.h"
#include "memory/debug/debug.h"

static unsigned kept_detach(struct heap *heap, struct span *spans[HEAP_KEPT])
{
    counters_lock(&heap->arena->counters);
    unsigned count = atomic_load_explicit(&heap->kept_count, memory_order_relaxed);
    for (unsigned i = 0; i < count; i++)
        spans[i] = heap->kept[i].span;
    atomic_store_explicit(&heap->kept_count, 0, memory_order_relaxed);
    counters_unlock(&heap->arena->counters);
    return count;
}

void kept_flush_locked(struct heap *heap)
{
    struct span *spans[HEAP_KEPT];
    if (!atomic_load_explicit(&heap->kept_count, memory_order_relaxed))
        return;
    unsigned count = kept_detach(heap, spans);
    for (unsigned i = 0; i < count; i++) {
        struct zone *zone = &heap->zones[spans[i]->zone];
        uint64_t state = atomic_load_explicit(&zone->state, memory_order_relaxed);
        span_leave_map_locked(spans[i]);
        span_give_locked(heap, spans[i]);
        atomic_store_explicit(&zone->state, state, memory_order_relaxed);
    }
}

static bool set_keeps(struct heap *heap, bool keeps)
{
    counters_lock(&heap->arena->counters);
    bool before = heap->keeps;
    heap->keeps = keeps;
    counters_unlock(&heap->arena->counters);
    return before;
}

void kept_open_locked(struct heap *heap)
{
    (void)set_keeps(heap, !heap->store->plain && !debug_bypasses_caches());
}

void kept_close_locked(struct heap *heap)
{
    (void)kept_pause_locked(heap);
}

bool kept_pause_locked(struct heap *heap)
{
    bool before = set_keeps(heap, false);
    kept_flush_locked(heap);
    return before;
}

void kept_go_on_locked(struct heap *heap, bool keeps)
{
    bool lost = atomic_load(&heap->arena->device->lost);
    (void)set_keeps(heap, keeps && !lost);
}

void kept_lose(struct heap *heap)
{
    (void)set_keeps(heap, false);
}

void span_begin_locked(struct heap *heap, struct span *span)
{
    counters_lock(&heap->arena->counters);
    atomic_store_explicit(&span->live, true, memory_order_relaxed);
    counters_allocated_locked(heap->store->counters, span->size, span->requested);
    counters_unlock(&heap->arena->counters);
    trace_block(TRACE_alloc, heap, span->start, span->requested, span->tag);
}

static bool set_live(struct heap *heap, struct span *span, bool live)
{
    counters_lock(&heap->arena->counters);
    bool before = atomic_exchange_explicit(&span->live, live, memory_order_relaxed);
    counters_unlock(&heap->arena->counters);
    return before;
}

bool span_claim_locked(struct heap *heap, struct span *span)
{
    return set_live(heap, span, false);
}

void span_unclaim_locked(struct heap *heap, struct span *span)
{
    (void)set_live(heap, span, true);
}

bool span_is_live_locked(struct heap *heap, const struct span *span, size_t *requested)
{
    counters_lock(&heap->arena->counters);
    bool live = atomic_load_explicit(&span->live, memory_order_relaxed);
    *requested = span->requested;
    counters_unlock(&heap->arena->counters);
    return live;
}
