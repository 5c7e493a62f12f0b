/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The slow path of caches: fills and empties magazines, collects slots that other threads have
 * freed, revokes caches. Invariants: a slot is at home, in its class's magazine, or taken; a slab
 * is listed exactly while one of its slots is at home; the note of a slot that is at home or in a
 * magazine says free. Everything here runs under the heap's lock, except cache_give_remote() and
 * parts of cache_of(). A cache's thread never waits for that lock while it is busy. */
#include "memory/heap/cache.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/settings/hooks.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct magazine magazine_none;
bool cache_entry_is_barrier;

static struct object_pool caches = OBJECT_POOL(struct cache);

/* Pools of magazines, by capacity: slots of 256 KiB in all, but 16 to 128 slots. */
enum { MAGAZINE_LEAST = 16, MAGAZINE_MOST = 128, MAGAZINE_BYTES = 256 << 10 };
#define MAGAZINE(slots)                                                            \
    {                                                                              \
        .lock = MUTEX_INITIALIZER(LOCK_OBJECTS), .name = "magazine of " #slots,    \
        .size = sizeof(struct magazine) + (slots) * sizeof(struct magazine_entry), \
        .zeroed = sizeof(struct magazine)                                          \
    }
static struct object_pool magazines[] = {MAGAZINE(16), MAGAZINE(32), MAGAZINE(64), MAGAZINE(128)};

static unsigned magazine_size(size_t slot_size, struct object_pool **pool)
{
    unsigned slots = MAGAZINE_LEAST;
    for (*pool = magazines; slots < MAGAZINE_MOST && 2 * slots * slot_size <= MAGAZINE_BYTES;
         slots *= 2)
        ++*pool;
    return slots;
}

static long membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0u, 0);
}

void caches_init(void)
{
    slab_tables_fill();
    cache_entry_is_barrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
}

/* Publishing ----------------------------------------------------------------------------------- */

static struct counters_small counted(const struct cache_counts *counts)
{
    return (struct counters_small){
        .taken = atomic_load_explicit(&counts->taken, memory_order_relaxed),
        .given = atomic_load_explicit(&counts->given, memory_order_relaxed),
        .bytes_taken = atomic_load_explicit(&counts->bytes_taken, memory_order_relaxed),
        .bytes_given = atomic_load_explicit(&counts->bytes_given, memory_order_relaxed),
        .requested_taken = atomic_load_explicit(&counts->requested_taken, memory_order_relaxed),
        .requested_given = atomic_load_explicit(&counts->requested_given, memory_order_relaxed),
    };
}

static void publish_locked(struct cache *cache)
{
    struct cache_counts *counts = &cache->counts;
    struct counters_small sum = counted(counts);
    atomic_store_explicit(&counts->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->given, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->bytes_taken, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->bytes_given, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->requested_taken, 0, memory_order_relaxed);
    atomic_store_explicit(&counts->requested_given, 0, memory_order_relaxed);
    counters_publish(cache->heap->store->counters, &sum);
}

static void publish_if_due_locked(struct cache *cache)
{
    int64_t unpublished = cache_unpublished(&cache->counts);
    if (unpublished >= CACHE_UNPUBLISHED || unpublished <= -CACHE_UNPUBLISHED)
        publish_locked(cache);
}

void caches_count_locked(const struct caches *list, tarn_stats *stats)
{
    for (struct cache *cache = list->first; cache; cache = cache->next) {
        struct counters_small sum = counted(&cache->counts);
        counters_add_small(stats, &sum);
    }
}

/* Slabs ---------------------------------------------------------------------------------------- */

static bool is_empty(const struct slab *slab)
{
    return slab->homes == slab->slots;
}

/* Whether no thread touches the slab: it is empty, and no word of it is listed. Two threads that
 * free one block at the same time may list a word after the slot came home. */
static bool is_quiet(const struct slab *slab)
{
    uint64_t freed = 0;
    for (int word = 0; word < SLAB_SLOTS / 64; word++)
        freed |= atomic_load_explicit(&slab->freed[word], memory_order_relaxed);
    return is_empty(slab) && !freed;
}

static size_t slot_bytes(const struct slab *slab)
{
    return (size_t)slab->slots * slab->slot_size;
}

static void list(struct cache *cache, struct slab *slab)
{
    struct slab *first = cache->listed[slab->class];
    slab->previous = NULL;
    slab->next = first;
    if (first)
        first->previous = slab;
    cache->listed[slab->class] = slab;
}

