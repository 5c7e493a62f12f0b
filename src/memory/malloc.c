/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The public calls on memory: they check arguments, find the heap, take its lock, and leave the work to heap, slab, wait and
 * ladder. A pointer is trusted only under the lock of the heap that the page map names for it. */
#include "memory/malloc.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/ladder.h"
#include "memory/slab.h"
#include "memory/wait.h"

#include <string.h>
#include <tarn/memory.h>

static void memory_shutdown(void)
{
    for (int i = 0; i < device_count(); i++) {
        struct arena *arena = NULL;
        if (arena_of(device_at(i), &arena) == TARN_OK) {
            (void)ladder_trim(arena, 0);
            arena_finish(arena);
        }
    }
}

static void memory_register(void)
{
    stream_on_retire(heap_retire);
    device_on_shutdown(memory_shutdown);
    peers_on_enable(arena_grant);
}

static tarn_status memory_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    tarn_status status = device_layer_ready();
    if (!status)
        pthread_once(&once, memory_register);
    return status;
}

/* Allocation ------------------------------------------------------------------------------------------------------ */

/* Makes a held span a block. */
static uintptr_t block_begin_locked(struct span *span, const struct request *request)
{
    span->state = SPAN_BLOCK;
    span->requested = request->requested;
    span->tag = request->tag;
    span->uses = NULL;
    map_set(span->start, span);
    return span->start;
}

/* A block out of what the heap has at hand. TARN_ERROR_OUT_OF_MEMORY when it must grow. */
static tarn_status take_locked(struct heap *heap, const struct request *request, uintptr_t *address)
{
    struct span *span = NULL;
    if (!slab_serves(request)) {
        tarn_status status = span_take_locked(heap, zone_of(request->size), request->size, request->alignment, &span);
        if (!status)
            *address = block_begin_locked(span, request);
        return status;
    }
    tarn_status status = slab_take_locked(heap, request, address);
    if (status != TARN_ERROR_OUT_OF_MEMORY)
        return status;
    status = span_take_locked(heap, ZONE_SMALL, slab_span_size(request), MAP_PAGE, &span);
    if (status)
        return status;
    status = slab_create_locked(heap, span, request, address);
    if (status)
        span_return_locked(heap, span);
    return status;
}

/* The same after the heap has grown. */
static tarn_status grow_and_take(struct heap *heap, const struct request *request, uintptr_t *address)
{
    bool slab = slab_serves(request);
    struct span *span = NULL;
    tarn_status status =
        ladder_climb(heap, slab ? ZONE_SMALL : zone_of(request->size), slab ? slab_span_size(request) : request->size,
                     slab ? MAP_PAGE : request->alignment, &span);
    if (status)
        return status;
    mutex_lock(&heap->lock);
    if (!slab)
        *address = block_begin_locked(span, request);
    else if ((status = slab_create_locked(heap, span, request, address)))
        span_return_locked(heap, span);
    if (!status)
        heap->blocks++;
    mutex_unlock(&heap->lock);
    return status;
}

static tarn_status block_alloc(struct heap *heap, const struct request *request, uintptr_t *address)
{
    tarn_status status = device_check(heap->arena->device);
    if (status)
        return status;
    mutex_lock(&heap->lock);
    status = take_locked(heap, request, address);
    if (!status)
        heap->blocks++;
    mutex_unlock(&heap->lock);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        status = grow_and_take(heap, request, address);
    if (status)
        return status;

    size_t size = slab_serves(request) ? slab_slot_size(request->size) : request->size;
    counters_allocated(&heap->arena->counters, size, request->requested);
    if (driver->checking && driver->checking())
        driver->owner_set(heap->arena->device->number, *address, size, heap->stream->native);
    return TARN_OK;
}

/* Rounds a request. One that no slab serves is at least a page long, so that no two blocks begin in the same page. */
static tarn_status request_make(size_t size, size_t alignment, tarn_tag tag, struct request *request)
{
    if (size > TARN_MAX_SIZE)
        return failed(TARN_ERROR_OUT_OF_MEMORY, "%zu bytes are more than 1 EiB, the most that can be asked for", size);
    *request = (struct request){
        .size = (size + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1),
        .requested = size,
        .alignment = alignment > TARN_BLOCK_UNIT ? alignment : TARN_BLOCK_UNIT,
        .tag = tag,
    };
    if (!slab_serves(request) && request->size < MAP_PAGE)
        request->size = MAP_PAGE;
    return TARN_OK;
}

