/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The cache: one thread's slabs of one heap. The fast path of the whole library is here: no lock, no atomic
 * read-modify-write, no driver call, and no touch of device memory.
 *
 * Who may touch what. The thread in `thread` works between cache_enter() and cache_leave(), or under the heap's lock. Anyone
 * else works under the heap's lock after revoking: it sets `revoked`, has every processor pass a barrier (membarrier), and waits
 * until the cache is not `busy`. So the owner pays two plain stores and a load. A slab is in one of three places: current
 * in its class, in the class's list (with a free slot), or in neither (full). */
#ifndef TARN_MEMORY_CACHE_H
#define TARN_MEMORY_CACHE_H

#include "base/process.h"
#include "memory/slab.h"

/* What a cache has counted and not yet published: plain adds of its thread, read by anyone. Small blocks only. */
struct cache_counts {
    _Atomic uint32_t taken[SLAB_CLASSES], given[SLAB_CLASSES]; /* blocks by class */
    _Atomic int64_t requested_taken, requested_given;          /* bytes */
    _Atomic int64_t net;                                       /* bytes, rounded */
};

#define CACHE_UNPUBLISHED ((int64_t)1 << 20) /* bytes: a peak is low by at most that a cache */
#define CACHE_EMPTY_BYTES ((size_t)1 << 20)  /* of empty slabs that a cache keeps beside the current ones */

struct cache {
    atomic_bool busy, revoked;
    _Atomic(struct thread *) thread;    /* NULL: nobody has it, the next thread that wants one takes it */
    struct slab *current[SLAB_CLASSES]; /* never NULL: slab_none has no slots */
    struct cache_counts counts;
    struct slab *listed[SLAB_CLASSES];
    size_t empty_bytes;                   /* of the slots of slabs in `listed` that are all free */
    _Atomic(struct slab_remote *) remote; /* anyone pushes: words of slabs with frees by other threads */
    struct heap *heap;                    /* constant */
    bool bypassed;                        /* constant: stays revoked, so that every block takes the slow path */
    struct cache *next;                   /* heap lock: of the heap */
};

extern struct slab slab_none;

/* Where the system has no membarrier, every entry must be a barrier itself. Set once, before a second thread. */
extern bool cache_entry_is_barrier;

static inline bool cache_enter(struct cache *cache)
{
    if (cache_entry_is_barrier)
        atomic_exchange_explicit(&cache->busy, true, memory_order_seq_cst);
    else
        atomic_store_explicit(&cache->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (!atomic_load_explicit(&cache->revoked, memory_order_acquire))
        return true;
    atomic_store_explicit(&cache->busy, false, memory_order_release);
    return false;
}

static inline void cache_leave(struct cache *cache)
{
    atomic_store_explicit(&cache->busy, false, memory_order_release);
}

#define CACHE_ADD(counter, change) \
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + (change), memory_order_relaxed)

static inline int64_t cache_count_taken(struct cache_counts *counts, unsigned class, size_t size, size_t requested)
{
    CACHE_ADD(&counts->taken[class], 1);
    CACHE_ADD(&counts->requested_taken, (int64_t)requested);
    CACHE_ADD(&counts->net, (int64_t)size);
    return atomic_load_explicit(&counts->net, memory_order_relaxed);
}

static inline int64_t cache_count_given(struct cache_counts *counts, unsigned class, size_t size, size_t requested)
{
    CACHE_ADD(&counts->given[class], 1);
    CACHE_ADD(&counts->requested_given, (int64_t)requested);
    CACHE_ADD(&counts->net, -(int64_t)size);
    return atomic_load_explicit(&counts->net, memory_order_relaxed);
}

/* Makes the first slab of a class's list the current one, in place of one without free slots. By who may touch the cache. */
struct slab *cache_next(struct cache *cache, unsigned class);

/* A slot for `requested` bytes, 1 to SLAB_MOST, out of the current slab; 0 when the slow path must be taken: also where
 * requests may have another way to go than when the thread last asked. By the cache's thread. */
