/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks that were freed while other streams use them: their uses, and waiting for work that holds
 * memory back. */
#ifndef TARN_MEMORY_WAIT_H
#define TARN_MEMORY_WAIT_H

#include "memory/heap/heap.h"

/* Adds a stream's use to the uses of a block of the heap that has `waiting`; no second one for the
 * same stream. Under the heap's lock, as the next two. */
tarn_status use_add_stream(struct waiting *waiting, struct use **uses, struct stream *stream);
/* Adds the heap's own stream in front, for debug mode. */
tarn_status use_add_own(struct heap *heap, struct use **uses);
/* Adds a mark. The list keeps it. */
tarn_status use_add_mark(struct waiting *waiting, struct use **uses, struct mark *mark);

/* Notes in a live block's list that graphs refer to it. Its free then takes the slow path. */
tarn_status use_add_referred(struct use **uses, struct referred *referred);
/* What is noted in a list. NULL: nothing. */
struct referred *use_referred(const struct use *uses);
/* Takes the note of graphs out of a list of uses, to move it to another list or to end it. NULL:
 * the list has none. */
struct use *use_take_referred(struct use **uses);
void use_put_referred(struct use **uses, struct use *note);
void use_end_referred(struct use *note);

/* Adds the uses of the heap's live blocks to `sum`, once per stream. */
tarn_status uses_sum_locked(struct heap *heap, struct use **sum);
/* Waits for the work that the streams in `sum` have queued so far. Frees the list, also on
 * failure. */
tarn_status uses_wait(const struct arena *arena, struct use *sum);

/* Makes a freed block wait for its uses: records a mark on each stream that uses it. Cannot fail: a
 * mark that cannot be recorded now is recorded later. */
void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses,
                       size_t size);

/* Frees waiting blocks whose uses have ended, and parked blocks. Returns the number of waiting
 * blocks that ended. Never waits.
 *
 * It asks the driver once per stream, and once more per use that has ended since the last check. It
 * tries again to mark streams that could not be marked. It touches no block whose uses are all
 * pending, except those of captures (capture_order.h) and of debug mode. */
size_t wait_collect_locked(struct heap *heap);

/* Whether a pending use is the first pending one of its block. */
bool wait_is_first(const struct use *use);
/* Bytes of the block of a pending use. */
size_t wait_size(const struct use *use);

/* Whether waiting helps: blocks wait for other streams, or pieces in free spans are not idle. If
 * so, `mark` is the mark to wait for, which the caller releases; or NULL if work has just ended and
 * another attempt may succeed. Closes the open batch if necessary. */
bool wait_oldest_locked(struct heap *heap, struct mark **mark);

/* Frees waiting blocks whose uses have ended, and collects the empty slabs of all threads. Takes
 * the heap's lock, as all functions below. */
void heap_collect(struct heap *heap);

/* Marks that hold memory of some heaps back, the first MARKS_MOST that are found. The caller waits
 * until any of them has ended. All zero at first. */
struct wait_any {
    /* `whole`: one that needs a wait for the whole device. */
    struct mark *marks[MARKS_MOST], *whole;
    size_t count;
    bool ended; /* some work has ended already: no wait is needed */
};

/* Adds the marks that hold memory of a heap back. */
void wait_any_add(struct wait_any *any, struct heap *heap);
/* Adds a mark that had not ended at the last look. */
void wait_any_add_mark(struct wait_any *any, struct mark *mark);
/* Waits until some of the work on memory of the arena has ended, or until `until`: then `status` is
 * TARN_ERROR_NOT_READY. Waits for the whole device only if there is no other mark, and never with a
 * bound. False if there is nothing to wait for. Empties `any`. */
bool wait_any(struct wait_any *any, const struct arena *arena, uint64_t until, tarn_status *status);

/* An upper bound of the waits after which all work that is queued now has ended and its memory is
 * idle, if nothing more is queued. For the heaps of a store; if it is NULL, of the arena. */
size_t waits_ahead(struct arena *arena, struct store *store);
/* The same for the heaps whose memory may serve a store. */
size_t waits_ahead_serving(struct store *wanting);
/* The same for one heap. */
size_t heap_waits_locked(const struct heap *heap);

/* Waits for all work queued so far that holds memory of a store back; if it is NULL, of the
 * arena. */
tarn_status heaps_settle(struct arena *arena, struct store *store);

#endif
