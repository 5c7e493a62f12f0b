/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slow path of parked spans, and the claiming and ending of live blocks. A parked span has the
 * state of a block and is in the page map, but it is in no tree and not live. Functions that end in
 * _locked run under the heap's lock and take the lock of its part of the counters inside it. The
 * others take that lock alone. */
#include "memory/heap/parked.h"

uintptr_t parked_take_counted(struct heap *heap, const struct thread *thread, size_t size,
                              size_t requested)
{
    struct counters *counters = NULL;
    uintptr_t address = 0;
    counters_take_up(&heap->arena->counters, &heap->parked.part);
    unsigned place = parked_find_locked(heap, thread, size);
    if (place) {
        counters = heap->store->counters; /* constant while blocks are parked */
        address = parked_take_locked(
            heap, thread, place - 1, requested,
            counters_allocated_locked(counters, &heap->parked.part, size, requested));
    }
    counters_return(&heap->arena->counters, &heap->parked.part, counters);
    return address;
}

bool parked_give_counted(struct heap *heap, struct span *span, uintptr_t address,
                         const struct thread *thread)
{
    struct counters *counters = NULL;
    counters_take_up(&heap->arena->counters, &heap->parked.part);
    bool parks = parked_may_give_locked(heap, span, address, thread);
    if (parks) {
        counters = heap->store->counters;
        counters_freed_and_completed_locked(counters, &heap->parked.part, span->size,
                                            span->requested, span->oversize);
        parked_give_locked(heap, span, thread);
    }
    counters_return(&heap->arena->counters, &heap->parked.part, counters);
    return parks;
}

unsigned stack_empty(struct parked_stack *stack, struct span *spans[HEAP_PARKED])
{
    counters_part_lock(&stack->part);
    unsigned count = stack_count(stack);
    for (unsigned i = 0; i < count; i++)
        spans[i] = stack->blocks[i].span;
    atomic_store_explicit(&stack->count, 0, memory_order_relaxed);
    counters_part_unlock(&stack->part);
    return count;
}

bool stack_set_parks(struct parked_stack *stack, bool parks)
{
    counters_part_lock(&stack->part);
    bool before = atomic_exchange_explicit(&stack->parks, parks, memory_order_relaxed);
    counters_part_unlock(&stack->part);
    return before;
}

void parked_give_back_locked(struct heap *heap)
{
    struct span *spans[HEAP_PARKED];
    unsigned count = stack_empty(&heap->parked, spans);
    for (unsigned i = 0; i < count; i++) {
        unsigned zone = spans[i]->zone;
        uint64_t state = zone_state(&heap->zones, zone);
        span_leave_map_locked(heap, spans[i]);
        span_give_locked(heap, spans[i]);
        zone_state_set(&heap->zones, zone, state);
    }
}

/* The new states come first. A block that another thread parks before them is flushed here; after
 * them none is parked. */
void parked_end_locked(struct heap *heap)
{
    counters_part_lock(&heap->parked.part);
    zones_change_locked(&heap->zones);
    counters_part_unlock(&heap->parked.part);
    parked_flush_stack_locked(heap);
    hands_close_locked(heap);
}

void parked_open_locked(struct heap *heap)
{
    (void)stack_set_parks(&heap->parked, heap->store->kind.parks && !fast_paths_are_barred());
}

static bool close_locked(struct heap *heap)
{
    bool before = stack_set_parks(&heap->parked, false);
    parked_flush_stack_locked(heap);
    hands_close_locked(heap);
    return before;
}

void parked_close_locked(struct heap *heap)
{
    (void)close_locked(heap);
}

void parked_pause_locked(struct heap *heap)
{
    heap->parked.parks_afterwards = close_locked(heap);
}

void parked_go_on_locked(struct heap *heap)
{
    bool lost = atomic_load(&heap->arena->device->lost);
    (void)stack_set_parks(&heap->parked, heap->parked.parks_afterwards && !lost);
}

void span_begin_locked(struct heap *heap, struct span *span)
{
    struct counters *counters = heap->store->counters;
    counters_part_lock(&heap->parked.part);
    bool counted = counters_part_allocated_locked(&heap->parked.part, span->size, span->requested);
    span->oversize = 0;
    atomic_store_explicit(&span->live, counted, memory_order_relaxed);
    counters_part_unlock(&heap->parked.part);
    if (!counted) {
        counters_take_up(&heap->arena->counters, &heap->parked.part);
        span->oversize =
            counters_allocated_locked(counters, &heap->parked.part, span->size, span->requested);
        atomic_store_explicit(&span->live, true, memory_order_relaxed);
        counters_return(&heap->arena->counters, &heap->parked.part, counters);
    }
    trace_block(TRACE_alloc, heap, span->start, span->requested, span->tag);
}

bool span_end_locked(struct heap *heap, struct span *span)
{
    counters_part_lock(&heap->parked.part);
    bool live = hands_are_open(&heap->hands)
                    ? atomic_exchange_explicit(&span->live, false, memory_order_acq_rel)
                    : atomic_load_explicit(&span->live, memory_order_relaxed);
    bool ends = live && counters_part_freed_locked(&heap->parked.part, span->size, span->requested,
                                                   span->oversize);
    if (live)
        atomic_store_explicit(&span->live, !ends, memory_order_release);
    counters_part_unlock(&heap->parked.part);
    return ends;
}

static bool set_live(struct heap *heap, struct span *span, bool live)
{
    counters_part_lock(&heap->parked.part);
    bool before = atomic_exchange_explicit(&span->live, live, memory_order_acq_rel);
    counters_part_unlock(&heap->parked.part);
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

bool span_is_live_locked(struct heap *heap, struct span *span, size_t *requested, tarn_tag *tag)
{
    bool live = span_claim_locked(heap, span); /* so that no other thread hands it out meanwhile */
    if (live) {
        *requested = span->requested;
        *tag = span->tag;
        span_unclaim_locked(heap, span);
    }
    return live;
}
