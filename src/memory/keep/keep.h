/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A kept pool, beside its `struct pool`: the addresses that it has reserved, its segments, the
 * connection to the owner, and which of its blocks are sealed. The pool is one of plain segments
 * with an allocator, and the allocator is this (window.c), so that heaps and stores know nothing of
 * keeping. It lasts as long as the pool. */
#ifndef TARN_MEMORY_KEEP_H
#define TARN_MEMORY_KEEP_H

#include "base/thread/lock.h"
#include "base/tree.h"
#include "memory/keep/layout.h"
#include "memory/pool/pool.h"

/* One segment of the pool's addresses. */
struct keep_piece {
    uint64_t offset, size; /* bytes */
    driver_piece handle;   /* 0: being made or ended by a thread */
};

struct keep {
    struct pool *pool;
    struct device *device;
    struct keep *next; /* keeps_lock (window.c) */
    struct layout *layout;
    uintptr_t base; /* reserved addresses, constant */
    size_t window;  /* bytes of them */
    char path[KEEP_SOCKET_BYTES], name[TARN_KEEP_NAME_BYTES];
    bool begun;   /* others may find the pool */
    bool returns; /* it ends because its making failed: the owner keeps what it has */

    mutex talking; /* over each request to the owner and its answer */
    int socket;    /* -1: the owner is gone */

    mutex lock; /* a leaf, of the rest */
    struct keep_piece pieces[KEEP_SEGMENTS_MOST];
    unsigned piece_count;     /* by offset */
    struct tree seals, names; /* of the sealed blocks: by offset, and by name */
    size_t seal_count;
    uint64_t free_place; /* in the layout: the number of a free place among the used ones, and 1; 0:
                            none. The place's `offset` is the next one's */
};

/* The kept pool of a store, or NULL. */
static inline struct keep *keep_of_store(const struct store *store)
{
    return store_has(store, STORE_KEPT) ? store->allocator.user : NULL;
}

/* What frees segments of a kept pool, and learns of its end; `user` is its `struct keep`. */
extern const tarn_pool_allocator keep_allocator;

/* Reserves addresses for a pool, where a pool of this slot had them before, or at `wish`, if they
 * are free. */
tarn_status window_reserve(struct keep *keep, uint64_t wish, uint32_t slot);
void window_unreserve(struct keep *keep);
/* Maps a segment that came with its file, at its offset. */
tarn_status window_adopt(struct keep *keep, uint64_t offset, uint64_t size, int file);
/* From now on a peer that is enabled reaches the pool's memory. */
void window_enter(struct keep *keep);
/* Unmaps the segments that are in no heap; the owner keeps them. */
void window_abandon(struct keep *keep);
/* Gives a new peer of the device access to every kept pool. */
tarn_status keeps_grant(const struct device *device, int peer);

/* A request to the owner and its answer. TARN_ERROR_SYSTEM if the owner is gone. `files` and
 * `came`: of the answer, or NULL for one without. */
tarn_status keep_ask(struct keep *keep, const struct keep_message *request, int file,
                     struct keep_message *answer, int *files, unsigned *came);

/* Makes a segment for the pool. */
tarn_status keep_segment(const struct store *store, size_t size, uintptr_t *address);
/* A sealed block is freed, under its heap's lock. */
void keep_forget_locked(const struct store *store, uintptr_t address);
/* The pool is gone. */
void keep_destroy(struct keep *keep);

#endif
