/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Takes pictures. Owns nothing. Stops all heaps of a device: takes their locks, revokes their
 * caches, and has no parked blocks. So no memory is on its way from one heap to another. The moment
 * is noted, and what the trace recorded of the device later is left out. A thread that frees
 * without a lock writes the trace a moment before its block is free: join_trace() finds such
 * blocks. */
#include "memory/watch/picture.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/cache.h"
#include "memory/heap/parked.h"
#include "memory/range/range.h"

#include <stdlib.h>
#include <string.h>

/* Adds an item to a list. NULL: no host memory. */
static void *list_add(struct picture_list *list, size_t size)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 4096 / size + 1;
        void *items = pages_map(room * size);
        if (!items)
            return NULL;
        if (list->items)
            memcpy(items, list->items, list->count * size);
        pages_unmap(list->items, list->room * size);
        list->items = items;
        list->room = room;
    }
    return (char *)list->items + list->count++ * size;
}

/* Heaps ---------------------------------------------------------------------------------------- */

/* Adds a block. A PICTURE_FREE one enlarges the free block that ends where it begins. */
static bool add_block(struct picture *picture, const struct picture_run *shown,
                      struct picture_block block)
{
    size_t count = picture->blocks.count;
    struct picture_block *last =
        count > shown->first_block ? &picture_blocks(picture)[count - 1] : NULL;
    if (last && last->state == PICTURE_FREE && block.state == PICTURE_FREE) {
        last->size += block.size;
        return true;
    }
    struct picture_block *added = list_add(&picture->blocks, sizeof *added);
    if (added)
        *added = block;
    return added;
}

static bool add_slab(struct picture *picture, const struct picture_run *shown,
                     const struct span *span)
{
    const struct slab *slab = span->slab;
    for (unsigned slot = 0; slot < slab->slots; slot++) {
        uint32_t note = slab_note_of(slab, slot);
        struct picture_block block = {.address = slab_address(slab, slot), .size = slab->slot_size};
        if (slab_is_taken(slab, slot) && !slab_is_freed(slab, slot)) {
            block.state = (note & NOTE_STATE) == NOTE_PENDING ? PICTURE_WAITING : PICTURE_LIVE;
            block.requested = slab_requested(slab, slot);
            block.tag = slab_tag(slab, slot);
        }
        if (!add_block(picture, shown, block))
            return false;
    }
    size_t used = (size_t)slab->slots * slab->slot_size;
    return used == span->size || add_block(picture, shown,
                                           (struct picture_block){.address = span->start + used,
                                                                  .size = span->size - used});
}

static bool add_span(struct picture *picture, const struct picture_run *shown,
                     const struct span *span)
{
    struct picture_block block = {.address = span->start, .size = span->size};
    if (span->state == SPAN_SLAB)
        return add_slab(picture, shown, span);
    if (span->state == SPAN_BLOCK || span->state == SPAN_PENDING) {
        block.state = span->state == SPAN_BLOCK ? PICTURE_LIVE : PICTURE_WAITING;
        block.requested = span->requested;
        block.tag = span->tag;
        block.own = span->own;
    }
    return add_block(picture, shown, block);
}

static bool add_run(struct picture *picture, struct heap *heap, enum zone_kind zone,
                    const struct run *run)
{
    struct picture_run shown = {
        .address = run->start,
        .size = run->end - run->start,
        .place = heap_place(heap),
        .large = zone == ZONE_LARGE,
        .virtual = heap->store->kind.pieces,
        .first_block = picture->blocks.count,
    };
    /* Without host memory for its place, the run would seem to be another device's. */
    if (!shown.place)
        return false;
    for (const struct span *span = run->first; span; span = span->next)
        if (!add_span(picture, &shown, span))
            return false;
    shown.block_count = picture->blocks.count - shown.first_block;
    struct picture_run *added = list_add(&picture->runs, sizeof *added);
    if (added)
        *added = shown;
    return added;
}

/* Copies a stopped heap, and the frees that other threads have left for its caches. */
static bool add_heap(struct picture *picture, struct heap *heap)
{
    bool done = true;
    for (int zone = 0; heap->stream && zone < ZONES; zone++)
        for (const struct run *run = heap->zones.of[zone].runs; run && done; run = run->next)
            done = add_run(picture, heap, (enum zone_kind)zone, run);
    return done;
}

static bool add_pools(struct picture *picture, struct arena *arena)
{
    bool done = true;
    mutex_lock(&arena->lock);
    for (struct store *store = arena->pools.list; store && done; store = store->lists.next) {
        struct picture_pool *pool = list_add(&picture->pools, sizeof *pool);
        done = pool;
        if (done)
            *pool = (struct picture_pool){.device = arena->device->number,
                                          .id = {store->id[0], store->id[1]},
                                          .reserved = store->reserved,
                                          .suspended = atomic_load(&store->suspended),
                                          .held = atomic_load(&store->holds) != 0,
                                          .of_graphs = store_is_of_graphs(store)};
    }
    mutex_unlock(&arena->lock);
    return done;
}

