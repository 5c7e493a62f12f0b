/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Live blocks, looked up by address. A pointer is trusted only under the lock of the heap that the page map names for it. */
#ifndef TARN_MEMORY_BLOCK_H
#define TARN_MEMORY_BLOCK_H

#include "memory/slab.h"

/* A live block, found under the lock of its heap, which stays held until block_unlock(); a span of its own is claimed so long. */
struct block {
    struct heap *heap;
    struct span *span;
    struct slab *slab; /* NULL for a span of its own */
    unsigned slot;
    uintptr_t start;
    size_t size, requested; /* bytes */
    size_t front;           /* bytes from the start to what the caller has: debug mode's */
    bool ended;             /* it was freed */
};

/* What the caller may use. */
static inline size_t block_usable(const struct block *block)
{
    return block->front ? block->requested : block->size;
}

/* Finds the live block that holds an address; or that begins there, with an error text where there is none. With the lock of its
 * heap held then. */
bool block_find_lock(uintptr_t address, struct block *block);
tarn_status block_lock(const void *pointer, bool start, struct block *block);
void block_unlock(const struct block *block);
/* The same after a free. */
void block_unlock_freed(const struct block *block);

/* Where the list of a block's uses begins; NULL where the host has no memory for it. */
struct use **block_uses(struct block *block);

/* Whether the driver wants to know whose memory is whose. */
static inline bool blocks_are_watched(void)
{
    return driver->checking && driver->checking();
}

#endif
