/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Spans, runs and zones: how the memory of a heap is cut, and what of it is free (span.c).
 *
 *   run    | block | free | block | slab | free | contiguous, mapped, of one zone
 *   spans  [---------][----][--------------][------][-------------] linked in the order of
 *          addresses
 *   pieces [==============][====================][================]    a piece may end inside any
 *                                                                      span
 *
 * A run is cut into spans without gaps; two free spans never touch. Small spans (up to 1 MiB, and
 * slabs) and large spans are in separate zones, each with its own runs, so that a small block does
 * not hold a large piece in place. All of it is under the heap's lock, unless a field says
 * otherwise. */
#ifndef TARN_MEMORY_SPAN_H
#define TARN_MEMORY_SPAN_H

#include "base/tree.h"
#include "memory/arena/arena.h"
#include "record/counters.h"

#include <tarn/memory.h>

struct heap;
struct slab;
struct use;

enum zone_kind { ZONE_SMALL, ZONE_LARGE, ZONES };

enum span_state {
    SPAN_FREE,    /* in its zone's tree */
    SPAN_TAKEN,   /* free, but one thread maps or unmaps it without the lock */
    SPAN_BLOCK,   /* live */
    SPAN_PENDING, /* freed by its owner, but other streams' work still uses it */
    SPAN_SLAB,
};

/* A part of a run: free, one block, or one slab. The words before a colon say in which state a
 * field is valid. Its heap owns it, from heap_add_locked() or a cut until it is joined to a
 * neighbour or its memory leaves the heap.
 *
 * A span has three cache lines: fields that few spans use; fields for searching, cutting and
 * joining; the rest. It is aligned to a line, because spans of different heaps lie side by side. */
struct span {
    _Alignas(CACHE_LINE) struct tree_node
        by_start;      /* free, large: in the tree of a heap that follows a plan (following.h) */
    struct slab *slab; /* slab */
    uint32_t front;    /* block: bytes of debug mode's zone before the caller's pointer */

    _Alignas(CACHE_LINE) uintptr_t start;
    size_t size;                  /* bytes, a multiple of TARN_BLOCK_UNIT */
    struct tree_node by_size;     /* free: in the zone's tree */
    struct span *previous, *next; /* neighbours in the run */
    uint8_t state, zone;
    bool split; /* free: counted as inactive_split */
    bool own;   /* block: belongs to the library, not to the program */
    tarn_tag tag;
    /* Block: which counter has it; the lock of the heap's part, or by the thread that claimed
     * the block. */
    counters_oversize oversize;

    struct run *run;
    uint64_t batch;   /* free: the newest batch in which any of its memory was freed */
    size_t requested; /* block: bytes, as requested */
    union {
        uint64_t before;   /* block: its zone's state before it was cut; 0: unknown */
        uint64_t freed_at; /* free, plain segment: the store's `searches` when it became free */
    };
    _Atomic uint64_t after; /* block: its zone's state after it was cut; 0: unknown */
    struct use *uses;       /* block, pending */
    /* Constant while the span is in the page map. The fields from here on are last because a thread
     * that found the span in the page map may read them after the span has ended: an unused span
     * object keeps them. */
    _Atomic(struct heap *) heap;
    /* The program has the block, and no code has claimed it (parked.h). Changes under the lock of
     * the heap's part, or of the hand's. */
    atomic_bool live;
};

/* A contiguous range of mapped addresses of one heap, cut into spans. Listed by its zone. */
struct run {
    uintptr_t start, end;
    struct span *first, *last;
    struct run *next, *previous; /* in the zone's list */
    /* In a store whose runs are one piece each: the run's number in the store, from 1; constant. */
    uint64_t serial;

    /* Only for a plain segment (segment.h), which is one run all its life. Constant while one heap
     * has it, except the last four fields. */
    struct heap *heap;
    struct store *store;
    driver_stream native;        /* the stream that the segment was allocated for */
    const struct stream *stream; /* the same stream */
    unsigned stream_incarnation; /* of `stream` */
    bool large;                  /* it belongs to the large zone */
    counters_oversize oversize;  /* which counter has the segment */
    uint64_t generation;         /* of its mapping (generation.h) */
    atomic_uint anchors;         /* of live blocks in it; while there are any, the segment stays */
    /* Its pool is suspended and has given the memory up. Of the thread that changes the pool's
     * state. */
    bool absent;
    struct tree_node by_start; /* in the table of segments; the table's lock */
    bool listed;               /* it is in that table; the table's lock */
    /* It is a run of `heap`; false: on its way into a heap, or out; the table's lock. */
    bool joined;
};

/* The runs and the free spans of one size class of a heap. */
struct zone {
    struct tree free; /* of spans, by size and then address */
    struct run *runs;
    size_t bytes; /* of the runs */
    /* Changes whenever the free spans change (parked.h); the heap's lock, or the part's. */
    _Atomic uint64_t state;
};

/* All zones of a heap, and what is counted of their free spans. A member of the heap, under its
 * lock. No two zones are ever in the same state. */
struct zones {
    struct zone of[ZONES];
    size_t free_bytes; /* sum over the free spans */
    /* The last state number. Each change of a zone's free spans gives the zone the next one. */
    uint64_t states;
    struct counters_splits splits; /* the free spans that share their run with others */
};

/* Unused span objects, so that cutting and joining need no other lock. A member of the heap, under
 * its lock. */
struct span_reserve {
    struct span *first; /* linked by `next` */
    unsigned count;
};

/* Takes a span of `size` bytes off the best fitting free span: the smallest that is large enough;
 * of equal ones, the one at the lowest address. The result is SPAN_TAKEN. TARN_ERROR_OUT_OF_MEMORY,
 * without a text, if none fits. */
