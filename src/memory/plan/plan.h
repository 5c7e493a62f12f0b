/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Following a plan (plan_file.h). A plan has arenas. At most one heap of a device follows each: the
 * heap of the stream and pool whose requests begin as the arena's do. Names and addresses differ
 * between runs, so only the first requests identify a pool. Heaps of the default pool follow the
 * default pool's arenas. A private pool follows the arenas of one pool of the plan; no other pool
 * follows these until it has ended.
 *
 *  reservation   | places with memory | hole | places with memory | hole |
 *
 * The heap's reservation (following.h) is as large as the plan's arena. Its addresses are claimed
 * when the heap begins to follow. A place is where the plan puts one request. It gets memory when
 * it is first used, so what a run leaves out takes none. Memory in the reservation is memory of the
 * heap like any other; the plan only says where a request is best put. A place is used only if it
 * is free, so nothing depends on the program doing what the plan says.
 *
 * Everything is under the heap's lock, except `planned` (arena/arena.h), the list of which heap has
 * which arena. */
#ifndef TARN_MEMORY_PLAN_H
#define TARN_MEMORY_PLAN_H

#include "memory/heap/heap.h"
#include "memory/settings/plan_file.h"

/* Whether the heap follows no arena, and the plan in force has an arena that no heap follows and
 * that begins with a request of this size. A hint, without a lock: the heap's pool may not be
 * allowed to follow that arena. */
bool plan_has_beginning(const struct heap *heap, size_t size);
static inline bool plan_may_begin(const struct heap *heap, size_t size)
{
    return atomic_load_explicit(&plan_now, memory_order_relaxed) && plan_has_beginning(heap, size);
}

/* Makes the heap follow such an arena. Does nothing if another heap was faster. If there are no
 * addresses or no host memory for it, writes that to the log: then the arena stays the heap's, and
 * nobody follows it. The caller holds no lock. */
void plan_begin(struct heap *heap, const struct request *request);

/* Takes a span for a request of a heap that follows a plan: at the place that the plan has for it.
 * If that is not free, or the request is not in the plan, at a place where the plan has nothing for
 * as long as the block is likely to live. The span is SPAN_TAKEN. Releases the heap's lock
 * meanwhile, if it has to map memory. TARN_ERROR_OUT_OF_MEMORY, without a text, if there is no such
 * place: serve the request as without a plan. */
tarn_status plan_serve_relocking(struct heap *heap, const struct request *request,
                                 struct span **span);

/* Called when the heap's stream is retired, its pool is left behind, or all its memory is given up.
 * The heap no longer has an arena of the plan, whether or not it followed one, and another heap may
 * follow that. Blocks in the reservation stay, and its holes are unclaimed. The heap may park
 * blocks again, unless it is left behind. */
void plan_end_locked(struct heap *heap);

/* For tests: how many requests of the process went to their place in the plan, to free room of the
 * plan, and as without a plan. */
struct plan_counts {
    uint64_t planned, beside, ordinary;
};
struct plan_counts plan_counts(void);

#endif
