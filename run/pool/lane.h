/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Stream-ordered requests under --pool. A *source* is a pool of the driver. A *lane* is what one
 * stream has of one source. A lane has a pool in tarn, whose segments are allocated from the source
 * and freed in the order of the lane's stream. So a block is the source's memory, and the driver
 * itself answers which pool it belongs to, which devices reach it and how much is reserved.
 *
 * What is left to a wait is ordered by a counter, the *turn*: lanes_turn(). */
#ifndef TARN_RUN_LANE_H
#define TARN_RUN_LANE_H

#include "pool.h"

#define LEGACY ((cu_stream)(uintptr_t)1) /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
#define PER_THREAD ((cu_stream)(uintptr_t)2)

/* Sources, source.c ---------------------------------------------------------------------------- */

/* Sources and lanes are numbered from 1; 0 means none. */
enum { SOURCES = 64, LANES = 256 };

/* The driver's pool; NULL after it was destroyed. */
cu_pool source_pool(unsigned source);
unsigned source_device(unsigned source);
/* True if blocks may be cut from the source's memory. */
bool source_is_fit(unsigned source);
/* Adds to the bytes that lanes have of a source, and to the bytes of the blocks in them. */
void source_segment(unsigned source, int64_t bytes);
void source_block(unsigned source, int64_t bytes);
/* A value that stands for a context in the records of a source's pooled blocks. charge_drop() with
 * it drops them when the source's memory has gone. */
cu_context source_context(unsigned source);
/* Adds to the number of lanes that refer to a source. The number of a destroyed source is free when
 * its last lane has gone. */
void source_refer(unsigned source, int change);
/* The primary context of a device has gone. Forgets what lanes have of each source whose memory
 * went with it. */
void sources_end(unsigned device);
/* True if the source's pool reserves more than its release threshold, so that the driver will
 * return memory at the program's next wait. */
bool source_is_above(unsigned source);
/* Makes the driver return what pools have free above their thresholds. */
void sources_settle(void);
/* True while a source whose pool was destroyed still has lanes. */
bool sources_are_closing(void);

/* Lanes, lane.c -------------------------------------------------------------------------------- */

/* Allocates a segment from the lane's source, in the order of its stream; 0 on failure. For
 * segments.c. */
cu_address lane_take(unsigned lane, size_t size);
/* Frees a segment in the order of the lane's stream, or, with `is_idle`, where no work uses it any
 * more, on a stream of its own. False if this is not possible now. For segments.c. */
bool lane_give(unsigned lane, cu_address address, bool is_idle);
unsigned lane_source(unsigned lane);

/* Returns segments without blocks to the driver: of one source, or with 0 of all sources of a
 * device. */
void lanes_trim(unsigned source, unsigned device);
/* Takes segments without blocks out of those lanes of a device whose memory this thread cannot
 * return before a wait. They become refused segments, for segments_retry(). */
void lanes_take_out(unsigned device);
/* Returns the segments without blocks of sources that were destroyed. */
void lanes_trim_closed(void);
/* Note that a block was freed: in one lane, or in any. */
void lane_freed(unsigned lane);
void lanes_freed(void);
/* What the program waits for: a stream, by its name, or a context. Both NULL: not known. */
struct lane_wait {
    cu_stream stream;
    cu_context context;
};
/* Call it before a wait. At the end of a wait the driver returns what its pools have above their
 * thresholds. So lanes first return their segments without blocks to these pools. True if some
 * did. */
bool lanes_before_wait(const struct lane_wait *wait);
/* The wait for the current context; all NULL if there are no lanes. */
struct lane_wait lanes_wait_for_context(void);
/* Call it after a wait that has succeeded. `turn`: lanes_turn() from before a wait for the whole
 * current context; 0 for any other wait. */
void lanes_after_wait(uint64_t turn);
/* The next value of a counter that orders waits and what is left to a wait. A wait has settled what
 * was left at a lower turn than its own. */
uint64_t lanes_turn(void);
/* Call it before a stream is destroyed. */
void lanes_leave_stream(cu_stream stream);
/* Call it after a source's pool was destroyed. */
void lanes_close(unsigned source);
/* Call it after the primary context of a device has gone. */
void lanes_end(unsigned device);

/* A lane has one segment less, because its memory has gone. */
void lane_lose(unsigned lane);

/* True if a stream is the lane's: a block of the lane that is freed in the stream's order can be
 * used again at once. */
bool lane_is_of(unsigned lane, cu_stream stream, bool per_thread);
cu_context lane_context(unsigned lane);

/* pool.c --------------------------------------------------------------------------------------- */

/* Creates a pool in tarn: for a lane, or with 0 for plain blocks. */
struct tarn_pool *pool_create(unsigned device, unsigned lane);
/* Cuts a block from a pool and writes it down. Fills in its key, its space and `pooled`. */
bool pool_cut(struct tarn_pool *pool, struct block *block, cu_stream stream, void *caller);
/* Makes a context current, if it is not; context_leave() undoes that. */
bool context_enter(cu_context context, bool *pushed);
void context_leave(bool pushed);
/* Brackets calls of the driver that the shim makes for itself: between the two, no capture of
 * another thread forbids them. */
cu_capture_mode mode_relax(void);
void mode_restore(cu_capture_mode mode);
/* True if requests of this context are pooled. */
bool pool_is_of(unsigned device, cu_context context);
/* A *late* block is one that the program has freed while work may still use it; pool.c has the
 * list. late_look() frees those whose last use has ended. late_is_any(): some are left. */
void late_look(void);
bool late_is_any(void);
/* A wait for the current context, which is of `device`, began in this turn and has ended. */
void late_waited(unsigned device, uint64_t turn);

#endif
