/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Found streams, on the simulated libcuda, which as the real one uses a destroyed stream's pointer
 * again at once while its work still runs: tarn_stream_find() must tell the two apart, and tarn
 * must not name the first to the driver again. */
#include "device/native.h"
#include "device/stream.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)
#define MS ((uint64_t)1000000)

static tarn_stream find(void *native)
{
    tarn_stream stream = 0;
    OK(tarn_stream_find(0, native, &stream));
    return stream;
}

static void destroy(void *native)
{
    OK(driver->stream_destroy(0, native));
}

/* A stream whose pointer is that of one that was destroyed with `ns` of work queued. */
static void *reused(void *before)
{
    destroy(before);
    void *native = native_made(0);
    CHECK(native == before); /* else the simulated library shows nothing */
    return native;
}

static uint64_t records(void)
{
    return calls_of(0, "event_record");
}

/* ---- Identity ---- */

static void a_stream_is_found_again_without_a_count(void **state)
{
    (void)state;
    void *native = native_made(0);
    tarn_stream stream = find(native), other = 77;
    uint64_t numbers = calls_of(0, "stream_number"), questions = calls_of(0, "capture_status");
    for (int i = 0; i < 100; i++)
        CHECK(find(native) == stream);
    CHECK(calls_of(0, "stream_number") == numbers + 100 &&
          calls_of(0, "capture_status") == questions + 100);
    CHECK(native_of(stream) == native);
    GIVES(tarn_stream_find(1, native, &other), TARN_ERROR_INVALID_STREAM); /* of another device */
    GIVES(tarn_stream_find(9, native, &other), TARN_ERROR_INVALID_DEVICE);
    GIVES(tarn_stream_find(0, native, NULL), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(other == 77);
    OK(tarn_stream_retire(stream));
    GIVES(tarn_stream_retire(stream), TARN_ERROR_INVALID_STREAM);
    CHECK(find(native) != stream);
    OK(tarn_stream_retire(find(native)));
    destroy(native);
}

/* Its number cannot be asked for then: that would end the capture. */
static void a_stream_that_captures_is_found_and_captures_on(void **state)
{
    (void)state;
    void *native = native_made(0), *unseen = native_made(0), *block = NULL, *other = NULL;
    void *graph = NULL;
    tarn_stream stream = find(native);
    CHECK(!driver->capture_begin(0, native, DRIVER_CAPTURE_GLOBAL));
    CHECK(find(native) == stream);
    OK(tarn_alloc_on(stream, 3000, &block));
    OK(tarn_free(block));
    CHECK(!driver->capture_end(0, native, &graph) && graph);
    CHECK(!driver->graph_destroy(0, graph));
    CHECK(find(native) == stream);

    /* One that was never seen before. */
    CHECK(!driver->capture_begin(0, unseen, DRIVER_CAPTURE_GLOBAL));
    tarn_stream first = find(unseen);
    CHECK(first != stream && find(unseen) == first && native_of(first) == unseen);
    OK(tarn_alloc_on(first, 3000, &other));
    OK(tarn_free(other));
    CHECK(!driver->capture_end(0, unseen, &graph) && graph);
    CHECK(!driver->graph_destroy(0, graph));
    CHECK(find(unseen) == first); /* and now its number is known */
    destroy(unseen);
    OK(tarn_stream_retire(stream));
    destroy(native);
}

/* Where the driver does not say whether a stream captures, it is not asked what would end the
 * capture. */
static void a_find_that_fails_leaves_the_capture(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 4; nth++) {
        tarn_capture_state now = TARN_CAPTURE_NONE;
        tarn_stream found = 0;
        void *native = native_made(0), *graph = NULL;
        tarn_stream stream = find(native);
        OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        (machine->fail)(nth, false, 304);
        tarn_status status = tarn_stream_find(0, native, &found);
        bool failed = machine->fail_hits() > 0;
        (machine->fail)(0, false, 0);
        CHECK(status == TARN_OK || (failed && status == TARN_ERROR_DRIVER));
        CHECK(nth > 1 || failed);
        OK(tarn_capture_state_get(stream, &now, NULL, NULL));
        CHECK(now == TARN_CAPTURE_ACTIVE);
        OK(tarn_capture_end(stream, &graph));
        CHECK(!driver->graph_destroy(0, graph));
        OK(tarn_stream_retire(stream));
        destroy(native);
    }
}

