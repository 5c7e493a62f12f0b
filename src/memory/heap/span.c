/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns spans and runs: cutting, joining, best fit. Makes no driver call. Functions whose name ends
 * in _locked run under the heap's lock. Invariants: spans fill their run without gaps, two free
 * spans never touch, free_bytes is the sum of the free spans. */
#include "memory/heap/span.h"
#include "base/pages.h"
#include "base/status.h"
#include "memory/heap/following.h"
#include "memory/heap/heap.h"
#include "memory/heap/parked.h"
#include "memory/heap/traced.h"

#include <string.h>

#define SPARE_SPANS 64 /* the most span objects that a heap keeps */

static struct object_pool spans = OBJECT_POOL_KEEPING(struct span, heap);
static struct object_pool runs = OBJECT_POOL(struct run);

#define SPAN_OF(node) TREE_ENTRY(node, struct span, by_size)

/* The order by size and then address, compared as one number of two words: it has no branch, which
 * a processor could not predict. */
static inline bool is_before(const struct tree_node *a, const struct tree_node *b)
{
    const struct span *x = SPAN_OF(a), *y = SPAN_OF(b);
    __extension__ typedef unsigned __int128 number;
    return ((number)x->size << 64 | x->start) < ((number)y->size << 64 | y->start);
}

static int by_size(const struct tree_node *a, const struct tree_node *b)
{
    return is_before(a, b) ? -1 : is_before(b, a);
}

/* The same order without addresses: by the segment's number, then by the offset in the segment. */
static int by_size_and_serial(const struct tree_node *a, const struct tree_node *b)
{
    const struct span *x = SPAN_OF(a), *y = SPAN_OF(b);
    if (x->size != y->size || x->run->serial == y->run->serial)
        return by_size(a, b);
    return x->run->serial < y->run->serial ? -1 : 1;
}

static bool is_at_least(const struct tree_node *node, uint64_t size)
{
    return SPAN_OF(node)->size >= size;
}

/* Objects for spans and runs ------------------------------------------------------------------- */

struct span *span_create(void)
{
    struct span *span = object_alloc(&spans);
    if (!span)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a span");
    return span;
}

void span_destroy(struct span *span)
{
    object_free(&spans, span);
}

/* Span objects from the heap's reserve, and back to it. */
static struct span *span_create_locked(struct span_reserve *reserve)
{
    struct span *span = reserve->first;
    if (!span || pages_fail_armed())
        return span_create();
    reserve->first = span->next;
    reserve->count--;
    memset(span, 0, offsetof(struct span, heap));
    return span;
}

static void span_destroy_locked(struct span_reserve *reserve, struct span *span)
{
    if (!span)
        return;
    if (reserve->count == SPARE_SPANS) {
        span_destroy(span);
        return;
    }
    span->next = reserve->first;
    reserve->first = span;
    reserve->count++;
}

void span_reserve_empty_locked(struct span_reserve *reserve)
{
    for (struct span *span; (span = reserve->first);) {
        reserve->first = span->next;
        span_destroy(span);
    }
    reserve->count = 0;
}

