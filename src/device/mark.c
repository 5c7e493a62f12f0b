/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Marks, and the public events that use them. A mark owns one driver event. The device keeps marks
 * without references for reuse, so that in steady state a mark costs two driver calls: the question
 * whether the stream captures, and the record. Between two reuses, a mark is recorded once.
 *
 * tarn's own marks are never recorded on a stream that captures. A mark of a caller's event may be;
 * then it is captured, and only serves to join streams to the capture. The question and the record
 * are one step under the device's record lock. The begin of a known capture, and tarn calls by
 * which a stream joins one, take this lock too.
 *
 * A found stream certainly exists only during a call that passes it; at any other time it may be
 * destroyed, and its pointer reused. So tarn's own marks of it are owed: they are numbered like
 * others, but have no event. Each ends with a mark that is recorded on the stream later (its
 * `proof`), or with a later wait for the whole device (`waited`). */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "device/capture.h"
#include "device/stream.h"
#include "device/tracing.h"

/* The time to wait for any of many marks, before the first is waited for alone. */
#define WAIT_ANY_NS UINT64_C(10000000000)

struct mark {
    atomic_uint holders;
    atomic_bool done; /* the event was seen finished: never asked again */
    struct device *device;
    driver_event event;
    atomic_bool owed;      /* record lock to change: it has no event */
    struct mark *proof;    /* the lock of `stream`: of an owed mark; NULL until there is one */
    uint64_t captured;     /* the capture that it was recorded in, or 0; as it was recorded */
    struct stream *stream; /* the stream that it was recorded on, in `incarnation` */
    unsigned incarnation;
    uint64_t number;   /* of the device's records */
    struct mark *next; /* device lock: in spare_marks */
};

struct tarn_event {
    mutex lock;
    struct device *device;
    struct mark *mark; /* lock: NULL until recorded */
};

static _Thread_local bool records = true; /* this thread records marks */

static struct object_pool marks = OBJECT_POOL(struct mark);
static struct object_pool events = OBJECT_POOL_NAMED(struct tarn_event);

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
    mark_release(mark->proof);
    mark->proof = NULL;
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
        tarn_status status =
            device_note(device, driver->event_create(device->number, &mark->event));
        if (status) {
            object_free(&marks, mark);
            return status;
        }
    }
    atomic_store_explicit(&mark->holders, 1, memory_order_relaxed);
    atomic_store_explicit(&mark->done, false, memory_order_relaxed);
    atomic_store_explicit(&mark->owed, false, memory_order_relaxed);
    *result = mark;
    return TARN_OK;
}

/* Whether an event can be recorded on the stream, under the record lock; `captured` is set to the
 * capture that the event then belongs to, or 0. TARN_ERROR_CAPTURE, without a text, if the stream
 * captures and that is not allowed. */
static tarn_status check_record_locked(struct stream *stream, bool may_be_captured,
                                       uint64_t *captured)
{
    struct driver_capture capture = {.state = DRIVER_CAPTURE_NONE};
    bool known = (stream_is_known(stream) || foreign_is_barred(stream)) && !may_be_captured;
    tarn_status status = known ? TARN_ERROR_CAPTURE : stream_ask_capture(stream, &capture);
    if (status)
        return status;
    if (capture.state == DRIVER_CAPTURE_INVALIDATED ||
        (capture.state != DRIVER_CAPTURE_NONE && !may_be_captured))
        return TARN_ERROR_CAPTURE;
    *captured = capture.state == DRIVER_CAPTURE_ACTIVE ? capture.id : 0;
    return TARN_OK;
}

/* A mark of the stream as it is now, whose number is the next. */
static void place_locked(struct stream *stream, struct mark *mark)
{
    mark->stream = stream;
    mark->incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed);
    mark->number = ++mark->device->records;
}

