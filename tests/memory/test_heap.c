/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Cutting, joining and best fit, on a heap that is given one run of 40 MiB. */
#include "base/pages.h"
#include "memory/growth/growth.h"
#include "memory/heap/heap.h"
#include "memory/watch/verify.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RUN (40 * MIB)
#define UNIT TARN_BLOCK_UNIT

static tarn_stream own;
static struct heap *heap;

static struct span *take(size_t size, size_t alignment)
{
    struct span *span = NULL;
    mutex_lock(&heap->lock);
    tarn_status status = span_take_locked(heap, ZONE_LARGE, size, alignment, &span);
    mutex_unlock(&heap->lock);
    CHECK(status == TARN_OK || (status == TARN_ERROR_OUT_OF_MEMORY && !span));
    CHECK(!span ||
          (span->state == SPAN_TAKEN && span->size == size && span->start % alignment == 0));
    return span;
}

static void give(struct span *span)
{
    mutex_lock(&heap->lock);
    span_give_locked(heap, span);
    mutex_unlock(&heap->lock);
}

/* No check fails while the lock is held: it would stay so. */
static bool extend(struct span *span, size_t more)
{
    mutex_lock(&heap->lock);
    bool extended = span_extend_locked(heap, span, more) == TARN_OK;
    mutex_unlock(&heap->lock);
    return extended;
}

static void learn(bool close)
{
    mutex_lock(&heap->lock);
    heap_learn_locked(heap, close);
    mutex_unlock(&heap->lock);
}

static bool is_idle(const struct span *span)
{
    mutex_lock(&heap->lock);
    bool idle = span_idle_locked(heap, span);
    mutex_unlock(&heap->lock);
    return idle;
}

static uintptr_t begin;

/* Every test finds one free span, the whole run, and leaves it so. */
static void one_free_span_of(size_t size)
{
    OK(heap_verify(heap));
    CHECK(heap->zones.free_bytes == size);
    struct tree_node *first = tree_first(&heap->zones.of[ZONE_LARGE].free);
    CHECK(first && first == tree_last(&heap->zones.of[ZONE_LARGE].free));
    struct span *span = TREE_ENTRY(first, struct span, by_size);
    CHECK(span->start == begin && span->size == size && !span->previous && !span->next);
}

static void a_span_is_cut_off_the_front_of_a_free_one(void **state)
{
    (void)state;
    struct span *a = take(3 * UNIT, UNIT), *b = take(5 * UNIT, UNIT), *c = take(UNIT, UNIT);
    CHECK(a->start == begin && b->start == begin + 3 * UNIT && c->start == begin + 8 * UNIT);
    CHECK(heap->zones.free_bytes == RUN - 9 * UNIT);
    CHECK(a->next == b && b->previous == a && b->next == c && c->next->state == SPAN_FREE &&
          !c->next->next);
    give(a);
    CHECK(heap->zones.free_bytes == RUN - 6 * UNIT && a->state == SPAN_FREE);
    give(c); /* joins what is behind it */
    CHECK(b->next == c && c->size == RUN - 8 * UNIT);
    give(b); /* joins both sides */
    one_free_span_of(RUN);
}

static void the_whole_run_can_be_taken_and_not_a_unit_more(void **state)
{
    (void)state;
    CHECK(!take(RUN + UNIT, UNIT));
    struct span *all = take(RUN, UNIT);
    CHECK(all->start == begin && heap->zones.free_bytes == 0 && !take(UNIT, UNIT));
    give(all);
    one_free_span_of(RUN);
}

static void the_best_fit_is_the_smallest_and_of_equals_the_lowest(void **state)
{
    (void)state;
    static const size_t units[] = {4, 1, 3, 1, 3, 1, 5, 1, 3, 1}; /* every other one becomes free */
    struct span *spans[10];
    for (int i = 0; i < 10; i++)
        spans[i] = take(units[i] * UNIT, UNIT);
    uintptr_t starts[10];
    for (int i = 0; i < 10; i++)
        starts[i] = spans[i]->start;
    for (int i = 8; i >= 0; i -= 2)
        give(spans[i]);
    struct span *three = take(3 * UNIT, UNIT);
    CHECK(three->start == starts[2]);
    struct span *two = take(2 * UNIT, UNIT);
    CHECK(two->start == starts[4]); /* of 3; leaves 1 */
    struct span *one = take(UNIT, UNIT);
    CHECK(one->start == starts[4] + 2 * UNIT);
    struct span *again = take(3 * UNIT, UNIT), *four = take(4 * UNIT, UNIT);
    CHECK(again->start == starts[8] && four->start == starts[0]);
    give(three);
    give(two);
    give(one);
    give(again);
    give(four);
    for (int i = 1; i < 10; i += 2)
        give(spans[i]);
    one_free_span_of(RUN);
}

