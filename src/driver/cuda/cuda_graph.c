/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* CUDA's captures and graphs as entries of the driver table. Owns the list of executables: a graph
 * is instantiated at its first launch. The lock of the list is held over no vendor call. */
#include "base/status.h"
#include "base/thread/cancel.h"
#include "driver/cuda/cuda.h"
#include "driver/held.h"
#include "driver/launched.h"

_Static_assert((int)DRIVER_CAPTURE_GLOBAL == (int)CU_MODE_GLOBAL, "the modes have CUDA's numbers");
_Static_assert((int)DRIVER_CAPTURE_THREAD_LOCAL == (int)CU_MODE_THREAD_LOCAL,
               "the modes have CUDA's numbers");
_Static_assert((int)DRIVER_CAPTURE_RELAXED == (int)CU_MODE_RELAXED,
               "the modes have CUDA's numbers");
_Static_assert((int)DRIVER_CAPTURE_NONE == (int)CU_CAPTURE_IS_NONE,
               "the states have CUDA's numbers");
_Static_assert((int)DRIVER_CAPTURE_ACTIVE == (int)CU_CAPTURE_IS_ACTIVE,
               "the states have CUDA's numbers");
_Static_assert((int)DRIVER_CAPTURE_INVALIDATED == (int)CU_CAPTURE_IS_INVALIDATED,
               "the states have CUDA's numbers");
_Static_assert(sizeof(driver_node) == sizeof(cu_graph_node),
               "a list of nodes is passed on as it is");

static struct launched_list launched = LAUNCHED_LIST;

/* ---- Captures ---- */

tarn_status cuda_capture_begin(int device, driver_stream stream, enum driver_capture_mode mode)
{
    struct cuda_scope scope;
    if (!cuda.call.cuStreamBeginCapture_v2)
        return cuda_missing("cuStreamBeginCapture");
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuStreamBeginCapture_v2(stream, (cu_capture_mode)mode),
                      "cuStreamBeginCapture");
}

tarn_status cuda_capture_end(int device, driver_stream stream, driver_graph *graph)
{
    cu_graph result = NULL;
    struct cuda_scope scope;
    if (!cuda.call.cuStreamEndCapture)
        return cuda_missing("cuStreamEndCapture");
    /* In relaxed mode: else the end of a stale executable would invalidate other captures (driver
     * 580.159.04, H200). */
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuStreamEndCapture(stream, &result);
    if (!code && !result)
        code = CU_CAPTURE_INVALIDATED;
    if (!code && cuda.call.cuGraphExecDestroy) {
        /* The program destroyed an earlier graph at this address: its executable must not run for
         * the new one. */
        cu_graph_exec stale = launched_forget(&launched, result);
        if (stale)
            (void)cuda.call.cuGraphExecDestroy(stale);
    }
    status = cuda_leave(&scope, code, "cuStreamEndCapture");
    if (status)
        return status;
    *graph = result;
    return TARN_OK;
}

static bool is_partial(const struct cu_edge *edge)
{
    return edge->from_port || edge->to_port || edge->type;
}

/* Uses the newest call that the driver has. Also asks for the edges, because with special edges the
 * driver returns 402 otherwise. */
static cu_result ask(cu_stream stream, cu_capture_status *state, uint64_t *id, cu_graph *graph,
                     const cu_graph_node **nodes, size_t *count, bool *partial)
{
    const struct cuda_calls *call = &cuda.call;
    const struct cu_edge *edges = NULL;
    if (call->cuStreamGetCaptureInfo_v3) {
        cu_result code =
            call->cuStreamGetCaptureInfo_v3(stream, state, id, graph, nodes, &edges, count);
        for (size_t i = 0; !code && *state == CU_CAPTURE_IS_ACTIVE && edges && i < *count; i++)
            *partial = *partial || is_partial(&edges[i]);
        return code;
    }
    if (call->cuStreamGetCaptureInfo_v2)
        return call->cuStreamGetCaptureInfo_v2(stream, state, id, graph, nodes, count);
    return call->cuStreamGetCaptureInfo(stream, state, id);
}

