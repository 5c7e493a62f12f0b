/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the streams that tarn creates, each thread's current stream, and the way of a native stream
 * into its slot (stream_slots.c) and out of it.
 *
 * A value consists of incarnation, lease and slot. A retirement ends the incarnation of the slot. A
 * leased stream goes from one lease to the next with everything that belongs to it, but values of
 * earlier leases are invalid.
 *
 * A thread's per-thread default stream has a slot too. If the vendor has such a stream, its native
 * handle is a constant that means a different stream in each thread, so only the slot's owner
 * passes it to the driver. The slot of a thread that has ended serves the next thread, after that
 * thread's stream has waited for the work of the old one.
 *
 * Each native stream has one slot. It is found by the device's table (native.h), and by the
 * driver's number if there is one, because vendors reuse the pointer of a destroyed stream at once.
 * Code that enters or removes a native stream holds `entering`, also over driver calls, none of
 * which waits. For a *found* stream, no caller has promised to retire it; mark.c describes the
 * consequences. Lock order: `entering`, then the locks that a retirement takes of heaps, then
 * `streams_lock` for the slots, then the lock of a slot, then that of a device for its lists. */
#include "device/stream.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/capture.h"
#include "device/stream_slots.h"

static mutex entering = MUTEX_INITIALIZER(LOCK_ENTERING);
/* Set once, by the first use of memory */
static tarn_status (*_Atomic retire_callback)(struct stream *stream);

void stream_on_retire(tarn_status (*callback)(struct stream *stream))
{
    atomic_store(&retire_callback, callback);
}

/* Whether the driver goes on with a capture on the stream that no thread can end. No event can be
 * recorded there. */
static bool is_abandoned(struct stream *stream)
{
    if (!atomic_load(&stream->abandoned) || stream_awaits_end(stream))
        return false;
    bool captures = stream_captures(stream);
    atomic_store(&stream->abandoned, captures);
    return captures;
}

/* Ends a stream's incarnation: records a mark at its last work and notifies its heap. The slot is
 * free when that work has finished. Caller holds `entering`. */
static tarn_status stream_retire(struct stream *stream)
{
    struct mark *last_work = NULL;
    bool abandoned = is_abandoned(stream), found = stream_is_found(stream);
    if (abandoned)
        atomic_store(&stream->found, true); /* its marks are owed */
    tarn_status status =
        stream_awaits_end(stream) ? TARN_ERROR_CAPTURE : mark_record(stream, &last_work);
    if (status == TARN_ERROR_CAPTURE)
        (void)failed(TARN_ERROR_CAPTURE,
                     "stream %#llx of device %d captures; first end the capture, then retire it",
                     (unsigned long long)stream_value(stream), stream->device);
    else if (!status && retire_callback)
        status = retire_callback(stream);
    if (status) {
        mark_release(last_work);
        if (abandoned)
            atomic_store(&stream->found, found);
        return status;
    }
    slot_leave(stream, last_work);
    process_changed();
    return TARN_OK;
}

/* The caller names the stream, and will destroy it. */
static tarn_status retire_named(struct stream *stream)
{
    bool found = atomic_exchange(&stream->found, false);
    stream_prove(stream, atomic_load(&stream->incarnation));
    tarn_status status = stream_retire(stream);
    if (status)
        atomic_store(&stream->found, found);
    return status;
}

/* The pointer of a slot now belongs to another stream: the slot's stream was destroyed, and its
 * work may still run. */
static tarn_status retire_gone(struct stream *stream)
{
    if (stream->origin != STREAM_IS_ADOPTED)
        return failed(TARN_ERROR_INVALID_STREAM,
                      "stream %#llx of device %d belongs to tarn, but the driver has another "
                      "stream at its pointer %p: it was "
                      "destroyed by other code",
                      (unsigned long long)stream_value(stream), stream->device, stream->native);
    atomic_store(&stream->found, true);
    return stream_retire(stream);
}

