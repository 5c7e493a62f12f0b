/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The cache: one thread's slabs of one heap, with a magazine of free slots per size class. It has
 * the fast path of the whole library: no lock, no atomic read-modify-write, no driver call, no
 * list, and no access to device memory.
 *
 * An allocation with its free touches the cache's first two lines, the top of a magazine, the
 * slot's note, and in the free a line of the slab. The free pushes the caller's address itself, so
 * that the pair does not wait for the look-ups that check it.
 *
 * Access: the thread in `thread` uses the cache between cache_enter() and cache_leave(), or under
 * the heap's lock. Other threads use it under the heap's lock after revoking it: they close the
 * gate, make every processor pass a barrier (membarrier), and wait until the cache is not `busy`.
 * So the owner pays only two plain stores and a load. A model checker has tried this
 * (tests/spin/cache_taking.pml, docs/testing.md): if you change one, change the other. */
#ifndef TARN_MEMORY_CACHE_H
#define TARN_MEMORY_CACHE_H

#include "base/thread/process.h"
#include "memory/heap/slab.h"
#include "memory/heap/traced.h"

/* Counts of a cache that are not published yet. Only its thread adds, without atomic operations;
 * any thread may read. Small blocks only. */
struct cache_counts {
    _Atomic int64_t taken, given;                     /* blocks */
    _Atomic int64_t bytes_taken, bytes_given;         /* rounded */
    _Atomic int64_t requested_taken, requested_given; /* bytes, as asked for */
};

#define CACHE_UNPUBLISHED ((int64_t)1 << 20) /* bytes: the most a peak may be too low, per cache */
/* Bytes of empty slabs that a cache keeps. The slab that exceeds it stays. */
#define CACHE_EMPTY_BYTES ((size_t)1 << 20)

/* Free slots of one class, in a stack. */
struct magazine {
    uint32_t top, limit; /* owner: slots in it; constant: the most */
    uint32_t slot_size;  /* bytes */
    struct magazine_entry {
        uintptr_t address;
        slab_note *note;
    } entries[];
};

struct cache {
    /* Written by the owner in each call. */
    _Alignas(CACHE_LINE) atomic_bool busy;
    atomic_uchar gate; /* CACHE_OPEN, CACHE_REVOKED, ... */
    struct cache_counts counts;

    /* Read by any thread, seldom written. */
    /* NULL: no owner; the next thread that needs a cache of this heap takes it. */
    _Alignas(CACHE_LINE) _Atomic(struct thread *) thread;
    struct heap *heap;  /* constant */
    struct cache *next; /* heap lock: in the heap's list */
    /* Heap lock: stays revoked, so that every block takes the slow path. */
    bool bypassed;
    /* Owner: of the slabs in `listed` that are empty. */
    size_t empty_bytes;
    /* Owner: never NULL; magazine_none holds nothing. */
    struct magazine *magazines[SLAB_CLASSES];
    struct slab *listed[SLAB_CLASSES]; /* owner: slabs with slots at home */

    /* Written by any thread. */
    /* A stack of words of slabs with slots freed by other threads. */
    _Alignas(CACHE_LINE) _Atomic(struct slab_remote *) remote;
};

extern struct magazine magazine_none;

/* True if the system has no membarrier. Then an entry must be a barrier itself, and every open gate
 * has CACHE_BARRIER. Set once, before there is a second thread. */
extern bool cache_entry_is_barrier;
enum {
    CACHE_OPEN = 0,
    CACHE_REVOKED = 1,
    CACHE_BARRIER = 2,
    CACHE_TRACED = 4 /* calls are written to the trace; combined with one of the other two */
};

/* `open` is CACHE_OPEN, or CACHE_TRACED for code that writes the trace. */
static inline bool cache_enter(struct cache *cache, unsigned char open)
{
    atomic_store_explicit(&cache->busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    unsigned char gate = atomic_load_explicit(&cache->gate, memory_order_acquire);
    if (__builtin_expect(gate == open, true))
        return true;
    if (gate == (open | CACHE_BARRIER)) {
        atomic_exchange_explicit(&cache->busy, true, memory_order_seq_cst);
        if (atomic_load_explicit(&cache->gate, memory_order_seq_cst) == gate)
            return true;
    }
    atomic_store_explicit(&cache->busy, false, memory_order_release);
    return false;
}

static inline void cache_leave(struct cache *cache)
{
    atomic_store_explicit(&cache->busy, false, memory_order_release);
}

#define CACHE_ADD(counter, change)                                                                 \
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + (change), \
                          memory_order_relaxed)

static inline void cache_count_taken(struct cache_counts *counts, size_t size, size_t requested)
{
    CACHE_ADD(&counts->taken, 1);
    CACHE_ADD(&counts->bytes_taken, (int64_t)size);
    CACHE_ADD(&counts->requested_taken, (int64_t)requested);
}

static inline void cache_count_given(struct cache_counts *counts, size_t size, size_t requested)
{
    CACHE_ADD(&counts->given, 1);
    CACHE_ADD(&counts->bytes_given, (int64_t)size);
    CACHE_ADD(&counts->requested_given, (int64_t)requested);
}

