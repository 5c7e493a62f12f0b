/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a heap comes by memory, and how it gives memory up. Both take the heap's lock and let go of it for driver calls. */
#ifndef TARN_MEMORY_GROWTH_H
#define TARN_MEMORY_GROWTH_H

#include "memory/heap/heap.h"

/* Of a plain store see segment.h. Maps idle pieces of the heap's own free spans and unmapped ones of its store, and creates what is missing, so
 * that one free span of `size` bytes at `alignment` comes to be; cuts it off and gives it as SPAN_TAKEN. Never waits. On failure live
 * blocks are as they were; pieces may be unmapped now, or have joined the heap's free memory without being of use.
 * TARN_ERROR_OUT_OF_MEMORY: nothing of its own was unmapped. */
tarn_status heap_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span);

/* Unmaps idle pieces of the heap's free spans, at least `wanted` bytes where there are as many, and leaves them with `store`, which must not
 * go away meanwhile. Never waits. Gives the bytes in `given`, also on failure. Segments of a caller's allocator are put in front of
 * `leaving`. Does nothing where the heap is not one of `store`: a heap that was emptied becomes another's at any time, who may rely on
 * its memory's staying where it is. */
tarn_status heap_shed(struct heap *heap, struct store *store, size_t wanted, size_t *given, struct run **leaving);

#endif
