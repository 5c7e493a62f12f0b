/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Freed blocks that wait for the streams which use them: when they are free, and what finding out
 * costs, in driver calls. */
#include "memory/heap/cache.h"
#include "memory/heap/idle/awaited.h"
#include "memory/heap/idle/wait.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MEMORY (4096 * MIB)
#define STREAMS 32
#define EACH 100 /* blocks per stream */
#define SIZE ((size_t)100000)
#define MS UINT64_C(1000000)

static tarn_stream own, others[STREAMS];
static struct heap *heap;

static size_t look(void)
{
    mutex_lock(&heap->lock);
    size_t ended = wait_collect_locked(heap);
    mutex_unlock(&heap->lock);
    return ended;
}

static void *used_by(tarn_stream stream)
{
    void *block = alloc_on(own, SIZE);
    OK(tarn_record_stream(block, stream));
    return block;
}

static void a_look_asks_once_per_stream_however_many_blocks_wait(void **state)
{
    (void)state;
    static void *blocks[STREAMS * EACH];
    for (int i = 0; i < STREAMS; i++)
        work_on(others[i], NULL, 0, (uint64_t)(i + 1) * MS);
    for (int i = 0; i < STREAMS * EACH; i++)
        blocks[i] = used_by(others[i % STREAMS]);
    for (int i = 0; i < STREAMS * EACH; i++)
        OK(tarn_free(blocks[i]));
    CHECK(heap->waiting.blocks == STREAMS * EACH && heap->waiting.uses == STREAMS * EACH);

    uint64_t queries = calls_of(0, "event_query");
    CHECK(look() == 0);
    CHECK(calls_of(0, "event_query") - queries == STREAMS);
    queries = calls_of(0, "event_query");
    void *more = alloc_on(own, 600 * MIB); /* a few looks, and what is learnt of batches */
    CHECK(calls_of(0, "event_query") - queries <= 4 * STREAMS);

    time_pass(MS); /* the first stream's work is over, and no other's */
    queries = calls_of(0, "event_query");
    CHECK(look() == EACH && heap->waiting.blocks == (STREAMS - 1) * EACH);
    CHECK(calls_of(0, "event_query") - queries == STREAMS - 1 + EACH);
    verify(0);
    OK(tarn_free(more));
    nothing_is_left(0);
    CHECK(!heap->waiting.queues && !heap->waiting.blocks && !heap->waiting.uses);
}

static void a_block_is_free_when_the_last_of_its_streams_is_done(void **state)
{
    (void)state;
    for (int last = 0; last < 3; last++) {
        for (int i = 0; i < 3; i++)
            work_on(others[i], NULL, 0, (i == last ? 30 : 10) * MS);
        void *block = used_by(others[0]), *one = used_by(others[last]);
        for (int i = 1; i < 3; i++)
            OK(tarn_record_stream(block, others[i]));
        OK(tarn_free(block));
        OK(tarn_free(one));
        CHECK(heap->waiting.blocks == 2 && heap->waiting.uses == 4 && look() == 0);
        time_pass(20 * MS);
        CHECK(look() == 0 && heap->waiting.uses == 2);
        GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
        time_pass(20 * MS);
        CHECK(look() == 2 && heap->waiting.blocks == 0);
        nothing_is_left(0);
    }
}

/* Events that were recorded in another order than the blocks are freed in, on a stream that has
 * other blocks to finish later. */
static void a_callers_event_counts_from_its_record(void **state)
{
    (void)state;
    tarn_event *events[3];
    void *blocks[3], *later = used_by(others[0]);
    for (int i = 0; i < 3; i++) {
        OK(tarn_event_create(0, &events[i]));
        work_on(others[0], NULL, 0, 10 * MS * (uint64_t)(i + 1));
        OK(tarn_event_record(events[i], others[0]));
        blocks[i] = alloc_on(own, SIZE);
    }
    work_on(others[0], NULL, 0, 100 * MS);
    OK(tarn_free(later));
    for (int i = 2; i >= 0; i--)
        OK(tarn_free_after(blocks[i], events[i]));
    for (int i = 0; i < 3; i++) {
        CHECK(look() == 0);
        time_pass(10 * MS);
        uint64_t queries = calls_of(0, "event_query");
        CHECK(look() == 1);
        CHECK(calls_of(0, "event_query") - queries <= 3);
    }
    CHECK(heap->waiting.blocks == 1);
    time_pass(100 * MS);
    CHECK(look() == 1);
    for (int i = 0; i < 3; i++)
        OK(tarn_event_destroy(events[i]));
    nothing_is_left(0);
}

