/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Following a plan. Each arena of the plan is followed by one heap at most of a device: that of the stream and pool whose requests begin as
 * the arena's do. The default pool's heaps follow the default pool's arenas. A private pool follows those of one pool of the plan, and no
 * other pool follows these until it has ended: a pool is told by how its requests begin, since names and addresses differ between runs.
 * Heaps share nothing of a plan, so what is free in a heap's order is all that a place needs.
 *
 *   heap's runs   [ small ][          the plan's arena          ]...growth      mapped at once when the heap begins to follow
 *   zone            SMALL                   LARGE
 *
 * The arena is free memory of the heap like any other; the plan only says where in it a request is best put. A place is used if it is
 * free, so nothing depends on the program doing what the plan says. */
#ifndef TARN_MEMORY_PLAN_H
#define TARN_MEMORY_PLAN_H

#include "memory/heap/heap.h"
#include "memory/settings/plan_file.h"

struct plan_follower;

/* Whether the plan in force has an arena that nobody follows, and that a request of the heap, which follows none, may be the beginning of.
 * For a first look, without a lock. */
bool plan_may_begin(const struct heap *heap, size_t size);

/* Makes the heap the one that follows such an arena, with its memory mapped; nothing where another one was faster, or the memory cannot be
 * had, of which the log tells. With no lock held. */
void plan_begin(struct heap *heap, size_t size);

/* Cuts a span for a request where the plan has it, or if that is not free, or the request is not planned, where the plan has nothing as
 * long as the block is likely to live. SPAN_TAKEN; TARN_ERROR_OUT_OF_MEMORY, without a text, where the ordinary way must be gone. */
tarn_status plan_take_locked(struct heap *heap, const struct request *request, struct span **span);

/* Ends the following: the stream is retired, the pool left behind, or all memory of the heap was given up; another may begin. What is in the
 * arena stays the heap's. */
void plan_end_locked(struct heap *heap);

/* For tests: how many requests of the process were put where a plan has them, where it leaves room, and went the ordinary way. */
struct plan_counts {
    uint64_t planned, beside, ordinary;
};
struct plan_counts plan_counts(void);

#endif
