/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the memory layer writes to the trace. While that is off, each call is one load. A block is
 * reported under its heap's lock, or while its cache's thread is busy, or under the lock of its
 * heap's part of the counters. So code that holds all of these sees blocks as the trace describes
 * them. */
#ifndef TARN_MEMORY_TRACED_H
#define TARN_MEMORY_TRACED_H

#include "device/tracing.h"
#include "memory/heap/heap.h"

/* The heap's place in the trace. Made at its first record; valid until the end of the heap's
 * life. */
uint32_t heap_place_make(struct heap *heap);
static inline uint32_t heap_place(struct heap *heap)
{
    uint32_t place = atomic_load_explicit(&heap->place, memory_order_relaxed);
    return place ? place : heap_place_make(heap);
}

static inline void trace_block(enum trace_kind kind, struct heap *heap, uintptr_t address,
                               size_t size, tarn_tag tag)
{
    if (trace_is_on())
        trace_event(kind, heap_place(heap), address, size, tag);
}

/* Whether a record can be written without a look-up, a lock or a call. Otherwise the slow path
 * writes it. */
static inline bool trace_is_quick(const struct heap *heap, const struct thread *thread)
{
    return thread->trace && atomic_load_explicit(&heap->place, memory_order_relaxed) &&
           atomic_load_explicit(&trace_stack_mode, memory_order_relaxed) == TRACE_STACKS_NONE;
}

static inline void trace_quickly(enum trace_kind kind, const struct heap *heap,
                                 const struct thread *thread, uintptr_t address, size_t size,
                                 uint16_t tag)
{
    trace_put(thread->trace, kind, address, size,
              atomic_load_explicit(&heap->place, memory_order_relaxed), thread->region, 0, tag);
}

/* Writes a record about a pool as a whole. With no lock held. */
void trace_store(enum trace_kind kind, const struct store *store, uint64_t size);

#endif
