/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode: the functions by which the memory layer reports to it and asks it. Public calls call
 * them directly, lower rooms through hooks.h. Without TARN_DEBUG none is called, which costs one
 * predictable branch on a slow path.
 *
 *   front zone | what the caller has | back zone     a block of a heap, with the word redzone
 *
 * With redzone, poison or quarantine a freed block waits in its heap's list like one that other
 * streams use (wait.h): for the work of its own stream, and then until debug mode has checked and
 * released it. Until then its memory is not reused, is counted like that of other waiting blocks,
 * and can be reclaimed by the ladder. */
#ifndef TARN_MEMORY_DEBUG_H
#define TARN_MEMORY_DEBUG_H

#include "base/debug_words.h"
#include "memory/heap/heap.h"

struct debug_block;

/* Whether blocks are recorded. */
static inline bool debug_is_on(void)
{
    return debug_has(DEBUG_BLOCKS);
}

/* Called once: turns the host device's checker on if TARN_DEBUG says so. */
void debug_init(void);

/* The start of a public call, with no lock held: compares devices, checks freed blocks from time to
 * time, and delivers reports. */
void debug_turn(void);

/* Sets the call site for the next blocks that the thread allocates or frees: the caller of the
 * public function. */
void debug_site_take(void *caller);
static inline void debug_enter(void *caller)
{
    if (debug_is_on())
        debug_site_take(caller);
}

/* A block was allocated, at `start` and of `size` bytes: records it, and fills its zones and
 * contents. No lock held. */
void debug_begin(struct heap *heap, uintptr_t start, size_t size, const struct request *request,
                 uint64_t owner);
/* A block has grown in place. */
void debug_extended_locked(uintptr_t start, size_t size, size_t requested);
/* A block is freed. With `uses`, adds a use to the front of the list if possible, so that the block
 * waits until it was checked. With NULL, or if that is not possible, the block is freed as usual.
 * Under the heap's lock. */
void debug_free_locked(struct heap *heap, uintptr_t start, struct use **uses);
/* A free was refused, with the last error: adds the records of the pointer to the text, and reports
 * it. No lock held. */
tarn_status debug_bad_free(uintptr_t address, tarn_status status);

/* Calls by wait.c about a freed block: its uses have ended; whether it can be freed; it was freed.
 * Under the heap's lock. */
void debug_ended_locked(struct debug_block *block);
bool debug_is_over(const struct debug_block *block);
void debug_gone_locked(struct debug_block *block);

/* Releases all blocks that only debug mode still holds. True if blocks have become free since
 * `seen`, which is updated. Calls the driver, and waits for its own copies. No lock held. */
bool debug_relieve(struct arena *arena, uint64_t *seen);

/* Waits until no block of a store waits for debug mode. */
void debug_settle(struct store *store);
/* The contents of a store's blocks are lost: their red zones are not checked. */
void debug_forget(const struct store *store);

/* Between these two calls debug mode does not read blocks, so blocks may be freed without waiting
 * for it. */
void debug_pause(void);
void debug_go_on(void);

/* TARN_ERROR_BUSY in the caller's function for reports. */

/* The last check and the list of leaks, before a device's memory ends. */
void debug_shutdown(struct arena *arena);
/* After that, for all devices: delivers the last reports. */
void debug_finish(void);

#endif
