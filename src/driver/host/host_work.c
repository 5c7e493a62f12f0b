/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ways to queue work: timed work, and real work, which needs a worker. What is queued on a
 * stream that captures becomes a node of its graph. */
#include "base/status.h"
#include "driver/host/host_stream.h"

static tarn_status queue(const char *call, struct host_stream *stream, const struct host_op *model)
{
    struct host_op *op = object_alloc(&host_op_objects);
    if (!op)
        return host_no_op(call);
    *op = *model;
    if (op->kind == HOST_OP_TIMED && __builtin_add_overflow(host_now_locked(), op->due, &op->due))
        op->due = UINT64_MAX;
    host_enqueue_locked(stream, op);
    return TARN_OK;
}

/* Queues an operation that uses up to two ranges. `real` work needs a worker. Fields that depend on
 * the kind come from `model`. */
static tarn_status submit_locked(const char *call, struct host_device *device, driver_stream handle,
                                 const struct host_op *model, const struct host_use ranges[2])
{
    struct host_stream *stream;
    tarn_status status = host_stream_find_locked(call, device, handle, &stream);
    struct host_capture *capture = NULL;
    if (!status)
        status = host_capture_enter_locked(call, stream, &capture);
    if (!status && !capture && model->kind != HOST_OP_TIMED)
        status = host_workers_ensure_locked();
    if (!status && !capture)
        status = host_stream_join_locked(call, stream);
    struct host_op op = *model;
    for (int i = 0; i < 2 && !status; i++)
        if (ranges[i].size)
            status = host_uses_add_locked(&op.uses, ranges[i].address, ranges[i].size);
    if (!status)
        status = capture ? host_graph_add_locked(call, capture->graph, stream, &op)
                         : queue(call, stream, &op);
    if (status)
        host_uses_finish(&op.uses);
    return status;
}

static tarn_status submit(const char *call, struct host_device *device, driver_stream handle,
                          const struct host_op *model, const struct host_use ranges[2])
{
    host_streams_lock();
    tarn_status status = submit_locked(call, device, handle, model, ranges);
    host_streams_leave();
    return status;
}

static tarn_status submit_fill(const char *call, struct host_device *device, driver_stream stream,
                               uintptr_t to, int value, size_t size)
{
    tarn_status status = host_memory_accessible(call, device, to, size);
    if (status || size == 0)
        return status;
    const struct host_op op = {.kind = HOST_OP_FILL,
                               .move = {.to = to, .size = size, .value = value}};
    return submit(call, device, stream, &op, (struct host_use[2]){{.address = to, .size = size}});
}

static tarn_status submit_copy(const char *call, struct host_device *device, driver_stream stream,
                               uintptr_t to, uintptr_t from, size_t size)
{
    tarn_status status = host_memory_accessible(call, NULL, to, size);
    if (!status)
        status = host_memory_accessible(call, NULL, from, size);
    if (status || size == 0)
        return status;
    const struct host_op op = {.kind = HOST_OP_COPY,
                               .move = {.to = to, .from = from, .size = size}};
    return submit(
        call, device, stream, &op,
        (struct host_use[2]){{.address = to, .size = size}, {.address = from, .size = size}});
}

static tarn_status submit_call(const char *call, struct host_device *device, driver_stream stream,
                               void (*function)(void *), void *argument)
{
    if (!function)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host %s: the function is NULL", call);
    const struct host_op op = {.kind = HOST_OP_CALL,
                               .call = {.function = function, .argument = argument}};
    return submit(call, device, stream, &op, (struct host_use[2]){{0}});
}

/* ---- Work ---- */

tarn_status host_copy(int number, uintptr_t to, uintptr_t from, size_t size, driver_stream stream)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_copy, number, &device);
    if (!status)
        status = submit_copy("copy", device, stream, to, from, size);
    if (!status)
        host_charge(device, DRIVER_CALL_copy, size, 0);
    return status;
}

tarn_status host_set(int number, uintptr_t address, unsigned char value, size_t size,
                     driver_stream stream)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_set, number, &device);
    if (!status)
        status = submit_fill("set", device, stream, address, value, size);
    if (!status)
        host_charge(device, DRIVER_CALL_set, size, 0);
    return status;
}

tarn_status host_call(int number, driver_stream stream, void (*function)(void *), void *argument)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_call, number, &device);
    if (!status)
        status = submit_call("call", device, stream, function, argument);
    if (!status)
        host_charge(device, DRIVER_CALL_call, 0, 0);
    return status;
}

tarn_status tarn_host_work(int number, void *native, const void *address, size_t size,
                           uint64_t duration)
{
    struct host_device *device;
    tarn_status status = host_use(number, &device);
    if (status)
        return status;
    if (size > UINTPTR_MAX - (uintptr_t)address)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host work: %zu bytes from %p go beyond the end of all addresses", size,
                      address);
    const struct host_op op = {.kind = HOST_OP_TIMED, .due = duration};
    return submit("work", device, native, &op,
                  (struct host_use[2]){{.address = (uintptr_t)address, .size = size}});
}

tarn_status tarn_host_fill(int number, void *native, void *address, int value, size_t size)
{
    struct host_device *device;
    tarn_status status = host_use(number, &device);
    return status ? status : submit_fill("fill", device, native, (uintptr_t)address, value, size);
}

tarn_status tarn_host_call(int number, void *native, void (*function)(void *), void *argument)
{
    struct host_device *device;
    tarn_status status = host_use(number, &device);
    return status ? status : submit_call("call", device, native, function, argument);
}
