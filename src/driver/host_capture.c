/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs of the host device. */
#include "base/status.h"
#include "driver/host.h"

static _Thread_local enum driver_capture_mode thread_mode; /* GLOBAL at first, as with CUDA */

tarn_status host_unsafe(enum driver_call call)
{
    (void)call;
    return TARN_OK;
}

static tarn_status none_yet(enum driver_call call, int number)
{
    struct host_device *device;
    tarn_status status = host_enter(call, number, &device);
    if (status)
        return status;
    return failed(TARN_ERROR_NOT_SUPPORTED, "host %s: this device has no captures yet", driver_call_name((int)call));
}

tarn_status host_capture_begin(int number, driver_stream stream, enum driver_capture_mode mode)
{
    (void)stream;
    (void)mode;
    return none_yet(DRIVER_CALL_capture_begin, number);
}

tarn_status host_capture_end(int number, driver_stream stream, driver_graph *graph)
{
    (void)stream;
    (void)graph;
    return none_yet(DRIVER_CALL_capture_end, number);
}

tarn_status host_capture_status(int number, driver_stream stream, struct driver_capture *capture)
{
    struct host_device *device;
    (void)stream;
    tarn_status status = host_enter(DRIVER_CALL_capture_status, number, &device);
    if (!status)
        *capture = (struct driver_capture){.state = DRIVER_CAPTURE_NONE};
    return status;
}

tarn_status host_capture_mode(enum driver_capture_mode *mode)
{
    struct host_device *first;
    tarn_status status = host_enter(DRIVER_CALL_capture_mode, 0, &first);
    if (status)
        return status;
    enum driver_capture_mode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return TARN_OK;
}

tarn_status host_capture_depend(int number, driver_stream stream, const driver_node *nodes, size_t count)
{
    (void)stream;
    (void)nodes;
    (void)count;
    return none_yet(DRIVER_CALL_capture_depend, number);
}

tarn_status host_graph_launch(int number, driver_graph graph, driver_stream stream)
{
    (void)graph;
    (void)stream;
    return none_yet(DRIVER_CALL_graph_launch, number);
}

tarn_status host_graph_destroy(int number, driver_graph graph)
{
    (void)graph;
    return none_yet(DRIVER_CALL_graph_destroy, number);
}
