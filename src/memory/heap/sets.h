/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sets of heaps. By them code finds the heaps of one pool, or those that may serve another, without
 * looking at all others (sets.c). */
#ifndef TARN_MEMORY_SETS_H
#define TARN_MEMORY_SETS_H

#include "memory/arena/arena.h"

struct heap;
struct stream;

/* A heap is in one set of each kind at most. */
enum heap_set_kind {
    HEAPS_OF_STORE,  /* a store's `all` */
    HEAPS_COMMON,    /* the arena's `common` */
    HEAPS_LENDING,   /* a store's `lenders` */
    HEAPS_OF_NOBODY, /* a store's `retired`, or the arena's `abandoned` for stores left behind */
    HEAPS_GIVING,    /* a store's `givers`, or the arena's for memory that serves every store */
    HEAPS_CHANGED,   /* the arena's `changed`, or `changed_helpers` */
    HEAPS_ASIDE,     /* a store's `aside` */
    HEAPS_ANCHORED,  /* the arena's `anchored` */
    HEAP_SETS
};

/* A heap's place in a set. Under the arena's `sets.lock`. */
struct heap_member {
    struct tree_node node;
    struct heap *heap;
    struct heap_set *set; /* NULL: the heap is in no set of this kind */
};

/* What is known of a heap's memory. It holds until anything in the heap changes: a span becomes
 * free or is taken, a block begins to wait, or a cache is used. Meanwhile the heap parks no blocks,
 * and its hands and caches are shut, so that the first change is made under the heap's lock. */
enum {
    /* Nothing in it could serve others, not even after a wait: not among the givers. */
    HEAP_BARE = 1,
    HEAP_SUMMED = 2, /* the sums contain its memory: not among the changed */
    /* Its memory serves others only after one of the marks that it awaits has ended
     * (idle/awaited.h): not among the givers. */
    HEAP_AWAITS = 4,
    HEAP_ANCHORED = 8, /* with HEAP_AWAITS: or before an anchor is gone */
};

/* A heap's places in sets, and what decides which those are. A member of the heap, under its lock;
 * where a field says so, it changes under the arena's `sets.lock` too, which is enough to read it.
 * No set misses a heap that it should have. The lenders and the list of unmarked heaps may have
 * heaps that have nothing to give. */
struct memberships {
    struct heap_member of[HEAP_SETS]; /* sets.lock */
    /* HEAP_*: what the last look at the heap's memory found. Holds until anything in the heap
     * changes. */
    unsigned known;
    bool lends; /* the heap is among its store's lenders */
    /* sets.lock: it is in the list of its stream's heaps whose open batch may not be empty. */
    bool unmarked;
    /* Code that frees a span of at least this many bytes calls heap_news_locked().
     *   0           every free is reported, and no block is parked: in a new heap, and while the
     *               open batch is empty
     *   a granule   the heap is unmarked
     *   SIZE_MAX    it is among its store's lenders too, so no free is reported; only then may
     *               hands open */
    size_t news;
    struct heap *next_unmarked, *previous_unmarked; /* sets.lock */
};

/* The newest heap of a store that is older than `heap`; NULL starts and ends. The heap may get
 * another store at any time: if that matters, check `heap->store` under the heap's lock. */
struct heap *heap_next_of(struct store *store, const struct heap *heap);
/* The same among the heaps whose idle memory may be taken for a store (store_serves()). */
struct heap *heap_next_serving(struct store *wanting, const struct heap *heap);

/* As heap_next_serving(), without heaps that are bare or await work, and without those of the store
 * itself if they give each other nothing. So a search costs nothing for heaps that have nothing to
 * give. */
struct heap *heap_next_giving(struct store *wanting, const struct heap *heap);
/* Whether no heap of a store gives anything to another heap of it: its places are fixed, or graphs
 * use the addresses. */
bool store_gives_itself_nothing(const struct store *store);
/* The newest heap that is older than `heap` and awaits the end of an anchor; NULL starts and
 * ends. */
struct heap *heap_next_anchored(struct arena *arena, const struct heap *heap);
/* The newest heap of the arena that is older than `heap` and may have changed since it was last
 * summed; NULL starts and ends. */
struct heap *heap_next_changed(struct arena *arena, const struct heap *heap);
/* The same, only heaps of pools with `use_on_oom`. */
struct heap *heap_next_changed_helper(struct arena *arena, const struct heap *heap);
/* Forgets what is known of a heap. Call when something in it changes. */
void heap_changed_locked(struct heap *heap);
/* Adds flags to what is known of a heap, or takes some away. */
void heap_known_locked(struct heap *heap, unsigned known);
void heap_known_end_locked(struct heap *heap, unsigned known);
/* Puts a heap into the set `aside` of its store; with NULL, takes it out. Under the arena's
 * `sets.lock`. */
void heap_enter_aside(struct heap *heap, struct store *store);

/* A walk over a part of a set. It ends after HEAP_LOOKS heaps that were of no use. The next walk
 * continues there. So the cost of a call does not grow with the set. */
#define HEAP_LOOKS 64
struct heap_walk {
    struct arena *arena;
    struct heap_set *set;
    struct heap *heap; /* the last heap that was returned */
    unsigned vain;     /* heaps that were of no use; the caller counts them */
};
struct heap *heap_walk_next(struct heap_walk *walk); /* NULL ends */

/* Updates which sets a heap is in, after its store or its user has changed. An `unused` heap is in
 * none. */
void heap_sets_update_locked(struct heap *heap, bool unused);
/* Reports that a span of this size has become free, perhaps in the open batch. Streams of the same
 * pool may now borrow from the heap, if a whole piece may be free. */
void heap_news_locked(struct heap *heap, size_t size);
/* Takes the heap out of the lenders, if no free span can contain a whole piece. */
void heap_lends_end_locked(struct heap *heap);
/* Takes a heap that nobody uses, and that has no memory left, out of its set. */
void heap_nobodys_end_locked(struct heap *heap);

/* The first heap of a stream, or the next, whose open batch may not be empty. The list changes only
 * under heaps_lock; at its start heaps may be added at any time. */
struct heap *heap_next_unmarked(struct arena *arena, const struct stream *stream,
                                const struct heap *heap);
/* Takes the heap out of that list, if its open batch is empty. Until something is freed, no block
 * of the heap is parked. */
void heap_unmarked_end_locked(struct heap *heap);

#endif
