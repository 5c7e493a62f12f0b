/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns each heap's list of ghosts, under the heap's lock. A ghost's batch is never later than the
 * batch of the span in which its pieces lie now. So when a piece is idle, its ghosts are idle too,
 * and they are ended before the piece is unmapped or moves. */
#include "memory/growth/ghost.h"
#include "base/pages.h"
#include "base/status.h"

static struct object_pool ghost_objects = OBJECT_POOL(struct ghost);

struct ghost *ghost_create(void)
{
    struct ghost *ghost = object_alloc(&ghost_objects);
    if (!ghost)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to remember old addresses");
    return ghost;
}

void ghost_destroy(struct ghost *ghost)
{
    object_free(&ghost_objects, ghost);
}

void ghost_begin_locked(struct heap *heap, struct ghost *ghost, uintptr_t start, size_t size,
                        uint64_t batch)
{
    *ghost = (struct ghost){heap->ghosts, start, size, batch};
    heap->ghosts = ghost;
}

/* Those of the batches up to `batch`. */
static struct ghost *take_locked(struct heap *heap, uint64_t batch)
{
    struct ghost *taken = NULL;
    for (struct ghost **place = &heap->ghosts; *place;) {
        struct ghost *ghost = *place;
        if (ghost->batch > batch) {
            place = &ghost->next;
            continue;
        }
        *place = ghost->next;
        ghost->next = taken;
        taken = ghost;
    }
    return taken;
}

struct ghost *ghosts_take_locked(struct heap *heap)
{
    return atomic_load(&heap->store->suspended) ? NULL : take_locked(heap, heap->batches.idle);
}

struct ghost *ghosts_take_all_locked(struct heap *heap)
{
    return take_locked(heap, UINT64_MAX);
}

tarn_status ghosts_end(struct heap *heap, struct ghost *ghosts)
{
    tarn_status first = TARN_OK;
    for (struct ghost *ghost = ghosts, *next; ghost; ghost = next) {
        next = ghost->next;
        tarn_status status = arena_unmap(heap->arena, ghost->start, ghost->size);
        mutex_lock(&heap->lock);
        if (status)
            ghost_begin_locked(heap, ghost, ghost->start, ghost->size, ghost->batch);
        else
            heap_unclaim_locked(heap, ghost->start, ghost->size);
        mutex_unlock(&heap->lock);
        if (!status)
            ghost_destroy(ghost);
        first = first ? first : status;
    }
    return first;
}