static void an_aligned_span_leaves_the_memory_around_it_free(void **state)
{
    (void)state;
    struct span *front = take(3 * UNIT, UNIT), *span = take(2 * UNIT, 65536);
    CHECK(span->start > front->start && span->previous->state == SPAN_FREE &&
          span->next->state == SPAN_FREE);
    CHECK(heap->zones.free_bytes == RUN - 5 * UNIT);
    give(span);
    give(front);
    one_free_span_of(RUN);
}

static void spans_grow_into_free_memory_behind_them(void **state)
{
    (void)state;
    struct span *a = take(2 * UNIT, UNIT), *b = take(2 * UNIT, UNIT), *c = take(2 * UNIT, UNIT);
    CHECK(!extend(a, UNIT));
    give(b);
    CHECK(!extend(a, 3 * UNIT) && a->size == 2 * UNIT);
    CHECK(extend(a, UNIT) && a->size == 3 * UNIT && a->next->size == UNIT);
    CHECK(extend(a, UNIT) && a->size == 4 * UNIT && a->next == c);
    CHECK(extend(c, RUN - 6 * UNIT) && !c->next && heap->zones.free_bytes == 0);
    CHECK(!extend(c, UNIT));
    give(a);
    give(c);
    one_free_span_of(RUN);
}

/* The reference: spans by address, searched one by one. */
#define MOST 400
static struct {
    struct span *span;
    size_t size;
} taken[MOST];
static size_t taken_count;

static uintptr_t expected_start(size_t size)
{
    uintptr_t best = 0;
    size_t best_size = SIZE_MAX;
    for (struct tree_node *node = tree_first(&heap->zones.of[ZONE_LARGE].free); node;
         node = tree_next(node)) {
        const struct span *span = TREE_ENTRY(node, struct span, by_size);
        if (span->size < size || span->size > best_size ||
            (span->size == best_size && span->start > best))
            continue;
        best = span->start;
        best_size = span->size;
    }
    return best;
}

static void random_cuts_and_joins_keep_best_fit_and_every_invariant(void **state)
{
    (void)state;
    uint64_t random = 3;
    size_t bytes = 0;
    for (int step = 0; step < 20000; step++) {
        if (random_next(&random) % 2 && taken_count < MOST) {
            size_t size = (random_next(&random) % 400 + 1) * UNIT;
            if (random_next(&random) % 4 == 0) {
                struct span *aligned = take(size, (size_t)UNIT << random_next(&random) % 8);
                if (!aligned)
                    continue;
                taken[taken_count].span = aligned;
            } else {
                uintptr_t wanted = expected_start(size);
                struct span *span = take(size, UNIT);
                CHECK(span ? span->start == wanted : wanted == 0);
                if (!span)
                    continue;
                taken[taken_count].span = span;
            }
            taken[taken_count++].size = size;
            bytes += size;
        } else if (taken_count > 0) {
            size_t i = random_next(&random) % taken_count;
            CHECK(taken[i].span->size == taken[i].size);
            bytes -= taken[i].size;
            give(taken[i].span);
            taken[i] = taken[--taken_count];
        }
        CHECK(heap->zones.free_bytes == RUN - bytes);
    }
    while (taken_count > 0)
        give(taken[--taken_count].span);
    one_free_span_of(RUN);
}

static void a_cut_without_host_memory_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 2; nth++) {
        struct span *span = NULL, *front = take(UNIT, UNIT);
        pages_fail(nth, false);
        mutex_lock(&heap->lock);
        tarn_status status = span_take_locked(heap, ZONE_LARGE, UNIT, 65536, &span);
        mutex_unlock(&heap->lock);
        pages_fail(0, false);
        CHECK(status == TARN_ERROR_OUT_OF_HOST_MEMORY && !span &&
              heap->zones.free_bytes == RUN - UNIT);
        give(front);
        one_free_span_of(RUN);
    }
}