/* Enters a stream that was just created. */
static tarn_status stream_enter(struct device *device, const struct native *native,
                                struct stream **result)
{
    mutex_lock(&entering);
    struct stream *gone =
        native_has_name(native) ? native_find(&device->natives, native->stream) : NULL;
    tarn_status status = gone ? retire_gone(gone) : TARN_OK;
    if (!status)
        status = slot_enter(device, native, result);
    mutex_unlock(&entering);
    return status;
}

tarn_status stream_make_legacy(struct device *device)
{
    const struct native native = {.origin = STREAM_IS_LEGACY};
    return device->legacy ? TARN_OK : stream_enter(device, &native, &device->legacy);
}

/* Creates a driver stream and puts it into a slot. */
static tarn_status stream_create(struct device *device, int priority, enum stream_origin origin,
                                 struct stream **result)
{
    struct native native = {.priority = priority, .origin = origin};
    tarn_status status = device_check(device);
    if (status)
        return status;
    status =
        device_note(device, driver->stream_create(device->number, priority,
                                                  origin == STREAM_IS_THREADS, &native.stream));
    if (status)
        return status;
    status = stream_enter(device, &native, result);
    if (status)
        driver->stream_destroy(device->number, native.stream);
    return status;
}

static const struct thread ended; /* stands for an owner that has */

bool stream_is_foreign(const struct stream *stream)
{
    const struct thread *owner = atomic_load_explicit(&stream->owner, memory_order_relaxed);
    return owner && owner != thread_here;
}

tarn_status stream_refuse_foreign(const struct stream *stream, const char *what)
{
    if (!stream_is_foreign(stream))
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_STREAM,
                  "%s: stream %#llx of device %d is the per-thread default stream of another "
                  "thread; only that thread can "
                  "use it here",
                  what, (unsigned long long)stream_value(stream), stream->device);
}

driver_stream stream_native(const struct stream *stream)
{
    return stream_is_foreign(stream) ? NULL : stream->native;
}

static struct stream *ended_take(struct device *device)
{
    mutex_lock(&device->lock);
    struct stream *stream = device->thread_ended;
    if (stream)
        device->thread_ended = stream->next;
    mutex_unlock(&device->lock);
    return stream;
}

static void ended_put(struct device *device, struct stream *stream)
{
    mutex_lock(&device->lock);
    stream->next = device->thread_ended;
    device->thread_ended = stream;
    mutex_unlock(&device->lock);
}

/* Makes the calling thread the owner of a slot whose owner has ended, and orders its stream after
 * the work of the old owner. False if that is not possible now, for example while a capture is
 * open. */
static bool ended_inherit(struct stream *stream, const struct thread *thread)
{
    struct mark *mark = NULL;
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = mark_record(stream, &mark);
    stream->owner = thread;
    if (!status)
        status = stream_wait_mark(stream, mark);
    if (status)
        stream->owner = &ended;
    mark_release(mark);
    error_attempt_end(&before, TARN_OK);
    return status == TARN_OK;
}

/* A slot for the vendor's default stream of the calling thread. */
static tarn_status vendors_per_thread(struct device *device, const struct thread *thread,
                                      struct stream **result)
{
    tarn_status status = device_check(device);
    struct stream *stream = status ? NULL : ended_take(device);
    if (stream && !ended_inherit(stream, thread)) {
        ended_put(device, stream);
        stream = NULL;
    }
    const struct native native = {.stream = driver->per_thread, .origin = STREAM_IS_THREADS};
    if (!status && !stream) {
        status = stream_enter(device, &native, &stream);
        if (!status)
            stream->owner = thread; /* nobody else knows it yet */
    }
    *result = stream;
    return status;
}

static tarn_status stream_per_thread(int number, struct stream **result)
{
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    struct stream *stream = thread->per_thread[number];
    if (!stream) {
        struct device *device = device_at(number);
        tarn_status status = TARN_OK;
        if (driver->per_thread)
            status = vendors_per_thread(device, thread, &stream);
        else {
            stream = ended_take(device);
            if (!stream)
                status = stream_create(device, 0, STREAM_IS_THREADS, &stream);
        }
        if (status)
            return status;
        thread->per_thread[number] = stream;
    }
    *result = stream;
    return TARN_OK;
}

