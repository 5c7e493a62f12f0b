/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Following a plan. Each arena of the plan is followed by one heap at most of a device: that of the
 * stream and pool whose requests begin as the arena's do. The default pool's heaps follow the
 * default pool's arenas. A private pool follows those of one pool of the plan, and no other pool
 * follows these until it has ended: a pool is told by how its requests begin, since names and
 * addresses differ between runs. Heaps share nothing of a plan, so what is free in a heap's order
 * is all that a place needs.
 *
 *   reservation   | places with memory | hole | places with memory | hole |
 *
 * The heap's reservation (following.h) is as large as the plan's arena.
 *
 * The addresses are claimed when the heap begins to follow. A place gets memory when it is first
 * used, so what a run leaves out takes none. Memory there is memory of the heap like any
 * other; the plan only says where in it a request is best put. A place is used if it is free, so
 * nothing depends on the program doing what the plan says. */
#ifndef TARN_MEMORY_PLAN_H
#define TARN_MEMORY_PLAN_H

#include "memory/heap/heap.h"
#include "memory/settings/plan_file.h"

/* Whether the plan in force has an arena that nobody follows and that begins with a request of this
 * size, and the heap follows none. For a first look, without a lock: it does not know whether the
 * heap's pool may follow that arena, since the pool may just have ended. */
bool plan_has_beginning(const struct heap *heap, size_t size);
static inline bool plan_may_begin(const struct heap *heap, size_t size)
{
    return atomic_load_explicit(&plan_now, memory_order_relaxed) && plan_has_beginning(heap, size);
}

/* Makes the heap the one that follows such an arena; nothing where another one was faster, or there
 * are no addresses for it, of which the log tells. With no lock held. */
void plan_begin(struct heap *heap, size_t size);

/* Cuts a span for a request of a heap that follows a plan: where the plan has the request; or, if
 * that place is not free or the request is not planned, where the plan has nothing for as long as
 * the block is likely to live. The span is SPAN_TAKEN. Lets go of the heap's lock to map memory
 * there. TARN_ERROR_OUT_OF_MEMORY, without a text, if there is no such place: the request is to be
 * served as without a plan. */
tarn_status plan_serve_relocking(struct heap *heap, const struct request *request,
                                 struct span **span);

/* The heap follows no plan any more, because its stream is retired, its pool left behind, or all
 * its memory given up. Another heap may follow the arena then. Blocks in the reservation stay
 * where they are, and its holes are unclaimed. Blocks are kept again from here on, unless the heap
 * is left behind. */
void plan_end_locked(struct heap *heap);

/* For tests: how many requests of the process were put where a plan has them, where it leaves room,
 * and as without a plan. */
struct plan_counts {
    uint64_t planned, beside, ordinary;
};
struct plan_counts plan_counts(void);

#endif
