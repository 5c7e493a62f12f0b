/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Public calls that ask about a stream: its native value, device and priority, and its work. Owns
 * nothing. */
#include "base/sized.h"
#include "base/status.h"
#include "device/capture.h"
#include "device/stream.h"

/* The start of the calls below: finds the slot of a value. */
static tarn_status find_for(tarn_stream value, const void *result, struct stream **stream)
{
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the place for the result is NULL");
    return stream_of_call(value, stream);
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

tarn_status tarn_stream_info_get(tarn_stream stream, tarn_stream_info *info)
{
    struct stream *found = NULL;
    tarn_status status = sized_check("tarn_stream_info", info, sizeof *info);
    if (!status)
        status = find_for(stream, info, &found);
    if (status)
        return status;
    tarn_stream_info now = {
        .size = sizeof now, .device = found->device, .priority = found->priority};
    sized_write(info, &now, sizeof now);
    return TARN_OK;
}

/* The stream of a value. It must not capture, because asking about its work would end the
 * capture. */
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
    return device_note(device_at(found->device),
                       driver->stream_query(found->device, found->native));
}

tarn_status tarn_stream_synchronize(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = find_to_ask(stream, &found, "a wait for a stream");
    if (status)
        return status;
    return device_note(device_at(found->device),
                       driver->stream_synchronize(found->device, found->native));
}
