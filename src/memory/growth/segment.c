/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the table of plain segments, and moves segments from a driver or allocator into a heap and
 * back. Invariants: a segment is in the table from its allocation until it is given back; no two
 * segments in the table overlap; a page that two segments share has the entry MAP_SHARED. The
 * table's lock is a leaf, taken under a heap's lock. */
#include "memory/growth/segment.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/callback.h"
#include "base/thread/cancel.h"
#include "device/capture.h"
#include "memory/arena/generation.h"
#include "memory/arena/observe.h"
#include "memory/growth/growth.h"
#include "memory/heap/idle/wait.h"
#include "memory/pinned/pinned.h"
#include "memory/settings/hooks.h"

#include <stdio.h>

/* The table ------------------------------------------------------------------------------------ */

#define RUN_OF(node) TREE_ENTRY(node, struct run, by_start)

static int by_start(const struct tree_node *a, const struct tree_node *b)
{
    uintptr_t x = RUN_OF(a)->start, y = RUN_OF(b)->start;
    return x < y ? -1 : x > y;
}

static mutex segments_lock = MUTEX_INITIALIZER(LOCK_LEAF);
static struct tree table = {.order = by_start}; /* table lock */

static bool ends_after(const struct tree_node *node, uint64_t address)
{
    return RUN_OF(node)->end > address;
}

/* Table lock. */
static struct run *segment_at(uintptr_t address)
{
    struct tree_node *node = tree_find_first(&table, ends_after, address);
    return node && RUN_OF(node)->start <= address ? RUN_OF(node) : NULL;
}

static bool reaches_into(const struct tree_node *node, uintptr_t page)
{
    return node && RUN_OF(node)->start < page + MAP_PAGE && RUN_OF(node)->end > page;
}

/* Marks a page at an end of a segment as shared if another segment reaches into it; and as unused
 * again after the last one has left. Table lock; the segment has just entered the table, or left
 * it. */
static void page_share(uintptr_t address)
{
    uintptr_t page = address & ~(MAP_PAGE - 1);
    struct tree_node *first = tree_find_first(&table, ends_after, page);
    map_entry shared = MAP_SHARED;
    if (!reaches_into(first, page))
        (void)map_replace(page, &shared, 0);
    else if (reaches_into(tree_next(first), page))
        map_set(page, MAP_SHARED);
}

/* Enters a segment in the table, in one step with the check for overlaps: false if another segment
 * has any of its addresses. It belongs to no heap yet. */
static bool segment_list(struct run *run)
{
    mutex_lock(&segments_lock);
    const struct tree_node *node = tree_find_first(&table, ends_after, run->start);
    run->listed = !node || RUN_OF(node)->start >= run->end;
    run->joined = false;
    if (run->listed) {
        tree_insert(&table, &run->by_start);
        page_share(run->start);
        page_share(run->end - 1);
    }
    mutex_unlock(&segments_lock);
    return run->listed;
}

static void segment_unlist(struct run *run)
{
    mutex_lock(&segments_lock);
    if (run->listed) {
        tree_remove(&table, &run->by_start);
        page_share(run->start);
        page_share(run->end - 1);
        run->listed = false;
    }
    mutex_unlock(&segments_lock);
}

/* Makes a segment a run of its heap, whose lock is held; and undoes that. */
static void segment_join_locked(struct run *run, bool joined)
{
    mutex_lock(&segments_lock);
    run->joined = joined;
    mutex_unlock(&segments_lock);
}

bool segment_has(uintptr_t address)
{
    mutex_lock(&segments_lock);
    bool holds = segment_at(address) != NULL;
    mutex_unlock(&segments_lock);
    return holds;
}

static void segment_anchor(uintptr_t address, bool more)
{
    mutex_lock(&segments_lock);
    struct run *run = segment_at(address);
    atomic_fetch_add(&run->anchors, more ? 1 : -1u);
    mutex_unlock(&segments_lock);
}

/* The mapped pieces of a range, from the first one that touches it. */
static void count_anchors(const struct arena *arena, uintptr_t start, size_t size, bool more)
{
    if (!arena_has(arena, start)) {
        segment_anchor(start, more);
        return;
    }
    for (uintptr_t address = start; address < start + size;) {
        struct piece *piece = arena_piece(arena, address);
        address = piece->address + piece->size;
        if (more)
            atomic_fetch_add(&piece->anchors, 1);
        else
            atomic_fetch_sub(&piece->anchors, 1);
    }
}

