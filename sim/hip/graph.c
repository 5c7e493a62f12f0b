/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs of the simulated libamdhip64. An executable graph holds the graph that it was
 * made from, so a program may destroy that first. */
#include "base/pages.h"
#include "base/thread/lock.h"
#include "common/user_object.h"
#include "hip/sim_hip.h"

#include <string.h>

static mutex graphs_lock = MUTEX_INITIALIZER(LOCK_SIM_GRAPHS);
static struct object_pool graphs = OBJECT_POOL(struct ihipGraph);
static struct object_pool execs = OBJECT_POOL(struct hipGraphExec);

static hip_result enter(const char *call, hip_stream stream, int *device, driver_stream *queue)
{
    hip_result code = sim_enter(call);
    return code ? code : sim_stream(stream, device, queue);
}

/* ---- Captures ---- */

hip_result hipThreadExchangeStreamCaptureMode(hip_stream_capture_mode *mode)
{
    hip_result code = sim_enter(__func__);
    if (!code && (!mode || *mode > HIP_MODE_RELAXED))
        code = HIP_INVALID_VALUE;
    if (!code)
        *mode = (hip_stream_capture_mode)host_mode_exchange((enum driver_capture_mode) * mode);
    return sim_leave(code);
}

static bool is(int device, driver_stream queue, int state)
{
    struct driver_capture capture;
    return host_capture_status(device, queue, &capture) == TARN_OK && (int)capture.state == state;
}

static void stay(hip_stream stream, bool invalid)
{
    if (stream != HIP_THREADS_STREAM)
        stream->stays_invalid = invalid;
}

hip_result hipStreamBeginCapture(hip_stream stream, hip_stream_capture_mode mode)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && mode > HIP_MODE_RELAXED)
        code = HIP_INVALID_VALUE;
    if (!code && !queue)
        code = HIP_CAPTURE_UNSUPPORTED;
    if (!code && is(device, queue, DRIVER_CAPTURE_ACTIVE))
        code = HIP_ILLEGAL_STATE;
    if (!code)
        code = sim_code(host_capture_begin(device, queue, (enum driver_capture_mode)mode),
                        HIP_ILLEGAL_STATE);
    if (!code)
        stay(stream, false);
    return sim_leave(code);
}

/* If the capture is invalidated or has work that is not joined, ROCm/clr reports the failure and
 * the stream keeps its state until a capture begins there again (hipamd/src/hip_graph.cpp,
 * hipStreamEndCapture_common(), rocm-5.7.1 to amd-staging of October 2024). Here the capture itself
 * ends, and only the stream continues to say that it is invalidated. */
static hip_result end(hip_stream stream, hip_graph *graph)
{
    int device;
    driver_stream queue;
    driver_graph made = NULL;
    hip_result code = enter("hipStreamEndCapture", stream, &device, &queue);
    if (code)
        return code;
    if (!graph)
        return HIP_INVALID_VALUE;
    if (!queue || is(device, queue, DRIVER_CAPTURE_NONE))
        return HIP_ILLEGAL_STATE;
    struct ihipGraph *result = object_alloc(&graphs);
    if (!result)
        return HIP_OUT_OF_MEMORY;
    code = sim_code(host_capture_end(device, queue, &made), HIP_ILLEGAL_STATE);
    *graph = NULL;
    if (code) {
        stay(stream, is(device, queue, DRIVER_CAPTURE_NONE));
        object_free(&graphs, result);
        return code;
    }
    *result = (struct ihipGraph){.live = true, .device = device, .holders = 1, .host = made};
    *graph = result;
    return HIP_OK;
}

hip_result hipStreamEndCapture(hip_stream stream, hip_graph *graph)
{
    return sim_leave(end(stream, graph));
}

/* A query of the legacy stream concerns the blocking streams of all devices. */
static hip_result ask_legacy(void)
{
    struct driver_capture capture;
    for (int i = 0; i < atomic_load(&host.devices); i++) {
        hip_result code = sim_code(host_capture_status(i, NULL, &capture), HIP_CAPTURE_IMPLICIT);
        if (code)
            return code;
        if (capture.state != DRIVER_CAPTURE_NONE)
            return HIP_CAPTURE_IMPLICIT;
    }
    return HIP_OK;
}