struct run *run_create(void)
{
    struct run *run = object_alloc(&runs);
    if (!run)
        (void)failed(TARN_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a run");
    return run;
}

void run_destroy(struct run *run)
{
    object_free(&runs, run);
}

/* Runs and spans ------------------------------------------------------------------------------- */

atomic_uint_fast64_t runs_changed = 1;

static void note_runs_changed(void)
{
    atomic_fetch_add(&runs_changed, 1);
}

static void run_insert_locked(struct heap *heap, enum zone_kind kind, struct run *run)
{
    struct zone *zone = &heap->zones.of[kind];
    run->previous = NULL;
    run->next = zone->runs;
    if (run->next)
        run->next->previous = run;
    zone->runs = run;
    /* A request was in progress when the heap was left behind. */
    if (heap_is_left_behind_locked(heap))
        heap_sets_update_locked(heap, false);
}

static void run_remove_locked(struct zone *zone, struct run *run)
{
    if (run->next)
        run->next->previous = run->previous;
    if (run->previous)
        run->previous->next = run->next;
    else
        zone->runs = run->next;
}

static void state_is_new_locked(struct zones *zones, unsigned zone)
{
    zone_state_set(zones, zone, ++zones->states);
}

/* A span becomes free (`sign` 1), or is free no more (-1). */
static void zones_count_locked(struct zones *zones, const struct span *span, int sign)
{
    zones->free_bytes += sign > 0 ? span->size : -span->size;
    if (span->split)
        counters_split(&zones->splits, span->size, span->zone != ZONE_SMALL, sign);
}

/* Puts a span into its zone's tree. */
static void span_file_locked(struct heap *heap, struct span *span)
{
    span->state = SPAN_FREE;
    span->before = 0;
    atomic_store_explicit(&span->after, 0, memory_order_relaxed);
    span->split = span->previous || span->next;
    if (!heap->store->kind.pieces)
        span->freed_at = atomic_load_explicit(&heap->store->searches, memory_order_relaxed);
    struct tree *free = &heap->zones.of[span->zone].free;
    if (free->order == by_size)
        tree_insert_by(free, &span->by_size, is_before);
    else
        tree_insert(free, &span->by_size);
    if (heap->following)
        following_file_locked(heap->following, span);
    state_is_new_locked(&heap->zones, span->zone);
    if (span->size >= heap->sets.news)
        heap_news_locked(heap, span->size);
    if (heap->sets.known)
        heap_changed_locked(heap);
    zones_count_locked(&heap->zones, span, 1);
}

void span_remove_locked(struct heap *heap, struct span *span)
{
    tree_remove(&heap->zones.of[span->zone].free, &span->by_size);
    if (heap->following)
        following_remove_locked(heap->following, span);
    state_is_new_locked(&heap->zones, span->zone);
    if (heap->sets.known)
        heap_changed_locked(heap);
    zones_count_locked(&heap->zones, span, -1);
    span->state = SPAN_TAKEN;
}

/* Links `span` behind `left` in the same run. */
static void link_after(struct span *left, struct span *span)
{
    span->previous = left;
    span->next = left->next;
    span->run = left->run;
    if (left->next)
        left->next->previous = span;
    else
        left->run->last = span;
    left->next = span;
}

/* Removes `span`, which is not the first of its run, from the list; its left neighbour covers its
 * addresses. */
static void join_left_locked(struct span_reserve *reserve, struct span *span)
{
    struct span *left = span->previous;
    left->size += span->size;
    left->next = span->next;
    if (span->next)
        span->next->previous = left;
    else
        span->run->last = left;
    span_destroy_locked(reserve, span);
}

void span_cut(struct span *span, size_t offset, struct span *fresh)
{
    fresh->start = span->start + offset;
    fresh->size = span->size - offset;
    fresh->zone = span->zone;
    fresh->batch = span->batch;
    atomic_store_explicit(&fresh->heap, atomic_load_explicit(&span->heap, memory_order_relaxed),
                          memory_order_relaxed);
    span->size = offset;
    link_after(span, fresh);
}

static size_t padding(const struct span *span, size_t alignment)
{
    return (size_t)(-span->start & (alignment - 1));
}

/* The smallest free span that is large enough. With an alignment, first tries up to 16 spans that
 * may be large enough, then one that certainly is. */
static struct span *span_smallest_locked(const struct zone *zone, size_t size, size_t alignment)
{
    struct tree_node *node = tree_find_first(&zone->free, is_at_least, size);
    for (int tries = 0; node && tries < 16; tries++, node = tree_next(node))
        if (SPAN_OF(node)->size - size >= padding(SPAN_OF(node), alignment))
            return SPAN_OF(node);
    node =
        node ? tree_find_first(&zone->free, is_at_least, size + alignment - TARN_BLOCK_UNIT) : NULL;
    return node ? SPAN_OF(node) : NULL;
}

/* The best fitting free span; NULL if there is none, or if the rules of a plain store do not let it
 * serve the request. */
static struct span *span_find_locked(struct heap *heap, enum zone_kind zone, size_t size,
                                     size_t alignment)
{
    struct store *store = heap->store;
    if (store->kind.pieces)
        return span_smallest_locked(&heap->zones.of[zone], size, alignment);
    if (!store->kind.reuses)
        return NULL;
    struct segment_rules rules = store_rules(store);
    if (memory_config()->garbage_collection_threshold && zone == ZONE_LARGE)
        atomic_fetch_add_explicit(&store->searches, 1, memory_order_relaxed);
    struct span *span = span_smallest_locked(&heap->zones.of[zone], size, alignment);
    return span && rules_may_serve(&rules, size, span->size) ? span : NULL;
}

/* Bytes of the pieces that are entirely in a free span, and that a block at [start, start + size)
 * would hold in place. */
static size_t bytes_tied(const struct arena *arena, const struct span *span, uintptr_t start,
                         size_t size)
{
    size_t tied = 0;
    for (uintptr_t address = start; address < start + size;) {
        const struct piece *piece = arena_piece(arena, address);
        address = piece->address + piece->size;
        if (piece->address >= span->start && address <= span->start + span->size)
            tied += piece->size;
    }
    return tied;
}

/* Returns the offset of a block in a free span. In a heap that does not save, a large block goes to
 * the low end: then a program that repeats itself gets the same addresses again, and free memory
 * collects above. Any other block goes to the end where it holds less in place, because only a
 * piece that is entirely free can be mapped elsewhere. If both ends are equal, it goes to the low
 * end. */
static size_t placement(const struct heap *heap, const struct span *span, size_t size,
                        size_t alignment)
{
    const struct arena *arena = heap->arena;
    size_t low = padding(span, alignment), high = span->size - size;
    bool either = span->zone == ZONE_SMALL || heap->growths.saves;
    if (!either || span->size < arena->granule || !heap->store->kind.pieces)
        return low;
    high -= (span->start + high) & (alignment - 1);
    if (high <= low || high > span->size)
        return low;
    size_t tied_low = bytes_tied(arena, span, span->start + low, size);
    return bytes_tied(arena, span, span->start + high, size) < tied_low ? high : low;
}

/* Whether the rest of a span after a block becomes a separate free span. */
static bool is_cut(const struct heap *heap, const struct span *span, size_t size, size_t left)
{
    const struct store *store = heap->store;
    if (!left || store->kind.pieces)
        return left;
    struct segment_rules rules = store_rules(store);
    /* Slabs are cut exactly, whatever their zone. */
    bool large = span->zone == ZONE_LARGE && zone_of(size) == ZONE_LARGE;
    return !store_has(store, STORE_NO_SPLIT) && rules_cut(&rules, large, size, left);
}

/* Completes the result, a span that was cut off a free one. A block cut with an alignment is never
 * parked, since parked spans serve only requests without one. If every free must be reported
 * (`news` is 0), none is parked. */
static void span_is_cut_locked(struct heap *heap, struct span *span, size_t alignment,
                               uint64_t before)
{
    bool simple = alignment == TARN_BLOCK_UNIT && heap->sets.news;
    uint64_t after = zone_state(&heap->zones, span->zone);
    span->before = simple ? before : 0;
    atomic_store_explicit(&span->after, simple ? after : 0, memory_order_relaxed);
    span->state = SPAN_TAKEN;
}

tarn_status span_cut_locked(struct heap *heap, struct span *span, size_t size, size_t alignment,
                            struct span **result)
{
    uint64_t before = zone_state(&heap->zones, span->zone);
    if (span->size == size) {
        span_remove_locked(heap, span);
        span_is_cut_locked(heap, span, alignment, before);
        *result = span;
        return TARN_OK;
    }
    size_t pad = placement(heap, span, size, alignment);
    bool cut = is_cut(heap, span, size, span->size - pad - size);
    struct span *aligned = pad ? span_create_locked(&heap->reserve) : span;
    struct span *rest = cut ? span_create_locked(&heap->reserve) : NULL;
    if (!aligned || (cut && !rest)) {
        span_destroy_locked(&heap->reserve, rest);
        if (aligned != span)
            span_destroy_locked(&heap->reserve, aligned);
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }

