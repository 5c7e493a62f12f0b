/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A thread begins a capture and ends. Nobody can end the capture then, as long as its stream
 * exists. Once it was aborted and the stream returned, or retired and destroyed, or was a shared
 * one, nothing is barred any more, and the memory of the stream is in no danger. */
#include "support/host.h"

#include "driver/driver.h"
#include "driver/host/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <tarn/sleep.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define LATE_NS UINT64_C(1000000000)

static struct {
    tarn_stream stream;
    tarn_pool *pool; /* of the capture; NULL: none */
    tarn_capture_mode mode;
    enum { BY_TARN, ANNOUNCED, WAYS } way;
} beginning;

static void *begin_and_end(void *unused)
{
    enum driver_capture_mode mode =
        beginning.mode == TARN_CAPTURE_GLOBAL ? DRIVER_CAPTURE_GLOBAL : DRIVER_CAPTURE_THREAD_LOCAL;
    if (beginning.way == ANNOUNCED) {
        OK(tarn_pool_capture_announce(beginning.pool, beginning.stream));
        OK(driver->capture_begin(0, native_of(beginning.stream), mode));
        return unused;
    }
    OK(beginning.pool ? tarn_pool_capture_begin(beginning.pool, beginning.stream, beginning.mode)
                      : tarn_capture_begin(beginning.stream, beginning.mode));
    return unused;
}

static void abandon(tarn_stream stream, tarn_pool *pool, tarn_capture_mode mode, int way)
{
    pthread_t thread;
    beginning.stream = stream;
    beginning.pool = pool;
    beginning.mode = mode;
    beginning.way = way;
    CHECK(pthread_create(&thread, NULL, begin_and_end, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* All that an open capture refuses. */
static void nothing_is_barred(tarn_pool *pool)
{
    size_t gained = 0;
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    OK(tarn_compact(0, SIZE_MAX, &gained));
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_wake());
    OK(tarn_device_trim(0, 0));
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_device_synchronize(0));
}

static void a_returned_stream_bars_nothing(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        tarn_stream stream = lease(0), other = lease(0);
        unsigned char *block = alloc_in(pool, stream, 3 * MIB),
                      *small = alloc_in(pool, stream, 900);
        void *plain = alloc_on(stream, MIB), *freed = alloc_on(stream, 40 * MIB);
        uint64_t start = time_now();
        memset(block, 5, 3 * MIB);
        memset(small, 6, 900);
        work_on(stream, block, 3 * MIB, LATE_NS);
        work_on(stream, freed, 40 * MIB, LATE_NS);
        OK(tarn_free(freed));
        abandon(stream, round & 1 ? pool : NULL,
                round & 2 ? TARN_CAPTURE_GLOBAL : TARN_CAPTURE_THREAD_LOCAL,
                round & 1 && round & 4 ? ANNOUNCED : BY_TARN);
        GIVES(tarn_stream_return(stream), TARN_ERROR_CAPTURE); /* it is still known */
        OK(tarn_capture_abort(stream));
        OK(tarn_stream_return(stream));
        GIVES(tarn_stream_query(stream), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_stream_return(stream), TARN_ERROR_INVALID_STREAM);
        verify(0);
        if (round & 2) { /* what was freed is not given out before the work has ended */
            void *rest = alloc_on(other, 220 * MIB);
            CHECK(time_now() >= start + LATE_NS);
            OK(tarn_free(rest));
        } else {
            OK(tarn_pool_suspend(pool, true));
            CHECK(time_now() >= start + LATE_NS);
            OK(tarn_pool_resume(pool));
        }
        nothing_is_barred(pool);
        CHECK(block[0] == 5 && block[3 * MIB - 1] == 5 && small[899] == 6);
        tarn_stream next = lease(0);
        void *graph = NULL;
        OK(tarn_capture_begin(next, TARN_CAPTURE_GLOBAL));
        OK(tarn_capture_end(next, &graph));
        OK(driver->graph_destroy(0, graph));
        OK(tarn_stream_return(next));
        OK(tarn_free(block));
        OK(tarn_free(small));
        OK(tarn_free(plain));
        OK(tarn_pool_release(pool));
        OK(tarn_stream_return(other));
        nothing_is_left(0);
    }
}

