/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The heap: the memory of one pool for one stream. The memory of a pool belongs to its store
 * (arena.h).
 *
 * A heap is made of zones, runs and spans (span.h). A free span may be reused on the heap's stream
 * at once. Its pieces may be unmapped, or serve another stream, only when it is idle (batches.h). A
 * block that other streams have used waits for them when it is freed (uses.h). A heap may follow a
 * plan (following.h). The sets in which other code finds it are in sets.h. */
#ifndef TARN_MEMORY_HEAP_H
#define TARN_MEMORY_HEAP_H

#include "base/tree.h"
#include "device/stream.h"
#include "memory/arena/arena.h"
#include "memory/arena/map.h"
#include "memory/arena/rules.h"
#include "memory/heap/idle/batches.h"
#include "memory/heap/idle/uses.h"
#include "memory/heap/sets.h"
#include "memory/heap/span.h"

#include <tarn/memory.h>

struct ghost;
struct cache;
struct capture_order;
struct following;
struct hands;

#define SLAB_CLASSES 40
#define HEAP_KEPT 8

/* What the growths of a heap have done so far, by which the next one decides (growth.c). All 0 when
 * the heap begins a new life, and when it has given up all its memory: then it starts again, as the
 * next repetition of the program does. A member of the heap, under its lock. */
struct growths {
    size_t gained;    /* bytes that growths created, or took from the unmapped pieces of the
                         store */
    size_t moved;     /* bytes that growths moved within the heap, or borrowed from heaps of other
                         streams */
    size_t lent;      /* bytes that other heaps have borrowed from this one; 0 after each growth
                         that added memory */
    unsigned regrets; /* growths that added memory while `lent` was not 0, at most REGRETS_MOST */
};

/* The memory of one pool for one stream. Made at the first use of the stream in the pool
 * (heap_of()). Never destroyed: an empty heap whose stream is retired, or whose pool has ended, is
 * reused. Everything is under `lock`, unless a field says otherwise. */
struct heap {
    _Alignas(CACHE_LINE) quick_mutex lock;
    struct arena *arena;   /* constant */
    unsigned number;       /* constant: the index of its cache in a thread's table */
    struct store *store;   /* of the pool; once the heap is given up, the default pool's, until it
                              is reused */
    struct stream *stream; /* constant until it is retired */
    unsigned incarnation;  /* of the stream */
    atomic_uint place;     /* in the trace (traced.h); 0: none yet in this life */
    bool retired; /* the stream is retired, or the heap was given up with its pool: its last mark is
                     recorded */
    struct zone zones[ZONES];
    atomic_bool resting;                 /* lock to change: its caches have nothing to give, and
                                            their gates are shut (cache.c) */
    mutex caches_lock;                   /* held beside `lock` to change the list below; takes no
                                            other */
    struct cache *caches;                /* of its threads, including threads that have ended */
    struct waiting waiting;              /* blocks that are freed, and that other streams still
                                            use */
    struct capture_order *capture_order; /* work that the stream's captured work comes after; NULL
                                            while not needed */
    size_t free_bytes;                   /* of the free spans */
    unsigned known;                      /* HEAP_*: what is known of its memory (sets.h) */
    uint64_t states;                     /* the highest number of a zone's state */
    struct counters_splits splits;
    struct ghost *ghosts;        /* old addresses of pieces that are mapped elsewhere too */
    struct following *following; /* NULL: the heap follows no plan */
    struct growths growths;      /* what its growths have done so far */
    bool saves;                  /* blocks go where they hold little in place; as the last growth
                                    found */
    struct span_reserve reserve; /* span objects */
    struct batches batches;      /* which of its memory is idle */

    struct heap *next;                                /* arena lock: in the arena's list */
    struct heap *next_of_stream, *previous_of_stream; /* heaps_lock: of its stream, while that is
                                                         not retired */
    struct heap *next_unused;                         /* heaps_lock: in the queue of heaps to be
                                                         reused */

    struct heap_member sets[HEAP_SETS]; /* the sets that it is in; the arena's `sets_lock` */
    bool lends;                         /* it is in its store's `lenders` */
    struct heap_sums sums;              /* sets_lock: what the sums have of it */
    size_t longest;                     /* and its longest free span, bytes; 0: not in `summed` */
    struct tree_node by_longest;        /* sets_lock: in its store's `summed` */
    /* A free span from this size on is news to the sets. 0, at first and when the sets' list of
     * unmarked heaps ends: each is, and no block is kept. A granule: the sets know of small spans.
     * SIZE_MAX: of all; only then hands open. */
    size_t news;
    struct heap *next_unmarked, *previous_unmarked; /* sets_lock: in the list of its stream */
    bool unmarked;                                  /* sets_lock to change: it is in that list */