static tarn_status alloc_for(struct stream *stream, size_t size, size_t alignment, tarn_tag tag, void **pointer)
{
    struct request request;
    struct heap *heap = NULL;
    uintptr_t address = 0;
    if (size == 0) {
        *pointer = NULL;
        return TARN_OK;
    }
    tarn_status status = request_make(size, alignment, tag, &request);
    if (status || (status = heap_of(stream, &heap)) || (status = block_alloc(heap, &request, &address)))
        return status;
    *pointer = (void *)address;
    return TARN_OK;
}

void *tarn_malloc(size_t size)
{
    struct stream *stream = NULL;
    void *pointer = NULL;
    tarn_status status = memory_ready();
    if (!status)
        status = stream_current(thread_device(), &stream);
    if (!status)
        status = alloc_for(stream, size, 0, 0, &pointer);
    status_set_last(status);
    return pointer;
}

tarn_status tarn_alloc_on(tarn_stream stream, size_t size, void **pointer)
{
    struct stream *found = NULL;
    if (!pointer)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "pointer is NULL");
    tarn_status status = memory_ready();
    if (status || (status = stream_find(stream, thread_device(), &found)))
        return status;
    return alloc_for(found, size, 0, 0, pointer);
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
    int number = options->device == TARN_CURRENT_DEVICE ? thread_device() : options->device;
    if (status || (status = device_find(number, &device)) || (status = stream_find(options->stream, number, &stream)))
        return status;
    if (options->device != TARN_CURRENT_DEVICE && stream->device != number)
        return failed(TARN_ERROR_INVALID_STREAM, "the stream is of device %d, not of device %d", stream->device,
                      number);
    return alloc_for(stream, size, alignment, options->tag, pointer);
}

/* Looking blocks up ----------------------------------------------------------------------------------------------- */

/* A live block, found under the lock of its heap, which stays held. */
struct block {
    struct heap *heap;
    struct span *span;
    struct slab *slab; /* NULL for a span of its own */
    unsigned slot;
    uintptr_t start;
    size_t size, requested; /* bytes */
};

/* Finds the block that holds an address, in the entry given, under the lock of its heap. False when the entry has
 * changed, the address lies behind the block's end, or the block is not live. */
static bool block_in_locked(struct span *span, uintptr_t address, struct block *block)
{
    *block = (struct block){.heap = block->heap, .span = span};
    if (address - span->start >= span->size)
        return false;
    if (span->state == SPAN_BLOCK) {
        block->start = span->start;
        block->size = span->size;
        block->requested = span->requested;
        return true;
    }
    if (span->state != SPAN_SLAB)
        return false;
    struct slab *slab = span->slab;
    (void)slab_slot(slab, address, &block->slot);
    if ((address - span->start) / slab->slot_size >= slab->slots || !slab_is_live(slab, block->slot))
        return false;
    block->slab = slab;
    block->start = slab_address(slab, block->slot);
    block->size = slab->slot_size;
    block->requested = slab_requested(slab, block->slot);
    return true;
}

/* The page map's last entry at or before an address, with the lock of its heap held; NULL, nothing held, if there is none. */
static struct span *entry_lock(uintptr_t address)
{
    struct span *span = map_get(address);
    if (!span || address < span->start) {
        struct arena *arena = arena_at(address);
        if (!arena)
            return NULL;
        uintptr_t below = address & ~(MAP_PAGE - 1);
        span = below > arena->base ? map_find_before(below - 1, arena->base) : NULL;
        if (!span)
            return NULL;
    }
    struct heap *heap = atomic_load_explicit(&span->heap, memory_order_relaxed);
    if (!heap)
        return NULL;
    mutex_lock(&heap->lock);
    if (map_get(span->start) == span && atomic_load_explicit(&span->heap, memory_order_relaxed) == heap)
        return span;
    mutex_unlock(&heap->lock);
    return NULL;
}

static tarn_status not_a_block(uintptr_t address)
{
    if (arena_at(address) && address % TARN_BLOCK_UNIT == 0)
        return failed(TARN_ERROR_DOUBLE_FREE, "%p lies in memory of tarn's where no block is live: it was freed before",
                      (void *)address);
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not memory that tarn handed out", (void *)address);
}

/* Finds the live block that holds an address, or that begins there, with the lock of its heap held. */
static tarn_status block_lock(const void *pointer, bool start, struct block *block)
{
    uintptr_t address = (uintptr_t)pointer;
    struct span *span = entry_lock(address);
    if (!span)
        return not_a_block(address);
    block->heap = atomic_load_explicit(&span->heap, memory_order_relaxed);
    if (!block_in_locked(span, address, block)) {
        mutex_unlock(&block->heap->lock);
        return not_a_block(address);
    }
    if (!start || block->start == address)
        return TARN_OK;
    uintptr_t from = block->start;
    mutex_unlock(&block->heap->lock);
    return failed(TARN_ERROR_INVALID_POINTER, "%p is not the start of a block: it lies %zu bytes into the one at %p",
                  pointer, (size_t)(address - from), (void *)from);
}

