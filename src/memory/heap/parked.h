/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Parked spans: the last blocks with their own span that were freed in a heap, for the next
 * requests of exactly the same sizes. They are taken and given under one short lock, that of the
 * heap's part of the counters. They are not cut, joined, or looked up.
 *
 * A block is parked only if that does not change the placement. Each change of a zone's free spans
 * gives the zone a new state number. A block has the numbers from before and after it was cut. If
 * the zone is still in the state after the cut, a free of the block undoes the cut. The earlier
 * state is back, in which a request of that size would be cut at the same place again. So parked
 * spans are a stack of undone cuts.
 *
 * Other code does not see parked spans. The counters count a parked block as free, and a second
 * free finds that it is not live. Code that searches, joins or gives up memory of the heap first
 * turns parked spans into free spans (parked_flush_locked()). So no free span is missed, and a
 * closed batch contains everything that was freed before.
 *
 * A block with a span is *live* from the moment it is handed out until it is freed. While other
 * code has claimed it, to look at it or to free it under the heap's lock, it is not live. */
#ifndef TARN_MEMORY_PARKED_H
#define TARN_MEMORY_PARKED_H

#include "base/thread/process.h"
#include "memory/heap/hands.h"
#include "memory/heap/heap.h"
#include "memory/heap/traced.h"

/* The place of a parked block that serves a request of this size, counted from 1; 0: none. */
static inline unsigned parked_find_locked(const struct heap *heap, const struct thread *thread,
                                          size_t size)
{
    const struct parked_stack *stack = &heap->parked;
    unsigned place = stack_find_locked(stack, size);
    bool routed = thread->changes == atomic_load_explicit(&process_changes, memory_order_relaxed);
    bool told = !trace_is_on() || trace_is_quick(heap, thread);
    return place && stack_parks(stack) && routed && told &&
                   zone_state(&heap->zones, stack->blocks[place - 1].span->zone) ==
                       stack->blocks[place - 1].before
               ? place
               : 0;
}

/* Hands out a parked block. The caller has counted it. */
static inline uintptr_t parked_take_locked(struct heap *heap, const struct thread *thread,
                                           unsigned place, size_t requested,
                                           counters_oversize oversize)
{
    struct span *span = heap->parked.blocks[place].span;
    uintptr_t address = heap->parked.blocks[place].start;
    stack_remove_locked(&heap->parked, place);
    zone_state_set(&heap->zones, span->zone,
                   atomic_load_explicit(&span->after, memory_order_relaxed));
    span->requested = requested;
    span->tag = 0;
    atomic_store_explicit(&span->live, true, memory_order_relaxed);
    span->oversize = oversize;
    if (trace_is_on())
        trace_quickly(TRACE_alloc, heap, thread, address, requested, 0);
    return address;
}

/* The slow forms, for what the heap's part cannot count alone. */
uintptr_t parked_take_counted(struct heap *heap, const struct thread *thread, size_t size,
                              size_t requested);
bool parked_give_counted(struct heap *heap, struct span *span, uintptr_t address,
                         const struct thread *thread);

/* Returns a parked block of exactly `size` bytes, the rounded size of the request. 0: the caller
 * must take the slow path. That is also so if the pool for requests may have changed since the
 * thread last asked. */
static inline uintptr_t parked_take(struct heap *heap, const struct thread *thread, size_t size,
                                    size_t requested)
{
    uintptr_t address = 0;
    if (!stack_count(&heap->parked))
        return 0;
    counters_part_lock(&heap->parked.part);
    unsigned place = parked_find_locked(heap, thread, size);
    bool counted = place && counters_part_allocated_locked(&heap->parked.part, size, requested);
    if (counted)
        address = parked_take_locked(heap, thread, place - 1, requested, 0);
    counters_part_unlock(&heap->parked.part);
    return place && !counted ? parked_take_counted(heap, thread, size, requested) : address;
}

/* Whether a free may park the block: it is live, no other stream has used it, and no block of the
 * zone was cut or freed after it, or all of them were undone. */
static inline bool parked_may_give_locked(const struct heap *heap, const struct span *span,
                                          uintptr_t address, const struct thread *thread)
{
    return atomic_load_explicit(&span->live, memory_order_relaxed) &&
           atomic_load_explicit(&span->heap, memory_order_relaxed) == heap &&
           span->start == address && !span->uses && stack_parks(&heap->parked) &&
           stack_count(&heap->parked) < HEAP_PARKED &&
           zone_state(&heap->zones, span->zone) ==
               atomic_load_explicit(&span->after, memory_order_relaxed) &&
           (!trace_is_on() || trace_is_quick(heap, thread));
}

/* Parks a block. The caller has counted its free. */
static inline void parked_give_locked(struct heap *heap, struct span *span,
                                      const struct thread *thread)
{
    if (trace_is_on())
        trace_quickly(TRACE_free, heap, thread, span->start, span->requested, span->tag);
    atomic_store_explicit(&span->live, false, memory_order_relaxed);
    zone_state_set(&heap->zones, span->zone, span->before);
    stack_put_locked(&heap->parked, span);
}

/* Frees a live block by parking it; false if the caller must take the slow path. */
static inline bool parked_give(struct span *span, uintptr_t address, const struct thread *thread)
{
    struct heap *heap = atomic_load_explicit(&span->heap, memory_order_relaxed);
    if (!heap)
        return false;
    counters_part_lock(&heap->parked.part);
    bool parks = parked_may_give_locked(heap, span, address, thread);
    bool counted = parks && counters_part_freed_locked(&heap->parked.part, span->size,
                                                       span->requested, span->oversize);
    if (counted)
        parked_give_locked(heap, span, thread);
    counters_part_unlock(&heap->parked.part);
    return parks && !counted ? parked_give_counted(heap, span, address, thread) : parks;
}

/* Turns the heap's parked spans into free spans of the open batch. */
void parked_give_back_locked(struct heap *heap);
static inline void parked_flush_stack_locked(struct heap *heap)
{
    if (stack_count(&heap->parked))
        parked_give_back_locked(heap);
}
/* The same, also for the blocks in hands. */
static inline void parked_flush_locked(struct heap *heap)
{
    parked_flush_stack_locked(heap);
    if (hands_are_open(&heap->hands))
        hands_flush_locked(heap);
}

/* Turns parked spans into free spans and closes the hands. No block that was cut before is parked
 * from now on: it becomes free under the heap's lock. */
void parked_end_locked(struct heap *heap);

/* At the start of a heap's life: allows parking, unless a checker must see who owns which
 * memory. */
void parked_open_locked(struct heap *heap);
/* Stops parking for good. */
void parked_close_locked(struct heap *heap);
/* Stops parking blocks until parked_go_on_locked(). */
void parked_pause_locked(struct heap *heap);
void parked_go_on_locked(struct heap *heap);

/* Hands out a span that has become a block: makes it live, counts it, and writes it to the
 * trace. */
void span_begin_locked(struct heap *heap, struct span *span);
/* Ends a live block and counts its free: only its memory remains. False if it is not live, or if
 * the heap's part cannot count the free; then nothing has changed. */
bool span_end_locked(struct heap *heap, struct span *span);
/* Claims a live block, so that no other thread frees it meanwhile. False if it is not live. The
 * claim ends when the block ends, or by span_unclaim_locked(). */
bool span_claim_locked(struct heap *heap, struct span *span);
void span_unclaim_locked(struct heap *heap, struct span *span);
/* Whether a span's block is live now. If so, returns the requested size and the tag. */
bool span_is_live_locked(struct heap *heap, struct span *span, size_t *requested, tarn_tag *tag);

#endif
