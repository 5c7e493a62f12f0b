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

#include <tarn/memory.h>

struct heap;
struct slab;
struct use;

enum zone_kind { ZONE_SMALL, ZONE_LARGE, ZONES };

enum span_state {
    SPAN_FREE,    /* in its zone's tree */
    SPAN_TAKEN,   /* free, but one thread maps or unmaps it without the lock */
    SPAN_BLOCK,   /* live */
    SPAN_PENDING, /* freed by its owner; work of other streams still uses it */
    SPAN_SLAB,
};

/* A part of a run: free, or one block, or one slab. The words before a colon say in which state a
 * field is valid. Its heap owns it, from heap_add_locked() or a cut until it is joined to a
 * neighbour or its memory leaves the heap.
 *
 * A span has three cache lines: fields that few spans use, fields for searching, cutting and
 * joining, and the rest. It begins at a line, because the spans of different heaps lie side by
 * side. */
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
    counters_oversize oversize; /* block: which counter has it; the part's lock, or the claimer */

    struct run *run;
    uint64_t batch;   /* free: the last batch that its memory was freed in */
    size_t requested; /* block: bytes, as requested */
    union {
        uint64_t before;   /* block: its zone's state before the block was cut; 0: unknown */
        uint64_t freed_at; /* free, of a plain segment: how many searches its store had seen when it
                              became free */
    };
    _Atomic uint64_t after; /* block: its zone's state after the block was cut; 0: unknown */
    struct use *uses;       /* block, pending */
    /* Never changes while the span is in the page map. The fields from here on are last, because a
     * thread that found the span in the page map may read them after the span has ended: an unused
     * span object keeps them. */
    _Atomic(struct heap *) heap;
    /* Its owner has the block, and no code has claimed it (kept.h). To change under the lock of the
     * heap's part, or of the hand's. */
    atomic_bool live;
};

/* A contiguous range of mapped addresses of one heap, cut into spans. Its zone lists it. */
struct run {
    uintptr_t start, end;
    struct span *first, *last;
    struct run *next, *previous; /* in the zone's list */
    uint64_t serial; /* of a kind whose runs are one piece each: the run's number in its store, from
                        1; constant */

    /* For a plain segment (segment.h), which is a run for all its life. Constant while one heap has
     * it, except the last four fields. */
    struct heap *heap;
    struct store *store;
    driver_stream native;        /* the stream that the segment was allocated for */
    const struct stream *stream; /* the same stream */
    unsigned stream_incarnation; /* of `stream` */
    bool large;                  /* its zone is that of large blocks */
    counters_oversize oversize;  /* which counter has it */
    uint64_t generation;         /* of its mapping (generation.h) */
    atomic_uint anchors;         /* of live blocks in it; while there are any, it stays */
    struct tree_node by_start;   /* in the table of segments; the table's lock */
    bool listed;                 /* it is in the table; the table's lock */
    bool joined;                 /* it is a run of `heap`; otherwise on its way into a heap, or out;
                                    the table's lock */
};

/* The runs and the free spans of one size class of a heap. A member of the heap, under its lock. */
struct zone {
    struct tree free; /* of spans, by size and then address */
    struct run *runs;
    size_t bytes;           /* of the runs */
    _Atomic uint64_t state; /* the heap's lock, or the part's: changes whenever the free spans
                               change (kept.h) */
};

/* Span objects in reserve, so that cutting and joining need no other lock. A member of the heap,
 * under its lock. */
struct span_reserve {
    struct span *first; /* linked by `next` */
    unsigned count;
};

/* Cuts a span off the best fitting free span: the smallest that is large enough; of equal ones, the
 * one at the lowest address. The state of the result is SPAN_TAKEN. TARN_ERROR_OUT_OF_MEMORY,
 * without a text, if none fits. */
tarn_status span_take_locked(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             struct span **span);
/* Cuts [start, start + size) out of a free span, as SPAN_TAKEN; `fresh` are two new span objects,
 * of which those that are used become NULL. */
