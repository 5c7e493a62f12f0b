/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs of the simulated libamdhip64. Owns nothing: common/graph.c does. */
#include "common/user_object.h"
#include "hip/sim_hip.h"

#include <string.h>

static hip_graph theirs_graph(struct sim_graph *graph)
{
    return (hip_graph)(void *)graph;
}

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
    struct sim_graph *made;
    hip_result code = enter("hipStreamEndCapture", stream, &device, &queue);
    if (code)
        return code;
    if (!graph)
        return HIP_INVALID_VALUE;
    if (!queue || is(device, queue, DRIVER_CAPTURE_NONE))
        return HIP_ILLEGAL_STATE;
    code = sim_code(sim_graph_capture_end(device, queue, &made), HIP_ILLEGAL_STATE);
    if (code)
        stay(stream, is(device, queue, DRIVER_CAPTURE_NONE));
    *graph = theirs_graph(made);
    return code;
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
    if (graph && capture.state == DRIVER_CAPTURE_ACTIVE)
        *graph = theirs_graph(sim_graph_show(device, &capture));
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

hip_result hipGraphCreate(hip_graph *graph, unsigned flags)
{
    struct sim_graph *made = NULL;
    hip_result code = sim_enter(__func__);
    if (!code)
        code = graph && !flags
                   ? sim_code(sim_graph_create(sim_device(), &made), HIP_CAPTURE_UNSUPPORTED)
                   : HIP_INVALID_VALUE;
    if (!code)
        *graph = theirs_graph(made);
    return sim_leave(code);
}

hip_result hipGraphInstantiateWithFlags(hip_graph_exec *exec, hip_graph graph,
                                        unsigned long long flags)
{
    struct sim_exec *made = NULL;
    hip_result code = sim_enter(__func__);
    if (!code)
        code = exec && flags <= 15
                   ? sim_code(sim_exec_create(sim_graph_of(graph), &made), HIP_CAPTURE_UNSUPPORTED)
                   : HIP_INVALID_VALUE;
    if (!code)
        *exec = (hip_graph_exec)(void *)made;
    return sim_leave(code);
}

hip_result hipGraphLaunch(hip_graph_exec exec, hip_stream stream)
{
    int device;
    driver_stream queue;
    const struct sim_exec *known = (const struct sim_exec *)(const void *)exec;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && (!known || !known->live))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(host_graph_launch(device, known->graph->host, queue), HIP_CAPTURE_IMPLICIT);
    return sim_leave(code);
}

hip_result hipGraphExecDestroy(hip_graph_exec exec)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = sim_code(sim_exec_end((struct sim_exec *)(void *)exec), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

hip_result hipGraphDestroy(hip_graph graph)
{
    hip_result code = sim_enter(__func__);
    if (!code)
        code = sim_code(sim_graph_end(sim_graph_of(graph)), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

driver_graph sim_native_graph(void *native)
{
    return ((struct sim_graph *)native)->host;
}

tarn_status sim_native_graph_destroy(void *native)
{
    return sim_graph_end(native) ? TARN_ERROR_DRIVER : TARN_OK;
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
    const struct sim_graph *known = sim_graph_of(graph);
    if (!code && (!known || !known->live || !object || !count || count > INT32_MAX ||
                  flags > HIP_USER_OBJECT_IS_MOVED))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(
            sim_user_object_hold(theirs(object), known->device, known->host, count, !flags),
            HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}
#endif
