/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* HIP's devices, plain memory, streams and events as entries of the driver table. Each is one
 * vendor call between hip_enter() and hip_leave(). Calls that a capture of any thread may forbid
 * run in relaxed mode: allocations, queries, waits. Calls that belong into a capture do not:
 * records, waits of streams, copies, host functions. */
#include "driver/hip/hip.h"
#include "base/machine.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/cancel.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- Devices ---- */

tarn_status hip_device_count(int *count)
{
    *count = hip.devices;
    return TARN_OK;
}

tarn_status hip_device_properties(int number, struct driver_properties *properties)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (number < 0 || number >= hip.devices)
        return hip_no_device(number);
    const struct hip_device *device = &hip.device[number];
    struct driver_properties result = {
        .memory = device->memory,
        .granule = device->virtual_memory ? device->granule : (size_t)2 << 20,
        .recommended = device->virtual_memory ? device->granule : (size_t)2 << 20,
        .address_limit = SIZE_MAX,
        .least_priority = 0,
        .greatest_priority = device->greatest_priority,
        .virtual_memory = device->virtual_memory,
        .capability_major = device->capability_major,
        .capability_minor = device->capability_minor,
        .alias = false, /* a piece can be mapped at one address only */
        .exportable = device->virtual_memory && hip_shares(),
        .integrated = device->integrated,
        .coherent = device->coherent,
        .paged = machine_is_wsl(),
    };
    hip_result code = hip.call.hipDeviceGetName(result.name, sizeof result.name, number);
    if (code)
        return hip_failed(code, "hipDeviceGetName");
    result.name[sizeof result.name - 1] = '\0';
    *properties = result;
    return TARN_OK;
}

tarn_status hip_activate(int device)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (device < 0 || device >= hip.devices)
        return hip_no_device(device);
    hip_result code = hip.call.hipSetDevice(device);
    return code ? hip_failed(code, "hipSetDevice") : TARN_OK;
}

tarn_status hip_current(int *device)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    int current = 0;
    hip_result code = hip.call.hipGetDevice(&current);
    if (code)
        return hip_failed(code, "hipGetDevice");
    *device = current;
    return TARN_OK;
}

/* The current device stands for the context. There always is one. */
tarn_status hip_context_get(driver_context *context)
{
    int device = 0;
    tarn_status status = hip_current(&device);
    if (!status)
        *context = (driver_context)((uintptr_t)device + 1);
    return status;
}

tarn_status hip_context_set(driver_context context)
{
    return context ? hip_activate((int)((uintptr_t)context - 1)) : TARN_OK;
}

/* HIP's devices have no contexts that matter to a program. */
tarn_status hip_is_active(int device, bool *active)
{
    if (device < 0 || device >= hip.devices)
        return hip_no_device(device);
    *active = true;
    return TARN_OK;
}

tarn_status hip_memory_info(int device, size_t *free_bytes, size_t *total_bytes)
{
    size_t available = 0, total = 0;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipMemGetInfo(&available, &total);
    status = hip_leave(&scope, code, "hipMemGetInfo");
    if (status)
        return status;
    *free_bytes = available;
    *total_bytes = total;
    return TARN_OK;
}

/* Invalidates every capture of the process, of any device and mode: CHECK_SUPPORTED_DURING_CAPTURE
 * in ROCm/clr, hipamd/src/hip_internal.hpp and hip_device_runtime.cpp, in rocm-6.2.0 and later, and
 * in ROCm/rocm-systems. Up to rocm-6.1.2 the call ignores captures. Callers refuse in every version
 * (`wait_ends_all`). */
tarn_status hip_device_synchronize(int device)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipDeviceSynchronize(), "hipDeviceSynchronize");
}

/* ---- Memory ---- */

tarn_status hip_alloc(int device, size_t size, uintptr_t *address)
{
    void *result = NULL;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipMalloc(&result, size);
    if (!code && !result) /* HIP's answer for 0 bytes */
        code = HIP_INVALID_VALUE;
    status = hip_leave(&scope, code, "hipMalloc of %zu bytes", size);
    if (status)
        return status;
    *address = (uintptr_t)result;
    return TARN_OK;
}

