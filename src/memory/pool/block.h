/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Live blocks, looked up by address. An entry of the page map is trusted only under the lock of the
 * heap that it names. */
#ifndef TARN_MEMORY_BLOCK_H
#define TARN_MEMORY_BLOCK_H

#include "memory/heap/slab.h"

#include <tarn/memory.h>

/* A live block, found under the lock of its heap, which stays held until block_unlock(). If the
 * block has its own span, the span is claimed until then. */
struct block {
    struct heap *heap;
    struct span *span;
    struct slab *slab; /* NULL: the block has its own span */
    unsigned slot;
    uintptr_t start;
    size_t size, requested; /* bytes */
    size_t front;           /* bytes of debug mode's zone before the caller's pointer */
    bool ended;             /* it was freed */
};

/* Bytes that the caller may use. */
static inline size_t block_usable(const struct block *block)
{
    return block->front ? block->requested : block->size;
}

/* Finds the live block that contains an address, and returns with the lock of its heap held. For a
 * pointer from a caller, use share/pointer.h. */
bool block_find_lock(uintptr_t address, struct block *block);
void block_unlock(const struct block *block);
/* The same, after the block was freed. */
void block_unlock_freed(const struct block *block);

/* Finds what is live now at an address in the slab of a block that was found, after the heap's
 * caches were stopped: the owner of one may have freed it before. */
bool block_find_again_locked(uintptr_t address, struct block *block);
/* The facts of a block for callers. Under the heap's lock. */
tarn_block_info block_info_locked(const struct block *block);

/* The head of the list of a block's uses; NULL if the host has no memory for it. */
struct use **block_uses(struct block *block);
/* The list of a block's uses. */
struct use *block_uses_of(const struct block *block);

/* Ends a live block: its memory goes to the heap, or waits for the streams that use it. With
 * `look`, debug mode may make it wait too. */
void block_free_locked(struct block *block, bool look);
/* Announces the end of a block to tools, before it is freed and its memory is reused. No lock held.
 * So another thread that frees the block may announce it too. If the free then fails for lack of
 * host memory, the block lives on although its end was announced. */
void block_announce_end(const void *pointer);
/* Frees a block at once, even if debug mode would check it first. False if no block begins
 * there. */
bool block_free_now(void *pointer);

/* Whether the host device's checker wants to know which stream owns which memory. */
static inline bool blocks_are_watched(void)
{
    return driver->checking && driver->checking();
}

#endif
