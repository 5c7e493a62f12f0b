/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Memory while streams capture: allocating, growing, freeing, trimming and record_stream leave a
 * capture whole, whether tarn knows it or not; what was freed for a stream that captures is not
 * given to others before the capture is over. */
#include "../driver/host_test.h"

#include "memory/watch/verify.h"

#include <pthread.h>
#include <tarn/tarn.h>

#define MEMORY (256 * MIB)

static tarn_stream lease(void)
{
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    return stream;
}

static void *native_of(tarn_stream stream)
{
    void *native = NULL;
    assert_ok(tarn_stream_native_get(stream, &native));
    return native;
}

static unsigned char *alloc_on(tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    assert_ok(tarn_alloc_on(stream, size, &pointer));
    return pointer;
}

static void verify(void)
{
    struct arena *arena = NULL;
    assert_ok(arena_of(device_at(0), &arena));
    assert_ok(arena_verify(arena));
}

/* How a capture begins: the first two are known. */
enum how { BY_TARN, ANNOUNCED, UNKNOWN, HOWS };

static void begin(tarn_stream stream, enum how how)
{
    if (how == BY_TARN) {
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        return;
    }
    if (how == ANNOUNCED)
        assert_ok(tarn_capture_announce(stream));
    assert_ok(driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_GLOBAL));
}

static void *end(tarn_stream stream, enum how how)
{
    void *graph = NULL;
    if (how == BY_TARN) {
        assert_ok(tarn_capture_end(stream, &graph));
    } else {
        assert_ok(driver->capture_end(0, native_of(stream), &graph));
        if (how == ANNOUNCED)
            assert_ok(tarn_capture_end_announced(stream, graph));
    }
    assert_non_null(graph);
    return graph;
}

static void launch(void *graph, tarn_stream stream)
{
    assert_ok(tarn_host_graph_launch(0, graph, native_of(stream)));
    assert_ok(tarn_stream_synchronize(stream));
}

/* Everything that memory does, by a thread: allocate, grow, use elsewhere, free, run out, trim. */
static void be_busy(tarn_stream stream, tarn_stream other, bool known)
{
    unsigned char *blocks[24];
    for (int i = 0; i < 24; i++)
        blocks[i] =
            alloc_on(i % 3 ? stream : other, i % 2 ? 512 + (size_t)i : (size_t)i * MIB / 4 + 1);
    for (int i = 0; i < 24; i += 4)
        assert_ok(tarn_record_stream(blocks[i], i % 8 ? stream : other));
    for (int i = 0; i < 24; i++) {
        (void)tarn_extend(blocks[i], 600);
        assert_ok(i % 5 ? tarn_free(blocks[i]) : tarn_free_on(blocks[i], other));
    }
    void *large = NULL;
    tarn_status status = tarn_alloc_on(other, MEMORY - 8 * MIB, &large);
    assert_true(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
    assert_ok(tarn_free(large));
    status = tarn_device_trim(0, 0);
    assert_int_equal(status, known ? TARN_ERROR_CAPTURE : TARN_OK);
}

static void a_capture_survives_what_its_thread_does(void **state)
{
    (void)state;
    for (int how = 0; how < HOWS; how++) {
        tarn_stream stream = lease(), other = lease();
        unsigned char *block = alloc_on(stream, 4096);
        memset(block, 0, 4096);
        begin(stream, (enum how)how);
        assert_ok(tarn_host_fill(0, native_of(stream), block, 3, 4096));
        be_busy(stream, other, how != UNKNOWN);
        unsigned char *fresh = alloc_on(stream, 30 * MIB); /* while it captures */
        assert_ok(driver->copy(0, (uintptr_t)fresh, (uintptr_t)block, 4096, native_of(stream)));
        be_busy(other, stream, how != UNKNOWN);
        void *graph = end(stream, (enum how)how);
        fresh[0] = 0;
        assert_int_equal(block[0], 0);
        launch(graph, other);
        assert_int_equal(block[4095], 3);
        assert_int_equal(fresh[4095], 3);
        block[0] = fresh[0] = 9;
        launch(graph, stream);
        assert_int_equal(block[0] + fresh[0], 6);
        assert_ok(tarn_host_graph_destroy(graph));
        assert_ok(tarn_free(block));
        assert_ok(tarn_free(fresh));
        verify();
        assert_ok(tarn_device_trim(0, 0));
        assert_int_equal(ledger_of(0).created, 0);
        assert_ok(tarn_stream_return(stream));
        assert_ok(tarn_stream_return(other));
    }
}

struct visit {
    tarn_stream stream, other;
    bool known;
};

static void *visit_run(void *argument)
{
    struct visit *visit = argument;
    for (int i = 0; i < 20; i++)
        be_busy(visit->stream, visit->other, visit->known);
    return argument;
}

static void a_capture_survives_calls_of_another_thread(void **state)
{
    (void)state;
    for (int how = 0; how < HOWS; how++) {
        struct visit visit = {lease(), lease(), how != UNKNOWN};
        tarn_stream capturing = visit.stream;
        unsigned char *block = alloc_on(capturing, MIB);
        pthread_t thread;
        void *result = NULL;
        begin(capturing, (enum how)how);
        assert_int_equal(pthread_create(&thread, NULL, visit_run, &visit), 0);
        for (int i = 0; i < 50; i++) {
            unsigned char *moment = alloc_on(capturing, 100000);
            assert_ok(tarn_host_fill(0, native_of(capturing), block, i, MIB));
            assert_ok(tarn_free(moment));
        }
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, &visit);
        void *graph = end(capturing, (enum how)how);
        launch(graph, visit.other);
        assert_int_equal(block[MIB - 1], 49);
        assert_ok(tarn_host_graph_destroy(graph));
        assert_ok(tarn_free(block));
        verify();
        assert_ok(tarn_device_trim(0, 0));
        assert_int_equal(ledger_of(0).created, 0);
    }
}