void streams_of_thread_end(struct thread *thread)
{
    for (int i = 0; i < device_count(); i++) {
        struct stream *stream = thread->per_thread[i];
        if (!stream)
            continue;
        if (driver->per_thread)
            stream->owner = &ended;
        ended_put(device_at(i), stream);
    }
}

tarn_status stream_find(tarn_stream value, int device, struct stream **result)
{
    if (value == TARN_STREAM_LEGACY) {
        *result = device_at(device)->legacy;
        return TARN_OK;
    }
    if (value == TARN_STREAM_PER_THREAD)
        return stream_per_thread(device, result);
    if (value == TARN_STREAM_CURRENT)
        return stream_current(device, result);
    return slot_find(value, result);
}

tarn_status stream_of_call(tarn_stream value, struct stream **stream)
{
    tarn_status status = device_layer_ready();
    return status ? status : stream_find(value, thread_device(), stream);
}

tarn_status stream_current(int device, struct stream **result)
{
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    return stream_find(thread->current[device], device, result);
}

tarn_status mark_of_stream(struct stream *stream, unsigned incarnation, struct mark **mark)
{
    /* The native stream may be destroyed once its retirement is through. */
    mutex_lock(&stream->lock);
    bool current = atomic_load_explicit(&stream->incarnation, memory_order_acquire) == incarnation;
    tarn_status status = current ? mark_record(stream, mark) : TARN_OK;
    mutex_unlock(&stream->lock);
    if (current)
        return status;
    /* Retired since. If the incarnation has changed more than once, the slot was reused, so its
     * first stream has finished. */
    *mark = slot_last_work(stream, incarnation);
    return TARN_OK;
}

tarn_status tarn_stream_get(int device, tarn_stream *stream)
{
    struct device *found = NULL;
    struct stream *current = NULL;
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = stream_current(device, &current);
    if (status)
        return status;
    *stream = stream_value(current);
    return TARN_OK;
}

tarn_status tarn_stream_set(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = stream_of_call(stream, &found);
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    thread->current[found->device] = stream_value(found);
    thread_forget_caches(thread);
    return TARN_OK;
}

/* Asks the driver about a stream before it gets a slot: a stream that the driver does not know
 * could never be retired. If the driver fails in another way, the stream may be valid. */
static bool is_none_of_the_driver(const struct device *device, void *native)
{
    struct driver_capture capture;
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = driver->capture_status(device->number, native, &capture);
    if (status)
        error_set(status, "the driver knows no stream %p of device %d", native, device->number);
    else
        status = driver->stream_check(device->number, native);
    bool none = status == TARN_ERROR_INVALID_STREAM || status == TARN_ERROR_INVALID_ARGUMENT;
    error_attempt_end(&before, none ? TARN_ERROR_INVALID_STREAM : TARN_OK);
    return none;
}

/* The stream of a vendor's constant, which has a slot without being adopted. NULL, with TARN_OK,
 * for any other value. */
static tarn_status stream_of_constant(const struct device *device, void *native,
                                      struct stream **stream)
{
    *stream = NULL;
    if (native && native == driver->per_thread)
        return stream_per_thread(device->number, stream);
    if (!native || native == driver->legacy)
        *stream = device->legacy;
    return TARN_OK;
}

/* The start of adopting and finding: the device, and the stream if `native` is a constant. */
static tarn_status find_native(int number, void *native, const tarn_stream *stream,
                               struct device **device, struct stream **constant)
{
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(number, device);
    if (status)
        return status;
    return stream_of_constant(*device, native, constant);
}

/* The slot of a native stream, or NULL if it has none. Caller holds `entering`. */
static tarn_status look_up(struct device *device, driver_stream native, uint64_t number,
                           struct stream **known)
{
    *known = native_find(&device->natives, native);
    uint64_t before = *known ? atomic_load(&(*known)->number) : 0;
    if (before && number && before != number) {
        tarn_status status = retire_gone(*known);
        *known = NULL;
        return status;
    }
    if (*known && !before)
        atomic_store(&(*known)->number, number);
    if (*known && atomic_load(&(*known)->returned))
        return failed(TARN_ERROR_INVALID_STREAM,
                      "%p is a stream of device %d that was leased and has been returned", native,
                      device->number);
    return TARN_OK;
}

