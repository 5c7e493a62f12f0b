/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The calls on ranges. Owns the fast way of a commit and a decommit, which takes no lock: one look
 * at each page, and one atomic exchange per page, which a decommit follows with a store. */
#include "memory/range/range.h"
#include "base/machine.h"
#include "base/pages.h"
#include "base/sized.h"
#include "base/status.h"
#include "device/capture.h"
#include "memory/arena/moves.h"
#include "memory/arena/observe.h"
#include "memory/heap/traced.h"
#include "memory/pool/block.h"
#include "memory/settings/hooks.h"

/* What a call on pages was given. */
struct call {
    struct tarn_range *range;
    size_t first, end; /* pages */
    struct stream *stream;
};

static tarn_status find_pages(struct tarn_range *range, size_t offset, size_t bytes,
                              struct call *call)
{
    size_t size = range->page_size, all = range->pages * size;
    if (!bytes || offset % size || bytes % size)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "%zu bytes at offset %zu are not whole pages of %zu", bytes, offset, size);
    if (offset > all || bytes > all - offset)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "%zu bytes at offset %zu lie outside the range, which has %zu", bytes, offset,
                      all);
    *call = (struct call){.range = range, .first = offset / size, .end = (offset + bytes) / size};
    return TARN_OK;
}

/* The start of a call that names pages and a stream. */
static tarn_status begin(struct tarn_range *range, size_t offset, size_t bytes, tarn_stream stream,
                         const char *what, struct call *call)
{
    tarn_status status = memory_ready();
    if (!status)
        status = range_check(range);
    if (!status)
        status = find_pages(range, offset, bytes, call);
    if (status)
        return status;
    struct device *device = range->store->arena->device;
    status = stream_find(stream, device->number, &call->stream);
    if (!status && call->stream->device != device->number)
        status =
            failed(TARN_ERROR_INVALID_STREAM, "the range is of device %d, the stream of device %d",
                   device->number, call->stream->device);
    if (!status && captures_open_anywhere())
        status = stream_refuse_capture(call->stream, what);
    return status;
}

/* Tells a driver that checks, such as the host device, who owns the memory. */
static void watch(const struct call *call, bool committed)
{
    const struct tarn_range *range = call->range;
    int device = range->store->arena->device->number;
    uintptr_t start = range->start + call->first * range->page_size;
    size_t size = (call->end - call->first) * range->page_size;
    if (!blocks_are_watched())
        return;
    if (committed)
        (void)driver->owner_set(device, start, size, stream_native(call->stream));
    else
        driver->owner_clear(device, start, size);
}

/* A page is a block in the trace: of the stream that commits or decommits it. */
static void trace(const struct call *call, enum trace_kind kind)
{
    const struct tarn_range *range = call->range;
    if (!trace_is_on())
        return;
    for (size_t i = call->first; i < call->end; i++)
        trace_event(kind, range->place, range->start + i * range->page_size, range->page_size,
                    range->tag);
}

/* After a page became decommitted: a search for idle memory comes to its chunk. */
static void note_some(const struct tarn_range *range, size_t page)
{
    struct chunk *chunk = range_chunk(range, page);
    if (!atomic_load(&chunk->some))
        atomic_store(&chunk->some, true);
}

/* Commit --------------------------------------------------------------------------------------- */

/* Commits pages that are decommitted on the stream. False if one of them is not: then the pages
 * before it are decommitted once more. Only their word differs afterwards, by its number: `owner`,
 * `epoch` and `before` are still those of the last real decommit. */
static bool commit_quickly(const struct call *call)
{
    uint64_t owner = owner_of(call->stream);
    size_t i = call->first;
    for (; i < call->end; i++) {
        struct page *page = range_page(call->range, i);
        uint64_t word = page ? atomic_load_explicit(&page->word, memory_order_acquire) : 0;
        if (word_state(word) != PAGE_DECOMMITTED ||
            atomic_load_explicit(&page->owner, memory_order_relaxed) != owner ||
            !atomic_compare_exchange_strong(&page->word, &word, word_with(word, PAGE_COMMITTED)))
            break;
    }
    if (i == call->end)
        return true;
    while (i-- > call->first) {
        struct page *page = range_known(call->range, i);
        atomic_store(&page->word, word_decommitted(atomic_load(&page->word)));
        note_some(call->range, i); /* a search may have seen it committed */
    }
    return false;
}

