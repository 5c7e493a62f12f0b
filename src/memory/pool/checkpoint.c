/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checkpoints of a pool: lists of the program's blocks, in host pages. A restore frees every such
 * block and takes the recorded blocks from the free memory. Each gets its own span, whatever its
 * size, because only a cache can choose a slot of its slabs. Blocks that belong to the library are
 * in no list: their owners allocate and free them, and a restore works around them. Everything that
 * can fail comes before the first change. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "base/thread/process.h"
#include "memory/arena/observe.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/pool/block.h"
#include "memory/pool/pool.h"
#include "memory/pool/referred.h"
#include "memory/settings/hooks.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct visited *blocks; /* by address */
    size_t count, room;
};

struct checkpoint {
    uint64_t id[2]; /* id of the pool */
    struct list list;
};

static struct object_pool checkpoints = OBJECT_POOL_NAMED(struct checkpoint);

/* A visitor that fills a list. */
struct collector {
    struct visitor visitor; /* first */
    struct list *list;
    bool own; /* lists the library's blocks; otherwise the program's */
};

static void collect(struct visitor *visitor, const struct visited *visited)
{
    const struct collector *collector = (const struct collector *)visitor;
    struct list *list = collector->list;
    if (visited->own != collector->own)
        return;
    if (list->count < list->room)
        list->blocks[list->count] = *visited;
    list->count++;
}

static void list_free(struct list *list)
{
    pages_unmap(list->blocks, list->room * sizeof *list->blocks);
    *list = (struct list){0};
}

/* Lists the live blocks of a store: those of the program, or those of the library. */
static tarn_status list_make(struct store *store, bool own, struct list *list)
{
    struct collector collector = {{.visit = collect}, list, own};
    for (size_t room = 1024;; room = list->count) {
        *list = (struct list){.blocks = pages_map(room * sizeof *list->blocks), .room = room};
        if (!list->blocks)
            return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                          "no host memory to list the blocks of a pool");
        visit_blocks(store, &collector.visitor);
        if (list->count <= room)
            break;
        pages_unmap(list->blocks, room * sizeof *list->blocks);
    }
    qsort(list->blocks, list->count, sizeof *list->blocks, block_order);
    return TARN_OK;
}

static tarn_status list_copy(const struct list *list, struct list *copy)
{
    size_t room = list->count ? list->count : 1;
    *copy = (struct list){pages_map(room * sizeof *copy->blocks), list->count, room};
    if (!copy->blocks) {
        *copy = (struct list){0};
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory to list the blocks of a checkpoint");
    }
    if (list->count)
        memcpy(copy->blocks, list->blocks, list->count * sizeof *copy->blocks);
    return TARN_OK;
}

tarn_status tarn_pool_checkpoint(tarn_pool *public, tarn_checkpoint **result)
{
    struct pool *pool = pool_of_public(public);
    tarn_status status = pool_check(public);
    if (status)
        return status;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "checkpoint is NULL");
    struct checkpoint *checkpoint = object_alloc(&checkpoints);
    if (!checkpoint)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a checkpoint");
    memcpy(checkpoint->id, pool->store.id, sizeof checkpoint->id);
    status = list_make(&pool->store, false, &checkpoint->list);
    if (status)
        object_free(&checkpoints, checkpoint);
    else
        *result = (tarn_checkpoint *)checkpoint;
    return status;
}

tarn_status tarn_checkpoint_destroy(tarn_checkpoint *public)
{
    struct checkpoint *checkpoint = (struct checkpoint *)public;
    if (!checkpoint)
        return TARN_OK;
    tarn_status status = process_check();
    if (status == TARN_ERROR_FORKED)
        return status;
    if (!object_is_live(&checkpoints, checkpoint))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%p is not a checkpoint, or was destroyed",
                      (const void *)checkpoint);
    list_free(&checkpoint->list);
    object_free(&checkpoints, checkpoint);
    return TARN_OK;
}

/* What a restore checks before it begins ------------------------------------------------------- */

static tarn_status check_quiet(struct store *store, const struct list *now)
{
    size_t waiting = 0;
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        if (heap->store == store) {
            (void)wait_collect_locked(heap);
            waiting += heap->waiting.bytes;
        }
        mutex_unlock(&heap->lock);
    }
    if (waiting)
        return failed(
            TARN_ERROR_BUSY,
            "a restore: %zu bytes of the pool wait for other streams; synchronize them first",
            waiting);
    for (size_t i = 0; i < now->count; i++)
        if (now->blocks[i].used)
            return failed(TARN_ERROR_BUSY,
                          "a restore: the block at %p is used by other streams; free it first",
                          now->blocks[i].block.address);
    return TARN_OK;
}

/* The run of a heap that holds an address, or NULL. */
static struct run *run_at_locked(struct heap *heap, uintptr_t address)
{
    for (int zone = 0; zone < ZONES; zone++)
        for (struct run *run = heap->zones.of[zone].runs; run; run = run->next)
            if (address - run->start < run->end - run->start)
                return run;
    return NULL;
}

