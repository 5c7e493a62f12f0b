/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns uses and each heap's list of waiting blocks. A block waits with the memory that its owner had: nothing is allocated
 * to free it. Under the heap's lock, but for the adding to a list that is not yet a block's. */
#include "memory/wait.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/slab.h"

static struct object_pool all_uses = OBJECT_POOL(struct use);

static struct use *use_create(void)
{
    struct use *use = object_alloc(&all_uses);
    if (!use)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the use of a block by another stream");
    return use;
}

tarn_status use_add_stream(struct use **uses, struct stream *stream)
{
    unsigned generation = atomic_load_explicit(&stream->generation, memory_order_relaxed);
    for (struct use *use = *uses; use; use = use->next)
        if (use->stream == stream && use->generation == generation)
            return TARN_OK;
    struct use *use = use_create();
    if (!use)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    use->stream = stream;
    use->generation = generation;
    use->next = *uses;
    *uses = use;
    return TARN_OK;
}

tarn_status use_add_mark(struct use **uses, struct mark *mark)
{
    struct use *use = use_create();
    if (!use)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    use->mark = mark_keep(mark);
    use->marked = true;
    use->next = *uses;
    *uses = use;
    return TARN_OK;
}

static struct use *use_destroy(struct use *use)
{
    struct use *next = use->next;
    mark_release(use->mark);
    object_free(&all_uses, use);
    return next;
}

void use_drop_first(struct use **uses)
{
    *uses = use_destroy(*uses);
}

/* Marks the work of the using stream so far, if that was not done. */
static tarn_status use_mark(struct use *use)
{
    if (use->marked)
        return TARN_OK;
    tarn_status status = mark_of_stream(use->stream, use->generation, &use->mark);
    use->marked = status == TARN_OK;
    return status;
}

static bool use_ended(struct use *use)
{
    return use_mark(use) == TARN_OK && (!use->mark || mark_query(use->mark) == TARN_OK);
}

void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses, size_t size)
{
    for (struct use *use = uses; use; use = use->next)
        (void)use_mark(use);
    uses->span = span;
    uses->slot = slot;
    uses->next_waiting = NULL;
    *heap->waiting_end = uses;
    heap->waiting_end = &uses->next_waiting;
    heap->waiting_bytes += size;
}

/* Gives the memory of a block that nobody uses any more to the heap. */
static void block_end_locked(struct heap *heap, struct use *uses)
{
    struct span *span = uses->span;
    struct slab *slab = span->state == SPAN_SLAB ? span->slab : NULL;
    size_t size = slab ? slab->slot_size : span->size;
    unsigned slot = uses->slot;
    while (uses)
        uses = use_destroy(uses);
    if (slab) {
        slab->uses[slot] = NULL;
        slab_give_locked(heap, slab, slot);
    } else {
        span->uses = NULL;
        map_set(span->start, NULL);
        span_give_locked(heap, span);
    }
    heap->waiting_bytes -= size;
    heap->blocks--;
    counters_completed(&heap->arena->counters, size);
}

/* Whether a block's uses have all ended. Streams that were seen busy in this pass are remembered in `busy`: a later block
 * that waits for the same stream is not asked about, since its mark lies behind. */
#define BUSY_STREAMS 8
static bool uses_ended(struct use *uses, struct stream *busy[BUSY_STREAMS])
{
    for (struct use *use = uses; use; use = use->next) {
        for (int i = 0; i < BUSY_STREAMS && busy[i]; i++)
            if (busy[i] == use->stream)
                return false;
        if (use_ended(use))
            continue;
        for (int i = 0; use->stream && i < BUSY_STREAMS; i++) {
            if (!busy[i]) {
                busy[i] = use->stream;
                break;
            }
        }
        return false;
    }
    return true;
}

size_t wait_collect_locked(struct heap *heap)
{
    struct stream *busy[BUSY_STREAMS] = {0};
    size_t ended = 0;
    for (struct use **place = &heap->waiting; *place;) {
        struct use *uses = *place;
        if (!uses_ended(uses, busy)) {
            place = &uses->next_waiting;
            continue;
        }
        *place = uses->next_waiting;
        if (!*place)
            heap->waiting_end = place;
        block_end_locked(heap, uses);
        ended++;
    }
    return ended;
}

struct mark *wait_oldest_locked(struct heap *heap)
{
    /* Not the first block alone: what it waits for may be a stream that captures, which nobody can wait for. */
    for (struct use *first = heap->waiting; first; first = first->next_waiting)
        for (struct use *use = first; use; use = use->next)
            if (use_mark(use) == TARN_OK && use->mark && mark_query(use->mark) == TARN_ERROR_NOT_READY)
                return mark_keep(use->mark);
    heap_learn_locked(heap, true);
    return heap->closed_count ? mark_keep(heap->closed[0].mark) : NULL;
}
