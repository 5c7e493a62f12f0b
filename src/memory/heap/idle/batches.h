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
    uint64_t open;  /* the number of the batch that frees join */
    uint64_t idle;  /* the number of the last idle batch */
    bool open_used; /* something was freed in the open batch */
    struct {
        uint64_t number;
        struct mark *mark;
    } closed[HEAP_BATCHES]; /* the batches that are neither open nor known as idle, oldest first */
    unsigned count;         /* of `closed` */
};

/* Finds out which batches are idle. With `close` also closes the open batch if something was freed
 * in it, unless the heap is retired, has HEAP_BATCHES closed batches already, or the mark cannot be
 * recorded. Never waits. A foreign stream's batch stays open: heap_learn_foreign_locked(). */
void heap_learn_locked(struct heap *heap, bool close);
/* The same, and closes the open batch of a foreign stream too. Its mark makes all blocking streams
 * of the device wait for each other, so this is for code that will wait for the mark. */
void heap_learn_foreign_locked(struct heap *heap);

/* The end of a heap's life. The first records the last mark. On failure the batches are as before.
 * After the second, what is freed joins the batch of that mark, since nothing is queued on the
 * stream any more. */
tarn_status batches_end_prepare_locked(struct heap *heap);
void batches_end_locked(struct heap *heap);
/* Whether no batch is left whose end is not known. Queries marks. */
bool batches_are_idle_locked(struct heap *heap);
/* A new life: the open batch is a new one. All earlier ones are idle. */
void batches_begin_locked(struct heap *heap);

#endif
