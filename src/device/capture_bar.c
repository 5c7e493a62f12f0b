/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Refuses what must not run beside a capture, and bars captures from beginning meanwhile. Owns the
 * count of bars of each device.
 *
 * Two sources tell of captures. capture.c counts the known ones. A stream *shows* a capture that
 * tarn does not know: the driver is asked about the stream. A bar stops known captures only. It is
 * raised under the device's record lock, under which each known capture begins, so no capture can
 * begin between the look at the count and the bar. */
#include "base/status.h"
#include "device/capture.h"

static atomic_uint barred[TARN_MAX_DEVICES]; /* while it is not 0, no known capture may begin */

bool captures_are_barred(int device)
{
    return atomic_load(&barred[device]);
}

static tarn_status refuse_all(const char *what)
{
    unsigned open = captures_open_anywhere();
    return open ? failed(TARN_ERROR_CAPTURE, "%s: %u captures are open; first end them", what, open)
                : TARN_OK;
}

tarn_status captures_refuse_all(const char *what)
{
    (void)captures_going_on_anywhere();
    return refuse_all(what);
}

/* Refuses if a known capture counts for the device. Asks the driver nothing. */
static tarn_status refuse(const struct device *device, const char *what)
{
    if (driver->wait_ends_all)
        return refuse_all(what);
    unsigned open = captures_open(device);
    return open
               ? failed(TARN_ERROR_CAPTURE, "%s: %u captures are open on device %d; first end them",
                        what, open, device->number)
               : TARN_OK;
}

tarn_status captures_refuse(const struct device *device, const char *what)
{
    (void)captures_going_on(device);
    return refuse(device, what);
}

/* A device without a context has nothing that could capture, and gets no context by a question. */
static bool has_context(struct device *device)
{
    bool active = true;
    struct error_before before;
    error_attempt_begin(&before);
    if (device_note(device, driver->is_active(device->number, &active)))
        active = true;
    error_attempt_end(&before, TARN_OK);
    return active;
}

/* Whether the driver can be asked if a stream captures. Under the stream's lock. */
static bool can_be_asked(const struct stream *stream)
{
    struct device *device = device_at(stream->device);
    return !atomic_load(&device->lost) && (stream != device->legacy || has_context(device));
}

/* The stream's lock is held meanwhile, because another thread may retire the stream and then
 * destroy it. Two streams count as showing no capture: one that was destroyed without a retirement,
 * and one of a lost device, so that the walk goes on to the streams of other devices. */
tarn_status stream_refuse_shown(struct stream *stream, unsigned incarnation, const char *what)
{
    tarn_status status = TARN_OK;
    struct error_before before;
    error_attempt_begin(&before);
    mutex_lock(&stream->lock);
    if (atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == incarnation &&
        can_be_asked(stream))
        status = stream_refuse_capture(stream, what);
    mutex_unlock(&stream->lock);
    if (status == TARN_ERROR_INVALID_STREAM || status == TARN_ERROR_INVALID_ARGUMENT ||
        status == TARN_ERROR_DEVICE_LOST)
        status = TARN_OK;
    error_attempt_end(&before, status);
    return status;
}

tarn_status captures_refuse_shown(const struct device *device, const char *what)
{
    unsigned slot = 0, incarnation = 0;
    struct stream *stream;
    tarn_status status = TARN_OK;
    while (!status &&
           (stream = stream_next(driver->wait_ends_all ? NULL : device, &slot, &incarnation)))
        status = stream_refuse_shown(stream, incarnation, what);
    return status;
}

/* Refuses if a legacy stream shows a capture. Legacy streams are never retired. */
static tarn_status refuse_shown_by_legacy(const struct device *device, const char *what)
{
    tarn_status status = TARN_OK;
    for (int i = 0; i < device_count() && !status; i++) {
        struct stream *legacy = device_at(i)->legacy;
        if (legacy && (driver->wait_ends_all || i == device->number))
            status = stream_refuse_shown(legacy, 0, what);
    }
    return status;
}

/* Bars a device, unless a known capture counts for it now. Asks the driver nothing. */
static tarn_status bar_one(struct device *device, const char *what)
{
    mutex_lock(&device->record_lock);
    tarn_status status = refuse(device, what);
    if (!status)
        atomic_fetch_add(&barred[device->number], 1);
    mutex_unlock(&device->record_lock);
    return status;
}

static void unbar_first(int count)
{
    while (count-- > 0)
        atomic_fetch_sub(&barred[count], 1);
}

/* Bars all devices, or on failure none. Looks at known captures alone. */
static tarn_status bar_each(const char *what)
{
    int count = 0;
    tarn_status status = captures_refuse_all(what);
    while (!status && count < device_count()) {
        status = bar_one(device_at(count), what);
        if (!status)
            count++;
    }
    if (status)
        unbar_first(count);
    return status;
}

tarn_status captures_bar_all(const char *what)
{
    tarn_status status = bar_each(what);
    if (!status) {
        status = captures_refuse_shown(NULL, what);
        if (status)
            captures_unbar_all();
    }
    return status;
}

void captures_unbar_all(void)
{
    unbar_first(device_count());
}

/* Bars one device. Looks at known captures alone. */
static tarn_status bar_device(struct device *device, const char *what)
{
    tarn_status status = captures_refuse(device, what);
    return status ? status : bar_one(device, what);
}

tarn_status captures_bar(struct device *device, const char *what)
{
    tarn_status status = driver->wait_ends_all ? bar_each(what) : bar_device(device, what);
    if (!status) {
        status = refuse_shown_by_legacy(device, what);
        if (status)
            captures_unbar(device);
    }
    return status;
}

void captures_unbar(const struct device *device)
{
    if (driver->wait_ends_all)
        captures_unbar_all();
    else
        atomic_fetch_sub(&barred[device->number], 1);
}
