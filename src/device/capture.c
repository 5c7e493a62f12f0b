/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the captures that tarn knows, each named by its stream and listed by its thread, and asks
 * the driver about all others.
 *
 * A known capture is entered before the driver begins it and removed after the driver has ended it,
 * so that it is protected at every moment. Both happen under the device's record lock. Every event
 * of tarn is recorded under the same lock: so no known capture can begin between the question
 * whether the stream captures and the record. capture_bar.c refuses what must not run beside a
 * capture. Locks: the device's record lock, then `captures_lock`. */
#include "device/capture.h"
#include "base/debug_words.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/tracing.h"
#include "record/site.h"

#include <errno.h>
#include <time.h>

struct capture {
    struct capture *next, *previous;           /* of the same thread */
    struct capture *next_open, *previous_open; /* of the same device, of those that bar something */
    struct stream *stream;
    struct thread *thread; /* that began it; NULL when that thread has ended */
    tarn_capture_mode mode;
    uint64_t id;    /* the driver's number of it; 0: not known, or announced */
    uint64_t noted; /* the same of an announced one; 0: not known */
    bool announced; /* the caller begins and ends it */
    bool begun;     /* the driver has said that it captures */
    bool ending;    /* a thread is about to end it */
};

static mutex captures_lock = MUTEX_INITIALIZER(LOCK_CAPTURES);
static pthread_cond_t one_ended; /* of the monotonic clock */
/* The sum over devices; captures_lock to change. */
static atomic_uint open_everywhere;
/* captures_lock: each device's captures that bar something. */
static struct capture *open_on[TARN_MAX_DEVICES];
static atomic_uint_fast64_t epoch = 1;
static struct object_pool capture_objects = OBJECT_POOL(struct capture);

unsigned captures_open(const struct device *device)
{
    return driver->wait_ends_all ? captures_open_anywhere()
                                 : atomic_load_explicit(&device->captures, memory_order_acquire);
}

unsigned captures_of_thread(const struct device *device)
{
    if (!captures_open(device) || !thread_here)
        return 0;
    mutex_lock(&captures_lock);
    unsigned count = thread_here->captures_on[device->number];
    for (int i = 0; driver->wait_ends_all && i < device_count(); i++)
        count += i == device->number ? 0 : thread_here->captures_on[i];
    mutex_unlock(&captures_lock);
    return count;
}

uint64_t capture_epoch(void)
{
    return atomic_load_explicit(&epoch, memory_order_acquire);
}

unsigned captures_open_anywhere(void)
{
    return atomic_load_explicit(&open_everywhere, memory_order_acquire);
}

/* ---- Asking ---- */

tarn_status stream_ask_capture(const struct stream *stream, struct driver_capture *capture)
{
    tarn_status status = stream_ask_capture_silently(stream, capture);
    if (!status)
        return TARN_OK;
    return failed(status,
                  "the driver cannot say whether stream %p of device %d captures (%s); a stream is "
                  "retired before it "
                  "is destroyed",
                  stream_native(stream), stream->device, tarn_status_name(status));
}

/* The driver says that the known capture with this number has begun. */
static void note_begun(const struct stream *stream, uint64_t number)
{
    mutex_lock(&captures_lock);
    if (stream->known && atomic_load(&stream->capture) == number)
        stream->known->begun = true;
    mutex_unlock(&captures_lock);
}

tarn_status stream_ask_capture_silently(const struct stream *stream, struct driver_capture *capture)
{
    uint64_t number = stream_is_known(stream) ? atomic_load(&stream->capture) : 0;
    *capture = (struct driver_capture){0};
    tarn_status status = driver->capture_status(stream->device, stream_native(stream), capture);
    if (status && status != TARN_ERROR_CAPTURE)
        return device_note(device_at(stream->device), status);
    if (status)
        *capture = (struct driver_capture){.state = DRIVER_CAPTURE_INVALIDATED};
    if (number && capture->state != DRIVER_CAPTURE_NONE)
        note_begun(stream, number);
    return TARN_OK;
}

