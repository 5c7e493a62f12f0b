/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls that allocate. They check arguments, find the heap, take its lock, and leave the
 * work to heap, slab and ladder. These are the ways of a request. The first that serves it ends the
 * search.
 *
 *   the request                     is served by          from                           locks
 *   small, no trace                 cache_take_fast()     a slot of the last cache       none
 *   small, while the trace is on    take_traced()         the same                       none
 *   large, not the first on its
 *     route                         parked_take()         a parked block of its size     the part's
 *   the same                        take_quickly()        a free span of the last heap   the heap's
 *   any other, or one that these
 *     cannot serve                  block_alloc(), after a search for its pool and heap:
 *     small                         slab_block_alloc()    a slot; if necessary, of a     the heap's
 *                                                         new slab
 *     large, aligned, or of a
 *       kind without slabs          span_block_alloc()    the plan's place, a free span  the heap's
 *                                                         the ladder                     its own
 *     nothing has memory, in the
 *       default pool                spare_block_alloc()   a pool with use_on_oom         the heap's
 *
 * A request is small if a slab serves its size. "Last" is what served the thread's request before.
 *
 *   the call             its stream       its pool                     what the thread remembers
 *   tarn_malloc()        the current one  alloc_for(): by the scopes   current_heap, current_cache
 *   tarn_alloc_on()      an argument      alloc_for()                  named_heap, named_cache
 *   tarn_alloc()         an option        alloc_for(); alloc_in() for  nothing
 *                                         a pool as an option
 *   tarn_pool_alloc()    an argument      alloc_in(): an argument      nothing
 *   memory_alloc_own()   an argument      route_past_scopes()          nothing
 *
 * The first four ways are barred while debug mode, a tool or the driver's checker must see each
 * block. */
#include "memory/malloc.h"
#include "base/sized.h"
#include "base/status.h"
#include "base/thread/clock.h"
#include "base/thread/process.h"
#include "memory/arena/moves.h"
#include "memory/debug/debug.h"
#include "memory/heap/cache.h"
#include "memory/heap/help.h"
#include "memory/heap/idle/wait.h"
#include "memory/heap/parked.h"
#include "memory/heap/traced.h"
#include "memory/plan/plan.h"
#include "memory/pool/block.h"
#include "memory/pool/pool.h"
#include "memory/pressure/ladder.h"
#include "memory/pressure/shortage.h"
#include "memory/settings/config.h"
#include "memory/settings/hooks.h"
#include "memory/watch/verify.h"

#include <string.h>
#include <tarn/memory.h>

/* Allocation ----------------------------------------------------------------------------------- */

/* What a thread can use again for its next request. */
struct used {
    struct heap *heap;
    struct cache *cache; /* NULL: no slab served */
};

/* Turns a taken span into a block. */
static uintptr_t block_begin_locked(struct heap *heap, struct span *span,
                                    const struct request *request)
{
    span->state = SPAN_BLOCK;
    span->requested = request->requested;
    span->front = (uint32_t)request->front;
    span->tag = request->tag;
    span->own = request->own;
    if (span->own) /* keeps the span from being parked, where a block of the program could get it */
        atomic_store_explicit(&span->after, span->before = 0, memory_order_relaxed);
    span->uses = NULL;
    span_enter_locked(heap, span);
    span_begin_locked(heap, span);
    return span->start;
}

/* Takes a span for a request that no free span of its zone serves: with `grow` by the ladder,
 * otherwise from the other zone. */
static tarn_status span_find(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             bool grow, uint64_t until, struct span **span)
{
    tarn_status status;
    if (grow) {
        status = ladder_climb(heap, zone, size, alignment, until, span);
        heap_check(heap);
        return status;
    }
    mutex_lock(&heap->lock);
    status = store_check(heap->store);
    if (!status)
        status = span_take_locked(heap, zone_other(zone), size, alignment, span);
    mutex_unlock(&heap->lock);
    return status;
}

/* Takes a span from free memory of the heap, except from places of a plan.
 * TARN_ERROR_OUT_OF_MEMORY, without a text, if none serves. */
static inline tarn_status span_have_locked(struct heap *heap, size_t size, size_t alignment,
                                           struct span **span)
{
    enum zone_kind zone = zone_of(size);
    tarn_status status = span_take_locked(heap, zone, size, alignment, span);
    /* The ladder would try this first */
    if (status == TARN_ERROR_OUT_OF_MEMORY && zone == ZONE_SMALL && !heap->waiting.blocks)
        status = span_take_aside_locked(heap, size, alignment, 0, span);
    return status;
}

