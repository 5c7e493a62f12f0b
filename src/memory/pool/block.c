/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds live blocks, and ends them. Owns nothing. An entry of the page map may change at any
 * moment, unless it belongs to a block of the caller. It is valid only while the lock of the heap
 * that it names is held. */
#include "memory/pool/block.h"
#include "base/status.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/growth/segment.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/heap/traced.h"
#include "memory/pool/referred.h"
#include "memory/settings/hooks.h"

/* Finds the live block of a span or slab that holds an address, under the lock of its heap. */
static bool block_in_span_locked(struct span *span, uintptr_t address, struct block *block)
{
    /* The entry is the page's first block; others follow. */
    while (span->next && span->next->start <= address)
        span = span->next;
    if (span->state != SPAN_BLOCK || address - span->start >= span->size ||
        !span_claim_locked(block->heap, span))
        return false;
    *block = (struct block){block->heap,     span,        NULL, 0, span->start, span->size,
                            span->requested, span->front, false};
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
                            zone_in_front(TARN_BLOCK_UNIT),
                            false};
    return true;
}

bool block_find_again_locked(uintptr_t address, struct block *block)
{
    struct slab *slab = map_slab(map_get(address));
    return slab && slab_owner(slab) && slab_owner(slab)->heap == block->heap &&
           block_in_slab_locked(slab, address, block);
}

void block_unlock(const struct block *block)
{
    if (!block->slab && !block->ended)
        span_unclaim_locked(block->heap, block->span);
    mutex_unlock(&block->heap->lock);
}

/* Gives free memory of a heap of an ordered store back to the driver now, unless memory must not be
 * moved. Never waits, because the caller of a free may hold locks. */
static void give_back_in_order(struct heap *heap)
{
    struct error_before before;
    error_attempt_begin(&before);
    if (observe_refuse_moving("giving memory back") == TARN_OK && move_try(heap->arena)) {
        segments_return(heap);
        move_end(heap->arena);
    }
    error_attempt_end(&before, TARN_OK);
}

void block_unlock_freed(const struct block *block)
{
    struct heap *heap = block->heap;
    bool ordered = heap->store->kind.ordered;
    block_unlock(block);
    if (ordered)
        give_back_in_order(heap);
}

static struct heap *heap_of_entry(map_entry entry)
{
    struct slab *slab = map_slab(entry);
    struct span *span = map_span(entry);
    if (slab)
        return slab_owner(slab) ? slab_owner(slab)->heap : NULL;
    return span ? atomic_load_explicit(&span->heap, memory_order_relaxed) : NULL;
}

/* Returns the entry of a page with the lock of its heap held. 0, with no lock held, if the page has
 * no entry, or blocks of more than one heap. An entry may change at any moment, so it is read again
 * under the lock. */
static map_entry page_lock(uintptr_t page, struct heap **heap)
{
    for (map_entry entry = map_get(page); entry && entry != MAP_SHARED; entry = map_get(page)) {
        *heap = heap_of_entry(entry);
        if (!*heap)
            continue; /* it has changed meanwhile */
        mutex_lock(&(*heap)->lock);
        if (map_get(page) == entry && heap_of_entry(entry) == *heap)
            return entry;
        mutex_unlock(&(*heap)->lock);
    }
    return 0;
}

/* Returns the last entry of the page map at or before an address, or the first span of the plain
 * segment around it, with the lock of its heap held. 0, with no lock held: there is none. */
static map_entry entry_lock(uintptr_t address, struct heap **heap)
{
    uintptr_t page = address & ~(MAP_PAGE - 1);
    map_entry entry = page_lock(page, heap);
    const struct arena *arena = NULL;
    while (!entry || (!map_slab(entry) && map_span(entry)->start > address)) {
        if (entry)
            mutex_unlock(&(*heap)->lock);
        if (!arena)
            arena = arena_at(address);
        if (!arena)
            return map_entry_of_span(segment_lock(address, heap));
        page = map_last(arena->base, page);
        if (!page)
            return 0;
        entry = page_lock(page, heap);
    }
    return entry;
}

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

struct use **block_uses(struct block *block)
{
    return block->slab ? slab_uses_locked(block->slab, block->slot) : &block->span->uses;
}

struct use *block_uses_of(const struct block *block)
{
    if (!block->slab)
        return block->span->uses;
    struct use **uses = atomic_load_explicit(&block->slab->uses, memory_order_relaxed);
    return uses ? uses[block->slot] : NULL;
}

tarn_block_info block_info_locked(const struct block *block)
{
    return (tarn_block_info){
        .size = sizeof(tarn_block_info),
        .base = (void *)(block->start + block->front),
        .usable_size = block_usable(block),
        .requested = block->requested,
        .device = block->heap->arena->device->number,
        .stream = heap_stream_value(block->heap),
        .tag = block->slab ? slab_tag(block->slab, block->slot) : block->span->tag,
        .pool = {block->heap->store->id[0], block->heap->store->id[1]},
    };
}

/* Freeing -------------------------------------------------------------------------------------- */

/* The free succeeds even if debug mode has no host memory for it. */
static void debug_freed(struct block *block, bool look)
{
    struct error_before before;
    error_attempt_begin(&before);
    hooks.debug_free_locked(block->heap, block->start, look ? block_uses(block) : NULL);
    error_attempt_end(&before, TARN_OK);
}

void block_free_locked(struct block *block, bool look)
{
    struct heap *heap = block->heap;
    struct counters *counters = heap->store->counters;
    block_end_referred(block);
    if (debug_has(DEBUG_BLOCKS))
        debug_freed(block, look && debug_has(DEBUG_CONTENTS));
    struct use *uses = block_uses_of(block);
    counters_oversize oversize = block->slab ? 0 : block->span->oversize;
    block->ended = true;
    if (store_has(heap->store, STORE_KEPT))
        hooks.keep_forget_locked(heap->store, block->start + block->front);
    if (blocks_are_watched())
        driver->owner_clear(heap->arena->device->number, block->start, block->size);
    uint16_t tag = block->slab ? slab_tag(block->slab, block->slot) : block->span->tag;
    trace_block(uses ? TRACE_free_requested : TRACE_free, heap, block->start, block->requested,
                tag);
    if (uses) {
        counters_freed(counters, block->size, block->requested, oversize);
        if (block->slab)
            slab_set_state_locked(block->slab, block->slot, NOTE_PENDING);
        else
            block->span->state = SPAN_PENDING;
        wait_begin_locked(heap, block->span, block->slot, uses, block->size);
        return;
    }
    counters_freed_and_completed(counters, &heap->parked.part, block->size, block->requested,
                                 oversize);
    if (block->slab) {
        cache_give_locked(block->slab, block->slot);
    } else {
        parked_flush_stack_locked(heap); /* it may be the only block that the heap has parked */
        span_leave_map_locked(heap, block->span);
        span_give_locked(heap, block->span);
    }
}

void block_announce_end(const void *pointer)
{
    struct block block;
    uintptr_t address = (uintptr_t)pointer;
    if (!block_find_lock(address, &block))
        return;
    bool tell = announces(block.heap->store) && block.start + block.front == address;
    block_unlock(&block);
    if (tell)
        announcer->block_gone(address);
}

bool block_free_now(void *pointer)
{
    struct block block;
    if (announcer)
        block_announce_end(pointer);
    if (!block_find_lock((uintptr_t)pointer, &block))
        return false;
    bool begins = block.start + block.front == (uintptr_t)pointer;
    if (begins)
        block_free_locked(&block, false);
    block_unlock_freed(&block);
    return begins;
}