static void constants_are_what_adopting_gives(void **state)
{
    (void)state;
    tarn_stream adopted = 0;
    for (uintptr_t constant = 0; constant < 3; constant++) {
        OK(tarn_stream_adopt(0, (void *)constant, &adopted));
        CHECK(find((void *)constant) == adopted);
    }
    GIVES(tarn_stream_retire(find(NULL)), TARN_OK);
}

static void a_stream_of_tarns_own_is_found_as_what_it_is(void **state)
{
    (void)state;
    tarn_stream leased = lease(0), shared = 0, adopted = 0, stream = 77;
    OK(tarn_stream_shared_get(0, 0, &shared));
    CHECK(find(native_of(leased)) == leased && find(native_of(shared)) == shared);
    OK(tarn_stream_adopt(0, native_of(leased), &adopted));
    CHECK(adopted == leased);
    OK(tarn_stream_retire(adopted));
    GIVES(tarn_stream_retire(adopted), TARN_ERROR_INVALID_ARGUMENT); /* once for each time */
    GIVES(tarn_stream_retire(shared), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_stream_adopt(0, native_of(leased), &adopted)); /* ends with the lease */
    void *native = native_of(leased);
    OK(tarn_stream_return(leased));
    GIVES(tarn_stream_retire(adopted), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_find(0, native, &stream), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_adopt(0, native, &stream), TARN_ERROR_INVALID_STREAM);
    leased = lease(0);
    CHECK(stream == 77 && native_of(leased) == native && find(native) == leased);
    GIVES(tarn_stream_retire(leased), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_stream_return(leased));
}

static void an_adoption_and_a_find_are_one_stream(void **state)
{
    (void)state;
    void *native = native_made(0);
    tarn_stream stream = find(native), adopted = 0;
    OK(tarn_stream_adopt(0, native, &adopted));
    CHECK(adopted == stream && find(native) == stream);
    OK(tarn_stream_retire(adopted)); /* the adopter says that it goes */
    GIVES(tarn_stream_query(stream), TARN_ERROR_INVALID_STREAM);
    destroy(native);
}

static void a_reused_pointer_is_another_stream(void **state)
{
    (void)state;
    void *native = native_made(0);
    tarn_stream values[100], adopted = 0;
    for (int i = 0; i < 100; i++) {
        values[i] = find(native);
        for (int k = 0; k < i; k++) {
            CHECK(values[k] != values[i]);
            GIVES(tarn_stream_query(values[k]), TARN_ERROR_INVALID_STREAM);
        }
        native = reused(native);
    }
    OK(tarn_stream_adopt(0, native, &adopted)); /* adopting looks at the number too */
    GIVES(tarn_stream_query(values[99]), TARN_ERROR_INVALID_STREAM);
    OK(tarn_stream_query(adopted));
    OK(tarn_stream_retire(adopted));

    values[0] = find(native);
    destroy(native);
    tarn_stream leased = 0;
    OK(tarn_stream_lease(0, -1, &leased)); /* a new stream of tarn, which has the pointer now */
    CHECK(native_of(leased) == native && leased != values[0]);
    GIVES(tarn_stream_query(values[0]), TARN_ERROR_INVALID_STREAM);
    CHECK(find(native) == leased);
    OK(tarn_stream_return(leased));
}

/* ---- Memory ---- */

/* The first stream's work still runs, and its memory waits for it. */
static void memory_of_a_destroyed_stream_waits_for_its_work(void **state)
{
    (void)state;
    for (int trims = 0; trims < 2; trims++) {
        void *native = native_made(0);
        tarn_stream old = find(native), new;
        char *block = alloc_on(old, 100 * MIB);
        work_on(old, block, 100 * MIB, 50 * MS);
        uint64_t start = time_now(), recorded = records();
        OK(tarn_free(block));
        native = reused(native);
        new = find(native);
        CHECK(new != old &&records() == recorded); /* nothing was recorded on what is gone */
        if (trims)
            OK(tarn_device_trim(0, 0));
        void *next = alloc_on(new, 100 * MIB); /* there is no other memory */
        CHECK(time_now() == start + 50 * MS);
        work_on(new, next, 100 * MIB, MS);
        OK(tarn_free(next));
        OK(tarn_stream_retire(new));
        destroy(native);
        nothing_is_left(0);
    }
}