tarn_status tarn_range_commit(tarn_range *range, size_t offset, size_t bytes, tarn_stream stream)
{
    struct call call;
    tarn_status status = begin(range, offset, bytes, stream, "a commit", &call);
    if (!status)
        status = device_check(range->store->arena->device);
    if (status)
        return status;
    if (debug_has(DEBUG_BLOCKS))
        range_settle(range);
    if (!commit_quickly(&call))
        status = range_commit_slowly(range, call.first, call.end, call.stream);
    if (!status)
        watch(&call, true);
    if (!status)
        trace(&call, TRACE_alloc);
    return status;
}

/* Decommit ------------------------------------------------------------------------------------- */

static tarn_status take_committed(const struct call *call, size_t i)
{
    struct page *page = range_page(call->range, i);
    uint64_t word = page ? atomic_load(&page->word) : 0;
    size_t offset = i * call->range->page_size;
    if (word_state(word) != PAGE_COMMITTED || !page_take(page, word))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the page at offset %zu is not committed",
                      offset);
    if (!atomic_load(&page->holds)) /* a hold is counted before it looks at the word */
        return TARN_OK;
    page_put_back(page);
    return failed(TARN_ERROR_BUSY,
                  "the page at offset %zu is held: by a graph until it is destroyed, or until "
                  "tarn_range_unhold()",
                  offset);
}

/* Notes stream and epoch of pages that are decommitted. The caller has queued its work before, so a
 * mark that ends this epoch comes after the work. */
static void leave_decommitted(const struct call *call)
{
    uint64_t owner = owner_of(call->stream), epoch = atomic_load(&call->range->epoch);
    for (size_t i = call->first; i < call->end; i++) {
        struct page *page = range_known(call->range, i);
        atomic_store_explicit(&page->owner, owner, memory_order_relaxed);
        atomic_store_explicit(&page->stream, call->stream, memory_order_relaxed);
        atomic_store_explicit(&page->epoch, epoch, memory_order_relaxed);
        atomic_store(&page->word, word_decommitted(page->before));
        note_some(call->range, i);
    }
}

tarn_status tarn_range_decommit(tarn_range *range, size_t offset, size_t bytes, tarn_stream stream)
{
    struct call call;
    tarn_status status = begin(range, offset, bytes, stream, "a decommit", &call);
    if (status)
        return status;
    size_t taken = call.first;
    for (; taken < call.end && !status; taken += !status)
        status = take_committed(&call, taken);
    if (status) {
        while (taken-- > call.first)
            page_put_back(range_known(range, taken));
        return status;
    }
    watch(&call, false);
    trace(&call, TRACE_free_remote); /* before it can be committed again */
    leave_decommitted(&call);
    if (debug_has(DEBUG_BLOCKS))
        range_settle(range);
    return TARN_OK;
}

/* Holds ---------------------------------------------------------------------------------------- */

static struct object_pool hold_objects = OBJECT_POOL(struct range_hold);

static void release_pages(const struct tarn_range *range, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        atomic_fetch_sub(&range_known(range, i)->holds, 1);
}

/* Runs in a thread of the driver, so it makes no calls and takes no lock. */
static void graph_ended(void *argument)
{
    struct range_hold *hold = argument;
    release_pages(hold->range, hold->first, hold->end);
    atomic_store_explicit(&hold->ended, true, memory_order_release); /* another's from here */
}

static void sweep_locked(struct tarn_range *range)
{
    for (struct range_hold **place = &range->holds; *place;) {
        struct range_hold *hold = *place;
        if (!atomic_load_explicit(&hold->ended, memory_order_acquire)) {
            place = &hold->next;
            continue;
        }
        *place = hold->next;
        object_free(&hold_objects, hold);
    }
}

