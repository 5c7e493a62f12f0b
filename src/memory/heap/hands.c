/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns hands. Threads with different hands may free one block at the same time. So a block is
 * claimed by exchanging its `live`, and only one thread ends it. Hands open and close under the
 * heap's lock. A hand's lock is taken inside that, or alone. */
#include "memory/heap/hands.h"
#include "base/pages.h"
#include "memory/heap/parked.h"

/* What `hands.of` leads to. */
struct hand_table {
    struct hand of[HANDS];
};

static struct object_pool pool = OBJECT_POOL(struct hand_table);

/* The thread's hand, and those after it. */
static struct hand *hand_of(struct hand *hands, const struct thread *thread, unsigned after)
{
    return &hands[(thread->number + after) % HANDS];
}

static unsigned count_of(const struct hand *hand)
{
    return atomic_load_explicit(&hand->count, memory_order_relaxed);
}

static size_t bytes_of(const struct hand *hand)
{
    return atomic_load_explicit(&hand->bytes, memory_order_relaxed);
}

static void set_locked(struct hand *hand, unsigned count, size_t bytes)
{
    atomic_store_explicit(&hand->count, count, memory_order_relaxed);
    atomic_store_explicit(&hand->bytes, bytes, memory_order_relaxed);
}

/* Without the hand's lock this is a hint, and so is the size of a block that is not claimed:
 * claim_locked() looks again. */
static bool has_room(const struct hand *hand, size_t size)
{
    return !count_of(hand) || (count_of(hand) < HAND_SPANS && bytes_of(hand) + size <= HAND_BYTES);
}

/* Whether the thread may take blocks from the hand, or put them there: the conditions of parked
 * blocks. */
static bool hand_serves_locked(const struct heap *heap, const struct hand *hand,
                               const struct thread *thread)
{
    return hand->open && stack_parks(&heap->parked) &&
           (!trace_is_on() || trace_is_quick(heap, thread));
}

/* Taking --------------------------------------------------------------------------------------- */

/* The place of a block of this size in the hand, counted from 1; 0: none. */
static unsigned find_locked(const struct heap *heap, const struct hand *hand,
                            const struct thread *thread, size_t size)
{
    unsigned i = count_of(hand);
    while (i > 0 && hand->spans[i - 1].size != size)
        i--;
    bool routed = thread->changes == atomic_load_explicit(&process_changes, memory_order_relaxed);
    return i > 0 && routed && hand_serves_locked(heap, hand, thread) ? i : 0;
}

/* Hands out a block. The caller has counted it. */
static uintptr_t take_locked(struct heap *heap, struct hand *hand, const struct thread *thread,
                             unsigned place, size_t requested, counters_oversize oversize)
{
    unsigned count = count_of(hand) - 1;
    struct span *span = hand->spans[place].span;
    uintptr_t address = span->start;
    for (; place < count; place++)
        hand->spans[place] = hand->spans[place + 1];
    set_locked(hand, count, bytes_of(hand) - span->size);
    span->requested = requested;
    span->tag = 0;
    span->oversize = oversize;
    if (trace_is_on())
        trace_quickly(TRACE_alloc, heap, thread, address, requested, 0);
    atomic_store_explicit(&span->live, true, memory_order_release);
    return address;
}

/* The slow form, for what the hand's part cannot count alone. */
static uintptr_t take_counted(struct heap *heap, struct hand *hand, const struct thread *thread,
                              size_t size, size_t requested)
{
    struct counters *counters = NULL;
    uintptr_t address = 0;
    counters_take_up(&heap->arena->counters, &hand->part);
    unsigned place = find_locked(heap, hand, thread, size);
    if (place) {
        counters = heap->store->counters; /* constant while hands are open */
        address = take_locked(heap, hand, thread, place - 1, requested,
                              counters_allocated_locked(counters, &hand->part, size, requested));
    }
    counters_return(&heap->arena->counters, &hand->part, counters);
    return address;
}