static tarn_status record_locked(struct stream *stream, struct mark *mark, bool may_be_captured)
{
    tarn_status status = check_record_locked(stream, may_be_captured, &mark->captured);
    if (status)
        return status;
    place_locked(stream, mark);
    return device_note(mark->device,
                       driver->event_record(stream->device, mark->event, stream_native(stream)));
}

static void owe_locked(struct mark *mark)
{
    atomic_store_explicit(&mark->owed, true, memory_order_release);
    atomic_store_explicit(&mark->stream->owes, true, memory_order_release);
}

/* The same for a found stream, without the driver. */
static tarn_status owe_new_locked(struct stream *stream, struct mark *mark)
{
    if (stream_is_known(stream))
        return TARN_ERROR_CAPTURE;
    mark->captured = 0;
    place_locked(stream, mark);
    owe_locked(mark);
    return TARN_OK;
}

/* A mark that is recorded on a stream now is the proof of all its owed marks. */
static tarn_status prove_locked(struct stream *stream, struct mark *mark)
{
    tarn_status status = record_locked(stream, mark, false);
    if (status)
        return status;
    atomic_store_explicit(&stream->owes, false, memory_order_release);
    return TARN_OK;
}

/* The purpose of a mark: for tarn itself, for a call that passes the stream, or for a caller's
 * event, which may be captured. */
enum recorder { BY_TARN, BY_PASSING, BY_CALLER };

static tarn_status record(struct stream *stream, enum recorder by, struct mark **result)
{
    struct device *device = device_at(stream->device);
    struct mark *mark = NULL;
    tarn_status status = records ? mark_create(device, &mark) : TARN_ERROR_NOT_READY;
    if (status)
        return status;
    mutex_lock(&device->record_lock);
    if (by == BY_TARN && stream_is_found(stream))
        status = owe_new_locked(stream, mark);
    else
        status = by == BY_PASSING ? prove_locked(stream, mark)
                                  : record_locked(stream, mark, by == BY_CALLER);
    mutex_unlock(&device->record_lock);
    if (status) {
        mark_release(mark);
        return status;
    }
    *result = mark;
    return TARN_OK;
}

void marks_bar(bool on)
{
    records = !on;
}

tarn_status mark_record(struct stream *stream, struct mark **mark)
{
    return record(stream, BY_TARN, mark);
}

void stream_prove(struct stream *stream, unsigned incarnation)
{
    struct mark *proof = NULL;
    struct error_before before;
    if (!atomic_load_explicit(&stream->owes, memory_order_acquire) || stream_is_known(stream))
        return;
    error_attempt_begin(&before);
    /* The native stream may be destroyed once its retirement is through. */
    mutex_lock(&stream->lock);
    if (atomic_load_explicit(&stream->incarnation, memory_order_acquire) == incarnation &&
        record(stream, BY_PASSING, &proof) == TARN_OK) {
        struct mark *before_it = stream->proof;
        stream->proof = proof;
        proof = before_it;
    }
    mutex_unlock(&stream->lock);
    error_attempt_end(&before, TARN_OK);
    mark_release(proof);
}

struct mark_place mark_place(const struct mark *mark)
{
    return (struct mark_place){mark->stream, mark->incarnation, mark->number};
}

bool mark_is_captured(const struct mark *mark)
{
    return mark->captured;
}

static tarn_status refuse_captured(const char *what)
{
    return failed(
        TARN_ERROR_CAPTURE,
        "%s: the event was recorded in a capture: only streams can wait for it, inside the capture",
        what);
}

/* A capture that tarn does not know began between the question and the record, and has captured the
 * event. So the event is recorded again, which also covers the work that was queued before; on a
 * found stream, the next call that passes it does so. */
