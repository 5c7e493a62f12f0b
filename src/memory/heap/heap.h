/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The heap: the memory of one pool for one stream. The memory of a pool belongs to its store (arena.h).
 *
 *   run    |  block  | free |    block     |  slab  |   free      |    contiguous, mapped, of one zone
 *   spans  [---------][----][--------------][------][-------------]    linked in the order of addresses
 *   pieces [==============][====================][================]    a piece may end inside any span
 *
 * A run is cut into spans without gaps; two free spans never touch. Small spans (up to 1 MiB, and slabs) and large spans are in separate
 * zones, each with its own runs, so that a small block does not hold a large piece in place.
 *
 * Order: a free span may be reused on the heap's stream at once. Its pieces may be unmapped only when it is idle, that is when its batch is
 * idle. Spans that were freed since the last recorded mark belong to the open batch. A new mark closes that batch, and when the mark has
 * finished, the batch is idle. Memory that was never used is in batch 0, which is always idle. */
#ifndef TARN_MEMORY_HEAP_H
#define TARN_MEMORY_HEAP_H

#include "base/tree.h"
#include "device/stream.h"
#include "memory/arena/arena.h"
#include "memory/arena/map.h"
#include "memory/arena/rules.h"
#include "memory/heap/site.h"

#include <tarn/memory.h>

enum zone_kind { ZONE_SMALL, ZONE_LARGE, ZONES };

enum span_state {
    SPAN_FREE,    /* in its zone's tree */
    SPAN_TAKEN,   /* free, but one thread maps or unmaps it without the lock */
    SPAN_BLOCK,   /* live */
    SPAN_PENDING, /* freed by its owner; work of other streams still uses it */
    SPAN_SLAB,
};

struct slab;
struct ghost;
struct cache;
struct point;
struct capture_order;
struct plan_follower;

/* One stream's use of a block. A use of a freed block is *pending* until it has ended: it is in its queue, and is counted in the first use
 * of its block. */
struct use {
    struct use *next;           /* of the same block */
    struct tree_node by_stream; /* among them, unless it is a caller's event */
    struct stream *stream;      /* NULL: the caller's event, already in `mark` */
    unsigned incarnation;
    struct mark *mark; /* recorded when the block is freed; NULL before, and while recording fails */
    bool marked;       /* `mark` is final: NULL then means finished */
    uint64_t
        capture; /* that the stream used the block in, and nowhere else; 0: none, or blocks are not given back early */
    struct point *point;       /* the stream's position in the capture when the block was freed; NULL: unknown */
    struct debug_block *watch; /* first use: debug mode checks the block before it is free; otherwise NULL */

    struct use_queue *queue;     /* NULL for a use in no heap */
    struct use *earlier, *later; /* in it, while pending */
    struct use *first;           /* of the block, while pending; otherwise NULL */
    uint64_t number;             /* of the block, counted over the heap's waiting blocks */

    /* First use only. */
    struct tree streams; /* the block's uses by stream */
    unsigned pending;    /* of the block's uses */
    struct span *span;
    unsigned slot;            /* of a slab */
    struct use *next_watched; /* of the heap's list */
};

struct use_list {
    struct use *first, *last;
};

/* One stream's pending uses of freed blocks of a heap. The marks of one stream end in their order, so a check begins with the first use and
 * continues while uses have ended. */
struct use_queue {
    struct use_queue *next;     /* of the heap */
    struct tree_node by_stream; /* among them */
    struct stream *stream;
    unsigned incarnation;
    bool events;              /* marks of callers, from before the free, in the order of recording */
    size_t users;             /* uses that refer to it, including those of live blocks */
    struct use_list marked;   /* in the order of their marks */
    struct use_list unmarked; /* no mark could be recorded yet */
};

/* Three lines of memory: what few blocks have; what code looks at that searches, cuts and joins; the rest. They begin at a line, because the
 * spans of different heaps lie side by side. */
struct span {
    _Alignas(CACHE_LINE) struct tree_node by_start; /* free, large, of a heap that follows a plan: in the heap's tree */
    struct slab *slab;                              /* slab */
    uint32_t front;                                 /* block: bytes of debug mode's zone before the caller's pointer */