/* The same, but enters the stream if it is new. */
static tarn_status look_up_or_enter(struct device *device, const struct native *native,
                                    struct stream **known)
{
    tarn_status status = look_up(device, native->stream, native->number, known);
    if (status || *known)
        return status;
    /* A stream that captures is the driver's, which must not be asked more about it. */
    bool captures = native->found && !native->number;
    if (!captures && is_none_of_the_driver(device, native->stream))
        return TARN_ERROR_INVALID_STREAM;
    return slot_enter(device, native, known);
}

/* The driver's number of a stream, or 0 if it does not say. */
static uint64_t number_of(const struct device *device, driver_stream native)
{
    uint64_t number = 0;
    struct error_before before;
    error_attempt_begin(&before);
    if (driver->stream_number(device->number, native, &number))
        number = 0;
    error_attempt_end(&before, TARN_OK);
    return number;
}

tarn_status tarn_stream_adopt(int device, void *native, tarn_stream *stream)
{
    struct device *found = NULL;
    struct stream *known = NULL;
    tarn_status status = find_native(device, native, stream, &found, &known);
    if (status)
        return status;
    if (!known) {
        const struct native adopted = {native, number_of(found, native), 0, STREAM_IS_ADOPTED,
                                       false};
        mutex_lock(&entering);
        status = look_up_or_enter(found, &adopted, &known);
        if (!status) {
            known->adoptions++;
            atomic_store(&known->found, false);
        }
        mutex_unlock(&entering);
    }
    if (!status)
        *stream = stream_value(known);
    return status;
}

/* The slot of the stream with this number and pointer, without a lock. A stream that captures has
 * number 0; then the slot of the pointer. False if unknown. */
static bool find_at_once(struct device *device, driver_stream native, uint64_t number,
                         struct stream **known, unsigned *incarnation)
{
    *known = native_find(&device->natives, native);
    if (!*known)
        return false;
    *incarnation = atomic_load_explicit(&(*known)->incarnation, memory_order_acquire);
    return (!number || atomic_load_explicit(&(*known)->number, memory_order_acquire) == number) &&
           !atomic_load_explicit(&(*known)->returned, memory_order_relaxed);
}

static tarn_status refuse_numberless(const struct device *device)
{
    return failed(
        TARN_ERROR_NOT_SUPPORTED,
        "the driver of device %d has no stream ids, so a destroyed stream could not be told from "
        "the next at its pointer: use tarn_stream_adopt(), and tarn_stream_retire() before the "
        "stream is "
        "destroyed",
        device->number);
}

/* The slot of a native stream, which is entered if it is new. If no slot is free, waits for all
 * work of the device: then slots of found streams that were destroyed are free. */
static tarn_status find_or_enter(struct device *device, const struct native *native,
                                 struct stream **known, unsigned *incarnation)
{
    tarn_status status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    for (int attempt = 0; attempt < 2 && status == TARN_ERROR_OUT_OF_HOST_MEMORY; attempt++) {
        if (attempt > 0 &&
            device_wait(device, "a wait for the work of streams that were destroyed"))
            break;
        mutex_lock(&entering);
        status = look_up_or_enter(device, native, known);
        *incarnation = status ? 0 : atomic_load(&(*known)->incarnation);
        mutex_unlock(&entering);
    }
    return status;
}

tarn_status tarn_stream_find(int device, void *native, tarn_stream *stream)
{
    struct device *found = NULL;
    struct stream *known = NULL;
    unsigned incarnation = 0;
    struct native new = {.stream = native, .origin = STREAM_IS_ADOPTED, .found = true};
    tarn_status status = find_native(device, native, stream, &found, &known);
    if (known)
        *stream = stream_value(known);
    if (status || known)
        return status;
    status = driver->stream_number(device, native, &new.number);
    if (status && status != TARN_ERROR_CAPTURE)
        return status == TARN_ERROR_NOT_SUPPORTED ? refuse_numberless(found)
                                                  : device_note(found, status);
    if (!find_at_once(found, native, new.number, &known, &incarnation)) {
        status = find_or_enter(found, &new, &known, &incarnation);
        if (status)
            return status;
    }
    stream_prove(known, incarnation);
    *stream = stream_value_of(known, incarnation);
    return TARN_OK;
}

