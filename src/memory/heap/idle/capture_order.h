/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captured work behind captured work: the proof that a block which several streams of a capture
 * used is free for one of them before the capture is over. The driver's graph says so: work that is
 * behind every last node that the others had when the block was freed is behind their use of it, in
 * every launch.
 *
 * What it costs: one driver call (two with HIP) for each node of the capture and each stream that
 * wants a block back, once, when memory would otherwise grow; 20 to 40 bytes for each of these
 * nodes until the stream waits for no block any more. After ORDER_NODES nodes, or where the driver
 * cannot say what a node waits for, or that is more than ORDER_BEFORE nodes, the stream gets
 * nothing back early from that capture. */
#ifndef TARN_MEMORY_CAPTURE_ORDER_H
#define TARN_MEMORY_CAPTURE_ORDER_H

#include "device/stream.h"

#define ORDER_NODES 65536u
#define ORDER_BEFORE 256
#define POINT_NODES 13

/* Where a stream stood in a capture: its last nodes. */
struct point {
    uint64_t capture;
    unsigned count;
    driver_node nodes[POINT_NODES];
};

/* What the next work of a stream in a capture is behind. */
struct capture_order;

/* The capture that the stream takes part in; 0: none, or the setting
 * graph_capture_record_stream_reuse is off. */
uint64_t capture_order_of(const struct stream *stream);

/* Where the stream is in that capture; NULL where it is not there, or that cannot be written
 * down. */
struct point *point_take(const struct stream *stream, uint64_t capture);
void point_destroy(struct point *point);

/* Brings what is known of a stream up to date, made if need be. False where it does not capture
 * now, or nothing can be said. */
bool capture_order_learn(struct capture_order **order, const struct stream *stream);
/* Whether both are of one capture; and then whether all that the point stands for is in it. */
bool capture_order_is_of(const struct capture_order *order, const struct point *point);
bool capture_order_includes(const struct capture_order *order, const struct point *point);
void capture_order_destroy(struct capture_order **order);

#endif
