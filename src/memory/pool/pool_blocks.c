/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The live blocks of a pool, read heap by heap, each under its lock. Owns nothing. */
#include "base/status.h"
#include "memory/heap/parked.h"
#include "memory/heap/slab.h"
#include "memory/pool/pool.h"

#include <stdlib.h>

static bool is_used(const struct slab *slab, unsigned slot)
{
    struct use **uses = atomic_load_explicit(&slab->uses, memory_order_relaxed);
    return uses && uses_any(uses[slot]);
}

static void visit_span(struct heap *heap, struct span *span, tarn_stream stream,
                       struct visitor *visitor)
{
    size_t requested = 0;
    tarn_tag tag = 0;
    if (span->state == SPAN_BLOCK && span_is_live_locked(heap, span, &requested, &tag)) {
        struct visited visited = {{(void *)span->start, span->size, requested, stream, {0}},
                                  heap,
                                  span->front,
                                  tag,
                                  uses_any(span->uses),
                                  span->own,
                                  heap->stream,
                                  heap->incarnation,
                                  NULL};
        visitor->visit(visitor, &visited);
        return;
    }
    for (unsigned slot = 0; span->state == SPAN_SLAB && slot < span->slab->slots; slot++) {
        const struct slab *slab = span->slab;
        if (!slab_is_live(slab, slot))
            continue;
        struct visited visited = {{(void *)slab_address(slab, slot),
                                   slab->slot_size,
                                   slab_requested(slab, slot),
                                   stream,
                                   {0}},
                                  heap,
                                  zone_in_front(TARN_BLOCK_UNIT),
                                  slab_tag(slab, slot),
                                  is_used(slab, slot),
                                  false,
                                  heap->stream,
                                  heap->incarnation,
                                  NULL};
        visitor->visit(visitor, &visited);
    }
}

void visit_blocks(struct store *store, struct visitor *visitor)
{
    for (struct heap *heap = heap_next_of(store, NULL); heap; heap = heap_next_of(store, heap)) {
        mutex_lock(&heap->lock);
        tarn_stream stream = heap_stream_value(heap);
        for (int zone = 0; heap->store == store && zone < ZONES; zone++)
            for (const struct run *run = heap->zones.of[zone].runs; run; run = run->next)
                for (struct span *span = run->first; span; span = span->next)
                    visit_span(heap, span, stream, visitor);
        mutex_unlock(&heap->lock);
    }
}

tarn_pool_block block_of_caller(const struct visited *visited)
{
    tarn_pool_block callers = visited->block;
    if (visited->front) {
        callers.address = (char *)callers.address + visited->front;
        callers.usable_size = callers.requested;
    }
    return callers;
}

static void keep(struct visitor *visitor, const struct visited *visited)
{
    if (visited->own)
        return;
    if (visitor->count < visitor->room)
        visitor->blocks[visitor->count] = block_of_caller(visited);
    visitor->count++;
}

int block_order(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const tarn_pool_block *)a)->address,
              y = (uintptr_t)((const tarn_pool_block *)b)->address;
    return x < y ? -1 : x > y;
}

tarn_status tarn_pool_blocks_get(tarn_pool *pool, tarn_pool_block *blocks, size_t room,
                                 size_t *count)
{
    tarn_status status = pool_check_any(pool);
    if (status)
        return status;
    if (!count || (room && !blocks))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "count is NULL, or blocks is NULL with room for some");
    struct visitor visitor = {.visit = keep, .room = room, .blocks = blocks};
    struct store *store = store_of_public(pool);
    visit_blocks(store, &visitor);
    if (store_is_default(store))
        visit_blocks(&store->arena->uncached, &visitor);
    if (room)
        qsort(blocks, visitor.count < room ? visitor.count : room, sizeof *blocks, block_order);
    *count = visitor.count;
    return TARN_OK;
}
