/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How a heap gets memory, and how it gives memory up. Both take the heap's lock, and release it for
 * driver calls. The caller holds the arena's `moving` (moves.h), shared or alone; a growth that
 * calls a caller's allocator is the exception: for it nothing is held. */
#ifndef TARN_MEMORY_GROWTH_H
#define TARN_MEMORY_GROWTH_H

#include "memory/heap/heap.h"

/* Gets a span of `size` bytes at `alignment`, in the state SPAN_TAKEN. To make one free span of
 * that size, it maps idle pieces of the heap's free spans and unmapped pieces of its store, and
 * creates what is missing. segment_grow() does it for a plain store, registrable_grow() for a
 * registrable one. Makes no wait of its own. On failure live blocks are unchanged, but pieces may
 * have been unmapped, or have joined the heap's free memory. */
tarn_status heap_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                      struct span **span);

/* For a heap that follows a plan: maps a hole of its reservation (heap/following.h). `start` and
 * `size` are whole granules. It takes unmapped pieces of the store, and creates others of about
 * `largest` bytes at most. All of it counts as created (growth_count_locked()).
 * TARN_ERROR_OUT_OF_MEMORY also if another thread has mapped the hole. */
tarn_status heap_grow_hole(struct heap *heap, uintptr_t start, size_t size, size_t largest);

/* Adds a growth to the figures in `heap->growths`, by where its bytes come from: `created` by the
 * driver or taken from unmapped pieces, `borrowed` from other heaps, `moved` within the heap. */
void growth_count_locked(struct heap *heap, size_t created, size_t borrowed, size_t moved);

/* Makes the heap give up idle memory: at least `wanted` bytes, or all that it has. Pieces are
 * unmapped, and are then unmapped pieces of `store`. Plain segments go back to the driver; those of
 * a caller's allocator are added to the front of `leaving`, and the caller passes them to
 * segments_release() once it no longer holds `moving`. `given` receives the bytes, also on failure.
 * Makes no wait of its own.
 *
 * `store` must exist until the end of the call. If the heap belongs to another store, the call does
 * nothing: an empty heap can be reused for another store at any time, and that store may rely on
 * its memory staying in place. */
tarn_status heap_shed(struct heap *heap, struct store *store, size_t wanted, size_t *given,
                      struct run **leaving);
/* The same for all idle pieces of batches up to `rested` (heap/idle/rest.h). */
tarn_status heap_shed_rested(struct heap *heap, struct store *store, uint64_t rested,
                             size_t *given);

#endif