static void a_block_used_by_a_capturing_stream_waits_for_its_end(void **state)
{
    (void)state;
    for (int how = 0; how < HOWS; how++) {
        tarn_stream stream = lease(), user = lease();
        unsigned char *block = alloc_on(stream, 8 * MIB), *again;
        assert_ok(tarn_record_stream(block, user));
        begin(user, (enum how)how);
        uint64_t records = ledger_of(0).calls[DRIVER_CALL_event_record];
        assert_ok(tarn_free(block));
        assert_int_equal(ledger_of(0).calls[DRIVER_CALL_event_record], records);
        again = alloc_on(stream, 8 * MIB);
        assert_ptr_not_equal(again, block);
        assert_ok(tarn_free(again));
        void *graph = end(user, (enum how)how);
        /* What the user does until the mark counts too */
        assert_ok(tarn_host_work(0, native_of(user), NULL, 0, 1000));
        unsigned char *first = alloc_on(stream, 8 * MIB), *second = alloc_on(stream, 9 * MIB);
        assert_ptr_not_equal(first, block);
        assert_ptr_not_equal(second, block);
        assert_ok(tarn_stream_synchronize(user));
        assert_ok(tarn_free(first));
        assert_ok(tarn_free(second));
        assert_ok(tarn_device_trim(0, 0));
        assert_int_equal(ledger_of(0).created, 0);
        assert_ok(tarn_host_graph_destroy(graph));
        assert_ok(tarn_stream_return(stream));
        assert_ok(tarn_stream_return(user));
    }
}

static void what_a_capturing_stream_freed_serves_it_alone(void **state)
{
    (void)state;
    for (int how = 0; how < HOWS; how++) {
        tarn_stream stream = lease(), other = lease();
        unsigned char *block = alloc_on(stream, 200 * MIB);
        void *large = NULL;
        begin(stream, (enum how)how);
        assert_ok(tarn_free(block));
        assert_status(tarn_alloc_on(other, 100 * MIB, &large), TARN_ERROR_OUT_OF_MEMORY);
        if (how != UNKNOWN)
            assert_non_null(strstr(tarn_last_error(), "open capture"));
        unsigned char *again = alloc_on(stream, 200 * MIB);
        assert_ptr_equal(again, block); /* in order */
        assert_ok(tarn_free(again));
        assert_ok(tarn_host_graph_destroy(end(stream, (enum how)how)));
        assert_ok(tarn_alloc_on(other, 100 * MIB, &large));
        assert_ok(tarn_free(large));
        assert_ok(tarn_device_trim(0, 0));
        assert_ok(tarn_stream_return(stream));
        assert_ok(tarn_stream_return(other));
    }
}

