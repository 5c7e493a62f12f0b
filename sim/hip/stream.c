/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams and events of the simulated libamdhip64. HIP's calls do not name the device, so each
 * handle stores its own. */
#include "base/pages.h"
#include "hip/sim_hip.h"

#define PER_THREAD HIP_THREADS_STREAM

static struct object_pool streams = OBJECT_POOL(struct ihipStream_t);
static struct object_pool events = OBJECT_POOL(struct ihipEvent_t);
/* the thread's default streams; never freed */
static _Thread_local hip_stream own[TARN_MAX_DEVICES];

/* The host device has priorities 0 to -3, HIP has 1 to -1. */
static hip_result create(int device, unsigned flags, int priority, hip_stream *stream)
{
    driver_stream queue;
    if (flags > HIP_STREAM_NOT_BLOCKING)
        return HIP_INVALID_VALUE;
    struct ihipStream_t *result = object_alloc(&streams);
    if (!result)
        return HIP_OUT_OF_MEMORY;
    priority = priority > 1 ? 1 : priority < -1 ? -1 : priority;
    hip_result code =
        sim_code(host_stream_create(device, priority - 1, flags == HIP_STREAM_BLOCKING, &queue),
                 HIP_CAPTURE_UNSUPPORTED);
    if (code) {
        object_free(&streams, result);
        return code;
    }
    *result = (struct ihipStream_t){
        .live = true, .device = device, .priority = priority, .flags = flags, .host = queue};
    *stream = result;
    return HIP_OK;
}

hip_result sim_stream(hip_stream stream, int *device, driver_stream *found)
{
    *found = NULL;
    *device = sim_device();
    if (!stream || stream == HIP_LEGACY_STREAM)
        return HIP_OK;
    if (stream == PER_THREAD) {
        hip_result code =
            own[*device] ? HIP_OK : create(*device, HIP_STREAM_BLOCKING, 0, &own[*device]);
        if (code)
            return code;
        stream = own[*device];
    }
    if (!stream->live)
        return HIP_CONTEXT_IS_DESTROYED;
    *device = stream->device;
    *found = stream->host;
    return HIP_OK;
}

tarn_status sim_native_stream(void *native, int *device, driver_stream *stream)
{
    return sim_stream(native, device, stream) ? TARN_ERROR_INVALID_STREAM : TARN_OK;
}

/* Begins a call about a stream. */
static hip_result enter(const char *call, hip_stream stream, int *device, driver_stream *found)
{
    hip_result code = sim_enter(call);
    return code ? code : sim_stream(stream, device, found);
}

hip_result hipStreamCreateWithPriority(hip_stream *stream, unsigned flags, int priority)
{
    hip_result code = sim_enter("hipStreamCreate");
    if (!code)
        code = stream ? create(sim_device(), flags, priority, stream) : HIP_INVALID_VALUE;
    return sim_leave(code);
}

hip_result hipStreamCreateWithFlags(hip_stream *stream, unsigned flags)
{
    return hipStreamCreateWithPriority(stream, flags, 0);
}

hip_result hipStreamCreate(hip_stream *stream)
{
    return hipStreamCreateWithPriority(stream, HIP_STREAM_BLOCKING, 0);
}

hip_result hipStreamDestroy(hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && (!queue || stream == PER_THREAD))
        code = HIP_INVALID_HANDLE;
    if (!code)
        code = sim_code(host_stream_destroy(device, queue), HIP_CAPTURE_UNSUPPORTED);
    if (!code) {
        stream->live = false;
        object_free(&streams, stream);
    }
    return sim_leave(code);
}

hip_result hipStreamQuery(hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code)
        code = sim_code(host_stream_query(device, queue), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

hip_result hipStreamSynchronize(hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code)
        code = sim_code(host_stream_synchronize(device, queue), HIP_CAPTURE_UNSUPPORTED);
    return sim_leave(code);
}

hip_result hipStreamGetFlags(hip_stream stream, unsigned *flags)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code)
        *flags = queue && stream != PER_THREAD ? stream->flags : HIP_STREAM_BLOCKING;
    return sim_leave(code);
}

hip_result hipStreamGetPriority(hip_stream stream, int *priority)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code)
        *priority = queue && stream != PER_THREAD ? stream->priority : 0;
    return sim_leave(code);
}

#if SIM_HIP_VERSION >= 50600000
hip_result hipStreamGetDevice(hip_stream stream, int *device)
{
    int found;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &found, &queue);
    if (!code && !device)
        code = HIP_INVALID_VALUE;
    if (!code)
        *device = found;
    return sim_leave(code);
}
#endif

#if SIM_HIP_VERSION >= 70100000
hip_result hipStreamGetId(hip_stream stream, unsigned long long *id)
{
    int device;
    uint64_t number = 0;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code)
        code = id ? sim_code(host_stream_number(device, queue, &number), HIP_CAPTURE_UNSUPPORTED)
                  : HIP_INVALID_VALUE;
    if (!code)
        *id = number;
    return sim_leave(code);
}
#endif