tarn_status stream_refuse_capture(struct stream *stream, const char *what)
{
    struct driver_capture capture;
    bool known = stream_is_known(stream);
    tarn_status status = known ? TARN_OK : stream_ask_capture(stream, &capture);
    if (status || (!known && capture.state == DRIVER_CAPTURE_NONE))
        return status;
    if (!stream->native)
        return failed(
            TARN_ERROR_CAPTURE,
            "%s: the legacy stream of device %d cannot be used while a blocking stream captures",
            what, stream->device);
    return failed(TARN_ERROR_CAPTURE,
                  "%s: stream %#llx of device %d captures; first end the capture", what,
                  (unsigned long long)stream_value(stream), stream->device);
}

/* Whether the driver says that the stream captures, whatever tarn knows; true if it cannot say. */
static bool driver_captures(const struct stream *stream)
{
    struct driver_capture capture;
    return stream_ask_capture_silently(stream, &capture) || capture.state != DRIVER_CAPTURE_NONE;
}

bool stream_captures(struct stream *stream)
{
    return stream_is_known(stream) || foreign_is_barred(stream) || driver_captures(stream);
}

/* From now on a capture bars nothing. Its record stays until leave(). */
static void bar_nothing_locked(struct capture *capture)
{
    struct stream *stream = capture->stream;
    struct device *device = device_at(stream->device);
    if (atomic_load(&stream->over))
        return;
    atomic_store_explicit(&stream->over, true, memory_order_release);
    *(capture->previous_open ? &capture->previous_open->next_open : &open_on[device->number]) =
        capture->next_open;
    if (capture->next_open)
        capture->next_open->previous_open = capture->previous_open;
    if (capture->thread)
        capture->thread->captures_on[device->number]--;
    atomic_fetch_sub_explicit(&device->captures, 1, memory_order_release);
    atomic_fetch_sub_explicit(&device->announced, capture->announced, memory_order_release);
    atomic_fetch_sub_explicit(&open_everywhere, 1, memory_order_release);
    atomic_fetch_add_explicit(&epoch, 1, memory_order_release);
    process_changed();
    pthread_cond_broadcast(&one_ended);
}

/* Whether the driver goes on with the capture of a stream; true if it cannot say, and false if the
 * stream was retired since `incarnation`. */
static bool goes_on(struct stream *stream, unsigned incarnation)
{
    mutex_lock(&stream->lock);
    bool is = atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == incarnation &&
              driver_captures(stream);
    mutex_unlock(&stream->lock);
    return is;
}

/* Asks the driver about the newest open capture of a device. True if that capture no longer bars
 * anything: another one may be the next to ask about. False if it goes on, if it was announced and
 * nobody has seen it begin, or if none is open. */
static bool newest_is_over(int device)
{
    mutex_lock(&captures_lock);
    struct capture *capture = open_on[device];
    struct stream *stream = capture ? capture->stream : NULL;
    bool begun = capture && capture->begun;
    uint64_t number = stream ? atomic_load(&stream->capture) : 0;
    unsigned incarnation = stream ? atomic_load(&stream->incarnation) : 0;
    mutex_unlock(&captures_lock);
    if (!stream)
        return false;
    bool is = goes_on(stream, incarnation);
    mutex_lock(&captures_lock);
    bool is_there =
        stream->known && atomic_load(&stream->capture) == number && !atomic_load(&stream->over);
    bool is_over = is_there && begun && !is && !stream->known->ending;
    if (is_over)
        bar_nothing_locked(stream->known);
    mutex_unlock(&captures_lock);
    return is_over || !is_there;
}

/* Asks about the captures that count for a device, or with NULL about all, until one goes on. */
static void ask_all(const struct device *device)
{
    for (int i = 0; i < device_count(); i++)
        if (!device || driver->wait_ends_all || i == device->number)
            while (newest_is_over(i))
                ;
}