void pieces_anchor(const struct arena *arena, uintptr_t start, size_t size)
{
    count_anchors(arena, start, size, true);
}

void pieces_unanchor(struct arena *arena, uintptr_t start, size_t size)
{
    count_anchors(arena, start, size, false);
    awaited_unanchored(arena);
}

static tarn_mapping range_of(const struct run *run)
{
    return (tarn_mapping){.address = (void *)run->start,
                          .bytes = run->end - run->start,
                          .generation = run->generation,
                          .device = run->store->arena->device->number};
}

tarn_mapping segment_range(uintptr_t address)
{
    mutex_lock(&segments_lock);
    tarn_mapping range = range_of(segment_at(address));
    mutex_unlock(&segments_lock);
    return range;
}

static struct heap *heap_at(uintptr_t address)
{
    mutex_lock(&segments_lock);
    const struct run *run = segment_at(address);
    struct heap *heap = run && run->joined ? run->heap : NULL;
    mutex_unlock(&segments_lock);
    return heap;
}

struct span *segment_lock(uintptr_t address, struct heap **heap)
{
    while ((*heap = heap_at(address))) {
        mutex_lock(&(*heap)->lock);
        mutex_lock(&segments_lock);
        struct run *run = segment_at(address);
        struct span *first = run && run->joined && run->heap == *heap ? run->first : NULL;
        mutex_unlock(&segments_lock);
        if (first)
            return first;
        mutex_unlock(&(*heap)->lock);
    }
    return NULL;
}

/* To and from the driver ----------------------------------------------------------------------- */

CALLS_BACK static void *call_alloc(const tarn_pool_allocator *allocator, size_t size, int device,
                                   driver_stream native)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct callback callback;
    callback_begin(&callback);
    void *address = allocator->alloc(size, device, native, allocator->user);
    callback_end(&callback);
    return address;
}

CALLS_BACK static void call_free(const tarn_pool_allocator *allocator, uintptr_t address,
                                 size_t size, int device, driver_stream native)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct callback callback;
    callback_begin(&callback);
    allocator->free((void *)address, size, device, native, allocator->user);
    callback_end(&callback);
}

static tarn_status ask(struct store *store, size_t size, driver_stream native, uintptr_t *address)
{
    struct device *device = store->arena->device;
    if (store->kind.ordered)
        return device_note(device, driver->alloc_async(device->number, size, native, address));
    if (store_has(store, STORE_KEPT))
        return hooks.keep_segment(store, size, address);
    if (!store_calls_back(store))
        return device_note(device, driver->alloc(device->number, size, address));
    *address = (uintptr_t)call_alloc(&store->allocator, size, device->number, native);
    if (*address)
        return TARN_OK;
    return failed(TARN_ERROR_OUT_OF_MEMORY,
                  "the allocator of pool (%llu, %llu) could not allocate %zu bytes",
                  (unsigned long long)store->id[0], (unsigned long long)store->id[1], size);
}

/* If the device is lost, memory stays where it is, because it is unknown what still uses it. Memory
 * of a caller's allocator is the caller's concern. */
static tarn_status give_back(struct store *store, uintptr_t address, size_t size,
                             driver_stream native)
{
    struct device *device = store->arena->device;
    if (store_has(store, STORE_KEPT))
        return hooks.keep_give_back(store, address, size);
    if (store_calls_back(store)) {
        call_free(&store->allocator, address, size, device->number, native);
        return TARN_OK;
    }
    tarn_status status = device_check(device);
    if (status)
        return status;
    return device_note(device, store->kind.ordered
                                   ? driver->free_async(device->number, address, native)
                                   : driver->free(device->number, address));
}

/* The calling thread's native handle for the stream that a segment was allocated for. */
static driver_stream run_native(const struct run *run)
{
    bool constant = run->native && run->native == driver->per_thread;
    return constant ? stream_native(run->stream) : run->native;
}

/* Frees a segment after the work of its stream, which exists while the heap's lock is held. If the
 * stream is gone, it orders nothing, so its work must have ended first. That is always so, unless
 * the stream was retired after the segment was taken out of the heap. If the heap belongs to
 * another stream now, it was empty and idle before. */
