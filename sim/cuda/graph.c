/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs of the simulated libcuda. Owns nothing: common/graph.c does. */
#include "common/user_object.h"
#include "cuda/sim_cuda.h"

#include <string.h>

static cu_graph theirs_graph(struct sim_graph *graph)
{
    return (cu_graph)(void *)graph;
}

static cu_result enter(const char *call, cu_stream stream, int *device, driver_stream *host)
{
    cu_result code = sim_enter(call, device);
    return code ? code : sim_stream(stream, device, host);
}

/* ---- Captures ---- */

cu_result cuThreadExchangeStreamCaptureMode(cu_capture_mode *mode)
{
    cu_result code = sim_enter_process("cuThreadExchangeStreamCaptureMode");
    if (code)
        return code;
    if (!mode || *mode > CU_MODE_RELAXED)
        return CU_INVALID_VALUE;
    enum driver_capture_mode value = (enum driver_capture_mode) * mode;
    code = sim_code(driver->capture_mode(&value));
    if (!code)
        *mode = (cu_capture_mode)value;
    return code;
}

cu_result cuStreamBeginCapture_v2(cu_stream stream, cu_capture_mode mode)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamBeginCapture", stream, &device, &host);
    if (code)
        return code;
    if (mode > CU_MODE_RELAXED)
        return CU_INVALID_VALUE;
    if (!host)
        return CU_CAPTURE_UNSUPPORTED;
    enum driver_capture_mode value = (enum driver_capture_mode)mode;
    return sim_code(driver->capture_begin(device, host, value));
}

cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    int device;
    driver_stream host;
    struct sim_graph *made;
    cu_result code = enter("cuStreamEndCapture", stream, &device, &host);
    if (code)
        return code;
    if (!graph)
        return CU_INVALID_VALUE;
    code = sim_code(sim_graph_capture_end(device, host, &made));
    *graph = theirs_graph(made);
    return code;
}

cu_result cuStreamGetCaptureInfo_v2(cu_stream stream, cu_capture_status *status, uint64_t *id,
                                    cu_graph *graph, const cu_graph_node **nodes, size_t *count)
{
    int device;
    driver_stream host;
    struct driver_capture capture;
    cu_result code = enter("cuStreamGetCaptureInfo", stream, &device, &host);
    if (code)
        return code;
    if (!status)
        return CU_INVALID_VALUE;
    tarn_status answer = driver->capture_status(device, host, &capture);
    if (!host &&
        (answer == TARN_ERROR_CAPTURE || (!answer && capture.state != DRIVER_CAPTURE_NONE)))
        return CU_CAPTURE_IMPLICIT;
    if (answer)
        return sim_code(answer);
    *status = (cu_capture_status)capture.state;
    if (id && capture.state == DRIVER_CAPTURE_ACTIVE)
        *id = capture.id;
    if (graph)
        *graph = capture.state == DRIVER_CAPTURE_ACTIVE
                     ? theirs_graph(sim_graph_show(device, &capture))
                     : NULL;
    if (nodes)
        *nodes = (const cu_graph_node *)(const void *)capture.nodes;
    if (count)
        *count = capture.node_count;
    return CU_OK;
}

cu_result cuStreamGetCaptureInfo(cu_stream stream, cu_capture_status *status, uint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

cu_result cuStreamGetCaptureInfo_v3(cu_stream stream, cu_capture_status *status, uint64_t *id,
                                    cu_graph *graph, const cu_graph_node **nodes,
                                    const struct cu_edge **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, nodes, count);
}

cu_result cuStreamIsCapturing(cu_stream stream, cu_capture_status *state)
{
    return cuStreamGetCaptureInfo_v2(stream, state, NULL, NULL, NULL, NULL);
}

/* Makes a stream's next node depend on its last nodes and on `count` more. */
static cu_result depend_on_more(int device, driver_stream host, const driver_node *nodes,
                                size_t count)
{
    driver_node list[64];
    struct driver_capture capture;
    cu_result code = sim_code(driver->capture_status(device, host, &capture));
    if (code)
        return code;
    if (capture.node_count + count > sizeof list / sizeof *list)
        return CU_OUT_OF_MEMORY;
    if (capture.node_count)
        memcpy(list, capture.nodes, capture.node_count * sizeof *list);
    if (count)
        memcpy(list + capture.node_count, nodes, count * sizeof *list);
    return sim_code(driver->capture_depend(device, host, list, capture.node_count + count));
}

cu_result cuStreamUpdateCaptureDependencies(cu_stream stream, cu_graph_node *nodes, size_t count,
                                            unsigned flags)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamUpdateCaptureDependencies", stream, &device, &host);
    if (code)
        return code;
    if (flags > CU_DEPENDENCIES_SET || (count && !nodes))
        return CU_INVALID_VALUE;
    const driver_node *list = (const driver_node *)(const void *)nodes;
    if (flags == CU_DEPENDENCIES_ADD)
        return depend_on_more(device, host, list, count);
    return sim_code(driver->capture_depend(device, host, list, count));
}

