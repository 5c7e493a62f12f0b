/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of what is noted of nodes. */
#include "common/nodes.h"
#include "base/thread/lock.h"
#include "driver/host/host_stream.h"

#define BUCKETS 1024

static mutex nodes_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct sim_node *buckets[BUCKETS]; /* nodes_lock */

static struct sim_node **bucket_of(const void *node)
{
    return &buckets[((uintptr_t)node >> 6) % BUCKETS];
}

struct sim_node *sim_node_find(const void *node)
{
    mutex_lock(&nodes_lock);
    struct sim_node *noted = *bucket_of(node);
    while (noted && (noted->node != (driver_node)node ||
                     noted->number != ((const struct host_node *)node)->number))
        noted = noted->next;
    mutex_unlock(&nodes_lock);
    return noted;
}

/* Called when the graph of a node has ended. */
static void graph_ended(void *argument)
{
    struct sim_node *noted = argument;
    mutex_lock(&nodes_lock);
    struct sim_node **place = bucket_of(noted->node);
    while (*place && *place != noted)
        place = &(*place)->next;
    if (*place)
        *place = noted->next;
    mutex_unlock(&nodes_lock);
    noted->end(noted);
}

tarn_status sim_node_enter(int device, driver_node node, struct sim_node *noted)
{
    noted->node = node;
    noted->number = ((const struct host_node *)node)->number;
    mutex_lock(&nodes_lock);
    noted->next = *bucket_of(node);
    *bucket_of(node) = noted;
    mutex_unlock(&nodes_lock);
    tarn_status status =
        driver->graph_hold(device, ((struct host_node *)node)->graph, graph_ended, noted);
    if (status)
        graph_ended(noted);
    return status;
}

tarn_status sim_node_add(struct sim_graph *graph, const void *before, size_t count,
                         const struct host_op *op, void **node)
{
    struct host_graph *made = graph->host;
    const driver_node *list = before;
    struct host_stream place = {.branch = 0}; /* only its list of last nodes is used */
    tarn_status status = TARN_OK;
    host_streams_lock();
    for (size_t i = 0; i < count && !status; i++)
        if (!host_graph_has_locked(made, list[i]))
            status = TARN_ERROR_INVALID_ARGUMENT;
    if (!status && (!host_nodes_reserve(&place.nodes, count ? (unsigned)count : 1) ||
                    !host_nodes_merge(&place.nodes, list, count)))
        status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status)
        status = host_graph_add_locked("graph_add", made, &place, op);
    if (!status)
        *node = place.nodes.list[0];
    host_nodes_free(&place.nodes);
    host_streams_unlock();
    return status;
}

bool sim_node_read(const void *node, struct host_op *op)
{
    const struct host_node *known = node;
    host_streams_lock();
    bool live = known && known->live;
    if (live)
        *op = known->op;
    host_streams_unlock();
    return live;
}

size_t sim_nodes_list(const struct sim_graph *graph, void **list, size_t room)
{
    const struct host_graph *made = graph->host;
    size_t found = 0;
    host_streams_lock();
    for (struct host_node *node = made->first; node; node = node->next, found++)
        if (found < room)
            list[found] = node;
    host_streams_unlock();
    return found;
}