    span_remove_locked(heap, span);
    if (pad) {
        span_cut(span, pad, aligned);
        span_file_locked(heap, span);
    }
    if (rest) {
        span_cut(aligned, size, rest);
        span_file_locked(heap, rest);
    }
    span_is_cut_locked(heap, aligned, alignment, before);
    *result = aligned;
    return TARN_OK;
}

struct span *span_take_at_locked(struct heap *heap, struct span *span, uintptr_t start, size_t size,
                                 struct span *fresh[2])
{
    span_remove_locked(heap, span);
    if (start > span->start) {
        struct span *rest = fresh[0];
        fresh[0] = NULL;
        span_cut(span, start - span->start, rest);
        span_file_locked(heap, span);
        span = rest;
    }
    if (size < span->size) {
        struct span *rest = fresh[1];
        fresh[1] = NULL;
        span_cut(span, size, rest);
        span_file_locked(heap, rest);
    }
    span->state = SPAN_TAKEN;
    return span;
}

tarn_status span_take_place_locked(struct heap *heap, struct span *span, uintptr_t start,
                                   size_t size, struct span **result)
{
    struct span *fresh[2] = {span_create_locked(&heap->reserve),
                             span_create_locked(&heap->reserve)};
    bool done = fresh[0] && fresh[1];
    if (done)
        *result = span_take_at_locked(heap, span, start, size, fresh);
    span_destroy_locked(&heap->reserve, fresh[0]);
    span_destroy_locked(&heap->reserve, fresh[1]);
    return done ? TARN_OK : TARN_ERROR_OUT_OF_HOST_MEMORY;
}

tarn_status span_take_locked(struct heap *heap, enum zone_kind zone, size_t size, size_t alignment,
                             struct span **result)
{
    parked_flush_stack_locked(heap);
    struct span *span = span_find_locked(heap, zone, size, alignment);
    for (unsigned hand = 0; !span && hands_are_open(&heap->hands) && hand < HANDS; hand++)
        if (hand_flush_locked(heap, hand))
            span = span_find_locked(heap, zone, size, alignment);
    return span ? span_cut_locked(heap, span, size, alignment, result) : TARN_ERROR_OUT_OF_MEMORY;
}

#define ASIDE_TRIES 64

/* Finds the free span of the large zone where a block holds the fewest bytes in place, at most
 * `most`. The rest of a piece that another block already holds costs nothing. A small block between
 * large ones would separate their free memory. So, unless the heap saves, only spans too small for
 * a large block are used. */
static struct span *span_find_aside_locked(const struct heap *heap, size_t size, size_t alignment,
                                           size_t most)
{
    const struct arena *arena = heap->arena;
    struct tree_node *node = tree_find_first(&heap->zones.of[ZONE_LARGE].free, is_at_least, size);
    struct span *best = NULL;
    size_t least = most + 1;
    for (int tries = 0; node && tries < ASIDE_TRIES && least; tries++, node = tree_next(node)) {
        struct span *span = SPAN_OF(node);
        if (!heap->growths.saves && zone_of(span->size) == ZONE_LARGE)
            break;
        if (span->size - size < padding(span, alignment))
            continue;
        size_t tied =
            bytes_tied(arena, span, span->start + placement(heap, span, size, alignment), size);
        if (tied < least) {
            least = tied;
            best = span;
        }
    }
    return best;
}

tarn_status span_take_aside_locked(struct heap *heap, size_t size, size_t alignment, size_t most,
                                   struct span **result)
{
    /* Not with fixed addresses, where each rank must get the same place. Not if the heap follows a
     * plan, which reserves that memory. */
    const struct store *store = heap->store;
    bool may = store->kind.pieces && !store->kind.fixed && !heap->following;
    struct span *span = may ? span_find_aside_locked(heap, size, alignment, most) : NULL;
    return span ? span_cut_locked(heap, span, size, alignment, result) : TARN_ERROR_OUT_OF_MEMORY;
}

void span_return_locked(struct heap *heap, struct span *span)
{
    struct span *next = span->next, *previous = span->previous;
    if (next && next->state == SPAN_FREE) {
        span_remove_locked(heap, next);
        if (next->batch > span->batch)
            span->batch = next->batch;
        join_left_locked(&heap->reserve, next);
    }
    if (previous && previous->state == SPAN_FREE) {
        span_remove_locked(heap, previous);
        if (span->batch > previous->batch)
            previous->batch = span->batch;
        join_left_locked(&heap->reserve, span);
        span = previous;
    }
    span_file_locked(heap, span);
}

void span_give_locked(struct heap *heap, struct span *span)
{
    span->batch = heap->batches.open;
    heap->batches.open_used = true;
    span->requested = 0;
    span->tag = 0;
    span->own = false;
    if (span->zone == ZONE_LARGE)
        heap->growths.returned += span->size;
    span_return_locked(heap, span);
}

static bool is_entered(const struct span *span)
{
    return span->state == SPAN_BLOCK || span->state == SPAN_PENDING;
}

void span_enter_shared_locked(struct span *span)
{
    map_entry entry = map_get(span->start);
    do {
        const struct span *entered = map_span(entry);
        if (entry == MAP_SHARED || (entered && entered->start < span->start))
            return;
    } while (!map_replace(span->start, &entry, map_entry_of_span(span)));
}

void span_leave_shared_locked(struct span *span)
{
    uintptr_t page_end = (span->start & ~(MAP_PAGE - 1)) + MAP_PAGE;
    const struct span *next = span->next;
    map_entry own = map_entry_of_span(span);
    if (map_get(span->start) != own)
        return;
    while (next && next->start < page_end && !is_entered(next))
        next = next->next;
    (void)map_replace(span->start, &own,
                      next && next->start < page_end ? map_entry_of_span(next) : 0);
}

tarn_status span_extend_locked(struct heap *heap, struct span *span, size_t more)
{
    parked_flush_locked(heap);
    struct span *next = span->next;
    if (!next || next->state != SPAN_FREE || next->size < more)
        return TARN_ERROR_NO_ROOM;
    /* The heap's stream has ended, so it does not order the block's user after earlier users. */
    if (heap->retired) {
        heap_learn_locked(heap, false);
        if (!span_idle_locked(heap, next))
            return TARN_ERROR_NO_ROOM;
    }
    struct span *rest = NULL;
    if (next->size > more) {
        rest = span_create_locked(&heap->reserve);
        if (!rest)
            return TARN_ERROR_OUT_OF_HOST_MEMORY;
    }
    span_remove_locked(heap, next);
    if (rest) {
        span_cut(next, more, rest);
        span_file_locked(heap, rest);
    }
    join_left_locked(&heap->reserve, next);
    return TARN_OK;
}

/* Joins the run `right`, which begins where `left` ends, to `left`. */
static void runs_join_locked(struct zone *zone, struct run *left, struct run *right)
{
    left->last->next = right->first;
    right->first->previous = left->last;
    for (struct span *span = right->first; span; span = span->next)
        span->run = left;
    left->last = right->last;
    left->end = right->end;
    run_remove_locked(zone, right);
    run_destroy(right);
}

void span_leave_locked(struct heap *heap, struct span *span, struct run **spare)
{
    struct run *run = span->run;
    struct span *before = span->previous, *after = span->next;
    note_runs_changed();
    trace_block(heap->store->kind.pieces ? TRACE_segment_unmap : TRACE_segment_free, heap,
                span->start, span->size, 0);
    if (before)
        before->next = NULL;
    if (after)
        after->previous = NULL;
    if (before && after) {
        struct run *rest = *spare;
        *spare = NULL;
        *rest =
            (struct run){.start = after->start, .end = run->end, .first = after, .last = run->last};
        run_insert_locked(heap, span->zone, rest);
        for (struct span *each = after; each; each = each->next)
            each->run = rest;
    }
    if (before) {
        run->last = before;
        run->end = span->start;
    } else if (after) {
        run->first = after;
        run->start = after->start;
    } else {
        run_remove_locked(&heap->zones.of[span->zone], run);
        run_destroy(run);
    }
    heap->zones.of[span->zone].bytes -= span->size;
    span_destroy_locked(&heap->reserve, span);
}

void run_detach_locked(struct heap *heap, struct run *run)
{
    note_runs_changed();
    span_remove_locked(heap, run->first);
    trace_block(TRACE_segment_free, heap, run->start, run->end - run->start, 0);
    run_remove_locked(&heap->zones.of[run->first->zone], run);
    heap->zones.of[run->first->zone].bytes -= run->end - run->start;
}

void run_attach_locked(struct heap *heap, struct run *run)
{
    struct span *span = run->first;
    note_runs_changed();
    atomic_store_explicit(&span->heap, heap, memory_order_relaxed);
    span->batch = 0;
    run_insert_locked(heap, (enum zone_kind)span->zone, run);
    heap->zones.of[span->zone].bytes += run->end - run->start;
    trace_block(TRACE_segment_alloc, heap, run->start, run->end - run->start, 0);
    span_return_locked(heap, span);
}

struct span *heap_add_locked(struct heap *heap, enum zone_kind zone, struct span *base,
                             struct run *run, struct span *span, uintptr_t start, uintptr_t end)
{
    note_runs_changed();
    span->start = start;
    span->size = end - start;
    span->zone = (uint8_t)zone;
    span->state = SPAN_TAKEN;
    span->batch = 0;
    atomic_store_explicit(&span->heap, heap, memory_order_relaxed);
    heap->zones.of[zone].bytes += span->size;
    trace_block(heap->store->kind.pieces ? TRACE_segment_map : TRACE_segment_alloc, heap, start,
                end - start, 0);