/* Bytes that the published counts are too low by. */
static inline int64_t cache_unpublished(const struct cache_counts *counts)
{
    return atomic_load_explicit(&counts->bytes_taken, memory_order_relaxed) -
           atomic_load_explicit(&counts->bytes_given, memory_order_relaxed);
}

/* Returns a slot for `requested` bytes, 1 to SLAB_MOST, from a magazine. 0: the caller must take
 * the slow path. That is also so if the pool for requests may have changed since the thread last
 * asked. Called by the cache's thread. `traced` is a constant: if true, the allocation is written
 * to the trace; if false, the call returns 0 while the trace is on. */
static inline __attribute__((always_inline)) uintptr_t
cache_take_fast(struct cache *cache, const struct thread *thread, size_t requested, bool traced)
{
    unsigned class = slab_class(requested);
    uintptr_t address = 0;
    if (!cache_enter(cache, traced ? CACHE_TRACED : CACHE_OPEN))
        return 0;
    struct magazine *magazine = cache->magazines[class];
    uint32_t top = magazine->top;
    bool routed = thread->changes == atomic_load_explicit(&process_changes, memory_order_relaxed);
    bool told = !traced || trace_is_quick(cache->heap, thread);
    if (routed && told && top && cache_unpublished(&cache->counts) < CACHE_UNPUBLISHED) {
        const struct magazine_entry *entry = &magazine->entries[top - 1];
        size_t size = magazine->slot_size;
        magazine->top = top - 1;
        address = entry->address;
        slab_note_write(entry->note, size - requested, 0);
        cache_count_taken(&cache->counts, size, requested);
        if (traced)
            trace_quickly(TRACE_alloc, cache->heap, thread, address, requested, 0);
    }
    cache_leave(cache);
    return address;
}

/* Frees the live block at an address of a slab. False if the caller must take the slow path: the
 * block belongs to another thread's cache, another stream uses it, it is not live, or the magazine
 * is full. */
static inline __attribute__((always_inline)) bool
cache_give_fast(struct slab *slab, uintptr_t address, const struct thread *thread, bool traced)
{
    struct cache *cache = slab_owner(slab);
    if (atomic_load_explicit(&cache->thread, memory_order_relaxed) != thread ||
        !cache_enter(cache, traced ? CACHE_TRACED : CACHE_OPEN))
        return false;
    bool begins = false, simple = false;
    unsigned slot = slab_slot_begin(slab, address, &begins);
    if (begins && slot < slab->slots && (slab_has_no_freed(slab) || !slab_is_freed(slab, slot))) {
        slab_note *place = &slab->notes[slot];
        struct magazine *magazine = cache->magazines[slab->class];
        uint32_t note = atomic_load_explicit(place, memory_order_relaxed), top = magazine->top;
        simple = (note & NOTE_STATE) == NOTE_TAKEN && top < magazine->limit &&
                 cache_unpublished(&cache->counts) > -CACHE_UNPUBLISHED &&
                 (!traced || trace_is_quick(cache->heap, thread));
        if (simple) {
            size_t size = magazine->slot_size;
            if (traced)
                trace_quickly(TRACE_free, cache->heap, thread, address, size - (note & NOTE_UNUSED),
                              (uint16_t)(note >> NOTE_TAG_SHIFT));
            magazine->entries[top] = (struct magazine_entry){address, place};
            magazine->top = top + 1;
            slab_note_end(place, note);
            cache_count_given(&cache->counts, size, size - (note & NOTE_UNUSED));
        }
    }
    cache_leave(cache);
    return simple;
}

/* The calling thread's cache of a heap; NULL with an error text if the host is out of memory. */
struct cache *cache_of(struct heap *heap);

/* The slow path of an allocation. Takes a slot from the magazine, from slots that other threads
 * freed, or from a slab of the cache; then fills the magazine by half. If `span` is not NULL, first
 * makes a slab of it; it is taken and has slab_span_size() bytes. Takes the heap's lock.
 * TARN_ERROR_OUT_OF_MEMORY, without a text: there is no slot, and `span` is NULL. */
tarn_status cache_take(struct cache *cache, const struct request *request, struct span *span,
                       uintptr_t *address);
/* Takes a slot at home in any thread's cache of a heap, after shutting all of them. For a request
 * that no other memory serves. TARN_ERROR_OUT_OF_MEMORY, without a text: there is no slot. */
tarn_status cache_take_any(struct heap *heap, const struct request *request, uintptr_t *address);

/* Frees a taken slot under the heap's lock. If the cache belongs to another thread, leaves the slot
 * for that thread to find. Otherwise sends it home, and half of a full magazine too. The caller
 * counts the free. If another thread has freed the block already, takes that count back. */
void cache_give_locked(struct slab *slab, unsigned slot);

/* Frees a slot of another thread's cache without a lock, by one atomic operation, and a second one
 * for the first free of a word. False if the slot is not taken, or was already freed in this
 * way. */
bool cache_give_remote(struct slab *slab, unsigned slot);

/* Leaves the caches of an ending thread, with their slabs, to other threads. */
void caches_of_thread_end(struct thread *thread);

/* Call once, before the first use. */
void caches_init(void);

#endif
