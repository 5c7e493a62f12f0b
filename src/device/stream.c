/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of stream slots, the streams that tarn makes, and each thread's current stream.
 *
 * A value is (generation, slot). Slots are never freed; a retired slot is used again only when the work of the stream
 * that had it has finished, so that a block which that stream used can always tell whether it must still wait.
 * Locks: `table_lock` for the table and adoption, then a slot's, then a device's for its lists; never the other way round. */
#include "device/stream.h"
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"

#define CHUNK_SLOTS 256
#define CHUNKS 256
#define FIRST_SLOT 2u /* the values 0 and 1 are the constants, so generation 0 starts here */

static mutex table_lock = MUTEX_INITIALIZER(LOCK_STREAMS);
static _Atomic(struct stream *) chunks[CHUNKS]; /* written under table_lock */
static atomic_uint slots_used = FIRST_SLOT;     /* table_lock to change */
static unsigned reuse_from = FIRST_SLOT;        /* table_lock: where the search for a retired slot goes on */
static tarn_status (*retire_callback)(struct stream *stream); /* set once, before a second thread */

static struct stream *slot_at(unsigned slot)
{
    return atomic_load_explicit(&chunks[slot / CHUNK_SLOTS], memory_order_acquire) + slot % CHUNK_SLOTS;
}

tarn_stream stream_value(const struct stream *stream)
{
    return (tarn_stream)atomic_load_explicit(&stream->generation, memory_order_relaxed) << 32 | stream->slot;
}

void stream_on_retire(tarn_status (*callback)(struct stream *stream))
{
    retire_callback = callback;
}

/* A retired slot whose last work has finished, or NULL. Looks at so many slots at most. */
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

/* Puts a native stream into a slot. */
static tarn_status stream_enter_locked(int device, driver_stream native, int priority, enum stream_origin origin,
                                       struct stream **result)
{
    struct stream *stream = NULL;
    tarn_status status = slot_take_locked(&stream);
    if (!status) {
        stream->device = device;
        stream->native = native;
        stream->priority = priority;
        stream->origin = origin;
        stream->adoptions = 1;
        stream->leased = false;
        stream->next = NULL;
        *result = stream;
    }
    return status;
}

static tarn_status stream_enter(int device, driver_stream native, int priority, enum stream_origin origin,
                                struct stream **result)
{
    mutex_lock(&table_lock);
    tarn_status status = stream_enter_locked(device, native, priority, origin, result);
    mutex_unlock(&table_lock);
    return status;
}

tarn_status stream_make_legacy(struct device *device)
{
    return device->legacy ? TARN_OK : stream_enter(device->number, NULL, 0, STREAM_IS_LEGACY, &device->legacy);
}

/* Makes a driver stream and puts it into a slot. */
static tarn_status stream_create(struct device *device, int priority, enum stream_origin origin, struct stream **result)
{
    driver_stream native = NULL;
    tarn_status status = device_check(device);
    if (status)
        return status;
    status = device_note(device, driver->stream_create(device->number, priority, origin == STREAM_IS_THREADS, &native));
    if (status)
        return status;
    status = stream_enter(device->number, native, priority, origin, result);
    if (status)
        driver->stream_destroy(device->number, native);
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
        mutex_lock(&device->lock);
        stream = device->thread_ended;
        if (stream)
            device->thread_ended = stream->next;
        mutex_unlock(&device->lock);
        if (!stream) {
            tarn_status status = stream_create(device, 0, STREAM_IS_THREADS, &stream);
            if (status)
                return status;
        }
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
        struct device *device = device_at(i);
        mutex_lock(&device->lock);
        stream->next = device->thread_ended;
        device->thread_ended = stream;
        mutex_unlock(&device->lock);
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

    unsigned slot = (unsigned)(value & 0xffffffffu), generation = (unsigned)(value >> 32);
    if (slot < FIRST_SLOT || slot >= atomic_load_explicit(&slots_used, memory_order_acquire))
        return failed(TARN_ERROR_INVALID_STREAM, "stream %#llx was never given out", (unsigned long long)value);
    struct stream *stream = slot_at(slot);
    if (atomic_load_explicit(&stream->generation, memory_order_acquire) != generation)
        return failed(TARN_ERROR_INVALID_STREAM, "stream %#llx was retired", (unsigned long long)value);
    *result = stream;
    return TARN_OK;
}

