/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Batches: which memory of a heap is idle, so that it may be unmapped or serve another stream.
 *
 * What is freed belongs to the open batch. A mark on the heap's stream closes the batch. When the
 * mark has finished, the batch is idle, and so are all earlier ones, because the marks of one
 * stream end in their order. A mark that cannot be queried holds up nothing: its batch is idle when
 * a later mark has finished. Batch 0 is memory that was never used: it is always idle. */
#ifndef TARN_MEMORY_BATCHES_H
#define TARN_MEMORY_BATCHES_H

#include "device/stream.h"

struct heap;

#define HEAP_BATCHES 8

/* The batches of one heap. A member of the heap, under its lock. */
struct batches {
    uint64_t open;   /* the batch that frees join */
    uint64_t idle;   /* the last idle batch */
    bool open_used;  /* something was freed in the open batch */
    uint64_t rested; /* not 0: only batches up to this one count as idle now (rest.h) */
    struct {
        uint64_t number;
        struct mark *mark;
    } closed[HEAP_BATCHES]; /* batches neither open nor known to be idle, oldest first */
    unsigned count;         /* of `closed` */
};

/* Finds out which batches are idle. With `close` also closes the open batch, if something was freed
 * in it. It stays open if the heap is retired, has HEAP_BATCHES closed batches, the mark cannot be
 * recorded, or the stream is foreign (heap_learn_foreign_locked()). Never waits. */
void heap_learn_locked(struct heap *heap, bool close);
/* The same with `close`, also for a foreign stream. Its mark makes all blocking streams of the
 * device wait for each other. So call this only to wait for the mark. */
void heap_learn_foreign_locked(struct heap *heap);

/* A mark to wait for until a batch may be idle: the batch's own; or the first closed batch's, while
 * there are HEAP_BATCHES or this batch cannot be closed. NULL: there is none. */
struct mark *batch_mark_locked(const struct heap *heap, uint64_t batch);

/* Records the last mark of a heap whose life ends. On failure the batches are as before. */
tarn_status batches_end_prepare_locked(struct heap *heap);
/* After that: everything that is freed from now on joins the batch of the last mark, since nothing
 * more is queued on the stream. */
void batches_end_locked(struct heap *heap);
/* Whether all batches are idle. Queries marks. */
bool batches_are_idle_locked(struct heap *heap);
/* Begins a heap's new life: all earlier batches are idle, and a new one is open. */
void batches_begin_locked(struct heap *heap);

#endif
