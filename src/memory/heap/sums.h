/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the heaps of a store or of an arena could give together: sums over heaps that have not
 * changed since they were last looked at, and indices by what each could give (sums.c). By them,
 * code that is short of memory comes only to heaps that can help. */
#ifndef TARN_MEMORY_SUMS_H
#define TARN_MEMORY_SUMS_H

#include "base/tree.h"
#include "memory/arena/arena.h"

struct heap;

/* What a heap could give when it was last looked at. */
struct heap_gives {
    struct heap_sums sums;
    size_t longest; /* bytes of the longest free span; 0: not in its store's `summed` */
    /* The lowest `freed_at` of its free large segments; UINT64_MAX: not in its store's `aged`. */
    uint64_t oldest;
    uint64_t slots; /* of a heap that helps (help.h): the classes of which it has a free slot */
};

/* What the sums and the indices contain of one heap. A member of the heap. It changes under the
 * heap's lock and the arena's `sets.lock`; either is enough to read it. What is here is in the sums
 * of the heap's store and of the arena, whether or not the heap has changed since. */
struct summed {
    struct heap_gives gives;
    struct tree_node by_longest; /* in its store's `summed` */
    struct tree_node by_oldest;  /* in its store's `aged` */
};

/* Called when a search has found nothing more to take. Makes the heap bare, if it really has
 * nothing; or lets it await what holds its memory back. */
void heap_bare_locked(struct heap *heap);
/* Updates the heap's part of the store's and the arena's sums. */
void heap_sum_locked(struct heap *heap);
/* Removes the heap from the sums, before its store changes. */
void heap_sum_end_locked(struct heap *heap);
/* Checks what is known of a heap and its sums. Returns what is wrong, or NULL. The caller also
 * holds the arena's `sets.lock`. */
const char *heap_known_contradiction_locked(struct heap *heap);
/* Looks at the heaps of an arena that have changed. So the sums and indices are up to date. */
void heaps_sum(struct arena *arena);
/* Adds what the sums contain of a heap to a sum. */
void heap_sums_add(struct heap_sums *sums, const struct summed *summed);
/* The sums of a store and its longest free span, bytes; of an arena if `store` is NULL. */
struct heap_sums heaps_sums(struct arena *arena, const struct store *store, size_t *longest);
/* The sums of the heaps whose memory serves a store; with `own` false, without its own. */
struct heap_sums heaps_sums_serving(struct store *wanting, bool own);
/* Moves a heap's part of the sums, when it begins or ceases to serve every store. Under the arena's
 * `sets.lock`. */
void heap_sums_are_common(struct arena *arena, const struct summed *summed, bool common);

/* A place in the order of a store's heaps by the free large segment that is free the longest. All
 * zero: before the first. */
struct heap_age {
    uint64_t oldest;
    unsigned next; /* the lowest number of a heap behind this place */
};
/* Returns the next heap behind `place`, and moves `place` behind it. NULL: no further heap, or none
 * with a segment that was freed at `latest` or earlier. */
struct heap *heap_next_aged(struct store *store, struct heap_age *place, uint64_t latest);

#endif
