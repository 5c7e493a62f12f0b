/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The live blocks of a pool, read heap by heap, each under its lock. Owns nothing. */
#include "base/pages.h"
#include "base/status.h"
#include "memory/debug/debug.h"
#include "memory/kept.h"
#include "memory/pool.h"
#include "memory/slab.h"

#include <stdlib.h>

static bool is_used(const struct slab *slab, unsigned slot)
{
    struct use **uses = atomic_load_explicit(&slab->uses, memory_order_relaxed);
    return uses && uses[slot];
}

static void visit_span(struct heap *heap, const struct span *span, tarn_stream stream, struct visitor *visitor)
{
    size_t requested = 0;
    if (span->state == SPAN_BLOCK && span_is_live_locked(heap, span, &requested)) {
        tarn_pool_block block = {(void *)span->start, span->size, requested, stream};
        visitor->visit(visitor, heap, &block, span->front, span->uses);
        return;
    }
    for (unsigned slot = 0; span->state == SPAN_SLAB && slot < span->slab->slots; slot++) {
        if (!slab_is_live(span->slab, slot))
            continue;
        tarn_pool_block block = {(void *)slab_address(span->slab, slot), span->slab->slot_size,
                                 slab_requested(span->slab, slot), stream};
        visitor->visit(visitor, heap, &block, debug_front(TARN_BLOCK_UNIT), is_used(span->slab, slot));
    }
}

void visit_blocks(struct store *store, struct visitor *visitor)
{
    struct arena *arena = store->arena;
    for (struct heap *heap = heap_next(arena, NULL); heap; heap = heap_next(arena, heap)) {
        mutex_lock(&heap->lock);
        tarn_stream stream = (tarn_stream)heap->generation << 32 | (heap->stream ? heap->stream->slot : 0);
        for (int zone = 0; heap->store == store && zone < ZONES; zone++)
            for (const struct run *run = heap->zones[zone].runs; run; run = run->next)
                for (const struct span *span = run->first; span; span = span->next)
                    visit_span(heap, span, stream, visitor);
        mutex_unlock(&heap->lock);
    }
}

tarn_pool_block block_of_caller(const tarn_pool_block *block, size_t front)
{
    tarn_pool_block callers = *block;
    if (front) {
        callers.address = (char *)block->address + front;
        callers.usable_size = block->requested;
    }
    return callers;
}

static void keep(struct visitor *visitor, struct heap *heap, const tarn_pool_block *block, size_t front, bool used)
{
    (void)heap, (void)used;
    if (visitor->count < visitor->room)
        visitor->blocks[visitor->count] = block_of_caller(block, front);
    visitor->count++;
}

int block_order(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const tarn_pool_block *)a)->address,
              y = (uintptr_t)((const tarn_pool_block *)b)->address;
    return x < y ? -1 : x > y;
}

tarn_status tarn_pool_blocks(tarn_pool *pool, tarn_pool_block *blocks, size_t room, size_t *count)
{
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    if (!count || (room && !blocks))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "count is NULL, or blocks is NULL with room for some");
    struct visitor visitor = {.visit = keep, .room = room, .blocks = blocks};
    visit_blocks(&pool_of_public(pool)->store, &visitor);
    if (room)
        qsort(blocks, visitor.count < room ? visitor.count : room, sizeof *blocks, block_order);
    *count = visitor.count;
    return TARN_OK;
}

static int by_value(const void *a, const void *b)
{
    uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;
    return x < y ? -1 : x > y;
}

static bool is_same(const tarn_pool_block *blocks, const uintptr_t *addresses, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((uintptr_t)blocks[i].address != addresses[i])
            return false;
    return true;
}

tarn_status tarn_pool_check_live(tarn_pool *pool, void *const *pointers, size_t count, bool *same)
{
    if (!same || (count && !pointers))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "same is NULL, or pointers is NULL with a count");
    tarn_status status = pool_check(pool);
    if (status)
        return status;
    size_t found = 0, bytes = (count + 1) * sizeof(tarn_pool_block), list = (count + 1) * sizeof(uintptr_t);
    tarn_pool_block *blocks = pages_alloc(bytes);
    uintptr_t *addresses = pages_alloc(list);
    if (!blocks || !addresses)
        status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to compare %zu blocks", count);
    if (!status && !(status = tarn_pool_blocks(pool, blocks, count + 1, &found))) {
        for (size_t i = 0; i < count; i++)
            addresses[i] = (uintptr_t)pointers[i];
        qsort(addresses, count, sizeof *addresses, by_value);
        *same = found == count && is_same(blocks, addresses, count);
    }
    pages_free(addresses, list);
    pages_free(blocks, bytes);
    return status;
}
