/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams, and the clock of queued work.
 *
 * A stream is a queue of operations with positions 1, 2, 3 ...; `done` is the position up to which
 * all have finished. Operations are waits for a position of another stream, timed work, which ends
 * at a time of the clock of queued work, and real work, which the workers run. A thread that moves
 * the head of a queue continues until nothing moves (go_on()). So a record, a wait, or timed work
 * whose time has come needs no other thread. Without real work everything is deterministic.
 *
 * tarn_host_advance() moves the clock. A wait of the host moves it to the end of the timed work
 * that it waits for, and charges that time to the waiting call's device.
 *
 * Everything here is under `lock`, which comes after the memory lock. A stream waits only for
 * positions that were queued before its wait, so there are no cycles. */
#include "driver/host/host_stream.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "base/thread/lock.h"

#include <string.h>

static mutex queues_lock = MUTEX_INITIALIZER(LOCK_HOST_STREAMS);
static pthread_cond_t something_ended = PTHREAD_COND_INITIALIZER;
static unsigned sleepers; /* host threads that wait for real work */
static uint64_t now;      /* ns */
static uint64_t orders;
static uint64_t last_number; /* number of the newest stream */
/* Destroyed and drained streams; their positions continue. */
static struct host_stream *spare_streams;

/* The streams whose head is timed work, as a heap by (due, order). It has room for all streams. */
static struct host_stream **timers;
static size_t timer_count, timer_room, stream_total;

struct object_pool host_op_objects = OBJECT_POOL(struct host_op);
static struct object_pool stream_objects = OBJECT_POOL_NAMED(struct host_stream);

void host_streams_lock(void)
{
    mutex_lock(&queues_lock);
}

void host_streams_unlock(void)
{
    mutex_unlock(&queues_lock);
}

uint64_t host_now_locked(void)
{
    return now;
}

void host_streams_sleep_relocking(pthread_cond_t *condition)
{
    (void)condition_wait(condition, &queues_lock, NULL);
}

void host_streams_leave(void)
{
    mutex_unlock(&queues_lock);
    host_settle();
}

/* ---- Timers ---- */

static bool timer_before(const struct host_stream *a, const struct host_stream *b)
{
    return a->head->due != b->head->due ? a->head->due < b->head->due
                                        : a->head->order < b->head->order;
}

static void timer_push(struct host_stream *stream)
{
    size_t at = timer_count++;
    for (; at > 0 && timer_before(stream, timers[(at - 1) / 2]); at = (at - 1) / 2)
        timers[at] = timers[(at - 1) / 2];
    timers[at] = stream;
}

static struct host_stream *timer_pop(void)
{
    struct host_stream *first = timers[0], *last = timers[--timer_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < timer_count; at = child) {
        if (child + 1 < timer_count && timer_before(timers[child + 1], timers[child]))
            child++;
        if (!timer_before(timers[child], last))
            break;
        timers[at] = timers[child];
    }
    timers[at] = last;
    return first;
}

static bool timers_make_room(size_t count)
{
    if (count <= timer_room)
        return true;
    size_t room = timer_room ? 2 * timer_room : 2 * TARN_MAX_DEVICES;
    struct host_stream **more = pages_alloc(room * sizeof *more);
    if (!more)
        return false;
    if (timers)
        memcpy(more, timers, timer_count * sizeof *more);
    pages_free(timers, timer_room * sizeof *timers);
    timers = more;
    timer_room = room;
    return true;
}

/* ---- Moving queues ---- */

static void finish_head(struct host_stream *stream)
{
    struct host_op *op = stream->head;
    stream->head = op->next;
    if (!stream->head)
        stream->tail = NULL;
    stream->done = op->position;
    if ((op->uses.count && atomic_load(&host.leaving)) ||
        atomic_load_explicit(&host.freed, memory_order_relaxed)) {
        atomic_store(&host.sweeps, true);
        atomic_store(&host.unsettled, true);
    }
    if (atomic_load_explicit(&host.graphs_leaving, memory_order_relaxed))
        atomic_store(&host.unsettled, true);
    host_uses_finish(&op->uses);
    object_free(&host_op_objects, op);
}

/* Starts the head of an idle stream. True if it has ended at once; otherwise the stream's state
 * says what it waits for. */
static bool start_head(struct host_stream *stream)
{
    struct host_op *op = stream->head;
    if (op->kind == HOST_OP_WAIT) {
        struct host_stream *other = op->wait.stream;
        if (other->done >= op->wait.position)
            return true;
        stream->state = HOST_STREAM_WAITS;
        struct host_stream **end = &other->waiters;
        while (*end)
            end = &(*end)->link;
        stream->link = NULL;
        *end = stream;
        return false;
    }
    host_check_start_locked(stream, op);
    if (op->kind == HOST_OP_TIMED) {
        if (op->due <= now)
            return true;
        stream->state = HOST_STREAM_TIMED;
        timer_push(stream);
        return false;
    }
    stream->state = HOST_STREAM_READY;
    host_workers_push_locked(stream);
    return false;
}

