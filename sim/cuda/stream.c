/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams and events of the simulated libcuda. CUDA's calls do not name the device, so each handle
 * stores its own. */
#include "base/pages.h"
#include "cuda/sim_cuda.h"

#define LEGACY CU_LEGACY_STREAM
#define PER_THREAD CU_THREADS_STREAM

static struct object_pool streams = OBJECT_POOL(struct CUstream_st);
static struct object_pool events = OBJECT_POOL(struct CUevent_st);
/* the thread's default streams; never freed */
static _Thread_local cu_stream own[TARN_MAX_DEVICES];

static cu_result create(int device, unsigned flags, int priority, cu_stream *stream)
{
    struct driver_properties properties;
    driver_stream host;
    cu_result code = sim_code(driver->device_properties(device, &properties));
    if (code)
        return code;
    if (flags > CU_STREAM_NOT_BLOCKING)
        return CU_INVALID_VALUE;
    if (priority > properties.least_priority)
        priority = properties.least_priority;
    if (priority < properties.greatest_priority)
        priority = properties.greatest_priority;
    struct CUstream_st *result = object_alloc(&streams);
    if (!result)
        return CU_OUT_OF_MEMORY;
    bool blocking = flags == CU_STREAM_BLOCKING;
    code = sim_code(driver->stream_create(device, priority, blocking, &host));
    if (code) {
        object_free(&streams, result);
        return code;
    }
    *result = (struct CUstream_st){
        .live = true, .device = device, .priority = priority, .flags = flags, .host = host};
    *stream = result;
    return CU_OK;
}

cu_result sim_stream(cu_stream stream, int *device, driver_stream *host)
{
    *host = NULL;
    if (!stream || stream == LEGACY)
        return CU_OK;
    if (stream == PER_THREAD) {
        cu_result code =
            own[*device] ? CU_OK : create(*device, CU_STREAM_BLOCKING, 0, &own[*device]);
        if (code)
            return code;
        stream = own[*device];
    }
    if (!stream->live)
        return CU_INVALID_HANDLE;
    *device = stream->device;
    *host = stream->host;
    return sim_lost(*device);
}

tarn_status sim_native_stream(void *native, int *device, driver_stream *stream)
{
    return sim_stream(native, device, stream) ? TARN_ERROR_INVALID_STREAM : TARN_OK;
}

/* Begins a call about a stream. */
static cu_result enter(const char *call, cu_stream stream, int *device, driver_stream *host)
{
    cu_result code = sim_enter(call, device);
    return code ? code : sim_stream(stream, device, host);
}

cu_result cuStreamCreateWithPriority(cu_stream *stream, unsigned flags, int priority)
{
    int device;
    cu_result code = sim_enter("cuStreamCreate", &device);
    if (code)
        return code;
    return stream ? create(device, flags, priority, stream) : CU_INVALID_VALUE;
}

cu_result cuStreamCreate(cu_stream *stream, unsigned flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

cu_result cuStreamDestroy_v2(cu_stream stream)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamDestroy", stream, &device, &host);
    if (code)
        return code;
    if (!host || stream == PER_THREAD)
        return CU_INVALID_HANDLE;
    code = sim_code(driver->stream_destroy(device, host));
    if (!code) {
        stream->live = false;
        object_free(&streams, stream);
    }
    return code;
}

cu_result cuStreamQuery(cu_stream stream)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamQuery", stream, &device, &host);
    return code ? code : sim_code(driver->stream_query(device, host));
}

cu_result cuStreamSynchronize(cu_stream stream)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamSynchronize", stream, &device, &host);
    return code ? code : sim_code(driver->stream_synchronize(device, host));
}

cu_result cuStreamGetFlags(cu_stream stream, unsigned *flags)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamGetFlags", stream, &device, &host);
    if (!code)
        *flags = host && stream != PER_THREAD ? stream->flags : CU_STREAM_BLOCKING;
    return code;
}

