/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds live blocks, and the public calls that look at one, or grow it. Owns nothing. An entry of the page map that is not the caller's
 * own may change at any moment, and says nothing before the lock of the heap that it names is held. */
#include "memory/block.h"
#include "base/status.h"
#include "memory/announce.h"
#include "memory/cache.h"
#include "memory/debug/debug.h"
#include "memory/kept.h"
#include "memory/ladder.h"
#include "memory/malloc.h"
#include "memory/segment.h"
#include "memory/share/import.h"
#include "memory/traced.h"

/* Finds the live block of a span or slab that holds an address, under the lock of its heap. */
static bool block_in_span_locked(struct span *span, uintptr_t address, struct block *block)
{
    while (span->next && span->next->start <= address) /* of the page's blocks, the entry is the first */
        span = span->next;
    if (span->state != SPAN_BLOCK || address - span->start >= span->size || !span_claim_locked(block->heap, span))
        return false;
    *block = (struct block){block->heap, span, NULL, 0, span->start, span->size, span->requested, span->front, false};
    return true;
}

static bool block_in_slab_locked(struct slab *slab, uintptr_t address, struct block *block)
{
    unsigned slot = slab_slot(slab, address);
    if (slot >= slab->slots || !slab_is_live(slab, slot))
        return false;
    *block = (struct block){block->heap,
                            slab->span,
                            slab,
                            slot,
                            slab_address(slab, slot),
                            slab->slot_size,
                            slab_requested(slab, slot),
                            debug_front(TARN_BLOCK_UNIT),
                            false};
    return true;
}

void block_unlock(const struct block *block)
{
    if (!block->slab && !block->ended)
        span_unclaim_locked(block->heap, block->span);
    mutex_unlock(&block->heap->lock);
}

void block_unlock_freed(const struct block *block)
{
    struct heap *heap = block->heap;
    bool ordered = heap->store->ordered;
    block_unlock(block);
    if (ordered)
        ladder_return(heap);
}

static struct heap *heap_of_entry(map_entry entry)
{
    struct slab *slab = map_slab(entry);
    struct span *span = map_span(entry);
    if (slab)
        return slab_owner(slab) ? slab_owner(slab)->heap : NULL;
    return span ? atomic_load_explicit(&span->heap, memory_order_relaxed) : NULL;
}

/* The entry of a page with the lock of its heap held; 0, nothing held, when the page has none, or more than one heap's. An entry that is
 * not the caller's own may change at any moment: it says nothing before the lock of the heap that it names is held. */
static map_entry page_lock(uintptr_t page, struct heap **heap)
{
    for (map_entry entry = map_get(page); entry && entry != MAP_SHARED; entry = map_get(page)) {
        *heap = heap_of_entry(entry);
        if (!*heap)
            continue; /* changed meanwhile */
        mutex_lock(&(*heap)->lock);
        if (map_get(page) == entry && heap_of_entry(entry) == *heap)
            return entry;
        mutex_unlock(&(*heap)->lock);
    }
    return 0;
}

/* The page map's last entry of what begins at or before an address, or the first span of the plain segment around it, with the lock
 * of its heap held; 0, nothing held, if there is none. */
static map_entry entry_lock(uintptr_t address, struct heap **heap)
{
    const struct arena *arena = NULL;
    for (uintptr_t page = address & ~(MAP_PAGE - 1);; page -= MAP_PAGE) {
        map_entry entry = page_lock(page, heap);
        if (entry && (map_slab(entry) || map_span(entry)->start <= address))
            return entry;
        if (entry)
            mutex_unlock(&(*heap)->lock);
        if (!arena && !(arena = arena_at(address)))
            return map_entry_of_span(segment_lock(address, heap));
        if (page <= arena->base)
            return 0;
    }
}

/* Finds the live block that holds an address, with the lock of its heap held then. */
bool block_find_lock(uintptr_t address, struct block *block)
{
    map_entry entry = entry_lock(address, &block->heap);
    if (!entry)
        return false;
    bool found = map_slab(entry) ? block_in_slab_locked(map_slab(entry), address, block)
                                 : block_in_span_locked(map_span(entry), address, block);
    if (!found)
        mutex_unlock(&block->heap->lock);
    return found;
}

static tarn_status not_a_block(uintptr_t address)
{
    if (import_holds(address))
        return import_refuse(address);
    if ((arena_at(address) || segment_holds(address)) && address % TARN_BLOCK_UNIT == 0)
        return failed(TARN_ERROR_DOUBLE_FREE,
                      "%p lies in memory of tarn's where no block is live: it was freed before, or never handed out",
                      (void *)address);
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not memory that tarn handed out", (void *)address);
}