tarn_status cuda_capture_status(int device, driver_stream stream, struct driver_capture *capture)
{
    cu_capture_status state = CU_CAPTURE_IS_NONE;
    uint64_t id = 0;
    const cu_graph_node *nodes = NULL;
    cu_graph graph = NULL;
    size_t count = 0;
    bool partial = false;
    struct cuda_scope scope;
    if (!cuda.call.cuStreamGetCaptureInfo) {
        /* The driver has no captures. */
        *capture = (struct driver_capture){.state = DRIVER_CAPTURE_NONE};
        return TARN_OK;
    }
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    cu_result code = ask(stream, &state, &id, &graph, &nodes, &count, &partial);
    status = cuda_leave_silently(&scope, code);
    if (status)
        return status;
    bool active = state == CU_CAPTURE_IS_ACTIVE;
    *capture = (struct driver_capture){
        .state = active                               ? DRIVER_CAPTURE_ACTIVE
                 : state == CU_CAPTURE_IS_INVALIDATED ? DRIVER_CAPTURE_INVALIDATED
                                                      : DRIVER_CAPTURE_NONE,
        .id = active ? id : 0,
        .nodes = active && nodes ? (const driver_node *)(const void *)nodes : NULL,
        .node_count = active && nodes ? count : 0,
        /* The nodes are unknown. */
        .partial = partial || (active && !cuda.call.cuStreamGetCaptureInfo_v2),
        .graph = active ? graph : NULL,
    };
    return TARN_OK;
}

tarn_status cuda_capture_mode(enum driver_capture_mode *mode)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    cu_capture_mode value = (cu_capture_mode)*mode;
    if (!cuda.call.cuThreadExchangeStreamCaptureMode)
        return cuda_missing("cuThreadExchangeStreamCaptureMode");
    cu_result code = cuda.call.cuThreadExchangeStreamCaptureMode(&value);
    if (code)
        return cuda_failed(code, "cuThreadExchangeStreamCaptureMode");
    *mode = (enum driver_capture_mode)value;
    return TARN_OK;
}

tarn_status cuda_capture_depend(int device, driver_stream stream, const driver_node *nodes,
                                size_t count)
{
    struct cuda_scope scope;
    if (!cuda.call.cuStreamUpdateCaptureDependencies)
        return cuda_missing("cuStreamUpdateCaptureDependencies");
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    /* The vendor's prototype lacks a const; the list is only read. */
    cu_graph_node *list = (cu_graph_node *)(uintptr_t)nodes;
    cu_result code =
        cuda.call.cuStreamUpdateCaptureDependencies(stream, list, count, CU_DEPENDENCIES_SET);
    return cuda_leave(&scope, code, "cuStreamUpdateCaptureDependencies with %zu nodes", count);
}

/* Uses the prototype without edges: with special edges the driver returns 402. */
tarn_status cuda_node_before(int device, driver_node node, driver_node *nodes, size_t room,
                             size_t *count)
{
    struct cuda_scope scope;
    if (!cuda.call.cuGraphNodeGetDependencies)
        return TARN_ERROR_NOT_SUPPORTED;
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    size_t given = room;
    cu_graph_node *list = (cu_graph_node *)(void *)nodes;
    cu_result code = room ? cuda.call.cuGraphNodeGetDependencies(node, list, &given) : CU_OK;
    if (!code && given == room) /* as many as there is room for, and perhaps more */
        code = cuda.call.cuGraphNodeGetDependencies(node, NULL, &given);
    status = cuda_leave_silently(&scope, code);
    if (!status)
        *count = given;
    return status;
}

/* ---- Graphs ---- */

