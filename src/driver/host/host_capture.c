/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures of the host device, by CUDA's rules. Numbers in texts are CUDA's codes for the same
 * errors.
 *
 * Work queued on a stream that captures becomes a node of a graph and does not run. An event
 * recorded there keeps the stream's last nodes; another stream that waits for the event joins the
 * capture. A capture ends on the stream where it began (903), by the thread that began it unless it
 * is relaxed (908), with the work of all its streams joined there (904).
 *
 * A forbidden call fails with TARN_ERROR_CAPTURE and invalidates the capture, which then can only
 * be ended and gives no graph. Forbidden are: a query of, or wait for, a stream or an event of the
 * capture (900, 907), or its device (900); a wait for work outside it (905) or of another capture
 * (902); use of the legacy stream while a blocking stream of the device captures (906); its end on
 * another stream (903), or unjoined (904). An event that was last recorded in a capture which is
 * over or invalidated can only be recorded again: all else fails (1), and a capture that waits for
 * it is invalidated, as by CUDA's driver 580.159.04 on an H200. Asking whether a stream captures is
 * harmless. Destroying the stream on which a capture began also ends it, without a graph, as CUDA
 * does (the same driver, in each mode), and hipStreamDestroy() of ROCm/clr
 * (hipamd/src/hip_stream.cpp, rocm-5.7.1 to rocm-6.2.2). A stream that has joined may be
 * destroyed; its work must be joined all the same. After 908 the capture goes on here, as in
 * ROCm/clr (hip_graph.cpp, hipStreamEndCapture_common()); CUDA's driver ends it.
 *
 * Potentially unsafe calls are also refused, and invalidate captures: in a thread of global mode
 * while any global capture is open; in a thread of global or thread-local mode while it has a
 * capture of its own that is not relaxed. They are alloc, free, peer_enable; create, release, map,
 * unmap, set_access, export, import, reserve, unreserve; and any query of, or wait for, a stream,
 * an event or a device. For virtual memory this is stricter than CUDA is known to be. The entries
 * of the driver's table make them in relaxed mode (host_table.c). So only code that calls the host
 * device as a vendor's library is refused.
 *
 * An invalidated capture refuses nothing. All state is under the streams lock, except the calling
 * thread's own. */
#include "base/status.h"
#include "driver/host/host_stream.h"

#include <inttypes.h>

static struct host_capture *captures; /* open ones */
static uint64_t ids;
static struct object_pool capture_objects = OBJECT_POOL(struct host_capture);

static _Thread_local enum driver_capture_mode thread_mode; /* global at first */
static _Thread_local unsigned thread_number;
static atomic_uint thread_numbers;

static unsigned this_thread(void)
{
    if (!thread_number)
        thread_number = atomic_fetch_add(&thread_numbers, 1) + 1;
    return thread_number;
}

/* ---- What a capture forbids ---- */

static void invalidate(struct host_capture *capture)
{
    if (capture->invalid)
        return;
    capture->invalid = true;
    atomic_fetch_sub(&host.captures, 1);
}

static tarn_status refuse_invalid(const char *call, const struct host_capture *capture)
{
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: capture %" PRIu64 " was invalidated by an earlier call (901)", call,
                  capture->id);
}

/* The capture that the event was last recorded in; NULL: that is over, or invalidated. */
static struct host_capture *capture_of(const struct host_event *event)
{
    struct host_capture *capture = captures;
    while (capture && capture->id != event->captured)
        capture = capture->next;
    return capture && !capture->invalid ? capture : NULL;
}

static tarn_status refuse_event_of_the_past(const char *call, const struct host_event *event)
{
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: the event was last recorded in capture %" PRIu64
                  ", which is over or invalidated (1)",
                  call, event->captured);
}

/* Invalidates the captures of the device's blocking streams, or of all its streams. Returns their
 * number. */
static unsigned invalidate_on(const struct host_device *device, bool blocking)
{
    unsigned count = 0;
    for (struct host_capture *capture = captures; capture; capture = capture->next)
        for (const struct host_stream *stream = capture->streams; stream && !capture->invalid;
             stream = stream->next_captured)
            if (stream->device == device && (stream->blocking || !blocking)) {
                invalidate(capture);
                count++;
            }
    return count;
}

static bool captures_blocking(const struct host_device *device)
{
    for (const struct host_capture *capture = captures; capture; capture = capture->next)
        for (const struct host_stream *stream = capture->streams; stream && !capture->invalid;
             stream = stream->next_captured)
            if (stream->device == device && stream->blocking)
                return true;
    return false;
}

