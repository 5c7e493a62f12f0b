/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls that allocate: they check arguments, find the heap, take its lock, and leave the work to heap, slab and ladder. And
 * the beginning and the end of the memory layer. */
#include "memory/malloc.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/announce.h"
#include "memory/block.h"
#include "memory/cache.h"
#include "memory/config.h"
#include "memory/debug/debug.h"
#include "memory/graph.h"
#include "memory/kept.h"
#include "memory/ladder.h"
#include "memory/plan.h"
#include "memory/pool.h"
#include "memory/segment.h"
#include "memory/shortage.h"
#include "memory/wait.h"

#include <string.h>
#include <tarn/memory.h>

static void memory_shutdown(void)
{
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = arena_if_used(i);
        if (!arena)
            continue;
        ladder_close(arena);
        pools_leave_behind(arena);
        (void)ladder_trim(arena, NULL, 0);
        debug_shutdown(arena);
        pools_collect(arena);
        if (!arena_finish(arena))
            device_keep_driver(); /* live blocks keep their memory */
    }
    debug_finish();
}

static void memory_lost(struct device *device)
{
    struct arena *arena = arena_if_used(device->number);
    if (arena)
        ladder_lose(arena);
}

static void memory_thread_end(struct thread *thread)
{
    if (atomic_load(&process_state) != PROCESS_RUNS)
        return; /* a shutdown has closed the caches already */
    scopes_of_thread_end(thread);
    caches_of_thread_end(thread);
}

static void memory_register(void)
{
    caches_init();
    stream_on_retire(heap_retire);
    thread_on_end(THREAD_MEMORY, memory_thread_end);
    device_on_shutdown(memory_shutdown);
    peers_on_enable(arena_grant);
    device_on_lost(memory_lost);
    captures_on_end(graph_capture_ended);
    tracing_on_turn(memory_trace_turned);
    debug_init();
}

tarn_status memory_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tarn_status status = device_layer_ready();
    if (!status)
        status = memory_config_use();
    if (!status)
        status = raw_ready();
    if (!status)
        pthread_once(&once, memory_register);
    if (!status)
        debug_turn();
    return status;
}

/* Allocation ------------------------------------------------------------------------------------------------------ */

/* What a thread may go back to with the next request without a look-up. */
struct hand {
    struct heap *heap;
    struct cache *cache; /* NULL where no slab served */
};

/* Makes a held span a block. */
static uintptr_t block_begin_locked(struct heap *heap, struct span *span, const struct request *request)
{
    span->state = SPAN_BLOCK;
    span->requested = request->requested;
    span->front = (uint32_t)request->front;
    span->tag = request->tag;
    span->uses = NULL;
    span_enter_locked(span);
    span_begin_locked(heap, span);
    return span->start;
}

/* A block with a span of its own. With `grow` the ladder is climbed for it where no free span serves. */
static tarn_status span_block_alloc(struct heap *heap, const struct request *request, bool grow, uintptr_t *address,
                                    size_t *size)
{
    enum zone_kind zone = zone_of(request->size);
    struct span *span = NULL;
    if (plan_may_begin(heap, request->size))
        ladder_plan(heap);
    mutex_lock(&heap->lock);
    tarn_status status = store_check(heap->store);
    if (!status && heap->plan)
        status = plan_take_locked(heap, request, &span);
    if (!span && (!status || status == TARN_ERROR_OUT_OF_MEMORY))
        status = span_take_locked(heap, zone, request->size, request->alignment, &span);
    if (status == TARN_ERROR_OUT_OF_MEMORY && grow) {
        mutex_unlock(&heap->lock);
        status = ladder_climb(heap, zone, request->size, request->alignment, &span);
        mutex_lock(&heap->lock);
    } else if (status == TARN_ERROR_OUT_OF_MEMORY) {
        status = span_take_locked(heap, zone_other(zone), request->size, request->alignment, &span);
    }
    if (!status) {
        *address = block_begin_locked(heap, span, request);
        *size = span->size;
    }
    mutex_unlock(&heap->lock);
    return status;
}

/* A block of a heap, in a slab of the thread's cache or with a span of its own. TARN_ERROR_OUT_OF_MEMORY without a text. */
static tarn_status heap_block_alloc(struct heap *heap, const struct request *request, bool grow, uintptr_t *address,
                                    size_t *size, struct hand *used)
{
    used->heap = heap;
    if (!request->slab)
        return span_block_alloc(heap, request, grow, address, size);
    struct cache *cache = cache_of(heap);
    if (!cache)
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    tarn_status status = cache_take(cache, request, grow, address);
    used->cache = status ? NULL : cache;
    *size = slab_slot_size(request->size);
    return status;
}