static tarn_status hold_pages(const struct call *call)
{
    for (size_t i = call->first; i < call->end; i++) {
        struct page *page = range_page(call->range, i);
        if (page)
            atomic_fetch_add(&page->holds, 1); /* before the look: a decommit looks in reverse */
        if (page && word_state(atomic_load(&page->word)) == PAGE_COMMITTED)
            continue;
        release_pages(call->range, call->first, page ? i + 1 : i);
        return failed(TARN_ERROR_INVALID_ARGUMENT, "the page at offset %zu is not committed",
                      i * call->range->page_size);
    }
    return TARN_OK;
}

static tarn_status begin_hold(struct tarn_range *range, size_t offset, size_t bytes,
                              struct call *call)
{
    tarn_status status = memory_ready();
    if (!status)
        status = range_check(range);
    if (!status)
        status = find_pages(range, offset, bytes, call);
    return status ? status : observe_refuse_moving("a hold");
}

tarn_status tarn_range_hold(tarn_range *range, size_t offset, size_t bytes, void *graph)
{
    struct call call;
    tarn_status status = begin_hold(range, offset, bytes, &call);
    if (status)
        return status;
    struct range_hold *hold = object_alloc(&hold_objects);
    if (!hold)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory to note what a graph holds");
    *hold = (struct range_hold){
        .range = range, .first = call.first, .end = call.end, .of_graph = graph != NULL};
    status = hold_pages(&call);
    if (status) {
        object_free(&hold_objects, hold);
        return status;
    }
    mutex_lock(&range->lock);
    sweep_locked(range);
    hold->next = range->holds;
    range->holds = hold;
    mutex_unlock(&range->lock);
    if (!graph)
        return TARN_OK;
    struct device *device = range->store->arena->device;
    status = device_note(device, driver->graph_hold(device->number, graph, graph_ended, hold));
    if (status) /* it is not called */
        graph_ended(hold);
    return status;
}

tarn_status tarn_range_unhold(tarn_range *range, size_t offset, size_t bytes)
{
    struct call call;
    tarn_status status = begin_hold(range, offset, bytes, &call);
    if (status)
        return status;
    mutex_lock(&range->lock);
    sweep_locked(range);
    struct range_hold *hold = range->holds;
    while (hold && (hold->of_graph || hold->first != call.first || hold->end != call.end))
        hold = hold->next;
    if (hold)
        graph_ended(hold);
    mutex_unlock(&range->lock);
    if (hold)
        return TARN_OK;
    return failed(TARN_ERROR_INVALID_ARGUMENT,
                  "%zu bytes at offset %zu are not held: pass what was passed to tarn_range_hold()",
                  bytes, offset);
}

/* Create --------------------------------------------------------------------------------------- */

/* The store of the options' pool, with a reference that the range gets. */
static tarn_status find_store(tarn_pool *public, struct store **store, struct pool **pool)
{
    tarn_status status = TARN_OK;
    *pool = NULL;
    if (!public) {
        struct arena *arena = NULL;
        status = memory_ready();
        if (!status)
            status = arena_of(device_at(thread_device()), &arena);
        if (!status)
            *store = &arena->store;
        return status;
    }
    status = pool_check_any(public);
    if (status)
        return status;
    *store = store_of_public(public);
    if (store_is_default(*store))
        return TARN_OK;
    *pool = pool_of_public(public);
    return pool_retain(*pool) ? TARN_OK
                              : failed(TARN_ERROR_INVALID_ARGUMENT,
                                       "the pool's last reference was dropped: it cannot be used");
}

static tarn_status check_store(const struct store *store, size_t page, size_t bytes, tarn_tag tag)
{
    const struct device *device = store->arena->device;
    if (!device->properties.virtual_memory)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "device %d has no virtual memory, of which ranges "
                      "are made",
                      device->number);
    if (!store->kind.pieces || store->kind.fixed)
        return failed(TARN_ERROR_NOT_SUPPORTED,
                      "the pool %s: a range needs one that was created with "
                      "tarn_pool_options.segments = TARN_SEGMENTS_VIRTUAL",
                      store->kind.fixed ? "is registrable" : "has plain segments");
    if (page % store->arena->granule)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "a page of %zu bytes is not a multiple of the granule of device %d, %zu",
                      page, device->number, store->arena->granule);
    if (tag && !*tarn_tag_text(tag))
        return failed(TARN_ERROR_INVALID_ARGUMENT, "tag %u was never interned", tag);
    if (!bytes || bytes > TARN_MAX_SIZE || page > TARN_MAX_SIZE)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "a range of %zu bytes in pages of %zu: each is 1 to 1 EiB", bytes, page);
    return TARN_OK;
}