static tarn_status bar_legacy(const char *call, const struct host_device *device)
{
    if (!captures || !invalidate_on(device, true))
        return TARN_OK;
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: the legacy stream of device %d while a blocking stream captures (906); "
                  "that capture is "
                  "invalidated",
                  call, device->number);
}

tarn_status host_capture_enter_locked(const char *call, struct host_stream *stream,
                                      struct host_capture **capture)
{
    *capture = stream->capture;
    if (!stream->capture)
        return stream == &stream->device->legacy ? bar_legacy(call, stream->device) : TARN_OK;
    return stream->capture->invalid ? refuse_invalid(call, stream->capture) : TARN_OK;
}

tarn_status host_capture_refuse_locked(const char *call, const struct host_stream *stream)
{
    bool legacy = stream == &stream->device->legacy;
    if (!stream->capture && !(legacy && captures_blocking(stream->device)))
        return TARN_OK;
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: stream %p captures, so the memory would belong to the graph: allocate "
                  "from a pool of "
                  "tarn's during a capture",
                  call, legacy ? NULL : (const void *)stream);
}

tarn_status host_capture_bar_locked(const char *call, struct host_stream *stream)
{
    struct host_capture *capture;
    tarn_status status = host_capture_enter_locked(call, stream, &capture);
    if (status || !capture)
        return status;
    invalidate(capture);
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: stream %p captures (900); its capture is invalidated", call,
                  (void *)stream);
}

tarn_status host_capture_bar_event_locked(const char *call, const struct host_event *event)
{
    if (!event->captured)
        return TARN_OK;
    struct host_capture *capture = capture_of(event);
    if (!capture)
        return refuse_event_of_the_past(call, event);
    invalidate(capture);
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: the event was last recorded in capture %" PRIu64
                  " (907), which is invalidated",
                  call, event->captured);
}

tarn_status host_capture_bar_device_locked(const char *call, const struct host_device *device)
{
    if (!captures || !invalidate_on(device, false))
        return TARN_OK;
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: a stream of device %d captures (900); its capture is invalidated", call,
                  device->number);
}

/* Whether a capture makes unsafe calls of the calling thread, in `mode`, fail. */
static bool bars(const struct host_capture *capture, enum driver_capture_mode mode)
{
    if (capture->invalid || capture->mode == DRIVER_CAPTURE_RELAXED)
        return false;
    return capture->thread == this_thread() ||
           (mode == DRIVER_CAPTURE_GLOBAL && capture->mode == DRIVER_CAPTURE_GLOBAL);
}

tarn_status host_refuse_unsafe(enum driver_call call)
{
    if (thread_mode == DRIVER_CAPTURE_RELAXED)
        return TARN_OK;
    bool barred = false;
    host_streams_lock();
    for (struct host_capture *capture = captures; capture; capture = capture->next)
        if (bars(capture, thread_mode)) {
            barred = true;
            invalidate(capture);
        }
    host_streams_unlock();
    if (!barred)
        return TARN_OK;
    return failed(TARN_ERROR_CAPTURE,
                  "host %s: unsafe while a stream captures, in this thread's mode (900); that "
                  "capture is invalidated",
                  driver_call_name((int)call));
}

enum driver_capture_mode host_mode_exchange(enum driver_capture_mode mode)
{
    enum driver_capture_mode before = thread_mode;
    thread_mode = mode;
    return before;
}

tarn_status host_capture_mode(enum driver_capture_mode *mode)
{
    struct host_device *first;
    tarn_status status = host_enter(DRIVER_CALL_capture_mode, 0, &first);
    if (status)
        return status;
    if ((unsigned)*mode > DRIVER_CAPTURE_RELAXED)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host capture_mode: %d is not a mode",
                      (int)*mode);
    host_charge(first, DRIVER_CALL_capture_mode, 0, 0);
    *mode = host_mode_exchange(*mode);
    return TARN_OK;
}

/* ---- Taking part ---- */

/* Makes a stream take part in a capture. Its next node comes after `nodes`. */
static tarn_status take_part(const char *call, struct host_capture *capture,
                             struct host_stream *stream, const struct host_nodes *nodes)
{
    unsigned branch;
    if (!host_nodes_copy(&stream->nodes, nodes) ||
        !host_graph_branch_locked(capture->graph, stream, &branch)) {
        host_nodes_free(&stream->nodes);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "host %s: no memory for a stream of the capture", call);
    }
    stream->branch = branch;
    stream->capture = capture;
    stream->next_captured = capture->streams;
    capture->streams = stream;
    return TARN_OK;
}