static void unlist(struct cache *cache, struct slab *slab)
{
    if (slab->next)
        slab->next->previous = slab->previous;
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        cache->listed[slab->class] = slab->next;
}

/* Gives a listed slab that is quiet to the heap. */
static void end_locked(struct cache *cache, struct slab *slab)
{
    cache->empty_bytes -= slot_bytes(slab);
    unlist(cache, slab);
    slab_destroy_locked(cache->heap, slab);
}

/* Sends a slot home; its note says free. If the slab is then empty and the cache has enough empty
 * slabs, gives the slab to the heap. */
static void come_home_locked(struct cache *cache, struct slab *slab, unsigned slot)
{
    slab_come_home(slab, slot);
    if (slab->homes == 1)
        list(cache, slab);
    if (!is_empty(slab))
        return;
    bool keep = !heap_is_left_behind_locked(cache->heap) && !cache->bypassed &&
                cache->empty_bytes < CACHE_EMPTY_BYTES;
    cache->empty_bytes += slot_bytes(slab);
    if (!keep && is_quiet(slab))
        end_locked(cache, slab);
}

/* Takes a slot that is at home. */
static struct magazine_entry leave_home(struct cache *cache, struct slab *slab)
{
    if (is_empty(slab))
        cache->empty_bytes -= slot_bytes(slab);
    unsigned slot = slab_leave_home(slab);
    if (!slab->homes)
        unlist(cache, slab);
    return (struct magazine_entry){slab_address(slab, slot), &slab->notes[slot]};
}

/* Fills a magazine by half. Takes slots from slabs that are not empty; from an empty one only if
 * the magazine has none. */
static void fill(struct cache *cache, unsigned class)
{
    struct magazine *magazine = cache->magazines[class];
    unsigned half = magazine->limit / 2;
    for (struct slab *slab = cache->listed[class], *next; slab && magazine->top < half;
         slab = next) {
        next = slab->next;
        if (is_empty(slab) && magazine->top)
            continue;
        unsigned count = half - magazine->top < slab->homes ? half - magazine->top : slab->homes;
        for (unsigned i = count; i-- > 0;) /* the lowest on top */
            magazine->entries[magazine->top + i] = leave_home(cache, slab);
        magazine->top += count;
    }
}

/* Creates the magazine of a class if there is none. If the host has no memory for it, there is
 * still none. */
static void magazine_make(struct cache *cache, unsigned class)
{
    struct object_pool *pool = NULL;
    if (cache->magazines[class] != &magazine_none)
        return;
    unsigned limit = magazine_size(slab_sizes[class], &pool);
    struct magazine *magazine = object_alloc(pool);
    if (!magazine)
        return;
    magazine->limit = limit;
    magazine->slot_size = slab_sizes[class];
    cache->magazines[class] = magazine;
}

/* Frees an empty magazine. The next block of its class creates one. */
static void magazine_drop(struct cache *cache, unsigned class)
{
    struct object_pool *pool = NULL;
    struct magazine *magazine = cache->magazines[class];
    if (magazine == &magazine_none)
        return;
    (void)magazine_size(slab_sizes[class], &pool);
    cache->magazines[class] = &magazine_none;
    object_free(pool, magazine);
}

/* Sends the oldest slots of a magazine home, all except `keep`. */
static void flush_locked(struct cache *cache, struct magazine *magazine, unsigned keep)
{
    if (magazine->top <= keep)
        return; /* magazine_none, which all caches share, is never written */
    unsigned count = magazine->top - keep;
    for (unsigned i = 0; i < count; i++) {
        struct slab *slab = map_slab(map_get(magazine->entries[i].address));
        come_home_locked(cache, slab, slab_slot(slab, magazine->entries[i].address));
    }
    magazine->top -= count;
    memmove(magazine->entries, magazine->entries + count,
            magazine->top * sizeof *magazine->entries);
}

/* Corrects the counters after the second free of a block, which was counted like the first. The
 * note still has the block's size. */
static void found_twice_locked(struct cache *cache, const struct slab *slab, unsigned slot)
{
    log_write(LOG_ERRORS, "the block at %#zx was freed twice, by two threads",
              (size_t)slab_address(slab, slot));
    counters_not_freed(cache->heap->store->counters, slab->slot_size, slab_requested(slab, slot));
}

/* The block in a slot was freed without the heap's lock just before graphs were noted to refer to
 * it. */