unsigned captures_going_on(const struct device *device)
{
    if (captures_open(device))
        ask_all(device);
    return captures_open(device);
}

unsigned captures_going_on_anywhere(void)
{
    if (captures_open_anywhere())
        ask_all(NULL);
    return captures_open_anywhere();
}

/* Finds a stream, and asks the driver whether it captures. */
static tarn_status ask_about(tarn_stream value, struct stream **stream,
                             struct driver_capture *capture)
{
    tarn_status status = stream_of_call(value, stream);
    if (!status)
        status = stream_refuse_foreign(*stream, "a question about a capture");
    return status ? status : stream_ask_capture(*stream, capture);
}

tarn_status tarn_capture_state_get(tarn_stream stream, tarn_capture_state *state, uint64_t *id,
                                   void **graph)
{
    struct stream *found = NULL;
    struct driver_capture capture;
    if (!state)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "state is NULL");
    tarn_status status = ask_about(stream, &found, &capture);
    if (status)
        return status;
    bool active = capture.state == DRIVER_CAPTURE_ACTIVE;
    *state = capture.state == DRIVER_CAPTURE_NONE ? TARN_CAPTURE_NONE
             : active                             ? TARN_CAPTURE_ACTIVE
                                                  : TARN_CAPTURE_INVALIDATED;
    if (id)
        *id = active ? capture.id : 0;
    if (graph)
        *graph = active ? capture.graph : NULL;
    return TARN_OK;
}

/* ---- The table ---- */

/* Adds a capture to the list of the thread that began it. */
static void list_locked(struct capture *capture)
{
    struct thread *thread = capture->thread;
    capture->next = thread->captures;
    if (capture->next)
        capture->next->previous = capture;
    thread->captures = capture;
    thread->captures_on[capture->stream->device]++;
}

/* Removes a capture from its thread's list. Afterwards no thread counts as the one that began
 * it. */
static void unlist_locked(struct capture *capture)
{
    struct thread *thread = capture->thread;
    if (!thread)
        return;
    *(capture->previous ? &capture->previous->next : &thread->captures) = capture->next;
    if (capture->next)
        capture->next->previous = capture->previous;
    if (!atomic_load(&capture->stream->over))
        thread->captures_on[capture->stream->device]--;
    capture->next = capture->previous = NULL;
    capture->thread = NULL;
}

/* Stores the driver's id of a capture that has just begun. Without an id, upper layers are not
 * notified if it ends without a graph. */
static void note_id(const struct stream *stream)
{
    struct driver_capture capture;
    if (stream_ask_capture_silently(stream, &capture) || capture.state != DRIVER_CAPTURE_ACTIVE)
        capture.id = 0;
    mutex_lock(&captures_lock);
    stream->known->begun = true;
    stream->known->id = capture.id;
    mutex_unlock(&captures_lock);
}

static tarn_status refuse_second(struct stream *stream)
{
    return failed(TARN_ERROR_CAPTURE,
                  "stream %#llx of device %d captures already, or its capture was announced",
                  (unsigned long long)stream_value(stream), stream->device);
}

