/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Rest: which free memory of a heap nobody has used for a while, so that it goes back by itself
 * (pressure/release.h).
 *
 * The number of a free span's batch is its stamp. A look at a heap opens the next batch, without a
 * mark: the later mark covers the batches before its own too. So at the next look, what is in a
 * batch up to that of the last look was free all the time in between: it has *rested*. A free span
 * that was joined to one freed since the last look has not rested, and neither has memory that the
 * heap has grown by since then. Stamps cost nothing on any path of the program, since a free notes
 * its batch anyway. */
#ifndef TARN_MEMORY_REST_H
#define TARN_MEMORY_REST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap;

/* A member of the heap, under its lock. */
struct rest {
    uint64_t looked; /* ns of a monotonic clock: the last look */
    uint64_t batch;  /* the batch that was open at the last look; 0: there was none */
    /* Contains all that the heap has grown by since memory last went; both 0: nothing. */
    uintptr_t grown_start, grown_end;
    /* Memory that has rested, or blocks that wait, need a mark, which a thread of the program
     * records. */
    bool wants_mark;
};

/* A look: blocks whose uses have ended, parked blocks and empty slabs of threads become free spans
 * first. Returns the last batch that has rested; 0: none. */
uint64_t heap_rest_locked(struct heap *heap);
/* Notes memory that the heap has grown by. */
void heap_rest_grown_locked(struct heap *heap, uintptr_t start, size_t size);
/* Returns whether batches up to `rested` need a mark before their memory can go, and notes it in
 * `wants_mark`. */
bool heap_rest_wants_mark_locked(struct heap *heap, uint64_t rested);
/* Records the marks that were noted. Takes the heap's lock. False: the marks are still to be
 * recorded, because the stream is another thread's default stream (stream_is_foreign()). */
bool heap_rest_mark(struct heap *heap);

#endif
