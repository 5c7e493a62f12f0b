/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of stream slots. A slot is never freed. A retired one is reused only when the work
 * of its stream has finished, so that a block which that stream used can always find out whether it
 * must still wait. `streams_lock` protects who is in which slot; readers of a slot need no lock,
 * they compare its incarnation. */
#include "device/stream_slots.h"
#include "base/pages.h"
#include "base/status.h"

#define CHUNK_SLOTS 256
#define CHUNKS 256
#define FIRST_SLOT 4u /* the values 0 to 3 are the constants, so incarnation 0 starts here */
#define SLOT_BITS 16
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
_Static_assert(CHUNKS *CHUNK_SLOTS == 1 << SLOT_BITS,
               "a value has as many bits for the slot as for the lease");

static mutex streams_lock = MUTEX_INITIALIZER(LOCK_STREAMS);
static _Atomic(struct stream *) chunks[CHUNKS]; /* written under streams_lock */
static atomic_uint slots_used = FIRST_SLOT;     /* streams_lock to change */
/* streams_lock: where the next search for a retired slot begins. */
static unsigned reuse_from = FIRST_SLOT;

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

tarn_stream stream_value_of(const struct stream *stream, unsigned incarnation)
{
    return (tarn_stream)incarnation << 32 | (tarn_stream)lease_of(stream) << SLOT_BITS |
           stream->slot;
}

tarn_stream stream_value(const struct stream *stream)
{
    return stream_value_of(stream,
                           atomic_load_explicit(&stream->incarnation, memory_order_relaxed));
}

/* Returns a retired slot whose last work has finished, or NULL. Looks at `most` slots at most. */
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
    if (native_has_name(native) && !native_enter(&device->natives, stream))
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the table of streams");
    stream->origin = native->origin;
    *result = stream;
    return TARN_OK;
}

tarn_status slot_enter(struct device *device, const struct native *native, struct stream **result)
{
    mutex_lock(&streams_lock);
    tarn_status status = slot_fill_locked(device, native, result);
    mutex_unlock(&streams_lock);
    return status;
}

void slot_leave(struct stream *stream, struct mark *last_work)
{
    mutex_lock(&streams_lock);
    mutex_lock(&stream->lock);
    native_leave(&device_at(stream->device)->natives, stream);
    atomic_fetch_add_explicit(&stream->incarnation, 1, memory_order_release);
    stream->last_work = last_work;
    stream->origin = STREAM_UNUSED;
    stream->native = NULL;
    mutex_unlock(&stream->lock);
    mutex_unlock(&streams_lock);
}

tarn_status slot_find(tarn_stream value, struct stream **result)
{
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

struct mark *slot_last_work(const struct stream *stream, unsigned incarnation)
{
    mutex_lock(&streams_lock);
    bool last = atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == incarnation + 1;
    struct mark *mark =
        last && stream->origin == STREAM_UNUSED ? mark_keep(stream->last_work) : NULL;
    mutex_unlock(&streams_lock);
    return mark;
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

void streams_destroy(void)
{
    unsigned used = atomic_load(&slots_used);
    for (unsigned slot = FIRST_SLOT; slot < used; slot++) {
        struct stream *stream = slot_at(slot);
        mark_release(stream->last_work);
        mark_release(stream->proof);
        stream->last_work = stream->proof = NULL;
        bool ours = stream->origin == STREAM_IS_SHARED || stream->origin == STREAM_IS_LEASED ||
                    (stream->origin == STREAM_IS_THREADS && !stream->owner);
        if (ours)
            driver->stream_destroy(stream->device, stream->native);
    }
}