tarn_status host_capture_wait_locked(struct host_stream *stream, struct host_capture *capture,
                                     const struct host_event *event)
{
    const char *call = "stream_wait_event";
    if (!event->captured) {
        if (!event->stream)
            return TARN_OK; /* never recorded */
        invalidate(capture);
        return failed(TARN_ERROR_CAPTURE,
                      "host %s: a capture cannot wait for work outside it (905); capture %" PRIu64
                      " is invalidated",
                      call, capture->id);
    }
    struct host_capture *other = capture_of(event);
    if (!other && capture)
        invalidate(capture);
    if (!other)
        return refuse_event_of_the_past(call, event);
    if (!capture && stream == &stream->device->legacy) {
        invalidate(other);
        return failed(TARN_ERROR_CAPTURE,
                      "host %s: the legacy stream cannot capture (906); capture %" PRIu64
                      " is invalidated",
                      call, other->id);
    }
    if (!capture)
        return take_part(call, other, stream, &event->nodes);
    if (capture != other) {
        invalidate(capture);
        invalidate(other);
        return failed(TARN_ERROR_CAPTURE,
                      "host %s: captures %" PRIu64 " and %" PRIu64
                      " cannot become one (902); both are invalidated",
                      call, capture->id, other->id);
    }
    return host_nodes_merge(&stream->nodes, event->nodes.list, event->nodes.count)
               ? TARN_OK
               : failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host %s: no memory for an edge", call);
}

/* ---- Begin and end ---- */

static tarn_status begin_locked(struct host_device *device, driver_stream handle,
                                enum driver_capture_mode mode)
{
    struct host_stream *stream;
    tarn_status status = host_stream_find_locked("capture_begin", device, handle, &stream);
    if (status)
        return status;
    if (!handle)
        return failed(TARN_ERROR_CAPTURE,
                      "host capture_begin: the legacy stream cannot capture (900)");
    if (stream->capture)
        return failed(TARN_ERROR_CAPTURE, "host capture_begin: stream %p captures already (401)",
                      handle);
    struct host_capture *capture = object_alloc(&capture_objects);
    struct host_graph *graph = capture ? host_graph_create_locked() : NULL;
    if (!graph) {
        object_free(&capture_objects, capture);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "host capture_begin: no memory for the capture");
    }
    *capture =
        (struct host_capture){.id = ids + 1, .mode = mode, .thread = this_thread(), .graph = graph};
    status = take_part("capture_begin", capture, stream, &(struct host_nodes){0});
    if (status) {
        host_graph_destroy_locked(graph);
        object_free(&capture_objects, capture);
        return status;
    }
    ids++;
    capture->next = captures;
    if (captures)
        captures->previous = capture;
    captures = capture;
    atomic_fetch_add(&host.captures, 1);
    return TARN_OK;
}

tarn_status host_capture_begin(int number, driver_stream stream, enum driver_capture_mode mode)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_capture_begin, number, &device);
    if (status)
        return status;
    if ((unsigned)mode > DRIVER_CAPTURE_RELAXED)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host capture_begin: %d is not a mode",
                      (int)mode);
    host_streams_lock();
    status = begin_locked(device, stream, mode);
    host_streams_unlock();
    if (!status)
        host_charge(device, DRIVER_CALL_capture_begin, 0, 0);
    return status;
}

/* Ends a capture: its streams run what is queued on them again. Returns its graph. */
static struct host_graph *capture_over(struct host_capture *capture)
{
    struct host_graph *graph = capture->graph;
    invalidate(capture);
    for (struct host_stream *stream = capture->streams, *next; stream; stream = next) {
        next = stream->next_captured;
        stream->next_captured = NULL;
        stream->capture = NULL;
        host_nodes_free(&stream->nodes);
        if (!stream->live)
            host_stream_end_locked(stream);
    }
    *(capture->previous ? &capture->previous->next : &captures) = capture->next;
    if (capture->next)
        capture->next->previous = capture->previous;
    object_free(&capture_objects, capture);
    return graph;
}

void host_capture_end_with_origin_locked(struct host_stream *stream)
{
    if (stream->capture && !stream->branch)
        host_graph_destroy_locked(capture_over(stream->capture));
}

/* Whether the work of every stream of the capture comes before the next work on its origin. */
static bool is_joined(const struct host_capture *capture, const struct host_stream *origin)
{
    for (const struct host_stream *stream = capture->streams; stream;
         stream = stream->next_captured)
        if (stream != origin && !host_graph_reaches_locked(&origin->nodes, &stream->nodes))
            return false;
    return true;
}