/* Allocates a block with its own span. With `grow`, climbs the ladder if no free span serves.
 * Without, the request came from another pool, so no plan has it. */
static tarn_status span_block_alloc(struct heap *heap, const struct request *request, bool grow,
                                    uintptr_t *address, size_t *size)
{
    enum zone_kind zone = zone_of(request->size);
    struct span *span = NULL;
    if (grow && plan_may_begin(heap, request->size)) {
        plan_begin(heap, request);
        heap_check(heap);
    }
    mutex_lock(&heap->lock);
    tarn_status status = store_check(heap->store);
    bool follows = grow && heap->following;
    if (!status && follows)
        status = plan_serve_relocking(heap, request, &span);
    if (!span && (!status || status == TARN_ERROR_OUT_OF_MEMORY))
        status = span_have_locked(heap, request->size, request->alignment, &span);
    if (status == TARN_ERROR_OUT_OF_MEMORY) {
        mutex_unlock(&heap->lock);
        status =
            span_find(heap, zone, request->size, request->alignment, grow, request->until, &span);
        mutex_lock(&heap->lock);
    }
    if (!status) {
        *address = block_begin_locked(heap, span, request);
        *size = span->size;
    }
    mutex_unlock(&heap->lock);
    if (follows)
        heap_check(heap);
    return status;
}

/* Takes a span for a new slab. NULL if blocks that waited for other streams have become free
 * instead: then there may be a slot. */
static tarn_status slab_span_find(struct heap *heap, const struct request *request, bool grow,
                                  bool collect, struct span **span)
{
    size_t size = slab_span_size(slab_class(request->size));
    *span = NULL;
    mutex_lock(&heap->lock);
    bool ended = collect && heap->waiting.blocks && wait_collect_locked(heap);
    tarn_status status = ended ? TARN_OK : store_check(heap->store);
    if (!status && !ended)
        status = span_take_locked(heap, ZONE_SMALL, size, MAP_PAGE, span);
    mutex_unlock(&heap->lock);
    return status == TARN_ERROR_OUT_OF_MEMORY
               ? span_find(heap, ZONE_SMALL, size, MAP_PAGE, grow, request->until, span)
               : status;
}

/* Allocates a block in a slab of the thread's cache: in a free slot, or in a new slab. */
static tarn_status slab_block_alloc(struct cache *cache, const struct request *request, bool grow,
                                    uintptr_t *address)
{
    struct span *span = NULL;
    tarn_status status = cache_take(cache, request, NULL, address);
    for (bool collect = true; status == TARN_ERROR_OUT_OF_MEMORY; collect = false) {
        status = slab_span_find(cache->heap, request, grow, collect, &span);
        if (status)
            return status;
        status = cache_take(cache, request, span, address);
    }
    return status;
}

/* Allocates a block from a heap. TARN_ERROR_OUT_OF_MEMORY, without a text. */
static tarn_status heap_block_alloc(struct heap *heap, const struct request *request, bool grow,
                                    uintptr_t *address, size_t *size, struct used *used)
{
    used->heap = heap;
    if (!request->slab)
        return span_block_alloc(heap, request, grow, address, size);
    struct cache *cache = cache_of(heap);
    if (!cache)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = slab_block_alloc(cache, request, grow, address);
    used->cache = status ? NULL : cache;
    *size = slab_slot_size(request->size);
    return status;
}

/* Bytes of a request with its red zones, before rounding. */
static size_t whole_of(const struct request *request)
{
    size_t front = request->front;
    return request->requested + (front ? front + ZONE_BEHIND : 0);
}

/* Whether a slab may serve a request, by all except its size. All blocks of a slab have front zones
 * of one size. Slabs belong to threads, and their blocks to the program. */
static bool slab_may_serve(const struct store_traits *kind, const struct request *request)
{
    return request->front <= TARN_BLOCK_UNIT && !request->own && kind->slabs;
}

/* A block that no slab serves has at least one page, so that no two blocks begin in one page. */
static void round_for_pieces(const struct store_traits *kind, struct request *request)
{
    size_t whole = whole_of(request);
    request->size = (whole + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1);
    request->slab = slab_may_serve(kind, request) && slab_serves(request);
    if (request->slab)
        return;
    request->size = config_round(memory_config(), whole);
    if (request->size < MAP_PAGE)
        request->size = MAP_PAGE;
}