static tarn_status give_back_in_order(struct run *run)
{
    struct heap *heap = run->heap;
    struct device *device = run->store->arena->device;
    struct mark *mark = NULL;
    tarn_status status = TARN_OK;
    mutex_lock(&heap->lock);
    bool same = heap->stream == run->stream && heap->incarnation == run->stream_incarnation;
    bool ordered = same && !heap->retired && !stream_is_found(heap->stream);
    if (ordered)
        status = give_back(run->store, run->start, run->end - run->start, run_native(run));
    else if (same && !span_idle_locked(heap, run->first) && heap->batches.count)
        mark = mark_keep(heap->batches.closed[heap->batches.count - 1].mark);
    mutex_unlock(&heap->lock);
    if (ordered)
        return status;
    status = mark ? mark_wait(mark) : TARN_OK;
    mark_release(mark);
    if (!status)
        status = device_check(device);
    if (status)
        return status;
    return device_note(device, driver->free(device->number, run->start));
}

/* Why memory that an allocator returned cannot be a segment, or NULL. */
static const char *unfit(const struct store *store, uintptr_t address, size_t size)
{
    if (address % TARN_BLOCK_UNIT)
        return "which is not a multiple of 512";
    if (size > UINTPTR_MAX - address)
        return "which wraps past the end of the address space";
    if (arena_overlaps(address, size))
        return "where tarn has other memory, or may come to be";
    if (store_calls_back(store) && pinned_overlaps(address, size))
        return "where tarn has pinned memory";
    return NULL;
}

/* Enters new memory in the table, as the segment of a new run. */
static tarn_status accept(struct run *run, uintptr_t address, size_t size)
{
    const struct store *store = run->store;
    char source[64] = "the driver";
    if (store_calls_back(store))
        (void)snprintf(source, sizeof source, "the allocator of pool (%llu, %llu)",
                       (unsigned long long)store->id[0], (unsigned long long)store->id[1]);
    const char *why = unfit(store, address, size);
    tarn_status status = why ? TARN_OK : map_prepare(address, size);
    if (status)
        return failed_within(status, "%s gave a segment of %zu bytes at %#zx", source, size,
                             (size_t)address);
    run->start = address;
    run->end = address + size;
    if (!why && !segment_list(run))
        why = "where tarn has another segment";
    if (!why)
        return TARN_OK;
    return failed(TARN_ERROR_DRIVER, "%s gave a segment of %zu bytes at %#zx, %s", source, size,
                  (size_t)address, why);
}

/* Gets a segment of `size` bytes, charged and counted, for a new run, which names the heap and
 * stream. */
static tarn_status segment_get(struct run *run, size_t size)
{
    struct store *store = run->store;
    unsigned flags = 0;
    uintptr_t address = 0;
    tarn_status status = store_charge(store, size, CHARGE_GROWTH, &flags);
    if (status)
        return status;
    status = ask(store, size, run->native, &address);
    if (!status) {
        status = accept(run, address, size);
        if (status)
            (void)give_back(store, address, size, run->native);
    }
    store_uncharge(store, status ? size : 0, size);
    if (status)
        return status;
    run->oversize = counters_segment(store->counters, size, run->large);
    return TARN_OK;
}

/* Announces a segment, which belongs to no heap yet, with a new generation. */
static void segment_tell(struct run *run)
{
    run->generation = generation_next();
    tarn_mapping range = range_of(run);
    if (announces(run->store))
        announcer->segment(run->start, run->end - run->start, run->store->id,
                           run->store->arena->device->number);
    observe_mapped(&range);
}

/* Announces the end of a segment's memory. */
static void segment_untell(const struct run *run)
{
    tarn_mapping range = range_of(run);
    observe_unmapping(&range);
    if (announces(run->store))
        announcer->segment_gone(run->start);
}

/* Releases a segment. It is counted as freed first. Otherwise another thread could get the same
 * memory from the driver, and both would count it. */
static tarn_status segment_release(struct run *run)
{
    struct store *store = run->store;
    struct arena *arena = store->arena;
    size_t size = run->end - run->start;
    segment_untell(run);
    counters_segment_gone(store->counters, size, run->large, run->oversize);
    segment_unlist(run); /* first: the allocator may give the memory to another thread at once */
    tarn_status status = store->kind.ordered ? give_back_in_order(run)
                                             : give_back(store, run->start, size, run_native(run));
    if (status) {
        (void)segment_list(run); /* it still exists, so no other segment can be there */
        counters_segment_back(store->counters, size, run->large, run->oversize);
        segment_tell(run);
        mutex_lock(&arena->lock);
        run->next = arena->stuck_segments;
        arena->stuck_segments = run;
        mutex_unlock(&arena->lock);
        return status;
    }
    span_destroy(run->first);
    run_destroy(run);
    store_uncharge(store, size, 0); /* last: a store without memory may go */
    return TARN_OK;
}