/* The ladder's last step waits for an event of before, which harms no capture. */
static void running_out_waits_for_work_outside(void **state)
{
    (void)state;
    tarn_stream stream = lease(), other = lease();
    unsigned char *block = alloc_on(other, 200 * MIB);
    begin(stream, BY_TARN);
    assert_ok(tarn_host_work(0, native_of(other), block, 200 * MIB, 5000));
    assert_ok(tarn_free(block));
    uint64_t start = time_now();
    block = alloc_on(stream, 150 * MIB);
    assert_true(time_now() >= start + 5000);
    assert_ok(tarn_free(block));
    assert_ok(tarn_host_graph_destroy(end(stream, BY_TARN)));
    assert_ok(tarn_device_trim(0, 0));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
}

/* One block waits for a stream that captures; the next can be waited for, and is. */
static void capture_nothing(tarn_pool *pool, tarn_stream stream)
{
    void *graph = NULL;
    assert_ok(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(tarn_host_graph_destroy(graph));
}

/* A mark for it is recorded before the capture begins, also if an earlier capture found nothing
 * that needed one. */
static void what_was_freed_before_a_capture_into_a_pool_serves_others(void **state)
{
    (void)state;
    tarn_stream stream = lease(), other = lease();
    tarn_pool *pool = NULL;
    void *graph = NULL;
    assert_ok(tarn_pool_create(NULL, &pool));
    for (int round = 0; round < 6; round++) {
        assert_ok(tarn_free(alloc_on(stream, 150 * MIB)));
        for (int captures = round % 3; captures > 0; captures--)
            capture_nothing(pool, stream);
        for (int times = round / 3; times >= 0; times--)
            assert_ok(tarn_free(alloc_on(stream, 150 * MIB)));
        assert_ok(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        assert_ok(tarn_free(alloc_on(other, 200 * MIB)));
        verify();
        assert_ok(tarn_capture_end(stream, &graph));
        assert_ok(tarn_host_graph_destroy(graph));
    }
    assert_ok(tarn_pool_release(pool));
}

static void a_block_that_cannot_be_waited_for_holds_up_no_other(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) { /* in which the two are freed */
        tarn_stream stream = lease(), captured = lease(), busy = lease();
        unsigned char *blocks[2] = {alloc_on(stream, 30 * MIB), alloc_on(stream, 200 * MIB)};
        assert_ok(tarn_record_stream(blocks[0], captured));
        assert_ok(tarn_record_stream(blocks[1], busy));
        begin(captured, BY_TARN);
        assert_ok(tarn_host_work(0, native_of(busy), blocks[1], 200 * MIB, 700));
        assert_ok(tarn_free(blocks[order]));
        assert_ok(tarn_free(blocks[!order]));
        assert_ok(tarn_free(alloc_on(stream, 200 * MIB)));
        assert_ok(tarn_host_graph_destroy(end(captured, BY_TARN)));
        assert_ok(tarn_device_trim(0, 0));
        assert_ok(tarn_stream_return(stream));
        assert_ok(tarn_stream_return(captured));
        assert_ok(tarn_stream_return(busy));
    }
}

static void a_captured_event_frees_nothing(void **state)
{
    (void)state;
    tarn_stream stream = lease(), other = lease();
    tarn_event *event;
    assert_ok(tarn_event_create(0, &event));
    unsigned char *block = alloc_on(other, 5000);
    begin(stream, BY_TARN);
    assert_ok(tarn_event_record(event, stream));
    assert_refused(tarn_free_after(block, event), TARN_ERROR_CAPTURE, "recorded in a capture");
    size_t size;
    assert_ok(tarn_usable_size_get(block, &size)); /* it is live */
    assert_ok(tarn_host_graph_destroy(end(stream, BY_TARN)));
    assert_status(tarn_free_after(block, event), TARN_ERROR_CAPTURE);
    assert_ok(tarn_event_record(event, other));
    assert_ok(tarn_free_after(block, event));
    assert_ok(tarn_event_destroy(event));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
}

static void a_stream_that_captures_is_not_retired(void **state)
{
    (void)state;
    driver_stream native = new_stream(0, false);
    tarn_stream stream;
    assert_ok(tarn_stream_adopt(0, native, &stream));
    unsigned char *block = alloc_on(stream, 3 * MIB);
    for (int how = 0; how < HOWS; how++) {
        begin(stream, (enum how)how);
        assert_refused(tarn_stream_retire(stream), TARN_ERROR_CAPTURE, "captures");
        assert_ok(tarn_free(block));
        block = alloc_on(stream, 3 * MIB);
        assert_ok(tarn_host_graph_destroy(end(stream, (enum how)how)));
    }
    assert_ok(tarn_stream_retire(stream));
    assert_ok(tarn_free(block));
    assert_ok(tarn_device_trim(0, 0));
    assert_int_equal(ledger_of(0).created, 0);
    assert_ok(driver->stream_destroy(0, native));
}

static void a_refused_trim_gives_nothing_back(void **state)
{
    (void)state;
    tarn_stream stream = lease();
    assert_ok(tarn_free(alloc_on(stream, 50 * MIB)));
    uint64_t created = ledger_of(0).created;
    assert_true(created > 0);
    begin(stream, BY_TARN);
    assert_refused(tarn_device_trim(0, 0), TARN_ERROR_CAPTURE, "captures are open");
    assert_int_equal(ledger_of(0).created, created);
    assert_ok(tarn_capture_abort(stream));
    assert_ok(tarn_device_trim(0, 0));
    assert_int_equal(ledger_of(0).created, 0);
    assert_ok(tarn_stream_return(stream));
}

/* Any driver call that fails while a capture is open leaves it, and the heaps, whole. */
static void failures_while_a_stream_captures_are_clean(void **state)
{
    (void)state;
    tarn_stream stream = lease(), other = lease();
    for (int kind = 0; kind < DRIVER_CALLS; kind++)
        for (uint64_t nth = 1; nth <= 3; nth++) {
            unsigned char *block = alloc_on(stream, 3 * MIB);
            void *fresh[4] = {0};
            begin(stream, BY_TARN);
            assert_ok(tarn_record_stream(block, other));
            assert_ok(tarn_host_fail_set(kind, nth, false, TARN_ERROR_DRIVER));
            for (int i = 0; i < 4; i++) {
                tarn_status status =
                    tarn_alloc_on(i % 2 ? stream : other, (size_t)(i + 1) * 9 * MIB, &fresh[i]);
                assert_true(status == TARN_OK || status == TARN_ERROR_DRIVER);
            }
            assert_ok(tarn_free(block));
            for (int i = 0; i < 4; i++)
                assert_ok(tarn_free(fresh[i]));
            assert_ok(tarn_host_fail_set(-1, 0, false, TARN_OK));
            assert_ok(tarn_host_graph_destroy(end(stream, BY_TARN)));
            verify();
            assert_ok(tarn_device_trim(0, 0));
            assert_int_equal(ledger_of(0).created, 0);
        }
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
}

int main(void)
{
    const tarn_host_configuration config = {.size = sizeof config, .devices = 1, .memory = MEMORY};
    int count;
    if (tarn_host_configuration_set(&config) || tarn_device_count_get(&count))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_survives_what_its_thread_does),
        cmocka_unit_test(a_capture_survives_calls_of_another_thread),
        cmocka_unit_test(a_block_used_by_a_capturing_stream_waits_for_its_end),
        cmocka_unit_test(what_a_capturing_stream_freed_serves_it_alone),
        cmocka_unit_test(running_out_waits_for_work_outside),
        cmocka_unit_test(what_was_freed_before_a_capture_into_a_pool_serves_others),
        cmocka_unit_test(a_block_that_cannot_be_waited_for_holds_up_no_other),
        cmocka_unit_test(a_captured_event_frees_nothing),
        cmocka_unit_test(a_stream_that_captures_is_not_retired),
        cmocka_unit_test(a_refused_trim_gives_nothing_back),
        cmocka_unit_test(failures_while_a_stream_captures_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
