/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls that free blocks, and those that record uses by other streams. Owns nothing. The
 * fast paths use caches and parked spans. All other frees end a block under its heap's lock. */
#include "base/status.h"
#include "memory/debug/debug.h"
#include "memory/heap/cache.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/heap/traced.h"
#include "memory/malloc.h"
#include "memory/pinned/pinned.h"
#include "memory/pool/pool.h"
#include "memory/pool/referred.h"
#include "memory/settings/hooks.h"
#include "memory/share/pointer.h"

/* Frees a small block of another thread's cache, without a lock. False if that is not possible. */
static bool free_remotely(uintptr_t address)
{
    struct slab *slab = map_slab(map_get(address));
    struct thread *owner =
        slab ? atomic_load_explicit(&slab_owner(slab)->thread, memory_order_relaxed) : NULL;
    if (!owner || owner == thread_here || fast_paths_are_barred())
        return false;
    unsigned slot = slab_slot(slab, address);
    if (slot >= slab->slots || slab_address(slab, slot) != address || !slab_is_simple(slab, slot))
        return false;
    struct heap *heap = slab_owner(slab)->heap;
    struct store *store = heap->store;
    struct pool *pool = pool_of_store(store);
    size_t size = slab->slot_size, requested = slab_requested(slab, slot);
    /* Keeps the pool until the free is counted, even if this is its last block. */
    if (pool)
        atomic_fetch_add(&pool->visits, 1);
    trace_block(TRACE_free_remote, heap, address, requested, slab_tag(slab, slot));
    bool given = cache_give_remote(slab, slot);
    if (given)
        /* The heap may have ended with the block. */
        counters_freed_and_completed(store->counters, NULL, size, requested, 0);
    /* Another thread has freed it at the same time: the trace has the free twice. */
    else if (trace_is_on())
        trace_lose();
    if (pool)
        atomic_fetch_sub(&pool->visits, 1);
    return given;
}

/* Finds and locks the block that a caller wants to free. If graphs refer to the block, also records
 * the call site, without holding the lock. */
static tarn_status block_lock_to_free(void *pointer, void *caller, struct block *block)
{
    if (announcer)
        block_announce_end(pointer);
    tarn_status status = pointer_lock(pointer, true, block);
    if (!status && block_is_referred(block)) {
        block_unlock(block);
        site_take(caller, true);
        status = pointer_lock(pointer, true, block);
    }
    if (status && debug_is_on())
        return debug_bad_free((uintptr_t)pointer, status);
    return status;
}

static tarn_status free_for(void *pointer, void *caller)
{
    struct block block;
    tarn_status status = block_lock_to_free(pointer, caller, &block);
    if (status)
        return status;
    block_free_locked(&block, true);
    block_unlock_freed(&block);
    return TARN_OK;
}

tarn_status memory_free(void *pointer)
{
    return free_for(pointer, __builtin_return_address(0));
}

/* Whether the page map has nothing at an address: it may be pinned memory. */
static bool is_unnamed(const void *pointer)
{
    map_entry entry = map_get((uintptr_t)pointer);
    return !map_is_slab(entry) && !map_span(entry);
}

static __attribute__((noinline)) tarn_status free_slowly(void *pointer, void *caller)
{
    tarn_status status;
    if (pointer && is_unnamed(pointer) && pinned_free(pointer, &status))
        return status;
    status = memory_ready();
    debug_enter(caller);
    if (status || !pointer || free_remotely((uintptr_t)pointer))
        return status;
    return free_for(pointer, caller);
}

/* The fast path of a cache while the trace is on. */
static __attribute__((noinline)) tarn_status free_traced(struct slab *slab, void *pointer,
                                                         void *caller)
{
    if (trace_is_on() && cache_give_fast(slab, (uintptr_t)pointer, thread_here, true))
        return TARN_OK;
    return free_slowly(pointer, caller);
}

/* Frees a block under its heap's lock, with no driver call. It must begin in the page of its
 * address, be used only by its heap's stream, and be seen by no tool. False: the caller must take
 * the slow path. */
static __attribute__((noinline)) bool give_quickly(struct span *span, uintptr_t address)
{
    struct heap *heap = atomic_load_explicit(&span->heap, memory_order_relaxed);
    if (!heap || fast_paths_are_barred() || debug_has(DEBUG_CONTEXT))
        return false;
    bool waited = mutex_lock_telling(&heap->lock);
    bool ends = map_span(map_get(address)) == span &&
                atomic_load_explicit(&span->heap, memory_order_relaxed) == heap &&
                span->start == address && span->state == SPAN_BLOCK && !span->front &&
                !span->uses && stack_parks(&heap->parked);
    size_t requested = span->requested;
    if (ends && span_end_locked(heap, span)) {
        trace_block(TRACE_free, heap, address, requested, span->tag);
        parked_flush_stack_locked(heap);
        if (hands_are_open(&heap->hands))
            hands_spill_locked(heap, thread_here, span->size);
        span_leave_map_locked(heap, span);
        span_give_locked(heap, span);
    } else {
        ends = false;
    }
    if (hands_care(&heap->hands, waited))
        hands_weigh_locked(heap, waited);
    mutex_unlock(&heap->lock);
    return ends;
}