/* Enters a capture. Under the record lock. */
static tarn_status enter(struct stream *stream, tarn_capture_mode mode, bool announced)
{
    if (captures_are_barred(stream->device))
        return failed(TARN_ERROR_BUSY,
                      "all work of device %d is waited for, a pool of it is being suspended or "
                      "resumed, or handles are being destroyed; begin the capture when that has "
                      "ended",
                      stream->device);
    struct thread *thread = thread_self();
    struct capture *capture = thread ? object_alloc(&capture_objects) : NULL;
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!capture)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a capture");
    *capture =
        (struct capture){.stream = stream, .thread = thread, .mode = mode, .announced = announced};
    mutex_lock(&captures_lock);
    bool second = stream->known;
    if (!second) {
        stream->known = capture;
        list_locked(capture);
        capture->next_open = open_on[stream->device];
        if (capture->next_open)
            capture->next_open->previous_open = capture;
        open_on[stream->device] = capture;
        atomic_store_explicit(&stream->over, false, memory_order_release);
        atomic_fetch_add_explicit(&device_at(stream->device)->captures, 1, memory_order_release);
        atomic_fetch_add_explicit(&device_at(stream->device)->announced, announced,
                                  memory_order_release);
        atomic_fetch_add_explicit(&open_everywhere, 1, memory_order_release);
        atomic_store_explicit(&stream->captures, true, memory_order_release);
        atomic_store(&stream->capture, atomic_fetch_add_explicit(&epoch, 1, memory_order_release));
        process_changed();
    }
    mutex_unlock(&captures_lock);
    if (!second)
        return TARN_OK;
    object_free(&capture_objects, capture);
    return refuse_second(stream);
}

/* Removes a capture, and wakes threads that wait for that. */
static void leave(struct stream *stream)
{
    mutex_lock(&captures_lock);
    struct capture *capture = stream->known;
    if (capture) {
        bar_nothing_locked(capture);
        stream->known = NULL;
        unlist_locked(capture);
        atomic_store_explicit(&stream->captures, false, memory_order_release);
    }
    mutex_unlock(&captures_lock);
    if (capture)
        object_free(&capture_objects, capture);
}

void captures_of_thread_end(struct thread *thread)
{
    mutex_lock(&captures_lock);
    while (thread->captures)
        unlist_locked(thread->captures);
    mutex_unlock(&captures_lock);
}

/* A deadline of the monotonic clock. */
static struct timespec deadline_in(uint64_t ns)
{
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    uint64_t seconds = ns / 1000000000u;
    limit.tv_sec += (time_t)(seconds < INT32_MAX ? seconds : INT32_MAX);
    limit.tv_nsec += (long)(ns % 1000000000u);
    if (limit.tv_nsec >= 1000000000) {
        limit.tv_sec++;
        limit.tv_nsec -= 1000000000;
    }
    return limit;
}

static bool is_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

#define FIRST_PAUSE 1000000u  /* ns */
#define LAST_PAUSE 100000000u /* ns */

/* Nobody signals that the driver has ended a capture, or a caller one that was announced. So the
 * driver is asked, with growing pauses. */
bool captures_wait(struct device *device, uint64_t ns, const atomic_uint_fast64_t *count,
                   uint64_t seen)
{
    const struct timespec limit = deadline_in(ns);
    uint64_t pause = FIRST_PAUSE;
    bool over, in_time = true;
    while (!(over = captures_going_on(device) == 0 || (count && atomic_load(count) != seen)) &&
           in_time) {
        struct timespec until = deadline_in(pause);
        in_time = is_before(&until, &limit);
        pause = pause < LAST_PAUSE ? 2 * pause : pause;
        mutex_lock(&captures_lock);
        while (captures_open(device) && !(count && atomic_load(count) != seen) &&
               condition_wait(&one_ended, &captures_lock, in_time ? &until : &limit) != ETIMEDOUT)
            ;
        mutex_unlock(&captures_lock);
    }
    return over;
}

void captures_init(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&one_ended, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* ---- Beginning and ending ---- */

/* The start of begin and announce: the stream, which must not be a default one. */
static tarn_status find_to_begin(tarn_stream value, struct stream **stream)
{
    tarn_status status = stream_of_call(value, stream);
    if (!status)
        status = device_check(device_at((*stream)->device));
    if (status)
        return status;
    if ((*stream)->origin == STREAM_IS_LEGACY || (*stream)->origin == STREAM_IS_THREADS)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "a default stream cannot capture; take one by "
                                                   "tarn_stream_lease() or tarn_stream_adopt()");
    return TARN_OK;
}