/* Rounds a request and its red zones by the rules of a store. */
static void request_round(const struct store *store, struct request *request)
{
    if (store->kind.pieces) {
        round_for_pieces(&store->kind, request);
        return;
    }
    request->size = config_round(memory_config(), whole_of(request));
    request->slab = slab_may_serve(&store->kind, request) && !store_has(store, STORE_NO_SLABS) &&
                    request->size <= store_rules(store).slab_most && slab_serves(request);
}

#define HELP_SEARCHES 6

/* Adds searches for a free span of `size` bytes, which begins at any multiple of `alignment`: first
 * where it certainly fits, then where it fits if the span begins at the right place. */
static size_t search_spans(struct help_search *searches, unsigned kind, size_t size,
                           size_t alignment)
{
    size_t sure = size + alignment - TARN_BLOCK_UNIT;
    searches[0] = (struct help_search){.kind = kind, .least = sure, .most = SIZE_MAX};
    searches[1] = (struct help_search){.kind = kind, .least = size, .most = sure - 1};
    return sure > size ? 2 : 1;
}

/* Fills in the searches of pools with `use_on_oom` that may serve a request, and returns their
 * number. Segments have rules of their own: a large enough one may still not serve. */
static size_t searches_of(const struct request *request, struct help_search *searches)
{
    struct request in_pieces = *request;
    size_t count = 0, size = config_round(memory_config(), whole_of(request));
    round_for_pieces(&store_kinds[KIND_VIRTUAL], &in_pieces);
    unsigned class = in_pieces.slab ? slab_class(in_pieces.size) : 0;
    if (in_pieces.slab)
        searches[count++] = (struct help_search){.kind = class};
    if (size <= SLAB_MOST && (!in_pieces.slab || slab_class(size) != class))
        searches[count++] = (struct help_search){.kind = slab_class(size)};
    count +=
        in_pieces.slab
            ? search_spans(searches + count, OFFER_OF_PIECES, slab_span_size(class), MAP_PAGE)
            : search_spans(searches + count, OFFER_OF_PIECES, in_pieces.size, request->alignment);
    return count + search_spans(searches + count, OFFER_OF_SEGMENTS, size, request->alignment);
}

/* Takes free memory of a pool for a request of another. A slot may be of any thread's slab: if it
 * were only of this thread's, many pools might have one that does not help. */
static bool helper_alloc(struct pool *pool, struct heap *heap, const struct request *request,
                         uintptr_t *address, size_t *size)
{
    struct used used = {0};
    struct request own = *request;
    request_round(&pool->store, &own);
    if (own.slab && cache_take_any(heap, &own, address) == TARN_OK) {
        *size = slab_slot_size(own.size);
        return true;
    }
    return heap_block_alloc(heap, &own, false, address, size, &used) == TARN_OK;
}

/* When the default pool has no memory: takes free memory of a pool with `use_on_oom`. The block
 * belongs to that pool for its whole life. Returns its heap, or NULL. From the choice on, no graph
 * begins to hold such a pool (pool_hold_still()). */
static struct heap *spare_block_alloc(struct heap *heap, const struct request *request,
                                      uintptr_t *address, size_t *size)
{
    struct help_search searches[HELP_SEARCHES];
    struct heap *found = NULL;
    struct pool *pool = NULL;
    if (!store_is_default(heap->store) || !atomic_load(&heap->arena->pools.helpers))
        return NULL;
    if (!move_begin_by(heap->arena, request->until))
        return NULL;
    heaps_sum_helpers(heap->arena);
    size_t count = searches_of(request, searches);
    for (size_t i = 0; i < count && !found; i++) {
        searches[i].stream = heap->stream;
        while (!found && (pool = pool_spare_next(heap->arena, &searches[i], pool))) {
            struct heap *other = heap_if_used(&pool->store, heap->stream);
            found = other && helper_alloc(pool, other, request, address, size) ? other : NULL;
        }
    }
    if (pool)
        atomic_fetch_sub(&pool->visits, 1);
    move_end(heap->arena);
    return found;
}