/* For calls that end a value: the one that the thread's current stream has. */
static tarn_stream value_named(tarn_stream stream, const struct stream *found)
{
    return stream == TARN_STREAM_CURRENT ? thread_self()->current[found->device] : stream;
}

tarn_status tarn_stream_retire(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = stream_of_call(stream, &found);
    if (status)
        return status;
    stream = value_named(stream, found);
    bool constant = found == device_at(found->device)->legacy ||
                    atomic_load_explicit(&found->owner, memory_order_relaxed);
    if (constant && stream != TARN_STREAM_LEGACY && stream != TARN_STREAM_PER_THREAD)
        return TARN_OK; /* adopted by a vendor's constant: nothing was entered */
    mutex_lock(&entering);
    bool callers = found->origin == STREAM_IS_ADOPTED, adopted = found->adoptions > 0;
    if (stream > TARN_STREAM_PER_THREAD && stream_value(found) != stream)
        /* Fails if another thread has ended it meanwhile */
        status = stream_find(stream, thread_device(), &found);
    else if (!adopted && !(callers && stream_is_found(found)))
        status = failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "only a stream that was adopted or found can be retired; a leased one is returned");
    else if (found->adoptions > 1 || !callers)
        found->adoptions--;
    else {
        status = retire_named(found);
        if (!status)
            found->adoptions = 0;
    }
    mutex_unlock(&entering);
    return status;
}

/* The index of a priority in a device's tables, and the priority that it stands for. */
static tarn_status priority_index(const struct device *device, int *priority, int *index)
{
    if (*priority > 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "priority %d: 0 is the lowest, higher ones are negative", *priority);
    int greatest = device->properties.greatest_priority;
    if (greatest <= -STREAM_PRIORITIES)
        greatest = -STREAM_PRIORITIES + 1;
    if (*priority < greatest)
        *priority = greatest;
    *index = -*priority;
    return TARN_OK;
}

/* The start of the calls that give one of tarn's own streams. */
static tarn_status find_to_give(int number, const tarn_stream *stream, int *priority,
                                struct device **device, int *index)
{
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(number, device);
    if (!status)
        status = device_check(*device);
    return status ? status : priority_index(*device, priority, index);
}

tarn_status tarn_stream_shared_get(int device, int priority, tarn_stream *stream)
{
    struct device *found = NULL;
    int index = 0;
    tarn_status status = find_to_give(device, stream, &priority, &found, &index);
    if (status)
        return status;

    mutex_lock(&found->lock);
    struct stream **place =
        &found->shared[index][found->shared_next[index] % TARN_STREAM_SHARED_COUNT];
    struct stream *shared = *place;
    if (shared)
        found->shared_next[index]++;
    mutex_unlock(&found->lock);

    /* Created without the lock; if two threads create the same one, the second gets another place
     * or is destroyed */
    if (!shared) {
        status = stream_create(found, priority, STREAM_IS_SHARED, &shared);
        if (status)
            return status;
        mutex_lock(&found->lock);
        unsigned tried = 0;
        while (tried < TARN_STREAM_SHARED_COUNT &&
               found->shared[index][found->shared_next[index] % TARN_STREAM_SHARED_COUNT]) {
            found->shared_next[index]++;
            tried++;
        }
        if (tried < TARN_STREAM_SHARED_COUNT) {
            found->shared[index][found->shared_next[index]++ % TARN_STREAM_SHARED_COUNT] = shared;
        } else {
            /* Other threads have made all shared streams meanwhile: lease this one out instead. */
            shared->next = found->returned[index];
            found->returned[index] = shared;
            atomic_store(&shared->returned, true);
            shared = found->shared[index][found->shared_next[index]++ % TARN_STREAM_SHARED_COUNT];
        }
        mutex_unlock(&found->lock);
    }
    *stream = stream_value(shared);
    return TARN_OK;
}