/* Finds the live block that holds an address, or that begins there, with the lock of its heap held. */
tarn_status block_lock(const void *pointer, bool start, struct block *block)
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
        return failed(TARN_ERROR_INVALID_POINTER, "%p is not in a block: it lies %zu bytes before the one at %p",
                      pointer, (size_t)(from - address), (void *)from);
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not %s a block: it lies %zu bytes into the one at %p, of %zu",
                  pointer, at < usable ? "the start of" : "in", at, (void *)from, usable);
}

struct use **block_uses(struct block *block)
{
    return block->slab ? slab_uses_locked(block->slab, block->slot) : &block->span->uses;
}

/* Public ---------------------------------------------------------------------------------------------------------- */

/* Grows a block in place; the counters follow. */
static tarn_status block_extend_locked(struct block *block, size_t size)
{
    if (block->front && size > block->requested)
        return failed(TARN_ERROR_NO_ROOM, "the block at %p has %zu bytes, and a red zone of debug mode behind them",
                      (void *)(block->start + block->front), block->requested);
    size_t more = 0, rounded = (size + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1);
    if (rounded > block->size) {
        more = rounded - block->size;
        if (block->slab || !span_extend_locked(block->heap, block->span, more))
            return failed(TARN_ERROR_NO_ROOM, "the block at %p has %zu bytes and cannot grow to %zu in place",
                          (void *)block->start, block->size, size);
    }
    if (size > block->requested) {
        if (block->slab)
            slab_set_requested_locked(block->slab, block->slot, size);
        else
            block->span->requested = size;
        counters_extended(block->heap->store->counters, block->size, more, block->requested, size - block->requested);
        trace_block(TRACE_free, block->heap, block->start, block->requested, 0);
        trace_block(TRACE_alloc, block->heap, block->start, size, 0);
    }
    return TARN_OK;
}

tarn_status tarn_extend(void *pointer, size_t size)
{
    struct block block;
    tarn_status status = memory_ready();
    if (status || (status = block_lock(pointer, true, &block)))
        return status;
    if (size > TARN_MAX_SIZE)
        status = failed(TARN_ERROR_NO_ROOM, "%zu bytes are more than 1 EiB", size);
    else
        status = block_extend_locked(&block, size);
    if (!status && size > block.size && blocks_are_watched())
        driver->owner_set(block.heap->arena->device->number, block.start + block.size, block.span->size - block.size,
                          block.heap->stream->native);
    if (!status && debug_is_on() && size > block.requested)
        debug_extended_locked(block.start, block.slab ? block.size : block.span->size, size);
    bool tell = !status && size > block.requested && announces(block.heap->store);
    block_unlock(&block);
    if (tell)
        announcer->block_resized((uintptr_t)pointer, size);
    return status;
}

tarn_status tarn_usable_size(const void *pointer, size_t *size)
{
    struct block block;
    if (!size)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "size is NULL");
    tarn_status status = memory_ready();
    if (status || (status = block_lock(pointer, true, &block)))
        return status;
    block_unlock(&block);
    *size = block_usable(&block);
    return TARN_OK;
}

static tarn_block_info block_info_locked(const struct block *block)
{
    return (tarn_block_info){
        .size = sizeof(tarn_block_info),
        .base = (void *)(block->start + block->front),
        .usable_size = block_usable(block),
        .requested = block->requested,
        .device = block->heap->arena->device->number,
        .stream = (tarn_stream)block->heap->generation << 32 | block->heap->stream->slot,
        .tag = block->slab ? slab_tag(block->slab, block->slot) : block->span->tag,
        .pool = {block->heap->store->id[0], block->heap->store->id[1]},
    };
}

tarn_status memory_block_do(const void *pointer, block_work work, void *argument)
{
    struct block block;
    tarn_status status = memory_ready();
    if (status || (status = block_lock(pointer, false, &block)))
        return status == TARN_ERROR_DOUBLE_FREE ? TARN_ERROR_INVALID_POINTER : status;
    tarn_block_info info = block_info_locked(&block);
    status = work(block.heap->store, &info, argument);
    block_unlock(&block);
    return status;
}

static tarn_status note_info(struct store *store, const tarn_block_info *block, void *argument)
{
    (void)store;
    *(tarn_block_info *)argument = *block;
    return TARN_OK;
}

tarn_status tarn_pointer_info(const void *pointer, tarn_block_info *info)
{
    if (!info || info->size != sizeof *info)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "info is NULL, or its size is not sizeof(tarn_block_info)");
    tarn_status status = memory_ready();
    if (status || import_info(pointer, info))
        return status;
    return memory_block_do(pointer, note_info, info);
}