/* Rounds a request, and the red zones around it, as a store does. Of virtual memory, one that no slab serves is at least a page
 * long, so that no two blocks begin in the same page. A slab's blocks have all the same front. */
static void request_round(const struct store *store, struct request *request)
{
    size_t front = request->front, whole = request->requested + (front ? front + DEBUG_BEHIND : 0);
    bool slab = front <= TARN_BLOCK_UNIT;
    if (store->plain) {
        request->size = config_round(memory_config(), whole);
        request->slab =
            slab && !store->no_slabs && request->size <= store_rules(store).slab_most && slab_serves(request);
        return;
    }
    request->size = (whole + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1);
    request->slab = slab && slab_serves(request);
    if (request->slab)
        return;
    request->size = config_round(memory_config(), whole);
    if (request->size < MAP_PAGE)
        request->size = MAP_PAGE;
}

/* When the default pool has nothing: what lies free in a pool that was made for that. The block is that pool's for ever. The heap
 * that it is of, or NULL. */
static struct heap *spare_block_alloc(struct heap *heap, const struct request *request, uintptr_t *address,
                                      size_t *size)
{
    struct heap *found = NULL;
    for (struct pool *pool = pool_spare_next(heap, NULL); pool; pool = pool_spare_next(heap, pool)) {
        struct heap *other = found ? NULL : heap_if_used(&pool->store, heap->stream);
        struct hand used = {0};
        struct request own = *request;
        request_round(&pool->store, &own);
        if (other && heap_block_alloc(other, &own, false, address, size, &used) == TARN_OK)
            found = other;
    }
    return found;
}

/* A block for a request; `used` receives what may serve again without a look-up. */
static tarn_status block_alloc(struct heap *heap, const struct request *request, uintptr_t *address, struct hand *used)
{
    size_t size = 0;
    struct heap *other = NULL;
    tarn_status status = device_check(heap->arena->device);
    if (status)
        return status;
    status = heap_block_alloc(heap, request, true, address, &size, used);
    if (status == TARN_ERROR_OUT_OF_MEMORY && (other = spare_block_alloc(heap, request, address, &size)))
        status = TARN_OK;
    else if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = shortage_refuse(heap, request->size);
    if (status)
        return status;
    uint64_t owner = 0;
    if (blocks_are_watched())
        owner = driver->owner_set(heap->arena->device->number, *address, size, heap->stream->native);
    if (debug_is_on())
        debug_begin(other ? other : heap, *address, size, request, owner);
    *address += request->front;
    const struct store *store = (other ? other : heap)->store;
    if (announces(store))
        announcer->block(*address, request->requested, store->id, request->tag);
    return TARN_OK;
}

static tarn_status request_make(size_t size, size_t alignment, tarn_tag tag, struct request *request)
{
    if (size > TARN_MAX_SIZE)
        return failed(TARN_ERROR_OUT_OF_MEMORY, "%zu bytes are more than 1 EiB, the most that can be asked for", size);
    alignment = alignment > TARN_BLOCK_UNIT ? alignment : TARN_BLOCK_UNIT;
    *request = (struct request){
        .requested = size,
        .alignment = alignment,
        .front = debug_front(alignment),
        .tag = tag,
    };
    return TARN_OK;
}

static tarn_status alloc_for(struct stream *stream, size_t size, size_t alignment, tarn_tag tag, void **pointer,
                             struct hand *used)
{
    struct request request;
    struct heap *heap = NULL;
    uintptr_t address = 0;
    if (size == 0) {
        *pointer = NULL;
        return TARN_OK;
    }
    struct route route = {0};
    tarn_status status = request_make(size, alignment, tag, &request);
    if (status || (status = route_of(stream, &route)))
        return status;
    request_round(route.store, &request);
    status = heap_of(route.store, stream, &heap);
    if (!status)
        status = block_alloc(heap, &request, &address, used);
    if (!route.holds_on)
        *used = (struct hand){0};
    route_end(&route);
    if (!status)
        *pointer = (void *)address;
    return status;
}

tarn_status memory_alloc(struct store *store, struct stream *stream, size_t size, void **pointer)
{
    struct request request;
    struct heap *heap = NULL;
    struct hand used = {0};
    uintptr_t address = 0;
    tarn_status status = request_make(size, 0, 0, &request);
    if (!status) {
        request_round(store, &request);
        status = heap_of(store, stream, &heap);
    }
    if (!status)
        status = block_alloc(heap, &request, &address, &used);
    if (!status)
        *pointer = (void *)address;
    return status;
}

/* What a thread remembers of routes is forgotten when something has changed in the world. Before the route is asked for. */
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
    return trace_is_on() && cache && size - 1 < SLAB_MOST ? cache_take_fast(cache, thread_here, size, true) : 0;
}