/* Keeps a destroyed stream without work, in no capture, for reuse. No stream waits for it. */
static void retire(struct host_stream *stream)
{
    struct host_stream **link = &stream->device->streams;
    while (*link != stream)
        link = &(*link)->next_live;
    *link = stream->next_live;
    stream->link = spare_streams;
    spare_streams = stream;
    stream_total--;
}

/* Starts all operations that can start, from the head of an idle stream on. When a stream reaches a
 * position, those that wait for it continue, first come first served. */
static void go_on(struct host_stream *first)
{
    struct host_stream **end = &first->link;
    first->link = NULL;
    for (struct host_stream *stream = first, *next; stream; stream = next) {
        stream->state = HOST_STREAM_IDLE;
        next = stream->link;
        bool last = !next;
        while (stream->head && start_head(stream))
            finish_head(stream);

        struct host_stream *more = NULL, **more_end = &more;
        for (struct host_stream **link = &stream->waiters, *waiter; (waiter = *link);) {
            if (waiter->head->wait.position > stream->done) {
                link = &waiter->link;
                continue;
            }
            *link = waiter->link;
            waiter->link = NULL;
            *more_end = waiter;
            more_end = &waiter->link;
        }
        if (more) {
            if (last)
                next = more;
            else
                *end = more;
            end = more_end;
        }
        if (!stream->head && !stream->live && !stream->capture && stream != &stream->device->legacy)
            retire(stream);
    }
    if (sleepers)
        pthread_cond_broadcast(&something_ended);
}

void host_stream_ended_locked(struct host_stream *stream)
{
    finish_head(stream);
    go_on(stream);
}

/* Moves the clock to `to`, if that is later. Ends the timed work that is due by then, in order. */
static void clock_move(uint64_t to)
{
    while (timer_count && timers[0]->head->due <= to) {
        struct host_stream *stream = timer_pop();
        if (stream->head->due > now)
            now = stream->head->due;
        finish_head(stream);
        go_on(stream);
    }
    if (to > now)
        now = to;
}

struct host_stream *host_stream_holding_up_locked(struct host_stream *stream)
{
    while (stream->state == HOST_STREAM_WAITS)
        stream = stream->head->wait.stream;
    return stream;
}

bool host_stream_ends_before_locked(const struct host_stream *a, const struct host_stream *b)
{
    if (a->state != HOST_STREAM_TIMED || b->state != HOST_STREAM_TIMED)
        return a->state == HOST_STREAM_TIMED && b->state != HOST_STREAM_TIMED;
    return timer_before(a, b);
}

uint64_t host_stream_wait_step_relocking(const struct host_stream *holds_up)
{
    uint64_t before = now;
    if (holds_up->state == HOST_STREAM_TIMED) {
        clock_move(holds_up->head->due);
        return now - before;
    }
    sleepers++;
    (void)condition_wait(&something_ended, &queues_lock, NULL);
    sleepers--;
    return 0;
}

uint64_t host_stream_wait_relocking(struct host_stream *stream, uint64_t position)
{
    uint64_t waited = 0;
    while (stream->done < position)
        waited += host_stream_wait_step_relocking(host_stream_holding_up_locked(stream));
    return waited;
}

/* ---- Queueing ---- */

void host_enqueue_locked(struct host_stream *stream, struct host_op *op)
{
    op->position = ++stream->last;
    op->order = ++orders;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    if (stream->head == op)
        go_on(stream);
}

tarn_status host_no_op(const char *call)
{
    return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "host %s: no memory for the operation", call);
}

tarn_status host_enqueue_wait_locked(const char *call, struct host_stream *stream,
                                     struct host_stream *other, uint64_t position)
{
    if (other == stream || other->done >= position)
        return TARN_OK;
    struct host_op *op = object_alloc(&host_op_objects);
    if (!op)
        return host_no_op(call);
    op->kind = HOST_OP_WAIT;
    op->wait.stream = other;
    op->wait.position = position;
    host_enqueue_locked(stream, op);
    return TARN_OK;
}

tarn_status host_stream_join_locked(const char *call, struct host_stream *stream)
{
    struct host_device *device = stream->device;
    struct host_stream *legacy = &device->legacy;
    tarn_status status = TARN_OK;
    if (stream == legacy) {
        for (struct host_stream *other = device->streams; other && !status;
             other = other->next_live)
            if (other->blocking && other->head && other->joined != other->last) {
                status = host_enqueue_wait_locked(call, legacy, other, other->last);
                if (!status)
                    other->joined = other->last;
            }
    } else if (stream->blocking && legacy->head && stream->joins != legacy->last) {
        status = host_enqueue_wait_locked(call, stream, legacy, legacy->last);
        if (!status)
            stream->joins = legacy->last;
    }
    return status;
}