/* For HIP, freeing NULL is allowed. */
tarn_status hip_free(int device, uintptr_t address)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = address ? hip.call.hipFree((void *)address) : HIP_INVALID_VALUE;
    return hip_leave(&scope, code, "hipFree of %p", (void *)address);
}

static tarn_status refuse_captured(const char *call, int device, driver_stream stream)
{
    struct driver_capture capture = {0};
    if (!hip.call.hipMallocAsync || !hip.call.hipFreeAsync)
        return failed(TARN_ERROR_NOT_SUPPORTED, "%s: %s has no such call", call,
                      loader_path(&hip.library));
    tarn_status answer = hip_capture_status(device, stream, &capture);
    return driver_refuse_captured(call, device, answer, &capture);
}

tarn_status hip_alloc_async(int device, size_t size, driver_stream stream, uintptr_t *address)
{
    void *result = NULL;
    struct hip_scope scope;
    tarn_status status = refuse_captured("hipMallocAsync", device, stream);
    if (!status)
        status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipMallocAsync(&result, size, stream);
    if (!code && !result) /* HIP's answer for 0 bytes */
        code = HIP_INVALID_VALUE;
    status = hip_leave(&scope, code, "hipMallocAsync of %zu bytes", size);
    if (status)
        return status;
    *address = (uintptr_t)result;
    return TARN_OK;
}

tarn_status hip_free_async(int device, uintptr_t address, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = refuse_captured("hipFreeAsync", device, stream);
    if (!status)
        status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = address ? hip.call.hipFreeAsync((void *)address, stream) : HIP_INVALID_VALUE;
    return hip_leave(&scope, code, "hipFreeAsync of %p", (void *)address);
}

tarn_status hip_host_alloc(int device, size_t size, uintptr_t *address)
{
    void *result = NULL;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipHostMalloc(&result, size, HIP_HOST_PORTABLE);
    if (!code && !result)
        code = HIP_INVALID_VALUE;
    status = hip_leave(&scope, code, "hipHostMalloc of %zu bytes", size);
    if (status)
        return status;
    *address = (uintptr_t)result;
    return TARN_OK;
}

tarn_status hip_host_free(int device, uintptr_t address)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = address ? hip.call.hipHostFree((void *)address) : HIP_INVALID_VALUE;
    return hip_leave(&scope, code, "hipHostFree of %p", (void *)address);
}

tarn_status hip_host_register(int device, uintptr_t address, size_t size)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipHostRegister((void *)address, size, HIP_REGISTER_PORTABLE);
    return hip_leave(&scope, code, "hipHostRegister of %zu bytes at %p", size, (void *)address);
}

tarn_status hip_host_unregister(int device, uintptr_t address)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipHostUnregister((void *)address);
    return hip_leave(&scope, code, "hipHostUnregister of %p", (void *)address);
}

/* ---- Streams ---- */

tarn_status hip_stream_create(int device, int priority, bool blocking, driver_stream *stream)
{
    hip_stream result = NULL;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    unsigned flags = blocking ? HIP_STREAM_BLOCKING : HIP_STREAM_NOT_BLOCKING;
    hip_result code = hip.call.hipStreamCreateWithPriority(&result, flags, priority);
    status = hip_leave(&scope, code, "hipStreamCreateWithPriority");
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "hipStreamCreateWithPriority on device %d succeeded and gave nothing",
                      device);
    *stream = result;
    return TARN_OK;
}

tarn_status hip_stream_destroy(int device, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipStreamDestroy(stream), "hipStreamDestroy");
}

tarn_status hip_stream_check(int device, driver_stream stream)
{
    int found = device;
    struct hip_scope scope;
    if (!hip.call.hipStreamGetDevice)
        return TARN_OK;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipStreamGetDevice(stream, &found);
    status = hip_leave(&scope, code, "hipStreamGetDevice");
    if (status || found == device)
        return status;
    return failed(TARN_ERROR_INVALID_STREAM,
                  "hipStreamGetDevice: stream %p is of device %d, not of device %d", stream, found,
                  device);
}