/* Allocates a block. `used` receives what the thread's next request can use again. */
static tarn_status block_alloc(struct heap *heap, const struct request *request, uintptr_t *address,
                               struct used *used)
{
    size_t size = 0;
    struct heap *other = NULL;
    tarn_status status = device_check(heap->arena->device);
    if (status)
        return status;
    do {
        status = heap_block_alloc(heap, request, true, address, &size, used);
        if (status == TARN_ERROR_OUT_OF_MEMORY && !request->own)
            other = spare_block_alloc(heap, request, address, &size);
    } while (status == TARN_ERROR_OUT_OF_MEMORY && !other &&
             shortage_helped(heap->store, trace_is_on() ? heap_place(heap) : 0, request->size));
    if (other)
        status = TARN_OK;
    else if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = shortage_refuse(heap, request->size);
    if (status)
        return status;
    uint64_t owner = 0;
    if (blocks_are_watched())
        owner =
            driver->owner_set(heap->arena->device->number, *address, size, heap->stream->native);
    if (debug_is_on())
        debug_begin(other ? other : heap, *address, size, request, owner);
    *address += request->front;
    const struct store *store = (other ? other : heap)->store;
    if (announces(store))
        announcer->block(*address, request->requested, store->id, request->tag);
    return TARN_OK;
}

/* A caller's request, before rounding. */
struct asked {
    size_t size, alignment; /* bytes; alignment 0: any */
    tarn_tag tag;
    bool own;       /* the caller is tarn itself */
    uint64_t until; /* how long it may wait (base/thread/clock.h); 0: as long as it must */
};

static tarn_status request_make(const struct asked *asked, struct request *request)
{
    if (asked->size > TARN_MAX_SIZE)
        return failed(TARN_ERROR_OUT_OF_MEMORY,
                      "%zu bytes are more than 1 EiB, the largest request", asked->size);
    size_t alignment = asked->alignment > TARN_BLOCK_UNIT ? asked->alignment : TARN_BLOCK_UNIT;
    *request = (struct request){
        .requested = asked->size,
        .alignment = alignment,
        .front = zone_in_front(alignment),
        .own = asked->own,
        .tag = asked->tag,
        .until = asked->until,
    };
    return TARN_OK;
}

/* Allocates a block of a store, after rounding the request. */
static tarn_status alloc_of(struct store *store, struct stream *stream, struct request *request,
                            void **pointer, struct used *used)
{
    struct heap *heap = NULL;
    uintptr_t address = 0;
    request_round(store, request);
    tarn_status status = heap_of(store, stream, &heap);
    if (!status)
        status = block_alloc(heap, request, &address, used);
    if (!status)
        *pointer = (void *)address;
    return status;
}

static tarn_status alloc_for(struct stream *stream, const struct asked *asked, void **pointer,
                             struct used *used)
{
    struct request request;
    if (asked->size == 0) {
        *pointer = NULL;
        return TARN_OK;
    }
    struct route route = {0};
    tarn_status status = request_make(asked, &request);
    if (!status)
        status = route_of(stream, &route);
    if (status)
        return status;
    status = alloc_of(route.store, stream, &request, pointer, used);
    if (!route.holds_on)
        *used = (struct used){0};
    route_end(&route);
    return status;
}

/* Allocates from a store, whatever scopes are open; for the default pool's store, from the one that
 * it allocates from now. */
static tarn_status alloc_in(struct store *store, struct stream *stream, const struct asked *asked,
                            void **pointer)
{
    struct request request;
    struct used used = {0};
    if (asked->size == 0) {
        *pointer = NULL;
        return TARN_OK;
    }
    tarn_status status = request_make(asked, &request);
    struct pool *pool = pool_of_store(store);
    if (store_is_default(store))
        store = store_default(store->arena);
    /* Keeps the pool if an observer that is called meanwhile releases it. */
    if (pool)
        atomic_fetch_add(&pool->visits, 1);
    if (!status)
        status = alloc_of(store, stream, &request, pointer, &used);
    if (pool)
        atomic_fetch_sub(&pool->visits, 1);
    return status;
}

tarn_status memory_alloc_own(const struct own *wanted, size_t size, tarn_pool_id *pool,
                             void **pointer)
{
    struct request request;
    struct used used = {0};
    struct route route = {0};
    *pool = (tarn_pool_id){0};
    if (size == 0) {
        *pointer = NULL;
        return TARN_OK;
    }
    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    if (!status)
        status =
            request_make(&(struct asked){.size = size, .tag = wanted->tag, .own = true}, &request);
    if (!status)
        status = route_past_scopes(wanted->stream, wanted->captured, &route);
    if (status)
        return status;
    status = alloc_of(route.store, wanted->stream, &request, pointer, &used);
    if (!status)
        *pool = (tarn_pool_id){route.store->id[0], route.store->id[1]};
    route_end(&route);
    return status;
}

/* Forgets the routes that the thread remembers, if `process_changes` has changed. Called before a
 * route is looked up. */