static inline uintptr_t cache_take_fast(struct cache *cache, const struct thread *thread, size_t requested)
{
    unsigned class = slab_class(requested);
    uintptr_t address = 0;
    if (!cache_enter(cache))
        return 0;
    struct slab *slab = cache->current[class];
    if (!slab->top && cache->listed[class])
        slab = cache_next(cache, class);
    bool routed = thread->changes == atomic_load_explicit(&process_changes, memory_order_relaxed);
    if (routed && slab->top && atomic_load_explicit(&cache->counts.net, memory_order_relaxed) < CACHE_UNPUBLISHED) {
        address = slab_address(slab, slab_take(slab, requested, 0));
        cache_count_taken(&cache->counts, class, slab->slot_size, requested);
    }
    cache_leave(cache);
    return address;
}

/* Puts a slab that was full into its class's list. By who may touch the cache. */
static inline void cache_list(struct cache *cache, struct slab *slab)
{
    struct slab *first = cache->listed[slab->class];
    slab->listed = true;
    slab->previous = NULL;
    slab->next = first;
    if (first)
        first->previous = slab;
    cache->listed[slab->class] = slab;
}

/* Frees the live block at an address of a slab; false when the slow path must be taken: for another thread's block, one
 * that another stream has used, one that is not live, or a slab that would be empty
 * where enough are. */
static inline bool cache_give_fast(struct slab *slab, uintptr_t address, const struct thread *thread)
{
    struct cache *cache = slab_owner(slab);
    if (atomic_load_explicit(&cache->thread, memory_order_relaxed) != thread || !cache_enter(cache))
        return false;
    unsigned slot = slab_slot(slab, address);
    bool current = slab == cache->current[slab->class];
    bool room = current || slab->top + 1 < slab->slots || cache->empty_bytes < CACHE_EMPTY_BYTES;
    bool simple = room && slab_address(slab, slot) == address && slab_is_live(slab, slot) &&
                  !atomic_load_explicit(&slab->uses, memory_order_relaxed) &&
                  atomic_load_explicit(&cache->counts.net, memory_order_relaxed) > -CACHE_UNPUBLISHED;
    if (simple) {
        cache_count_given(&cache->counts, slab->class, slab->slot_size, slab_requested(slab, slot));
        slab_give(slab, slot);
        if (!current && !slab->listed)
            cache_list(cache, slab);
        if (!current && slab->top == slab->slots)
            cache->empty_bytes += (size_t)slab->slots * slab->slot_size;
    }
    cache_leave(cache);
    return simple;
}

/* The calling thread's cache of a heap; NULL with an error text when the host is out of memory. */
struct cache *cache_of(struct heap *heap);

/* The slow path: a slot of the cache for a request, out of frees of other threads, of another slab, or of a new one, for which
 * with `grow` the ladder is climbed. Takes the heap's lock. */
tarn_status cache_take(struct cache *cache, const struct request *request, bool grow, uintptr_t *address);

/* Makes a taken slot free: in the cache if the caller's thread has it, else for its owner to find. Heap lock held. Counts nothing. */
void cache_give_locked(struct slab *slab, unsigned slot);

/* The same by a thread that has no lock: one atomic operation, and a second for the first of a word. False when the slot is
 * not taken or was freed so before. */
bool cache_give_remote(struct slab *slab, unsigned slot);

/* Takes every cache of a heap from its thread for a moment: finds what other threads freed, gives empty slabs back to the heap and
 * publishes what was counted. */
void caches_reclaim_locked(struct heap *heap);

/* Closes the fast path of a heap's caches for good: the stream was retired, or tarn is shut down. */
void caches_close_locked(struct heap *heap);

/* Closes the fast path of a heap's caches because the device is lost. Takes no lock but the list's. */
void caches_lose(struct heap *heap);

/* Opens the fast path of a heap's caches again, at the start of its next life. */
void caches_open_locked(struct heap *heap);

/* Publishes what the heap's caches have counted, and leaves them their slabs. */
void caches_publish_locked(struct heap *heap);

/* Adds what the heap's caches have counted and not published. */
void caches_count_locked(struct heap *heap, tarn_stats *stats);

/* Gives the ending thread's caches up, with their slabs, to later threads. */
void caches_of_thread_end(struct thread *thread);

/* Before the first use. */
void caches_init(void);

#endif