    _Alignas(CACHE_LINE) uintptr_t start;
    size_t size;                  /* bytes, a multiple of TARN_BLOCK_UNIT */
    struct tree_node by_size;     /* free: in the zone's tree */
    struct span *previous, *next; /* neighbours in the run */
    uint8_t state, zone;
    bool split; /* free: counted as inactive_split */
    bool own;   /* block: belongs to the library, not to the program */
    tarn_tag tag;
    counters_oversize oversize; /* block: which counter has it; the part's lock, or the claimer */

    struct run *run;
    uint64_t batch;   /* free: the last batch that its memory was freed in */
    size_t requested; /* block: bytes, as requested */
    union {
        uint64_t before;   /* block: its zone's state when it was cut, */
        uint64_t freed_at; /* free, of a plain segment: how many searches its store had seen then */
    };
    _Atomic uint64_t after; /* block: ... and after that; both 0 if unknown */
    struct use *uses;       /* block, pending */
    /* Never changes while the span is in the page map. The fields from here on are last, because a thread that found the span in the page
     * map may read them after the span has ended: an unused span object keeps them. */
    _Atomic(struct heap *) heap;
    atomic_bool live; /* the part's lock: its owner has the block, and no code has claimed it (kept.h) */
};

struct run {
    uintptr_t start, end;
    struct span *first, *last;
    struct run *next, *previous; /* in the zone's list */
    uint64_t serial;             /* registrable store: the segment's number, from the oldest; constant */

    /* Of a plain segment, which is a run (segment.h). Constant except for the place in the table, while it is of one heap. */
    struct heap *heap;
    struct store *store;
    driver_stream native;        /* the stream that it was allocated for */
    const struct stream *stream; /* the same, and its incarnation */
    unsigned stream_incarnation;
    bool large; /* its zone */
    counters_oversize oversize;
    atomic_uint anchors; /* of live blocks in it */
    uint64_t generation;
    struct tree_node by_start; /* the table's lock, like the two below */
    bool listed;               /* in the table */
    bool joined;               /* a run of `heap`; otherwise on its way into a heap, or out */
};

struct zone {
    struct tree free; /* of spans, by size and then address */
    struct run *runs;
    size_t bytes;           /* of the runs */
    _Atomic uint64_t state; /* heap lock, or the part's: changes whenever the free spans change (kept.h) */
};

/* The sets of heaps: a heap is in one of each kind at most. */
enum heap_set_kind {
    HEAPS_OF_STORE,  /* a store's `all` */
    HEAPS_COMMON,    /* the arena's `common` */
    HEAPS_LENDING,   /* a store's `lenders` */
    HEAPS_OF_NOBODY, /* a store's `retired`, or the arena's `abandoned` */
    HEAP_SETS
};

/* A heap's place in a set. The arena's `sets_lock`. */
struct heap_member {
    struct tree_node node;
    struct heap *heap;
    struct heap_set *set; /* NULL: it is in none */
};

#define SLAB_CLASSES 40
#define HEAP_BATCHES 8
#define HEAP_KEPT 8

struct heap {
    _Alignas(CACHE_LINE) quick_mutex lock; /* of everything below, unless marked otherwise */
    struct arena *arena;                   /* constant */
    unsigned number;                       /* constant: the index of its cache in a thread's table */
    struct store *store;                   /* of the pool; constant until the heap is reused */
    struct stream *stream;                 /* the heap's stream; constant until it is retired */
    unsigned incarnation;
    atomic_uint place; /* in the trace (traced.h); 0: none yet in this life */
    bool retired;      /* the stream is retired: no more work can be queued on it */
    struct zone zones[ZONES];
    mutex caches_lock;                   /* held beside `lock` to change the list below; takes no other */
    struct cache *caches;                /* of its threads, including threads that have ended */
    struct use_queue *queues;            /* of the streams that use blocks */
    struct tree queues_by_stream;        /* the same */
    size_t waiting, waiting_uses;        /* blocks that are freed and wait, and their uses that are pending */
    uint64_t waits;                      /* blocks that have ever waited */
    struct use *watched;                 /* blocks that only debug mode still holds */
    struct capture_order *capture_order; /* work that the stream's captured work comes after; NULL while not needed */
    size_t free_bytes, waiting_bytes;
    uint64_t states; /* the highest number of a zone's state */
    struct counters_splits splits;
    struct ghost *ghosts;       /* old addresses of pieces that are mapped elsewhere too */
    struct plan_follower *plan; /* NULL: none is followed */
    struct site site;           /* while a plan is followed: where its places are */
    struct tree free_by_start;  /* while a plan is followed: the free spans of the large zone */
    size_t gained, moved;       /* bytes that growths added to the heap, and moved within it */
    size_t lent;                /* bytes that other heaps borrowed since this heap last grew (growth.c) */
    unsigned regrets;           /* growths after a loan, up to a bound */
    bool saves;                 /* blocks go where they hold little in place; set by the last growth (growth.c) */
    unsigned spare_count;
    struct span *spare_spans; /* span objects in reserve, so that cutting and joining need no other lock */

