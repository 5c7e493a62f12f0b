/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls on memory: they check arguments, find the heap, take its lock, and leave the work to heap, slab, wait and
 * ladder. A pointer is trusted only under the lock of the heap that the page map names for it. */
#include "memory/malloc.h"
#include "base/process.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/cache.h"
#include "memory/config.h"
#include "memory/debug.h"
#include "memory/graph.h"
#include "memory/import.h"
#include "memory/kept.h"
#include "memory/ladder.h"
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

static bool is_watched(void)
{
    return driver->checking && driver->checking();
}

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
    mutex_lock(&heap->lock);
    tarn_status status = store_check(heap->store);
    if (!status)
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
    if (is_watched())
        owner = driver->owner_set(heap->arena->device->number, *address, size, heap->stream->native);
    if (debug_is_on())
        debug_begin(other ? other : heap, *address, size, request, owner);
    *address += request->front;
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

/* Looking blocks up ----------------------------------------------------------------------------------------------- */

/* A live block, found under the lock of its heap, which stays held until block_unlock(); a span of its own is claimed so long. */
struct block {
    struct heap *heap;
    struct span *span;
    struct slab *slab; /* NULL for a span of its own */
    unsigned slot;
    uintptr_t start;
    size_t size, requested; /* bytes */
    size_t front;           /* bytes from the start to what the caller has: debug mode's */
    bool ended;             /* it was freed */
};

/* What the caller may use. */
static size_t block_usable(const struct block *block)
{
    return block->front ? block->requested : block->size;
}

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

static void block_unlock(const struct block *block)
{
    if (!block->slab && !block->ended)
        span_unclaim_locked(block->heap, block->span);
    mutex_unlock(&block->heap->lock);
}

/* The same after a free. */
static void block_unlock_freed(const struct block *block)
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

/* The entry of a page with the lock of its heap held; 0, nothing held, when the page has none, or more than one heap's. An entry that is not the
 * caller's own may change at any moment: it says nothing before the lock of the heap that it names is held. */
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
static bool block_find_lock(uintptr_t address, struct block *block)
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
static tarn_status block_lock(const void *pointer, bool start, struct block *block)
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

static struct use **block_uses(struct block *block)
{
    return block->slab ? slab_uses_locked(block->slab, block->slot) : &block->span->uses;
}

/* Free ------------------------------------------------------------------------------------------------------------ */

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
    if (is_watched())
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

/* Finds the block that a caller wants to free. */
static tarn_status block_lock_to_free(void *pointer, struct block *block)
{
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
    if (!event)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "event is NULL");
    tarn_status status = memory_ready();
    debug_enter(__builtin_return_address(0));
    if (status || !pointer)
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

/* The rest -------------------------------------------------------------------------------------------------------- */

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
    if (!status && size > block.size && is_watched())
        driver->owner_set(block.heap->arena->device->number, block.start + block.size, block.span->size - block.size,
                          block.heap->stream->native);
    if (!status && debug_is_on() && size > block.requested)
        debug_extended_locked(block.start, block.slab ? block.size : block.span->size, size);
    block_unlock(&block);
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
    return import_info(pointer, info) ? TARN_OK : memory_block_do(pointer, note_info, info);
}