/* A use of a block by a stream that is destroyed before the free. */
static void a_use_of_a_destroyed_stream_is_waited_for(void **state)
{
    (void)state;
    tarn_stream own = lease(0);
    void *native = native_made(0);
    char *block = alloc_on(own, 90 * MIB), *pinned = NULL;
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, (void **)&pinned));
    work_on(find(native), block, 90 * MIB, 30 * MS);
    OK(tarn_record_stream(block, find(native)));
    OK(tarn_record_stream(pinned, find(native)));
    uint64_t start = time_now(), recorded = records();
    native = reused(native);
    OK(tarn_free(block));
    OK(tarn_free(pinned));
    CHECK(records() == recorded);
    block = alloc_on(own, 90 * MIB);
    CHECK(time_now() == start + 30 * MS);
    OK(tarn_free(block));
    OK(tarn_pinned_trim(0));
    OK(tarn_stream_return(own));
    destroy(native);
    nothing_is_left(0);
}

/* One event for all that is owed, by a later call that passes the stream. */
static void what_is_owed_is_recorded_by_the_next_find(void **state)
{
    (void)state;
    void *native = native_made(0);
    tarn_stream own = lease(0), stream = find(native);
    void *first = alloc_on(own, 30 * MIB), *second = alloc_on(own, 30 * MIB);
    work_on(stream, first, 30 * MIB, 5 * MS);
    OK(tarn_record_stream(first, stream));
    OK(tarn_record_stream(second, stream));
    uint64_t waits = calls_of(0, "device_synchronize"), recorded = records();
    OK(tarn_free(first));
    OK(tarn_free(second));
    CHECK(records() == recorded);
    CHECK(find(native) == stream && records() == recorded + 1);
    CHECK(find(native) == stream && records() == recorded + 1);
    time_pass(5 * MS);
    void *large = alloc_on(own, 110 * MIB);
    CHECK(calls_of(0, "device_synchronize") == waits);

    /* What was recorded before says nothing of what comes later. */
    work_on(stream, large, 110 * MIB, 5 * MS);
    OK(tarn_record_stream(large, stream));
    OK(tarn_free(large));
    uint64_t start = time_now();
    large = alloc_on(own, 110 * MIB);
    CHECK(time_now() == start + 5 * MS && calls_of(0, "device_synchronize") == waits + 1);
    OK(tarn_free(large));
    OK(tarn_stream_retire(stream));
    OK(tarn_stream_return(own));
    destroy(native);
    nothing_is_left(0);
}

/* ---- Captures ---- */

static void nothing_waits_for_a_device_that_captures(void **state)
{
    (void)state;
    void *native = native_made(0), *graph = NULL;
    tarn_stream own = lease(0), captures = lease(0), old = find(native);
    void *block = alloc_on(old, 100 * MIB), *none = NULL;
    work_on(old, block, 1, 3 * MS);
    OK(tarn_free(block));
    native = reused(native);
    OK(tarn_capture_begin(captures, TARN_CAPTURE_GLOBAL));
    CHECK(find(native) != old); /* which is no business of the capture's */
    uint64_t waits = calls_of(0, "device_synchronize");
    GIVES(tarn_alloc_on(own, 100 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!none && calls_of(0, "device_synchronize") == waits);
    OK(tarn_capture_end(captures, &graph));
    OK(machine->graph_destroy(graph));
    block = alloc_on(own, 100 * MIB);
    CHECK(calls_of(0, "device_synchronize") == waits + 1);
    OK(tarn_free(block));
    OK(tarn_stream_retire(find(native)));
    destroy(native);
    OK(tarn_stream_return(own));
    OK(tarn_stream_return(captures));
    nothing_is_left(0);
}

static void a_found_stream_captures_as_any_other(void **state)
{
    (void)state;
    void *native = native_made(0), *graph = NULL;
    tarn_stream stream = find(native), own = lease(0);
    OK(tarn_free(alloc_on(stream, 40 * MIB)));
    OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_GLOBAL));
    CHECK(find(native) == stream); /* asking for its number is allowed */
    void *inside = alloc_on(stream, 10 * MIB), *outside = alloc_on(own, 100 * MIB - 10 * MIB);
    OK(tarn_free(inside));
    OK(tarn_free(outside));
    GIVES(tarn_stream_retire(stream), TARN_ERROR_CAPTURE);
    OK(tarn_capture_end(stream, &graph));
    CHECK(graph && find(native) == stream);
    OK(machine->graph_destroy(graph));
    OK(tarn_stream_retire(stream));
    destroy(native);
    OK(tarn_stream_return(own));
    nothing_is_left(0);
}