/* In relaxed mode, because an executable needs device memory. */
static tarn_status instantiate(int device, cu_graph graph, cu_graph_exec *exec)
{
    cu_graph_exec made = NULL;
    struct cuda_scope scope;
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_result code = cuda.call.cuGraphInstantiateWithFlags
                         ? cuda.call.cuGraphInstantiateWithFlags(&made, graph, 0)
                         : cuda.call.cuGraphInstantiate_v2(&made, graph, NULL, NULL, 0);
    if (code)
        return cuda_leave(&scope, code, "cuGraphInstantiate");
    *exec = launched_enter(&launched, graph, made);
    if (*exec != made)
        (void)cuda.call.cuGraphExecDestroy(made);
    (void)cuda_leave_silently(&scope, CU_OK);
    return *exec ? TARN_OK
                 : failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to remember a graph");
}

tarn_status cuda_graph_launch(int device, driver_graph graph, driver_stream stream)
{
    const struct cuda_calls *call = &cuda.call;
    struct cuda_scope scope;
    tarn_status status;
    if (!call->cuGraphLaunch || !call->cuGraphExecDestroy ||
        (!call->cuGraphInstantiateWithFlags && !call->cuGraphInstantiate_v2))
        return cuda_missing("cuGraphLaunch");
    cu_graph_exec exec = launched_find(&launched, graph);
    if (!exec) {
        status = instantiate(device, graph, &exec);
        if (status)
            return status;
    }
    status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, call->cuGraphLaunch(exec, stream), "cuGraphLaunch");
}

tarn_status cuda_exec_launch(int device, driver_exec exec, driver_stream stream)
{
    struct cuda_scope scope;
    if (!cuda.call.cuGraphLaunch)
        return cuda_missing("cuGraphLaunch");
    tarn_status status = cuda_enter(device, false, &scope);
    if (status)
        return status;
    return cuda_leave(&scope, cuda.call.cuGraphLaunch(exec, stream), "cuGraphLaunch");
}

tarn_status cuda_graph_destroy(int device, driver_graph graph)
{
    struct cuda_scope scope;
    if (!cuda.call.cuGraphDestroy)
        return cuda_missing("cuGraphDestroy");
    tarn_status status = cuda_enter(device, true, &scope);
    if (status)
        return status;
    cu_graph_exec exec = launched_forget(&launched, graph);
    cu_result code = exec ? cuda.call.cuGraphExecDestroy(exec) : CU_OK;
    cu_result of_graph = cuda.call.cuGraphDestroy(graph);
    return cuda_leave(&scope, code ? code : of_graph, "cuGraphDestroy");
}

tarn_status cuda_graph_hold(int device, driver_graph graph, void (*end)(void *), void *argument)
{
    const struct cuda_calls *call = &cuda.call;
    struct cuda_scope scope;
    cu_user_object object = NULL;
    if (!call->cuUserObjectCreate || !call->cuUserObjectRelease || !call->cuGraphRetainUserObject)
        return cuda_missing("cuGraphRetainUserObject");
    struct held *held = held_create(end, argument);
    if (!held)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to remember a callback for the end of a graph");
    tarn_status status = cuda_enter(device, true, &scope);
    if (status) {
        held_cancel(held, false);
        return status;
    }
    cu_result code =
        call->cuUserObjectCreate(&object, held, held_end, 1, CU_USER_OBJECT_NOT_SYNCHRONIZED);
    if (code) {
        held_cancel(held, false);
        return cuda_leave(&scope, code, "cuUserObjectCreate");
    }
    code = call->cuGraphRetainUserObject(graph, object, 1, CU_USER_OBJECT_IS_MOVED);
    if (code) {
        held_cancel(held, true);
        (void)call->cuUserObjectRelease(object, 1);
    } else {
        /* The present executable does not hold the object. The next launch creates one that
         * does. */
        cu_graph_exec exec = launched_forget(&launched, graph);
        if (exec)
            (void)call->cuGraphExecDestroy(exec);
    }
    return cuda_leave(&scope, code, "cuGraphRetainUserObject");
}

void cuda_graphs_finish(void)
{
    void *exec;
    while ((exec = launched_forget(&launched, NULL)))
        (void)cuda.call.cuGraphExecDestroy(
            exec); /* "deinitialized" is allowed: the process is ending */
}