/* Suspended segments --------------------------------------------------------------------------- */

tarn_status segment_vacate(struct run *run)
{
    struct store *store = run->store;
    size_t size = run->end - run->start;
    if (run->absent)
        return TARN_OK;
    segment_untell(run);
    counters_segment_gone(store->counters, size, run->large, run->oversize);
    tarn_status status = hooks.keep_vacate(store, run->start, size);
    if (status) {
        counters_segment_back(store->counters, size, run->large, run->oversize);
        segment_tell(run);
        return status;
    }
    run->absent = true;
    store_uncharge(store, size, 0);
    return TARN_OK;
}

tarn_status segment_occupy(struct run *run)
{
    struct store *store = run->store;
    size_t size = run->end - run->start;
    unsigned flags = 0;
    if (!run->absent)
        return TARN_OK;
    tarn_status status = store_charge(store, size, CHARGE_RESUME, &flags);
    if (status)
        return status;
    status = hooks.keep_occupy(store, run->start, size);
    store_uncharge(store, status ? size : 0, size);
    if (status)
        return status;
    run->absent = false;
    run->oversize = counters_segment(store->counters, size, run->large);
    segment_tell(run);
    return TARN_OK;
}

/* Gives the addresses up. */
static void absent_release(struct run *run)
{
    segment_unlist(run);
    (void)give_back(run->store, run->start, run->end - run->start, run_native(run));
    span_destroy(run->first);
    run_destroy(run);
}

/* To the driver -------------------------------------------------------------------------------- */

tarn_status segments_release(struct run *leaving)
{
    tarn_status first = TARN_OK;
    while (leaving) {
        struct run *run = leaving;
        leaving = run->next;
        tarn_status status = segment_release(run);
        first = first ? first : status;
    }
    return first;
}

tarn_status segments_free_stuck(struct arena *arena)
{
    mutex_lock(&arena->lock);
    struct run *stuck = arena->stuck_segments;
    arena->stuck_segments = NULL;
    mutex_unlock(&arena->lock);

    /* A capture that tarn does not know would record a free on its stream: the segment stays stuck
     * until the capture is over. */
    struct error_before before;
    hooks.keeps_free_stuck(arena->device);
    error_attempt_begin(&before);
    tarn_status status = segments_release(stuck);
    status = status == TARN_ERROR_CAPTURE ? TARN_OK : status;
    error_attempt_end(&before, status);
    return status;
}

/* Out of a heap -------------------------------------------------------------------------------- */

/* Whether the driver orders a free after the work of the heap's stream. The stream must exist for
 * that. */
static bool is_ordered_locked(const struct heap *heap)
{
    return heap->store->kind.ordered && !heap->retired && !stream_is_found(heap->stream);
}

static bool is_ready_locked(const struct heap *heap, const struct span *span)
{
    if (!span_is_free_segment_locked(heap, span))
        return false;
    return is_ordered_locked(heap) ? !stream_captures(heap->stream) : span_idle_locked(heap, span);
}

static bool is_at_least(const struct tree_node *node, uint64_t size)
{
    return TREE_ENTRY(node, struct span, by_size)->size >= size;
}

/* The idle segment of a zone, of at least `least` bytes, that best gives back the wanted bytes: the
 * smallest that covers them, otherwise the largest. */
static struct span *segment_choose_locked(const struct heap *heap, enum zone_kind zone,
                                          size_t wanted, size_t least)
{
    const struct tree *tree = &heap->zones.of[zone].free;
    struct tree_node *covering =
                         tree_find_first(tree, is_at_least, wanted > least ? wanted : least),
                     *node;
    for (node = covering; node; node = tree_next(node))
        if (is_ready_locked(heap, TREE_ENTRY(node, struct span, by_size)))
            return TREE_ENTRY(node, struct span, by_size);
    for (node = covering ? tree_previous(covering) : tree_last(tree); node;
         node = tree_previous(node)) {
        struct span *span = TREE_ENTRY(node, struct span, by_size);
        if (span->size < least)
            return NULL;
        if (is_ready_locked(heap, span))
            return span;
    }
    return NULL;
}