static void an_adopted_stream_is_retired_and_destroyed(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    tarn_stream stream = 0;
    void *native = native_made(0);
    OK(tarn_stream_adopt(0, native, &stream));
    void *block = alloc_in(pool, stream, MIB);
    abandon(stream, NULL, TARN_CAPTURE_GLOBAL, BY_TARN);
    GIVES(tarn_stream_retire(stream), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(stream));
    OK(tarn_stream_retire(stream));
    OK(driver->stream_destroy(0, native));
    nothing_is_barred(pool);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static bool is_hip(void)
{
    return strcmp(driver->name, "hip") == 0;
}

static tarn_stream shared(int priority)
{
    tarn_stream stream = 0;
    OK(tarn_stream_shared_get(0, priority, &stream));
    return stream;
}

/* Each call gives another of the streams that there are, and the one that was aborted is not among
 * them. */
static void go_round(tarn_stream gone)
{
    tarn_stream all[TARN_STREAM_SHARED_COUNT];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < TARN_STREAM_SHARED_COUNT; i++) {
            tarn_stream stream = shared(0);
            CHECK(stream != gone && (!round || stream == all[i]));
            OK(tarn_stream_query(stream));
            all[i] = stream;
        }
}

/* Nobody returns a shared stream, so the abort itself ends it, and others get a fresh one in its
 * place. */
static void a_shared_stream_gets_a_successor(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        tarn_stream stream = shared(0), joined = lease(0);
        unsigned char *block = alloc_in(pool, stream, 3 * MIB);
        void *freed = alloc_on(stream, 40 * MIB);
        uint64_t start = time_now();
        memset(block, 5, 3 * MIB);
        work_on(stream, block, 3 * MIB, LATE_NS);
        work_on(stream, freed, 40 * MIB, LATE_NS);
        OK(tarn_free(freed));
        OK(tarn_stream_set(stream));
        abandon(stream, round & 1 ? pool : NULL,
                round & 2 ? TARN_CAPTURE_GLOBAL : TARN_CAPTURE_THREAD_LOCAL,
                round & 1 && round & 4 ? ANNOUNCED : BY_TARN);
        OK(tarn_capture_abort(stream));
        GIVES(tarn_stream_query(stream), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_capture_abort(stream), TARN_ERROR_INVALID_STREAM);
        tarn_stream current = 0;
        GIVES(tarn_stream_get(0, &current), TARN_ERROR_INVALID_STREAM); /* it was the thread's */
        OK(tarn_stream_set(TARN_STREAM_LEGACY));
        verify(0);
        void *rest = alloc_on(joined, 220 * MIB); /* with what was freed, but not before that work
                                                     has ended */
        CHECK(time_now() >= start + LATE_NS);
        OK(tarn_free(rest));
        nothing_is_barred(pool);
        CHECK(block[0] == 5 && block[3 * MIB - 1] == 5);
        go_round(stream);
        OK(tarn_free(block));
        OK(tarn_pool_release(pool));
        OK(tarn_stream_return(joined));
        nothing_is_left(0);
    }
}

/* A capture whose thread lives is ended by that thread, on a shared stream as on any; and one that
 * is relaxed by any. */
