/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls that free, and that say who else uses a block. Owns nothing. The fast paths are those of caches and kept spans; the rest
 * ends a block under the lock of its heap. */
#include "base/status.h"
#include "memory/announce.h"
#include "memory/block.h"
#include "memory/cache.h"
#include "memory/debug/debug.h"
#include "memory/kept.h"
#include "memory/malloc.h"
#include "memory/pool.h"
#include "memory/traced.h"
#include "memory/wait.h"

static struct use *uses_of(const struct block *block)
{
    if (!block->slab)
        return block->span->uses;
    struct use **uses = atomic_load_explicit(&block->slab->uses, memory_order_relaxed);
    return uses ? uses[block->slot] : NULL;
}

/* A free does not fail for what debug mode cannot have. */
static void debug_freed(struct block *block, bool look)
{
    struct error_before before;
    error_attempt_begin(&before);
    debug_free_locked(block->heap, block->start, look ? block_uses(block) : NULL);
    error_attempt_end(&before, TARN_OK);
}

/* Ends a live block: its memory goes to the heap, or waits for the streams that use it. With `look` debug mode may have it wait
 * too. */
static void block_free_locked(struct block *block, bool look)
{
    struct heap *heap = block->heap;
    struct counters *counters = heap->store->counters;
    if (debug_is_on())
        debug_freed(block, look && debug_has(DEBUG_CONTENTS));
    struct use *uses = uses_of(block);
    block->ended = true;
    if (blocks_are_watched())
        driver->owner_clear(heap->arena->device->number, block->start, block->size);
    uint16_t tag = block->slab ? slab_tag(block->slab, block->slot) : block->span->tag;
    trace_block(uses ? TRACE_free_requested : TRACE_free, heap, block->start, block->requested, tag);
    if (uses) {
        counters_freed(counters, block->size, block->requested);
        if (block->slab)
            slab_set_pending_locked(block->slab, block->slot, true);
        else
            block->span->state = SPAN_PENDING;
        wait_begin_locked(heap, block->span, block->slot, uses, block->size);
        return;
    }
    counters_freed_and_completed(counters, block->size, block->requested);
    if (block->slab) {
        cache_give_locked(block->slab, block->slot);
    } else {
        kept_flush_locked(heap); /* which may be all that it keeps */
        span_leave_map_locked(block->span);
        span_give_locked(heap, block->span);
    }
}

/* Frees a small block of another thread's cache, without a lock. False when that is not enough. */
static bool free_remotely(uintptr_t address)
{
    struct slab *slab = map_slab(map_get(address));
    struct thread *owner = slab ? atomic_load_explicit(&slab_owner(slab)->thread, memory_order_relaxed) : NULL;
    if (!owner || owner == thread_here || atomic_load_explicit(&slab->uses, memory_order_relaxed) ||
        debug_bypasses_caches())
        return false;
    unsigned slot = slab_slot(slab, address);
    if (slot >= slab->slots || slab_address(slab, slot) != address || !slab_is_live(slab, slot))
        return false;
    struct store *store = slab_owner(slab)->heap->store;
    struct pool *pool = pool_of_store(store);
    size_t size = slab->slot_size, requested = slab_requested(slab, slot);
    if (pool)
        atomic_fetch_add(&pool->visits, 1); /* it must not go with its last block before that is counted */
    trace_block(TRACE_free_remote, slab_owner(slab)->heap, address, requested, slab_tag(slab, slot));
    bool given = cache_give_remote(slab, slot);
    if (given)
        counters_freed_and_completed(store->counters, size, requested);
    else if (trace_is_on())
        trace_lose(); /* another thread freed it just now: the trace has that twice */
    if (pool)
        atomic_fetch_sub(&pool->visits, 1);
    return given;
}

/* Announces the end of a block before it is freed, and its memory somebody else's: with no lock held, so that a thread that frees it
 * meanwhile may say so too, and a free that then fails for want of host memory leaves a block of which nobody knows. */
static void announce_end(const void *pointer)
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

/* Finds the block that a caller wants to free. */
static tarn_status block_lock_to_free(void *pointer, struct block *block)
{
    if (announcer)
        announce_end(pointer);
    tarn_status status = block_lock(pointer, true, block);
    if (status && debug_is_on())
        return debug_bad_free((uintptr_t)pointer, status);
    return status;
}

