/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A step function: who owns each point of a line of 64-bit positions. Every point has a value, at
 * first 0; an assignment gives a range a new value. Either call costs two binary searches, whatever
 * the length of the range, plus the earlier steps that an assignment replaces. Not thread-safe. */
#ifndef TOOLS_STEPS_H
#define TOOLS_STEPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct steps_chunk;

struct steps {
    uint64_t *firsts; /* the first position of each chunk, ascending; the first is 0 */
    struct steps_chunk **chunks;
    size_t chunk_count, chunk_capacity;
    /* Where the last search ended: the next one is often for the same position. */
    size_t last_chunk, last_index;
};

/* False when memory is short. */
bool steps_init(struct steps *steps);
void steps_finish(struct steps *steps);

/* A walk over a range, one step at a time. An assignment ends it. */
struct steps_walk {
    const struct steps *steps;
    size_t chunk, index;
    uint64_t end;      /* of the range walked */
    uint64_t from, to; /* the current step, clipped to the range */
    uint32_t value;
};

/* Goes to the first step of [start, end), and to the next. False when there is none. */
bool steps_walk_first(struct steps *steps, uint64_t start, uint64_t end, struct steps_walk *walk);
bool steps_walk_next(struct steps_walk *walk);

/* Gives [start, end) a value; start < end < UINT64_MAX. False if memory is short: no value has
 * changed, but some steps may have been divided. */
bool steps_assign(struct steps *steps, uint64_t start, uint64_t end, uint32_t value);

#endif