cu_result cuStreamGetPriority(cu_stream stream, int *priority)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamGetPriority", stream, &device, &host);
    if (!code)
        *priority = host && stream != PER_THREAD ? stream->priority : 0;
    return code;
}

cu_result cuStreamGetId(cu_stream stream, unsigned long long *id)
{
    int device;
    uint64_t number = 0;
    driver_stream host = NULL;
    cu_result code = enter("cuStreamGetId", stream, &device, &host);
    if (!code)
        code = id ? sim_code(driver->stream_number(device, host, &number)) : CU_INVALID_VALUE;
    /* on an H200 this refused call invalidates the capture, and so does the query */
    if (code == CU_CAPTURE_UNSUPPORTED)
        (void)driver->stream_query(device, host);
    if (!code)
        *id = number;
    return code;
}

cu_result cuStreamGetCtx(cu_stream stream, cu_context *context)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuStreamGetCtx", stream, &device, &host);
    if (!code)
        *context = sim_context(device);
    return code;
}

cu_result cuStreamGetCtx_v2(cu_stream stream, cu_context *context, cu_green_context *green)
{
    cu_result code = cuStreamGetCtx(stream, context);
    if (!code)
        *green = NULL;
    return code;
}

cu_result cuLaunchHostFunc(cu_stream stream, cu_host_function function, void *argument)
{
    int device;
    driver_stream host;
    cu_result code = enter("cuLaunchHostFunc", stream, &device, &host);
    if (code)
        return code;
    return function ? sim_code(driver->call(device, host, function, argument)) : CU_INVALID_VALUE;
}

/* ---- Events ---- */

/* Begins a call about an event. */
static cu_result enter_event(const char *call, cu_event event)
{
    int current;
    cu_result code = sim_enter(call, &current);
    if (code)
        return code;
    return event && event->live ? sim_lost(event->device) : CU_INVALID_HANDLE;
}

cu_result cuEventCreate(cu_event *event, unsigned flags)
{
    int device;
    driver_event host;
    cu_result code = sim_enter("cuEventCreate", &device);
    if (code)
        return code;
    if (!event || flags > 7)
        return CU_INVALID_VALUE;
    struct CUevent_st *result = object_alloc(&events);
    if (!result)
        return CU_OUT_OF_MEMORY;
    code = sim_code(driver->event_create(device, &host));
    if (code) {
        object_free(&events, result);
        return code;
    }
    *result = (struct CUevent_st){.live = true, .device = device, .host = host};
    *event = result;
    return CU_OK;
}

cu_result cuEventDestroy_v2(cu_event event)
{
    cu_result code = enter_event("cuEventDestroy", event);
    if (code)
        return code;
    code = sim_code(driver->event_destroy(event->device, event->host));
    if (!code) {
        event->live = false;
        object_free(&events, event);
    }
    return code;
}

cu_result cuEventRecord(cu_event event, cu_stream stream)
{
    int device;
    driver_stream host;
    cu_result code = enter_event("cuEventRecord", event);
    if (!code)
        code = cuCtxGetDevice(&device);
    if (!code)
        code = sim_stream(stream, &device, &host);
    if (code)
        return code;
    if (device != event->device)
        return CU_INVALID_HANDLE;
    return sim_code(driver->event_record(device, event->host, host));
}

cu_result cuEventQuery(cu_event event)
{
    cu_result code = enter_event("cuEventQuery", event);
    return code ? code : sim_code(driver->event_query(event->device, event->host));
}

cu_result cuEventSynchronize(cu_event event)
{
    cu_result code = enter_event("cuEventSynchronize", event);
    return code ? code : sim_code(driver->event_synchronize(event->device, event->host));
}

cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags)
{
    int device;
    driver_stream host;
    cu_result code = enter_event("cuStreamWaitEvent", event);
    if (!code)
        code = cuCtxGetDevice(&device);
    if (!code)
        code = sim_stream(stream, &device, &host);
    if (code)
        return code;
    if (flags > 1)
        return CU_INVALID_VALUE;
    return sim_code(driver->stream_wait_event(device, host, event->host));
}
