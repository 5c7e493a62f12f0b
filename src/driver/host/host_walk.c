/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks at the nodes of a graph of the host device. Owns nothing. Timed work stands for kernels,
 * and has no parameters to look at. */
#include "base/status.h"
#include "driver/host/host_stream.h"

static bool tell(struct driver_walk *walk, const struct host_node *node, enum driver_node_kind of,
                 unsigned parameter, uintptr_t address)
{
    const struct driver_word word = {.value = address,
                                     .kind = WORD_IS_ADDRESS,
                                     .of = of,
                                     .node = (driver_node)(uintptr_t)node,
                                     .number = walk->nodes,
                                     .kernel = "",
                                     .parameter = parameter,
                                     .size = node->op.move.size};
    return walk->word(&word, walk->user);
}

static bool look(struct driver_walk *walk, const struct host_node *node)
{
    const struct host_op *op = &node->op;
    switch (op->kind) {
    case HOST_OP_FILL:
        return tell(walk, node, DRIVER_NODE_SET, 0, op->move.to);
    case HOST_OP_COPY:
        return tell(walk, node, DRIVER_NODE_COPY, 0, op->move.to) &&
               tell(walk, node, DRIVER_NODE_COPY, 1, op->move.from);
    case HOST_OP_CALL:
        walk->unseen[UNSEEN_HOST]++;
        return true;
    case HOST_OP_TIMED:
    case HOST_OP_WAIT:
        break;
    }
    walk->unseen[UNSEEN_KERNEL]++;
    return true;
}

tarn_status host_graph_walk(int device, driver_graph handle, struct driver_walk *walk)
{
    const struct host_graph *graph = handle;
    bool goes_on = true;
    (void)device;
    if (!host_graph_exists(handle))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host graph_walk: %p is not a graph", handle);
    for (const struct host_node *node = graph->first; node && goes_on; node = node->next) {
        goes_on = look(walk, node);
        walk->nodes++;
    }
    return goes_on
               ? TARN_OK
               : failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the words of a graph");
}
