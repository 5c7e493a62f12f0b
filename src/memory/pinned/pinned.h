/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory, for the rest of the library: pools, which the pools of graphs have beside
 * their device memory. */
#ifndef TARN_MEMORY_PINNED_H
#define TARN_MEMORY_PINNED_H

#include "device/stream.h"

#include <stdatomic.h>
#include <tarn/pinned.h>

/* A pool of pinned memory, separate from others. Its owner and others hold it, and each releases it
 * once the launches of its graphs have finished. With the last holder it ends: live blocks live on,
 * its segments join the default pool, and freed blocks of graphs become free. All calls except a
 * retain may call the driver, so none may be made in a function that the driver calls.
 *
 * A keeper keeps freed blocks that were recorded on a stream of a capture of the pool, whichever
 * pool they are from. The capture's keeper keeps them until its graph has ended; the pool's, until
 * no capture and no graph holds the pool. */
struct pinned_pool;
struct pinned_keeper;

/* Creates a pool with one holder, its owner, who counts captures and graphs in `holds`.
 * TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status pinned_pool_create(struct pinned_pool **pool);
void pinned_pool_own(struct pinned_pool *pool, const atomic_uint *holds);
/* Frees the blocks of graphs that were freed, if no capture or graph holds the pool. NULL is
 * allowed. */
void pinned_pool_settle(struct pinned_pool *pool);
/* The owner releases the pool, and ends. NULL is allowed. */
void pinned_pool_end(struct pinned_pool *pool);
void pinned_pool_retain(struct pinned_pool *pool);
void pinned_pool_release(struct pinned_pool *pool); /* NULL is allowed */

/* Creates the keeper of one capture of a pool, which ends with the capture's graph, even if other
 * graphs hold the pool longer. NULL if there is no host memory: then the pool's keeper is used. */
struct pinned_keeper *pinned_capture_create(struct pinned_keeper *parent);
/* The capture's graph has ended. Takes no lock. The owner may not use the keeper afterwards. */
void pinned_capture_over(struct pinned_keeper *capture);
/* The capture has ended, and no code will report the end of its graph: the pool's holds decide from
 * now on. The owner may not use the keeper afterwards. */
void pinned_capture_leave(struct pinned_keeper *capture);
/* The keeper for all graphs of a pool. */
struct pinned_keeper *pinned_pool_keeper(struct pinned_pool *pool);
/* Retains a keeper, with its pool. */
void pinned_keeper_retain(struct pinned_keeper *keeper);

/* Frees the block that begins at `pointer`. False if that is not pinned memory of tarn, or if tarn
 * does not run: then `status` is untouched, and nothing was done. */
bool pinned_free(void *pointer, tarn_status *status);
/* Records that work on a stream uses the live block that contains `pointer`. */
tarn_status pinned_record_stream(const void *pointer, tarn_stream stream);

/* Applies changed settings. `named`: the limit also counts if it has not changed. */
void pinned_configure(bool named);

/* Whether any address of a range, which does not wrap, is pinned memory of tarn. */
bool pinned_overlaps(uintptr_t start, size_t size);

/* The statistics, without checking for finished work. False if no pinned memory was used. */
bool pinned_view(tarn_pinned_stats *stats);

/* For tests, while no other code of tarn runs: TARN_OK, or TARN_ERROR_INTERNAL with a text that
 * names the broken invariant. */
tarn_status pinned_verify(void);
/* The usable bytes of the live block that begins at `pointer`. TARN_ERROR_INVALID_POINTER: there is
 * none. */
tarn_status pinned_usable(const void *pointer, size_t *size);

#endif
