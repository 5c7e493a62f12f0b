/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stream-ordered requests under --pool. A *store* is a pool of the driver. A *lane* is what one stream has of one store: a pool in tarn, whose
 * segments are allocated from that store, and freed, in the order of that stream. So a block is the store's memory: whose it is, which
 * devices reach it and how much is reserved are the driver's own answers. */
#ifndef TARN_RUN_LANE_H
#define TARN_RUN_LANE_H

#include "pool.h"

#define LEGACY ((cu_stream)(uintptr_t)1) /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
#define PER_THREAD ((cu_stream)(uintptr_t)2)

/* Stores, store.c --------------------------------------------------------------------------------------------------- */

/* Numbers are from 1; 0 is none. */
enum { STORES = 64, LANES = 256 };

/* The driver's pool; NULL when it was destroyed. */
cu_pool store_pool(unsigned store);
unsigned store_device(unsigned store);
/* Whether blocks may be cut from its memory. */
bool store_is_fit(unsigned store);
/* Bytes that lanes have of it, and blocks of these. */
void store_segment(unsigned store, int64_t bytes);
void store_block(unsigned store, int64_t bytes);
/* What the store's pooled blocks have for a context: they go when its memory has gone. */
cu_context store_context(unsigned store);
/* A lane more or less refers to it. A store that was destroyed goes with its last lane. */
void store_refer(unsigned store, int change);
/* The primary context of a device has gone: of stores whose memory went with it, what lanes have is forgotten. */
void stores_end(unsigned device);
/* Whether more is reserved than the release threshold, so that the next wait of the program gives it back. */
bool store_is_above(unsigned store);
/* What the driver has free of stores above their thresholds goes back to the device. */
void stores_settle(void);
/* Whether a store was destroyed of which lanes still have memory. */
bool stores_are_closing(void);

/* Lanes, lane.c ----------------------------------------------------------------------------------------------------- */

/* For segments.c. Memory of the lane's store, in the order of its stream; 0: none. */
cu_address lane_take(unsigned lane, size_t size);
/* Frees it in that order, or, where no work uses it any more, without one. False where that is not possible now. */
bool lane_give(unsigned lane, cu_address address, bool is_idle);
unsigned lane_store(unsigned lane);

/* Gives the driver what no block is in: of one store, or with 0 of all stores of a device. */
void lanes_trim(unsigned store, unsigned device);
/* Takes out of a device's lanes what no block is in and this thread cannot give the driver before a wait: for segments_retry(). */
void lanes_take_out(unsigned device);
/* Gives what no block is in of stores that were destroyed. */
void lanes_trim_closed(void);
/* A block of a lane was freed, or of any. */
void lane_freed(unsigned lane);
void lanes_freed(void);
/* A wait of the program: for the work of a stream, by its name, or for that of a context. Of both NULL: for what is not known. */
struct lane_wait {
    cu_stream stream;
    cu_context context;
};
/* Before it: after a wait the driver gives back what a store has above its threshold. Whether lanes gave it any. */
bool lanes_before_wait(const struct lane_wait *wait);
/* The current context, where there are lanes. */
struct lane_wait lanes_wait_for_context(void);
/* After one that has succeeded; `turn`: of a wait for the whole current context, lanes_turn() from before it, else 0. */
void lanes_after_wait(uint64_t turn);
/* The next number in the order of what waits for such a wait, and of these. */
uint64_t lanes_turn(void);
/* A stream is about to be destroyed. */
void lanes_leave_stream(cu_stream stream);
/* The store's pool was destroyed. */
void lanes_close(unsigned store);
/* The primary context of a device has gone. */
void lanes_end(unsigned device);

/* A segment of it is no longer there. */
void lane_lose(unsigned lane);

/* A block in a lane was freed in the order of a stream: whether that is the lane's. */
bool lane_is_of(unsigned lane, cu_stream stream, bool per_thread);
cu_context lane_context(unsigned lane);

/* pool.c ------------------------------------------------------------------------------------------------------------ */

/* A pool of tarn's for a lane, or with 0 for plain blocks. */
struct tarn_pool *pool_create(unsigned device, unsigned lane);
/* Cuts a block from it, and writes it down: its key, and that it is pooled, are filled in. */
bool pool_cut(struct tarn_pool *pool, struct block *block, cu_stream stream, void *caller);
/* Makes a context current, if it is not. */
bool context_enter(cu_context context, bool *pushed);
void context_leave(bool pushed);
/* Calls of the shim's own, which no capture of another thread may forbid, are between the two. */
cu_capture_mode mode_relax(void);
void mode_restore(cu_capture_mode mode);
/* Whether requests of this context are pooled. */
bool pool_is_of(unsigned device, cu_context context);
/* Blocks whose last use has ended become free; whether there are any that wait for that. */
void late_look(void);
bool late_is_any(void);
/* A wait for the current context, which began in this turn, has ended. */
void late_waited(unsigned device, uint64_t turn);

#endif
