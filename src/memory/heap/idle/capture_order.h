/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Order inside a capture: proves that a block which several streams of a capture used is free for
 * one of them before the capture ends. The driver's graph is the proof. Work that comes after every
 * last node that the other streams had when the block was freed comes after their use of the block,
 * in every launch.
 *
 * Cost: one driver call (two with HIP) for each node of the capture and each stream that wants a
 * block back, once, when memory would otherwise grow; 20 to 40 bytes per node until the stream
 * waits for no block any more. A stream gets nothing back early from a capture with more than
 * ORDER_NODES nodes, with a node that waits for more than ORDER_BEFORE nodes, or where the driver
 * cannot say what a node waits for.
 *
 * A point belongs to its use, an order to its heap. Both are under the heap's lock. */
#ifndef TARN_MEMORY_CAPTURE_ORDER_H
#define TARN_MEMORY_CAPTURE_ORDER_H

#include "device/stream.h"

#define ORDER_NODES 65536u
#define ORDER_BEFORE 256
#define POINT_NODES 13

/* A stream's position in a capture: its last nodes there. */
struct point {
    uint64_t capture;
    unsigned count;
    driver_node nodes[POINT_NODES];
};

/* The nodes that the next work of a stream in a capture comes after. */
struct capture_order;

/* The capture that the stream takes part in; 0: none, or the setting
 * graph_capture_record_stream_reuse is off. */
uint64_t capture_order_of(const struct stream *stream);

/* The stream's position in that capture. NULL if it does not take part, the position is partial
 * (driver.h) or has more than POINT_NODES nodes, or the host has no memory. */
struct point *point_take(const struct stream *stream, uint64_t capture);
void point_destroy(struct point *point);

/* Updates what is known of the order of a stream's capture; creates `*order` if it is NULL. False
 * if the stream does not capture now, or if the order cannot be found out. */
bool capture_order_learn(struct capture_order **order, const struct stream *stream);
/* Whether both are of the same capture. */
bool capture_order_is_of(const struct capture_order *order, const struct point *point);
/* Whether the order contains all nodes of a point of its capture. */
bool capture_order_includes(const struct capture_order *order, const struct point *point);
void capture_order_destroy(struct capture_order **order);

#endif
