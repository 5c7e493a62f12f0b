/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The lives of heaps: finding the heap of a stream in a pool, creating it, ending it with its
 * stream or its pool, and stopping all heaps for a while (heaps.c). */
#ifndef TARN_MEMORY_HEAPS_H
#define TARN_MEMORY_HEAPS_H

#include <tarn/status.h>

#include <stdbool.h>

struct arena;
struct heap;
struct store;
struct stream;

/* A heap's places in the lists of heaps.c. A member of the heap. heaps_lock protects it, except
 * `next`. */
struct heap_lists {
    struct heap *next; /* in the arena's list of all heaps, which only grows; the arena's lock */
    /* In the list of its stream, until that is retired or the heap is given up. */
    struct heap *next_of_stream, *previous_of_stream;
    /* In the arena's queue of heaps that nobody uses: those that are empty are reused. */
    struct heap *next_unused;
};

/* The heap of a stream in a pool, created at its first use. */
tarn_status heap_of(struct store *store, struct stream *stream, struct heap **heap);
/* The same without creating it: NULL if there is none. */
struct heap *heap_if_used(struct store *store, struct stream *stream);

/* The heap after `heap` in the arena's list; NULL starts and ends. Heaps are never destroyed. */
struct heap *heap_next(struct arena *arena, struct heap *heap);
/* The store of a heap. It may change as soon as the call returns. */
struct store *heap_store(struct heap *heap);
/* Whether the heap's idle memory may be taken for a store (store_serves()). Takes the heap's
 * lock. */
bool heap_serves(struct heap *heap, const struct store *wanting);

/* heaps_stop() stops the fast paths of all heaps of an arena and the creation of heaps, until
 * heaps_go_on(). Between the two the caller holds every heap's lock. So it may not hold one before,
 * and takes only locks that come later in the order. */
void heaps_stop(struct arena *arena);
void heaps_go_on(struct arena *arena);

/* Retires the heaps of `stream` in all pools, so that other streams may use their memory. On
 * failure none is retired. */
tarn_status heap_retire(struct stream *stream);

/* Whether other heaps may take all its idle memory: its stream is retired, or its pool left
 * behind. */
bool heap_is_left_behind_locked(const struct heap *heap);
/* Closes the open batches of all heaps of a stream that is about to capture. During the capture no
 * mark can be recorded on it. */
void heaps_learn(struct stream *stream);
/* Marks a store as left behind and closes the fast paths of its heaps. From then on the default
 * pool may take their idle memory. */
void heaps_leave_behind(struct store *store);
/* Gives the heaps of a store that was left behind up for reuse, if all are empty. Returns whether
 * they are. */
bool heaps_give_up(struct store *store);

/* Closes the fast paths of all heaps of a device for good, before the last trim. */
void heaps_close(struct arena *arena);
/* The same because the device is lost. Takes the arena's lock; the caller may hold heaps' locks. */
void heaps_lose(struct arena *arena);
/* Makes the fast paths of all heaps follow a change of trace_is_on(). */
void heaps_trace_turned(void);

#endif
