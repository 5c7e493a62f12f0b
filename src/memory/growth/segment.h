/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plain segments: what a plain store has in place of pieces. A segment comes from the driver, or
 * from a pool's allocator, as a whole. It is one run of one heap. It goes back as a whole, when it
 * is one free span and idle.
 *
 * Segments can lie anywhere, so a table has all of them by address. Code asks it about an address
 * for which the page map has no entry, and about a page into which two segments reach: the page
 * map's entry is MAP_SHARED there.
 *
 * An allocator is the caller's code, so it is called with no lock held, not even `moving`. Code
 * that detaches a segment under `moving` returns it to its caller in a list (struct run, linked by
 * `next`), and the caller releases it after it has let go of `moving`. */
#ifndef TARN_MEMORY_SEGMENT_H
#define TARN_MEMORY_SEGMENT_H

#include "memory/heap/heap.h"

#include <tarn/observe.h>

/* Whether a store's segments are a caller's, so that its growth and the release of its segments
 * call the caller's code. */
static inline bool store_calls_back(const struct store *store)
{
    return store->allocator.alloc != NULL;
}

/* As heap_grow(), for a heap of a plain store: gets a segment of the size that the rules say, after
 * giving back what is too old, and where there is no memory, idle segments of the heap. Of a
 * caller's allocator: no lock held, moves not shared. */
tarn_status segment_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                         struct span **span);

/* Takes idle segments out of a heap of a plain store, to be released: best the one that covers what
 * is wanted, else the largest, of large blocks first. Adds their bytes to `given`. */
void segments_detach_locked(struct heap *heap, size_t wanted, size_t *given, struct run **leaving);

/* Moves idle segments of a heap that is left behind, at least `wanted` bytes where there are as
 * many, into another one, where both stores have the driver's. Gives their bytes; 0 also where they
 * are of another kind. */
size_t segments_adopt(struct heap *heap, struct heap *from, size_t wanted);

/* Gives detached segments back; those that are not taken are stuck, for segments_free_stuck() to
 * try again. The first failure, which for the latter is none where only a capture that tarn does
 * not know is in the way. */
tarn_status segments_release(struct run *leaving);
tarn_status segments_free_stuck(struct arena *arena);

/* Of a raw store: gives back what is free in a heap and idle, or in order. What the driver does not
 * take stays. Never waits for an ordered store. */
void segments_return(struct heap *heap);

/* Anchors the pieces, or the segment, of a range of a live block, with the lock of its heap held:
 * they stay then; and takes that back, with any lock or none. */
void pieces_anchor(const struct arena *arena, uintptr_t start, size_t size);
void pieces_unanchor(const struct arena *arena, uintptr_t start, size_t size);
/* What observers learn of the segment around an address of a live block, with the lock of its heap
 * held. */
tarn_mapping segment_range(uintptr_t address);

/* The segment around an address: whether there is one, and its first span with the lock of its heap
 * held, or NULL with nothing held. */
bool segment_has(uintptr_t address);
struct span *segment_lock(uintptr_t address, struct heap **heap);

#endif
