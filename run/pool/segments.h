/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The segments of the pools, which count as used in place of their blocks: plain allocations of the
 * driver, and what lanes have of sources. */
#ifndef TARN_RUN_SEGMENTS_H
#define TARN_RUN_SEGMENTS_H

#include "pool.h"

/* As tarn wants them for a pool; `user` is the number of its lane, or NULL. */
void *segment_alloc(size_t size, int device, void *stream, void *user);
void segment_free(void *pointer, size_t size, int device, void *stream, void *user);
/* Whether an address lies in one whose memory is there. */
bool segment_has(cu_address address);
/* Bytes that a device has in segments. */
uint64_t segments_held(unsigned device);
/* A block more or less begins at an address. */
void segment_count(cu_address address, int change);
/* Bytes of a device's segments that have no block: of plain ones, or of those of lanes. */
uint64_t segments_idle(unsigned device, bool of_lanes);
/* Whether a segment of a source may have no block. */
bool segments_may_be_idle(unsigned source);
/* How many the driver has taken back. */
uint64_t segments_given(void);
/* Gives the driver once more what it, or its lane, refused to take back; the device's context is
 * current. A wait for that has ended which began in this turn; 0: there was none. */
void segments_retry(unsigned device, uint64_t turn);
/* Whether there is any for that. */
bool segments_are_refused(unsigned device);
/* The memory of all plain ones of a device, or of a source, has gone. */
void segments_end(unsigned device);
void segments_end_of(unsigned source);

#endif