static void a_batch_is_idle_when_the_work_before_its_mark_has_ended(void **state)
{
    (void)state;
    struct span *first = take(UNIT, UNIT), *second = take(UNIT, UNIT), *third = take(UNIT, UNIT);
    work_on(own, NULL, 0, 1000);
    give(first);
    CHECK(!is_idle(first));
    learn(true);
    CHECK(!is_idle(first));
    uint64_t records = calls_of(0, "event_record");
    learn(true); /* nothing was freed since: no further mark */
    CHECK(calls_of(0, "event_record") == records);
    work_on(own, NULL, 0, 2000);
    give(third);
    time_pass(1000);
    learn(true);
    CHECK(is_idle(first));
    CHECK(heap->batches.count == 1);
    give(second); /* joins all: as late as the latest */
    learn(false);
    CHECK(!is_idle(TREE_ENTRY(heap->zones.of[ZONE_LARGE].free.root, struct span, by_size)));
    time_pass(2000);
    learn(true);
    CHECK(is_idle(TREE_ENTRY(heap->zones.of[ZONE_LARGE].free.root, struct span, by_size)));
    one_free_span_of(RUN);
}

static void each_batch_waits_for_its_own_mark(void **state)
{
    (void)state;
    struct span *first = take(UNIT, UNIT), *between = take(UNIT, UNIT), *second = take(UNIT, UNIT),
                *end = take(UNIT, UNIT);
    work_on(own, NULL, 0, 1000);
    give(first);
    learn(true);
    work_on(own, NULL, 0, 3000);
    give(second);
    learn(true);
    CHECK(heap->batches.count == 2);
    time_pass(1000);
    learn(false);
    CHECK(is_idle(first) && !is_idle(second));
    time_pass(3000);
    learn(false);
    CHECK(is_idle(second));
    give(between);
    give(end);
    one_free_span_of(RUN);
}

/* A mark for the end of the heap's life that cannot be recorded leaves the batches as they are,
 * also where no further batch has a place. */
static void a_last_mark_that_fails_changes_nothing(void **state)
{
    (void)state;
    struct span *spans[HEAP_BATCHES];
    for (int i = 0; i < HEAP_BATCHES; i++)
        spans[i] = take(UNIT, UNIT);
    struct span *end = take(UNIT, UNIT);
    for (int i = 0; i < HEAP_BATCHES; i++) {
        work_on(own, NULL, 0, 1000);
        give(spans[i]);
        learn(true);
    }
    struct batches before = heap->batches;
    CHECK(before.count == HEAP_BATCHES && !before.open_used);
    OK(tarn_host_fail_set(kind_of("event_record"), 1, false, TARN_ERROR_DRIVER));
    mutex_lock(&heap->lock);
    CHECK(batches_end_prepare_locked(heap) == TARN_ERROR_DRIVER);
    mutex_unlock(&heap->lock);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(heap->batches.count == HEAP_BATCHES && !heap->batches.open_used &&
          heap->batches.open == before.open);
    time_pass(1000 * HEAP_BATCHES);
    learn(false);
    CHECK(heap->batches.count == 0);
    give(end);
    one_free_span_of(RUN);
}

static int set_up(void **state)
{
    (void)state;
    struct stream *stream = NULL;
    struct span *span = NULL;
    own = lease(0);
    OK(stream_find(own, 0, &stream));
    OK(default_heap(stream, &heap));
    OK(heap_grow(heap, ZONE_LARGE, RUN, UNIT, &span));
    begin = span->start;
    give(span);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    one_free_span_of(RUN);
    nothing_is_left(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_is_cut_off_the_front_of_a_free_one),
        cmocka_unit_test(the_whole_run_can_be_taken_and_not_a_unit_more),
        cmocka_unit_test(the_best_fit_is_the_smallest_and_of_equals_the_lowest),
        cmocka_unit_test(an_aligned_span_leaves_the_memory_around_it_free),
        cmocka_unit_test(spans_grow_into_free_memory_behind_them),
        cmocka_unit_test(random_cuts_and_joins_keep_best_fit_and_every_invariant),
        cmocka_unit_test(a_cut_without_host_memory_changes_nothing),
        cmocka_unit_test(each_batch_waits_for_its_own_mark),
        cmocka_unit_test(a_last_mark_that_fails_changes_nothing),
        cmocka_unit_test(a_batch_is_idle_when_the_work_before_its_mark_has_ended),
    };
    host_start_with(1, 128 * MIB);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