    uint64_t open_batch, idle_batch;
    bool open_batch_used; /* something was freed in it */
    struct {
        uint64_t number;
        struct mark *mark;
    } closed[HEAP_BATCHES]; /* oldest first */
    unsigned closed_count;

    struct heap *next;                                /* arena lock: in the arena's list */
    struct heap *next_of_stream, *previous_of_stream; /* heaps_lock: of its stream, while that is not retired */
    struct heap *next_unused;                         /* heaps_lock: in the queue of heaps to be reused */

    struct heap_member sets[HEAP_SETS]; /* the sets that it is in */
    bool lends;                         /* it is in its store's `lenders` */
    size_t news; /* a free span from this size on is news to the sets; 0: each, so that no block is kept */
    struct heap *next_unmarked, *previous_unmarked; /* sets_lock: in the list of its stream */
    bool unmarked;                                  /* sets_lock to change: it is in that list */

    /* The part's lock: freed blocks that are kept as they are, the newest last; and to change, whether any may be. */
    struct counters_part part; /* of its store's counters */
    struct {
        size_t size;
        uintptr_t start;
        uint64_t before;
        struct span *span;
    } kept[HEAP_KEPT];
    atomic_uint kept_count;
    atomic_bool keeps;
    bool kept_before; /* lock, while the heap is held: `keeps` as it was */
};

/* The heap of a stream in a pool, created at its first use. */
tarn_status heap_of(struct store *store, struct stream *stream, struct heap **heap);
/* The same without creating it: NULL if there is none. */
struct heap *heap_if_used(struct store *store, struct stream *stream);

/* The value of a heap's stream, also when that is retired. Heap lock. */
static inline tarn_stream heap_stream_value(const struct heap *heap)
{
    const struct stream *stream = heap->stream;
    if (stream && atomic_load_explicit(&stream->incarnation, memory_order_relaxed) == heap->incarnation)
        return stream_value(stream);
    return (tarn_stream)heap->incarnation << 32 | (stream ? stream->slot : 0);
}

/* The heap after `heap` in the arena's list; NULL starts and ends. Heaps are never destroyed. */
struct heap *heap_next(struct arena *arena, struct heap *heap);
/* The newest heap of a store that is older than `heap`; NULL starts and ends. And the same among the heaps whose idle memory may be taken for
 * a store: store_serves(). A heap may become another store's meanwhile: code to which that matters looks again, under its lock. */
struct heap *heap_next_of(struct store *store, const struct heap *heap);
struct heap *heap_next_serving(struct store *wanting, const struct heap *heap);

/* A walk over a part of a set. A walk that has looked in vain at HEAP_LOOKS heaps ends, and the next one goes on there: so what a call costs
 * does not grow with the set. */
#define HEAP_LOOKS 64
struct heap_walk {
    struct arena *arena;
    struct heap_set *set;
    struct heap *heap; /* the last one */
    unsigned vain;     /* looks so far; counted by the caller */
};
struct heap *heap_walk_next(struct heap_walk *walk); /* NULL ends */

/* Which sets a heap is in, after its store, or who uses it, has changed; a heap that is `unused` is in none. */
void heap_sets_update_locked(struct heap *heap, bool unused);
/* A span of this size is free, in the open batch perhaps. If a whole piece may be free, other streams of the pool may borrow it. And the end
 * of that, if there is none. */
void heap_news_locked(struct heap *heap, size_t size);
void heap_lends_end_locked(struct heap *heap);
/* The heap is nobody's and has no memory left: it is not looked at any more. */
void heap_nobodys_end_locked(struct heap *heap);

/* A heap's store now, or a moment ago. */
struct store *heap_store(struct heap *heap);
/* Whether the heap's idle memory may be taken for a store: store_serves(). With no lock held. */
bool heap_serves(struct heap *heap, const struct store *wanting);

/* Stops all heaps of an arena, with their caches and kept spans, and prevents the creation of others; and lets them continue. Takes every
 * heap's lock. So the caller holds none, and until the end takes only locks that come later in the order. */
