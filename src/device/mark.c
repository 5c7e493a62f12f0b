/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Marks and the public events made of them. A mark owns one driver event; the device keeps those that nobody holds, so
 * that a mark in steady state costs one driver call, the record. A mark is recorded once in its life between two stays there. */
#include "base/pages.h"
#include "base/status.h"
#include "device/stream.h"

struct mark {
    atomic_uint holders;
    atomic_bool done; /* the event was seen finished: never asked again */
    struct device *device;
    driver_event event;
    struct mark *next; /* device lock: in spare_marks */
};

struct tarn_event {
    mutex lock;
    struct device *device;
    struct mark *mark; /* lock: NULL until recorded */
};

static struct object_pool marks = OBJECT_POOL(struct mark);
static struct object_pool events = OBJECT_POOL(struct tarn_event);

static struct mark *mark_take_spare(struct device *device)
{
    mutex_lock(&device->lock);
    struct mark *mark = device->spare_marks;
    if (mark)
        device->spare_marks = mark->next;
    mutex_unlock(&device->lock);
    return mark;
}

static void mark_put_spare(struct mark *mark)
{
    struct device *device = mark->device;
    mutex_lock(&device->lock);
    mark->next = device->spare_marks;
    device->spare_marks = mark;
    mutex_unlock(&device->lock);
}

static tarn_status mark_create(struct device *device, struct mark **result)
{
    struct mark *mark = mark_take_spare(device);
    if (!mark) {
        mark = object_alloc(&marks);
        if (!mark)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an event");
        mark->device = device;
        tarn_status status = device_note(device, driver->event_create(device->number, &mark->event));
        if (status) {
            object_free(&marks, mark);
            return status;
        }
    }
    atomic_store_explicit(&mark->holders, 1, memory_order_relaxed);
    atomic_store_explicit(&mark->done, false, memory_order_relaxed);
    *result = mark;
    return TARN_OK;
}

tarn_status mark_record(struct stream *stream, struct mark **result)
{
    struct device *device = device_at(stream->device);
    struct mark *mark = NULL;
    tarn_status status = mark_create(device, &mark);
    if (status)
        return status;
    status = device_note(device, driver->event_record(device->number, mark->event, stream->native));
    if (status) {
        mark_release(mark);
        return status;
    }
    *result = mark;
    return TARN_OK;
}

tarn_status mark_query(struct mark *mark)
{
    if (atomic_load_explicit(&mark->done, memory_order_acquire))
        return TARN_OK;
    tarn_status status = device_note(mark->device, driver->event_query(mark->device->number, mark->event));
    if (!status)
        atomic_store_explicit(&mark->done, true, memory_order_release);
    return status;
}

tarn_status mark_wait(struct mark *mark)
{
    if (atomic_load_explicit(&mark->done, memory_order_acquire))
        return TARN_OK;
    tarn_status status = device_note(mark->device, driver->event_synchronize(mark->device->number, mark->event));
    if (!status)
        atomic_store_explicit(&mark->done, true, memory_order_release);
    return status;
}

tarn_status stream_wait_mark(struct stream *stream, struct mark *mark)
{
    if (atomic_load_explicit(&mark->done, memory_order_acquire))
        return TARN_OK;
    struct device *device = device_at(stream->device);
    return device_note(device, driver->stream_wait_event(device->number, stream->native, mark->event));
}

struct mark *mark_keep(struct mark *mark)
{
    if (mark)
        atomic_fetch_add_explicit(&mark->holders, 1, memory_order_relaxed);
    return mark;
}

void mark_release(struct mark *mark)
{
    if (mark && atomic_fetch_sub_explicit(&mark->holders, 1, memory_order_acq_rel) == 1)
        mark_put_spare(mark);
}

void marks_destroy(struct device *device)
{
    struct mark *mark;
    while ((mark = mark_take_spare(device))) {
        driver->event_destroy(device->number, mark->event);
        object_free(&marks, mark);
    }
}

struct mark *event_mark(tarn_event *event)
{
    mutex_lock(&event->lock);
    struct mark *mark = mark_keep(event->mark);
    mutex_unlock(&event->lock);
    return mark;
}

tarn_status tarn_event_create(int device, tarn_event **event)
{
    struct device *found = NULL;
    if (!event)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "event is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = device_find(device, &found)))
        return status;
    tarn_event *created = object_alloc(&events);
    if (!created)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an event");
    mutex_init(&created->lock);
    created->device = found;
    *event = created;
    return TARN_OK;
}

tarn_status tarn_event_destroy(tarn_event *event)
{
    if (!event)
        return TARN_OK;
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    mark_release(event->mark);
    mutex_finish(&event->lock);
    object_free(&events, event);
    return TARN_OK;
}

tarn_status tarn_event_record(tarn_event *event, tarn_stream stream)
{
    struct stream *found = NULL;
    struct mark *mark = NULL;
    if (!event)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "event is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = stream_find(stream, event->device->number, &found)))
        return status;
    if (found->device != event->device->number)
        return failed(TARN_ERROR_INVALID_STREAM, "the event is of device %d, the stream of device %d",
                      event->device->number, found->device);
    status = mark_record(found, &mark);
    if (status)
        return status;
    mutex_lock(&event->lock);
    struct mark *before = event->mark;
    event->mark = mark;
    mutex_unlock(&event->lock);
    mark_release(before);
    return TARN_OK;
}

/* Runs one of the calls on marks on what the event has recorded; nothing recorded is finished. */
static tarn_status with_mark(tarn_event *event, tarn_status (*call)(struct mark *mark))
{
    if (!event)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "event is NULL");
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    struct mark *mark = event_mark(event);
    if (mark)
        status = call(mark);
    mark_release(mark);
    return status;
}

tarn_status tarn_event_query(tarn_event *event)
{
    return with_mark(event, mark_query);
}

tarn_status tarn_event_synchronize(tarn_event *event)
{
    return with_mark(event, mark_wait);
}

tarn_status tarn_stream_wait(tarn_stream stream, tarn_event *event)
{
    struct stream *found = NULL;
    if (!event)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "event is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)))
        return status;
    struct mark *mark = event_mark(event);
    if (mark)
        status = stream_wait_mark(found, mark);
    mark_release(mark);
    return status;
}