tarn_status host_stream_find_locked(const char *call, struct host_device *device,
                                    driver_stream handle, struct host_stream **stream)
{
    *stream = handle ? handle : &device->legacy;
    if (!handle ||
        (object_is_live(&stream_objects, handle) && (*stream)->live && (*stream)->device == device))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_STREAM, "host %s: %p is not a stream of device %d", call,
                  handle, device->number);
}

/* ---- Streams ---- */

struct host_stream *host_stream_make_locked(struct host_device *device, int priority, bool blocking)
{
    /* One timer per stream, and one for each device's legacy stream. */
    struct host_stream *stream = NULL;
    if (timers_make_room(stream_total + 1 + TARN_MAX_DEVICES)) {
        stream = spare_streams;
        if (stream)
            spare_streams = stream->link;
        else
            stream = object_alloc(&stream_objects);
    }
    if (!stream)
        return NULL;
    *stream = (struct host_stream){
        .live = true,
        .number = ++last_number,
        .blocking = blocking,
        .priority = priority > 0                   ? 0
                    : priority <= -HOST_PRIORITIES ? 1 - HOST_PRIORITIES
                                                   : priority,
        .device = device,
        .last = stream->last,
        .done = stream->done,
        .next_live = device->streams,
    };
    device->streams = stream;
    stream_total++;
    return stream;
}

static tarn_status stream_create_locked(struct host_device *device, int priority, bool blocking,
                                        driver_stream *handle)
{
    struct host_stream *stream = host_stream_make_locked(device, priority, blocking);
    if (!stream)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "host stream_create: no memory for the stream");
    device->stream_count++;
    *handle = stream;
    return TARN_OK;
}

void host_stream_end_locked(struct host_stream *stream)
{
    stream->live = false;
    if (!stream->head && !stream->capture)
        retire(stream);
}

tarn_status host_stream_create(int number, int priority, bool blocking, driver_stream *stream)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_stream_create, number, &device);
    if (status)
        return status;
    mutex_lock(&queues_lock);
    status = stream_create_locked(device, priority, blocking, stream);
    mutex_unlock(&queues_lock);
    if (!status)
        host_charge(device, DRIVER_CALL_stream_create, 0, 0);
    return status;
}

/* Returns at once, as CUDA does. Queued work still runs. */
tarn_status host_stream_destroy(int number, driver_stream handle)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_stream_destroy, number, &device);
    if (status)
        return status;
    if (!handle)
        return failed(TARN_ERROR_INVALID_STREAM,
                      "host stream_destroy: the legacy stream cannot be destroyed");
    struct host_stream *stream;
    mutex_lock(&queues_lock);
    status = host_stream_find_locked("stream_destroy", device, handle, &stream);
    if (!status) {
        host_capture_end_with_origin_locked(stream);
        device->stream_count--;
        host_stream_end_locked(stream);
    }
    host_streams_leave(); /* holders of a graph whose capture has ended here */
    if (!status)
        host_charge(device, DRIVER_CALL_stream_destroy, 0, 0);
    return status;
}

/* The legacy stream also stands for all blocking streams of the device. */
static bool is_idle(const struct host_stream *stream)
{
    if (stream != &stream->device->legacy)
        return !stream->head;
    bool idle = !stream->head;
    for (const struct host_stream *other = stream->device->streams; other && idle;
         other = other->next_live)
        idle = !other->blocking || !other->head;
    return idle;
}

tarn_status host_stream_check(int number, driver_stream handle)
{
    struct host_device *device;
    struct host_stream *stream;
    tarn_status status = host_enter(DRIVER_CALL_stream_check, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_stream_check, 0, 0);
    host_streams_lock();
    status = host_stream_find_locked("stream_check", device, handle, &stream);
    host_streams_unlock();
    return status;
}

tarn_status host_stream_number(int device_number, driver_stream handle, uint64_t *number)
{
    struct host_device *device;
    struct host_stream *stream;
    tarn_status status = host_enter(DRIVER_CALL_stream_number, device_number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_stream_number, 0, 0);
    host_streams_lock();
    status = host_stream_find_locked("stream_number", device, handle, &stream);
    if (!status && stream->capture)
        status = TARN_ERROR_CAPTURE;
    if (!status)
        *number = 1 + stream->number;
    host_streams_unlock();
    return status;
}

tarn_status host_stream_query(int number, driver_stream handle)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_stream_query, number, &device);
    if (status)
        return status;
    host_charge(device, DRIVER_CALL_stream_query, 0, 0);
    struct host_stream *stream;
    mutex_lock(&queues_lock);
    status = host_stream_find_locked("stream_query", device, handle, &stream);
    if (!status)
        status = host_capture_bar_locked("stream_query", stream);
    if (!status && !is_idle(stream))
        status = TARN_ERROR_NOT_READY;
    mutex_unlock(&queues_lock);
    return status;
}

