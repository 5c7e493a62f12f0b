/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The segments of the pools: plain allocations of the driver, and what lanes allocated from
 * sources. A segment counts as used memory; the blocks that are cut from it do not. */
#ifndef TARN_RUN_SEGMENTS_H
#define TARN_RUN_SEGMENTS_H

#include "pool.h"

/* The allocator's callbacks that tarn calls for a pool. `user` is the number of the pool's lane;
 * NULL: a pool of plain blocks. */
void *segment_alloc(size_t size, int device, void *stream, void *user);
void segment_free(void *pointer, size_t size, int device, void *stream, void *user);
/* True if an address lies in a segment. */
bool segment_has(cu_address address);
/* Bytes of a device's segments. */
uint64_t segments_held(unsigned device);
/* Adds `change` to the number of blocks that begin near an address. */
void segment_count(cu_address address, int change);
/* Bytes of a device's segments that have no block: of lanes' segments, or of plain ones. */
uint64_t segments_idle(unsigned device, bool of_lanes);
/* False if every segment of a source certainly has a block. */
bool segments_may_be_idle(unsigned source);
/* How many segments were returned to the driver so far. */
uint64_t segments_given(void);
/* Tries once more to return each segment that the driver, or the segment's lane, refused to take.
 * The device's context is current. `turn` is lanes_turn() from before a wait for the whole context
 * that has ended; 0: there was no wait. */
void segments_retry(unsigned device, uint64_t turn);
/* True if a device has refused segments. */
bool segments_are_refused(unsigned device);
/* Forgets the segments whose memory has gone: a device's plain ones, or a source's. */
void segments_end(unsigned device);
void segments_end_of(unsigned source);

#endif