static void memory_of_routes_renew(void)
{
    struct thread *thread = thread_here;
    uint64_t changes = atomic_load(&process_changes);
    if (!thread || thread->changes == changes)
        return;
    thread_forget_caches(thread);
    thread->changes = changes;
}

/* The fast path of a cache while the trace is on. */
static uintptr_t take_traced(struct cache *cache, size_t size)
{
    return trace_is_on() && cache && size - 1 < SLAB_MOST
               ? cache_take_fast(cache, thread_here, size, true)
               : 0;
}

static __attribute__((noinline)) void *malloc_slowly(size_t size, void *caller)
{
    struct stream *stream = NULL;
    struct used used = {0};
    void *pointer = NULL;
    tarn_status status = memory_ready();
    debug_enter(caller);
    memory_of_routes_renew();
    if (!status)
        status = stream_current(thread_device(), &stream);
    if (!status)
        status = alloc_for(stream, &(struct asked){.size = size}, &pointer, &used);
    struct thread *thread = used.heap ? thread_self() : NULL;
    if (thread) {
        thread->current_heap = used.heap;
        thread->current_cache = used.cache ? used.cache : thread->current_cache;
    }
    status_set_last(status);
    return pointer;
}

static __attribute__((noinline)) void *malloc_traced(size_t size, void *caller)
{
    uintptr_t address = thread_here ? take_traced(thread_here->current_cache, size) : 0;
    return address ? (void *)address : malloc_slowly(size, caller);
}

/* Allocates a block with its own span from free memory of the heap that the thread used last, under
 * one lock, with no driver call. 0: the caller must take the slow path, also if the route of
 * requests may have changed. A separate function, so that the path of parked blocks saves fewer
 * registers. */
static __attribute__((noinline)) uintptr_t
take_quickly(struct heap *heap, const struct thread *thread, size_t size, size_t requested)
{
    const struct request request = {.requested = requested};
    struct span *span = NULL;
    uintptr_t address = 0;
    if (requested > TARN_MAX_SIZE || fast_paths_are_barred() || debug_has(DEBUG_CONTEXT) ||
        plan_may_begin(heap, size))
        return 0;
    bool waited = mutex_lock_telling(&heap->lock);
    if (stack_parks(&heap->parked) &&
        thread->changes == atomic_load_explicit(&process_changes, memory_order_relaxed) &&
        !heap->following && span_have_locked(heap, size, TARN_BLOCK_UNIT, &span) == TARN_OK)
        address = block_begin_locked(heap, span, &request);
    if (hands_care(&heap->hands, waited))
        hands_weigh_locked(heap, waited);
    mutex_unlock(&heap->lock);
    return address;
}

/* The same, after trying a parked block of the size, or one in the thread's hand, under a short
 * lock. */
static __attribute__((noinline)) uintptr_t take_large(struct heap *heap,
                                                      const struct thread *thread, size_t requested)
{
    size_t size = config_round(memory_config(), requested);
    uintptr_t address = parked_take(heap, thread, size, requested);
    if (!address && hands_are_open(&heap->hands)) /* then the heap parks nothing */
        address = hand_take(heap, thread, size, requested);
    return address ? address : take_quickly(heap, thread, size, requested);
}

/* The fast path for sizes that no slab serves. */
static __attribute__((noinline)) void *malloc_large(size_t size, void *caller)
{
    struct thread *thread = thread_here;
    uintptr_t address = 0;
    if (thread && thread->current_heap && size > SLAB_MOST)
        address = take_large(thread->current_heap, thread, size);
    return address ? (void *)address : malloc_slowly(size, caller);
}

/* The fast path: the thread, its cache for the current stream, the class, the magazine, a slot. No
 * lock, no driver call. Everything else is in functions that are not inlined, so that this one
 * saves no registers. */
void *tarn_malloc(size_t size)
{
    struct thread *thread = thread_here;
    if (!thread || !thread->current_cache || size - 1 >= SLAB_MOST)
        return malloc_large(size, __builtin_return_address(0));
    uintptr_t address = cache_take_fast(thread->current_cache, thread, size, false);
    return address ? (void *)address : malloc_traced(size, __builtin_return_address(0));
}

static __attribute__((noinline)) tarn_status alloc_on_slowly(tarn_stream stream, size_t size,
                                                             void **pointer, void *caller)
{
    struct stream *found = NULL;
    struct used used = {0};
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    tarn_status status = memory_ready();
    debug_enter(caller);
    memory_of_routes_renew();
    if (!status)
        status = stream_find(stream, thread_device(), &found);
    if (status)
        return status;
    status = alloc_for(found, &(struct asked){.size = size}, pointer, &used);
    struct thread *thread = used.heap ? thread_self() : NULL;
    if (thread) {
        bool same = thread->named == stream;
        thread->named = stream;
        thread->named_heap = used.heap;
        thread->named_cache = used.cache ? used.cache : same ? thread->named_cache : NULL;
    }
    return status;
}