static tarn_status record_anew(struct mark *mark)
{
    struct stream *stream = mark->stream;
    uint64_t captured;
    tarn_status status = TARN_ERROR_CAPTURE;
    if (!records)
        return TARN_ERROR_NOT_READY;
    mutex_lock(&mark->device->record_lock);
    if (stream_is_found(stream))
        owe_locked(mark);
    else if (atomic_load(&stream->incarnation) == mark->incarnation)
        status = check_record_locked(stream, false, &captured);
    if (!status)
        status = driver->event_record(stream->device, mark->event, stream_native(stream));
    mutex_unlock(&mark->device->record_lock);
    return status ? status : TARN_ERROR_NOT_READY;
}

/* Waits by events for the streams that can be asked; whatever goes wrong is left to the wait that
 * follows. The legacy stream is not among them: an event there would make all blocking streams wait
 * for each other. */
static void wait_by_events(const struct device *device)
{
    unsigned slot = 0, incarnation = 0;
    struct stream *stream;
    struct error_before before;
    error_attempt_begin(&before);
    while ((stream = stream_next(device, &slot, &incarnation))) {
        struct mark *mark = NULL;
        if (stream != device->legacy && mark_of_stream(stream, incarnation, &mark) == TARN_OK &&
            mark)
            (void)mark_wait(mark);
        mark_release(mark);
    }
    error_attempt_end(&before, TARN_OK);
}

static tarn_status synchronize(struct device *device)
{
    mutex_lock(&device->record_lock);
    uint64_t before = device->records;
    mutex_unlock(&device->record_lock);
    tarn_status status = device_note(device, driver->device_synchronize(device->number));
    if (status)
        return status;
    mutex_lock(&device->record_lock);
    if (atomic_load(&device->waited) < before)
        atomic_store(&device->waited, before);
    mutex_unlock(&device->record_lock);
    return TARN_OK;
}

tarn_status device_wait(struct device *device, const char *what)
{
    tarn_status status = captures_refuse(device, what);
    if (!status)
        status = captures_refuse_shown(device, what);
    if (status)
        return status;
    wait_by_events(device);
    status = captures_bar(device, what);
    if (status)
        return status;
    status = captures_refuse_shown(device, what);
    if (!status)
        status = synchronize(device);
    captures_unbar(device);
    return status ? status : device_check(device); /* a question before may have found it lost */
}

static bool is_owed(struct mark *mark)
{
    return atomic_load_explicit(&mark->owed, memory_order_acquire);
}

/* Whether the work of an owed mark has ended by a wait for its device. */
static bool is_waited_for(const struct mark *mark)
{
    return atomic_load_explicit(&mark->device->waited, memory_order_acquire) >= mark->number;
}

/* The mark that proves an owed mark, or NULL. The first one found is kept, because the stream's
 * last mark may be another at each call. */
static struct mark *proof_of(struct mark *mark)
{
    mutex_lock(&mark->stream->lock);
    struct mark *last = mark->stream->proof;
    if (!mark->proof && last && last->incarnation == mark->incarnation &&
        last->number > mark->number)
        mark->proof = mark_keep(last);
    struct mark *proof = mark->proof;
    mutex_unlock(&mark->stream->lock);
    return proof;
}

static tarn_status owed_query(struct mark *mark)
{
    if (is_waited_for(mark))
        return TARN_OK;
    struct mark *proof = proof_of(mark);
    return proof ? mark_query(proof) : TARN_ERROR_NOT_READY;
}

static tarn_status owed_wait(struct mark *mark)
{
    if (is_waited_for(mark))
        return TARN_OK;
    struct mark *proof = proof_of(mark);
    return proof ? mark_wait(proof)
                 : device_wait(mark->device,
                               "a wait for the work of a stream that tarn_stream_find() entered");
}

bool mark_is_of_device(struct mark *mark)
{
    return is_owed(mark) && !is_waited_for(mark) && !proof_of(mark);
}

bool mark_can_wait(struct mark *mark)
{
    return !mark_is_of_device(mark) || !captures_going_on(mark->device);
}