void heaps_hold(struct arena *arena);
void heaps_let_go(struct arena *arena);

/* A request after rounding. */
struct request {
    size_t size;      /* bytes, rounded as the store does */
    size_t requested; /* bytes, as asked for */
    size_t alignment; /* bytes, at least TARN_BLOCK_UNIT */
    size_t front;     /* bytes of `size` before the caller's pointer; for debug mode */
    bool slab;        /* a slab serves it */
    bool own;         /* for the library: the block has its own span, marked so; no other pool serves it */
    tarn_tag tag;
};

/* Bytes of debug mode's zones: of the front zone of a block with an alignment, or of any block in a slab; and of the smallest zone behind a
 * block. */
static inline size_t zone_in_front(size_t alignment)
{
    return debug_has(DEBUG_REDZONE) ? alignment : 0;
}
#define ZONE_BEHIND ((size_t)256)

/* Whether every block takes the slow path, because debug mode, a tool or the driver's checker must see each block. */
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

/* Cuts a span off the best fitting free span: the smallest that is large enough; of equal ones, the one at the lowest address. The state of
 * the result is SPAN_TAKEN. TARN_ERROR_OUT_OF_MEMORY, without a text, if none fits. */
tarn_status span_take_locked(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment, struct span **span);
/* Cuts [start, start + size) out of a free span, as SPAN_TAKEN; `fresh` are two new span objects, of which those that are used
 * become NULL. */
struct span *span_take_at_locked(struct heap *heap, struct span *span, uintptr_t start, size_t size,
                                 struct span *fresh[2]);
/* The same from a given free span, which must be large enough. In a plain segment the result may be larger than requested. */
tarn_status span_cut_locked(struct heap *heap, struct span *span, size_t size, size_t alignment, struct span **result);
/* Cuts [start, start + size), which is free, as SPAN_TAKEN out of a span that covers it. */
tarn_status span_take_place_locked(struct heap *heap, struct span *span, uintptr_t start, size_t size,
                                   struct span **result);
/* For code that follows a plan. The first begins following a plan, or with NULL ends it. The others walk the free spans of the large zone
 * by address: the first span that ends behind an address, and the next one. */
void heap_plan_locked(struct heap *heap, struct plan_follower *plan);
struct span *span_ending_behind_locked(const struct heap *heap, uintptr_t address);
struct span *span_next_by_start_locked(const struct span *span);
/* As span_take_locked(), for a small block or slab, from the large zone: where it holds the least memory in place, and at most `most`
 * bytes. */
tarn_status span_take_aside_locked(struct heap *heap, size_t size, size_t alignment, size_t most, struct span **span);
/* Frees a span that was in use: it joins the open batch. Merges it with free neighbours. */
void span_give_locked(struct heap *heap, struct span *span);
/* Frees a span that was taken but not used: it keeps its batch. Merges it with free neighbours. */
void span_return_locked(struct heap *heap, struct span *span);
/* Removes a free span from its tree. */
void span_hold_locked(struct heap *heap, struct span *span);
/* Cuts `more` bytes off the front of the free span behind `span` and adds them to `span`. TARN_ERROR_NO_ROOM, without a text, if there are
 * not so many; TARN_ERROR_OUT_OF_HOST_MEMORY. On failure nothing has changed. */
tarn_status span_extend_locked(struct heap *heap, struct span *span, size_t more);

/* Enters a block into the page map, and removes it. If several blocks begin in one page, the entry is the first of them: in plain segments,
 * also of different heaps; and in virtual memory restored small blocks, of one heap. */
void span_enter_shared_locked(struct span *span);
void span_leave_shared_locked(struct span *span);
static inline void span_enter_locked(const struct heap *heap, struct span *span)
{
    if (heap->store->plain || map_get(span->start))
        span_enter_shared_locked(span);
    else
        map_set(span->start, map_entry_of_span(span));
}
static inline void span_leave_map_locked(const struct heap *heap, struct span *span)
{
    if (heap->store->plain || span->size < MAP_PAGE)
        span_leave_shared_locked(span);
    else if (map_get(span->start) == map_entry_of_span(span))
        map_set(span->start, 0);
}

/* Spans and runs as objects; NULL with an error text when the host is out of memory. */
struct span *span_create(void);
void span_destroy(struct span *span);
struct run *run_create(void);
void run_destroy(struct run *run);
/* The same for spans, from the heap's reserve and back to it; and frees the reserve: a heap that may never be reused keeps none, because
 * there are as many heaps as there were pools at once. */