    if (base) {
        run = base->run;
        link_after(base, span);
        run->end = end;
    } else {
        span->run = run;
        if (heap->store->kind.pieces) { /* a segment has its bounds already */
            run->start = start;
            run->end = end;
        }
        run->first = run->last = span;
        run_insert_locked(heap, zone, run);
    }
    if (heap->store->kind.whole)
        return span; /* adjacent segments are not joined */
    for (struct run *other = heap->zones.of[zone].runs, *next; other; other = next) {
        next = other->next;
        if (other->start == end)
            runs_join_locked(&heap->zones.of[zone], run, other);
    }
    for (struct run *other = heap->zones.of[zone].runs; other; other = other->next) {
        if (other->end == start && other != run) {
            runs_join_locked(&heap->zones.of[zone], other, run);
            break;
        }
    }
    return span;
}

bool span_is_free_segment_locked(const struct heap *heap, const struct span *span)
{
    return !span->previous && !span->next && !atomic_load(&span->run->anchors) &&
           !store_is_held(heap->store);
}

void span_whole_pieces(const struct arena *arena, const struct span *span, size_t wanted,
                       size_t most, uintptr_t *start, uintptr_t *end)
{
    uintptr_t address = span->start, span_end = span->start + span->size;
    struct piece *piece = arena_piece(arena, address);
    if (piece->address < address)
        address = piece->address + piece->size;
    while (address < span_end && piece_is_anchored(arena_piece(arena, address)))
        address += arena_piece(arena, address)->size;
    *start = *end = address;
    while (address < span_end && *end - *start < wanted) {
        piece = arena_piece(arena, address);
        address += piece->size;
        if (address > span_end || address - *start > most || piece_is_anchored(piece))
            break;
        *end = address;
    }
}

bool span_covers_piece_locked(const struct heap *heap, const struct span *span)
{
    const struct arena *arena = heap->arena;
    if (!heap->store->kind.pieces)
        return !span->previous && !span->next;
    if (span->size < arena->granule)
        return false;
    if (atomic_load_explicit(&heap->store->suspended, memory_order_acquire))
        return true; /* it has no pieces now; they return with the resume */
    uintptr_t end = span->start + span->size;
    const struct piece *piece = arena_piece(arena, span->start);
    if (piece->address < span->start && piece->address + piece->size < end)
        piece = arena_piece(arena, piece->address + piece->size);
    return piece->address >= span->start && piece->address + piece->size <= end;
}

bool span_has_piece_locked(const struct heap *heap, const struct span *span)
{
    uintptr_t start = 0, end = 0;
    if (!heap->store->kind.pieces)
        return span_is_free_segment_locked(heap, span);
    if (span->size >= heap->arena->granule && !store_is_held(heap->store))
        span_whole_pieces(heap->arena, span, 1, SIZE_MAX, &start, &end);
    return start != end;
}

size_t zones_longest_free(const struct zones *zones)
{
    size_t longest = 0;
    for (int zone = 0; zone < ZONES; zone++) {
        const struct tree_node *last = tree_last(&zones->of[zone].free);
        if (last && SPAN_OF(last)->size > longest)
            longest = SPAN_OF(last)->size;
    }
    return longest;
}

void zones_change_locked(struct zones *zones)
{
    for (unsigned zone = 0; zone < ZONES; zone++)
        state_is_new_locked(zones, zone);
}

void zones_init(struct zones *zones, bool by_serial)
{
    zones->splits = (struct counters_splits){0};
    for (int zone = 0; zone < ZONES; zone++)
        zones->of[zone].free.order = by_serial ? by_size_and_serial : by_size;
}