tarn_status span_take_locked(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             struct span **span);
/* Takes [start, start + size) out of the free span that contains it; cannot fail. The result is
 * SPAN_TAKEN. `fresh` are two new span objects; those that are used become NULL. */
struct span *span_take_at_locked(struct heap *heap, struct span *span, uintptr_t start, size_t size,
                                 struct span *fresh[2]);
/* As span_take_locked(), from a given free span, which must be large enough. In a plain segment the
 * result may be larger than requested. */
tarn_status span_cut_locked(struct heap *heap, struct span *span, size_t size, size_t alignment,
                            struct span **result);
/* As span_take_at_locked(), with span objects of the heap. TARN_ERROR_OUT_OF_HOST_MEMORY. */
tarn_status span_take_place_locked(struct heap *heap, struct span *span, uintptr_t start,
                                   size_t size, struct span **result);
/* As span_take_locked(), but takes memory of the large zone for a small block or slab. Chooses the
 * place that ties the fewest bytes of whole free pieces, at most `most`. */
tarn_status span_take_aside_locked(struct heap *heap, size_t size, size_t alignment, size_t most,
                                   struct span **span);
/* Frees a span that was in use: it joins the open batch and merges with free neighbours. */
void span_give_locked(struct heap *heap, struct span *span);
/* Frees a span that was taken but not used: it keeps its batch and merges with free neighbours. */
void span_return_locked(struct heap *heap, struct span *span);
/* Removes a free span from its tree. */
void span_remove_locked(struct heap *heap, struct span *span);
/* Moves `more` bytes from the front of the free span behind `span` to `span`. TARN_ERROR_NO_ROOM,
 * without a text, if there are not so many; TARN_ERROR_OUT_OF_HOST_MEMORY. On failure nothing has
 * changed. */
tarn_status span_extend_locked(struct heap *heap, struct span *span, size_t more);

/* Span and run objects. NULL with an error text if the host is out of memory. */
struct span *span_create(void);
void span_destroy(struct span *span);
struct run *run_create(void);
void run_destroy(struct run *run);
/* Frees what is in a reserve. A heap that may never be reused keeps none. */
void span_reserve_empty_locked(struct span_reserve *reserve);

/* Grows, under the heap's lock, whenever addresses come into a run or leave it: while it stays, the
 * same runs have the same addresses. */
extern atomic_uint_fast64_t runs_changed;

/* Splits a taken span at `offset`: the rest becomes `fresh`, behind it. */
void span_cut(struct span *span, size_t offset, struct span *fresh);
/* Takes a taken span whose memory is no longer mapped out of its run, and destroys it. If it had
 * neighbours on both sides, `*spare` becomes the run of those behind it, and is set to NULL. */
void span_leave_locked(struct heap *heap, struct span *span, struct run **spare);

/* Adds new idle memory, mapped at [start, end), to the heap as `span`, which becomes SPAN_TAKEN. It
 * goes behind `base`, the last span of a run that ends at `start`. If `base` is NULL, it becomes
 * the new run `run`. Joins runs that now touch. */
struct span *heap_add_locked(struct heap *heap, enum zone_kind zone, struct span *base,
                             struct run *run, struct span *span, uintptr_t start, uintptr_t end);

/* Takes a run that is one free span out of the heap. The span stays its `first`. */
void run_detach_locked(struct heap *heap, struct run *run);
/* Adds such a run to a heap, as idle memory. */
void run_attach_locked(struct heap *heap, struct run *run);

/* Finds whole pieces in a row inside a free span: of at least `wanted` bytes if there are so many,
 * and at most `most`. Skips anchored pieces at the start of the span, and ends before the next
 * one. */
void span_whole_pieces(const struct arena *arena, const struct span *span, size_t wanted,
                       size_t most, uintptr_t *start, uintptr_t *end);
/* Plain stores: whether a free span is a whole segment that may be freed once it is idle. */
bool span_is_free_segment_locked(const struct heap *heap, const struct span *span);
/* Whether a free span contains a whole piece, or is a whole segment, that may leave it once it is
 * idle. */
bool span_has_piece_locked(const struct heap *heap, const struct span *span);
/* Whether a free span contains a whole piece, or is a whole segment. It need not be able to leave
 * now: it may not be idle, be anchored, or its pool may be held. */
bool span_covers_piece_locked(const struct heap *heap, const struct span *span);
/* The state of a zone (parked.h). */
static inline uint64_t zone_state(const struct zones *zones, unsigned zone)
{
    return atomic_load_explicit(&zones->of[zone].state, memory_order_relaxed);
}
static inline void zone_state_set(struct zones *zones, unsigned zone, uint64_t state)
{
    atomic_store_explicit(&zones->of[zone].state, state, memory_order_relaxed);
}

/* Begins the life of zones that have no memory. `by_serial` orders spans of one size by their runs'
 * numbers in the store instead of by addresses. */
void zones_init(struct zones *zones, bool by_serial);
/* Whether the zones have any memory. */
static inline bool zones_have_runs(const struct zones *zones)
{
    return zones->of[ZONE_SMALL].runs || zones->of[ZONE_LARGE].runs;
}
/* Bytes of the longest free span; 0: there is none. */
size_t zones_longest_free(const struct zones *zones);
/* Gives each zone a new state, so that no block that is live now is parked when it is freed
 * (parked.h). Under the part's lock too, because a thread that parks a block, or takes a parked
 * one, compares and changes the state under it. */
void zones_change_locked(struct zones *zones);

#endif
