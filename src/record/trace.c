/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the rings and the tables of repeated values. The list of rings only grows. A ring whose
 * thread has ended keeps its records until another thread overwrites them. */
#include "record/trace.h"
#include "base/pages.h"

#include <sys/prctl.h>

#define LEAST_RECORDS 1024

/* Bytes at the start of a ring with pages of the usual size, so that a thread with few records
 * needs little memory. Behind them large pages are used: a thread that gets there writes much, and
 * page faults of the first round would cost as much as the records. */
#define SMALL_PART ((size_t)2 << 20)

struct intern trace_regions = INTERN(struct trace_region, INTERN_MOST),
              trace_threads = INTERN(struct trace_thread, UINT16_MAX),
              trace_texts = INTERN(struct trace_text, INTERN_MOST),
              trace_stacks = INTERN(struct trace_stack, INTERN_MOST / 8);

atomic_bool trace_on;
atomic_int trace_stack_mode;

static mutex rings_lock = MUTEX_INITIALIZER(LOCK_RINGS);
static _Atomic(struct trace_ring *) rings; /* changes under rings_lock */
static unsigned threads;                   /* rings_lock: threads that ever had a ring */
static atomic_size_t records_wanted;       /* size of new rings */
static atomic_uint_fast64_t records_lost;
static atomic_uint_fast64_t whole_since; /* time; UINT64_MAX while the trace is off */

static struct trace_ring *ring_make_locked(void)
{
    size_t records = atomic_load(&records_wanted);
    size_t bytes = sizeof(struct trace_ring) + records * sizeof(struct trace_record);
    struct trace_ring *ring = pages_map(bytes);
    if (!ring)
        return NULL;
    if (bytes > SMALL_PART)
        pages_prefer_large((char *)ring + SMALL_PART, bytes - SMALL_PART);
    ring->mask = records - 1;
    ring->bytes = bytes;
    ring->next = atomic_load_explicit(&rings, memory_order_relaxed);
    atomic_store_explicit(&rings, ring, memory_order_release);
    return ring;
}

bool trace_ring_fits(const struct trace_ring *ring)
{
    return ring->mask + 1 == atomic_load_explicit(&records_wanted, memory_order_relaxed);
}

/* A number for the calling thread; 0: none is left. */
static uint16_t number_locked(void)
{
    if (threads == UINT16_MAX)
        return 0;
    struct trace_thread thread = {.number = ++threads};
    (void)prctl(PR_GET_NAME, thread.name);
    (void)intern(&trace_threads, &thread); /* without host memory the thread has no name */
    return (uint16_t)threads;
}

struct trace_ring *trace_ring_take(uint16_t thread)
{
    mutex_lock(&rings_lock);
    struct trace_ring *ring = atomic_load_explicit(&rings, memory_order_relaxed);
    while (ring && (ring->taken || !trace_ring_fits(ring)))
        ring = ring->next;
    if (!ring)
        ring = ring_make_locked();
    if (ring) {
        ring->taken = true;
        ring->thread = thread ? thread : number_locked();
    }
    mutex_unlock(&rings_lock);
    return ring;
}

void trace_ring_leave(struct trace_ring *ring)
{
    if (!ring)
        return;
    mutex_lock(&rings_lock);
    ring->taken = false;
    mutex_unlock(&rings_lock);
}

void trace_lose(void)
{
    uint64_t now = ticks_now(), since = atomic_load(&whole_since);
    while (since < now && !atomic_compare_exchange_weak(&whole_since, &since, now))
        ;
    atomic_fetch_add_explicit(&records_lost, 1, memory_order_relaxed);
}

void trace_start(size_t records, enum trace_stack_mode stacks)
{
    size_t rounded = LEAST_RECORDS;
    while (rounded < records)
        rounded *= 2;
    if (stacks != TRACE_STACKS_NONE)
        trace_stacks_prepare();
    mutex_lock(&rings_lock);
    if (!atomic_load(&trace_on))
        atomic_store(&whole_since, UINT64_MAX);
    atomic_store(&records_wanted, rounded);
    atomic_store(&trace_stack_mode, (int)stacks);
    atomic_store(&trace_on, true);
    mutex_unlock(&rings_lock);
}

void trace_is_whole(void)
{
    mutex_lock(&rings_lock);
    if (atomic_load(&trace_on) && atomic_load(&whole_since) == UINT64_MAX)
        atomic_store(&whole_since, ticks_now());
    mutex_unlock(&rings_lock);
}

void trace_stop(void)
{
    mutex_lock(&rings_lock);
    atomic_store(&trace_on, false);
    atomic_store(&whole_since, UINT64_MAX);
    mutex_unlock(&rings_lock);
}

void trace_clear(void)
{
    mutex_lock(&rings_lock);
    for (struct trace_ring *ring = atomic_load(&rings); ring; ring = ring->next)
        atomic_store(&ring->begin, atomic_load_explicit(&ring->head, memory_order_acquire));
    atomic_store(&records_lost, 0);
    if (atomic_load(&whole_since) != UINT64_MAX)
        atomic_store(&whole_since, ticks_now());
    mutex_unlock(&rings_lock);
}

const struct trace_ring *trace_rings(uint64_t *lost, uint64_t *whole)
{
    *lost = atomic_load(&records_lost);
    *whole = atomic_load(&whole_since);
    return atomic_load_explicit(&rings, memory_order_acquire);
}
