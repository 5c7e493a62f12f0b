/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The heap: the memory of one pool for one stream. The pool's memory as a whole belongs to its
 * store (arena.h).
 *
 * A heap has zones, runs and spans (span.h). A free span may be reused on the heap's stream at
 * once. Its pieces may be unmapped, or serve another stream, only when it is idle (batches.h). A
 * freed block that other streams have used waits for them (uses.h). A heap may follow a plan
 * (following.h). Other code finds heaps in sets (sets.h). One lock, `lock`, protects a heap.
 *
 * Each part of a heap is a struct of its own, in the header of the code that keeps it. */
#ifndef TARN_MEMORY_HEAP_H
#define TARN_MEMORY_HEAP_H

#include "base/tree.h"
#include "device/stream.h"
#include "memory/arena/arena.h"
#include "memory/arena/map.h"
#include "memory/arena/rules.h"
#include "memory/heap/caches.h"
#include "memory/heap/growths.h"
#include "memory/heap/hands.h"
#include "memory/heap/heaps.h"
#include "memory/heap/idle/batches.h"
#include "memory/heap/idle/rest.h"
#include "memory/heap/idle/uses.h"
#include "memory/heap/parked_stack.h"
#include "memory/heap/sets.h"
#include "memory/heap/span.h"
#include "memory/heap/sums.h"

#include <tarn/memory.h>

struct ghost;
struct following;
struct offer;

#define SLAB_CLASSES 40

/* The memory of one pool for one stream, created at the first use of the stream in the pool
 * (heap_of()). Never destroyed: an empty heap whose stream is retired, or whose pool has ended, is
 * reused. `lock` protects every field, unless its comment names another lock. */
struct heap {
    _Alignas(CACHE_LINE) quick_mutex lock;
    struct arena *arena;   /* constant */
    unsigned number;       /* constant: the index of its cache in a thread's table */
    struct store *store;   /* the pool's; after the heap was given up, the default pool's */
    struct stream *stream; /* constant until it is retired */
    unsigned incarnation;  /* of the stream */
    atomic_uint place;     /* its number in the trace (traced.h); 0: no record yet in this life */
    /* Its stream is retired, or the heap was given up with its pool; its last mark is recorded. */
    bool retired;
    struct zones zones;
    struct caches caches;        /* of all threads that used the heap, also ended ones */
    struct waiting waiting;      /* freed blocks that other streams still use */
    struct awaits awaits;        /* the marks without whose end it has nothing to give */
    struct ghost *ghosts;        /* old addresses of pieces that are mapped elsewhere too */
    struct following *following; /* NULL: the heap follows no plan */
    struct growths growths;      /* what its growths have done so far */
    struct span_reserve reserve; /* unused span objects */
    struct batches batches;      /* which of its memory is idle */
    struct rest rest;            /* which of the heap's memory nobody has used for a while */
    struct heap_lists lists;     /* its places in lists of heaps; other locks (heaps.h) */

    struct memberships sets; /* by which other code finds it */
    struct summed summed;    /* what the sums and indices contain of it */
    /* sets.lock to change, with `lock`: what it offers to requests of the default pool (help.h). */
    struct offer *offers;

    /* Blocks for the next requests of their sizes, and the heap's part of the store's counters;
     * the part's lock. */
    struct parked_stack parked;
    struct hands hands; /* the same for threads that compete */
};

/* The value of a heap's stream, also after the stream was retired. Heap lock. */
static inline tarn_stream heap_stream_value(const struct heap *heap)
{
    const struct stream *stream = heap->stream;
    if (stream &&
        atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == heap->incarnation)
        return stream_value(stream);
    return (tarn_stream)heap->incarnation << 32 | (stream ? stream->slot : 0);
}

/* A request after rounding. */
struct request {
    size_t size;      /* bytes, rounded by the rules of the store */
    size_t requested; /* bytes, as asked for */
    size_t alignment; /* bytes, at least TARN_BLOCK_UNIT */
    size_t front;     /* bytes of `size` before the caller's pointer: debug mode's zone */
    bool slab;        /* a slab serves it */
    /* The library itself uses the block: it gets its own span, and from no other pool. */
    bool own;
    tarn_tag tag;
    uint64_t until; /* how long it may wait (base/thread/clock.h); 0: as long as it must */
};

/* Bytes of debug mode's zone in front of a block with its own span and this alignment; 0 without
 * zones. */
static inline size_t zone_in_front(size_t alignment)
{
    return debug_has(DEBUG_REDZONE) ? alignment : 0;
}
/* Bytes of the smallest zone behind a block. */
#define ZONE_BEHIND ((size_t)256)

/* Whether every block takes the slow path, because debug mode, a tool or the driver's checker must
 * see it. */
static inline bool fast_paths_are_barred(void)
{
    return debug_has(DEBUG_BLOCKS) || announcer || (driver->checking && driver->checking());
}

static inline enum zone_kind zone_of(size_t size)
{
    return size <= COUNTERS_SMALL ? ZONE_SMALL : ZONE_LARGE;
}

/* The zone whose free memory is used when a request's own zone has none. */
static inline enum zone_kind zone_other(enum zone_kind zone)
{
    return zone == ZONE_SMALL ? ZONE_LARGE : ZONE_SMALL;
}

/* Enters a block into the page map. If several blocks begin in one page, the entry is the first of
 * them. That happens in plain segments, also between heaps, and with restored small blocks of one
 * heap. */
void span_enter_shared_locked(struct span *span);
/* Removes a block from the page map. The block behind it in the page becomes the entry. */
void span_leave_shared_locked(struct span *span);
static inline void span_enter_locked(const struct heap *heap, struct span *span)
{
    if (!heap->store->kind.pieces || map_get(span->start))
        span_enter_shared_locked(span);
    else
        map_set(span->start, map_entry_of_span(span));
}
static inline void span_leave_map_locked(const struct heap *heap, struct span *span)
{
    if (!heap->store->kind.pieces || span->size < MAP_PAGE)
        span_leave_shared_locked(span);
    else if (map_get(span->start) == map_entry_of_span(span))
        map_set(span->start, 0);
}

static inline bool span_has_grown_locked(const struct heap *heap, const struct span *span)
{
    return span->start < heap->rest.grown_end && span->start + span->size > heap->rest.grown_start;
}

static inline bool span_idle_locked(const struct heap *heap, const struct span *span)
{
    return span->batch <= heap->batches.idle &&
           (!heap->batches.rested ||
            (span->batch <= heap->batches.rested && !span_has_grown_locked(heap, span)));
}

/* Gives up addresses that have no memory any more: they become unclaimed. Inside the reservation of
 * a heap that follows a plan they become holes (following.h). */
void heap_unclaim(struct heap *heap, uintptr_t start, size_t size);
void heap_unclaim_locked(struct heap *heap, uintptr_t start, size_t size);

#endif