tarn_status tarn_capture_begin(tarn_stream stream, tarn_capture_mode mode)
{
    static const enum driver_capture_mode modes[] = {
        [TARN_CAPTURE_GLOBAL] = DRIVER_CAPTURE_GLOBAL,
        [TARN_CAPTURE_THREAD_LOCAL] = DRIVER_CAPTURE_THREAD_LOCAL,
        [TARN_CAPTURE_RELAXED] = DRIVER_CAPTURE_RELAXED,
    };
    struct stream *found = NULL;
    if ((unsigned)mode > TARN_CAPTURE_RELAXED)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%d is not a capture mode", (int)mode);
    tarn_status status = find_to_begin(stream, &found);
    if (status)
        return status;
    struct device *device = device_at(found->device);
    mutex_lock(&device->record_lock);
    /* A stream that captures already is refused before the driver is asked to begin, because that
     * would end the capture. */
    struct driver_capture capture = {0};
    status = stream_ask_capture(found, &capture);
    if (!status && capture.state != DRIVER_CAPTURE_NONE)
        status = refuse_second(found);
    if (!status)
        status = enter(found, mode, false);
    if (!status) {
        status =
            device_note(device, driver->capture_begin(device->number, found->native, modes[mode]));
        if (status)
            leave(found);
        else
            note_id(found);
    }
    if (!status && trace_is_on())
        trace_stream_event(TRACE_capture_begin, found, atomic_load(&found->capture), 0);
    mutex_unlock(&device->record_lock);
    return status;
}

tarn_status tarn_capture_announce(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = find_to_begin(stream, &found);
    if (status)
        return status;
    struct device *device = device_at(found->device);
    mutex_lock(&device->record_lock);
    status = enter(found, TARN_CAPTURE_RELAXED, true);
    /* One that has begun already is known to have, from then on. */
    if (!status)
        (void)driver_captures(found);
    if (!status && trace_is_on())
        trace_stream_event(TRACE_capture_begin, found, atomic_load(&found->capture), 0);
    mutex_unlock(&device->record_lock);
    return status;
}

struct ending {
    struct stream *stream;
    bool gives_up;  /* the caller wants to forget a capture that no thread can end */
    bool claimed;   /* it is a known capture, which this thread ends */
    bool announced; /* the caller has ended it */
    bool orphaned;  /* the thread that began it has ended */
    bool over;      /* the capture is no longer known */
    /* Of a capture that tarn began and now ends: the driver's number; 0: not known. */
    uint64_t id;
    uint64_t noted; /* of an announced one: the same */
    /* Of a capture that tarn began and the driver has not invalidated, else NULL. */
    driver_graph graph;
};

/* Claims a known capture to end it. The driver lets only the thread that began a capture end it,
 * unless its mode is relaxed; here other threads are refused without harm. If that thread has
 * ended, any thread may try. */
static tarn_status claim_end(struct ending *ending)
{
    struct stream *stream = ending->stream;
    tarn_status status = TARN_OK;
    mutex_lock(&captures_lock);
    struct capture *capture = stream->known;
    if (!capture || capture->ending)
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "stream %#llx of device %d has no capture that tarn knows",
                        (unsigned long long)stream_value(stream), stream->device);
    else if (capture->mode != TARN_CAPTURE_RELAXED && capture->thread &&
             capture->thread != thread_here)
        status = failed(
            TARN_ERROR_CAPTURE,
            "only the thread that began a capture can end it, unless the capture is relaxed");
    if (!status) {
        capture->ending = true;
        ending->claimed = true;
        ending->announced = capture->announced;
        ending->orphaned = !capture->thread;
        ending->id = capture->id;
        ending->noted = capture->noted;
    }
    mutex_unlock(&captures_lock);
    return status;
}

static void unclaim_end(struct stream *stream)
{
    mutex_lock(&captures_lock);
    stream->known->ending = false;
    mutex_unlock(&captures_lock);
}