    /* Kept blocks (kept.h), the newest last; the part's lock. */
    struct counters_part part; /* of its store's counters */
    struct {
        size_t size; /* bytes */
        uintptr_t start;
        uint64_t before; /* its zone's state before it was cut */
        struct span *span;
    } kept[HEAP_KEPT];
    atomic_uint kept_count;
    atomic_bool keeps;             /* whether blocks may be kept */
    bool kept_before;              /* lock, while the heap is held: `keeps` as it was */
    atomic_bool handed;            /* blocks are kept in hands (hands.h), not here; also under
                                      `lock` to change */
    int contention;                /* lock: how much threads compete for it */
    _Atomic(struct hands *) hands; /* lock to change: NULL until threads compete */
};

/* The heap of a stream in a pool, created at its first use. */
tarn_status heap_of(struct store *store, struct stream *stream, struct heap **heap);
/* The same without creating it: NULL if there is none. */
struct heap *heap_if_used(struct store *store, struct stream *stream);

/* The value of a heap's stream, also when that is retired. Heap lock. */
static inline tarn_stream heap_stream_value(const struct heap *heap)
{
    const struct stream *stream = heap->stream;
    if (stream &&
        atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == heap->incarnation)
        return stream_value(stream);
    return (tarn_stream)heap->incarnation << 32 | (stream ? stream->slot : 0);
}

/* The heap after `heap` in the arena's list; NULL starts and ends. Heaps are never destroyed. */
struct heap *heap_next(struct arena *arena, struct heap *heap);
/* A heap's store now, or a moment ago. */
struct store *heap_store(struct heap *heap);
/* Whether the heap's idle memory may be taken for a store: store_serves(). With no lock held. */
bool heap_serves(struct heap *heap, const struct store *wanting);

/* Stops all heaps of an arena, with their caches and kept spans, and prevents the creation of
 * others; and lets them continue. Takes every heap's lock. So the caller holds none, and until the
 * end takes only locks that come later in the order. */
void heaps_stop(struct arena *arena);
void heaps_go_on(struct arena *arena);

/* A request after rounding. */
struct request {
    size_t size;      /* bytes, rounded as the store does */
    size_t requested; /* bytes, as asked for */
    size_t alignment; /* bytes, at least TARN_BLOCK_UNIT */
    size_t front;     /* bytes of `size` before the caller's pointer; for debug mode */
    bool slab;        /* a slab serves it */
    bool own;         /* for the library: the block has its own span, marked so; no other pool
                         serves it */
    tarn_tag tag;
};

/* Bytes of debug mode's zones: of the front zone of a block with an alignment, or of any block in a
 * slab; and of the smallest zone behind a block. */
static inline size_t zone_in_front(size_t alignment)
{
    return debug_has(DEBUG_REDZONE) ? alignment : 0;
}
#define ZONE_BEHIND ((size_t)256)

/* Whether every block takes the slow path, because debug mode, a tool or the driver's checker must
 * see each block. */
static inline bool fast_paths_are_barred(void)
{
    return debug_has(DEBUG_BLOCKS) || announcer || (driver->checking && driver->checking());
}

static inline enum zone_kind zone_of(size_t size)
{
    return size <= COUNTERS_SMALL ? ZONE_SMALL : ZONE_LARGE;
}

/* Whose free memory serves what the zone cannot, for lack of anything better. */
static inline enum zone_kind zone_other(enum zone_kind zone)
{
    return zone == ZONE_SMALL ? ZONE_LARGE : ZONE_SMALL;
}

/* Enters a block into the page map, and removes it. If several blocks begin in one page, the entry
 * is the first of them: in plain segments, also of different heaps; and in virtual memory restored
 * small blocks, of one heap. */
void span_enter_shared_locked(struct span *span);
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

static inline bool span_idle_locked(const struct heap *heap, const struct span *span)
{
    return span->batch <= heap->batches.idle;
}

/* Addresses of a heap that have no memory any more become unclaimed, or holes of its reservation
 * if it follows a plan (following.h). */
void heap_unclaim(struct heap *heap, uintptr_t start, size_t size);
void heap_unclaim_locked(struct heap *heap, uintptr_t start, size_t size);

/* Gives `stream`'s heaps, of every pool, up to the device's other streams. */
tarn_status heap_retire(struct stream *stream);

/* Whether its memory can be taken out of it for others: its stream is retired, or its pool left
 * behind. */
bool heap_is_left_behind_locked(const struct heap *heap);
/* The stream is about to capture, and nothing can be marked on it then: so what was freed for it so
 * far is, in every pool. */
void heaps_learn(struct stream *stream);
/* The store is left behind: its heaps' idle memory is the default pool's to take. */
void heaps_leave_behind(struct store *store);
/* Whether nothing is left in any heap of a store that was left behind; then they are given up, to
 * be used again. */
bool heaps_give_up(struct store *store);

/* Closes the fast paths of all heaps of a device for good, before the last trim; or because it is
 * lost. */
void heaps_close(struct arena *arena);
void heaps_lose(struct arena *arena);
/* Has the fast paths of all heaps take the way that the trace needs, or not any more. */
void heaps_trace_turned(void);

/* Whether the heap has no runs, no ghosts, and no batch whose end is not known. Queries marks. */
bool heap_is_empty_locked(struct heap *heap);

#endif