struct span *span_create_locked(struct heap *heap);
void span_destroy_locked(struct heap *heap, struct span *span);
void spare_spans_destroy_locked(struct heap *heap);

/* Splits a held span at `offset`: the rest becomes the given new span, behind it. */
void span_cut(struct span *span, size_t offset, struct span *fresh);
/* Takes a held span whose memory is no longer mapped out of its run and destroys it; where it had neighbours on both
 * sides, `spare` becomes the run of those behind it, and is NULL then. */
void span_leave_locked(struct heap *heap, struct span *span, struct run **spare);

/* Makes new idle memory, mapped at [start, end), part of the heap, as the fresh span given: behind `base`, the last span of
 * a run that ends at start, or, where that is NULL, as `run`, a fresh one. Joins runs that now touch. The span is held. */
struct span *heap_add_locked(struct heap *heap, enum zone_kind zone, struct span *base, struct run *run,
                             struct span *span, uintptr_t start, uintptr_t end);

/* Takes a run that is one free span, which stays its `first`, out of the heap; and puts it, idle as it is, into another. */
void run_detach_locked(struct heap *heap, struct run *run);
void run_attach_locked(struct heap *heap, struct run *run);

/* The whole pieces in a row inside a free span, from its start on except anchored ones, that give at least `wanted` bytes but not
 * above `most`. */
void span_whole_pieces(const struct arena *arena, const struct span *span, size_t wanted, size_t most, uintptr_t *start,
                       uintptr_t *end);
/* Of a plain store: whether a free span would go back once it is idle. */
bool span_is_free_segment_locked(const struct heap *heap, const struct span *span);
/* Whether a free span holds a whole piece, or is a whole segment, which it would give up once it is idle. */
bool span_holds_piece_locked(const struct heap *heap, const struct span *span);
/* Whether a span of at least `size` bytes is free. */
bool heap_has_free_locked(const struct heap *heap, size_t size);
/* Gives each zone a new state: what is freed next is not kept (kept.h). */
void zones_change_locked(struct heap *heap);

/* Finds out which batches are idle; with `close` records a mark if something was freed in the open batch. Never waits. */
void heap_learn_locked(struct heap *heap, bool close);
/* The same, closing the open batch also where the stream is a foreign one, whose mark has all blocking streams of the device wait for
 * each other: for code that will wait for it. */
void heap_learn_foreign_locked(struct heap *heap);
static inline bool span_idle_locked(const struct heap *heap, const struct span *span)
{
    return span->batch <= heap->idle_batch;
}

/* Gives `stream`'s heaps, of every pool, up to the device's other streams. */
tarn_status heap_retire(struct stream *stream);

/* Whether its memory can be taken out of it for others: its stream is retired, or its pool left behind. */
bool heap_is_left_behind_locked(const struct heap *heap);
/* The stream is about to capture, and nothing can be marked on it then: so what was freed for it so far is, in every pool. */
void heaps_learn(struct stream *stream);
/* The first heap of a stream, or the next, whose open batch may have something; the list changes only under heaps_lock, except at its start.
 * And the end of that, if it has nothing: until something is freed, no block of the heap is kept. */
struct heap *heap_next_unmarked(struct arena *arena, const struct stream *stream, const struct heap *heap);
void heap_unmarked_end_locked(struct heap *heap);
/* The store is left behind: its heaps' idle memory is the default pool's to take. */
void heaps_leave_behind(struct store *store);
/* Whether nothing is left in any heap of a store that was left behind; then they are given up, to be used again. */
bool heaps_give_up(struct store *store);

/* Closes the fast paths of all heaps of a device for good, before the last trim; or because it is lost. */
void heaps_close(struct arena *arena);
void heaps_lose(struct arena *arena);
/* Has the fast paths of all heaps take the way that the trace needs, or not any more. */
void heaps_trace_turned(void);

/* For heaps.c. A heap's zones, which are empty, in the order of its store. Whether nothing is left in a heap, nor known that is to end. Under its lock, the last mark of its life,
 * on failure none; and that all that is freed from now on is of that batch, since nothing is queued on its stream any more. */
void zones_init(struct heap *heap);
bool heap_is_empty_locked(struct heap *heap);
tarn_status batches_end_prepare_locked(struct heap *heap);
void batches_end_locked(struct heap *heap);

#endif
