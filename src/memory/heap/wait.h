/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks whose owner has freed them while work of other streams still uses them. */
#ifndef TARN_MEMORY_WAIT_H
#define TARN_MEMORY_WAIT_H

#include "memory/heap/heap.h"

/* Adds a use of a block of the heap to its list, once per stream. Under the heap's lock, as the two below. */
tarn_status use_add_stream(struct heap *heap, struct use **uses, struct stream *stream);
/* Adds the heap's own stream in front, for debug mode. */
tarn_status use_add_own(struct heap *heap, struct use **uses);
/* The same for a mark, which is then the list's. */
tarn_status use_add_mark(struct heap *heap, struct use **uses, struct mark *mark);

/* Adds to `sum`, once a stream, the uses of the heap's live blocks; and waits for the work that their streams have queued until
 * now. Ends the list, also on failure. */
tarn_status uses_sum_locked(struct heap *heap, struct use **sum);
tarn_status uses_wait(struct use *sum);

/* Has a freed block with uses wait, after a mark on each stream that uses it. Cannot fail: a mark that
 * cannot be made or recorded now is recorded later. */
void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses, size_t size);

/* Makes free what has ended, and what is kept. Gives how many blocks did. Never waits.
 *
 * It asks the driver once for each stream that has work to do with waiting blocks, and once more for each use that has ended since the last
 * look; a stream that could not be marked before is tried once more. It touches no block whose uses are all to wait for, however many
 * there are, except those of captures (capture_order.h) and of debug mode. */
size_t wait_collect_locked(struct heap *heap);

/* Whether a pending use is the first of its block's, and the bytes of that block. */
bool wait_is_first(const struct use *use);
size_t wait_size(const struct use *use);

/* Whether waiting helps: true when a block waits for other streams, or pieces in free spans are not idle yet. Then gives
 * what to wait for first, kept for the caller; or NULL when something has ended just now and is worth another try. Closes the
 * open batch if need be. */
bool wait_oldest_locked(struct heap *heap, struct mark **mark);

/* Gets together what is free in a heap: blocks that no stream uses any more, and the empty slabs of all threads. Takes its lock, as those
 * that follow. */
void heap_collect(struct heap *heap);

/* Waits for the oldest work that holds back memory of a heap. False when nothing does. With no lock held, as those that follow. */
bool heap_wait(struct heap *heap, tarn_status *status);

/* More than the waits after which all that is queued now has ended and set its memory free, if nothing is queued meanwhile: for
 * each mark, and for the batch that what it sets free is then in. */
size_t waits_ahead(struct arena *arena);

/* Waits for every work queued so far that blocks of a store wait for, or with NULL of a device. */
tarn_status heaps_settle(struct arena *arena, struct store *store);

#endif