cu_result cuStreamUpdateCaptureDependencies_v2(cu_stream stream, cu_graph_node *nodes,
                                               const struct cu_edge *edges, size_t count,
                                               unsigned flags)
{
    (void)edges;
    return cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}

/* If `nodes` is NULL, returns how many there are; otherwise fills in as many as fit. */
cu_result cuGraphNodeGetDependencies(cu_graph_node node, cu_graph_node *nodes, size_t *count)
{
    int device;
    size_t all = 0;
    cu_result code = sim_enter("cuGraphNodeGetDependencies", &device);
    if (code)
        return code;
    if (!node || !count)
        return CU_INVALID_VALUE;
    driver_node *list = (driver_node *)(void *)nodes;
    code = sim_code(driver->node_before(device, node, list, nodes ? *count : 0, &all));
    if (code)
        return code;
    for (size_t i = all; nodes && i < *count; i++)
        nodes[i] = NULL;
    *count = nodes && *count < all ? *count : all;
    return CU_OK;
}

cu_result cuGraphNodeGetDependencies_v2(cu_graph_node node, cu_graph_node *nodes,
                                        struct cu_edge *edges, size_t *count)
{
    if (nodes && edges && count)
        memset(edges, 0, *count * sizeof *edges);
    return cuGraphNodeGetDependencies(node, nodes, count);
}

/* ---- Graphs ---- */

cu_result cuGraphCreate(cu_graph *graph, unsigned flags)
{
    int device;
    struct sim_graph *made;
    cu_result code = sim_enter("cuGraphCreate", &device);
    if (!code)
        code = graph && !flags ? sim_code(sim_graph_create(device, &made)) : CU_INVALID_VALUE;
    if (!code)
        *graph = theirs_graph(made);
    return code;
}

cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags)
{
    int device;
    struct sim_exec *made;
    cu_result code = sim_enter("cuGraphInstantiate", &device);
    if (!code)
        code = exec && flags <= 15 ? sim_code(sim_exec_create(sim_graph_of(graph), &made))
                                   : CU_INVALID_VALUE;
    if (!code)
        *exec = (cu_graph_exec)(void *)made;
    return code;
}

cu_result cuGraphInstantiate_v2(cu_graph_exec *exec, cu_graph graph, cu_graph_node *failed_node,
                                char *text, size_t size)
{
    if (failed_node)
        *failed_node = NULL;
    if (text && size)
        text[0] = '\0';
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuGraphLaunch", stream, &device, &host);
    if (code)
        return code;
    const struct sim_exec *known = (const struct sim_exec *)(const void *)exec;
    if (!known || !known->live)
        return CU_INVALID_VALUE;
    return sim_code(driver->graph_launch(device, known->graph->host, host));
}

cu_result cuGraphExecDestroy(cu_graph_exec exec)
{
    int device;
    cu_result code = sim_enter("cuGraphExecDestroy", &device);
    return code ? code : sim_code(sim_exec_end((struct sim_exec *)(void *)exec));
}

cu_result cuGraphDestroy(cu_graph graph)
{
    int device;
    cu_result code = sim_enter("cuGraphDestroy", &device);
    return code ? code : sim_code(sim_graph_end(sim_graph_of(graph)));
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

static struct sim_user_object *theirs(cu_user_object object)
{
    return (struct sim_user_object *)(void *)object;
}

cu_result cuUserObjectCreate(cu_user_object *object, void *argument, cu_host_function destroy,
                             unsigned count, unsigned flags)
{
    int device;
    cu_result code = sim_enter("cuUserObjectCreate", &device);
    if (code)
        return code;
    if (!object || !destroy || !count || count > INT32_MAX ||
        flags != CU_USER_OBJECT_NOT_SYNCHRONIZED)
        return CU_INVALID_VALUE;
    struct sim_user_object *made = sim_user_object_create(destroy, argument, count);
    if (!made)
        return CU_OUT_OF_MEMORY;
    *object = (cu_user_object)(void *)made;
    return CU_OK;
}

cu_result cuUserObjectRelease(cu_user_object object, unsigned count)
{
    int device;
    cu_result code = sim_enter("cuUserObjectRelease", &device);
    if (code)
        return code;
    return object && count && sim_user_object_release(theirs(object), count) ? CU_OK
                                                                             : CU_INVALID_VALUE;
}

/* Executables hold their graph here, so they also hold what the graph retains after they were
 * made. */
cu_result cuGraphRetainUserObject(cu_graph graph, cu_user_object object, unsigned count,
                                  unsigned flags)
{
    int device;
    cu_result code = sim_enter("cuGraphRetainUserObject", &device);
    if (code)
        return code;
    if (!graph || !sim_graph_of(graph)->live || !object || !count || count > INT32_MAX ||
        flags > CU_USER_OBJECT_IS_MOVED)
        return CU_INVALID_VALUE;
    return sim_code(sim_user_object_hold(theirs(object), sim_graph_of(graph)->device,
                                         sim_graph_of(graph)->host, count, !flags));
}
