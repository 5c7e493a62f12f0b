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

/* True if a store's segments come from a caller's allocator. Then its growth, and the release of
 * its segments, call the caller's code. */
static inline bool store_calls_back(const struct store *store)
{
    return store->allocator.alloc != NULL;
}

/* Does heap_grow() for a plain store: gets one segment, of the size that the store's rules say
 * (arena/rules.h). First it gives back segments that were unused for too long, if the settings want
 * garbage collection. If there is no memory, it gives back idle segments of the heap and tries
 * again. For a caller's allocator no lock is held, not even `moving`. */
tarn_status segment_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                         struct span **span);

/* Makes memory that the store's allocator has already a segment of a heap, as one free span. */
tarn_status segment_enter(struct heap *heap, uintptr_t address, size_t size);

/* Takes idle segments out of a heap of a plain store and puts them at the front of `leaving`, until
 * `*given` has reached `wanted` bytes or no more are idle. Adds their bytes to `*given`. It prefers
 * the smallest segment that covers what is still wanted, then the largest; segments of the large
 * zone come first. The caller passes the list to segments_release(). */
void segments_detach_locked(struct heap *heap, size_t wanted, size_t *given, struct run **leaving);

/* Moves idle segments of `from`, a heap that is left behind, into `heap`: at least `wanted` bytes,
 * or all. Returns their bytes. Returns 0 if the segments of either store are not plain ones of the
 * driver. */
size_t segments_adopt(struct heap *heap, struct heap *from, size_t wanted);

/* Gives detached segments back to the driver or the allocator, and destroys their runs. One that
 * the driver does not take becomes *stuck*: it is in arena->stuck_segments, and still counts as
 * reserved. Returns the first failure. Called with no lock held except, for segments of the driver,
 * `moving`. */
tarn_status segments_release(struct run *leaving);
/* For a kept pool that is suspended. Gives the memory of a segment up, which keeps its addresses
 * and its blocks; makes memory for it again. On failure the segment is as before. */
tarn_status segment_vacate(struct run *run);
tarn_status segment_occupy(struct run *run);
/* Drops the segments of a heap that have neither memory nor live blocks. */
void segments_drop_absent(struct heap *heap);
/* Tries once more to give stuck segments back. Returns the first failure; a refusal because of a
 * capture that tarn does not know is none. */
tarn_status segments_free_stuck(struct arena *arena);

/* For a store whose segments are not reused (kind.reuses is false): gives back the heap's free
 * segments that are idle, or that the driver frees in order. Does nothing while a known capture is
 * open on the device. What the driver does not take stays. */
void segments_return(struct heap *heap);

/* Anchors the pieces, or the plain segment, under a range of a live block: they stay in place until
 * the anchor is removed. Called with the lock of the block's heap held. */
void pieces_anchor(const struct arena *arena, uintptr_t start, size_t size);
/* Removes that anchor. Any lock may be held, or none. */
void pieces_unanchor(struct arena *arena, uintptr_t start, size_t size);
/* The mapping that observers know of the segment around an address of a live block. Called with the
 * lock of the block's heap held. */
tarn_mapping segment_range(uintptr_t address);

/* True if a plain segment contains the address. */
bool segment_has(uintptr_t address);
/* Finds the plain segment that contains an address. Returns its first span, with the lock of its
 * heap held, which `heap` receives; NULL, with nothing held, if there is none. */
struct span *segment_lock(uintptr_t address, struct heap **heap);

#endif
