/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Graphs of the host device: what a capture recorded, and its launches.
 *
 * A graph is a list of nodes in the order of recording. Each has the nodes that it waits for, all
 * of them earlier. Nodes of one captured stream form a branch. A launch queues each branch on a
 * stream of its own, and the origin's branch on the launching stream, with a wait for each edge
 * between branches. So branches run in parallel, as on a device, and the checker sees that. All
 * branches start after the work that the launching stream has queued; that stream continues when
 * all have ended. Launches of one graph run one after the other.
 *
 * What a node uses belongs to the owners at the time of its capture. A launch that fails has queued
 * nothing. Holders of a graph are notified when it is destroyed and its last launch has ended:
 * without a lock, by the thread that finds it so, before that thread's call returns. Everything is
 * under the streams lock. After its capture a graph changes only in what a launch notes. */
#include "base/status.h"
#include "base/thread/cancel.h"
#include "driver/host/host_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A function to notify of the end of a graph. It outlives the graph until its last launch has
 * ended. */
struct host_hold {
    struct host_hold *next;
    void (*end)(void *argument);
    void *argument;
    struct host_stream *stream; /* of the last launch; NULL: there was none */
    uint64_t position;
};

static struct host_graph *graphs;
static uint64_t graph_count; /* of `graphs`: asked for at every event of a replay */
static uint64_t walks, nodes_made;
static struct host_hold *leaving;               /* of graphs that were destroyed */
static struct host_hold *due, **due_end = &due; /* to be notified, oldest first */

static struct object_pool graph_objects = OBJECT_POOL_NAMED(struct host_graph);
static struct object_pool hold_objects = OBJECT_POOL(struct host_hold);
static struct object_pool node_objects = OBJECT_POOL(struct host_node);

/* ---- Lists of nodes ---- */

bool host_nodes_reserve(struct host_nodes *nodes, unsigned count)
{
    if (count <= nodes->room)
        return true;
    unsigned room = nodes->room ? 2 * nodes->room : 4;
    while (room < count)
        room *= 2;
    driver_node *list = pages_alloc(room * sizeof *list);
    if (!list)
        return false;
    if (nodes->count)
        memcpy(list, nodes->list, nodes->count * sizeof *list);
    pages_free(nodes->list, nodes->room * sizeof *list);
    nodes->list = list;
    nodes->room = room;
    return true;
}

static bool nodes_have(const struct host_nodes *nodes, driver_node node)
{
    for (unsigned i = 0; i < nodes->count; i++)
        if (nodes->list[i] == node)
            return true;
    return false;
}

bool host_nodes_merge(struct host_nodes *nodes, const driver_node *list, size_t count)
{
    if (!host_nodes_reserve(nodes, nodes->count + (unsigned)count))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!nodes_have(nodes, list[i]))
            nodes->list[nodes->count++] = list[i];
    return true;
}

/* Leaves room for one more, so that the next recorded node can become the last node. */
bool host_nodes_copy(struct host_nodes *nodes, const struct host_nodes *from)
{
    if (!host_nodes_reserve(nodes, from->count ? from->count : 1))
        return false;
    if (from->count)
        memcpy(nodes->list, from->list, from->count * sizeof *from->list);
    nodes->count = from->count;
    return true;
}

void host_nodes_free(struct host_nodes *nodes)
{
    pages_free(nodes->list, nodes->room * sizeof *nodes->list);
    *nodes = (struct host_nodes){0};
}

/* ---- The end of a graph ---- */

/* Moves the first of a list of holds to those that are due. */
static void hold_is_due(struct host_hold **place)
{
    struct host_hold *hold = *place;
    *place = hold->next;
    hold->next = NULL;
    *due_end = hold;
    due_end = &hold->next;
    atomic_store(&host.unsettled, true);
}

static bool hold_ended(const struct host_hold *hold)
{
    return !hold->stream || hold->stream->done >= hold->position;
}

