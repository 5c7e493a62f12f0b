/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls that look at a block or grow it. Owns nothing. */
#include "base/sized.h"
#include "base/status.h"
#include "memory/debug/debug.h"
#include "memory/heap/traced.h"
#include "memory/pinned/pinned.h"
#include "memory/pool/referred.h"
#include "memory/settings/hooks.h"
#include "memory/share/import.h"
#include "memory/share/pointer.h"

/* Grows a block in place, and counts that. */
static tarn_status block_extend_locked(struct block *block, size_t size)
{
    if (block->front && size > block->requested)
        return failed(TARN_ERROR_NO_ROOM,
                      "the block at %p has %zu bytes, followed by a red zone of debug mode",
                      (void *)(block->start + block->front), block->requested);
    size_t more = 0, rounded = (size + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1);
    if (rounded > block->size) {
        more = rounded - block->size;
        tarn_status status =
            block->slab ? TARN_ERROR_NO_ROOM : span_extend_locked(block->heap, block->span, more);
        if (status == TARN_ERROR_NO_ROOM)
            return failed(status, "the block at %p has %zu bytes and cannot grow to %zu in place",
                          (void *)block->start, block->size, size);
        if (status)
            return status;
    }
    if (size > block->requested) {
        counters_oversize none = 0;
        if (block->slab)
            slab_set_requested_locked(block->slab, block->slot, size);
        else
            block->span->requested = size;
        referred_resize(block_uses_of(block), size);
        counters_extended(block->heap->store->counters, block->size, more, block->requested,
                          size - block->requested, block->slab ? &none : &block->span->oversize);
        uint16_t tag = block->slab ? slab_tag(block->slab, block->slot) : block->span->tag;
        trace_block(TRACE_free, block->heap, block->start, block->requested, tag);
        trace_block(TRACE_alloc, block->heap, block->start, size, tag);
    }
    return TARN_OK;
}

tarn_status tarn_extend(void *pointer, size_t size)
{
    struct block block;
    tarn_status status = memory_ready();
    if (!status)
        status = pointer_lock(pointer, true, &block);
    if (status)
        return status;
    if (size > TARN_MAX_SIZE)
        status = failed(TARN_ERROR_NO_ROOM, "%zu bytes are more than 1 EiB", size);
    else
        status = block_extend_locked(&block, size);
    if (!status && size > block.size && blocks_are_watched())
        driver->owner_set(block.heap->arena->device->number, block.start + block.size,
                          block.span->size - block.size, block.heap->stream->native);
    if (!status && debug_is_on() && size > block.requested)
        debug_extended_locked(block.start, block.slab ? block.size : block.span->size, size);
    bool tell = !status && size > block.requested && announces(block.heap->store);
    block_unlock(&block);
    if (tell)
        announcer->block_resized((uintptr_t)pointer, size);
    return status;
}

tarn_status tarn_usable_size_get(const void *pointer, size_t *size)
{
    struct block block;
    if (!size)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "size is NULL");
    if (tarn_pinned_contains(pointer))
        return pinned_usable(pointer, size);
    tarn_status status = memory_ready();
    if (!status)
        status = pointer_lock(pointer, true, &block);
    if (status)
        return status;
    block_unlock(&block);
    *size = block_usable(&block);
    return TARN_OK;
}

static tarn_status note_info(struct store *store, const tarn_block_info *block, void *argument)
{
    (void)store;
    *(tarn_block_info *)argument = *block;
    return TARN_OK;
}

tarn_status tarn_pointer_info_get(const void *pointer, tarn_block_info *info)
{
    tarn_block_info found;
    tarn_status status = sized_check("tarn_block_info", info, sizeof *info);
    if (!status)
        status = memory_ready();
    if (status)
        return status;
    if (!import_info(pointer, &found))
        status = pointer_do(pointer, note_info, &found);
    if (!status)
        sized_write(info, &found, sizeof found);
    return status;
}