struct span *span_take_at_locked(struct heap *heap, struct span *span, uintptr_t start, size_t size,
                                 struct span *fresh[2]);
/* The same from a given free span, which must be large enough. In a plain segment the result may be
 * larger than requested. */
tarn_status span_cut_locked(struct heap *heap, struct span *span, size_t size, size_t alignment,
                            struct span **result);
/* Cuts [start, start + size), which is free, as SPAN_TAKEN out of a span that covers it. */
tarn_status span_take_place_locked(struct heap *heap, struct span *span, uintptr_t start,
                                   size_t size, struct span **result);
/* As span_take_locked(), for a small block or slab, from the large zone: where it holds the least
 * memory in place, and at most `most` bytes. */
tarn_status span_take_aside_locked(struct heap *heap, size_t size, size_t alignment, size_t most,
                                   struct span **span);
/* Frees a span that was in use: it joins the open batch. Merges it with free neighbours. */
void span_give_locked(struct heap *heap, struct span *span);
/* Frees a span that was taken but not used: it keeps its batch. Merges it with free neighbours. */
void span_return_locked(struct heap *heap, struct span *span);
/* Removes a free span from its tree. */
void span_remove_locked(struct heap *heap, struct span *span);
/* Cuts `more` bytes off the front of the free span behind `span` and adds them to `span`.
 * TARN_ERROR_NO_ROOM, without a text, if there are not so many; TARN_ERROR_OUT_OF_HOST_MEMORY. On
 * failure nothing has changed. */
tarn_status span_extend_locked(struct heap *heap, struct span *span, size_t more);

/* Spans and runs as objects; NULL with an error text when the host is out of memory. */
struct span *span_create(void);
void span_destroy(struct span *span);
struct run *run_create(void);
void run_destroy(struct run *run);
/* The same for spans, from the heap's reserve and back to it; and frees the reserve: a heap that
 * may never be reused keeps none, because there are as many heaps as there were pools at once. */
struct span *span_create_locked(struct heap *heap);
void span_destroy_locked(struct heap *heap, struct span *span);
void spare_spans_destroy_locked(struct heap *heap);

/* Splits a taken span at `offset`: the rest becomes the given new span, behind it. */
void span_cut(struct span *span, size_t offset, struct span *fresh);
/* Takes a taken span whose memory is no longer mapped out of its run and destroys it; where it had
 * neighbours on both sides, `spare` becomes the run of those behind it, and is NULL then. */
void span_leave_locked(struct heap *heap, struct span *span, struct run **spare);

/* Makes new idle memory, mapped at [start, end), part of the heap, as the fresh span given: behind
 * `base`, the last span of a run that ends at start, or, where that is NULL, as `run`, a fresh one.
 * Joins runs that now touch. The span is taken. */
struct span *heap_add_locked(struct heap *heap, enum zone_kind zone, struct span *base,
                             struct run *run, struct span *span, uintptr_t start, uintptr_t end);

/* Takes a run that is one free span, which stays its `first`, out of the heap; and puts it, idle as
 * it is, into another. */
void run_detach_locked(struct heap *heap, struct run *run);
void run_attach_locked(struct heap *heap, struct run *run);

/* The whole pieces in a row inside a free span, from its start on except anchored ones, that give
 * at least `wanted` bytes but not above `most`. */
void span_whole_pieces(const struct arena *arena, const struct span *span, size_t wanted,
                       size_t most, uintptr_t *start, uintptr_t *end);
/* Of a plain store: whether a free span would go back once it is idle. */
bool span_is_free_segment_locked(const struct heap *heap, const struct span *span);
/* Whether a free span holds a whole piece, or is a whole segment, which it would give up once it is
 * idle. */
bool span_has_piece_locked(const struct heap *heap, const struct span *span);
/* Whether a span of at least `size` bytes is free. */
bool heap_has_free_locked(const struct heap *heap, size_t size);
/* Gives the zones of a heap that has no memory the order of its store. */
void zones_init(struct heap *heap);
/* Gives each zone a new state: what is freed next is not kept (kept.h). */
void zones_change_locked(struct heap *heap);

#endif
