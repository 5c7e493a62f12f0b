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

/* A walk over a set. A walk over a part of it that has looked in vain at HEAP_LOOKS heaps ends, and
 * the next one goes on there: so what a call costs does not grow with the set. */
#define HEAP_LOOKS 64
struct heap_walk {
    struct arena *arena;
    struct heap_set *set;
    bool whole;
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
