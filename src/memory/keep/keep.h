/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a kept pool has in addition to its `struct pool`: reserved addresses, segments, the
 * connection to the owner, and the sealed blocks. To heaps and stores it is a pool of plain
 * segments with a caller's allocator: that allocator is in window.c. A `struct keep` lasts as long
 * as its pool. */
#ifndef TARN_MEMORY_KEEP_H
#define TARN_MEMORY_KEEP_H

#include "base/thread/lock.h"
#include "base/tree.h"
#include "memory/keep/layout.h"
#include "memory/pool/pool.h"

/* One segment of the pool's addresses. */
struct keep_piece {
    uint64_t offset, size; /* bytes */
    driver_piece handle;   /* 0: a thread is creating or ending the segment */
};

struct keep {
    struct pool *pool;
    struct device *device;
    struct keep *next; /* keeps_lock (window.c) */
    struct layout *layout;
    uintptr_t base; /* reserved addresses, constant */
    size_t window;  /* bytes of them */
    char path[KEEP_SOCKET_BYTES], name[TARN_KEEP_NAME_BYTES];
    bool begun;   /* other threads can find the pool */
    bool returns; /* the adoption failed: at the end, the owner keeps its segments */

    mutex talking; /* held from a request to the owner until its answer */
    int socket;    /* -1: the owner is gone */

    mutex lock; /* of all fields below; no other lock is taken under it */
    struct keep_piece pieces[KEEP_SEGMENTS_MOST];
    unsigned piece_count;     /* by offset */
    struct tree seals, names; /* of the sealed blocks: by offset, and by name */
    size_t seal_count;
    uint64_t free_place; /* 1 + the number of the first free place of the layout that was used
                            before; 0: none. Its `offset` has the next one in the same form */
};

/* The kept pool of a store, or NULL. */
static inline struct keep *keep_of_store(const struct store *store)
{
    return store_has(store, STORE_KEPT) ? store->allocator.user : NULL;
}

/* The allocator of kept pools. It frees segments, and is told when the pool ends. Its `user` is the
 * pool's `struct keep`. */
extern const tarn_pool_allocator keep_allocator;

/* Reserves addresses for a pool: at `wish` if it is not 0, otherwise at the place of the slot. If
 * those are taken, reserves others. */
tarn_status window_reserve(struct keep *keep, uint64_t wish, uint32_t slot);
void window_unreserve(struct keep *keep);
/* Maps a segment, whose memory `file` names, at its offset in the pool's addresses. */
tarn_status window_adopt(struct keep *keep, uint64_t offset, uint64_t size, int file);
/* Adds the pool to the list that keeps_grant() goes through. */
void window_enter(struct keep *keep);
/* After a failed adoption: unmaps the segments that no heap has. The owner keeps them. */
void window_abandon(struct keep *keep);
/* Gives a new peer of the device access to every kept pool. */
tarn_status keeps_grant(const struct device *device, int peer);

/* Sends a request to the owner and waits for the answer. `files` receives the answer's files and
 * `came` their number; both are NULL if it has none. TARN_ERROR_SYSTEM if the owner is gone. */
tarn_status keep_ask(struct keep *keep, const struct keep_message *request, int file,
                     struct keep_message *answer, int *files, unsigned *came);

/* Creates a segment for a kept pool, and hands it to the owner. */
tarn_status keep_segment(const struct store *store, size_t size, uintptr_t *address);
/* Removes the seal of a block that is being freed. Heap lock. */
void keep_forget_locked(const struct store *store, uintptr_t address);
/* Called when the pool has ended. */
void keep_destroy(struct keep *keep);

#endif