/* ---- Threads ---- */

static atomic_bool running;

static void *trims_and_wants(void *argument)
{
    tarn_stream own = lease(0);
    void *block = NULL;
    while (atomic_load(&running)) {
        OK(tarn_device_trim(0, 0));
        if (tarn_alloc_on(own, 60 * MIB, &block) == TARN_OK)
            OK(tarn_free(block));
    }
    OK(tarn_stream_return(own));
    return argument;
}

static void *comes_and_goes(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u;
    void *native = native_made(0), *kept = NULL;
    for (int i = 0; i < 400; i++) {
        tarn_stream stream = find(native);
        void *block = NULL;
        size_t size = random_next(&random) % (8 * MIB);
        if (tarn_alloc_on(stream, size + 1, &block) == TARN_OK) {
            work_on(stream, block, size, random_next(&random) % MS);
            if (kept)
                OK(tarn_free(kept));
            kept = block;
        }
        if (random_next(&random) % 4 == 0) {
            destroy(native);
            native = native_made(0);
        }
        if (random_next(&random) % 8 == 0)
            time_pass(MS / 4);
    }
    OK(tarn_free(kept));
    destroy(native);
    return NULL;
}

/* Streams that come and go beside trims and others who want their memory. The simulated library is
 * asked nothing about what is gone: it would refuse, or answer for another. */
static void streams_come_and_go_beside_trims(void **state)
{
    (void)state;
    pthread_t threads[3], trimmer;
    atomic_store(&running, true);
    assert_int_equal(pthread_create(&trimmer, NULL, trims_and_wants, NULL), 0);
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, comes_and_goes, (void *)(i + 1)), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&running, false);
    assert_int_equal(pthread_join(trimmer, NULL), 0);
    nothing_is_left(0);
}

/* ---- The table ---- */

/* Random entries and removals against a plain array. */
static void the_table_finds_what_is_in_it(void **state)
{
    (void)state;
    enum { STREAMS = 600 };
    static struct stream streams[STREAMS];
    static bool is_in[STREAMS];
    static struct native_table table;
    uint64_t random = 7;
    for (size_t i = 0; i < STREAMS; i++)
        streams[i].native = (driver_stream)(0x7f1200000000 + 72 * i);
    for (int step = 0; step < 20000; step++) {
        size_t i = random_next(&random) % (step < 10000 ? STREAMS : 40);
        if (!is_in[i])
            CHECK(native_enter(&table, &streams[i]));
        else
            native_leave(&table, &streams[i]);
        is_in[i] = !is_in[i];
        size_t looked_for = random_next(&random) % STREAMS;
        CHECK(!!native_find(&table, streams[looked_for].native) == is_in[looked_for]);
    }
    for (size_t i = 0; i < STREAMS; i++)
        CHECK(native_find(&table, streams[i].native) == (is_in[i] ? &streams[i] : NULL));
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(setenv("TARN_DRIVER", "cuda", 1), 0);
    host_start_with(2, MEMORY);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_finds_what_is_in_it),
        cmocka_unit_test(a_stream_is_found_again_without_a_count),
        cmocka_unit_test(a_stream_that_captures_is_found_and_captures_on),
        cmocka_unit_test(a_find_that_fails_leaves_the_capture),
        cmocka_unit_test(constants_are_what_adopting_gives),
        cmocka_unit_test(a_stream_of_tarns_own_is_found_as_what_it_is),
        cmocka_unit_test(an_adoption_and_a_find_are_one_stream),
        cmocka_unit_test(a_reused_pointer_is_another_stream),
        cmocka_unit_test(memory_of_a_destroyed_stream_waits_for_its_work),
        cmocka_unit_test(a_use_of_a_destroyed_stream_is_waited_for),
        cmocka_unit_test(what_is_owed_is_recorded_by_the_next_find),
        cmocka_unit_test(nothing_waits_for_a_device_that_captures),
        cmocka_unit_test(a_found_stream_captures_as_any_other),
        cmocka_unit_test(streams_come_and_go_beside_trims),
    };
    return cmocka_run_group_tests_name("found streams", tests, set_up, NULL);
}