static void a_shared_stream_whose_capture_can_be_ended_stays(void **state)
{
    (void)state;
    tarn_stream stream = shared(0);
    OK(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    OK(tarn_capture_abort(stream));
    OK(tarn_stream_query(stream));
    abandon(stream, NULL, TARN_CAPTURE_RELAXED, BY_TARN);
    OK(tarn_capture_abort(stream));
    OK(tarn_stream_query(stream));
    GIVES(tarn_capture_abort(stream), TARN_ERROR_INVALID_ARGUMENT);
}

/* The end of an invalidated capture fails, and the capture is over. HIP's stream says that it
 * captures all the same. */
static void an_invalidated_capture_bars_nothing(void **state)
{
    (void)state;
    for (int round = 0; round < 8; round++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        bool is_shared = round & 1, unjoined = round & 2;
        tarn_stream stream = is_shared ? shared(0) : lease(0), joins = lease(0);
        void *block = alloc_in(pool, stream, MIB), *graph = NULL;
        driver_event event = NULL;
        OK(round & 4 ? tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_THREAD_LOCAL)
                     : tarn_capture_begin(stream, TARN_CAPTURE_THREAD_LOCAL));
        if (unjoined) {
            OK(driver->event_create(0, &event));
            OK(driver->event_record(0, event, native_of(stream)));
            OK(driver->stream_wait_event(0, native_of(joins), event));
            work_on(joins, block, MIB, 1000);
        } else {
            CHECK(driver->stream_query(0, native_of(stream)) == TARN_ERROR_CAPTURE);
        }
        GIVES(tarn_capture_end(stream, &graph), TARN_ERROR_CAPTURE);
        CHECK(!graph);
        tarn_status status = tarn_capture_abort(stream); /* what a caller does that does not know */
        CHECK(status == (is_shared && is_hip() ? TARN_OK : TARN_ERROR_INVALID_ARGUMENT));
        if (!is_shared)
            OK(tarn_stream_return(stream));
        OK(tarn_stream_return(joins));
        if (event)
            OK(driver->event_destroy(0, event));
        nothing_is_barred(pool);
        OK(tarn_free(block));
        OK(tarn_pool_release(pool));
        nothing_is_left(0);
    }
}

/* What fails on the way can be repeated. */
static void an_abort_on_a_shared_stream_can_be_repeated(void **state)
{
    (void)state;
    uint64_t hits = 1;
    for (uint64_t n = 1; hits; n++) {
        tarn_stream stream = shared(0);
        void *block = alloc_on(stream, MIB);
        abandon(stream, NULL, TARN_CAPTURE_GLOBAL, BY_TARN);
        OK(tarn_host_fail_set(kind_of("event_create"), n, false, TARN_ERROR_DRIVER));
        tarn_status status = tarn_capture_abort(stream);
        hits = host_fail_hits();
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        CHECK(status == (hits ? TARN_ERROR_DRIVER : TARN_OK));
        if (status)
            OK(tarn_capture_abort(stream));
        GIVES(tarn_stream_query(stream), TARN_ERROR_INVALID_STREAM);
        go_round(stream);
        OK(tarn_free(block));
        nothing_is_left(0);
    }
}

/* The lease goes on where the return fails, and can be returned again. */
static void a_return_that_fails_can_be_repeated(void **state)
{
    (void)state;
    uint64_t hits = 1;
    for (uint64_t n = 1; hits; n++) {
        tarn_stream stream = lease(0);
        void *block = alloc_on(stream, MIB);
        abandon(stream, NULL, TARN_CAPTURE_GLOBAL, BY_TARN);
        OK(tarn_capture_abort(stream));
        OK(tarn_host_fail_set(kind_of("event_create"), n, false, TARN_ERROR_DRIVER));
        tarn_status status = tarn_stream_return(stream);
        hits = host_fail_hits();
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        CHECK(status == (hits ? TARN_ERROR_DRIVER : TARN_OK));
        if (status)
            OK(tarn_stream_return(stream));
        OK(tarn_free(block));
        nothing_is_left(0);
    }
}

int main(void)
{
    host_start_with(1, MEMORY);
    OK(tarn_device_set(0));
    bool is_host = strcmp(driver->name, "host") == 0;
    if (is_host)
        OK(tarn_host_check_set(true, NULL, NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_stream_gets_a_successor),
        cmocka_unit_test(an_invalidated_capture_bars_nothing),
        cmocka_unit_test(a_shared_stream_whose_capture_can_be_ended_stays),
        cmocka_unit_test(a_returned_stream_bars_nothing),
        cmocka_unit_test(an_adopted_stream_is_retired_and_destroyed),
    };
    const struct CMUnitTest with_failures[] = {
        cmocka_unit_test(a_return_that_fails_can_be_repeated),
        cmocka_unit_test(an_abort_on_a_shared_stream_can_be_repeated),
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    if (is_host)
        failures += cmocka_run_group_tests(with_failures, NULL, NULL);
    CHECK(!is_host || ledger_of(0).reports == 0);
    return failures;
}