tarn_status host_stream_synchronize(int number, driver_stream handle)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_stream_synchronize, number, &device);
    if (status)
        return status;
    struct host_stream *stream;
    uint64_t waited = 0;
    mutex_lock(&queues_lock);
    status = host_stream_find_locked("stream_synchronize", device, handle, &stream);
    if (!status)
        status = host_capture_bar_locked("stream_synchronize", stream);
    if (!status && !handle)
        status = host_stream_join_locked("stream_synchronize", stream);
    if (!status)
        waited = host_stream_wait_relocking(stream, stream->last);
    host_streams_leave();
    host_charge_wait(device, waited);
    if (!status)
        host_charge(device, DRIVER_CALL_stream_synchronize, 0, 0);
    return status;
}

/* A stream of the device with unfinished work up to order `until`, or NULL. */
static struct host_stream *stream_unfinished(struct host_device *device, uint64_t until)
{
    if (device->legacy.head && device->legacy.head->order <= until)
        return &device->legacy;
    for (struct host_stream *stream = device->streams; stream; stream = stream->next_live)
        if (stream->head && stream->head->order <= until)
            return stream;
    return NULL;
}

uint64_t host_device_wait(struct host_device *device)
{
    uint64_t waited = 0;
    mutex_lock(&queues_lock);
    uint64_t until = orders;
    for (struct host_stream *stream; (stream = stream_unfinished(device, until));)
        waited += host_stream_wait_relocking(stream, stream->head->position);
    host_streams_leave();
    return waited;
}

tarn_status host_device_synchronize(int number)
{
    struct host_device *device;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_device_synchronize, number, &device);
    if (status)
        return status;
    mutex_lock(&queues_lock);
    status = host_capture_bar_device_locked("device_synchronize", device);
    mutex_unlock(&queues_lock);
    if (status)
        return status;
    host_charge_wait(device, host_device_wait(device));
    host_charge(device, DRIVER_CALL_device_synchronize, 0, 0);
    return TARN_OK;
}

/* ---- The clock of queued work ---- */

tarn_status tarn_host_time_get(uint64_t *time)
{
    struct host_device *first;
    tarn_status status = host_use(0, &first);
    if (status)
        return status;
    if (!time)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "tarn_host_time_get: now is NULL");
    mutex_lock(&queues_lock);
    *time = now;
    mutex_unlock(&queues_lock);
    return TARN_OK;
}

tarn_status tarn_host_advance(uint64_t to)
{
    struct host_device *first;
    tarn_status status = host_use(0, &first);
    if (status)
        return status;
    mutex_lock(&queues_lock);
    clock_move(to);
    host_streams_leave();
    return TARN_OK;
}

/* Queued work of this process that takes real time also gets it. */
void host_pause(uint64_t ns)
{
    clock_pause(ns);
    mutex_lock(&queues_lock);
    clock_move(now + ns);
    host_streams_leave();
}

/* ---- The whole ---- */

tarn_status host_streams_start(void)
{
    mutex_lock(&queues_lock);
    /* For the default streams, before there are others. */
    if (!timers_make_room(TARN_MAX_DEVICES)) {
        mutex_unlock(&queues_lock);
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory for the host device's streams");
    }
    now = orders = 0;
    for (int i = 0; i < TARN_MAX_DEVICES; i++) {
        struct host_device *device = &host.device[i];
        device->legacy = (struct host_stream){.live = true, .blocking = true, .device = device};
    }
    mutex_unlock(&queues_lock);
    return TARN_OK;
}

void host_streams_drain(void)
{
    for (int i = 0; i < atomic_load(&host.devices); i++)
        host_device_wait(&host.device[i]);
}

void host_streams_finish(void)
{
    mutex_lock(&queues_lock);
    host_captures_finish_locked();
    host_graphs_finish_locked();
    host_events_finish_locked();
    for (int i = 0; i < TARN_MAX_DEVICES; i++)
        while (host.device[i].streams)
            retire(host.device[i].streams);
    while (spare_streams) {
        struct host_stream *stream = spare_streams;
        spare_streams = stream->link;
        object_free(&stream_objects, stream);
    }
    pages_free(timers, timer_room * sizeof *timers);
    timers = NULL;
    timer_room = 0;
    mutex_unlock(&queues_lock);
}

void host_streams_ledger(struct host_device *device, tarn_host_ledger *ledger)
{
    mutex_lock(&queues_lock);
    ledger->streams = device->stream_count;
    ledger->events = device->event_count;
    mutex_unlock(&queues_lock);
}
