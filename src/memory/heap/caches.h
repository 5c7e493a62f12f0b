/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* All caches of a heap, one per thread (cache.h). Code that looks at the heap's small blocks, or
 * wants their memory, stops the caches or has them give up what they can. */
#ifndef TARN_MEMORY_CACHES_H
#define TARN_MEMORY_CACHES_H

#include "base/thread/lock.h"

#include <tarn/memory.h>
#include <tarn/stats.h>

struct cache;
struct heap;

/* A member of the heap, under its lock. No cache ever leaves the list: that of an ended thread
 * waits for another thread. While the caches rest, their gates are shut, they have nothing to give,
 * and all that they count is published. */
struct caches {
    mutex lock;          /* taken inside the heap's lock to change the list; a leaf */
    struct cache *first; /* linked by `next` */
    atomic_bool resting; /* read without the lock too */
};

/* Makes the heap's caches give up all they can: collects slots that other threads freed, gives
 * empty slabs to the heap, and publishes the counts. The caches then rest: their gates stay shut
 * until one is used again. */
void caches_reclaim_locked(struct heap *heap);

/* Closes the fast path of a heap for good, including parked spans: the stream was retired, or tarn
 * is shut down. */
void caches_close_locked(struct heap *heap);
/* Opens the fast path again when the heap is reused. */
void caches_open_locked(struct heap *heap);

/* Shuts the gates because the device is lost. Takes only the list's lock. */
void caches_lose(struct caches *caches);

/* Publishes the counts of the caches, which keep their slabs. */
void caches_publish_locked(struct caches *caches);

/* Stops the caches, after collecting slots that other threads have freed, until
 * caches_go_on_locked(). */
void caches_stop_locked(struct caches *caches);
void caches_go_on_locked(struct caches *caches);

/* Adds the counts that the caches have not published to `stats`. */
void caches_count_locked(const struct caches *caches, tarn_stats *stats);
/* The classes of which a cache has a slot at home, as bits. All rest. */
uint64_t caches_slots_locked(const struct caches *caches);

#endif