tarn_status tarn_stream_lease(int device, int priority, tarn_stream *stream)
{
    struct device *found = NULL;
    int index = 0;
    tarn_status status = find_to_give(device, stream, &priority, &found, &index);
    if (status)
        return status;

    mutex_lock(&found->lock);
    struct stream *leased = found->returned[index];
    if (leased) {
        found->returned[index] = leased->next;
        leased->leased = true;
        atomic_store(&leased->returned, false);
    }
    mutex_unlock(&found->lock);

    if (!leased) {
        status = stream_create(found, priority, STREAM_IS_LEASED, &leased);
        if (status)
            return status;
        leased->leased = true; /* nobody else knows it yet */
    }
    *stream = stream_value(leased);
    return TARN_OK;
}

static tarn_status refuse_not_leased(tarn_stream stream)
{
    return failed(TARN_ERROR_INVALID_ARGUMENT, "stream %#llx is not on lease",
                  (unsigned long long)stream);
}

/* The end of a stream of tarn's that can only be destroyed, which ends the capture. What was queued
 * before the capture still runs. The place of a shared stream gets a fresh one when it is next
 * handed out; nobody gets the old one's next incarnation. */
static tarn_status abandoned_end(struct stream *stream, tarn_stream value, bool leased, bool *is)
{
    struct device *device = device_at(stream->device);
    mutex_lock(&entering);
    mutex_lock(&device->lock);
    *is = stream->leased == leased && !atomic_load(&stream->returned) &&
          stream_value(stream) == value;
    struct stream **places = device->shared[-stream->priority];
    for (int i = 0; *is && !leased && i < TARN_STREAM_SHARED_COUNT; i++)
        places[i] = places[i] == stream ? NULL : places[i];
    mutex_unlock(&device->lock);
    driver_stream native = stream->native;
    tarn_status status = *is ? stream_retire(stream) : TARN_OK;
    mutex_unlock(&entering);
    return status || !*is ? status
                          : device_note(device, driver->stream_destroy(device->number, native));
}

tarn_status stream_end_abandoned(struct stream *stream, tarn_stream value, bool *is)
{
    *is = stream->origin == STREAM_IS_SHARED && is_abandoned(stream);
    return *is ? abandoned_end(stream, value, false, is) : TARN_OK;
}

tarn_status tarn_stream_return(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = stream_of_call(stream, &found);
    if (status)
        return status;
    stream = value_named(stream, found);
    bool leased = false;
    if (is_abandoned(found)) {
        status = abandoned_end(found, stream, true, &leased);
        return leased ? status : refuse_not_leased(stream);
    }
    if (stream_awaits_end(found))
        return failed(TARN_ERROR_CAPTURE,
                      "a return: stream %#llx of device %d captures; first end the capture",
                      (unsigned long long)stream, found->device);
    status = stream_refuse_capture(found, "a return");
    if (status)
        return status;
    struct device *device = device_at(found->device);
    mutex_lock(&entering);
    mutex_lock(&device->lock);
    /* Not the next lease, beside another return */
    leased = found->leased && stream_value(found) == stream;
    if (leased) {
        found->adoptions = 0; /* they end with the value */
        found->leased = false;
        atomic_store(&found->returned, true);
        atomic_fetch_add_explicit(&found->leases, 1, memory_order_release);
        found->next = device->returned[-found->priority];
        device->returned[-found->priority] = found;
    }
    mutex_unlock(&device->lock);
    mutex_unlock(&entering);
    if (!leased)
        return refuse_not_leased(stream);
    process_changed(); /* threads remember heaps and handles by value */
    return TARN_OK;
}

bool streams_returned(struct device *device)
{
    bool any = false;
    mutex_lock(&device->lock);
    for (int i = 0; i < STREAM_PRIORITIES && !any; i++)
        any = device->returned[i];
    mutex_unlock(&device->lock);
    return any;
}