/* Whether a page has memory that is its own. */
static const struct page *page_with_memory(const struct tarn_range *range, size_t page)
{
    const struct page *at = range_page(range, page);
    enum page_state state = at ? word_state(atomic_load(&at->word)) : PAGE_EMPTY;
    return state == PAGE_EMPTY || state == PAGE_LEFT ? NULL : at;
}

/* Every sequence of pages is a run, and every committed page is a block. */
static bool add_range(struct picture *picture, const struct tarn_range *range)
{
    for (size_t page = 0, end; page < range->pages; page = end) {
        const struct page *at = page_with_memory(range, page);
        struct picture_run shown = {
            .address = range->start + page * range->page_size,
            .place = range->place,
            .large = true,
            .virtual = true,
            .first_block = picture->blocks.count,
        };
        end = at || range_chunk(range, page) ? page + 1
                                             : page / CHUNK_PAGES * CHUNK_PAGES + CHUNK_PAGES;
        if (!at)
            continue;
        for (end = page; end < range->pages && (at = page_with_memory(range, end)); end++) {
            bool live = word_state(atomic_load(&at->word)) == PAGE_COMMITTED;
            if (!add_block(picture, &shown,
                           (struct picture_block){
                               .address = range->start + end * range->page_size,
                               .size = range->page_size,
                               .requested = live ? range->page_size : 0,
                               .tag = live ? range->tag : 0,
                               .state = live ? PICTURE_LIVE : PICTURE_FREE,
                           }))
                return false;
            shown.size += range->page_size;
        }
        shown.block_count = picture->blocks.count - shown.first_block;
        struct picture_run *added = list_add(&picture->runs, sizeof *added);
        if (!added)
            return false;
        *added = shown;
    }
    return true;
}

static bool add_ranges(struct picture *picture, const struct arena *arena)
{
    bool done = true;
    ranges_stay();
    for (struct tarn_range *range = range_next_staying(arena, NULL); range && done;
         range = range_next_staying(arena, range))
        done = !range->place || add_range(picture, range);
    ranges_may_go();
    return done;
}

static bool add_heaps(struct picture *picture, struct picture_device *device, struct arena *arena)
{
    heaps_stop(arena);
    bool done = add_pools(picture, arena);
    for (struct heap *heap = arena->heaps.all; heap && done; heap = heap->lists.next)
        done = add_heap(picture, heap);
    done = done && add_ranges(picture, arena);
    mutex_lock(&arena->lock);
    device->reserved = arena->reserved;
    device->limit = arena->limit;
    mutex_unlock(&arena->lock);
    ticks_fence();
    device->moment = ticks_now();
    heaps_go_on(arena);
    return done;
}

static bool add_device(struct picture *picture, int number)
{
    struct picture_device *device = &picture->devices[number];
    struct error_before before;
    *device = (struct picture_device){.name = device_at(number)->properties.name,
                                      .total = device_at(number)->properties.memory,
                                      .limit = SIZE_MAX,
                                      .moment = ticks_now()};
    struct arena *arena = arena_if_used(number);
    if (!arena)
        return true; /* so that no context is created on an unused device */
    error_attempt_begin(&before);
    (void)driver->memory_info(number, &device->free, &device->total);
    error_attempt_end(&before, TARN_OK);
    return add_heaps(picture, device, arena);
}

/* The trace beside it -------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    uintptr_t x = ((const struct picture_run *)a)->address,
              y = ((const struct picture_run *)b)->address;
    return x < y ? -1 : x > y;
}

/* Removes records of a device from after it was stopped. */
static void cut_trace(struct picture *picture)
{
    struct trace_copy *trace = &picture->trace;
    uint64_t first = UINT64_MAX;
    for (int i = 0; i < picture->device_count; i++)
        first = picture->devices[i].moment < first ? picture->devices[i].moment : first;
    size_t kept = trace->count, exact = trace->exact_from;
    while (kept > 0 && trace->records[kept - 1].time > first)
        kept--;
    trace->exact_from = exact < kept ? exact : SIZE_MAX;
    for (size_t i = kept; i < trace->count; i++) {
        const struct trace_place *place = trace_place_value(trace_place_of(&trace->records[i]));
        if (i == exact)
            trace->exact_from = kept;
        if (trace->records[i].time <= picture->devices[place ? place->device : 0].moment)
            trace->records[kept++] = trace->records[i];
    }
    trace->exact_from = trace->exact_from < kept ? trace->exact_from : kept;
    trace->count = kept;
}

#define FREED UINT32_MAX /* `record` of a block whose last record is its free */

/* A table of the blocks that are not free, by address: 1 + their indices. */
struct block_table {
    uint32_t *slots;
    size_t mask, bytes;
};

static uint32_t *table_slot(const struct block_table *table, const struct picture_block *blocks,
                            uintptr_t address)
{
    size_t at = (size_t)((uint64_t)address * 0x9e3779b97f4a7c15u >> 20) & table->mask;
    while (table->slots[at] && blocks[table->slots[at] - 1].address != address)
        at = (at + 1) & table->mask;
    return &table->slots[at];
}