static void segment_detach_locked(struct heap *heap, struct span *span, struct run **leaving)
{
    struct run *run = span->run;
    run_detach_locked(heap, run);
    segment_join_locked(run, false);
    run->next = *leaving;
    *leaving = run;
}

void segments_drop_absent(struct heap *heap)
{
    struct run *leaving = NULL;
    heap_collect(heap);
    mutex_lock(&heap->lock);
    for (int zone = 0; zone < ZONES; zone++)
        for (struct run *run = heap->zones.of[zone].runs, *next; run; run = next) {
            next = run->next;
            if (run->absent && run->first == run->last && run->first->state == SPAN_FREE)
                segment_detach_locked(heap, run->first, &leaving);
        }
    mutex_unlock(&heap->lock);
    for (struct run *next; leaving; leaving = next) {
        next = leaving->next;
        absent_release(leaving);
    }
}

/* Detaches idle segments of a zone until `given` reaches `wanted` bytes, if there are as many. */
static void zone_detach_locked(struct heap *heap, enum zone_kind zone, size_t wanted, size_t least,
                               size_t *given, struct run **leaving)
{
    struct span *span;
    while (*given < wanted && (span = segment_choose_locked(heap, zone, wanted - *given, least))) {
        *given += span->size;
        segment_detach_locked(heap, span, leaving);
    }
}

void segments_detach_locked(struct heap *heap, size_t wanted, size_t *given, struct run **leaving)
{
    if (!is_ordered_locked(heap))
        heap_learn_locked(heap, true);
    zone_detach_locked(heap, ZONE_LARGE, wanted, 0, given, leaving);
    zone_detach_locked(heap, ZONE_SMALL, wanted, 0, given, leaving);
}

/* Gives idle segments of a heap back. Its store is in use. */
static size_t shed(struct heap *heap, size_t wanted)
{
    struct run *leaving = NULL;
    size_t given = 0;
    mutex_lock(&heap->lock);
    segments_detach_locked(heap, wanted, &given, &leaving);
    mutex_unlock(&heap->lock);
    return segments_release(leaving) ? 0 : given;
}

static bool is_adopted_from(const struct heap *heap, const struct store *store)
{
    return !heap->store->kind.pieces && heap->store->kind.reuses &&
           !store_calls_back(heap->store) && !store_calls_back(store);
}

/* Moves a segment to another store, if that store's limit allows it. */
static bool store_move(struct run *run, struct store *to)
{
    struct store *from = run->store;
    size_t size = run->end - run->start;
    if (from == to)
        return true;
    mutex_lock(&to->arena->lock);
    bool fits = to->reserved <= to->limit && size <= to->limit - to->reserved;
    if (fits) {
        from->reserved -= size;
        to->reserved += size;
        store_changed_locked(from);
        store_changed_locked(to);
        run->oversize =
            counters_segment_move(from->counters, to->counters, size, run->large, run->oversize);
        run->store = to;
    }
    mutex_unlock(&to->arena->lock);
    return fits;
}

size_t segments_adopt(struct heap *heap, struct heap *from, size_t wanted)
{
    struct run *leaving = NULL, *refused = NULL;
    size_t given = 0, adopted = 0;
    mutex_lock(&from->lock);
    bool possible = !heap->store->kind.pieces && is_adopted_from(from, heap->store);
    if (possible) {
        segments_detach_locked(from, wanted, &given, &leaving);
    }
    mutex_unlock(&from->lock);
    mutex_lock(&heap->lock);
    for (struct run *run = leaving, *next; run; run = next) {
        size_t size = run->end - run->start;
        next = run->next;
        if (!store_move(run, heap->store)) {
            run->next = refused;
            refused = run;
            continue;
        }
        run->heap = heap;
        run_attach_locked(heap, run);
        segment_join_locked(run, true);
        adopted += size;
    }
    mutex_unlock(&heap->lock);
    (void)segments_release(refused);
    return adopted;
}

/* If there is no room for an oversize request: releases one oversize segment that makes enough
 * room, or the largest ones that do together. Otherwise releases none, so that smaller segments
 * remain for smaller requests (c10, release_available_cached_blocks). */