static __attribute__((noinline)) tarn_status alloc_on_traced(tarn_stream stream, size_t size,
                                                             void **pointer, void *caller)
{
    struct thread *thread = thread_here;
    uintptr_t address = thread->named == stream ? take_traced(thread->named_cache, size) : 0;
    if (!address)
        return alloc_on_slowly(stream, size, pointer, caller);
    *pointer = (void *)address;
    return TARN_OK;
}

static __attribute__((noinline)) tarn_status alloc_on_large(tarn_stream stream, size_t size,
                                                            void **pointer, void *caller)
{
    struct thread *thread = thread_here;
    uintptr_t address = 0;
    if (thread && thread->named_heap && thread->named == stream && size > SLAB_MOST && pointer)
        address = take_large(thread->named_heap, thread, size);
    if (!address)
        return alloc_on_slowly(stream, size, pointer, caller);
    *pointer = (void *)address;
    return TARN_OK;
}

tarn_status tarn_alloc_on(tarn_stream stream, size_t size, void **pointer)
{
    struct thread *thread = thread_here;
    if (!thread || !thread->named_cache || thread->named != stream || size - 1 >= SLAB_MOST ||
        !pointer)
        return alloc_on_large(stream, size, pointer, __builtin_return_address(0));
    uintptr_t address = cache_take_fast(thread->named_cache, thread, size, false);
    if (!address)
        return alloc_on_traced(stream, size, pointer, __builtin_return_address(0));
    *pointer = (void *)address;
    return TARN_OK;
}

tarn_status tarn_alloc(const tarn_alloc_options *given, size_t size, void **pointer)
{
    struct device *device = NULL;
    struct stream *stream = NULL;
    tarn_alloc_options read, *options = &read;
    tarn_status status = sized_read("tarn_alloc_options", given, options, sizeof *options);
    if (status)
        return status;
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    size_t alignment = options->alignment;
    if (alignment & (alignment - 1) || alignment > TARN_MAX_ALIGNMENT)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "alignment %zu is not a power of two up to %zu",
                      alignment, TARN_MAX_ALIGNMENT);
    if (options->tag && !*tarn_tag_text(options->tag))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "tag %u was never interned", options->tag);

    status = options->pool ? pool_check_any(options->pool) : memory_ready();
    debug_enter(__builtin_return_address(0));
    if (status)
        return status;
    struct store *store = options->pool ? store_of_public(options->pool) : NULL;
    int number = options->device != TARN_CURRENT_DEVICE ? options->device
                 : store                                ? store->arena->device->number
                                                        : thread_device();
    status = device_find(number, &device);
    if (!status)
        status = stream_find(options->stream, number, &stream);
    if (status)
        return status;
    if (store && store->arena->device != device)
        return failed(TARN_ERROR_INVALID_DEVICE, "the pool is of device %d, not of device %d",
                      store->arena->device->number, number);
    if ((store || options->device != TARN_CURRENT_DEVICE) && stream->device != number)
        return failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, not of device %d",
                      stream->device, number);
    struct used used = {0};
    struct asked asked = {.size = size,
                          .alignment = alignment,
                          .tag = options->tag,
                          .until = options->wait == 0              ? UNTIL_ENDED
                                   : options->wait == TARN_NO_WAIT ? UNTIL_NOW
                                                                   : clock_after(options->wait)};
    return store ? alloc_in(store, stream, &asked, pointer)
                 : alloc_for(stream, &asked, pointer, &used);
}

tarn_status tarn_pool_alloc(tarn_pool *public, tarn_stream stream, size_t size, void **pointer)
{
    struct store *store = store_of_public(public);
    struct stream *found = NULL;
    tarn_status status = pool_check_any(public);
    debug_enter(__builtin_return_address(0));
    if (status)
        return status;
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    int device = store->arena->device->number;
    status = stream_find(stream, device, &found);
    if (status)
        return status;
    if (found->device != device)
        return failed(TARN_ERROR_INVALID_STREAM,
                      "the stream is of device %d, the pool of device %d", found->device, device);
    return alloc_in(store, found, &(struct asked){.size = size}, pointer);
}