/* Ends a known capture; of an announced one, only tarn's record of it. */
static tarn_status end(tarn_stream value, struct ending *ending)
{
    tarn_status status = stream_of_call(value, &ending->stream);
    if (!status)
        status = claim_end(ending);
    if (status)
        return status;
    struct stream *stream = ending->stream;
    struct device *device = device_at(stream->device);
    mutex_lock(&device->record_lock);
    if (ending->id && !driver_captures(stream))
        ending->id = 0; /* another call has ended it, and may have kept its graph */
    if (!ending->announced)
        status = device_note(device,
                             driver->capture_end(device->number, stream->native, &ending->graph));
    /* What captured is gone: it must not bar other devices for ever. */
    bool lost = status && atomic_load(&device->lost);
    /* HIP does not end a capture that was invalidated or has unjoined work, and nobody else could
     * end it. */
    bool refused = status == TARN_ERROR_CAPTURE && !ending->orphaned;
    bool given_up = ending->orphaned && ending->gives_up;
    ending->over = !status || lost || refused || given_up || !driver_captures(stream);
    if (ending->over && (refused || ending->orphaned) && driver_captures(stream))
        atomic_store(&stream->abandoned, true);
    if (ending->over)
        leave(stream);
    /* The driver could not end it: it stays known, and the end can be tried again. */
    else
        unclaim_end(stream);
    if (ending->over && trace_is_on())
        trace_stream_event(TRACE_capture_end, stream, atomic_load(&stream->capture), 0);
    mutex_unlock(&device->record_lock);
    return status;
}

/* Callbacks of upper layers. Each is set once; NULL before that. */
static tarn_status (*_Atomic end_callback)(struct stream *stream, driver_graph graph);

void captures_on_end(tarn_status (*callback)(struct stream *stream, driver_graph graph))
{
    atomic_store(&end_callback, callback);
}

static tarn_status (*_Atomic keep_callback)(struct stream *stream, driver_graph graph);

void captures_on_keep(tarn_status (*callback)(struct stream *stream, driver_graph graph))
{
    atomic_store(&keep_callback, callback);
}

static void (*_Atomic drop_callback)(uint64_t id);

void captures_on_drop(void (*callback)(uint64_t id))
{
    atomic_store(&drop_callback, callback);
}

static void (*_Atomic graph_callback)(uint64_t id, int device, driver_graph graph);

void captures_on_graph(void (*callback)(uint64_t id, int device, driver_graph graph))
{
    atomic_store(&graph_callback, callback);
}

void capture_note(struct stream *stream, uint64_t id)
{
    mutex_lock(&captures_lock);
    if (stream->known && stream->known->announced) {
        stream->known->noted = id;
        stream->known->begun = true;
    }
    mutex_unlock(&captures_lock);
}

static void tell_graph(uint64_t id, int device, driver_graph graph)
{
    void (*callback)(uint64_t, int, driver_graph) = atomic_load(&graph_callback);
    if (id && graph && callback)
        callback(id, device, graph);
}

/* Notifies the memory layer that a capture has ended. If it cannot hold memory for the graph, the
 * graph is destroyed. */
static tarn_status tell_end(struct ending *ending)
{
    struct stream *stream = ending->stream;
    tarn_status (*callback)(struct stream *, driver_graph) = atomic_load(&end_callback);
    tarn_status status = callback ? callback(stream, ending->graph) : TARN_OK;
    if (status && ending->graph) {
        (void)device_note(device_at(stream->device),
                          driver->graph_destroy(stream->device, ending->graph));
        ending->graph = NULL;
    }
    void (*dropped)(uint64_t) = atomic_load(&drop_callback);
    if (!ending->graph && ending->id && dropped)
        dropped(ending->id);
    tell_graph(ending->id, stream->device, ending->graph);
    return status;
}

/* Whether the stream has a known capture that was announced. */
static bool is_announced(const struct stream *stream)
{
    mutex_lock(&captures_lock);
    bool is = stream->known && stream->known->announced;
    mutex_unlock(&captures_lock);
    return is;
}

