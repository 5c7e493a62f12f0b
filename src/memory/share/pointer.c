/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Looks up a caller's pointer. Owns nothing. */
#include "memory/share/pointer.h"
#include "base/status.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/segment.h"
#include "memory/range/range.h"
#include "memory/settings/hooks.h"
#include "memory/share/import.h"

static tarn_status not_a_block(uintptr_t address)
{
    if (import_has(address))
        return import_refuse(address);
    if (range_has(address))
        return range_refuse(address);
    tarn_status status = hooks.keep_refuse_pointer(address);
    if (status)
        return status;
    if ((arena_at(address) || segment_has(address)) && address % TARN_BLOCK_UNIT == 0)
        return failed(TARN_ERROR_DOUBLE_FREE,
                      "%p lies in tarn's memory, but no block is live there: it was freed before, "
                      "or never handed out",
                      (void *)address);
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not memory that tarn handed out",
                  (void *)address);
}

tarn_status pointer_lock(const void *pointer, bool start, struct block *block)
{
    uintptr_t address = (uintptr_t)pointer;
    if (!block_find_lock(address, block))
        return not_a_block(address);
    uintptr_t from = block->start + block->front;
    size_t at = address - from, usable = block_usable(block);
    if (start ? at == 0 : at < usable)
        return TARN_OK;
    block_unlock(block);
    if (address < from)
        return failed(TARN_ERROR_INVALID_POINTER,
                      "%p is not in a block: it lies %zu bytes before the one at %p", pointer,
                      (size_t)(from - address), (void *)from);
    return failed(TARN_ERROR_INVALID_POINTER,
                  "%p is not %s a block: it lies %zu bytes into the one at %p, of %zu", pointer,
                  at < usable ? "the start of" : "in", at, (void *)from, usable);
}

static tarn_status lock(const void *pointer, struct block *block)
{
    tarn_status status = memory_ready();
    if (!status)
        status = pointer_lock(pointer, false, block);
    return status == TARN_ERROR_DOUBLE_FREE ? TARN_ERROR_INVALID_POINTER : status;
}

static tarn_status do_and_unlock(struct block *block, block_work work, void *argument)
{
    tarn_block_info info = block_info_locked(block);
    tarn_status status = work(block->heap->store, &info, argument);
    block_unlock(block);
    return status;
}

tarn_status pointer_do(const void *pointer, block_work work, void *argument)
{
    struct block block;
    tarn_status status = lock(pointer, &block);
    return status ? status : do_and_unlock(&block, work, argument);
}

/* Whether a compaction has part of the block in host memory now. */
static bool is_passing_locked(const struct block *block)
{
    const struct store *store = block->heap->store;
    uintptr_t start = block->start + block->front, end = start + block_usable(block);
    bool passing = false;
    if (!store->kind.pieces || atomic_load_explicit(&store->suspended, memory_order_acquire))
        return false; /* the pieces of a suspended store must not be read: store_check() */
    for (uintptr_t at = start; at < end && !passing;) {
        const struct piece *piece = arena_piece(block->heap->arena, at);
        passing = piece->temporary;
        at = piece->address + piece->size;
    }
    return passing;
}

tarn_status pointer_do_settled(const void *pointer, block_work work, void *argument)
{
    struct block block;
    for (;;) {
        tarn_status status = lock(pointer, &block);
        if (status)
            return status;
        if (!is_passing_locked(&block) || observe_runs_moving())
            return do_and_unlock(&block, work, argument);
        struct arena *arena = block.heap->arena; /* lasts as long as the process */
        block_unlock(&block);
        moves_flush(arena);
    }
}