/* Frees a block under a short lock: parks it, or puts it into the thread's hand. */
static bool give_shortly(struct span *span, uintptr_t address)
{
    struct heap *heap = atomic_load_explicit(&span->heap, memory_order_relaxed);
    return heap && hands_are_open(&heap->hands) ? hand_give(heap, span, address, thread_here)
                                                : parked_give(span, address, thread_here);
}

/* Frees a block with its own span; `span` is NULL if the page map does not name it. */
static __attribute__((noinline)) tarn_status free_large(void *pointer, struct span *span,
                                                        void *caller)
{
    uintptr_t address = (uintptr_t)pointer;
    bool given = span && (give_shortly(span, address) || give_quickly(span, address));
    return given ? TARN_OK : free_slowly(pointer, caller);
}

/* The fast path. The steps are: page map, slab, slot, magazine. */
tarn_status tarn_free(void *pointer)
{
    struct thread *thread = thread_here;
    map_entry entry = map_get((uintptr_t)pointer);
    if (!thread || !map_is_slab(entry))
        return free_large(pointer, thread ? map_span(entry) : NULL, __builtin_return_address(0));
    return cache_give_fast(map_slab(entry), (uintptr_t)pointer, thread, false)
               ? TARN_OK
               : free_traced(map_slab(entry), pointer, __builtin_return_address(0));
}

/* Undoes the announcement of a free that has failed: the block is still live. */
static void block_unlock_refused(const struct block *block)
{
    const struct store *store = block->heap->store;
    const uint64_t pool[2] = {store->id[0], store->id[1]};
    tarn_tag tag = block->slab ? slab_tag(block->slab, block->slot) : block->span->tag;
    bool tell = announces(store);
    block_unlock(block);
    if (tell)
        announcer->block(block->start + block->front, block->requested, pool, tag);
}

/* Whether a stream is the heap's own, so that both have the same order. */
static bool is_own_stream(const struct heap *heap, const struct stream *stream)
{
    return heap->stream == stream && !heap->retired;
}

/* Frees a block that block_lock_to_free() has locked, or after a failure leaves it live. Unlocks
 * it. */
static void free_unless(tarn_status failure, struct block *block)
{
    if (failure) {
        block_unlock_refused(block);
        return;
    }
    block_free_locked(block, true);
    block_unlock_freed(block);
}

tarn_status tarn_free_on(void *pointer, tarn_stream stream)
{
    struct block block;
    struct stream *found = NULL;
    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    if (!status)
        status = stream_find(stream, thread_device(), &found);
    if (status || !pointer)
        return status;
    status = block_lock_to_free(pointer, __builtin_return_address(0), &block);
    if (status)
        return status;
    if (!is_own_stream(block.heap, found)) {
        struct use **uses = block_uses(&block);
        status = uses ? use_add_stream(&block.heap->waiting, uses, found)
                      : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!status && trace_is_on())
        trace_stream_event(TRACE_free_on, found, block.start, block.requested);
    free_unless(status, &block);
    return status;
}

tarn_status tarn_free_after(void *pointer, tarn_event *event)
{
    struct block block;
    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    if (!status)
        status = event_check(event);
    if (status || !pointer)
        return status;
    status = block_lock_to_free(pointer, __builtin_return_address(0), &block);
    if (status)
        return status;
    struct mark *mark = event_mark(event);
    if (mark && mark_is_captured(mark)) {
        status =
            failed(TARN_ERROR_CAPTURE,
                   "the event was recorded in a capture, so the end of its work cannot be known");
    } else if (mark) {
        struct use **uses = block_uses(&block);
        status =
            uses ? use_add_mark(&block.heap->waiting, uses, mark) : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    free_unless(status, &block);
    mark_release(mark);
    return status;
}

tarn_status tarn_record_stream(void *pointer, tarn_stream stream)
{
    struct block block;
    struct stream *found = NULL;
    if (pointer && is_unnamed(pointer) && tarn_pinned_contains(pointer))
        return pinned_record_stream(pointer, stream);
    tarn_status status = memory_ready();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
    if (status || !pointer)
        return status;
    status = pointer_lock(pointer, false, &block);
    if (status)
        return status;
    if (!is_own_stream(block.heap, found)) {
        struct use **uses = block_uses(&block);
        status = uses ? use_add_stream(&block.heap->waiting, uses, found)
                      : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!status && block.slab && block_uses_of(&block))
        slab_set_state_locked(block.slab, block.slot, NOTE_USED);
    if (!status && trace_is_on())
        trace_stream_event(TRACE_record_stream, found, block.start, block.requested);
    block_unlock(&block);
    return status;
}
