/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns graphs, executables, and the list of what captures have shown. The lock is held over no
 * call. */
#include "common/graph.h"
#include "base/pages.h"
#include "base/thread/lock.h"
#include "driver/host/host_stream.h"

static mutex graphs_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct object_pool graphs = OBJECT_POOL(struct sim_graph);
static struct object_pool execs = OBJECT_POOL(struct sim_exec);
static struct sim_graph *shown; /* graphs_lock: the graphs of captures */

/* ---- The host device's graphs ---- */

static tarn_status host_make(int number, driver_graph *made)
{
    unsigned branch = 0;
    host_streams_lock();
    struct host_graph *graph = host_graph_create_locked();
    bool done = graph && host_graph_branch_locked(graph, &host.device[number].legacy, &branch);
    if (graph && !done)
        host_graph_destroy_locked(graph);
    host_streams_unlock();
    *made = graph;
    return done ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
}

/* Destroys a graph without reporting its end. The caller reports the end of another graph. */
static void host_unmake(driver_graph graph)
{
    host_streams_lock();
    host_graph_destroy_locked(graph);
    host_streams_unlock();
}

/* ---- Graphs ---- */

tarn_status sim_graph_create(int device, struct sim_graph **graph)
{
    driver_graph made;
    struct sim_graph *result = object_alloc(&graphs);
    if (!result)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = host_make(device, &made);
    if (status) {
        object_free(&graphs, result);
        return status;
    }
    *result = (struct sim_graph){.live = true, .device = device, .holders = 1, .host = made};
    *graph = result;
    return TARN_OK;
}

struct sim_graph *sim_graph_show(int device, const struct driver_capture *capture)
{
    mutex_lock(&graphs_lock);
    struct sim_graph *graph = shown;
    while (graph && graph->host != capture->graph)
        graph = graph->next;
    struct sim_graph *made = graph ? NULL : object_alloc(&graphs);
    if (made) {
        made->next = shown;
        shown = graph = made;
    }
    if (graph && graph->capture != capture->id)
        *graph = (struct sim_graph){.live = true,
                                    .device = device,
                                    .holders = 1,
                                    .host = capture->graph,
                                    .capture = capture->id,
                                    .next = graph->next};
    mutex_unlock(&graphs_lock);
    return graph;
}

/* Takes the graph that the program was shown during a capture that has ended. NULL: it was shown
 * none. */
static struct sim_graph *take_shown(driver_graph made)
{
    mutex_lock(&graphs_lock);
    struct sim_graph **place = &shown;
    while (*place && (*place)->host != made)
        place = &(*place)->next;
    struct sim_graph *graph = *place;
    if (graph) {
        *place = graph->next;
        graph->next = NULL;
        graph->capture = 0;
    }
    mutex_unlock(&graphs_lock);
    return graph;
}

tarn_status sim_graph_capture_end(int device, driver_stream stream, struct sim_graph **graph)
{
    driver_graph made = NULL;
    struct sim_graph *result = object_alloc(&graphs);
    *graph = NULL;
    if (!result)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = driver->capture_end(device, stream, &made);
    if (!status)
        *graph = take_shown(made);
    if (status || *graph)
        object_free(&graphs, result);
    else
        *graph = result;
    if (status)
        return status;
    if (*graph == result)
        *result = (struct sim_graph){.live = true, .holders = 1, .host = made};
    (*graph)->device = device;
    return TARN_OK;
}

bool sim_graph_exists(struct sim_graph *graph)
{
    mutex_lock(&graphs_lock);
    bool exists = graph && graph->holders;
    mutex_unlock(&graphs_lock);
    return exists;
}

bool sim_graph_hold(struct sim_graph *graph)
{
    mutex_lock(&graphs_lock);
    bool live = graph && graph->live;
    if (live)
        graph->holders++;
    mutex_unlock(&graphs_lock);
    return live;
}

static bool is_last(struct sim_graph *graph)
{
    mutex_lock(&graphs_lock);
    bool last = --graph->holders == 0;
    mutex_unlock(&graphs_lock);
    return last;
}

tarn_status sim_graph_let_go(struct sim_graph *graph)
{
    if (!is_last(graph))
        return TARN_OK;
    tarn_status status = driver->graph_destroy(graph->device, graph->host);
    object_free(&graphs, graph);
    return status;
}

void sim_graph_let_go_at_end(struct sim_graph *graph)
{
    if (!is_last(graph))
        return;
    host_unmake(graph->host);
    object_free(&graphs, graph);
}

tarn_status sim_graph_end(struct sim_graph *graph)
{
    mutex_lock(&graphs_lock);
    bool live = graph && graph->live && !graph->capture;
    if (live)
        graph->live = false;
    mutex_unlock(&graphs_lock);
    return live ? sim_graph_let_go(graph) : TARN_ERROR_INVALID_ARGUMENT;
}

/* ---- Executables ---- */

tarn_status sim_exec_create(struct sim_graph *graph, struct sim_exec **exec)
{
    struct sim_exec *result = object_alloc(&execs);
    if (!result)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!sim_graph_hold(graph)) {
        object_free(&execs, result);
        return TARN_ERROR_INVALID_ARGUMENT;
    }
    *result = (struct sim_exec){.live = true, .graph = graph};
    *exec = result;
    return TARN_OK;
}

tarn_status sim_exec_end(struct sim_exec *exec)
{
    if (!exec || !exec->live)
        return TARN_ERROR_INVALID_ARGUMENT;
    exec->live = false;
    tarn_status status = sim_graph_let_go(exec->graph);
    object_free(&execs, exec);
    return status;
}