/* Reserves the addresses and the table of chunks. */
static tarn_status reserve(struct tarn_range *range)
{
    int device = range->store->arena->device->number;
    size_t bytes = range->pages * range->page_size;
    size_t granule = range->store->arena->granule;
    range->chunk_count = (range->pages + CHUNK_PAGES - 1) / CHUNK_PAGES;
    range->chunks = pages_map(range->chunk_count * sizeof *range->chunks);
    if (!range->chunks)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a range of %zu bytes",
                      bytes);
    tarn_status status = device_note(range->store->arena->device,
                                     driver->reserve(device, bytes, granule, &range->start));
    if (!status)
        return TARN_OK;
    pages_unmap(range->chunks, range->chunk_count * sizeof *range->chunks);
    return failed_within(status,
                         "no %zu bytes of addresses for a range on device %d; those of the process "
                         "have %d bits",
                         bytes, device, machine_address_bits());
}

tarn_status tarn_range_create(const tarn_range_options *given, size_t bytes, tarn_range **result)
{
    static const tarn_range_options nothing_special = {.size = sizeof nothing_special};
    tarn_range_options options;
    struct store *store = NULL;
    struct pool *pool = NULL;
    if (!result)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "range is NULL");
    tarn_status status = sized_read("tarn_range_options", given ? given : &nothing_special,
                                    &options, sizeof options);
    if (!status)
        status = find_store(options.pool, &store, &pool);
    if (status)
        return status;
    size_t page = options.page ? options.page : store->arena->granule;
    struct tarn_range *range = NULL;
    status = check_store(store, page, bytes, options.tag);
    if (!status) {
        range = range_new();
        if (!range)
            status = failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a range");
    }
    if (status)
        goto fail;
    range->store = store;
    range->pool = pool;
    range->page_size = page;
    range->tag = options.tag;
    range->pages = (bytes - 1) / page + 1;
    atomic_store(&range->epoch, 1);
    mutex_init(&range->lock, LOCK_RANGE);
    status = reserve(range);
    if (status)
        goto fail_range;
    range->place = trace_place_of_device_keep(store->arena->device->number, store->id);
    range_enter(range);
    *result = range;
    return TARN_OK;

fail_range:
    mutex_finish(&range->lock);
    range_free(range);
fail:
    if (pool)
        pool_release(pool);
    return status;
}

/* Information ---------------------------------------------------------------------------------- */

tarn_status tarn_range_info_get(tarn_range *range, tarn_range_info *info)
{
    tarn_status status = sized_check("tarn_range_info", info, sizeof *info);
    if (!status)
        status = memory_ready();
    if (!status)
        status = range_check(range);
    if (status)
        return status;
    tarn_range_info now = {
        .size = sizeof now,
        .address = (void *)range->start,
        .bytes = range->pages * range->page_size,
        .page = range->page_size,
        .device = range->store->arena->device->number,
        .pool = {range->store->id[0], range->store->id[1]},
    };
    for (size_t at = 0; at < range->chunk_count; at++) {
        const struct chunk *chunk = range_chunk(range, at * CHUNK_PAGES);
        for (size_t i = 0; chunk && i < CHUNK_PAGES; i++) {
            enum page_state state = word_state(atomic_load(&chunk->pages[i].word));
            now.committed += state == PAGE_COMMITTED ? range->page_size : 0;
            now.decommitted += state == PAGE_DECOMMITTED ? range->page_size : 0;
        }
    }
    sized_write(info, &now, sizeof now);
    return TARN_OK;
}

