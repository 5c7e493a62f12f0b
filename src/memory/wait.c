/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns uses and each heap's list of waiting blocks. A block waits in what was made when it was used, so that freeing it
 * cannot fail for want of host memory; a mark that cannot be made then is made later. Under the heap's lock, but for the adding to a list
 * that is not yet a block's. */
#include "memory/wait.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/cache.h"
#include "memory/debug/debug.h"
#include "memory/growth.h"
#include "memory/kept.h"
#include "memory/order.h"
#include "memory/traced.h"

static struct object_pool all_uses = OBJECT_POOL(struct use);

static struct use *use_create(void)
{
    struct use *use = object_alloc(&all_uses);
    if (!use)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for the use of a block by another stream");
    return use;
}

/* Adds a use that is of one capture, or with 0 of none. */
static tarn_status use_add(struct use **uses, struct stream *stream, unsigned generation, uint64_t capture)
{
    for (struct use *use = *uses; use; use = use->next)
        if (use->stream == stream && use->generation == generation) {
            use->capture = use->capture == capture ? capture : 0;
            return TARN_OK;
        }
    struct use *use = use_create();
    if (!use)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    use->stream = stream;
    use->generation = generation;
    use->capture = capture;
    use->next = *uses;
    *uses = use;
    return TARN_OK;
}

tarn_status use_add_stream(struct use **uses, struct stream *stream)
{
    return use_add(uses, stream, atomic_load_explicit(&stream->generation, memory_order_relaxed),
                   order_capture(stream));
}