static tarn_status end_locked(struct host_device *device, driver_stream handle,
                              driver_graph *result)
{
    struct host_stream *stream;
    tarn_status status = host_stream_find_locked("capture_end", device, handle, &stream);
    if (status)
        return status;
    struct host_capture *capture = stream->capture;
    if (!capture)
        return failed(TARN_ERROR_CAPTURE, "host capture_end: stream %p does not capture (401)",
                      handle);
    if (stream->branch) {
        invalidate(capture);
        return failed(TARN_ERROR_CAPTURE,
                      "host capture_end: capture %" PRIu64
                      " began on another stream (903) and is invalidated",
                      capture->id);
    }
    if (capture->mode != DRIVER_CAPTURE_RELAXED && capture->thread != this_thread())
        return failed(TARN_ERROR_CAPTURE,
                      "host capture_end: capture %" PRIu64 " was begun by another thread (908)",
                      capture->id);
    if (capture->invalid)
        status = refuse_invalid("capture_end", capture);
    else if (!is_joined(capture, stream))
        status = failed(TARN_ERROR_CAPTURE,
                        "host capture_end: work of another stream of capture %" PRIu64
                        " was not joined (904)",
                        capture->id);
    struct host_graph *graph = capture_over(capture);
    if (status)
        host_graph_destroy_locked(graph);
    else
        *result = graph;
    return status;
}

tarn_status host_capture_end(int number, driver_stream stream, driver_graph *graph)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_capture_end, number, &device);
    if (status)
        return status;
    host_streams_lock();
    status = end_locked(device, stream, graph);
    host_streams_leave();
    if (!status)
        host_charge(device, DRIVER_CALL_capture_end, 0, 0);
    return status;
}

/* ---- Asking and changing ---- */

static tarn_status status_locked(struct host_device *device, driver_stream handle,
                                 struct driver_capture *result)
{
    struct host_stream *stream;
    tarn_status status = host_stream_find_locked("capture_status", device, handle, &stream);
    if (status)
        return status;
    const struct host_capture *capture = stream->capture;
    if (capture && !capture->invalid)
        *result = (struct driver_capture){.state = DRIVER_CAPTURE_ACTIVE,
                                          .id = capture->id,
                                          .nodes = stream->nodes.list,
                                          .node_count = stream->nodes.count,
                                          .graph = capture->graph};
    else if (capture || (!handle && captures_blocking(device)))
        *result = (struct driver_capture){.state = DRIVER_CAPTURE_INVALIDATED};
    else
        *result = (struct driver_capture){.state = DRIVER_CAPTURE_NONE};
    return TARN_OK;
}

tarn_status host_capture_status(int number, driver_stream stream, struct driver_capture *capture)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_capture_status, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_capture_status, 0, 0);
    host_streams_lock();
    status = status_locked(device, stream, capture);
    host_streams_unlock();
    return status;
}

static tarn_status depend_locked(struct host_device *device, driver_stream handle,
                                 const driver_node *nodes, size_t count)
{
    struct host_stream *stream;
    tarn_status status = host_stream_find_locked("capture_depend", device, handle, &stream);
    if (status)
        return status;
    struct host_capture *capture = stream->capture;
    if (!capture)
        return failed(TARN_ERROR_CAPTURE, "host capture_depend: stream %p does not capture (401)",
                      handle);
    if (capture->invalid)
        return refuse_invalid("capture_depend", capture);
    for (size_t i = 0; i < count; i++)
        if (!host_graph_has_locked(capture->graph, nodes[i]))
            return failed(TARN_ERROR_INVALID_ARGUMENT,
                          "host capture_depend: %p is not a node of capture %" PRIu64, nodes[i],
                          capture->id);
    struct host_nodes fresh = {0};
    if (!host_nodes_merge(&fresh, nodes, count) || !host_nodes_copy(&stream->nodes, &fresh))
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                        "host capture_depend: no memory for %zu nodes", count);
    host_nodes_free(&fresh);
    return status;
}

tarn_status host_capture_depend(int number, driver_stream stream, const driver_node *nodes,
                                size_t count)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_capture_depend, number, &device);
    if (status)
        return status;
    host_streams_lock();
    status = depend_locked(device, stream, nodes, count);
    host_streams_unlock();
    if (!status)
        host_charge(device, DRIVER_CALL_capture_depend, 0, 0);
    return status;
}

void host_captures_finish_locked(void)
{
    while (captures)
        host_graph_destroy_locked(capture_over(captures));
    ids = 0;
}