/* Destroy -------------------------------------------------------------------------------------- */

/* The first page with memory from `page` on; the number of pages if there is none. */
static size_t next_mapped(const struct tarn_range *range, size_t page)
{
    while (page < range->pages) {
        const struct page *at = range_page(range, page);
        if (at && word_state(atomic_load(&at->word)) != PAGE_EMPTY)
            return page;
        page = at ? page + 1 : page / CHUNK_PAGES * CHUNK_PAGES + CHUNK_PAGES;
    }
    return range->pages;
}

/* Waits for the work of the streams that pages are committed or decommitted on, once per stream in
 * a row. */
static tarn_status wait_for_work(struct tarn_range *range)
{
    uint64_t waited = UINT64_MAX;
    tarn_status status = TARN_OK;
    for (size_t i = next_mapped(range, 0); i < range->pages && !status;
         i = next_mapped(range, i + 1)) {
        struct page *page = range_known(range, i);
        uint64_t owner = atomic_load(&page->owner);
        struct mark *mark = NULL;
        if (owner == waited || !atomic_load(&page->stream)) /* none: it is nobody's, without work */
            continue;
        mutex_lock(&range->lock);
        status = page_mark_now_locked(range, page, &mark);
        mutex_unlock(&range->lock);
        if (!status && mark)
            status = mark_wait(mark);
        mark_release(mark);
        waited = owner;
    }
    return status;
}

/* Unmaps every page, run by run. Nobody else moves memory. */
static tarn_status unmap_all_locked(struct tarn_range *range, struct piece_list *pieces)
{
    tarn_status status = TARN_OK;
    for (size_t i = next_mapped(range, 0), end; i < range->pages && !status;
         i = next_mapped(range, end)) {
        for (end = i; end < range->pages && next_mapped(range, end) == end; end++)
            ;
        status = range_unmap_locked(range, i, end, pieces);
        for (size_t page = i; page < end && !status; page++)
            range_empty_locked(range, range_known(range, page));
    }
    return status;
}

void range_dispose(struct tarn_range *range)
{
    range_remove(range);
    sweep_locked(range);
    orders_destroy(range);
    trace_place_drop(range->place);
    for (size_t at = 0; at < range->chunk_count; at++)
        pages_unmap(range_chunk(range, at * CHUNK_PAGES), sizeof(struct chunk));
    pages_unmap(range->chunks, range->chunk_count * sizeof *range->chunks);
    mutex_finish(&range->lock);
    range_free(range);
}

static tarn_status end_alone(struct tarn_range *range)
{
    struct arena *arena = range->store->arena;
    struct piece_list pieces = {0};
    mutex_lock(&range->lock);
    tarn_status status = unmap_all_locked(range, &pieces);
    mutex_unlock(&range->lock);
    pieces_to_unmapped(arena, &pieces);
    if (!status)
        status = device_note(arena->device, driver->unreserve(arena->device->number, range->start,
                                                              range->pages * range->page_size));
    if (status)
        return status;
    shared_lock_alone(&arena->mapping);
    range_dispose(range);
    shared_unlock(&arena->mapping);
    return TARN_OK;
}

static tarn_status refuse_held(struct tarn_range *range)
{
    mutex_lock(&range->lock);
    sweep_locked(range);
    bool held = range->holds;
    mutex_unlock(&range->lock);
    return held ? failed(TARN_ERROR_BUSY, "pages of the range are held: by a graph until it is "
                                          "destroyed, or until tarn_range_unhold()")
                : TARN_OK;
}

tarn_status tarn_range_destroy(tarn_range *range)
{
    tarn_status status = memory_ready();
    if (status || !range)
        return status;
    status = range_check(range);
    if (!status)
        status = observe_refuse_moving("the end of a range");
    if (!status)
        status = refuse_held(range);
    if (!status)
        status = wait_for_work(range);
    if (status)
        return status;
    struct arena *arena = range->store->arena;
    struct pool *pool = range->pool;
    move_begin_alone(arena);
    status = end_alone(range);
    move_end(arena);
    if (!status && pool)
        pool_release(pool);
    return status;
}