tarn_status use_add_own(struct use **uses, const struct heap *heap)
{
    struct use *use = use_create();
    if (!use)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    use->stream = heap->stream;
    use->generation = heap->generation;
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
    point_destroy(use->point);
    object_free(&all_uses, use);
    return next;
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

/* Work on a device that is lost is over: nothing of it will ever touch memory again, and nobody need wait. */
static bool is_over(tarn_status status)
{
    return status == TARN_OK || status == TARN_ERROR_DEVICE_LOST;
}

static bool use_ended(struct use *use)
{
    tarn_status status = use_mark(use);
    if (status == TARN_OK && use->mark)
        status = mark_query(use->mark);
    return is_over(status);
}

void wait_begin_locked(struct heap *heap, struct span *span, unsigned slot, struct use *uses, size_t size)
{
    for (struct use *use = uses; use; use = use->next)
        if (use_mark(use) && use->capture)
            use->point = point_take(use->stream, use->capture);
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
    trace_block(TRACE_free_completed, heap, slab ? slab_address(slab, slot) : span->start,
                slab ? slab_requested(slab, slot) : span->requested, slab ? slab_tag(slab, slot) : span->tag);
    if (uses->watch)
        debug_gone_locked(uses->watch);
    while (uses)
        uses = use_destroy(uses);
    if (slab) {
        atomic_load_explicit(&slab->uses, memory_order_relaxed)[slot] = NULL;
        slab_set_pending_locked(slab, slot, false);
        cache_give_locked(slab, slot);
    } else {
        span->uses = NULL;
        span_leave_map_locked(span);
        span_give_locked(heap, span);
    }
    heap->waiting_bytes -= size;
    counters_completed(heap->store->counters, size);
}

#define BUSY_STREAMS 8

/* What a pass over a heap's list knows. */
struct pass {
    struct heap *heap;
    bool asked, knows; /* of the order of captured work */
    struct stream *busy[BUSY_STREAMS];
};

/* Whether a use is part of a capture that the heap's stream is in now, and whose memory stays with it: then the graph says, and
 * nothing else can, when it is over. */
static bool is_captured(struct pass *pass, const struct use *use)
{
    struct heap *heap = pass->heap;
    if (!use->point)
        return false;
    if (!pass->asked)
        pass->knows = atomic_load(&heap->store->holds) && order_learn(&heap->order, heap->stream);
    pass->asked = true;
    return pass->knows && order_is_of(heap->order, use->point);
}

/* Whether a block's uses have all ended. Streams that were seen busy in this pass are remembered in `busy`: a later block
 * that waits for the same stream is not asked about, since its mark lies behind. */
static bool uses_ended(struct use *uses, struct pass *pass)
{
    struct stream **busy = pass->busy;
    for (struct use *use = uses; use; use = use->next) {
        if (is_captured(pass, use)) {
            if (!order_includes(pass->heap->order, use->point))
                return false;
            continue;
        }
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

/* Whether a block can be made free; of one that debug mode wants to see first, when that has let it go. What has ended
 * for debug mode is counted in `ended`: somebody has to look at it. */
static bool is_free(struct use *uses, struct pass *pass, size_t *ended)
{
    if (!uses->watch)
        return uses_ended(uses, pass);
    if (debug_is_waiting(uses->watch) && uses_ended(uses, pass)) {
        debug_ended_locked(uses->watch);
        (*ended)++;
    }
    return debug_is_over(uses->watch);
}

size_t wait_collect_locked(struct heap *heap)
{
    struct pass pass = {.heap = heap};
    size_t ended = 0;
    kept_flush_locked(heap);
    for (struct use **place = &heap->waiting; *place;) {
        struct use *uses = *place;
        if (!is_free(uses, &pass, &ended)) {
            place = &uses->next_waiting;
            continue;
        }
        *place = uses->next_waiting;
        if (!*place)
            heap->waiting_end = place;
        block_end_locked(heap, uses);
        ended++;
    }
    if (!pass.asked)
        order_destroy(&heap->order);
    return ended;
}

/* A mark that a block of the heap waits for, or NULL. */
static struct mark *use_oldest_locked(struct heap *heap)
{
    for (struct use *uses = heap->waiting; uses; uses = uses->next_waiting)
        for (struct use *use = uses; use; use = use->next)
            if (use_mark(use) == TARN_OK && use->mark && mark_query(use->mark) == TARN_ERROR_NOT_READY)
                return use->mark;
    return NULL;
}

/* The oldest batch whose end would set pieces free, or UINT64_MAX. */
static uint64_t batch_oldest_locked(struct heap *heap)
{
    uint64_t oldest = UINT64_MAX;
    for (int zone = 0; zone < ZONES; zone++) {
        for (struct tree_node *node = tree_last(&heap->zones[zone].free); node; node = tree_previous(node)) {
            const struct span *span = TREE_ENTRY(node, struct span, by_size);
            if (!heap->store->plain && span->size < heap->arena->granule)
                break;
            if (!span_idle_locked(heap, span) && span->batch < oldest && span_holds_piece_locked(heap, span))
                oldest = span->batch;
        }
    }
    return oldest;
}

bool wait_oldest_locked(struct heap *heap, struct mark **mark)
{
    *mark = NULL;
    if (wait_collect_locked(heap))
        return true;
    *mark = mark_keep(use_oldest_locked(heap));
    if (*mark)
        return true;

    uint64_t batch = batch_oldest_locked(heap);
    if (batch == UINT64_MAX)
        return false;
    heap_learn_locked(heap, true);
    if (batch <= heap->idle_batch)
        return true;
    unsigned closed = 0;
    while (closed < heap->closed_count && heap->closed[closed].number < batch)
        closed++;
    if (closed == heap->closed_count)
        closed = 0; /* no batch can be closed before one has ended */
    *mark = heap->closed_count ? mark_keep(heap->closed[closed].mark) : NULL;
    return *mark != NULL;
}

static tarn_status sum_add(struct use **sum, const struct use *uses)
{
    tarn_status status = TARN_OK;
    for (; uses && !status; uses = uses->next)
        if (uses->stream)
            status = use_add(sum, uses->stream, uses->generation, 0);
    return status;
}

static tarn_status sum_add_span(struct use **sum, const struct span *span)
{
    tarn_status status = TARN_OK;
    if (span->state == SPAN_BLOCK)
        return sum_add(sum, span->uses);
    struct use **uses = span->state == SPAN_SLAB ? atomic_load_explicit(&span->slab->uses, memory_order_relaxed) : NULL;
    for (unsigned slot = 0; uses && slot < span->slab->slots && !status; slot++)
        status = sum_add(sum, uses[slot]);
    return status;
}

tarn_status uses_sum_locked(struct heap *heap, struct use **sum)
{
    tarn_status status = TARN_OK;
    for (int zone = 0; zone < ZONES; zone++)
        for (const struct run *run = heap->zones[zone].runs; run; run = run->next)
            for (const struct span *span = run->first; span && !status; span = span->next)
                status = sum_add_span(sum, span);
    return status;
}

tarn_status uses_wait(struct use *sum)
{
    tarn_status status = TARN_OK;
    for (; sum; sum = use_destroy(sum)) {
        if (!status)
            status = use_mark(sum);
        if (!status && sum->mark)
            status = mark_wait(sum->mark);
    }
    return status;
}