hip_result hipStreamGetCaptureInfo_v2(hip_stream stream, hip_stream_capture_status *status,
                                      unsigned long long *id, hip_graph *graph,
                                      const hip_graph_node **nodes, size_t *count)
{
    int device;
    driver_stream queue;
    struct driver_capture capture = {.state = DRIVER_CAPTURE_NONE};
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && !status)
        code = HIP_INVALID_VALUE;
    if (!code)
        code = queue
                   ? sim_code(host_capture_status(device, queue, &capture), HIP_CAPTURE_UNSUPPORTED)
                   : ask_legacy();
    if (code)
        return sim_leave(code);
    if (queue && stream != HIP_THREADS_STREAM && stream->stays_invalid &&
        capture.state == DRIVER_CAPTURE_NONE)
        capture.state = DRIVER_CAPTURE_INVALIDATED;
    *status = (hip_stream_capture_status)capture.state;
    if (id && capture.state == DRIVER_CAPTURE_ACTIVE)
        *id = capture.id;
    if (graph)
        *graph = NULL; /* a graph exists only after the end of the capture */
    if (nodes)
        *nodes = (const hip_graph_node *)(const void *)capture.nodes;
    if (count)
        *count = capture.node_count;
    return sim_leave(HIP_OK);
}

hip_result hipStreamIsCapturing(hip_stream stream, hip_stream_capture_status *status)
{
    return hipStreamGetCaptureInfo_v2(stream, status, NULL, NULL, NULL, NULL);
}

/* Makes a stream's next node depend on its last nodes and on `count` more. */
static hip_result depend_on_more(int device, driver_stream queue, const driver_node *nodes,
                                 size_t count)
{
    driver_node list[64];
    struct driver_capture capture;
    hip_result code = sim_code(host_capture_status(device, queue, &capture), HIP_ILLEGAL_STATE);
    if (code)
        return code;
    if (capture.node_count + count > sizeof list / sizeof *list)
        return HIP_OUT_OF_MEMORY;
    if (capture.node_count)
        memcpy(list, capture.nodes, capture.node_count * sizeof *list);
    if (count)
        memcpy(list + capture.node_count, nodes, count * sizeof *list);
    return sim_code(host_capture_depend(device, queue, list, capture.node_count + count),
                    HIP_ILLEGAL_STATE);
}

hip_result hipStreamUpdateCaptureDependencies(hip_stream stream, hip_graph_node *nodes,
                                              size_t count, unsigned flags)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && (flags > HIP_DEPENDENCIES_SET || (count && !nodes)))
        code = HIP_INVALID_VALUE;
    const driver_node *list = (const driver_node *)(const void *)nodes;
    if (!code && flags == HIP_DEPENDENCIES_SET)
        code = sim_code(host_capture_depend(device, queue, list, count), HIP_ILLEGAL_STATE);
    else if (!code)
        code = depend_on_more(device, queue, list, count);
    return sim_leave(code);
}

hip_result hipGraphNodeGetDependencies(hip_graph_node node, hip_graph_node *nodes, size_t *count)
{
    size_t all = 0;
    hip_result code = sim_enter(__func__);
    if (!code && (!node || !count))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(
            host_node_before(0, node, (driver_node *)(void *)nodes, nodes ? *count : 0, &all),
            HIP_ILLEGAL_STATE);
    if (!code && nodes && *count < all)
        code = HIP_INVALID_VALUE;
    if (!code)
        *count = all;
    return sim_leave(code);
}

/* ---- Graphs ---- */

static hip_result let_go(hip_graph graph)
{
    mutex_lock(&graphs_lock);
    bool last = --graph->holders == 0;
    mutex_unlock(&graphs_lock);
    if (!last)
        return HIP_OK;
    hip_result code =
        sim_code(host_graph_destroy(graph->device, graph->host), HIP_CAPTURE_UNSUPPORTED);
    object_free(&graphs, graph);
    return code;
}