static __attribute__((noinline)) void *malloc_slowly(size_t size, void *caller)
{
    struct stream *stream = NULL;
    struct hand used = {0};
    void *pointer = NULL;
    tarn_status status = memory_ready();
    debug_enter(caller);
    memory_of_routes_renew();
    if (!status)
        status = stream_current(thread_device(), &stream);
    if (!status)
        status = alloc_for(stream, size, 0, 0, &pointer, &used);
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

/* Of a size that no slab serves: the thread, its current heap, a block that was freed there, under a short lock. */
static __attribute__((noinline)) void *malloc_large(size_t size, void *caller)
{
    struct thread *thread = thread_here;
    uintptr_t address = 0;
    if (thread && thread->current_heap && size > SLAB_MOST)
        address = kept_take(thread->current_heap, thread, size);
    return address ? (void *)address : malloc_slowly(size, caller);
}

/* The fast path: the thread, its cache of the current stream, the class, the magazine, a slot. No lock, no driver call. All else is
 * left to functions that are not inlined, so that this one saves no register. */
void *tarn_malloc(size_t size)
{
    struct thread *thread = thread_here;
    if (!thread || !thread->current_cache || size - 1 >= SLAB_MOST)
        return malloc_large(size, __builtin_return_address(0));
    uintptr_t address = cache_take_fast(thread->current_cache, thread, size, false);
    return address ? (void *)address : malloc_traced(size, __builtin_return_address(0));
}

static __attribute__((noinline)) tarn_status alloc_on_slowly(tarn_stream stream, size_t size, void **pointer,
                                                             void *caller)
{
    struct stream *found = NULL;
    struct hand used = {0};
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    tarn_status status = memory_ready();
    debug_enter(caller);
    memory_of_routes_renew();
    if (status || (status = stream_find(stream, thread_device(), &found)))
        return status;
    status = alloc_for(found, size, 0, 0, pointer, &used);
    struct thread *thread = used.heap ? thread_self() : NULL;
    if (thread) {
        bool same = thread->named == stream;
        thread->named = stream;
        thread->named_heap = used.heap;
        thread->named_cache = used.cache ? used.cache : same ? thread->named_cache : NULL;
    }
    return status;
}

static __attribute__((noinline)) tarn_status alloc_on_traced(tarn_stream stream, size_t size, void **pointer,
                                                             void *caller)
{
    struct thread *thread = thread_here;
    uintptr_t address = thread->named == stream ? take_traced(thread->named_cache, size) : 0;
    if (!address)
        return alloc_on_slowly(stream, size, pointer, caller);
    *pointer = (void *)address;
    return TARN_OK;
}

static __attribute__((noinline)) tarn_status alloc_on_large(tarn_stream stream, size_t size, void **pointer,
                                                            void *caller)
{
    struct thread *thread = thread_here;
    uintptr_t address = 0;
    if (thread && thread->named_heap && thread->named == stream && size > SLAB_MOST && pointer)
        address = kept_take(thread->named_heap, thread, size);
    if (!address)
        return alloc_on_slowly(stream, size, pointer, caller);
    *pointer = (void *)address;
    return TARN_OK;
}

tarn_status tarn_alloc_on(tarn_stream stream, size_t size, void **pointer)
{
    struct thread *thread = thread_here;
    if (!thread || !thread->named_cache || thread->named != stream || size - 1 >= SLAB_MOST || !pointer)
        return alloc_on_large(stream, size, pointer, __builtin_return_address(0));
    uintptr_t address = cache_take_fast(thread->named_cache, thread, size, false);
    if (!address)
        return alloc_on_traced(stream, size, pointer, __builtin_return_address(0));
    *pointer = (void *)address;
    return TARN_OK;
}

tarn_status tarn_alloc(const tarn_alloc_options *options, size_t size, void **pointer)
{
    struct device *device = NULL;
    struct stream *stream = NULL;
    if (!options || !pointer || options->size != sizeof *options)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "options or pointer is NULL, or options->size is not "
                                                   "sizeof(tarn_alloc_options)");
    size_t alignment = options->alignment;
    if (alignment & (alignment - 1) || alignment > TARN_MAX_ALIGNMENT)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "alignment %zu is not a power of two up to %zu", alignment,
                      TARN_MAX_ALIGNMENT);
    if (options->tag && !*tarn_tag_text(options->tag))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "tag %u was never interned", options->tag);

    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    int number = options->device == TARN_CURRENT_DEVICE ? thread_device() : options->device;
    if (status || (status = device_find(number, &device)) || (status = stream_find(options->stream, number, &stream)))
        return status;
    if (options->device != TARN_CURRENT_DEVICE && stream->device != number)
        return failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, not of device %d", stream->device,
                      number);
    struct hand used = {0};
    return alloc_for(stream, size, alignment, options->tag, pointer, &used);
}
