/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a heap gets memory, and how it gives memory up. Both take the heap's lock and release it for
 * driver calls. */
#ifndef TARN_MEMORY_GROWTH_H
#define TARN_MEMORY_GROWTH_H

#include "memory/heap/heap.h"

/* Gets a span of `size` bytes at `alignment`, as SPAN_TAKEN. To make one free span of that size, it
 * maps idle pieces of the heap's free spans and unmapped pieces of its store, and creates what is
 * missing. For a plain store see segment.h. Never waits. On failure live blocks are unchanged, but
 * pieces may have been unmapped, or have joined the heap's free memory. TARN_ERROR_OUT_OF_MEMORY:
 * nothing of the heap was unmapped. */
tarn_status heap_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                      struct span **span);

/* For a heap that follows a plan: maps a hole of its reservation, of whole granules, with unmapped
 * pieces of its store and new ones of about `largest` bytes at most. TARN_ERROR_OUT_OF_MEMORY also
 * if it is no hole any more. While moves are shared. */
tarn_status heap_grow_hole(struct heap *heap, uintptr_t start, size_t size, size_t largest);

/* Notes a growth in `heap->growths`: bytes that were created or unmapped before, that other heaps
 * lent, and that moved within the heap. */
void growth_count_locked(struct heap *heap, size_t created, size_t borrowed, size_t moved);

/* Unmaps idle pieces of the heap's free spans, at least `wanted` bytes if there are as many, and
 * leaves them with `store`, which must exist until the end of the call. Never waits. Returns the
 * bytes in `given`, also on failure. Segments of a caller's allocator are added to the front of
 * `leaving`. Does nothing if the heap does not belong to `store`: an empty heap may be reused for
 * another store at any time, and that store may rely on its memory staying in place. */
tarn_status heap_shed(struct heap *heap, struct store *store, size_t wanted, size_t *given,
                      struct run **leaving);

#endif
