/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks whose owner has freed them while work of other streams still uses them. */
#ifndef TARN_MEMORY_WAIT_H
#define TARN_MEMORY_WAIT_H

#include "memory/heap/heap.h"

/* Adds a use of a block of the heap to its list, once per stream. Under the heap's lock, as the two
 * below. */
tarn_status use_add_stream(struct heap *heap, struct use **uses, struct stream *stream);
/* Adds the heap's own stream in front, for debug mode. */
tarn_status use_add_own(struct heap *heap, struct use **uses);
/* The same for a mark, which is then the list's. */
tarn_status use_add_mark(struct heap *heap, struct use **uses, struct mark *mark);

/* The first adds the uses of the heap's live blocks to `sum`, once per stream. The second waits for
 * the work that these streams have queued so far, and frees the list, also on failure. */
tarn_status uses_sum_locked(struct heap *heap, struct use **sum);
tarn_status uses_wait(struct use *sum);

/* Makes a freed block wait for its uses, after a mark on each stream that uses it. Cannot fail: a
 * mark that cannot be created or recorded now is recorded later. */
void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses,
                       size_t size);

/* Frees blocks whose uses have ended, and kept blocks. Returns the number of blocks. Never waits.
 *
 * It asks the driver once for each stream that waiting blocks wait for, and once more for each use
 * that has ended since the last check. A stream that could not be marked before is tried again. It
 * touches no block whose uses are all pending, except those of captures (capture_order.h) and of
 * debug mode. */
size_t wait_collect_locked(struct heap *heap);

/* Whether a pending use is the first of its block's, and the bytes of that block. */
bool wait_is_first(const struct use *use);
size_t wait_size(const struct use *use);

/* Whether waiting helps: true if a block waits for other streams, or pieces in free spans are not
 * idle yet. Then returns the mark to wait for first, retained for the caller; or NULL if work has
 * ended just now and another attempt may succeed. Closes the open batch if necessary. */
bool wait_oldest_locked(struct heap *heap, struct mark **mark);

/* Collects the free memory of a heap: blocks that no stream uses any more, and the empty slabs of
 * all threads. Takes the heap's lock, like the functions below. */
void heap_collect(struct heap *heap);

/* Waits for the oldest work that holds back memory of a heap. False when nothing does. With no lock
 * held, as those that follow. */
bool heap_wait(struct heap *heap, tarn_status *status);

/* What code waits for that is content with the end of any of it: marks that hold back memory of
 * some heaps, the first MARKS_MOST that are found. All zero at first. */
struct wait_any {
    struct mark *marks[MARKS_MOST], *whole; /* `whole`: one that needs a wait for the whole
                                               device */
    size_t count;
    bool ended; /* some work has ended meanwhile, and nothing is waited for */
};

/* Adds what holds back memory of a heap. And waits until some of it has ended, if there is any, the
 * end of the whole device's work only if there is nothing else. False when nothing holds memory
 * back. */
void wait_any_add(struct wait_any *any, struct heap *heap);
bool wait_any(struct wait_any *any, tarn_status *status);

/* An upper bound of the waits after which all work that is queued now has ended and its memory is
 * idle, if nothing is queued meanwhile: one for each mark, and one for the batch of the memory that
 * it frees. In the heaps of a store, or with NULL of a device. */
size_t waits_ahead(struct arena *arena, struct store *store);
/* The same in the heaps whose memory may serve a store. */
size_t waits_ahead_serving(struct store *wanting);

/* Waits for all work queued so far that blocks of a store, or with NULL of a device, wait for. */
tarn_status heaps_settle(struct arena *arena, struct store *store);

#endif