tarn_status mark_query(struct mark *mark)
{
    if (atomic_load_explicit(&mark->done, memory_order_acquire))
        return TARN_OK;
    if (mark->captured)
        return refuse_captured("a query");
    bool owed = is_owed(mark);
    tarn_status status =
        owed ? owed_query(mark)
             : device_note(mark->device, driver->event_query(mark->device->number, mark->event));
    if (!status)
        atomic_store_explicit(&mark->done, true, memory_order_release);
    return status == TARN_ERROR_CAPTURE && !owed ? record_anew(mark) : status;
}

tarn_status mark_wait(struct mark *mark)
{
    if (atomic_load_explicit(&mark->done, memory_order_acquire))
        return TARN_OK;
    if (mark->captured)
        return refuse_captured("a wait of the host");
    bool owed = is_owed(mark);
    tarn_status status =
        owed ? owed_wait(mark)
             : device_note(mark->device,
                           driver->event_synchronize(mark->device->number, mark->event));
    if (!status)
        atomic_store_explicit(&mark->done, true, memory_order_release);
    if (status == TARN_ERROR_CAPTURE && !owed)
        (void)record_anew(mark);
    return status;
}

static void pause_for(uint64_t ns)
{
    if (driver->pause)
        driver->pause(ns);
    else
        clock_pause(ns);
}

void (*marks_pause)(uint64_t ns) = pause_for;

/* Asks each once. NOT_READY if none has ended. */
static tarn_status marks_query(struct mark *const *list, size_t count)
{
    tarn_status status = TARN_ERROR_NOT_READY;
    for (size_t i = 0; i < count && status == TARN_ERROR_NOT_READY; i++)
        status = mark_query(list[i]);
    return status;
}

/* Waits by one call of the driver. NOT_READY: the driver cannot, or a mark has no event. */
static tarn_status events_wait_any(struct mark *const *list, size_t count)
{
    driver_event natives[MARKS_MOST];
    size_t ended = 0;
    for (size_t i = 0; i < count; i++) {
        struct mark *mark = is_owed(list[i]) ? proof_of(list[i]) : list[i];
        if (!mark)
            return TARN_ERROR_NOT_READY;
        natives[i] = mark->event;
    }
    if (!driver->event_wait_any)
        return TARN_ERROR_NOT_READY;
    tarn_status status =
        device_note(list[0]->device, driver->event_wait_any(natives, count, &ended));
    if (!status)
        atomic_store_explicit(&list[ended]->done, true, memory_order_release);
    return status;
}

tarn_status marks_wait_any(struct mark *const *list, size_t count, uint64_t until)
{
    bool bounded = until != UNTIL_ENDED;
    uint64_t last = bounded ? until : clock_after(WAIT_ANY_NS), ns = PAUSE_LEAST_NS;
    tarn_status status;
    if (count == 1 && !bounded)
        return mark_wait(list[0]);
    while ((status = marks_query(list, count)) == TARN_ERROR_NOT_READY) {
        if (clock_is_past(last))
            return bounded ? TARN_ERROR_NOT_READY : mark_wait(list[0]);
        if (!bounded)
            status = events_wait_any(list, count);
        if (status != TARN_ERROR_NOT_READY)
            return status;
        marks_pause(ns);
        ns = pause_after(ns);
    }
    return status;
}