static bool release_oversize(struct heap *heap, size_t size)
{
    struct segment_rules rules = store_rules(heap->store);
    size_t wanted = size > rules.max_split ? size : rules.max_split, sum = 0, given = 0;
    struct run *leaving = NULL;
    if (rules.max_split == RULES_NONE)
        return false;
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, true);
    for (struct tree_node *node = tree_last(&heap->zones.of[ZONE_LARGE].free); node;
         node = tree_previous(node)) {
        const struct span *span = TREE_ENTRY(node, struct span, by_size);
        if (span->size < rules.max_split || sum >= wanted)
            break;
        sum += is_ready_locked(heap, span) ? span->size : 0;
    }
    if (sum >= wanted)
        zone_detach_locked(heap, ZONE_LARGE, wanted, rules.max_split, &given, &leaving);
    mutex_unlock(&heap->lock);
    return leaving && segments_release(leaving) == TARN_OK;
}

/* Garbage -------------------------------------------------------------------------------------- */

/* A collection of the default pool's large segments that are entirely free. */
struct garbage {
    struct store *store;
    uint64_t now; /* the store's `searches` */
    uint64_t old; /* the age from which segments go in this pass */
    size_t freed; /* bytes, in all passes */
    /* Old segments that could not go in this pass, and the sum of their `freed_at`. */
    size_t stuck;
    uint64_t stuck_at;
    struct run *leaving;
};

/* Computes the average age of the segments, without those that could not be released in the last
 * pass. False: no other segments are left. */
static bool garbage_age(struct garbage *garbage)
{
    size_t none = 0;
    struct heap_sums sums = heaps_sums(garbage->store->arena, garbage->store, &none);
    if (sums.segments <= garbage->stuck)
        return false;
    uint64_t count = sums.segments - garbage->stuck, since = count * garbage->now,
             freed_at = sums.freed_at - garbage->stuck_at;
    garbage->old = since > freed_at ? (since - freed_at) / count : 0;
    return true;
}

static bool is_old(const struct garbage *garbage, const struct span *span)
{
    uint64_t age = garbage->now > span->freed_at ? garbage->now - span->freed_at : 0;
    return age >= garbage->old;
}

static void garbage_detach_locked(struct heap *heap, struct garbage *garbage)
{
    heap_learn_locked(heap, true);
    for (struct tree_node *node = tree_first(&heap->zones.of[ZONE_LARGE].free), *next; node;
         node = next) {
        struct span *span = TREE_ENTRY(node, struct span, by_size);
        next = tree_next(node);
        if (span->previous || span->next || !is_old(garbage, span))
            continue;
        if (is_ready_locked(heap, span)) {
            garbage->freed += span->size;
            segment_detach_locked(heap, span, &garbage->leaving);
        } else {
            garbage->stuck++;
            garbage->stuck_at += span->freed_at;
        }
    }
    heap_sum_locked(heap);
}

/* Detaches the old segments. Comes only to heaps that have some. */
static void garbage_pass(struct garbage *garbage)
{
    struct store *store = garbage->store;
    struct heap_age place = {0};
    struct heap *heap;
    uint64_t latest = garbage->old ? garbage->now - garbage->old : UINT64_MAX;
    garbage->stuck = 0;
    garbage->stuck_at = 0;
    while ((heap = heap_next_aged(store, &place, latest))) {
        mutex_lock(&heap->lock);
        if (heap->store == store)
            garbage_detach_locked(heap, garbage);
        mutex_unlock(&heap->lock);
    }
}

/* Bytes reserved above the share of the limit, or of the memory, that the rules give. */
static size_t garbage_excess(struct store *store)
{
    struct arena *arena = store->arena;
    size_t share = memory_config()->garbage_collection_threshold,
           most = arena->device->properties.memory;
    mutex_lock(&arena->lock);
    size_t reserved = arena->reserved;
    most = arena->limit < most ? arena->limit : most;
    mutex_unlock(&arena->lock);
    most = (size_t)((double)most * (double)share / (double)CONFIG_ONE);
    return share && reserved > most ? reserved - most : 0;
}

/* Gives back segments of the default pool that have not been used for long, until the pool is below
 * its share (c10, garbage_collect_cached_blocks; there only if a fraction of the memory is set as
 * the limit). */
