/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sets of heaps, in which code finds the heaps of one pool, or those that may serve another,
 * without looking at all others (sets.c). */
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
    HEAPS_OF_NOBODY, /* a store's `retired`, or the arena's `abandoned` */
    HEAPS_GIVING,    /* a store's `givers`, or the arena's */
    HEAPS_CHANGED,   /* the arena's `changed` */
    HEAP_SETS
};

/* A heap's place in a set. The arena's `sets_lock`. */
struct heap_member {
    struct tree_node node;
    struct heap *heap;
    struct heap_set *set; /* NULL: the heap is in no set of this kind */
};

/* The newest heap of a store that is older than `heap`; NULL starts and ends. And the same among
 * the heaps whose idle memory may be taken for a store: store_serves(). A heap may become another
 * store's meanwhile: code to which that matters looks again, under its lock. */
struct heap *heap_next_of(struct store *store, const struct heap *heap);
struct heap *heap_next_serving(struct store *wanting, const struct heap *heap);

/* What is known of a heap's memory, until anything in it changes: a span that becomes free or is
 * taken, a block that begins to wait, a use of one of its caches. So it keeps no blocks then, and
 * its hands and caches are shut: what happens first comes by the heap's lock. */
enum {
    HEAP_BARE = 1,   /* nothing in it could serve others, not even after a wait: not a giver */
    HEAP_SUMMED = 2, /* the sums have it: not among the changed */
};

/* As heap_next_serving(), without heaps that are bare: what a search costs does not grow with the
 * heaps that have nothing to give. */
struct heap *heap_next_giving(struct store *wanting, const struct heap *heap);
/* The newest heap of the arena that is older than `heap` and may have changed since it was summed;
 * NULL starts and ends. */
struct heap *heap_next_changed(struct arena *arena, const struct heap *heap);
/* Something has changed in a heap of which something is known. */
void heap_changed_locked(struct heap *heap);
/* And one thing more is known of it. */
void heap_known_locked(struct heap *heap, unsigned known);
/* A search has found nothing more to take: the heap is bare, if it has nothing. */
void heap_bare_locked(struct heap *heap);
/* Has the sums take over what lies free in a heap now. */
void heap_sum_locked(struct heap *heap);
/* The sums lose it, before its store changes. */
void heap_sum_end_locked(struct heap *heap);
/* What is known of a heap, or summed, and is not so; NULL if nothing is. The arena's `sets_lock`
 * too. */
const char *heap_known_contradiction_locked(struct heap *heap);
/* The sums of a store, or with NULL of an arena; and the longest free span of the store. */
struct heap_sums heaps_sums(struct arena *arena, const struct store *store, size_t *longest);

/* A walk over a part of a set. It ends when it has looked in vain at HEAP_LOOKS heaps, and the next
 * one goes on there: so what a call costs does not grow with the set. */
#define HEAP_LOOKS 64
struct heap_walk {
    struct arena *arena;
    struct heap_set *set;
    struct heap *heap; /* the last one */
    unsigned vain;     /* looks so far; counted by the caller */
};
struct heap *heap_walk_next(struct heap_walk *walk); /* NULL ends */

/* Which sets a heap is in, after its store, or who uses it, has changed; a heap that is `unused` is
 * in none. */
void heap_sets_update_locked(struct heap *heap, bool unused);
/* A span of this size is free, in the open batch perhaps. If a whole piece may be free, other
 * streams of the pool may borrow it. And the end of that, if there is none. */
void heap_news_locked(struct heap *heap, size_t size);
void heap_lends_end_locked(struct heap *heap);
/* The heap is nobody's and has no memory left: it is not looked at any more. */
void heap_nobodys_end_locked(struct heap *heap);

/* The first heap of a stream, or the next, whose open batch may have something; the list changes
 * only under heaps_lock, except at its start. And the end of that, if it has nothing: until
 * something is freed, no block of the heap is kept. */
struct heap *heap_next_unmarked(struct arena *arena, const struct stream *stream,
                                const struct heap *heap);
void heap_unmarked_end_locked(struct heap *heap);

#endif