/* Refuses calls that would end a capture, before the driver is called. Under the record lock. */
static tarn_status check_wait_locked(struct stream *stream, const struct mark *mark)
{
    struct driver_capture capture;
    tarn_status status = stream_ask_capture(stream, &capture);
    if (status)
        return status;
    if (capture.state == DRIVER_CAPTURE_INVALIDATED || (mark->captured && !stream->native))
        return failed(TARN_ERROR_CAPTURE, "stream %#llx of device %d cannot wait: %s",
                      (unsigned long long)stream_value(stream), stream->device,
                      stream->native ? "its capture was invalidated"
                                     : "the legacy stream cannot take part in a capture, or be "
                                       "used while a blocking stream captures");
    if (capture.state == DRIVER_CAPTURE_ACTIVE && !mark->captured)
        return failed(
            TARN_ERROR_CAPTURE,
            "stream %#llx of device %d captures: it cannot wait for work outside its capture",
            (unsigned long long)stream_value(stream), stream->device);
    if (capture.state == DRIVER_CAPTURE_ACTIVE && capture.id != mark->captured)
        return failed(
            TARN_ERROR_CAPTURE,
            "stream %#llx of device %d captures: it cannot wait for work of another capture",
            (unsigned long long)stream_value(stream), stream->device);
    return TARN_OK;
}

tarn_status stream_wait_mark(struct stream *stream, struct mark *mark)
{
    struct device *device = device_at(stream->device);
    tarn_status status = stream_refuse_foreign(stream, "a wait for an event");
    if (!status && is_owed(mark))
        status = mark_wait(mark);
    if (status)
        return status;
    mutex_lock(&device->record_lock);
    status = check_wait_locked(stream, mark);
    if (!status && !atomic_load_explicit(&mark->done, memory_order_acquire))
        status = device_note(
            device, driver->stream_wait_event(device->number, stream->native, mark->event));
    mutex_unlock(&device->record_lock);
    return status;
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

tarn_status event_check(const tarn_event *event)
{
    if (object_is_live(&events, event))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  event ? "%p is not an event, or was destroyed" : "event is NULL",
                  (const void *)event);
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
    if (!status)
        status = device_find(device, &found);
    if (status)
        return status;
    tarn_event *created = object_alloc(&events);
    if (!created)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for an event");
    mutex_init(&created->lock, LOCK_EVENT);
    created->device = found;
    *event = created;
    return TARN_OK;
}

tarn_status tarn_event_destroy(tarn_event *event)
{
    if (!event)
        return TARN_OK;
    tarn_status status = device_layer_ready();
    if (!status)
        status = event_check(event);
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
    tarn_status status = device_layer_ready();
    if (!status)
        status = event_check(event);
    if (!status)
        status = stream_find(stream, event->device->number, &found);
    if (status)
        return status;
    if (found->device != event->device->number)
        return failed(TARN_ERROR_INVALID_STREAM,
                      "the event is of device %d, the stream of device %d", event->device->number,
                      found->device);
    status = stream_refuse_foreign(found, "a record of an event");
    if (!status)
        status = record(found, BY_CALLER, &mark);
    if (status == TARN_ERROR_CAPTURE)
        return failed(TARN_ERROR_CAPTURE, "stream %#llx of device %d: %s",
                      (unsigned long long)stream_value(found), found->device,
                      found->native
                          ? "its capture was invalidated; first end it"
                          : "the legacy stream cannot be used while a blocking stream captures");
    if (status)
        return status;
    mutex_lock(&event->lock);
    struct mark *before = event->mark;
    event->mark = mark;
    mutex_unlock(&event->lock);
    mark_release(before);
    if (trace_is_on())
        trace_stream_event(TRACE_event_record, found, (uintptr_t)event, 0);
    return TARN_OK;
}

/* Calls one of the functions on the mark that the event has recorded; an event without a mark
 * counts as finished. */
static tarn_status with_mark(tarn_event *event, tarn_status (*call)(struct mark *mark))
{
    tarn_status status = device_layer_ready();
    if (!status)
        status = event_check(event);
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
    tarn_status status = device_layer_ready();
    if (!status)
        status = event_check(event);
    if (!status)
        status = stream_find(stream, thread_device(), &found);
    if (status)
        return status;
    struct mark *mark = event_mark(event);
    if (mark)
        status = stream_wait_mark(found, mark);
    if (mark && !status && trace_is_on())
        trace_stream_event(TRACE_wait, found, (uintptr_t)event, 0);
    mark_release(mark);
    return status;
}