/* The graph was destroyed. Its holds end with its last launch, which ends after all earlier
 * ones. */
static void holds_leave(struct host_graph *graph)
{
    while (graph->holds) {
        struct host_hold *hold = graph->holds;
        hold->stream = graph->last_stream;
        hold->position = graph->last_position;
        if (hold_ended(hold)) {
            hold_is_due(&graph->holds);
            continue;
        }
        graph->holds = hold->next;
        hold->next = leaving;
        leaving = hold;
        atomic_fetch_add(&host.graphs_leaving, 1);
    }
}

bool host_graphs_settled_locked(void)
{
    for (const struct host_hold *hold = leaving; hold; hold = hold->next)
        if (hold_ended(hold))
            return false;
    return !due;
}

void host_graphs_settle(void)
{
    host_streams_lock();
    for (struct host_hold **place = &leaving; *place;) {
        if (!hold_ended(*place)) {
            place = &(*place)->next;
            continue;
        }
        hold_is_due(place);
        atomic_fetch_sub(&host.graphs_leaving, 1);
    }
    struct host_hold *told = due;
    due = NULL;
    due_end = &due;
    host_streams_unlock();
    for (struct host_hold *next; told; told = next) {
        next = told->next;
        told->end(told->argument);
        object_free(&hold_objects, told);
    }
}

/* ---- Recording ---- */

struct host_graph *host_graph_create_locked(void)
{
    struct host_graph *graph = object_alloc(&graph_objects);
    if (!graph)
        return NULL;
    graph->live = true;
    graph->next = graphs;
    if (graphs)
        graphs->previous = graph;
    graphs = graph;
    graph_count++;
    return graph;
}

static void nodes_destroy(struct host_graph *graph)
{
    while (graph->last) {
        struct host_node *node = graph->last;
        graph->last = node->previous;
        node->live = false;
        host_uses_finish(&node->op.uses);
        host_nodes_free(&node->before);
        object_free(&node_objects, node);
    }
    graph->first = NULL;
}

void host_graph_destroy_locked(struct host_graph *graph)
{
    nodes_destroy(graph);
    holds_leave(graph);
    pages_free(graph->branches, graph->branch_room * sizeof *graph->branches);
    if (graph->previous)
        graph->previous->next = graph->next;
    else
        graphs = graph->next;
    if (graph->next)
        graph->next->previous = graph->previous;
    graph_count--;
    graph->live = false;
    object_free(&graph_objects, graph);
}

bool host_graph_branch_locked(struct host_graph *graph, const struct host_stream *stream,
                              unsigned *branch)
{
    if (graph->branch_count == graph->branch_room) {
        unsigned room = graph->branch_room ? 2 * graph->branch_room : 2;
        struct host_branch *branches = pages_alloc(room * sizeof *branches);
        if (!branches)
            return false;
        if (graph->branch_count)
            memcpy(branches, graph->branches, graph->branch_count * sizeof *branches);
        pages_free(graph->branches, graph->branch_room * sizeof *branches);
        graph->branches = branches;
        graph->branch_room = room;
    }
    *branch = graph->branch_count++;
    graph->branches[*branch] =
        (struct host_branch){.device = stream->device, .priority = stream->priority};
    return true;
}

tarn_status host_graph_add_locked(const char *call, struct host_graph *graph,
                                  struct host_stream *stream, const struct host_op *op)
{
    struct host_node *node = object_alloc(&node_objects);
    if (!node || !host_nodes_copy(&node->before, &stream->nodes)) {
        object_free(&node_objects, node);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host %s: no memory for a node of the graph",
                      call);
    }
    node->live = true;
    node->number = ++nodes_made;
    node->graph = graph;
    node->branch = stream->branch;
    node->op = *op;
    node->previous = graph->last;
    if (graph->last)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    stream->nodes.list[0] = node;
    stream->nodes.count = 1;
    return TARN_OK;
}

