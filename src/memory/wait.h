/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks whose owner has freed them while work of other streams still uses them. */
#ifndef TARN_MEMORY_WAIT_H
#define TARN_MEMORY_WAIT_H

#include "memory/heap.h"

/* Adds a use of a block to its list, once a stream. */
tarn_status use_add_stream(struct use **uses, struct stream *stream);
/* Adds the heap's own stream in front, for debug mode. */
tarn_status use_add_own(struct use **uses, const struct heap *heap);
/* The same for a mark, which is then the list's. */
tarn_status use_add_mark(struct use **uses, struct mark *mark);

/* Adds to `sum`, once a stream, the uses of the heap's live blocks; and waits for the work that their streams have queued until
 * now. Ends the list, also on failure. */
tarn_status uses_sum_locked(struct heap *heap, struct use **sum);
tarn_status uses_wait(struct use *sum);

/* Puts a freed block with uses into the heap's list, after a mark on each stream that uses it. Cannot fail: a mark that
 * cannot be made or recorded now is recorded later. */
void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses, size_t size);

/* Makes free what has ended, and what is kept. Gives how many blocks did. Never waits. */
size_t wait_collect_locked(struct heap *heap);

/* Whether waiting helps: true when a block waits for other streams, or pieces in free spans are not idle yet. Then gives
 * what to wait for first, kept for the caller; or NULL when something has ended just now and is worth another try. Closes the
 * open batch if need be. */
bool wait_oldest_locked(struct heap *heap, struct mark **mark);

#endif