static uintptr_t take_from(struct heap *heap, struct hand *hand, const struct thread *thread,
                           size_t size, size_t requested)
{
    uintptr_t address = 0;
    counters_part_lock(&hand->part);
    unsigned place = find_locked(heap, hand, thread, size);
    bool counted = place && counters_part_allocated_locked(&hand->part, size, requested);
    if (counted)
        address = take_locked(heap, hand, thread, place - 1, requested, 0);
    counters_part_unlock(&hand->part);
    return place && !counted ? take_counted(heap, hand, thread, size, requested) : address;
}

uintptr_t hand_take(struct heap *heap, const struct thread *thread, size_t size, size_t requested)
{
    struct hand *hands = atomic_load_explicit(&heap->hands.of, memory_order_acquire);
    uintptr_t address = 0;
    for (unsigned i = 0, tries = HAND_TRIES; hands && i < HANDS && tries && !address; i++) {
        struct hand *hand = hand_of(hands, thread, i);
        if (count_of(hand)) {
            address = take_from(heap, hand, thread, size, requested);
            tries--;
        }
    }
    return address;
}

/* Giving --------------------------------------------------------------------------------------- */

/* Claims a block to put it into the hand: then it is not live. False if it may not go there. A
 * block with `after` 0 is never parked (parked.h). */
static bool claim_locked(const struct heap *heap, const struct hand *hand, struct span *span,
                         uintptr_t address, const struct thread *thread)
{
    if (!hand_serves_locked(heap, hand, thread) ||
        !atomic_load_explicit(&span->live, memory_order_acquire) || span->start != address ||
        !atomic_exchange_explicit(&span->live, false, memory_order_acq_rel))
        return false;
    if (span->start == address && atomic_load_explicit(&span->heap, memory_order_relaxed) == heap &&
        !span->uses && atomic_load_explicit(&span->after, memory_order_relaxed) &&
        has_room(hand, span->size))
        return true;
    atomic_store_explicit(&span->live, true, memory_order_release);
    return false;
}

/* Puts a claimed block into the hand. The caller has counted its free. */
static void put_locked(struct heap *heap, struct hand *hand, struct span *span,
                       const struct thread *thread)
{
    unsigned count = count_of(hand);
    if (trace_is_on())
        trace_quickly(TRACE_free, heap, thread, span->start, span->requested, span->tag);
    hand->spans[count] = (struct hand_span){span->size, span};
    set_locked(hand, count + 1, bytes_of(hand) + span->size);
}

static bool give_counted(struct heap *heap, struct hand *hand, struct span *span, uintptr_t address,
                         const struct thread *thread)
{
    struct counters *counters = NULL;
    counters_take_up(&heap->arena->counters, &hand->part);
    bool claimed = claim_locked(heap, hand, span, address, thread);
    if (claimed) {
        counters = heap->store->counters;
        counters_freed_and_completed_locked(counters, &hand->part, span->size, span->requested,
                                            span->oversize);
        put_locked(heap, hand, span, thread);
    }
    counters_return(&heap->arena->counters, &hand->part, counters);
    return claimed;
}

static bool give_to(struct heap *heap, struct hand *hand, struct span *span, uintptr_t address,
                    const struct thread *thread)
{
    counters_part_lock(&hand->part);
    bool claimed = claim_locked(heap, hand, span, address, thread);
    bool counted = claimed && counters_part_freed_locked(&hand->part, span->size, span->requested,
                                                         span->oversize);
    if (counted)
        put_locked(heap, hand, span, thread);
    else if (claimed)
        atomic_store_explicit(&span->live, true, memory_order_release);
    counters_part_unlock(&hand->part);
    return claimed && !counted ? give_counted(heap, hand, span, address, thread) : counted;
}

bool hand_give(struct heap *heap, struct span *span, uintptr_t address, const struct thread *thread)
{
    struct hand *hands = atomic_load_explicit(&heap->hands.of, memory_order_acquire);
    bool given = false;
    for (unsigned i = 0; hands && i < HAND_TRIES && !given; i++) {
        struct hand *hand = hand_of(hands, thread, i);
        given = has_room(hand, span->size) && give_to(heap, hand, span, address, thread);
    }
    return given;
}

/* Back to the heap ----------------------------------------------------------------------------- */

