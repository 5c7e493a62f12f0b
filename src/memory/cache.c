/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slow side of caches: where a thread's current slab comes from, what other threads have freed, and the taking of a cache
 * from its thread. Everything here but cache_give_remote() and the ends of cache_of() runs under the heap's lock, which a
 * cache's thread never waits for while it is busy. */
#include "memory/cache.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/debug.h"
#include "memory/ladder.h"
#include "memory/wait.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct slab slab_none;
bool cache_entry_is_barrier;

static struct object_pool caches = OBJECT_POOL(struct cache);

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0u, 0);
}

void caches_init(void)
{
    slab_tables_fill();
    cache_entry_is_barrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
}

/* Publishing ------------------------------------------------------------------------------------------------------ */

static struct counters_small counted(const struct cache_counts *counts)
{
    struct counters_small sum = {
        .requested_taken = atomic_load_explicit(&counts->requested_taken, memory_order_relaxed),
        .requested_given = atomic_load_explicit(&counts->requested_given, memory_order_relaxed),
    };
    for (unsigned class = 0; class < SLAB_CLASSES; class ++) {
        int64_t taken = atomic_load_explicit(&counts->taken[class], memory_order_relaxed);
        int64_t given = atomic_load_explicit(&counts->given[class], memory_order_relaxed);
        sum.taken += taken;
        sum.given += given;
        sum.bytes_taken += taken * slab_sizes[class];
        sum.bytes_given += given * slab_sizes[class];
    }
    return sum;
}

