/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode: the functions by which the memory layer reports to it and asks it. Public calls call them directly, lower rooms through
 * hooks.h. Without TARN_DEBUG none is called, which costs one predictable branch on a slow path.
 *
 *   front zone | what the caller has | back zone     a block of a heap, with the word redzone
 *
 * With redzone, poison or quarantine a freed block waits in its heap's list like one that other streams use (wait.h): for
 * the work of its own stream, and then until debug mode has checked and released it. Until then its memory is not reused, is
 * counted like that of other waiting blocks, and can be reclaimed by the ladder. */
#ifndef TARN_MEMORY_DEBUG_H
#define TARN_MEMORY_DEBUG_H

#include "base/debug_words.h"
#include "memory/heap/heap.h"

struct debug_block;

/* Whether blocks are remembered. */
static inline bool debug_is_on(void)
{
    return debug_has(DEBUG_BLOCKS);
}

/* Once: turns the host device's checker on where that is asked for. */
void debug_init(void);

/* The start of a public call, with no lock held: compares devices, looks at freed blocks from time to time, hands reports out. */
void debug_turn(void);

/* Who called the public function that runs: what the thread allocates or frees next has this call site. */
void debug_site_take(void *caller);
static inline void debug_enter(void *caller)
{
    if (debug_is_on())
        debug_site_take(caller);
}

/* A block was made, at `start` and of `size` bytes: it is remembered, and its zones and contents are filled. No lock held. */
void debug_begin(struct heap *heap, uintptr_t start, size_t size, const struct request *request, uint64_t owner);
/* It has grown in place. */
void debug_extended_locked(uintptr_t start, size_t size, size_t requested);
/* It is freed. With `uses` one is added in front, so that it waits until it was looked at, if that is possible; with NULL, or
 * where it is not, it is freed as ever. Under the heap's lock. */
void debug_free_locked(struct heap *heap, uintptr_t start, struct use **uses);
/* A free was refused, with the last error: adds to it what is known of the pointer, and reports it. No lock held. */
tarn_status debug_bad_free(uintptr_t address, tarn_status status);

/* What wait.c says and asks of a freed block: that its uses have ended; whether it can be let go; that it is. Under the heap's lock. */
void debug_ended_locked(struct debug_block *block);
bool debug_is_over(const struct debug_block *block);
void debug_gone_locked(struct debug_block *block);

/* Lets everything go that waits for debug mode alone. True when blocks have become free since `seen`, which is updated. Calls the
 * driver, and waits for its own copies. No lock held. */
bool debug_relieve(struct arena *arena, uint64_t *seen);

/* Waits until no block of a store waits for debug mode. */
void debug_settle(struct store *store);
/* The contents of a store's blocks are lost: their red zones are not looked at. */
void debug_forget(const struct store *store);

/* While they hold it debug mode does not look at blocks, so that these may be freed without waiting for it. */
void debug_pause(void);
void debug_go_on(void);

/* The last look and the list of leaks, before a device's memory is finished with. */
void debug_shutdown(struct arena *arena);
/* After that, for all devices: hands the last reports out. */
void debug_finish(void);

#endif