static bool table_make(const struct picture *picture, struct block_table *table)
{
    size_t slots = 1024;
    while (slots < 2 * picture->blocks.count)
        slots *= 2;
    table->bytes = slots * sizeof *table->slots;
    table->mask = slots - 1;
    table->slots = picture->blocks.count < UINT32_MAX ? pages_map(table->bytes) : NULL;
    const struct picture_block *blocks = picture_blocks(picture);
    for (size_t i = 0; table->slots && i < picture->blocks.count; i++)
        if (blocks[i].state != PICTURE_FREE)
            *table_slot(table, blocks, blocks[i].address) = (uint32_t)i + 1;
    return table->slots;
}

/* Finds for each block the record that allocated it. A block whose last record is a free was freed
 * by a thread without a lock. If records are missing, that may be another block: a record counts
 * only if the size is equal. */
static bool join_trace(struct picture *picture)
{
    struct block_table table;
    struct picture_block *blocks = picture_blocks(picture);
    if (!table_make(picture, &table))
        return false;
    for (size_t i = 0; i < picture->trace.count; i++) {
        const struct trace_record *record = &picture->trace.records[i];
        enum trace_kind kind = trace_kind_of(record);
        if (kind != TRACE_alloc && kind != TRACE_free_remote)
            continue;
        uint32_t found = *table_slot(&table, blocks, record->address);
        struct picture_block *block = found ? &blocks[found - 1] : NULL;
        bool exact = i >= picture->trace.exact_from;
        if (block && kind == TRACE_alloc)
            block->record = exact || record->size == block->requested ? (uint32_t)i + 1 : 0;
        else if (block)
            block->record = exact ? FREED : 0;
    }
    pages_unmap(table.slots, table.bytes);
    return true;
}

static void free_what_was_freed(struct picture *picture)
{
    struct picture_block *blocks = picture_blocks(picture);
    for (size_t i = 0; i < picture->blocks.count; i++)
        if (blocks[i].record == FREED)
            blocks[i] =
                (struct picture_block){.address = blocks[i].address, .size = blocks[i].size};
}

static int by_id(const void *a, const void *b)
{
    const struct picture_pool *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    for (int i = 0; i < 2; i++)
        if (x->id[i] != y->id[i])
            return x->id[i] < y->id[i] ? -1 : 1;
    return 0;
}

static struct picture_pool *pool_of_place(struct picture *picture, const struct trace_place *place)
{
    const struct picture_pool key = {.device = (int)place->device,
                                     .id = {place->pool[0], place->pool[1]}};
    return picture->pools.count ? bsearch(&key, picture->pools.items, picture->pools.count,
                                          sizeof(struct picture_pool), by_id)
                                : NULL;
}

/* Sums up each pool's memory in use from its runs. */
static void sum_pools(struct picture *picture)
{
    if (picture->pools.count)
        qsort(picture->pools.items, picture->pools.count, sizeof(struct picture_pool), by_id);
    for (size_t i = 0; i < picture->runs.count; i++) {
        const struct picture_run *shown = &picture_runs(picture)[i];
        const struct trace_place *place = trace_place_value(shown->place);
        struct picture_pool *pool = place ? pool_of_place(picture, place) : NULL;
        for (size_t j = 0; pool && j < shown->block_count; j++) {
            const struct picture_block *block = &picture_blocks(picture)[shown->first_block + j];
            pool->allocated += block->state == PICTURE_LIVE ? block->size : 0;
            pool->active += block->state != PICTURE_FREE ? block->size : 0;
            pool->waiting += block->state == PICTURE_WAITING ? block->size : 0;
        }
    }
}

tarn_status picture_take(struct picture *picture)
{
    *picture = (struct picture){.device_count = device_count(), .keeps_places = true};
    trace_places_keep(true);
    bool done = true;
    for (int i = 0; i < picture->device_count && done; i++)
        done = add_device(picture, i);
    done = done && trace_read(&picture->trace);
    picture->scale = ticks_scale_now();
    if (done) {
        if (picture->runs.count)
            qsort(picture->runs.items, picture->runs.count, sizeof(struct picture_run), by_address);
        cut_trace(picture);
        done = join_trace(picture);
    }
    if (!done)
        return failed(TARN_ERROR_OUT_OF_HOST_MEMORY,
                      "no host memory for a snapshot of %zu blocks and %zu records",
                      picture->blocks.count, picture->trace.count);
    free_what_was_freed(picture);
    sum_pools(picture);
    return TARN_OK;
}

void picture_finish(struct picture *picture)
{
    pages_unmap(picture->blocks.items, picture->blocks.room * sizeof(struct picture_block));
    pages_unmap(picture->runs.items, picture->runs.room * sizeof(struct picture_run));
    pages_unmap(picture->pools.items, picture->pools.room * sizeof(struct picture_pool));
    trace_copy_finish(&picture->trace);
    if (picture->keeps_places)
        trace_places_keep(false);
    *picture = (struct picture){0};
}
