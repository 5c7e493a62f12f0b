/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What freed blocks of pinned memory wait for. A use is created when a block is recorded on a
 * stream, so that a free cannot fail. If its mark cannot be recorded at the free, since the stream
 * captures or the driver refuses, it is recorded later. Each stream has a queue in the order of the
 * frees, and a check of it ends at the first use that has not ended. So a check asks the driver
 * once per stream, and no stream holds back what another has finished with. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/pinned/heap.h"

static struct object_pool use_objects = OBJECT_POOL(struct pinned_use);
static struct object_pool queue_objects = OBJECT_POOL(struct pinned_queue);
static struct object_pool pool_objects = OBJECT_POOL(struct pinned_pool);
static struct object_pool keeper_objects = OBJECT_POOL(struct pinned_keeper);

/* ---- Uses ---- */

static struct pinned_queue *queue_of(struct stream *stream)
{
    struct pinned_queue *queue = stream->pinned;
    if (!queue) {
        queue = object_alloc(&queue_objects);
        if (queue) {
            queue->last = &queue->first;
            stream->pinned = queue;
        }
    }
    return queue;
}

#define USE_OF(node) TREE_ENTRY(node, struct pinned_use, by_stream)

static int use_order(const struct pinned_use *use, const struct stream *stream,
                     unsigned incarnation)
{
    if (use->stream != stream)
        return (uintptr_t)use->stream < (uintptr_t)stream ? -1 : 1;
    return (use->incarnation > incarnation) - (use->incarnation < incarnation);
}

static bool use_is_before(const struct tree_node *a, const struct tree_node *b)
{
    return use_order(USE_OF(a), USE_OF(b)->stream, USE_OF(b)->incarnation) < 0;
}

tarn_status pinned_use_add_locked(struct pinned_use **uses, struct stream *stream)
{
    unsigned incarnation = atomic_load_explicit(&stream->incarnation, memory_order_relaxed);
    const struct tree_node *node = *uses ? (*uses)->streams.root : NULL;
    int order;
    while (node && (order = use_order(USE_OF(node), stream, incarnation)) != 0)
        node = node->sides[order < 0];
    if (node)
        return TARN_OK;
    struct pinned_use *use = queue_of(stream) ? object_alloc(&use_objects) : NULL;
    if (!use)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory for the use of pinned memory by a stream");
    use->stream = stream;
    use->incarnation = incarnation;
    use->next = *uses;
    use->streams.root = *uses ? (*uses)->streams.root : NULL;
    *uses = use;
    tree_insert_by(&use->streams, &use->by_stream, use_is_before);
    return TARN_OK;
}

static void use_destroy(struct pinned_use *use)
{
    mark_release(use->mark);
    object_free(&use_objects, use);
}

/* Records a mark for the stream's work so far, if there is none yet. */
static tarn_status use_mark(struct pinned_use *use)
{
    if (use->marked)
        return TARN_OK;
    tarn_status status = mark_of_stream(use->stream, use->incarnation, &use->mark);
    use->marked = status == TARN_OK;
    return status;
}

void pinned_uses_mark(struct pinned_use *uses)
{
    for (; uses; uses = uses->next)
        (void)use_mark(uses);
}

/* Work on a lost device counts as ended: it will never touch memory again. */
static bool use_ended(struct pinned_use *use)
{
    if (atomic_load_explicit(&device_at(use->stream->device)->lost, memory_order_relaxed))
        return true;
    tarn_status status = use_mark(use);
    if (status == TARN_OK && use->mark)
        status = mark_query(use->mark);
    return status == TARN_OK || status == TARN_ERROR_DEVICE_LOST;
}

/* ---- Pending blocks ---- */

void pinned_wait_begin_locked(struct pinned_block *block)
{
    block->state = PINNED_PENDING;
    pinned.stats.pending_bytes += (int64_t)block->size;
    for (struct pinned_use *use = block->uses, *next; use; use = next) {
        struct pinned_queue *queue = use->stream->pinned;
        next = use->next;
        use->block = block;
        block->waits++;
        *queue->last = use;
        queue->last = &use->next_pending;
        if (!queue->listed) {
            queue->next = pinned.queues;
            pinned.queues = queue;
            queue->listed = true;
        }
    }
    block->uses = NULL;
    if (pinned.settings.background_threads)
        pthread_cond_signal(&pinned.work);
}

static void collect_queue(struct pinned_queue *queue)
{
    for (struct pinned_use *use; (use = queue->first) && use_ended(use);) {
        struct pinned_block *block = use->block;
        queue->first = use->next_pending;
        if (!queue->first)
            queue->last = &queue->first;
        use_destroy(use);
        if (--block->waits == 0) {
            pinned.stats.pending_bytes -= (int64_t)block->size;
            pinned_give_locked(block);
        }
    }
}