tarn_status hip_stream_number(int device, driver_stream stream, uint64_t *number)
{
    struct hip_scope scope;
    unsigned long long id = 0;
    if (!hip.call.hipStreamGetId)
        return TARN_ERROR_NOT_SUPPORTED;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_stream_capture_status state = HIP_CAPTURE_IS_NONE;
    hip_result code = hip.call.hipStreamIsCapturing(stream, &state);
    if (code)
        return hip_leave(&scope, code, "hipStreamIsCapturing"); /* it may capture */
    /* As with CUDA, where the question would end the capture. */
    if (state != HIP_CAPTURE_IS_NONE) {
        (void)hip_leave_silently(&scope, HIP_OK);
        return TARN_ERROR_CAPTURE;
    }
    code = hip.call.hipStreamGetId(stream, &id);
    status = hip_leave(&scope, code, "hipStreamGetId");
    if (status)
        return status;
    *number = id + 1;
    return TARN_OK;
}

/* A query: "not ready" is an answer, not an error. */
static tarn_status leave_query(const struct hip_scope *scope, hip_result code, const char *call)
{
    return code == HIP_NOT_READY ? hip_leave_silently(scope, code)
                                 : hip_leave(scope, code, "%s", call);
}

tarn_status hip_stream_query(int device, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return leave_query(&scope, hip.call.hipStreamQuery(stream), "hipStreamQuery");
}

tarn_status hip_stream_synchronize(int device, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipStreamSynchronize(stream), "hipStreamSynchronize");
}

tarn_status hip_stream_wait_event(int device, driver_stream stream, driver_event event)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipStreamWaitEvent(stream, event, 0), "hipStreamWaitEvent");
}

/* ---- Events ---- */

tarn_status hip_event_create(int device, driver_event *event)
{
    hip_event result = NULL;
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipEventCreateWithFlags(&result, HIP_EVENT_WITHOUT_TIMING);
    status = hip_leave(&scope, code, "hipEventCreateWithFlags");
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_DRIVER,
                      "hipEventCreateWithFlags on device %d succeeded and gave nothing", device);
    *event = result;
    return TARN_OK;
}

tarn_status hip_event_destroy(int device, driver_event event)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipEventDestroy(event), "hipEventDestroy");
}

tarn_status hip_event_record(int device, driver_event event, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipEventRecord(event, stream), "hipEventRecord");
}

tarn_status hip_event_query(int device, driver_event event)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return leave_query(&scope, hip.call.hipEventQuery(event), "hipEventQuery");
}

tarn_status hip_event_synchronize(int device, driver_event event)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipEventSynchronize(event), "hipEventSynchronize");
}

/* ---- Work ---- */

tarn_status hip_copy(int device, uintptr_t to, uintptr_t from, size_t size, driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    hip_result code =
        hip.call.hipMemcpyAsync((void *)to, (const void *)from, size, HIP_COPY_DEFAULT, stream);
    return hip_leave(&scope, code, "hipMemcpyAsync of %zu bytes from %p to %p", size, (void *)from,
                     (void *)to);
}

tarn_status hip_set(int device, uintptr_t address, unsigned char value, size_t size,
                    driver_stream stream)
{
    struct hip_scope scope;
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    hip_result code = hip.call.hipMemsetAsync((void *)address, value, size, stream);
    return hip_leave(&scope, code, "hipMemsetAsync of %zu bytes at %p", size, (void *)address);
}

/* A host function, for hipStreamAddCallback(). */
struct callback {
    void (*function)(void *);
    void *argument;
};

static struct object_pool callback_objects = OBJECT_POOL(struct callback);

static void run_callback(hip_stream stream, hip_result code, void *argument)
{
    struct callback callback = *(struct callback *)argument;
    (void)stream;
    (void)code;
    object_free(&callback_objects, argument);
    callback.function(callback.argument);
}

/* Before HIP 5.3 there is only hipStreamAddCallback(), which cannot be captured: a graph would run
 * it more than once. */
