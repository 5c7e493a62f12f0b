/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the batches of heaps, under the heaps' locks. The only driver calls here record and query
 * events, which do not wait. */
#include "memory/heap/idle/batches.h"
#include "memory/heap/heap.h"
#include "memory/heap/parked.h"

/* All marks of a heap are on one stream. When one has finished, all earlier ones have too, also one
 * that cannot be queried because a capture has taken it. */
static void batches_advance_locked(struct heap *heap)
{
    unsigned done = 0;
    for (unsigned i = 0; i < heap->batches.count; i++) {
        tarn_status status = mark_query(heap->batches.closed[i].mark);
        if (status == TARN_OK)
            done = i + 1;
        else if (status == TARN_ERROR_NOT_READY)
            break;
    }
    for (unsigned i = 0; i < done; i++) {
        heap->batches.idle = heap->batches.closed[i].number;
        mark_release(heap->batches.closed[i].mark);
    }
    heap->batches.count -= done;
    for (unsigned i = 0; i < heap->batches.count; i++)
        heap->batches.closed[i] = heap->batches.closed[i + done];
}

/* Closes the open batch. If there are HEAP_BATCHES closed ones already, it replaces the newest. */
static tarn_status batch_close_locked(struct heap *heap)
{
    struct mark *mark = NULL;
    tarn_status status = mark_record(heap->stream, &mark);
    if (status)
        return status;
    if (heap->batches.count == HEAP_BATCHES)
        mark_release(heap->batches.closed[--heap->batches.count].mark);
    heap->batches.closed[heap->batches.count].number = heap->batches.open++;
    heap->batches.closed[heap->batches.count++].mark = mark;
    heap->batches.open_used = false;
    return TARN_OK;
}

static void learn_locked(struct heap *heap, bool close, bool foreign)
{
    batches_advance_locked(heap);
    if (close)
        parked_flush_locked(heap);
    if (!close || !heap->batches.open_used || heap->retired || heap->batches.count == HEAP_BATCHES)
        return;
    if ((foreign || !stream_is_foreign(heap->stream)) && batch_close_locked(heap) == TARN_OK)
        batches_advance_locked(heap);
}

void heap_learn_locked(struct heap *heap, bool close)
{
    learn_locked(heap, close, false);
}

void heap_learn_foreign_locked(struct heap *heap)
{
    learn_locked(heap, true, true);
}

struct mark *batch_mark_locked(const struct heap *heap, uint64_t batch)
{
    const struct batches *batches = &heap->batches;
    unsigned closed = 0;
    while (closed < batches->count && batches->closed[closed].number < batch)
        closed++;
    if (closed == batches->count)
        closed = 0;
    return batches->count ? batches->closed[closed].mark : NULL;
}

tarn_status batches_end_prepare_locked(struct heap *heap)
{
    parked_flush_locked(heap);
    batches_advance_locked(heap);
    return batch_close_locked(heap);
}

void batches_end_locked(struct heap *heap)
{
    if (heap->batches.count > 0)
        heap->batches.closed[heap->batches.count - 1].number = heap->batches.open;
    else
        heap->batches.idle = heap->batches.open;
    heap->batches.open_used = false;
}

bool batches_are_idle_locked(struct heap *heap)
{
    batches_advance_locked(heap);
    return heap->batches.count == 0;
}

void batches_begin_locked(struct heap *heap)
{
    heap->batches.open = heap->batches.idle + 1;
    heap->batches.open_used = false;
}