tarn_status stream_current(int device, struct stream **result)
{
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    return stream_find(thread->current[device], device, result);
}

tarn_status mark_of_stream(struct stream *stream, unsigned generation, struct mark **mark)
{
    mutex_lock(&stream->lock); /* the native stream may be destroyed once its retirement is through */
    bool current = atomic_load_explicit(&stream->generation, memory_order_acquire) == generation;
    tarn_status status = current ? mark_record(stream, mark) : TARN_OK;
    mutex_unlock(&stream->lock);
    if (current)
        return status;
    /* Retired since. A slot that has moved on by more than one generation was reused, hence its first stream finished. */
    mutex_lock(&table_lock);
    bool last = atomic_load_explicit(&stream->generation, memory_order_relaxed) == generation + 1;
    *mark = last && stream->origin == STREAM_UNUSED ? mark_keep(stream->last_work) : NULL;
    mutex_unlock(&table_lock);
    return TARN_OK;
}

tarn_status tarn_stream_get(int device, tarn_stream *stream)
{
    struct device *found = NULL;
    struct stream *current = NULL;
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = device_find(device, &found)) || (status = stream_current(device, &current)))
        return status;
    *stream = stream_value(current);
    return TARN_OK;
}

tarn_status tarn_stream_set(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = device_layer_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)))
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    thread->current[found->device] = stream_value(found);
    thread_forget_caches(thread);
    return TARN_OK;
}

static struct stream *adopted_locked(int device, driver_stream native)
{
    unsigned used = atomic_load_explicit(&slots_used, memory_order_relaxed);
    for (unsigned slot = FIRST_SLOT; slot < used; slot++) {
        struct stream *stream = slot_at(slot);
        if (stream->origin == STREAM_IS_ADOPTED && stream->adoptions > 0 && stream->device == device &&
            stream->native == native)
            return stream;
    }
    return NULL;
}

static struct stream *adopt_again_locked(int device, void *native)
{
    struct stream *known = adopted_locked(device, native);
    if (known)
        known->adoptions++;
    return known;
}

/* The driver is asked about a stream before it has a slot: one that it does not know could never be retired. Where it fails otherwise, the
 * stream may be right. */
static bool is_none_of_the_driver(const struct device *device, void *native)
{
    struct driver_capture capture;
    struct error_before before;
    error_attempt_begin(&before);
    tarn_status status = driver->capture_status(device->number, native, &capture);
    bool none = status == TARN_ERROR_INVALID_STREAM || status == TARN_ERROR_INVALID_ARGUMENT;
    error_attempt_end(&before, none ? TARN_ERROR_INVALID_STREAM : TARN_OK);
    return none;
}

tarn_status tarn_stream_adopt(int device, void *native, tarn_stream *stream)
{
    struct device *found = NULL;
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = device_find(device, &found)))
        return status;
    if (!native) {
        *stream = stream_value(found->legacy);
        return TARN_OK;
    }
    mutex_lock(&table_lock);
    struct stream *known = adopt_again_locked(device, native);
    mutex_unlock(&table_lock);
    if (!known && is_none_of_the_driver(found, native))
        return TARN_ERROR_INVALID_STREAM;
    mutex_lock(&table_lock);
    if (!known && !(known = adopt_again_locked(device, native)))
        status = stream_enter_locked(device, native, 0, STREAM_IS_ADOPTED, &known);
    if (!status)
        *stream = stream_value(known);
    mutex_unlock(&table_lock);
    return status;
}