static tarn_status add_callback(int device, hip_stream stream, void (*function)(void *),
                                void *argument)
{
    hip_stream_capture_status state = HIP_CAPTURE_IS_NONE;
    struct hip_scope scope;
    struct callback *callback = object_alloc(&callback_objects);
    if (!callback)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "hipStreamAddCallback: no host memory for the callback");
    *callback = (struct callback){.function = function, .argument = argument};
    tarn_status status = hip_enter(device, false, &scope);
    if (status) {
        object_free(&callback_objects, callback);
        return status;
    }
    hip_result code = hip.call.hipStreamIsCapturing(stream, &state);
    if (!code && state != HIP_CAPTURE_IS_NONE)
        code = HIP_CAPTURE_UNSUPPORTED;
    if (!code)
        code = hip.call.hipStreamAddCallback(stream, run_callback, callback, 0);
    if (code)
        object_free(&callback_objects, callback);
    return hip_leave(&scope, code, "hipStreamAddCallback");
}

tarn_status hip_call(int device, driver_stream stream, void (*function)(void *), void *argument)
{
    struct hip_scope scope;
    if (!hip.call.hipLaunchHostFunc)
        return add_callback(device, stream, function, argument);
    tarn_status status = hip_enter(device, false, &scope);
    if (status)
        return status;
    return hip_leave(&scope, hip.call.hipLaunchHostFunc(stream, function, argument),
                     "hipLaunchHostFunc");
}

/* ---- Peers ---- */

tarn_status hip_peer_possible(int device, int peer, bool *possible)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    int can = 1;
    if (device < 0 || device >= hip.devices || peer < 0 || peer >= hip.devices)
        return hip_no_device(device < 0 || device >= hip.devices ? device : peer);
    if (device != peer) {
        hip_result code = hip.call.hipDeviceCanAccessPeer(&can, device, peer);
        if (code)
            return hip_failed(code, "hipDeviceCanAccessPeer");
    }
    *possible = can != 0;
    return TARN_OK;
}

tarn_status hip_peer_enable(int device, int peer)
{
    struct hip_scope scope;
    if (peer < 0 || peer >= hip.devices)
        return hip_no_device(peer);
    tarn_status status = hip_enter(device, true, &scope);
    if (status)
        return status;
    hip_result code = device == peer ? HIP_OK : hip.call.hipDeviceEnablePeerAccess(peer, 0);
    if (code == HIP_PEER_ALREADY_ENABLED) { /* enabled by the program */
        (void)hip.call.hipGetLastError();
        code = HIP_OK;
    }
    return hip_leave(&scope, code, "hipDeviceEnablePeerAccess to device %d", peer);
}

/* AMD's runtime returns 16 hexadecimal digits, which its tools print after "GPU-"; on another
 * platform they are bytes. */
static void hip_identity(int device, struct driver_identity *identity)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct hip_uuid uuid = {{0}};
    char address[24] = "";
    *identity = (struct driver_identity){.uuid = ""};
    if (hip.call.hipDeviceGetUuid && hip.call.hipDeviceGetUuid(&uuid, device) == HIP_OK) {
        size_t digits = 0;
        while (digits < sizeof uuid.bytes && isxdigit((unsigned char)uuid.bytes[digits]))
            digits++;
        if (digits == sizeof uuid.bytes)
            snprintf(identity->uuid, sizeof identity->uuid, "GPU-%.16s", uuid.bytes);
        else
            driver_uuid_print(identity, "GPU", (const unsigned char *)uuid.bytes);
    }
    if (hip.call.hipDeviceGetPCIBusId &&
        hip.call.hipDeviceGetPCIBusId(address, sizeof address, device) == HIP_OK) {
        address[sizeof address - 1] = '\0';
        snprintf(identity->pci, sizeof identity->pci, "%s", address);
    }
}

/* The driver serves no library any more, until the next choice. */
static void hip_finish(void)
{
    hip_graphs_finish();
    hip_virtual_finish();
    hip.devices = 0;
}

const struct driver driver_hip = {
    .name = "hip",
    .legacy = HIP_LEGACY_STREAM,
    .per_thread = HIP_THREADS_STREAM,
    .wait_ends_all = true,
#define X(call, parameters) .call = hip_##call,
    DRIVER_CALL_LIST(X)
#undef X
        .identity = hip_identity,
    .graph_walk = hip_graph_walk,
    .finish = hip_finish,
};