/* ---- Host functions ---- */

#if SIM_HIP_VERSION >= 50300000
hip_result hipLaunchHostFunc(hip_stream stream, hip_host_function function, void *argument)
{
    int device;
    driver_stream queue;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code)
        code = function
                   ? sim_code(host_call(device, queue, function, argument), HIP_CAPTURE_UNSUPPORTED)
                   : HIP_INVALID_VALUE;
    return sim_leave(code);
}
#endif

struct callback {
    hip_stream stream;
    hip_stream_callback function;
    void *argument;
};

static struct object_pool callbacks = OBJECT_POOL(struct callback);

static void run_callback(void *argument)
{
    struct callback callback = *(struct callback *)argument;
    object_free(&callbacks, argument);
    callback.function(callback.stream, HIP_OK, callback.argument);
}

/* Refused for a capturing stream. */
hip_result hipStreamAddCallback(hip_stream stream, hip_stream_callback function, void *argument,
                                unsigned flags)
{
    int device;
    driver_stream queue;
    struct driver_capture capture;
    hip_result code = enter(__func__, stream, &device, &queue);
    if (!code && (!function || flags))
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(host_capture_status(device, queue, &capture), HIP_CAPTURE_IMPLICIT);
    if (!code && capture.state != DRIVER_CAPTURE_NONE)
        code = HIP_CAPTURE_UNSUPPORTED;
    if (code)
        return sim_leave(code);
    struct callback *callback = object_alloc(&callbacks);
    if (!callback)
        return sim_leave(HIP_OUT_OF_MEMORY);
    *callback = (struct callback){.stream = stream, .function = function, .argument = argument};
    code = sim_code(host_call(device, queue, run_callback, callback), HIP_CAPTURE_UNSUPPORTED);
    if (code)
        object_free(&callbacks, callback);
    return sim_leave(code);
}

/* ---- Events ---- */

/* Begins a call about an event. */
static hip_result enter_event(const char *call, hip_event event)
{
    hip_result code = sim_enter(call);
    if (code)
        return code;
    return event && event->live ? HIP_OK : HIP_INVALID_HANDLE;
}

hip_result hipEventCreateWithFlags(hip_event *event, unsigned flags)
{
    driver_event made;
    hip_result code = sim_enter("hipEventCreate");
    if (!code && (!event || flags > 7))
        code = HIP_INVALID_VALUE;
    if (code)
        return sim_leave(code);
    struct ihipEvent_t *result = object_alloc(&events);
    if (!result)
        return sim_leave(HIP_OUT_OF_MEMORY);
    code = sim_code(host_event_create(sim_device(), &made), HIP_CAPTURE_UNSUPPORTED);
    if (code) {
        object_free(&events, result);
        return sim_leave(code);
    }
    *result = (struct ihipEvent_t){.live = true, .device = sim_device(), .host = made};
    *event = result;
    return sim_leave(HIP_OK);
}

hip_result hipEventCreate(hip_event *event)
{
    return hipEventCreateWithFlags(event, 0);
}

hip_result hipEventDestroy(hip_event event)
{
    hip_result code = enter_event(__func__, event);
    if (!code)
        code = sim_code(host_event_destroy(event->device, event->host), HIP_CAPTURE_UNSUPPORTED);
    if (!code) {
        event->live = false;
        object_free(&events, event);
    }
    return sim_leave(code);
}

hip_result hipEventRecord(hip_event event, hip_stream stream)
{
    int device;
    driver_stream queue;
    hip_result code = enter_event(__func__, event);
    if (!code)
        code = sim_stream(stream, &device, &queue);
    if (!code && device != event->device)
        code = HIP_INVALID_HANDLE;
    if (!code)
        code = sim_code(host_event_record(device, event->host, queue), HIP_CAPTURE_IMPLICIT);
    return sim_leave(code);
}

hip_result hipEventQuery(hip_event event)
{
    hip_result code = enter_event(__func__, event);
    if (!code)
        code = sim_code(host_event_query(event->device, event->host), HIP_CAPTURED_EVENT);
    return sim_leave(code);
}

hip_result hipEventSynchronize(hip_event event)
{
    hip_result code = enter_event(__func__, event);
    if (!code)
        code = sim_code(host_event_synchronize(event->device, event->host), HIP_CAPTURED_EVENT);
    return sim_leave(code);
}

hip_result hipStreamWaitEvent(hip_stream stream, hip_event event, unsigned flags)
{
    int device;
    driver_stream queue;
    hip_result code = enter_event(__func__, event);
    if (!code)
        code = sim_stream(stream, &device, &queue);
    if (!code && flags)
        code = HIP_INVALID_VALUE;
    if (!code)
        code = sim_code(host_stream_wait_event(device, queue, event->host), HIP_CAPTURE_ISOLATION);
    return sim_leave(code);
}
