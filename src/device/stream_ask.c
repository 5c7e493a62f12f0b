/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Public calls that ask about a stream: its native value, device and priority, and its work. Owns nothing. */
#include "base/status.h"
#include "device/capture.h"
#include "device/stream.h"

/* The start of the calls below: finds the slot of a value. */
static tarn_status find_for(tarn_stream value, const void *result, struct stream **stream)
{
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the place for the result is NULL");
    tarn_status status = device_layer_ready();
    return status ? status : stream_find(value, thread_device(), stream);
}

tarn_status tarn_stream_native_get(tarn_stream stream, void **native)
{
    struct stream *found = NULL;
    tarn_status status = find_for(stream, native, &found);
    if (!status)
        status = stream_refuse_foreign(found, "the native value");
    if (!status)
        *native = found->native;
    return status;
}

tarn_status tarn_stream_device_get(tarn_stream stream, int *device)
{
    struct stream *found = NULL;
    tarn_status status = find_for(stream, device, &found);
    if (!status)
        *device = found->device;
    return status;
}

tarn_status tarn_stream_priority_get(tarn_stream stream, int *priority)
{
    struct stream *found = NULL;
    tarn_status status = find_for(stream, priority, &found);
    if (!status)
        *priority = found->priority;
    return status;
}

/* The stream of a value. It must not capture, because asking about its work would end the capture. */
static tarn_status find_to_ask(tarn_stream value, struct stream **stream, const char *what)
{
    tarn_status status = find_for(value, stream, stream);
    if (!status)
        status = stream_refuse_foreign(*stream, what);
    if (status)
        return status;
    return stream_refuse_capture(*stream, what);
}

tarn_status tarn_stream_query(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = find_to_ask(stream, &found, "a query");
    if (status)
        return status;
    return device_note(device_at(found->device), driver->stream_query(found->device, found->native));
}

tarn_status tarn_stream_synchronize(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = find_to_ask(stream, &found, "a wait for a stream");
    if (status)
        return status;
    return device_note(device_at(found->device), driver->stream_synchronize(found->device, found->native));
}