/* Whether the memory of a block is still in its heap, and the heap still belongs to the same
 * stream: heaps are reused. */
static bool is_there(struct store *store, const struct visited *then)
{
    struct heap *heap = then->heap;
    uintptr_t start = (uintptr_t)then->block.address;
    mutex_lock(&heap->lock);
    bool same = heap->store == store && !heap->retired && heap->stream == then->stream &&
                heap->incarnation == then->incarnation;
    const struct run *run = same ? run_at_locked(heap, start) : NULL;
    bool is = run && then->block.usable_size <= run->end - start;
    mutex_unlock(&heap->lock);
    return is;
}

static uintptr_t end_of(const struct visited *visited)
{
    return (uintptr_t)visited->block.address + visited->block.usable_size;
}

static tarn_status check_places(struct store *store, const struct list *then,
                                const struct list *own)
{
    size_t at = 0;
    for (size_t i = 0; i < then->count; i++) {
        const struct visited *block = &then->blocks[i];
        if (!is_there(store, block))
            return failed(TARN_ERROR_NO_ROOM,
                          "a restore: the memory of the block at %p no longer belongs to the pool, "
                          "or to its stream",
                          block->block.address);
        while (at < own->count && end_of(&own->blocks[at]) <= (uintptr_t)block->block.address)
            at++;
        if (at < own->count && (uintptr_t)own->blocks[at].block.address < end_of(block))
            return failed(TARN_ERROR_NO_ROOM,
                          "a restore: where the block at %p was is now one of tarn's own blocks, "
                          "%zu bytes at %p, such as a "
                          "capture's workspace: tarn_workspace_clear() of the pool frees those "
                          "when the graphs are gone",
                          block->block.address, own->blocks[at].block.usable_size,
                          own->blocks[at].block.address);
    }
    return TARN_OK;
}

/* Creates two spans for each block, in a list by `next`. */
static struct span *spans_make(size_t count)
{
    struct span *list = NULL;
    for (size_t i = 0; i < 2 * count; i++) {
        struct span *span = span_create();
        if (!span) {
            while ((span = list)) {
                list = span->next;
                span_destroy(span);
            }
            return NULL;
        }
        span->next = list;
        list = span;
    }
    return list;
}

/* The restore itself --------------------------------------------------------------------------- */

/* Whether the list has the very block: also its start and size as the program has them. */
static bool has(const struct list *list, const struct visited *block)
{
    const struct visited *found =
        bsearch(block, list->blocks, list->count, sizeof *block, block_order);
    return found && found->heap == block->heap && found->front == block->front &&
           found->block.requested == block->block.requested &&
           found->block.usable_size == block->block.usable_size;
}

/* A block that is live before and after the restore keeps the note of the graphs that refer to it.
 * note_take() takes the note out of the block's list; the restore puts it into the list of the
 * block that is there again. */
static struct use *note_take(const struct visited *visited)
{
    struct block block;
    uintptr_t address = (uintptr_t)visited->block.address + visited->front;
    if (!block_find_lock(address, &block))
        return NULL;
    struct use **uses = block_is_referred(&block) ? block_uses(&block) : NULL,
               *note = uses ? use_take_referred(uses) : NULL;
    if (note && block.slab && !*uses)
        slab_set_state_locked(block.slab, block.slot, NOTE_TAKEN);
    block_unlock(&block);
    return note;
}

static void free_all(struct store *store, const struct list *then, struct list *now)
{
    if (debug_has(DEBUG_CONTENTS))
        hooks.debug_pause();
    for (size_t i = 0; i < now->count; i++) {
        bool stays = has(then, &now->blocks[i]);
        now->blocks[i].note = stays ? note_take(&now->blocks[i]) : NULL;
        if (store_has(store, STORE_KEPT))
            hooks.keep_spare(store, stays);
        (void)block_free_now((char *)now->blocks[i].block.address + now->blocks[i].front);
    }
    if (store_has(store, STORE_KEPT))
        hooks.keep_spare(store, false);
    if (debug_has(DEBUG_CONTENTS))
        hooks.debug_go_on();
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        if (heap->store == store)
            caches_reclaim_locked(heap);
        mutex_unlock(&heap->lock);
    }
}

static struct span *pop(struct span **list)
{
    struct span *span = *list;
    *list = span->next;
    span->next = NULL;
    return span;
}

/* The span of a heap that contains an address. Searches from the span where the last search
 * ended. */
static struct span *span_at_locked(struct heap *heap, struct span *from, uintptr_t address)
{
    bool near = from && from->start <= address && address < from->run->end;
    struct span *span = near ? from : run_at_locked(heap, address)->first;
    while (span->start + span->size <= address)
        span = span->next;
    return span;
}

