/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of stream slots, the streams that tarn creates, and each thread's current stream.
 *
 * A value consists of incarnation, lease and slot. A retirement ends the incarnation of the slot. A
 * leased stream goes from one lease to the next with everything that belongs to it, but values of
 * earlier leases are invalid. Slots are never freed. A retired slot is reused only when the work of
 * its stream has finished, so that a block which that stream used can always find out whether it
 * must still wait. A thread's per-thread default stream has a slot too. If the vendor has such a
 * stream, its native handle is a constant that means a different stream in each thread, so only the
 * slot's owner passes it to the driver. The slot of a thread that has ended serves the next thread,
 * after that thread's stream has waited for the work of the old one.
 * Each native stream has one slot. It is found by the device's table (native.h), and by the
 * driver's number if there is one, because vendors reuse the pointer of a destroyed stream at once.
 * Code that enters or removes a native stream holds `entering`, also over driver calls, none of
 * which waits. For a *found* stream, no caller has promised to retire it; mark.c describes the
 * consequences. Lock order: `entering`, then the locks that a retirement takes of heaps, then
 * `streams_lock` for the slots, then the lock of a slot, then that of a device for its lists. */
#include "device/stream.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "device/capture.h"

#define CHUNK_SLOTS 256
#define CHUNKS 256
#define FIRST_SLOT 4u /* the values 0 to 3 are the constants, so incarnation 0 starts here */
#define SLOT_BITS 16
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
_Static_assert(CHUNKS *CHUNK_SLOTS == 1 << SLOT_BITS,
               "a value has as many bits for the slot as for the lease");

static mutex entering = MUTEX_INITIALIZER(LOCK_ENTERING);
static mutex streams_lock = MUTEX_INITIALIZER(LOCK_STREAMS);
static _Atomic(struct stream *) chunks[CHUNKS]; /* written under streams_lock */
static atomic_uint slots_used = FIRST_SLOT;     /* streams_lock to change */
static unsigned reuse_from = FIRST_SLOT;        /* streams_lock: where the next search for a retired
                                                   slot begins */
/* Set once, by the first use of memory */
static tarn_status (*_Atomic retire_callback)(struct stream *stream);

static struct stream *slot_at(unsigned slot)
{
    return atomic_load_explicit(&chunks[slot / CHUNK_SLOTS], memory_order_acquire) +
           slot % CHUNK_SLOTS;
}

/* The low bits of the number of its lease, as many as a value has room for. */
static unsigned lease_of(const struct stream *stream)
{
    return atomic_load_explicit(&stream->leases, memory_order_acquire) & SLOT_MASK;
}

static tarn_stream value_of(const struct stream *stream, unsigned incarnation)
{
    return (tarn_stream)incarnation << 32 | (tarn_stream)lease_of(stream) << SLOT_BITS |
           stream->slot;
}

tarn_stream stream_value(const struct stream *stream)
{
    return value_of(stream, atomic_load_explicit(&stream->incarnation, memory_order_relaxed));
}

void stream_on_retire(tarn_status (*callback)(struct stream *stream))
{
    atomic_store(&retire_callback, callback);
}

/* A retired slot whose last work has finished, or NULL. Looks at `most` slots at most. */
static struct stream *slot_reuse_locked(unsigned most)
{
    unsigned used = atomic_load_explicit(&slots_used, memory_order_relaxed);
    for (unsigned tries = 0; tries < most && tries < used - FIRST_SLOT; tries++) {
        if (reuse_from >= used)
            reuse_from = FIRST_SLOT;
        struct stream *stream = slot_at(reuse_from++);
        if (stream->origin != STREAM_UNUSED || (stream->last_work && mark_query(stream->last_work)))
            continue;
        mark_release(stream->last_work);
        stream->last_work = NULL;
        return stream;
    }
    return NULL;
}