size_t pinned_marks_locked(struct mark *marks[MARKS_MOST])
{
    struct mark *whole = NULL;
    size_t count = 0;
    for (const struct pinned_queue *queue = pinned.queues; queue && count < MARKS_MOST;
         queue = queue->next) {
        struct mark *mark = queue->first ? queue->first->mark : NULL;
        if (mark && mark_is_of_device(mark))
            whole = whole ? whole : mark;
        else if (mark)
            marks[count++] = mark_keep(mark);
    }
    if (!count && whole)
        marks[count++] = mark_keep(whole);
    return count;
}

/* ---- Kept blocks, and the death of pools ---- */

void pinned_unkeep_locked(struct pinned_keeper *keeper)
{
    for (struct pinned_block *block; (block = keeper->of_graphs);) {
        keeper->of_graphs = block->link;
        block->captured = NULL;
        pinned.stats.graph_bytes -= (int64_t)block->size;
        if (block->uses) {
            /* A trim, and a request that lacks memory, wait only for marks. */
            pinned_uses_mark(block->uses);
            pinned_wait_begin_locked(block);
        } else {
            pinned_give_locked(block);
        }
    }
}

/* A freed block waits for graphs while a capture or graph that uses it was counted. So when nothing
 * is counted, no such block is used. */
bool pinned_is_unheld_locked(const struct pinned_keeper *keeper)
{
    return keeper->holds && atomic_load(keeper->holds) == 0;
}

void pinned_keeper_enter_locked(struct pinned_keeper *keeper)
{
    keeper->listed = true;
    keeper->next = pinned.keepers;
    pinned.keepers = keeper;
}

/* Whether a keeper stays in the list. */
static bool stays(const struct pinned_keeper *keeper)
{
    return keeper->parent ? keeper->holders || !pinned_is_unheld_locked(keeper)
                          : keeper->of_graphs != NULL;
}

/* Frees blocks that wait for graphs when nothing holds them any more, and takes keepers without
 * blocks out of the list. Ends the keepers of captures whose graphs have ended. */
static void collect_keepers(const struct pinned_keeper *dying)
{
    for (struct inbox_item *item = inbox_take(&pinned.over); item; item = item->next) {
        struct pinned_keeper *over = INBOX_ENTRY(item, struct pinned_keeper, over);
        if (!over->listed)
            pinned_keeper_enter_locked(over);
    }
    for (struct pinned_keeper **place = &pinned.keepers, *keeper; (keeper = *place);) {
        if (pinned_is_unheld_locked(keeper))
            pinned_unkeep_locked(keeper);
        if (keeper != dying && stays(keeper)) {
            place = &keeper->next;
            continue;
        }
        *place = keeper->next;
        keeper->listed = false;
        if (keeper->parent) {
            pinned_forget_locked(keeper);
            object_free(&keeper_objects, keeper);
        }
    }
}

void pinned_captures_end_locked(const struct pinned_keeper *parent)
{
    for (struct pinned_keeper *keeper = pinned.keepers; keeper; keeper = keeper->next)
        if (keeper->parent == parent) {
            atomic_store(&keeper->lasts, 0);
            keeper->holds = &keeper->lasts;
        }
}

struct pinned_keeper *pinned_capture_create(struct pinned_keeper *parent)
{
    struct pinned_keeper *created = object_alloc(&keeper_objects);
    if (!created)
        return NULL;
    created->parent = parent;
    atomic_init(&created->lasts, 1);
    created->holds = &created->lasts;
    return created;
}

void pinned_capture_over(struct pinned_keeper *capture)
{
    atomic_store(&capture->lasts, 0);
    inbox_add(&pinned.over, &capture->over);
}

void pinned_capture_leave(struct pinned_keeper *capture)
{
    mutex_lock(&pinned.lock);
    capture->holds = capture->parent->holds;
    pinned_keeper_enter_locked(capture);
    mutex_unlock(&pinned.lock);
}

void pinned_pool_die_locked(struct pinned_pool *pool)
{
    collect_keepers(&pool->keeper);
    pinned_unkeep_locked(&pool->keeper);
    pinned_absorb_locked(pool);
    object_free(&pool_objects, pool);
}

void pinned_collect_locked(void)
{
    collect_keepers(NULL);
    for (struct pinned_queue **place = &pinned.queues, *queue; (queue = *place);) {
        collect_queue(queue);
        if (queue->first) {
            place = &queue->next;
            continue;
        }
        *place = queue->next;
        queue->listed = false;
    }
}

tarn_status pinned_pool_create(struct pinned_pool **pool)
{
    struct pinned_pool *created = object_alloc(&pool_objects);
    if (!created)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a pool of pinned memory");
    created->keeper.holders = 1;
    *pool = created;
    return TARN_OK;
}
