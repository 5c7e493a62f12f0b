/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slow path of traced.h. Owns nothing. */
#include "memory/heap/traced.h"

uint32_t heap_place_make(struct heap *heap)
{
    int device = heap->arena->device->number;
    uint32_t place = trace_place_of_stream_keep(heap->stream, heap->incarnation, device,
                                                heap->store->id),
             before = 0;
    if (atomic_compare_exchange_strong_explicit(&heap->place, &before, place, memory_order_relaxed,
                                                memory_order_relaxed))
        return place;
    trace_place_drop(place); /* another thread came first */
    return before;
}

void trace_store(enum trace_kind kind, const struct store *store, uint64_t size)
{
    if (trace_is_on())
        trace_event(kind, trace_place_of_device(store->arena->device->number, store->id), 0, size,
                    0);
}