/* Makes a part of the free memory at `block->address` a live block again. */
static struct span *take_locked(struct heap *heap, struct span *last, const tarn_pool_block *block,
                                size_t front, tarn_tag tag, struct use *note, struct span *fresh[2])
{
    uintptr_t start = (uintptr_t)block->address;
    struct span *span = span_at_locked(heap, last, start);
    span = span_take_at_locked(heap, span, start, block->usable_size, fresh);
    span->requested = block->requested;
    span->front = (uint32_t)front;
    span->tag = tag;
    span->state = SPAN_BLOCK;
    span_enter_locked(heap, span);
    if (note)
        use_put_referred(&span->uses, note);
    span_begin_locked(heap, span);
    return span;
}

tarn_status block_take_at(struct heap *heap, const tarn_pool_block *block, tarn_tag tag,
                          struct span **last)
{
    struct span *fresh[2] = {span_create(), span_create()};
    bool room = fresh[0] && fresh[1];
    if (room) {
        mutex_lock(&heap->lock);
        *last = take_locked(heap, *last, block, 0, tag, NULL, fresh);
        mutex_unlock(&heap->lock);
    }
    if (room && announces(heap->store))
        announcer->block((uintptr_t)block->address, block->requested, heap->store->id, tag);
    span_destroy(fresh[0]);
    span_destroy(fresh[1]);
    return room ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
}

/* The note of a block that was live before the restore. */
static struct use *note_of(const struct list *now, const struct visited *block)
{
    const struct visited *before =
        bsearch(block, now->blocks, now->count, sizeof *block, block_order);
    return before ? before->note : NULL;
}

static void take_all(const struct list *then, const struct list *now, struct span **spans)
{
    struct span *last = NULL;
    for (size_t i = 0; i < then->count; i++) {
        const struct visited *visited = &then->blocks[i];
        struct use *note = note_of(now, visited);
        const tarn_pool_block *block = &visited->block;
        struct heap *heap = visited->heap;
        struct span *fresh[2] = {pop(spans), pop(spans)};
        mutex_lock(&heap->lock);
        last = take_locked(heap, last, block, visited->front, visited->tag, note, fresh);
        mutex_unlock(&heap->lock);
        if (announces(heap->store))
            announcer->block((uintptr_t)block->address + visited->front, block->requested,
                             heap->store->id, visited->tag);
        span_destroy(fresh[0]);
        span_destroy(fresh[1]);
    }
}

CALLS_BACK static void
call_changed(const struct visited *visited, bool live,
             void (*changed)(const tarn_pool_block *block, bool live, void *user), void *user)
{
    const tarn_pool_block block = block_of_caller(visited);
    struct callback callback;
    callback_begin(&callback);
    changed(&block, live, user);
    callback_end(&callback);
}

static void tell(const struct list *from, const struct list *to, bool live,
                 void (*changed)(const tarn_pool_block *block, bool live, void *user), void *user)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    for (size_t i = 0; i < from->count; i++)
        if (!has(to, &from->blocks[i]))
            call_changed(&from->blocks[i], live, changed, user);
}

tarn_status tarn_pool_restore(tarn_pool *public, const tarn_checkpoint *public_checkpoint,
                              void (*changed)(const tarn_pool_block *block, bool live, void *user),
                              void *user)
{
    struct pool *pool = pool_of_public(public);
    const struct checkpoint *checkpoint = (const struct checkpoint *)public_checkpoint;
    struct list now = {0}, own = {0}, told = {0};
    tarn_status status = pool_check(public);
    if (!status)
        status = store_check(&pool->store);
    if (!status)
        status = observe_refuse_moving("a restore"); /* what the thread moves is in no free span */
    if (status)
        return status;
    if (!object_is_live(&checkpoints, checkpoint))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%p is not a checkpoint, or was destroyed",
                      (const void *)checkpoint);
    if (memcmp(checkpoint->id, pool->store.id, sizeof checkpoint->id) != 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the checkpoint is of another pool");
    const struct list *then = &checkpoint->list;
    debug_settles(&pool->store);
    pool_hold_still(pool);
    status = list_make(&pool->store, false, &now);
    if (!status)
        status = list_make(&pool->store, true, &own);
    if (!status && changed)
        status = list_copy(then, &told); /* the callback below may destroy the checkpoint */
    if (!status)
        status = check_quiet(&pool->store, &now);
    if (!status)
        status = check_places(&pool->store, then, &own);
    struct span *spans = status || !then->count ? NULL : spans_make(then->count);
    if (!status && then->count && !spans)
        status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status) {
        site_take(__builtin_return_address(0), true);
        free_all(&pool->store, then, &now);
        take_all(then, &now, &spans);
    }
    pool_hold_drop(pool);
    if (!status && changed) {
        tell(&now, &told, false, changed, user);
        tell(&told, &now, true, changed, user);
    }
    list_free(&told);
    list_free(&own);
    list_free(&now);
    return status;
}