bool host_graph_has_locked(const struct host_graph *graph, driver_node handle)
{
    const struct host_node *node = handle;
    return node && node->live && node->graph == graph;
}

bool host_graph_reaches_locked(const struct host_nodes *from, const struct host_nodes *others)
{
    if (!others->count)
        return true;
    /* Edges go to earlier nodes. So from the last node to the first, each reached node marks those
     * before it. */
    const uint64_t walk = ++walks;
    for (unsigned i = 0; i < from->count; i++)
        ((struct host_node *)from->list[i])->seen = walk;
    const struct host_graph *graph = ((struct host_node *)others->list[0])->graph;
    for (const struct host_node *node = graph->last; node; node = node->previous)
        for (unsigned i = 0; node->seen == walk && i < node->before.count; i++)
            ((struct host_node *)node->before.list[i])->seen = walk;
    for (unsigned i = 0; i < others->count; i++)
        if (((struct host_node *)others->list[i])->seen != walk)
            return false;
    return true;
}

/* Fails silently: the caller can do without the answer. */
tarn_status host_node_before(int number, driver_node handle, driver_node *nodes, size_t room,
                             size_t *count)
{
    struct host_device *device;
    const struct host_node *node = handle;
    tarn_status status = host_enter(DRIVER_CALL_node_before, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_node_before, 0, 0);
    host_streams_lock();
    bool live = node && node->live;
    if (live) {
        *count = node->before.count;
        if (room > *count)
            room = *count;
        if (room)
            memcpy(nodes, node->before.list, room * sizeof *nodes);
    }
    host_streams_unlock();
    return live ? TARN_OK : TARN_ERROR_INVALID_ARGUMENT;
}

/* ---- Launch ---- */

static tarn_status find_graph(const char *call, driver_graph handle, struct host_graph **graph)
{
    *graph = handle;
    if (object_is_live(&graph_objects, handle) && (*graph)->live)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, "host %s: %p is not a graph", call, handle);
}

bool host_graph_exists(driver_graph handle)
{
    struct host_graph *graph = handle;
    host_streams_lock();
    bool exists = object_is_live(&graph_objects, handle) && graph->live;
    host_streams_unlock();
    return exists;
}

/* Fails unless a range is memory still. A plain allocation that was freed since the capture is no
 * memory of the device any more: what uses it would end the process. */
static tarn_status check_range(const struct host_device *device, uintptr_t address, size_t size)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    size_t over = address % (size_t)sysconf(_SC_PAGESIZE);
    tarn_status status = host_memory_accessible("graph_launch", device, address, size);
    if (!status && msync((void *)(address - over), size + over, MS_ASYNC))
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "host graph_launch: %#" PRIxPTR " with %zu bytes: %s", address, size,
                        strerror(errno));
    return status;
}

/* Checks that the memory of all nodes still exists. Without a lock, because the graph does not
 * change. */
static tarn_status check_memory(const struct host_graph *graph)
{
    tarn_status status = TARN_OK;
    for (const struct host_node *node = graph->first; node && !status; node = node->next) {
        const struct host_op *op = &node->op;
        if (op->kind == HOST_OP_FILL)
            status = check_range(graph->branches[node->branch].device, op->move.to, op->move.size);
        if (op->kind == HOST_OP_COPY)
            status = check_range(NULL, op->move.to, op->move.size);
        if (op->kind == HOST_OP_COPY && !status)
            status = check_range(NULL, op->move.from, op->move.size);
    }
    return status;
}

/* A launch. Everything that needs host memory is created first. */
struct launch {
    struct host_graph *graph;
    struct host_stream *stream;
    struct host_op *ops, **ops_end; /* copies of the nodes', in their order */
    struct host_op *waits;          /* at least as many as needed */
};

