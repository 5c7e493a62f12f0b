/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The table of stream slots: how a stream comes into a slot, is found by its value, and leaves. For
 * stream.c alone. */
#ifndef TARN_DEVICE_STREAM_SLOTS_H
#define TARN_DEVICE_STREAM_SLOTS_H

#include "device/stream.h"

/* A stream of the driver, with the values for its slot. */
struct native {
    driver_stream stream;
    uint64_t number; /* 0 if the driver has none, or was not asked */
    int priority;
    enum stream_origin origin;
    bool found;
};

/* Whether the driver has a name for it that means the same stream in every thread. */
static inline bool native_has_name(const struct native *native)
{
    return native->stream && native->stream != driver->per_thread;
}

/* Puts a native stream into a slot. TARN_ERROR_OUT_OF_HOST_MEMORY if there is none. */
tarn_status slot_enter(struct device *device, const struct native *native, struct stream **stream);
/* Ends the incarnation of a slot. It is free for another stream when `last_work`, which it takes
 * over, has ended. */
void slot_leave(struct stream *stream, struct mark *last_work);
/* The slot of a value that is not a constant. TARN_ERROR_INVALID_STREAM with a text that says
 * whether its stream was retired or returned. */
tarn_status slot_find(tarn_stream value, struct stream **stream);
/* The mark at the end of an incarnation that is over, retained for the caller. NULL if that work
 * has certainly finished. */
struct mark *slot_last_work(const struct stream *stream, unsigned incarnation);
/* The value that a stream had in an incarnation. */
tarn_stream stream_value_of(const struct stream *stream, unsigned incarnation);

#endif