/* Ends a stream's generation: its last work is marked, its heap told, its slot free once that work has finished. */
static tarn_status stream_retire(struct stream *stream)
{
    struct mark *last_work = NULL;
    tarn_status status = mark_record(stream, &last_work);
    if (status == TARN_ERROR_CAPTURE)
        return failed(TARN_ERROR_CAPTURE, "stream %#llx of device %d captures; first end the capture, then retire it",
                      (unsigned long long)stream_value(stream), stream->device);
    if (status)
        return status;
    if (retire_callback && (status = retire_callback(stream))) {
        mark_release(last_work);
        return status;
    }
    mutex_lock(&table_lock);
    mutex_lock(&stream->lock);
    atomic_fetch_add_explicit(&stream->generation, 1, memory_order_release);
    stream->last_work = last_work;
    stream->origin = STREAM_UNUSED;
    stream->native = NULL;
    mutex_unlock(&stream->lock);
    mutex_unlock(&table_lock);
    process_changed();
    return TARN_OK;
}

tarn_status tarn_stream_retire(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = device_layer_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)))
        return status;
    if (found == device_at(found->device)->legacy && stream != TARN_STREAM_LEGACY)
        return TARN_OK; /* adopted as NULL: nothing was entered */
    /* One caller alone takes the last adoption; whoever adopts the same native stream from then on gets another slot. */
    mutex_lock(&table_lock);
    bool adopted = found->origin == STREAM_IS_ADOPTED && found->adoptions > 0;
    bool last = adopted && --found->adoptions == 0;
    mutex_unlock(&table_lock);
    if (!adopted)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "only a stream that was adopted can be retired; a leased one is returned");
    if (!last || !(status = stream_retire(found)))
        return TARN_OK;
    mutex_lock(&table_lock);
    found->adoptions++;
    mutex_unlock(&table_lock);
    return status;
}

/* The index of a priority in a device's tables, and the priority that it stands for. */
static tarn_status priority_index(const struct device *device, int *priority, int *index)
{
    if (*priority > 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "priority %d: 0 is the lowest, higher ones are negative", *priority);
    int greatest = device->properties.greatest_priority;
    if (greatest <= -STREAM_PRIORITIES)
        greatest = -STREAM_PRIORITIES + 1;
    if (*priority < greatest)
        *priority = greatest;
    *index = -*priority;
    return TARN_OK;
}

tarn_status tarn_stream_from_pool(int device, int priority, tarn_stream *stream)
{
    struct device *found = NULL;
    int index = 0;
    if (!stream)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "stream is NULL");
    tarn_status status = device_layer_ready();
    if (status || (status = device_find(device, &found)) || (status = priority_index(found, &priority, &index)))
        return status;

    mutex_lock(&found->lock);
    struct stream **place = &found->pool[index][found->pool_next[index] % TARN_STREAM_POOL_SIZE];
    struct stream *pooled = *place;
    if (pooled)
        found->pool_next[index]++;
    mutex_unlock(&found->lock);

    if (!pooled) { /* made outside the lock; where two threads make the same one, the second finds a place of its own or goes */
        status = stream_create(found, priority, STREAM_IS_POOLED, &pooled);
        if (status)
            return status;
        mutex_lock(&found->lock);
        unsigned tried = 0;
        while (tried < TARN_STREAM_POOL_SIZE && found->pool[index][found->pool_next[index] % TARN_STREAM_POOL_SIZE]) {
            found->pool_next[index]++;
            tried++;
        }
        if (tried < TARN_STREAM_POOL_SIZE) {
            found->pool[index][found->pool_next[index]++ % TARN_STREAM_POOL_SIZE] = pooled;
        } else { /* the pool filled up meanwhile: this one serves leases */
            pooled->next = found->returned[index];
            found->returned[index] = pooled;
            pooled = found->pool[index][found->pool_next[index]++ % TARN_STREAM_POOL_SIZE];
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
    if (status || (status = device_find(device, &found)) || (status = priority_index(found, &priority, &index)))
        return status;

    mutex_lock(&found->lock);
    struct stream *leased = found->returned[index];
    if (leased) {
        found->returned[index] = leased->next;
        leased->leased = true;
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

tarn_status tarn_stream_return(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = device_layer_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)) ||
        (status = stream_refuse_capture(found, "a return")))
        return status;
    struct device *device = device_at(found->device);
    mutex_lock(&device->lock);
    bool leased = found->leased;
    if (leased) {
        found->leased = false;
        found->next = device->returned[-found->priority];
        device->returned[-found->priority] = found;
    }
    mutex_unlock(&device->lock);
    return leased ? TARN_OK
                  : failed(TARN_ERROR_INVALID_ARGUMENT, "stream %#llx is not on lease", (unsigned long long)stream);
}