static tarn_status slot_take_locked(struct stream **result)
{
    struct stream *stream = slot_reuse_locked(CHUNK_SLOTS);
    unsigned slot = atomic_load_explicit(&slots_used, memory_order_relaxed);
    if (!stream && slot >= CHUNK_SLOTS * CHUNKS)
        stream = slot_reuse_locked(slot); /* before giving up, every one */
    if (!stream) {
        if (slot >= CHUNK_SLOTS * CHUNKS)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                          "all %d stream slots of this process are in use; retire or return "
                          "streams that are no longer needed",
                          CHUNK_SLOTS * CHUNKS);
        if (!atomic_load_explicit(&chunks[slot / CHUNK_SLOTS], memory_order_relaxed)) {
            struct stream *chunk = pages_map(CHUNK_SLOTS * sizeof *chunk);
            if (!chunk)
                return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for stream slots");
            atomic_store_explicit(&chunks[slot / CHUNK_SLOTS], chunk, memory_order_release);
        }
        stream = slot_at(slot);
        stream->slot = slot;
        mutex_init(&stream->lock, LOCK_STREAM);
        atomic_store_explicit(&slots_used, slot + 1, memory_order_release);
    }
    *result = stream;
    return TARN_OK;
}

/* A stream of the driver, with the values for its slot. */
struct native {
    driver_stream stream;
    uint64_t number; /* 0 if the driver has none, or was not asked */
    int priority;
    enum stream_origin origin;
    bool found;
};

/* Whether the driver has a unique name for it. */
static bool has_name(const struct native *native)
{
    return native->stream && native->stream != driver->per_thread;
}

/* Puts a native stream into a slot. */
static tarn_status slot_fill_locked(struct device *device, const struct native *native,
                                    struct stream **result)
{
    struct stream *stream = NULL;
    tarn_status status = slot_take_locked(&stream);
    if (status)
        return status;
    mutex_lock(&stream->lock);
    struct mark *proof = stream->proof;
    stream->proof = NULL;
    atomic_store_explicit(&stream->owes, false, memory_order_relaxed);
    mutex_unlock(&stream->lock);
    mark_release(proof);
    stream->device = device->number;
    stream->native = native->stream;
    atomic_store_explicit(&stream->number, native->number, memory_order_release);
    atomic_store_explicit(&stream->found, native->found, memory_order_release);
    stream->owner = NULL;
    stream->priority = native->priority;
    stream->adoptions = 0;
    stream->leased = false;
    atomic_store_explicit(&stream->returned, false, memory_order_relaxed);
    atomic_store_explicit(&stream->abandoned, false, memory_order_relaxed);
    atomic_store_explicit(&stream->leases, 0, memory_order_relaxed);
    stream->next = NULL;
    if (has_name(native) && !native_enter(&device->natives, stream))
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the table of streams");
    stream->origin = native->origin;
    *result = stream;
    return TARN_OK;
}

static tarn_status enter_new(struct device *device, const struct native *native,
                             struct stream **result)
{
    mutex_lock(&streams_lock);
    tarn_status status = slot_fill_locked(device, native, result);
    mutex_unlock(&streams_lock);
    return status;
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
    mutex_lock(&streams_lock);
    mutex_lock(&stream->lock);
    native_leave(&device_at(stream->device)->natives, stream);
    atomic_fetch_add_explicit(&stream->incarnation, 1, memory_order_release);
    stream->last_work = last_work;
    stream->origin = STREAM_UNUSED;
    stream->native = NULL;
    mutex_unlock(&stream->lock);
    mutex_unlock(&streams_lock);
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
    struct stream *gone = has_name(native) ? native_find(&device->natives, native->stream) : NULL;
    tarn_status status = gone ? retire_gone(gone) : TARN_OK;
    if (!status)
        status = enter_new(device, native, result);
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

    unsigned slot = (unsigned)value & SLOT_MASK, lease = (unsigned)(value >> SLOT_BITS) & SLOT_MASK;
    unsigned incarnation = (unsigned)(value >> 32);
    if (slot < FIRST_SLOT || slot >= atomic_load_explicit(&slots_used, memory_order_acquire))
        return failed(TARN_ERROR_INVALID_STREAM, "stream %#llx was never given out",
                      (unsigned long long)value);
    struct stream *stream = slot_at(slot);
    if (atomic_load_explicit(&stream->incarnation, memory_order_acquire) != incarnation)
        return failed(TARN_ERROR_INVALID_STREAM, "stream %#llx was retired",
                      (unsigned long long)value);
    if (lease_of(stream) != lease)
        return failed(TARN_ERROR_INVALID_STREAM, "stream %#llx was returned",
                      (unsigned long long)value);
    *result = stream;
    return TARN_OK;
}