static void end_note_locked(struct slab *slab, unsigned slot)
{
    struct use **uses = atomic_load_explicit(&slab->uses, memory_order_relaxed),
               *note = uses ? use_take_referred(&uses[slot]) : NULL;
    if (note)
        hooks.referred_end_remotely(note);
}

static void drain_word_locked(struct cache *cache, struct slab_remote *remote)
{
    struct slab *slab = remote->slab;
    unsigned word = (unsigned)(remote - slab->remote);
    uint64_t freed = atomic_exchange_explicit(&slab->freed[word], 0, memory_order_acq_rel);
    for (uint64_t left = freed; left; left &= left - 1) {
        unsigned slot = word * 64 + (unsigned)__builtin_ctzll(left);
        if (!slab_is_taken(slab, slot)) {
            found_twice_locked(cache, slab, slot);
            freed &= ~(left & -left);
        }
        if (slab_state(slab, slot) == NOTE_USED)
            end_note_locked(slab, slot);
        slab_note_end(&slab->notes[slot], slab_note_of(slab, slot));
    }
    for (; freed; freed &= freed - 1) /* the last one may end the slab */
        come_home_locked(cache, slab, word * 64 + (unsigned)__builtin_ctzll(freed));
}

/* Collects the slots that other threads have freed. tests/spin/cache_freed.pml is a model of this
 * and of cache_give_remote(). */
static void drain_locked(struct cache *cache)
{
    struct slab_remote *remote =
        atomic_exchange_explicit(&cache->remote, NULL, memory_order_acq_rel);
    while (remote) {
        struct slab_remote *next = remote->next; /* after the drain the word may be listed again */
        drain_word_locked(cache, remote);
        remote = next;
    }
}

static void hand_back(struct cache *cache);

/* If the caller sees `resting` false after this, the drain that comes after `resting` is set finds
 * the word. */
static bool give_remote(struct slab *slab, unsigned slot)
{
    struct cache *cache = slab_owner(slab);
    struct slab_remote *remote = &slab->remote[slot / 64];
    uint64_t bit = UINT64_C(1) << (slot % 64);
    if (!slab_is_taken(slab, slot))
        return false;
    uint64_t before = atomic_fetch_or_explicit(&slab->freed[slot / 64], bit, memory_order_acq_rel);
    if (before & bit)
        return false;
    /* The thread that set the first bit lists the word; it is not drained before that. */
    if (before)
        return true;
    struct slab_remote *first = atomic_load_explicit(&cache->remote, memory_order_relaxed);
    do
        remote->next = first;
    while (!atomic_compare_exchange_weak_explicit(&cache->remote, &first, remote,
                                                  memory_order_acq_rel, memory_order_relaxed));
    return true;
}

/* Ends the rest of a heap's caches, because one is used or one of its blocks was freed. Opens the
 * fast paths. What was known of the heap may be wrong now. */
static void wake_locked(struct heap *heap)
{
    if (!atomic_load_explicit(&heap->caches.resting, memory_order_relaxed))
        return;
    atomic_store(&heap->caches.resting, false);
    if (heap->sets.known)
        heap_changed_locked(heap);
    for (struct cache *cache = heap->caches.first; cache; cache = cache->next)
        hand_back(cache);
}

bool cache_give_remote(struct slab *slab, unsigned slot)
{
    struct heap *heap = slab_owner(slab)->heap;
    bool given = give_remote(slab, slot);
    if (given && atomic_load_explicit(&heap->caches.resting, memory_order_acquire)) {
        mutex_lock(&heap->lock);
        wake_locked(heap);
        mutex_unlock(&heap->lock);
    }
    return given;
}

void cache_give_locked(struct slab *slab, unsigned slot)
{
    struct cache *cache = slab_owner(slab);
    struct thread *thread = atomic_load_explicit(&cache->thread, memory_order_relaxed);
    if (thread && thread != thread_here) {
        if (!give_remote(slab, slot))
            found_twice_locked(cache, slab, slot);
        wake_locked(cache->heap);
        return;
    }
    wake_locked(cache->heap);
    slab_note_end(&slab->notes[slot], slab_note_of(slab, slot));
    if (thread && !cache->bypassed)
        magazine_make(cache, slab->class); /* it may have been dropped since the block was taken */
    struct magazine *magazine = cache->magazines[slab->class];
    if (magazine->top == magazine->limit)
        flush_locked(cache, magazine, magazine->limit / 2);
    publish_if_due_locked(cache);
    come_home_locked(cache, slab, slot);
}