static void ops_free(struct host_op *ops)
{
    for (struct host_op *next; ops; ops = next) {
        next = ops->next;
        host_uses_finish(&ops->uses);
        object_free(&host_op_objects, ops);
    }
}

static bool make_op(struct launch *launch, const struct host_op *model)
{
    struct host_op *op = object_alloc(&host_op_objects);
    if (!op)
        return false;
    *op = *model;
    op->next = NULL;
    op->uses = (struct host_uses){0};
    if (op->kind == HOST_OP_TIMED && __builtin_add_overflow(host_now_locked(), op->due, &op->due))
        op->due = UINT64_MAX;
    *launch->ops_end = op;
    launch->ops_end = &op->next;
    return host_uses_copy_locked(&op->uses, &model->uses);
}

static bool make_waits(struct launch *launch, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct host_op *op = object_alloc(&host_op_objects);
        if (!op)
            return false;
        op->next = launch->waits;
        launch->waits = op;
    }
    return true;
}

static bool make_lanes(struct launch *launch)
{
    struct host_graph *graph = launch->graph;
    graph->branches[0].stream = launch->stream;
    for (unsigned i = 1; i < graph->branch_count; i++) {
        struct host_branch *branch = &graph->branches[i];
        branch->stream = host_stream_make_locked(branch->device, branch->priority, false);
        if (!branch->stream)
            return false;
    }
    return true;
}

static void end_lanes(struct host_graph *graph)
{
    for (unsigned i = 0; i < graph->branch_count; i++) {
        if (i && graph->branches[i].stream)
            host_stream_end_locked(graph->branches[i].stream);
        graph->branches[i].stream = NULL;
    }
}

static tarn_status prepare(struct launch *launch)
{
    const struct host_graph *graph = launch->graph;
    size_t waits = 1 + 2 * (size_t)graph->branch_count;
    bool made = true, real = false;
    for (const struct host_node *node = graph->first; node && made; node = node->next) {
        made = make_op(launch, &node->op);
        waits += node->before.count;
        real = real || node->op.kind != HOST_OP_TIMED;
    }
    if (!made || !make_waits(launch, waits) || !make_lanes(launch))
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "host graph_launch: no memory for the work of the graph");
    return real ? host_workers_ensure_locked() : TARN_OK;
}

/* Makes what is queued on `stream` next wait for `position` of `other`. */
static void wait_for(struct launch *launch, struct host_stream *stream, struct host_stream *other,
                     uint64_t position)
{
    if (other == stream || other->done >= position)
        return;
    struct host_op *op = launch->waits;
    launch->waits = op->next;
    *op = (struct host_op){.kind = HOST_OP_WAIT, .wait = {.stream = other, .position = position}};
    host_enqueue_locked(stream, op);
}

static void queue(struct launch *launch)
{
    struct host_graph *graph = launch->graph;
    struct host_stream *origin = launch->stream;
    if (graph->last_stream)
        wait_for(launch, origin, graph->last_stream, graph->last_position);
    const uint64_t start = origin->last;
    for (unsigned i = 1; i < graph->branch_count; i++)
        wait_for(launch, graph->branches[i].stream, origin, start);
    for (struct host_node *node = graph->first; node; node = node->next) {
        struct host_stream *stream = graph->branches[node->branch].stream;
        for (unsigned i = 0; i < node->before.count; i++) {
            const struct host_node *before = node->before.list[i];
            wait_for(launch, stream, graph->branches[before->branch].stream, before->position);
        }
        struct host_op *op = launch->ops;
        launch->ops = op->next;
        op->next = NULL;
        node->position = stream->last + 1;
        host_enqueue_locked(stream, op);
    }
    for (unsigned i = 1; i < graph->branch_count; i++)
        wait_for(launch, origin, graph->branches[i].stream, graph->branches[i].stream->last);
    graph->last_stream = origin;
    graph->last_position = origin->last;
}