static tarn_status free_block(void *pointer, bool look)
{
    struct block block;
    tarn_status status = block_lock_to_free(pointer, &block);
    if (status)
        return status;
    block_free_locked(&block, look);
    block_unlock_freed(&block);
    return TARN_OK;
}

tarn_status memory_free(void *pointer)
{
    return free_block(pointer, true);
}

tarn_status memory_free_now(void *pointer)
{
    return free_block(pointer, false);
}

static __attribute__((noinline)) tarn_status free_slowly(void *pointer, void *caller)
{
    tarn_status status = memory_ready();
    debug_enter(caller);
    if (status || !pointer || free_remotely((uintptr_t)pointer))
        return status;
    return memory_free(pointer);
}

/* The fast path of a cache while the trace is on. */
static __attribute__((noinline)) tarn_status free_traced(struct slab *slab, void *pointer, void *caller)
{
    if (trace_is_on() && cache_give_fast(slab, (uintptr_t)pointer, thread_here, true))
        return TARN_OK;
    return free_slowly(pointer, caller);
}

/* A block with a span of its own: page map, span, under a short lock. */
static __attribute__((noinline)) tarn_status free_large(void *pointer, void *caller)
{
    struct span *span = map_span(map_get((uintptr_t)pointer));
    return thread_here && span && kept_give(span, (uintptr_t)pointer, thread_here) ? TARN_OK
                                                                                   : free_slowly(pointer, caller);
}

/* The fast path: page map, slab, slot, magazine. */
tarn_status tarn_free(void *pointer)
{
    struct thread *thread = thread_here;
    map_entry entry = map_get((uintptr_t)pointer);
    if (!thread || !map_is_slab(entry))
        return free_large(pointer, __builtin_return_address(0));
    return cache_give_fast(map_slab(entry), (uintptr_t)pointer, thread, false)
               ? TARN_OK
               : free_traced(map_slab(entry), pointer, __builtin_return_address(0));
}

/* Whether a stream is the one that the heap serves, so that its order is the heap's. */
static bool is_own_stream(const struct heap *heap, const struct stream *stream)
{
    return heap->stream == stream && !heap->retired;
}

tarn_status tarn_free_on(void *pointer, tarn_stream stream)
{
    struct block block;
    struct stream *found = NULL;
    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    if (status || (status = stream_find(stream, thread_device(), &found)) || !pointer)
        return status;
    status = block_lock_to_free(pointer, &block);
    if (status)
        return status;
    if (!is_own_stream(block.heap, found)) {
        struct use **uses = block_uses(&block);
        status = uses ? use_add_stream(uses, found) : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!status && trace_is_on())
        trace_stream_event(TRACE_free_on, found, block.start, block.requested);
    if (!status)
        block_free_locked(&block, true);
    block_unlock_freed(&block);
    return status;
}

tarn_status tarn_free_after(void *pointer, tarn_event *event)
{
    struct block block;
    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    if (status || (status = event_check(event)) || !pointer)
        return status;
    status = block_lock_to_free(pointer, &block);
    if (status)
        return status;
    struct mark *mark = event_mark(event);
    if (mark && mark_is_captured(mark)) {
        status = failed(TARN_ERROR_CAPTURE, "the event was recorded in a capture: when its work ends is never known");
    } else if (mark) {
        struct use **uses = block_uses(&block);
        status = uses ? use_add_mark(uses, mark) : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!status)
        block_free_locked(&block, true);
    block_unlock_freed(&block);
    mark_release(mark);
    return status;
}

tarn_status tarn_record_stream(void *pointer, tarn_stream stream)
{
    struct block block;
    struct stream *found = NULL;
    tarn_status status = memory_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)) || !pointer)
        return status;
    status = block_lock(pointer, false, &block);
    if (status)
        return status;
    if (!is_own_stream(block.heap, found)) {
        struct use **uses = block_uses(&block);
        status = uses ? use_add_stream(uses, found) : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!status && trace_is_on())
        trace_stream_event(TRACE_record_stream, found, block.start, block.requested);
    block_unlock(&block);
    return status;
}
