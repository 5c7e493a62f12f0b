/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Events. A record queues nothing: the event keeps its stream and the stream's last position.
 * Recorded on a stream that captures, it keeps the stream's last nodes instead. All state is under
 * the streams lock. */
#include "base/status.h"
#include "driver/host/host_stream.h"

static struct host_event *events; /* streams lock */
static struct object_pool event_objects = OBJECT_POOL(struct host_event);

static tarn_status host_event_find_locked(const char *call, driver_event handle,
                                          struct host_event **event)
{
    *event = handle;
    if (handle && (*event)->live)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT, "host %s: %p is not an event", call, handle);
}

tarn_status host_event_create(int number, driver_event *handle)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_event_create, number, &device);
    if (status)
        return status;
    host_streams_lock();
    struct host_event *event = object_alloc(&event_objects);
    if (event) {
        event->live = true;
        event->device = device;
        event->next = events;
        if (events)
            events->previous = event;
        events = event;
        device->event_count++;
    }
    host_streams_unlock();
    if (!event)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host event_create: no memory for the event");
    host_charge(device, DRIVER_CALL_event_create, 0, 0);
    *handle = event;
    return TARN_OK;
}

static void event_end(struct host_event *event)
{
    event->live = false;
    host_nodes_free(&event->nodes);
    event->device->event_count--;
    if (event->previous)
        event->previous->next = event->next;
    else
        events = event->next;
    if (event->next)
        event->next->previous = event->previous;
    object_free(&event_objects, event);
}

/* A stream that waits for the event has its stream and position, so the event can go. */
tarn_status host_event_destroy(int number, driver_event handle)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_event_destroy, number, &device);
    if (status)
        return status;
    struct host_event *event;
    host_streams_lock();
    status = host_event_find_locked("event_destroy", handle, &event);
    if (!status)
        event_end(event);
    host_streams_unlock();
    if (!status)
        host_charge(device, DRIVER_CALL_event_destroy, 0, 0);
    return status;
}

static tarn_status record_locked(struct host_device *device, driver_event event_handle,
                                 driver_stream handle)
{
    struct host_event *event;
    struct host_stream *stream;
    tarn_status status = host_event_find_locked("event_record", event_handle, &event);
    if (!status)
        status = host_stream_find_locked("event_record", device, handle, &stream);
    if (status)
        return status;
    if (event->device != device)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "host event_record: an event of device %d on a stream of device %d",
                      event->device->number, device->number);
    struct host_capture *capture = NULL;
    status = host_capture_enter_locked("event_record", stream, &capture);
    if (status)
        return status;
    if (capture) {
        if (!host_nodes_copy(&event->nodes, &stream->nodes))
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                          "host event_record: no memory for the nodes it stands for");
        event->captured = capture->id;
        event->stream = NULL;
        return TARN_OK;
    }
    status = host_stream_join_locked("event_record", stream);
    if (status)
        return status;
    event->captured = 0;
    event->stream = stream;
    event->position = stream->last;
    return TARN_OK;
}

tarn_status host_event_record(int number, driver_event event, driver_stream stream)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_event_record, number, &device);
    if (status)
        return status;
    host_streams_lock();
    status = record_locked(device, event, stream);
    host_streams_leave();
    if (!status)
        host_charge(device, DRIVER_CALL_event_record, 0, 0);
    return status;
}

tarn_status host_event_query(int number, driver_event handle)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_event_query, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_event_query, 0, 0);
    struct host_event *event;
    host_streams_lock();
    status = host_event_find_locked("event_query", handle, &event);
    if (!status)
        status = host_capture_bar_event_locked("event_query", event);
    if (!status && event->stream && event->stream->done < event->position)
        status = TARN_ERROR_NOT_READY;
    host_streams_unlock();
    return status;
}

tarn_status host_event_synchronize(int number, driver_event handle)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_event_synchronize, number, &device);
    if (status)
        return status;
    struct host_event *event;
    uint64_t waited = 0;
    host_streams_lock();
    status = host_event_find_locked("event_synchronize", handle, &event);
    if (!status)
        status = host_capture_bar_event_locked("event_synchronize", event);
    if (!status && event->stream)
        waited = host_stream_wait_relocking(event->stream, event->position);
    host_streams_leave();
    host_charge_wait(device, waited);
    if (!status)
        host_charge(device, DRIVER_CALL_event_synchronize, 0, 0);
    return status;
}

/* The index of the first event that has ended; `count`: none has. Fails if one cannot be waited
 * for. */
static tarn_status first_ended_locked(const driver_event *handles, size_t count, size_t *ended)
{
    for (*ended = 0; *ended < count; ++*ended) {
        struct host_event *event;
        tarn_status status = host_event_find_locked("event_wait_any", handles[*ended], &event);
        if (!status)
            status = host_capture_bar_event_locked("event_wait_any", event);
        if (status || !event->stream || event->stream->done >= event->position)
            return status;
    }
    return TARN_OK;
}

tarn_status host_event_wait_any(const driver_event *handles, size_t count, size_t *ended)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_event_synchronize, 0, &device);
    if (status)
        return status;
    uint64_t waited = 0;
    host_streams_lock();
    while (!(status = first_ended_locked(handles, count, ended)) && *ended == count) {
        /* Of the streams that hold up an event, the one whose timed work ends first. */
        struct host_stream *first = NULL;
        for (size_t i = 0; i < count; i++) {
            struct host_stream *holds_up =
                host_stream_holding_up_locked(((struct host_event *)handles[i])->stream);
            if (!first || host_stream_ends_before_locked(holds_up, first))
                first = holds_up;
        }
        waited += host_stream_wait_step_relocking(first);
    }
    host_streams_leave();
    host_charge_wait(device, waited);
    if (!status)
        host_charge(device, DRIVER_CALL_event_synchronize, 0, 0);
    return status;
}

static tarn_status wait_event_locked(struct host_device *device, driver_stream handle,
                                     driver_event event_handle)
{
    struct host_event *event;
    struct host_stream *stream;
    tarn_status status = host_event_find_locked("stream_wait_event", event_handle, &event);
    if (!status)
        status = host_stream_find_locked("stream_wait_event", device, handle, &stream);
    struct host_capture *capture = NULL;
    if (!status)
        status = host_capture_enter_locked("stream_wait_event", stream, &capture);
    if (!status && (capture || event->captured))
        return host_capture_wait_locked(stream, capture, event);
    if (!status)
        status = host_stream_join_locked("stream_wait_event", stream);
    if (!status && event->stream)
        status =
            host_enqueue_wait_locked("stream_wait_event", stream, event->stream, event->position);
    return status;
}

tarn_status host_stream_wait_event(int number, driver_stream stream, driver_event event)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_stream_wait_event, number, &device);
    if (status)
        return status;
    host_streams_lock();
    status = wait_event_locked(device, stream, event);
    host_streams_leave();
    if (!status)
        host_charge(device, DRIVER_CALL_stream_wait_event, 0, 0);
    return status;
}

void host_events_finish_locked(void)
{
    while (events)
        event_end(events);
}