/* Whether the cache has a free slot of a class, after collecting slots that other threads have
 * freed. */
static bool has_slot_locked(struct cache *cache, unsigned class)
{
    drain_locked(cache);
    return cache->magazines[class]->top || cache->listed[class];
}

/* Cuts a taken span into a slab. */
static tarn_status add_slab_locked(struct cache *cache, unsigned class, struct span *span)
{
    struct slab *slab = slab_create_locked(span, class, cache);
    if (!slab) {
        span_return_locked(cache->heap, span);
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    list(cache, slab);
    cache->empty_bytes += slot_bytes(slab);
    return TARN_OK;
}

/* Takes a slot of a class; has_slot_locked() is true. */
static struct magazine_entry slot_take_locked(struct cache *cache, unsigned class)
{
    struct magazine *magazine = cache->magazines[class];
    if (magazine->top)
        return magazine->entries[--magazine->top];
    struct magazine_entry entry = leave_home(cache, cache->listed[class]);
    if (!cache->bypassed) {
        magazine_make(cache, class);
        fill(cache, class);
    }
    return entry;
}

static uintptr_t slot_hand_out_locked(struct cache *cache, const struct request *request,
                                      struct magazine_entry entry)
{
    size_t size = slab_sizes[slab_class(request->size)];
    slab_note_write(entry.note, size - request->requested, request->tag);
    cache_count_taken(&cache->counts, size, request->requested);
    trace_block(TRACE_alloc, cache->heap, entry.address, request->requested, request->tag);
    publish_if_due_locked(cache);
    return entry.address;
}

tarn_status cache_take(struct cache *cache, const struct request *request, struct span *span,
                       uintptr_t *address)
{
    struct heap *heap = cache->heap;
    unsigned class = slab_class(request->size);
    tarn_status status = TARN_OK;

    mutex_lock(&heap->lock);
    wake_locked(heap);
    if (span)
        status = add_slab_locked(cache, class, span);
    else {
        status = store_check(heap->store);
        if (!status && !has_slot_locked(cache, class))
            status = TARN_ERROR_OUT_OF_MEMORY;
    }
    if (!status)
        *address = slot_hand_out_locked(cache, request, slot_take_locked(cache, class));
    mutex_unlock(&heap->lock);
    return status;
}

uint64_t caches_slots_locked(const struct caches *list)
{
    uint64_t classes = 0;
    for (const struct cache *cache = list->first; cache; cache = cache->next)
        for (unsigned class = 0; class < SLAB_CLASSES; class ++)
            classes |= (uint64_t)(cache->listed[class] != NULL) << class;
    return classes;
}

/* The gates open again, by wake_locked(), after the slot was taken. */
tarn_status cache_take_any(struct heap *heap, const struct request *request, uintptr_t *address)
{
    unsigned class = slab_class(request->size);
    mutex_lock(&heap->lock);
    caches_reclaim_locked(heap);
    struct cache *cache = heap->caches.first;
    while (cache && !cache->listed[class])
        cache = cache->next;
    tarn_status status = cache ? store_check(heap->store) : TARN_ERROR_OUT_OF_MEMORY;
    if (!status) {
        *address = slot_hand_out_locked(cache, request, leave_home(cache, cache->listed[class]));
        wake_locked(heap);
    }
    mutex_unlock(&heap->lock);
    return status;
}

/* Who owns a cache ----------------------------------------------------------------------------- */

/* Makes every processor that runs this process pass a barrier. Afterwards the calling thread sees
 * what the cache's thread did before the barrier, and the other way round. */
static void barrier_everywhere(void)
{
    if (!cache_entry_is_barrier)
        (void)membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

/* Shuts the gates of caches and waits until no thread uses one.
 * tests/spin/cache_taking.pml is a model of this and of hand_back(), cache_enter() and
 * cache_leave(). Without membarrier, entries are sequentially consistent, and so this load of
 * `busy` must be: an acquiring load could come before the store of the gate. */
static void revoke_locked(const struct caches *list)
{
    for (struct cache *cache = list->first; cache; cache = cache->next)
        atomic_store_explicit(&cache->gate, CACHE_REVOKED, memory_order_seq_cst);
    barrier_everywhere();
    for (struct cache *cache = list->first; cache; cache = cache->next)
        while (atomic_load_explicit(&cache->busy, memory_order_seq_cst))
            sched_yield();
}

/* Gives all empty slabs of a cache to the heap, and frees its magazines. A thread may have a cache
 * for every heap that it ever used, and the magazines of all classes are many times as large as the
 * cache. */
static void shed_locked(struct cache *cache)
{
    for (unsigned class = 0; class < SLAB_CLASSES; class ++) {
        flush_locked(cache, cache->magazines[class], 0);
        magazine_drop(cache, class);
        for (struct slab *slab = cache->listed[class], *next; slab; slab = next) {
            next = slab->next;
            if (is_quiet(slab))
                end_locked(cache, slab);
        }
    }
}

/* Opens the fast path again, unless the heap rests or the cache is bypassed. The device may be lost
 * at the same time: then the gate is shut again. */
static void hand_back(struct cache *cache)
{
    if (cache->bypassed || atomic_load_explicit(&cache->heap->caches.resting, memory_order_relaxed))
        return;
    unsigned char gate = cache_entry_is_barrier ? CACHE_BARRIER : CACHE_OPEN;
    if (trace_is_on() && heap_place(cache->heap))
        gate |= CACHE_TRACED;
    atomic_store(&cache->gate, gate);
    if (atomic_load(&cache->heap->arena->device->lost))
        atomic_store(&cache->gate, CACHE_REVOKED);
}

void caches_lose(struct caches *list)
{
    mutex_lock(&list->lock);
    for (struct cache *cache = list->first; cache; cache = cache->next)
        atomic_store(&cache->gate, CACHE_REVOKED);
    mutex_unlock(&list->lock);
}

static void take_back_locked(struct heap *heap, bool for_good)
{
    if (atomic_load_explicit(&heap->caches.resting, memory_order_relaxed) && !for_good)
        return; /* no cache was used since the last time */
    atomic_store(&heap->caches.resting, true);
    if (!heap->caches.first)
        return;
    revoke_locked(&heap->caches);
    for (struct cache *cache = heap->caches.first; cache; cache = cache->next) {
        drain_locked(cache);
        shed_locked(cache);
        publish_locked(cache);
        cache->bypassed = cache->bypassed || for_good;
    }
}

void caches_publish_locked(struct caches *list)
{
    if (!list->first)
        return;
    revoke_locked(list);
    for (struct cache *cache = list->first; cache; cache = cache->next) {
        publish_locked(cache);
        hand_back(cache);
    }
}

void caches_stop_locked(struct caches *list)
{
    if (!list->first)
        return;
    revoke_locked(list);
    for (struct cache *cache = list->first; cache; cache = cache->next)
        drain_locked(cache);
}

void caches_go_on_locked(struct caches *list)
{
    for (struct cache *cache = list->first; cache; cache = cache->next)
        hand_back(cache);
}

void caches_reclaim_locked(struct heap *heap)
{
    take_back_locked(heap, false);
}

void caches_close_locked(struct heap *heap)
{
    parked_close_locked(heap);
    take_back_locked(heap, true);
}

void caches_open_locked(struct heap *heap)
{
    parked_open_locked(heap);
    for (struct cache *cache = heap->caches.first; cache; cache = cache->next) {
        cache->bypassed = fast_paths_are_barred();
        hand_back(cache);
    }
}

/* Gives the thread a cache of the heap that has no thread, or a new one. NULL if the host has no
 * memory. */
static struct cache *adopt_locked(struct heap *heap, struct thread *thread)
{
    struct cache *cache = heap->caches.first;
    while (cache && atomic_load_explicit(&cache->thread, memory_order_relaxed))
        cache = cache->next;
    if (!cache) {
        cache = object_alloc(&caches);
        if (!cache)
            return NULL;
        for (unsigned class = 0; class < SLAB_CLASSES; class ++)
            cache->magazines[class] = &magazine_none;
        cache->heap = heap;
        cache->bypassed = heap_is_left_behind_locked(heap) || fast_paths_are_barred();
        atomic_store_explicit(&cache->gate, CACHE_REVOKED, memory_order_relaxed);
        mutex_lock(&heap->caches.lock);
        cache->next = heap->caches.first;
        heap->caches.first = cache;
        mutex_unlock(&heap->caches.lock);
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

/* Enlarges the thread's table of caches so that it has an entry for a heap's number. */
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
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                     "no host memory for a thread's table of caches");
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