static struct use **block_uses(struct block *block)
{
    return block->slab ? slab_uses(block->slab, block->slot) : &block->span->uses;
}

/* Free ------------------------------------------------------------------------------------------------------------ */

/* Ends a live block: its memory goes to the heap, or waits for the streams that use it. */
static void block_free_locked(struct block *block)
{
    struct heap *heap = block->heap;
    struct counters *counters = &heap->arena->counters;
    struct use *uses = block->slab ? (block->slab->uses ? block->slab->uses[block->slot] : NULL) : block->span->uses;
    if (driver->checking && driver->checking())
        driver->owner_clear(heap->arena->device->number, block->start, block->size);
    if (uses) {
        counters_freed(counters, block->size, block->requested);
        if (block->slab)
            block->slab->pending[block->slot / 64] |= UINT64_C(1) << (block->slot % 64);
        else
            block->span->state = SPAN_PENDING;
        wait_begin_locked(heap, block->span, block->slot, uses, block->size);
        return;
    }
    counters_freed_and_completed(counters, block->size, block->requested);
    heap->blocks--;
    if (block->slab) {
        slab_give_locked(heap, block->slab, block->slot);
    } else {
        map_set(block->start, NULL);
        span_give_locked(heap, block->span);
    }
}

tarn_status memory_free(void *pointer)
{
    struct block block;
    tarn_status status = block_lock(pointer, true, &block);
    if (status)
        return status;
    block_free_locked(&block);
    mutex_unlock(&block.heap->lock);
    return TARN_OK;
}

tarn_status tarn_free(void *pointer)
{
    tarn_status status = memory_ready();
    return status || !pointer ? status : memory_free(pointer);
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
    if (status || (status = stream_find(stream, thread_device(), &found)) || !pointer)
        return status;
    status = block_lock(pointer, true, &block);
    if (status)
        return status;
    if (!is_own_stream(block.heap, found)) {
        struct use **uses = block_uses(&block);
        status = uses ? use_add_stream(uses, found) : TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (!status)
        block_free_locked(&block);
    mutex_unlock(&block.heap->lock);
    return status;
}

tarn_status tarn_free_after(void *pointer, tarn_event *event)
{
    struct block block;
    if (!event)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "event is NULL");
    tarn_status status = memory_ready();
    if (status || !pointer)
        return status;
    status = block_lock(pointer, true, &block);
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
        block_free_locked(&block);
    mutex_unlock(&block.heap->lock);
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
    mutex_unlock(&block.heap->lock);
    return status;
}

/* The rest -------------------------------------------------------------------------------------------------------- */

/* Grows a block in place; the counters follow. */
static tarn_status block_extend_locked(struct block *block, size_t size)
{
    size_t more = 0, rounded = (size + TARN_BLOCK_UNIT - 1) & ~(TARN_BLOCK_UNIT - 1);
    if (rounded > block->size) {
        more = rounded - block->size;
        if (block->slab || !span_extend_locked(block->heap, block->span, more))
            return failed(TARN_ERROR_NO_ROOM, "the block at %p has %zu bytes and cannot grow to %zu in place",
                          (void *)block->start, block->size, size);
    }
    if (size > block->requested) {
        if (block->slab)
            block->slab->notes[block->slot].unused = (uint16_t)(block->size - size);
        else
            block->span->requested = size;
        counters_extended(&block->heap->arena->counters, block->size, more, block->requested, size - block->requested);
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
    if (!status && size > block.size && driver->checking && driver->checking())
        driver->owner_set(block.heap->arena->device->number, block.start + block.size, block.span->size - block.size,
                          block.heap->stream->native);
    mutex_unlock(&block.heap->lock);
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
    mutex_unlock(&block.heap->lock);
    *size = block.size;
    return TARN_OK;
}

tarn_status tarn_pointer_info(const void *pointer, tarn_block_info *info)
{
    struct block block;
    if (!info || info->size != sizeof *info)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "info is NULL, or its size is not sizeof(tarn_block_info)");
    tarn_status status = memory_ready();
    if (status || (status = block_lock(pointer, false, &block)))
        return status == TARN_ERROR_DOUBLE_FREE ? TARN_ERROR_INVALID_POINTER : status;
    *info = (tarn_block_info){
        .size = sizeof *info,
        .base = (void *)block.start,
        .usable_size = block.size,
        .requested = block.requested,
        .device = block.heap->arena->device->number,
        .stream = (tarn_stream)block.heap->generation << 32 | block.heap->stream->slot,
        .tag = block.slab ? block.slab->notes[block.slot].tag : block.span->tag,
    };
    mutex_unlock(&block.heap->lock);
    return TARN_OK;
}