static void garbage_collect(struct store *store)
{
    struct arena *arena = store->arena;
    struct garbage garbage = {.store = store, .now = atomic_load(&store->searches)};
    size_t excess = store == &arena->store ? garbage_excess(store) : 0;
    if (!excess)
        return;
    heaps_sum(arena);
    while (garbage.freed < excess && garbage_age(&garbage)) {
        size_t freed = garbage.freed, stuck = garbage.stuck;
        garbage_pass(&garbage);
        struct run *leaving = garbage.leaving;
        garbage.leaving = NULL;
        if (segments_release(leaving) || (garbage.freed == freed && garbage.stuck <= stuck))
            return;
    }
}

/* Gives back memory that was freed and is idle before more is allocated, because nothing is reused.
 * Makes no driver call while a capture is open. */
void segments_return(struct heap *heap)
{
    if (!captures_open(heap->arena->device))
        (void)shed(heap, SIZE_MAX);
}

/* Into a heap ---------------------------------------------------------------------------------- */

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

/* Gets a segment. If that fails, gives idle segments of the heap back and tries again; last, tries
 * one with room for only this request. */
static tarn_status get_or_make_room(struct heap *heap, size_t size, size_t need, struct run *run)
{
    struct store *store = run->store;
    struct segment_rules rules = store_rules(store);
    bool reuses = store->kind.reuses;
    size_t most = reuses ? rules_segment(&rules, need) : need,
           least = round_up(need, rules.rounding);
    garbage_collect(store);
    if (!reuses)
        segments_return(heap);
    tarn_status status = segment_get(run, most);
    if (status == TARN_ERROR_OUT_OF_MEMORY && release_oversize(heap, size))
        status = segment_get(run, most);
    while (status == TARN_ERROR_OUT_OF_MEMORY) {
        if (!shed(heap, most))
            break;
        COUNT(store->counters, num_alloc_retries);
        status = segment_get(run, most);
    }
    if (status == TARN_ERROR_OUT_OF_MEMORY && run->large && reuses && least < most)
        status = segment_get(run, least);
    return status;
}

/* Makes a new segment part of the heap, as one free span. */
static void join_locked(struct heap *heap, struct run *run, struct span *fresh)
{
    run->heap = heap;
    run->stream = heap->stream;
    run->stream_incarnation = heap->incarnation;
    (void)heap_add_locked(heap, run->large ? ZONE_LARGE : ZONE_SMALL, NULL, run, fresh, run->start,
                          run->end);
    segment_join_locked(run, true);
    span_return_locked(heap, fresh);
}

/* Charged as what a pool had before: the driver counts it already. It serves small requests if it
 * has exactly the size that the store's segments for these have. */
tarn_status segment_enter(struct heap *heap, uintptr_t address, size_t size)
{
    struct store *store = heap->store;
    struct span *fresh = span_create();
    struct run *run = run_create();
    unsigned flags = 0;
    tarn_status status = fresh && run ? store_charge(store, size, CHARGE_ADOPT, &flags)
                                      : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status) {
        run->store = store;
        run->native = stream_native(heap->stream);
        run->large = size != store->sizes.small_segment;
        status = accept(run, address, size);
        store_uncharge(store, status ? size : 0, size);
    }
    if (status) {
        span_destroy(fresh);
        run_destroy(run);
        return status;
    }
    run->oversize = counters_segment(store->counters, size, run->large);
    segment_tell(run);
    mutex_lock(&heap->lock);
    join_locked(heap, run, fresh);
    mutex_unlock(&heap->lock);
    return TARN_OK;
}

tarn_status segment_grow(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                         struct span **span)
{
    struct span *fresh = span_create();
    struct run *run = run_create();
    tarn_status status = fresh && run ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
    if (!status) {
        mutex_lock(&heap->lock);
        run->store = heap->store;
        run->native = stream_native(heap->stream);
        run->large = zone == ZONE_LARGE;
        mutex_unlock(&heap->lock);
        status = get_or_make_room(heap, size, size + alignment - TARN_BLOCK_UNIT, run);
    }
    if (status) {
        span_destroy(fresh);
        run_destroy(run);
        return status;
    }
    segment_tell(run);
    mutex_lock(&heap->lock);
    join_locked(heap, run, fresh);
    status = span_cut_locked(heap, fresh, size, alignment, span);
    mutex_unlock(&heap->lock);
    return status;
}
