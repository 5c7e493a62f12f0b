/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Nodes of graphs, which are the host device's. A library notes what the host device does not
 * store. Thread-safe. */
#ifndef SIM_COMMON_NODES_H
#define SIM_COMMON_NODES_H

#include "common/graph.h"
#include "driver/host/host.h"

/* The first field of what a library notes of a node. */
struct sim_node {
    struct sim_node *next; /* nodes lock: the next one of the bucket, newest first */
    driver_node node;
    uint64_t number; /* of the node: its place may serve another one before `end` */
    void (*end)(struct sim_node *noted); /* frees it, when the graph of the node has ended */
};

/* What is noted of a node; NULL: nothing. */
struct sim_node *sim_node_find(const void *node);
/* Notes it until the end of the node's graph. If that fails, calls its `end`. */
tarn_status sim_node_enter(int device, driver_node node, struct sim_node *noted);

/* Adds a node that depends on `before` and does what `op` does. TARN_ERROR_INVALID_ARGUMENT: a node
 * of `before` is not one of the graph. */
tarn_status sim_node_add(struct sim_graph *graph, const void *before, size_t count,
                         const struct host_op *op, void **node);
/* Reads what a node does. False: it is no node. */
bool sim_node_read(const void *node, struct host_op *op);
/* Writes the first `room` nodes of a graph into `list`. Returns how many there are. */
size_t sim_nodes_list(const struct sim_graph *graph, void **list, size_t room);

#endif