static hip_result instantiate(hip_graph_exec *exec, hip_graph graph)
{
    struct hipGraphExec *result = object_alloc(&execs);
    if (!result)
        return HIP_OUT_OF_MEMORY;
    mutex_lock(&graphs_lock);
    bool live = graph && graph->live;
    if (live)
        graph->holders++;
    mutex_unlock(&graphs_lock);
    if (!live) {
        object_free(&execs, result);
        return HIP_INVALID_VALUE;
    }
    *result = (struct hipGraphExec){.live = true, .graph = graph};
    *exec = result;
    return HIP_OK;
}

hip_result hipGraphInstantiateWithFlags(hip_graph_exec *exec, hip_graph graph,
                                        unsigned long long flags)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = exec && flags <= 15 ? instantiate(exec, graph) : HIP_INVALID_VALUE;
    return sim_leave(code);
}

hip_result hipGraphLaunch(hip_graph_exec exec, hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && (!exec || !exec->live))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(host_graph_launch(device, exec->graph->host, queue), HIP_CAPTURE_IMPLICIT);
    return sim_leave(code);
}

hip_result hipGraphExecDestroy(hip_graph_exec exec)
{
    hip_result code = sim_enter(__func__);
    if (!code && (!exec || !exec->live))
        code = HIP_INVALID_VALUE;
    if (!code) {
        exec->live = false;
        code = let_go(exec->graph);
        object_free(&execs, exec);
    }
    return sim_leave(code);
}

static hip_result graph_end(hip_graph graph)
{
    mutex_lock(&graphs_lock);
    bool live = graph && graph->live;
    if (live)
        graph->live = false;
    mutex_unlock(&graphs_lock);
    return live ? let_go(graph) : HIP_INVALID_VALUE;
}

hip_result hipGraphDestroy(hip_graph graph)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = graph_end(graph);
    return sim_leave(code);
}

driver_graph sim_native_graph(void *native)
{
    return ((hip_graph)native)->host;
}

tarn_status sim_native_graph_destroy(void *native)
{
    return graph_end(native) ? TARN_ERROR_DRIVER : TARN_OK;
}

/* ---- User objects ---- */

#if SIM_HIP_VERSION >= 50300000
static struct sim_user_object *theirs(hip_user_object object)
{
    return (struct sim_user_object *)(void *)object;
}

hip_result hipUserObjectCreate(hip_user_object *object, void *argument, hip_host_function destroy,
                               unsigned count, unsigned flags)
{
    struct sim_user_object *made = NULL;
    hip_result code = sim_enter(__func__);
    if (!code && (!object || !destroy || !count || count > INT32_MAX ||
                  flags != HIP_USER_OBJECT_NOT_SYNCHRONIZED))
        code = HIP_INVALID_VALUE;
    if (!code) {
        made = sim_user_object_create(destroy, argument, count);
        if (!made)
            code = HIP_OUT_OF_MEMORY;
    }
    if (!code)
        *object = (hip_user_object)(void *)made;
    return sim_leave(code);
}

hip_result hipUserObjectRelease(hip_user_object object, unsigned count)
{
    hip_result code = sim_enter(__func__);
    if (!code && !(object && count && sim_user_object_release(theirs(object), count)))
        code = HIP_INVALID_VALUE;
    return sim_leave(code);
}

/* Executables hold their graph here, so they also hold what the graph retains after they were
 * made. */
hip_result hipGraphRetainUserObject(hip_graph graph, hip_user_object object, unsigned count,
                                    unsigned flags)
{
    hip_result code = sim_enter(__func__);
    if (!code && (!graph || !graph->live || !object || !count || count > INT32_MAX ||
                  flags > HIP_USER_OBJECT_IS_MOVED))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(
            sim_user_object_hold(theirs(object), graph->device, graph->host, count, !flags),
            HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}
#endif
