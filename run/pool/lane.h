/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stream-ordered requests under --pool. A *source* is a pool of the driver. A *lane* is what one
 * stream has of one source: a pool in tarn, whose segments are allocated from that source, and
 * freed, in the order of that stream. So a block is the source's memory: whose it is, which devices
 * reach it and how much is reserved are the driver's own answers. */
#ifndef TARN_RUN_LANE_H
#define TARN_RUN_LANE_H

#include "pool.h"

#define LEGACY ((cu_stream)(uintptr_t)1) /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
#define PER_THREAD ((cu_stream)(uintptr_t)2)

/* Sources, source.c ---------------------------------------------------------------------------- */

/* Numbers are from 1; 0 is none. */
enum { SOURCES = 64, LANES = 256 };

/* The driver's pool; NULL when it was destroyed. */
cu_pool source_pool(unsigned source);
unsigned source_device(unsigned source);
/* Whether blocks may be cut from its memory. */
bool source_is_fit(unsigned source);
/* Bytes that lanes have of it, and blocks of these. */
void source_segment(unsigned source, int64_t bytes);
void source_block(unsigned source, int64_t bytes);
/* What the source's pooled blocks have for a context: they go when its memory has gone. */
cu_context source_context(unsigned source);
/* A lane more or less refers to it. A source that was destroyed goes with its last lane. */
void source_refer(unsigned source, int change);
/* The primary context of a device has gone: of sources whose memory went with it, what lanes have
 * is forgotten. */
void sources_end(unsigned device);
/* Whether more is reserved than the release threshold, so that the next wait of the program gives
 * it back. */
bool source_is_above(unsigned source);
/* What the driver has free of sources above their thresholds goes back to the device. */
void sources_settle(void);
/* Whether a source was destroyed of which lanes still have memory. */
bool sources_are_closing(void);

/* Lanes, lane.c -------------------------------------------------------------------------------- */

/* For segments.c. Memory of the lane's source, in the order of its stream; 0: none. */
cu_address lane_take(unsigned lane, size_t size);
/* Frees it in that order, or, where no work uses it any more, without one. False where that is not
 * possible now. */
bool lane_give(unsigned lane, cu_address address, bool is_idle);
unsigned lane_source(unsigned lane);

/* Gives the driver what no block is in: of one source, or with 0 of all sources of a device. */
void lanes_trim(unsigned source, unsigned device);
/* Takes out of a device's lanes what no block is in and this thread cannot give the driver before a
 * wait: for segments_retry(). */
void lanes_take_out(unsigned device);
/* Gives what no block is in of sources that were destroyed. */
void lanes_trim_closed(void);
/* A block of a lane was freed, or of any. */
void lane_freed(unsigned lane);
void lanes_freed(void);
/* A wait of the program: for the work of a stream, by its name, or for that of a context. Of both
 * NULL: for what is not known. */
struct lane_wait {
    cu_stream stream;
    cu_context context;
};
/* Before it: after a wait the driver gives back what a source has above its threshold. Whether
 * lanes gave it any. */
bool lanes_before_wait(const struct lane_wait *wait);
/* The current context, where there are lanes. */
struct lane_wait lanes_wait_for_context(void);
/* After one that has succeeded; `turn`: of a wait for the whole current context, lanes_turn() from
 * before it, else 0. */
void lanes_after_wait(uint64_t turn);
/* The next number in the order of what waits for such a wait, and of these. */
uint64_t lanes_turn(void);
/* A stream is about to be destroyed. */
void lanes_leave_stream(cu_stream stream);
/* The source's pool was destroyed. */
void lanes_close(unsigned source);
/* The primary context of a device has gone. */
void lanes_end(unsigned device);

/* A segment of it is no longer there. */
void lane_lose(unsigned lane);

/* A block in a lane was freed in the order of a stream: whether that is the lane's. */
bool lane_is_of(unsigned lane, cu_stream stream, bool per_thread);
cu_context lane_context(unsigned lane);

/* pool.c --------------------------------------------------------------------------------------- */

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
