/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What heaps of pools with `use_on_oom` could give to a request of the default pool on their
 * stream. An index of offers leads to a heap that can serve a request, past all that cannot. */
#ifndef TARN_MEMORY_HELP_H
#define TARN_MEMORY_HELP_H

#include "memory/heap/heap.h"

/* What an offer is of. Below SLAB_CLASSES: a free slot of that class. */
enum {
    OFFER_OF_PIECES = SLAB_CLASSES, /* a free span, in a heap with pieces */
    OFFER_OF_SEGMENTS,              /* a free span, in a heap with segments */
};

/* Which offers a request looks for, and how far it has come. */
struct help_search {
    const struct stream *stream;
    unsigned kind;
    size_t least, most; /* bytes of the longest free span; 0 for slots */
    /* Among those of `least` bytes, the lowest number of a heap behind this place; at first 0. */
    unsigned next;
};

/* True if the heap's offers are listed: its pool helps out, and its stream and its pool are in use.
 * Then a look at the heap also shuts its caches, so that their free slots stay. */
static inline bool heap_helps_locked(const struct heap *heap)
{
    return store_has(heap->store, STORE_HELPS) && !heap_is_left_behind_locked(heap);
}

/* Looks at the heaps that help and have changed. */
void heaps_sum_helpers(struct arena *arena);
/* The store of the next heap with such an offer. NULL: there is none. The arena's lock keeps it.
 * Heaps of a store that is held are passed over, and are not found again while it is. */
struct store *help_next_locked(struct arena *arena, struct help_search *search);

/* Replaces the offers of a heap by what it gives. False if the host has no memory for all. */
bool heap_offer_locked(struct heap *heap, const struct heap_gives *gives);
/* Removes them. Under the arena's `sets.lock`. */
void heap_offer_end(struct heap *heap);

/* For heap_known_contradiction_locked(): whether a heap's offers are what the last look found that
 * it can give, or none if its pool does not help out. Under the arena's `sets.lock`. */
bool heap_offers_agree(const struct heap *heap);

/* Called after a hold of the store has ended. Takes no lock. The caller keeps the store. */
void help_tell(struct store *store);
/* Lists the offers again of stores that help_tell() was called for, and that are not held. Called
 * before a search, and before a store ends. Under the arena's lock. */
void help_return_locked(struct arena *arena);

#endif