/* Turns the blocks of a hand into free spans, except the newest `keep`. True if there were any. */
static bool empty_locked(struct heap *heap, struct hand *hand, unsigned keep, bool open)
{
    struct span *spans[HAND_SPANS];
    counters_part_lock(&hand->part);
    hand->open = open;
    unsigned count = count_of(hand), gone = count > keep ? count - keep : 0;
    size_t bytes = bytes_of(hand);
    for (unsigned i = 0; i < gone; i++) {
        spans[i] = hand->spans[i].span;
        bytes -= hand->spans[i].size;
    }
    for (unsigned i = gone; i < count; i++)
        hand->spans[i - gone] = hand->spans[i];
    set_locked(hand, count - gone, bytes);
    counters_part_unlock(&hand->part);
    for (unsigned i = 0; i < gone; i++) {
        span_leave_map_locked(heap, spans[i]);
        span_give_locked(heap, spans[i]);
    }
    return gone;
}

void hands_spill_locked(struct heap *heap, const struct thread *thread, size_t size)
{
    struct hand *hands = atomic_load_explicit(&heap->hands.of, memory_order_relaxed);
    struct hand *hand = hand_of(hands, thread, 0);
    unsigned count = has_room(hand, size) ? 0 : count_of(hand);
    if (count)
        (void)empty_locked(heap, hand, count / 2, true);
}

bool hand_flush_locked(struct heap *heap, unsigned which)
{
    struct hand *hand = &atomic_load_explicit(&heap->hands.of, memory_order_relaxed)[which];
    return count_of(hand) &&
           empty_locked(heap, hand, 0, true); /* a free that came before this call is seen */
}

void hands_flush_locked(struct heap *heap)
{
    for (unsigned i = 0; i < HANDS && hands_are_open(&heap->hands); i++)
        (void)hand_flush_locked(heap, i);
}

/* A thread that saw closed hands a moment ago may be about to park a block. The new state of each
 * zone prevents that. */
static void handed_set_locked(struct heap *heap, bool handed)
{
    counters_part_lock(&heap->parked.part);
    if (handed)
        zones_change_locked(&heap->zones);
    atomic_store_explicit(&heap->hands.open, handed, memory_order_relaxed);
    counters_part_unlock(&heap->parked.part);
}

void hands_close_locked(struct heap *heap)
{
    struct hand *hands = atomic_load_explicit(&heap->hands.of, memory_order_relaxed);
    if (!hands_are_open(&heap->hands))
        return;
    for (unsigned i = 0; i < HANDS; i++)
        (void)empty_locked(heap, &hands[i], 0, false);
    handed_set_locked(heap, false);
}

/* Creates the hands, closed. NULL if the host has no memory. */
static struct hand *make_locked(struct hands *hands)
{
    struct hand_table *table = object_alloc(&pool);
    if (!table)
        return NULL;
    for (unsigned i = 0; i < HANDS; i++)
        counters_part_compete(&table->of[i].part);
    atomic_store_explicit(&hands->of, table->of, memory_order_release);
    return table->of;
}

/* Opens the hands. Blocks that the heap has parked become free spans. If the host has no memory,
 * the hands stay closed. */
static void open_locked(struct heap *heap)
{
    struct hand *hands = atomic_load_explicit(&heap->hands.of, memory_order_relaxed);
    if (!hands && !pages_fail_armed())
        hands = make_locked(&heap->hands);
    if (!hands)
        return;
    handed_set_locked(heap, true);
    parked_flush_stack_locked(heap);
    for (unsigned i = 0; i < HANDS; i++)
        (void)empty_locked(heap, &hands[i], 0, true);
}

void hands_weigh_locked(struct heap *heap, bool waited)
{
    int weight = heap->hands.contention + (waited ? HANDS_WAIT : -1);
    heap->hands.contention = weight < 0 ? 0 : weight > HANDS_MOST ? HANDS_MOST : weight;
    if (!hands_are_open(&heap->hands) && weight >= HANDS_OPEN && stack_parks(&heap->parked) &&
        heap->sets.news == SIZE_MAX && !heap->following && !heap->sets.known)
        open_locked(heap);
    else if (weight <= 0)
        hands_close_locked(heap);
}

void hands_counters_close(struct hands *hands)
{
    struct hand *all = atomic_load_explicit(&hands->of, memory_order_relaxed);
    for (unsigned i = 0; all && i < HANDS; i++)
        counters_part_close(&all[i].part);
}
