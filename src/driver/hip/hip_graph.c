/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* HIP's captures and graphs as entries of the driver table. Owns the list of executables: a graph
 * is instantiated at its first launch. The lock of the list is held over no vendor call. */
#include "base/status.h"
#include "base/thread/cancel.h"
#include "driver/held.h"
#include "driver/hip/hip.h"
#include "driver/launched.h"

_Static_assert((int)DRIVER_CAPTURE_GLOBAL == (int)HIP_MODE_GLOBAL, "the modes have HIP's numbers");
_Static_assert((int)DRIVER_CAPTURE_THREAD_LOCAL == (int)HIP_MODE_THREAD_LOCAL,
               "the modes have HIP's numbers");
_Static_assert((int)DRIVER_CAPTURE_RELAXED == (int)HIP_MODE_RELAXED,
               "the modes have HIP's numbers");
_Static_assert((int)DRIVER_CAPTURE_NONE == (int)HIP_CAPTURE_IS_NONE,
               "the states have HIP's numbers");
_Static_assert((int)DRIVER_CAPTURE_ACTIVE == (int)HIP_CAPTURE_IS_ACTIVE,
               "the states have HIP's numbers");
_Static_assert((int)DRIVER_CAPTURE_INVALIDATED == (int)HIP_CAPTURE_IS_INVALIDATED,
               "the states have HIP's numbers");
_Static_assert(sizeof(driver_node) == sizeof(hip_graph_node),
               "a list of nodes is passed on as it is");

static struct launched_list launched = LAUNCHED_LIST;

/* ---- Captures ---- */

tarn_status hip_capture_begin(int device, driver_stream stream, enum driver_capture_mode mode)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipStreamBeginCapture(stream, (hip_stream_capture_mode)mode);
    return hip_leave(&scope, code, "hipStreamBeginCapture");
}

tarn_status hip_capture_end(int device, driver_stream stream, driver_graph *graph)
{
    hip_graph result = NULL;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipStreamEndCapture(stream, &result);
    if (!code && !result)
        code = HIP_CAPTURE_INVALIDATED;
    if (!code) {
        /* The program destroyed an earlier graph at this address: its executable must not run for
         * the new one. */
        hip_graph_exec stale = launched_forget(&launched, result);
        if (stale)
            (void)hip.call.hipGraphExecDestroy(stale);
    }
    status = hip_leave(&scope, code, "hipStreamEndCapture");
    if (status)
        return status;
    *graph = result;
    return TARN_OK;
}

/* Most streams do not capture; then one cheap question suffices. */
static hip_result ask(hip_stream stream, hip_stream_capture_status *state, unsigned long long *id,
                      hip_graph *graph, const hip_graph_node **nodes, size_t *count)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    hip_result code = hip.call.hipStreamIsCapturing(stream, state);
    if (code || *state != HIP_CAPTURE_IS_ACTIVE)
        return code;
    return hip.call.hipStreamGetCaptureInfo_v2(stream, state, id, graph, nodes, count);
}

tarn_status hip_capture_status(int device, driver_stream stream, struct driver_capture *capture)
{
    hip_stream_capture_status state = HIP_CAPTURE_IS_NONE;
    unsigned long long id = 0;
    const hip_graph_node *nodes = NULL;
    hip_graph graph = NULL;
    size_t count = 0;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    hip_result code = ask(stream, &state, &id, &graph, &nodes, &count);
    status = hip_leave_silently(&scope, code);
    if (status)
        return status;
    bool active = state == HIP_CAPTURE_IS_ACTIVE;
    *capture = (struct driver_capture){
        .state = active                                ? DRIVER_CAPTURE_ACTIVE
                 : state == HIP_CAPTURE_IS_INVALIDATED ? DRIVER_CAPTURE_INVALIDATED
                                                       : DRIVER_CAPTURE_NONE,
        .id = active ? id : 0,
        .nodes = active && nodes ? (const driver_node *)(const void *)nodes : NULL,
        .node_count = active && nodes ? count : 0,
        .graph = active ? graph : NULL,
    };
    return TARN_OK;
}

tarn_status hip_capture_mode(enum driver_capture_mode *mode)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    hip_stream_capture_mode value = (hip_stream_capture_mode)*mode;
    hip_result code = hip.call.hipThreadExchangeStreamCaptureMode(&value);
    if (code)
        return hip_failed(code, "hipThreadExchangeStreamCaptureMode");
    *mode = (enum driver_capture_mode)value;
    return TARN_OK;
}