static tarn_status run_locked(struct host_graph *graph, struct host_stream *stream)
{
    struct launch launch = {.graph = graph, .stream = stream, .ops_end = &launch.ops};
    tarn_status status = host_stream_join_locked("graph_launch", stream);
    if (!status)
        status = prepare(&launch);
    if (!status)
        queue(&launch);
    ops_free(launch.ops);
    ops_free(launch.waits);
    end_lanes(graph);
    return status;
}

static tarn_status launch_locked(struct host_device *device, struct host_graph *graph,
                                 driver_stream handle)
{
    struct host_stream *stream;
    tarn_status status = host_stream_find_locked("graph_launch", device, handle, &stream);
    if (!status)
        /* As CUDA 13.0 does on hardware, with 900 */
        status = host_capture_bar_locked("graph_launch", stream);
    return status ? status : run_locked(graph, stream);
}

static tarn_status launch(struct host_device *device, driver_graph handle, driver_stream stream)
{
    struct host_graph *graph;
    host_streams_lock();
    tarn_status status = find_graph("graph_launch", handle, &graph);
    host_streams_unlock();
    if (!status)
        status = check_memory(graph);
    if (status)
        return status;
    host_streams_lock();
    status = launch_locked(device, graph, stream);
    host_streams_leave();
    return status;
}

static tarn_status destroy(driver_graph handle)
{
    struct host_graph *graph;
    host_streams_lock();
    tarn_status status = find_graph("graph_destroy", handle, &graph);
    if (!status)
        host_graph_destroy_locked(graph);
    host_streams_leave();
    return status;
}

tarn_status host_graph_launch(int number, driver_graph graph, driver_stream stream)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_graph_launch, number, &device);
    if (!status)
        status = launch(device, graph, stream);
    if (!status)
        host_charge(device, DRIVER_CALL_graph_launch, 0, 0);
    return status;
}

tarn_status host_exec_launch(int number, driver_exec exec, driver_stream stream)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_exec_launch, number, &device);
    if (!status)
        status = launch(device, exec, stream);
    if (!status)
        host_charge(device, DRIVER_CALL_exec_launch, 0, 0);
    return status;
}

tarn_status host_graph_destroy(int number, driver_graph graph)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_graph_destroy, number, &device);
    if (!status)
        status = destroy(graph);
    if (!status)
        host_charge(device, DRIVER_CALL_graph_destroy, 0, 0);
    return status;
}

static tarn_status hold(driver_graph handle, void (*end)(void *), void *argument)
{
    struct host_graph *graph;
    struct host_hold *fresh = object_alloc(&hold_objects);
    if (!fresh)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "host graph_hold: no memory to remember a callback");
    host_streams_lock();
    tarn_status status = find_graph("graph_hold", handle, &graph);
    if (!status) {
        *fresh = (struct host_hold){.next = graph->holds, .end = end, .argument = argument};
        graph->holds = fresh;
    }
    host_streams_unlock();
    if (status)
        object_free(&hold_objects, fresh);
    return status;
}

tarn_status host_graph_hold(int number, driver_graph graph, void (*end)(void *), void *argument)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_graph_hold, number, &device);
    if (!status)
        status = hold(graph, end, argument);
    if (!status)
        host_charge(device, DRIVER_CALL_graph_hold, 0, 0);
    return status;
}

tarn_status tarn_host_graph_launch(int number, void *graph, void *native)
{
    struct host_device *device;
    tarn_status status = host_use(number, &device);
    return status ? status : launch(device, graph, native);
}

tarn_status tarn_host_graph_destroy(void *graph)
{
    struct host_device *first;
    tarn_status status = host_use(0, &first);
    return status ? status : destroy(graph);
}

uint64_t host_graph_count(void)
{
    host_streams_lock();
    uint64_t count = graph_count;
    host_streams_unlock();
    return count;
}

void host_graphs_finish_locked(void)
{
    while (graphs)
        host_graph_destroy_locked(graphs);
}