struct stream *stream_next(const struct device *device, unsigned *slot, unsigned *incarnation)
{
    struct stream *next = NULL;
    mutex_lock(&streams_lock);
    for (*slot = *slot < FIRST_SLOT ? FIRST_SLOT : *slot; !next && *slot < atomic_load(&slots_used);
         ++*slot) {
        struct stream *stream = slot_at(*slot);
        bool is_known = stream->origin != STREAM_UNUSED && !stream_is_found(stream) &&
                        !stream_is_foreign(stream);
        if (is_known && (!device || stream->device == device->number)) {
            *incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed);
            next = stream;
        }
    }
    mutex_unlock(&streams_lock);
    return next;
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
    mutex_lock(&stream->lock); /* the native stream may be destroyed once its retirement is
                                  through */
    bool current = atomic_load_explicit(&stream->incarnation, memory_order_acquire) == incarnation;
    tarn_status status = current ? mark_record(stream, mark) : TARN_OK;
    mutex_unlock(&stream->lock);
    if (current)
        return status;
    /* Retired since. If the incarnation has changed more than once, the slot was reused, so its
     * first stream has finished. */
    mutex_lock(&streams_lock);
    bool last = atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == incarnation + 1;
    *mark = last && stream->origin == STREAM_UNUSED ? mark_keep(stream->last_work) : NULL;
    mutex_unlock(&streams_lock);
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
    tarn_status status = device_layer_ready();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
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
    bool captures = native->found && !native->number; /* then it is the driver's, which must not be
                                                         asked more */
    if (!captures && is_none_of_the_driver(device, native->stream))
        return TARN_ERROR_INVALID_STREAM;
    return enter_new(device, native, known);
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
    *stream = value_of(known, incarnation);
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
    tarn_status status = device_layer_ready();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
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

tarn_status tarn_stream_shared_get(int device, int priority, tarn_stream *stream)
{
    struct device *found = NULL;
    int index = 0;
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = priority_index(found, &priority, &index);
    if (status)
        return status;

    mutex_lock(&found->lock);
    struct stream **place = &found->pool[index][found->pool_next[index] % TARN_STREAM_SHARED_COUNT];
    struct stream *pooled = *place;
    if (pooled)
        found->pool_next[index]++;
    mutex_unlock(&found->lock);

    /* Created without the lock; if two threads create the same one, the second gets another place
     * or is destroyed */
    if (!pooled) {
        status = stream_create(found, priority, STREAM_IS_POOLED, &pooled);
        if (status)
            return status;
        mutex_lock(&found->lock);
        unsigned tried = 0;
        while (tried < TARN_STREAM_SHARED_COUNT &&
               found->pool[index][found->pool_next[index] % TARN_STREAM_SHARED_COUNT]) {
            found->pool_next[index]++;
            tried++;
        }
        if (tried < TARN_STREAM_SHARED_COUNT) {
            found->pool[index][found->pool_next[index]++ % TARN_STREAM_SHARED_COUNT] = pooled;
        } else { /* the pool filled up meanwhile: this one serves leases */
            pooled->next = found->returned[index];
            found->returned[index] = pooled;
            atomic_store(&pooled->returned, true);
            pooled = found->pool[index][found->pool_next[index]++ % TARN_STREAM_SHARED_COUNT];
        }
        mutex_unlock(&found->lock);
    }
    *stream = stream_value(pooled);
    return TARN_OK;
}

tarn_status tarn_stream_lease(int device, int priority, tarn_stream *stream)
{
    struct device *found = NULL;
    int index = 0;
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found);
    if (!status)
        status = priority_index(found, &priority, &index);
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
    struct stream **places = device->pool[-stream->priority];
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
    *is = stream->origin == STREAM_IS_POOLED && is_abandoned(stream);
    return *is ? abandoned_end(stream, value, false, is) : TARN_OK;
}

tarn_status tarn_stream_return(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = device_layer_ready();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
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

void streams_destroy(void)
{
    unsigned used = atomic_load(&slots_used);
    for (unsigned slot = FIRST_SLOT; slot < used; slot++) {
        struct stream *stream = slot_at(slot);
        mark_release(stream->last_work);
        mark_release(stream->proof);
        stream->last_work = stream->proof = NULL;
        bool ours = stream->origin == STREAM_IS_POOLED || stream->origin == STREAM_IS_LEASED ||
                    (stream->origin == STREAM_IS_THREADS && !stream->owner);
        if (ours)
            driver->stream_destroy(stream->device, stream->native);
    }
}