tarn_status tarn_capture_end(tarn_stream stream, void **graph)
{
    struct ending ending = {0};
    tarn_status status = stream_of_call(stream, &ending.stream);
    if (status)
        return status;
    if (debug_has(DEBUG_GRAPHS))
        site_take(__builtin_return_address(0), true);
    if (is_announced(ending.stream))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the capture was announced: the caller ends it, and gives its graph to "
                      "tarn_capture_end_announced()");
    if (!graph)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "graph is NULL; tarn_capture_abort() ends a capture without one");
    status = end(stream, &ending);
    if (ending.over) {
        tarn_status told = tell_end(&ending);
        status = status ? status : told;
    }
    if (!status)
        *graph = ending.graph;
    return status;
}

/* Whether a claimed announced capture may end: the driver says that it has ended, and its graph
 * holds the memory. */
static tarn_status settle(struct stream *stream, driver_graph graph)
{
    struct driver_capture capture;
    tarn_status status = stream_ask_capture(stream, &capture);
    if (!status && capture.state != DRIVER_CAPTURE_NONE)
        status =
            failed(TARN_ERROR_CAPTURE,
                   "stream %#llx of device %d still captures; end that by the vendor's call first",
                   (unsigned long long)stream_value(stream), stream->device);
    tarn_status (*callback)(struct stream *, driver_graph) = atomic_load(&keep_callback);
    return status || !graph || !callback ? status : callback(stream, graph);
}

tarn_status tarn_capture_end_announced(tarn_stream value, void *graph)
{
    struct ending ending = {0};
    tarn_status status = stream_of_call(value, &ending.stream);
    if (status)
        return status;
    struct stream *stream = ending.stream;
    if (debug_has(DEBUG_GRAPHS))
        site_take(__builtin_return_address(0), true);
    if (!is_announced(stream))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "stream %#llx of device %d has no announced capture",
                      (unsigned long long)stream_value(stream), stream->device);
    status = claim_end(&ending);
    if (status)
        return status;
    struct device *device = device_at(stream->device);
    status = settle(stream, graph);
    mutex_lock(&device->record_lock);
    /* What captured is gone: it must not bar other devices for ever. */
    ending.over = !status || atomic_load(&device->lost);
    if (ending.over)
        leave(stream);
    else
        unclaim_end(stream);
    if (ending.over && trace_is_on())
        trace_stream_event(TRACE_capture_end, stream, atomic_load(&stream->capture), 0);
    mutex_unlock(&device->record_lock);
    if (ending.over)
        (void)tell_end(&ending); /* cannot fail without a graph */
    if (!status)
        tell_graph(ending.noted, stream->device, graph);
    return status;
}

tarn_status tarn_capture_abort(tarn_stream stream)
{
    struct ending ending = {.gives_up = true};
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = end(stream, &ending);
    driver_graph graph = ending.graph;
    ending.graph = NULL;
    if (ending.over)
        (void)tell_end(&ending); /* cannot fail without a graph */
    if (graph)
        status = device_note(device_at(ending.stream->device),
                             driver->graph_destroy(ending.stream->device, graph));
    /* An invalidated capture, one with unjoined streams, and one of a lost device count as ended
     * too. A capture that only a thread could end which is gone is forgotten. */
    bool over = !graph && status == TARN_ERROR_CAPTURE && ending.claimed &&
                (ending.orphaned || !driver_captures(ending.stream));
    over = over || (!graph && status == TARN_ERROR_DEVICE_LOST && ending.over);
    status = over ? TARN_OK : status;
    if (ending.stream && (!status || !ending.claimed)) {
        bool ended = false;
        tarn_status replaced = stream_end_abandoned(ending.stream, stream, &ended);
        status = ended ? replaced : status;
    }
    error_attempt_end(&before, status);
    return status;
}
