/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory for the rest of the library: pools, which the pools of graphs have beside
 * their device memory. */
#ifndef TARN_MEMORY_PINNED_H
#define TARN_MEMORY_PINNED_H

#include "device/stream.h"

#include <stdatomic.h>
#include <tarn/pinned.h>

/* Pinned memory apart from everybody else's. It dies when its last holder lets go, who does so once
 * the launches of its graphs have finished: blocks that live then live on, its segments join the
 * default pool, and kept blocks are free. All calls except a retain may call the driver, so none is
 * made in a function that the driver calls.
 *
 * What is recorded on a stream of a capture of the pool is kept, when it is freed, whosever memory
 * it is, by a keeper: the capture's, until its graph has ended, or the pool's, until no capture and
 * no graph holds the pool. */
struct pinned_pool;
struct pinned_keeper;

/* A pool with one holder, its owner, who counts the captures and graphs in `holds`.
 * TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status pinned_pool_create(struct pinned_pool **pool);
void pinned_pool_own(struct pinned_pool *pool, const atomic_uint *holds);
/* Makes what was kept free if nothing holds the pool. NULL is fine. */
void pinned_pool_settle(struct pinned_pool *pool);
/* The owner ends, and lets go. NULL is fine. */
void pinned_pool_end(struct pinned_pool *pool);
void pinned_pool_retain(struct pinned_pool *pool);
void pinned_pool_release(struct pinned_pool *pool); /* NULL is fine */

/* What keeps the blocks of one capture of a pool, until its graph has ended: other graphs may hold
 * the pool for longer. NULL without host memory: then the pool keeps them. */
struct pinned_keeper *pinned_capture_create(struct pinned_keeper *parent);
/* The graph has ended. Takes no lock, and is the last use by its owner. */
void pinned_capture_over(struct pinned_keeper *capture);
/* The capture has ended, and nobody tells of its graph: what holds the pool decides. The last use
 * by its owner. */
void pinned_capture_leave(struct pinned_keeper *capture);
/* What keeps for all graphs of a pool. */
struct pinned_keeper *pinned_pool_keeper(struct pinned_pool *pool);
/* As for pools; one of a pool is retained with it. */
void pinned_keeper_retain(struct pinned_keeper *keeper);
void pinned_keeper_release(struct pinned_keeper *keeper);

/* Takes over what the settings say anew. */
void pinned_configure(void);

/* Whether an address of a range, which does not wrap, is pinned memory's. */
bool pinned_overlaps(uintptr_t start, size_t size);

/* The statistics as they are, without a look for finished work. False where no pinned memory was
 * used. */
bool pinned_view(tarn_pinned_stats *stats);

/* TARN_OK, or TARN_ERROR_INTERNAL with a text that names the broken invariant. For tests; nothing
 * else of tarn may run. */
tarn_status pinned_verify(void);
/* The usable bytes of the live block that begins there. TARN_ERROR_INVALID_POINTER: none does. */
tarn_status pinned_usable(const void *pointer, size_t *size);

#endif