static void publish_locked(struct cache *cache)
{
    struct counters_small sum = counted(&cache->counts);
    struct cache_counts *counts = &cache->counts;
    for (unsigned class = 0; class < SLAB_CLASSES; class ++) {
        atomic_store_explicit(&counts->taken[class], 0, memory_order_relaxed);
        atomic_store_explicit(&counts->given[class], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&counts->requested_taken, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->requested_given, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->net, 0, memory_order_relaxed);
    counters_publish(cache->heap->store->counters, &sum);
}

void caches_count_locked(struct heap *heap, tarn_stats *stats)
{
    for (struct cache *cache = heap->caches; cache; cache = cache->next) {
        struct counters_small sum = counted(&cache->counts);
        counters_add_small(stats, &sum);
    }
}

/* Slabs ----------------------------------------------------------------------------------------------------------- */

static bool is_empty(const struct slab *slab)
{
    return slab->top == slab->slots;
}

/* Whether no thread has anything of the slab: it is empty, and none of its words is listed, or about to be, for a block that two
 * threads freed at once. */
static bool is_quiet(const struct slab *slab)
{
    uint64_t freed = 0;
    for (int word = 0; word < SLAB_SLOTS / 64; word++)
        freed |= atomic_load_explicit(&slab->remote[word].freed, memory_order_relaxed);
    return is_empty(slab) && !freed;
}

static size_t slot_bytes(const struct slab *slab)
{
    return (size_t)slab->slots * slab->slot_size;
}

static void unlist(struct cache *cache, struct slab *slab)
{
    if (slab->next)
        slab->next->previous = slab->previous;
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        cache->listed[slab->class] = slab->next;
    slab->listed = false;
    if (is_empty(slab))
        cache->empty_bytes -= slot_bytes(slab);
}

struct slab *cache_next(struct cache *cache, unsigned class)
{
    struct slab *slab = cache->listed[class];
    unlist(cache, slab);
    return cache->current[class] = slab;
}

/* Finds the place of a slab that is not current and has just got free slots: the list, or, when it is empty and the cache
 * has enough of such, the heap. */
static void place_locked(struct cache *cache, struct slab *slab)
{
    struct heap *heap = cache->heap;
    if (!is_empty(slab)) {
        if (!slab->listed)
            cache_list(cache, slab);
        return;
    }
    bool keep = !is_quiet(slab) ||
                (!heap_is_left_behind_locked(heap) && !cache->bypassed && cache->empty_bytes < CACHE_EMPTY_BYTES);
    if (keep) {
        if (!slab->listed)
            cache_list(cache, slab);
        cache->empty_bytes += slot_bytes(slab);
        return;
    }
    if (slab->listed) {
        cache->empty_bytes += slot_bytes(slab); /* which unlist() takes off again */
        unlist(cache, slab);
    }
    slab_destroy_locked(heap, slab);
}

/* The same for a slab that may be current: then it stays so, but in a cache that keeps nothing. */
static void got_slots_locked(struct cache *cache, struct slab *slab)
{
    if (cache->current[slab->class] == slab) {
        if (!is_quiet(slab) || !(heap_is_left_behind_locked(cache->heap) || cache->bypassed))
            return;
        cache->current[slab->class] = &slab_none;
    }
    place_locked(cache, slab);
}

static void make_current_locked(struct cache *cache, struct slab *slab)
{
    struct slab *before = cache->current[slab->class];
    cache->current[slab->class] = slab;
    if (before->top)
        place_locked(cache, before);
}

static void drain_word_locked(struct cache *cache, struct slab_remote *remote)
{
    struct slab *slab = remote->slab;
    unsigned first = (unsigned)(remote - slab->remote) * 64;
    uint64_t freed = atomic_exchange_explicit(&remote->freed, 0, memory_order_acq_rel);
    bool was_empty = is_empty(slab);
    for (; freed; freed &= freed - 1) {
        unsigned slot = first + (unsigned)__builtin_ctzll(freed);
        if (slab_is_taken(slab, slot))
            slab_give(slab, slot);
        else
            log_write(LOG_ERRORS, "the block at %#zx was freed twice, by two threads",
                      (size_t)slab_address(slab, slot));
    }
    if (!was_empty)
        got_slots_locked(cache, slab);
}

/* Takes up what other threads have freed. */
static void drain_locked(struct cache *cache)
{
    struct slab_remote *remote = atomic_exchange_explicit(&cache->remote, NULL, memory_order_acquire);
    while (remote) {
        struct slab_remote *next = remote->next; /* once drained, the word may be listed anew */
        drain_word_locked(cache, remote);
        remote = next;
    }
}

bool cache_give_remote(struct slab *slab, unsigned slot)
{
    struct cache *cache = slab_owner(slab);
    struct slab_remote *remote = &slab->remote[slot / 64];
    uint64_t bit = UINT64_C(1) << (slot % 64);
    if (!slab_is_taken(slab, slot))
        return false;
    uint64_t before = atomic_fetch_or_explicit(&remote->freed, bit, memory_order_acq_rel);
    if (before & bit)
        return false;
    if (before)
        return true; /* whoever set the first bit lists the word; it is not drained before that */
    struct slab_remote *first = atomic_load_explicit(&cache->remote, memory_order_relaxed);
    do
        remote->next = first;
    while (!atomic_compare_exchange_weak_explicit(&cache->remote, &first, remote, memory_order_release,
                                                  memory_order_relaxed));
    return true;
}

void cache_give_locked(struct slab *slab, unsigned slot)
{
    struct cache *cache = slab_owner(slab);
    struct thread *thread = atomic_load_explicit(&cache->thread, memory_order_relaxed);
    if (thread && thread != thread_here) {
        (void)cache_give_remote(slab, slot);
        return;
    }
    slab_give(slab, slot);
    got_slots_locked(cache, slab);
}

/* The current slab of a class with a free slot, from what is at hand. False when a new slab is needed. */
static bool refill_locked(struct cache *cache, unsigned class)
{
    for (int round = 0; round < 2; round++) {
        drain_locked(cache);
        if (cache->current[class]->top)
            return true;
        if (cache->listed[class]) {
            cache_next(cache, class);
            return true;
        }
        if (!cache->heap->waiting || !wait_collect_locked(cache->heap))
            return false;
    }
    return cache->current[class]->top != 0;
}

/* Makes a slab of a held span the current one. */
static tarn_status add_slab_locked(struct cache *cache, unsigned class, struct span *span)
{
    struct slab *slab = slab_create_locked(span, class, cache);
    if (!slab) {
        span_return_locked(cache->heap, span);
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    make_current_locked(cache, slab);
    return TARN_OK;
}

tarn_status cache_take(struct cache *cache, const struct request *request, bool grow, uintptr_t *address)
{
    struct heap *heap = cache->heap;
    unsigned class = slab_class(request->size);
    struct span *span = NULL;
    tarn_status status = TARN_OK;

    mutex_lock(&heap->lock);
    if (!(status = store_check(heap->store)) && !refill_locked(cache, class)) {
        status = span_take_locked(heap, ZONE_SMALL, slab_span_size(class), MAP_PAGE, &span);
        if (status == TARN_ERROR_OUT_OF_MEMORY && grow) {
            mutex_unlock(&heap->lock);
            status = ladder_climb(heap, ZONE_SMALL, slab_span_size(class), MAP_PAGE, &span);
            mutex_lock(&heap->lock);
        } else if (status == TARN_ERROR_OUT_OF_MEMORY) {
            status = span_take_locked(heap, ZONE_LARGE, slab_span_size(class), MAP_PAGE, &span);
        }
        if (!status)
            status = add_slab_locked(cache, class, span);
    }
    if (!status) {
        struct slab *slab = cache->current[class];
        *address = slab_address(slab, slab_take(slab, request->requested, request->tag));
        int64_t net = cache_count_taken(&cache->counts, class, slab->slot_size, request->requested);
        if (net >= CACHE_UNPUBLISHED || net <= -CACHE_UNPUBLISHED)
            publish_locked(cache);
    }
    mutex_unlock(&heap->lock);
    return status;
}

/* Whose a cache is ------------------------------------------------------------------------------------------------ */

/* Has every processor that runs this process pass a barrier: what a cache's thread did before it, this thread sees, and the
 * other way round. */
static void barrier_everywhere(void)
{
    if (!cache_entry_is_barrier)
        (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

static void revoke_locked(struct heap *heap)
{
    for (struct cache *cache = heap->caches; cache; cache = cache->next)
        atomic_store_explicit(&cache->revoked, true, memory_order_seq_cst);
    barrier_everywhere();
    for (struct cache *cache = heap->caches; cache; cache = cache->next)
        while (atomic_load_explicit(&cache->busy, memory_order_acquire))
            sched_yield();
}

/* Gives all empty slabs of a cache to the heap. */
static void shed_locked(struct cache *cache)
{
    for (unsigned class = 0; class < SLAB_CLASSES; class ++) {
        for (struct slab *slab = cache->listed[class], *next; slab; slab = next) {
            next = slab->next;
            if (is_quiet(slab)) {
                unlist(cache, slab);
                slab_destroy_locked(cache->heap, slab);
            }
        }
        struct slab *current = cache->current[class];
        if (current != &slab_none && is_quiet(current)) {
            cache->current[class] = &slab_none;
            slab_destroy_locked(cache->heap, current);
        }
    }
}

/* Opens the fast path again, unless it is closed for good: here, or by a device that was lost a moment ago. */
static void hand_back(struct cache *cache)
{
    if (cache->bypassed)
        return;
    atomic_store(&cache->revoked, false);
    if (atomic_load(&cache->heap->arena->device->lost))
        atomic_store(&cache->revoked, true);
}

void caches_lose(struct heap *heap)
{
    mutex_lock(&heap->caches_lock);
    for (struct cache *cache = heap->caches; cache; cache = cache->next)
        atomic_store(&cache->revoked, true);
    mutex_unlock(&heap->caches_lock);
}

static void take_back_locked(struct heap *heap, bool for_good)
{
    if (!heap->caches)
        return;
    revoke_locked(heap);
    for (struct cache *cache = heap->caches; cache; cache = cache->next) {
        drain_locked(cache);
        shed_locked(cache);
        publish_locked(cache);
        cache->bypassed = cache->bypassed || for_good;
        hand_back(cache);
    }
}

void caches_publish_locked(struct heap *heap)
{
    if (!heap->caches)
        return;
    revoke_locked(heap);
    for (struct cache *cache = heap->caches; cache; cache = cache->next) {
        publish_locked(cache);
        hand_back(cache);
    }
}

void caches_reclaim_locked(struct heap *heap)
{
    take_back_locked(heap, false);
}

void caches_close_locked(struct heap *heap)
{
    take_back_locked(heap, true);
}

void caches_open_locked(struct heap *heap)
{
    for (struct cache *cache = heap->caches; cache; cache = cache->next) {
        cache->bypassed = debug_bypasses_caches();
        hand_back(cache);
    }
}

/* A cache of the heap that no thread has, or a new one. */
static struct cache *adopt_locked(struct heap *heap, struct thread *thread)
{
    struct cache *cache = heap->caches;
    while (cache && atomic_load_explicit(&cache->thread, memory_order_relaxed))
        cache = cache->next;
    if (!cache) {
        cache = object_alloc(&caches);
        if (!cache)
            return NULL;
        for (unsigned class = 0; class < SLAB_CLASSES; class ++)
            cache->current[class] = &slab_none;
        cache->heap = heap;
        cache->bypassed = heap_is_left_behind_locked(heap) || debug_bypasses_caches();
        atomic_store_explicit(&cache->revoked, true, memory_order_relaxed);
        mutex_lock(&heap->caches_lock);
        cache->next = heap->caches;
        heap->caches = cache;
        mutex_unlock(&heap->caches_lock);
        hand_back(cache);
    }
    atomic_store_explicit(&cache->thread, thread, memory_order_release);
    return cache;
}

static void give_up(struct cache *cache)
{
    struct heap *heap = cache->heap;
    mutex_lock(&heap->lock);
    publish_locked(cache);
    atomic_store_explicit(&cache->thread, NULL, memory_order_release);
    if (heap_is_left_behind_locked(heap)) {
        drain_locked(cache);
        shed_locked(cache);
    }
    mutex_unlock(&heap->lock);
}

/* Makes the thread's table of caches reach a heap's number. */
static bool table_grow(struct thread *thread, unsigned slot)
{
    unsigned slots = thread->cache_slots ? thread->cache_slots : 16;
    while (slots <= slot)
        slots *= 2;
    struct cache **table = pages_alloc(slots * sizeof(struct cache *));
    if (!table)
        return false;
    if (thread->caches)
        memcpy(table, thread->caches, thread->cache_slots * sizeof(struct cache *));
    pages_free(thread->caches, thread->cache_slots * sizeof(struct cache *));
    thread->caches = table;
    thread->cache_slots = slots;
    return true;
}

struct cache *cache_of(struct heap *heap)
{
    struct thread *thread = thread_self();
    unsigned slot = heap->number;
    if (!thread)
        return NULL;
    if (slot >= thread->cache_slots && !table_grow(thread, slot)) {
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a thread's table of caches");
        return NULL;
    }
    struct cache *cache = thread->caches[slot];
    if (cache)
        return cache;
    mutex_lock(&heap->lock);
    cache = adopt_locked(heap, thread);
    mutex_unlock(&heap->lock);
    if (!cache)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a cache");
    thread->caches[slot] = cache;
    return cache;
}

void caches_of_thread_end(struct thread *thread)
{
    for (unsigned slot = 0; slot < thread->cache_slots; slot++)
        if (thread->caches[slot])
            give_up(thread->caches[slot]);
    pages_free(thread->caches, thread->cache_slots * sizeof(struct cache *));
    thread->caches = NULL;
    thread->cache_slots = 0;
    thread_forget_caches(thread);
}