/* The start of the calls below: the slot of a value. */
static tarn_status find_for(tarn_stream value, const void *result, struct stream **stream)
{
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the place for the result is NULL");
    tarn_status status = device_layer_ready();
    return status ? status : stream_find(value, thread_device(), stream);
}

tarn_status tarn_stream_native(tarn_stream stream, void **native)
{
    struct stream *found = NULL;
    tarn_status status = find_for(stream, native, &found);
    if (!status)
        *native = found->native;
    return status;
}

tarn_status tarn_stream_device(tarn_stream stream, int *device)
{
    struct stream *found = NULL;
    tarn_status status = find_for(stream, device, &found);
    if (!status)
        *device = found->device;
    return status;
}

tarn_status tarn_stream_priority(tarn_stream stream, int *priority)
{
    struct stream *found = NULL;
    tarn_status status = find_for(stream, priority, &found);
    if (!status)
        *priority = found->priority;
    return status;
}

/* The stream of a value, which must not capture: the question would end the capture. */
static tarn_status find_to_ask(tarn_stream value, struct stream **stream, const char *what)
{
    tarn_status status = find_for(value, stream, stream);
    return status ? status : stream_refuse_capture(*stream, what);
}

tarn_status tarn_stream_query(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = find_to_ask(stream, &found, "a query");
    if (status)
        return status;
    return device_note(device_at(found->device), driver->stream_query(found->device, found->native));
}

tarn_status tarn_stream_synchronize(tarn_stream stream)
{
    struct stream *found = NULL;
    tarn_status status = find_to_ask(stream, &found, "a wait for a stream");
    if (status)
        return status;
    return device_note(device_at(found->device), driver->stream_synchronize(found->device, found->native));
}

tarn_status tarn_stream_guard_set(tarn_stream_guard *guard, tarn_stream stream)
{
    struct stream *found = NULL;
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    *guard = (tarn_stream_guard){0};
    tarn_status status = device_layer_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)))
        return status;
    tarn_stream_guard result = {.device = found->device, .active = true};
    status = tarn_device_exchange(found->device, &result.previous_device);
    if (status)
        return status;
    struct thread *thread = thread_self();
    result.previous = thread->current[found->device];
    thread->current[found->device] = stream_value(found);
    thread_forget_caches(thread);
    *guard = result;
    return TARN_OK;
}

tarn_status tarn_stream_guard_restore(tarn_stream_guard *guard)
{
    if (!guard)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "guard is NULL");
    if (!guard->active)
        return TARN_OK;
    tarn_status status = device_layer_ready();
    if (status)
        return status;
    struct thread *thread = thread_self();
    if (!thread)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    status = tarn_device_set(guard->previous_device);
    if (status)
        return status;
    thread->current[guard->device] = guard->previous;
    thread_forget_caches(thread);
    guard->active = false;
    return TARN_OK;
}

void streams_destroy(void)
{
    unsigned used = atomic_load(&slots_used);
    for (unsigned slot = FIRST_SLOT; slot < used; slot++) {
        struct stream *stream = slot_at(slot);
        mark_release(stream->last_work);
        stream->last_work = NULL;
        bool ours = stream->origin == STREAM_IS_POOLED || stream->origin == STREAM_IS_LEASED ||
                    stream->origin == STREAM_IS_THREADS;
        if (ours)
            driver->stream_destroy(stream->device, stream->native);
    }
}
