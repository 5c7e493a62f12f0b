/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The index of heaps that can give nothing before some work has ended. A search that finds nothing
 * idle in a heap enters the marks that hold the heap's memory back. Later searches ask about the
 * first mark of each stream, and do not look at the heap before one of its marks has ended. */
#ifndef TARN_MEMORY_AWAITED_H
#define TARN_MEMORY_AWAITED_H

#include "base/tree.h"
#include "device/stream.h"

struct arena;
struct awaited_tree;
struct heap;
struct store;
struct wait_any;

/* A mark that a heap awaits: the mark of its own batches, or the first mark of a queue of uses. */
struct awaited {
    struct tree_node node; /* in the heap's `awaits.tree` */
    struct heap *heap;
    struct mark *mark; /* NULL: nothing is awaited */
};

/* All marks that a heap awaits. A member of the heap, under its lock. While `tree` is not NULL,
 * what is known of the heap has HEAP_AWAITS (sets.h), and each of the marks, here and in the queues
 * of its uses, is in that tree and kept. */
struct awaits {
    struct awaited own;        /* of the heap's own batches */
    struct awaited_tree *tree; /* of the arena or of the heap's store; NULL: it awaits none */
    size_t waits;              /* that it has added to `tree->waits` */
    /* Marks are kept, here or in queues, until awaited_release_locked(). They may be awaited no
     * more. */
    bool kept;
};

/* Takes a heap that has something to give, but nothing now, from the givers, until one of its marks
 * has ended, an anchor is gone, or anything in it changes. Does nothing if only another look can
 * show when the heap has something to give. */
void heap_await_locked(struct heap *heap);
/* Takes the marks of a heap that awaits some out of the index. The heap keeps them, since the
 * caller may hold the arena's lock, under which no mark is released. */
void awaited_end_locked(struct heap *heap);
/* Releases the marks of a heap that awaits them no more. */
void awaited_release_locked(struct heap *heap);
/* For heap_verify(): what is wrong; NULL: nothing. */
const char *awaited_contradiction_locked(struct heap *heap);

/* Returns to the givers those heaps whose memory may serve a store, and of which a mark has ended
 * or an anchor is gone. Ends after `most` streams whose work goes on. */
void awaited_look(struct store *wanting, size_t most);
/* Adds the first mark of each stream that holds memory back which may serve a store. */
void awaited_add(struct wait_any *any, struct store *wanting);
/* An upper bound of the waits for all of them, as waits_ahead_serving() has it. */
size_t awaited_waits(struct store *wanting);
/* Called after an anchor is gone. */
void awaited_unanchored(struct arena *arena);

#endif