tarn_status hip_capture_depend(int device, driver_stream stream, const driver_node *nodes,
                               size_t count)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    /* The vendor's prototype lacks a const; the list is only read. */
    hip_graph_node *list = (hip_graph_node *)(uintptr_t)nodes;
    hip_result code =
        hip.call.hipStreamUpdateCaptureDependencies(stream, list, count, HIP_DEPENDENCIES_SET);
    return hip_leave(&scope, code, "hipStreamUpdateCaptureDependencies with %zu nodes", count);
}

/* The runtime fails if the room does not suffice, so the number is asked for first. */
tarn_status hip_node_before(int device, driver_node node, driver_node *nodes, size_t room,
                            size_t *count)
{
    struct hip_scope scope;
    if (!hip.call.hipGraphNodeGetDependencies)
        return TARN_ERROR_NOT_SUPPORTED;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    size_t all = 0;
    hip_result code = hip.call.hipGraphNodeGetDependencies(node, NULL, &all);
    if (!code && all && all <= room)
        code = hip.call.hipGraphNodeGetDependencies(node, (hip_graph_node *)(void *)nodes, &all);
    status = hip_leave_silently(&scope, code);
    if (!status)
        *count = all;
    return status;
}

/* ---- Graphs ---- */

/* In relaxed mode, because an executable needs device memory. */
static tarn_status instantiate(int device, hip_graph graph, hip_graph_exec *exec)
{
    hip_graph_exec made = NULL;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipGraphInstantiateWithFlags(&made, graph, 0);
    if (code)
        return hip_leave(&scope, code, "hipGraphInstantiateWithFlags");
    *exec = launched_enter(&launched, graph, made);
    if (*exec != made)
        (void)hip.call.hipGraphExecDestroy(made);
    (void)hip_leave_silently(&scope, HIP_OK);
    return *exec ? TARN_OK
                 : failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to remember a graph");
}

tarn_status hip_graph_launch(int device, driver_graph graph, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status;
    hip_graph_exec exec = launched_find(&launched, graph);
    if (!exec) {
        status = instantiate(device, graph, &exec);
        if (status)
            return status;
    }
    status = hip_enter(device, false, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipGraphLaunch(exec, stream), "hipGraphLaunch");
}

tarn_status hip_exec_launch(int device, driver_exec exec, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipGraphLaunch(exec, stream), "hipGraphLaunch");
}

tarn_status hip_graph_destroy(int device, driver_graph graph)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_graph_exec exec = launched_forget(&launched, graph);
    hip_result code = exec ? hip.call.hipGraphExecDestroy(exec) : HIP_OK;
    hip_result of_graph = hip.call.hipGraphDestroy(graph);
    return hip_leave(&scope, code ? code : of_graph, "hipGraphDestroy");
}

tarn_status hip_graph_hold(int device, driver_graph graph, void (*end)(void *), void *argument)
{
    const struct hip_calls *call = &hip.call;
    struct hip_scope scope;
    hip_user_object object = NULL;
    if (!call->hipUserObjectCreate || !call->hipUserObjectRelease ||
        !call->hipGraphRetainUserObject)
        return failed(
            TARN_ERROR_NOT_SUPPORTED,
            "the end of a graph: %s has no hipGraphRetainUserObject; HIP 5.3 and later have it",
            loader_path(&hip.library));
    struct held *held = held_create(end, argument);
    if (!held)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to remember a callback for the end of a graph");
    tarn_status status = hip_enter(device, true, &scope);
    if (status) {
        held_cancel(held, false);
        return status;
    }
    hip_result code =
        call->hipUserObjectCreate(&object, held, held_end, 1, HIP_USER_OBJECT_NOT_SYNCHRONIZED);
    if (code) {
        held_cancel(held, false);
        return hip_leave(&scope, code, "hipUserObjectCreate");
    }
    code = call->hipGraphRetainUserObject(graph, object, 1, HIP_USER_OBJECT_IS_MOVED);
    if (code) {
        held_cancel(held, true);
        (void)call->hipUserObjectRelease(object, 1);
    } else {
        /* What ran the graph so far does not hold the object: the next launch makes anew what
         * does. */
        hip_graph_exec exec = launched_forget(&launched, graph);
        if (exec)
            (void)call->hipGraphExecDestroy(exec);
    }
    return hip_leave(&scope, code, "hipGraphRetainUserObject");
}

void hip_graphs_finish(void)
{
    void *exec;
    while ((exec = launched_forget(&launched, NULL)))
        (void)hip.call.hipGraphExecDestroy(
            exec); /* "deinitialised" is fine: the process is ending */
}