/* Marks that cannot be recorded when the blocks are freed are recorded later, one per stream. */
static void what_could_not_be_marked_is_marked_at_a_look(void **state)
{
    (void)state;
    void *blocks[2 * EACH];
    for (int i = 0; i < 2; i++)
        work_on(others[i], NULL, 0, 10 * MS);
    for (int i = 0; i < 2 * EACH; i++)
        blocks[i] = used_by(others[i % 2]);
    OK(tarn_host_fail_set(kind_of("event_record"), 1, true, TARN_ERROR_DRIVER));
    for (int i = 0; i < 2 * EACH - 2; i++)
        OK(tarn_free(blocks[i]));
    uint64_t records = calls_of(0, "event_record");
    time_pass(20 * MS);
    CHECK(look() == 0 && calls_of(0, "event_record") - records == 2);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    for (int i = 0; i < 2; i++)
        work_on(others[i], NULL, 0, 10 * MS);
    for (int i = 2 * EACH - 2; i < 2 * EACH; i++)
        OK(tarn_free(blocks[i])); /* marked before those that were freed first */
    records = calls_of(0, "event_record");
    CHECK(look() == 0 && calls_of(0, "event_record") - records == 2);
    time_pass(20 * MS);
    CHECK(look() == 2 * EACH && calls_of(0, "event_record") - records == 2);
    nothing_is_left(0);
}

/* Its last work is what is waited for, and a stream that has its slot later is another. */
static void a_stream_is_retired_while_blocks_wait_for_it(void **state)
{
    (void)state;
    void *blocks[4];
    tarn_stream leased = lease(0);
    work_on(leased, NULL, 0, 10 * MS);
    for (int i = 0; i < 4; i++)
        blocks[i] = used_by(leased);
    for (int i = 0; i < 2; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_stream_return(leased));
    for (int i = 2; i < 4; i++)
        OK(tarn_free(blocks[i]));
    CHECK(look() == 0 && heap->waiting.blocks == 4);
    time_pass(20 * MS);
    CHECK(look() == 4 && !heap->waiting.queues);
    nothing_is_left(0);
}

/* A use ends between two questions: that is worth another try, and not a reason to give up. */
static void what_ends_between_two_questions_is_found(void **state)
{
    (void)state;
    work_on(others[0], NULL, 0, 10 * MS);
    void *block = used_by(others[0]);
    OK(tarn_free(block));
    time_pass(20 * MS);
    OK(tarn_host_fail_set(kind_of("event_query"), 1, false, TARN_ERROR_NOT_READY));
    struct mark *mark = NULL;
    mutex_lock(&heap->lock);
    CHECK(wait_oldest_locked(heap, &mark) && !mark);
    mutex_unlock(&heap->lock);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(look() == 1);
    nothing_is_left(0);
}

/* A capture that tarn does not know begins between the question and the record, and takes the
 * event: it can be recorded again on its stream only. When that has been retired, its last mark
 * says the same, and what waits behind is not held up. */
static void a_mark_that_a_capture_took_is_the_retirements_in_the_end(void **state)
{
    (void)state;
    driver_stream native = NULL;
    tarn_stream user = 0;
    OK(driver->stream_create(0, 0, false, &native));
    OK(tarn_stream_adopt(0, native, &user));
    work_on(user, NULL, 0, 10 * MS);
    for (int i = 0; i < EACH; i++)
        OK(tarn_free(used_by(user)));
    OK(tarn_stream_retire(user));
    time_pass(10 * MS);
    OK(tarn_host_fail_set(kind_of("event_query"), 1, false, TARN_ERROR_CAPTURE));
    CHECK(look() == EACH && heap->waiting.blocks == 0);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(driver->stream_destroy(0, native));
    nothing_is_left(0);
}

/* A heap may change under the arena's lock, where no mark can be released. */
static void a_heap_that_awaits_work_keeps_its_marks_when_it_changes(void **state)
{
    (void)state;
    void *block = alloc_on(own, 64 * MIB);
    OK(tarn_record_stream(block, others[0]));
    work_on(others[0], NULL, 0, 10 * MS);
    OK(tarn_free(block));
    mutex_lock(&heap->lock);
    heap_await_locked(heap);
    CHECK(heap->awaits.tree && heap->awaits.kept);
    mutex_lock(&heap->arena->lock);
    heap_changed_locked(heap);
    CHECK(!heap->awaits.tree && heap->awaits.kept);
    mutex_unlock(&heap->arena->lock);
    mutex_unlock(&heap->lock);
    time_pass(20 * MS);
    CHECK(look() == 1 && !heap->awaits.kept);
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    struct stream *found = NULL;
    own = lease(0);
    OK(stream_find(own, 0, &found));
    OK(default_heap(found, &heap));
    for (int i = 0; i < STREAMS; i++)
        others[i] = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_asks_once_per_stream_however_many_blocks_wait),
        cmocka_unit_test(a_block_is_free_when_the_last_of_its_streams_is_done),
        cmocka_unit_test(a_callers_event_counts_from_its_record),
        cmocka_unit_test(what_could_not_be_marked_is_marked_at_a_look),
        cmocka_unit_test(a_stream_is_retired_while_blocks_wait_for_it),
        cmocka_unit_test(what_ends_between_two_questions_is_found),
        cmocka_unit_test(a_mark_that_a_capture_took_is_the_retirements_in_the_end),
        cmocka_unit_test(a_heap_that_awaits_work_keeps_its_marks_when_it_changes),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
