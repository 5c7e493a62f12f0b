/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Known captures: begin, announce, end, abort, status; their counts; and that each call which would
 * end a capture is refused before the driver hears of it. */
#include "../driver/host_test.h"

#include "base/pages.h"
#include "device/capture.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <tarn/tarn.h>
#include <time.h>

static tarn_stream lease(int device)
{
    tarn_stream stream;
    assert_ok(tarn_stream_lease(device, 0, &stream));
    return stream;
}

static void *native_of(tarn_stream stream)
{
    void *native = NULL;
    assert_ok(tarn_stream_native_get(stream, &native));
    return native;
}

static tarn_capture_state state_of(tarn_stream stream)
{
    tarn_capture_state state;
    assert_ok(tarn_capture_state_get(stream, &state, NULL, NULL));
    return state;
}

/* The capture is whole: its end gives a graph, which can be launched. */
static void assert_survives(tarn_stream stream)
{
    void *graph = NULL;
    assert_int_equal(state_of(stream), TARN_CAPTURE_ACTIVE);
    assert_ok(tarn_capture_end(stream, &graph));
    assert_non_null(graph);
    assert_ok(tarn_host_graph_launch(0, graph, native_of(stream)));
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_stream_synchronize(stream));
    assert_int_equal(state_of(stream), TARN_CAPTURE_NONE);
}

static void a_capture_is_counted_while_it_is_open(void **state)
{
    (void)state;
    tarn_stream a = lease(0), b = lease(1);
    struct device *first = device_at(0), *second = device_at(1);
    uint64_t epoch = capture_epoch();
    assert_true(epoch != 0);
    for (int mode = TARN_CAPTURE_GLOBAL; mode <= TARN_CAPTURE_RELAXED; mode++) {
        assert_ok(tarn_capture_begin(a, (tarn_capture_mode)mode));
        assert_int_equal(captures_open(first), 1);
        assert_int_equal(captures_open(second), 0);
        assert_int_equal(captures_of_thread(first), 1);
        assert_int_equal(captures_of_thread(second), 0);
        assert_true(capture_epoch() > epoch);
        epoch = capture_epoch();
        assert_ok(tarn_capture_announce(b));
        assert_int_equal(captures_open(second), 1);
        assert_int_equal(captures_of_thread(second), 1);
        assert_ok(tarn_capture_end_announced(b, NULL));
        assert_survives(a);
        assert_int_equal(captures_open(first) + captures_open(second), 0);
        assert_true(capture_epoch() > epoch);
        epoch = capture_epoch();
    }
    assert_ok(tarn_stream_return(a));
    assert_ok(tarn_stream_return(b));
}

static void bad_begins_and_ends_are_refused(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *graph = &graph;
    assert_status(tarn_capture_begin(TARN_STREAM_LEGACY, TARN_CAPTURE_GLOBAL),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_begin(TARN_STREAM_PER_THREAD, TARN_CAPTURE_GLOBAL),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_announce(TARN_STREAM_LEGACY), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_begin(stream, (tarn_capture_mode)3), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_begin((tarn_stream)99 << 32 | 5, TARN_CAPTURE_GLOBAL),
                  TARN_ERROR_INVALID_STREAM);
    assert_status(tarn_capture_end(stream, &graph), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_abort(stream), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_state_get(stream, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);

    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_status(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_CAPTURE);
    assert_status(tarn_capture_announce(stream), TARN_ERROR_CAPTURE);
    assert_status(tarn_capture_end(stream, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_capture_end_announced(stream, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(captures_of_thread(device_at(0)), 1);
    assert_ptr_equal(graph, &graph);
    assert_survives(stream);

    assert_ok(tarn_capture_announce(stream));
    uint64_t metadata = pages_bytes();
    for (int i = 0; i < 5000; i++)
        assert_status(tarn_capture_announce(stream), TARN_ERROR_CAPTURE);
    assert_true(pages_bytes() <= metadata + 65536); /* nothing is left of the others */
    assert_status(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_CAPTURE);
    assert_status(tarn_capture_end(stream, &graph), TARN_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(graph, &graph);
    assert_ok(tarn_capture_end_announced(stream, NULL));
    assert_status(tarn_capture_end_announced(stream, NULL), TARN_ERROR_INVALID_ARGUMENT);

    assert_ok(driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_GLOBAL)); /* unknown */
    assert_status(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_CAPTURE);
    assert_status(tarn_capture_end(stream, &graph), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(captures_of_thread(device_at(0)), 0);
    assert_ok(driver->capture_end(0, native_of(stream), &graph));
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_stream_return(stream));
}

static void status_is_the_drivers(void **state)
{
    (void)state;
    tarn_stream a = lease(0), b = lease(0);
    tarn_capture_state found;
    uint64_t id = 0, other = 0;
    tarn_event *event;
    assert_ok(tarn_event_create(0, &event));
    assert_ok(tarn_capture_begin(a, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_event_record(event, a));
    assert_ok(tarn_stream_wait(b, event));
    assert_ok(tarn_capture_state_get(a, &found, &id, NULL));
    assert_int_equal(found, TARN_CAPTURE_ACTIVE);
    assert_ok(tarn_capture_state_get(b, &found, &other, NULL));
    assert_int_equal(found, TARN_CAPTURE_ACTIVE);
    assert_int_equal(id, other);
    /* The caller's own mistake */
    assert_status(driver->stream_query(0, native_of(b)), TARN_ERROR_CAPTURE);
    assert_int_equal(state_of(a), TARN_CAPTURE_INVALIDATED);
    assert_ok(tarn_capture_abort(a));
    assert_int_equal(state_of(a), TARN_CAPTURE_NONE);
    assert_ok(tarn_event_destroy(event));
    assert_ok(tarn_stream_return(a));
    assert_ok(tarn_stream_return(b));
}

static void an_abort_ends_it_and_leaves_nothing(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    uint64_t graphs = ledger_of(0).graphs;
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_host_work(0, native_of(stream), NULL, 0, 100));
    assert_ok(tarn_capture_abort(stream));
    assert_int_equal(ledger_of(0).graphs, graphs);
    assert_int_equal(captures_open(device_at(0)), 0);
    assert_ok(tarn_stream_query(stream));
    assert_ok(tarn_stream_return(stream));
}

static void an_invalidated_capture_is_over_with_its_end(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *graph = &graph;
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_status(driver->device_synchronize(0), TARN_ERROR_CAPTURE);
    assert_refused(tarn_capture_end(stream, &graph), TARN_ERROR_CAPTURE, "901");
    assert_ptr_equal(graph, &graph);
    assert_int_equal(captures_open(device_at(0)), 0);
    assert_ok(tarn_stream_return(stream));
}

/* A driver that fails to begin, or to end, leaves the table true. */
static void a_failing_driver_leaves_the_table_true(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    void *graph = NULL;
    static const enum driver_call kinds[] = {DRIVER_CALL_capture_begin, DRIVER_CALL_capture_status};
    for (int i = 0; i < 2; i++) {
        assert_ok(tarn_host_fail_set((int)kinds[i], 1, false, TARN_ERROR_DRIVER));
        assert_status(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_DRIVER);
        assert_int_equal(captures_open(device_at(0)), 0);
    }
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_host_fail_set(DRIVER_CALL_capture_end, 1, false, TARN_ERROR_DRIVER));
    assert_status(tarn_capture_end(stream, &graph), TARN_ERROR_DRIVER);
    assert_int_equal(captures_open(device_at(0)), 1);
    assert_survives(stream);
    assert_ok(tarn_stream_return(stream));
}

static void *end_run(void *argument)
{
    void *graph = NULL;
    tarn_status status = tarn_capture_end(*(tarn_stream *)argument, &graph);
    if (graph)
        tarn_host_graph_destroy(graph);
    return (void *)(uintptr_t)status;
}

static tarn_status ended_elsewhere(tarn_stream stream)
{
    pthread_t thread;
    void *status;
    assert_int_equal(pthread_create(&thread, NULL, end_run, &stream), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    return (tarn_status)(uintptr_t)status;
}

static void *begin_run(void *stream)
{
    return (void *)(uintptr_t)tarn_capture_begin(*(tarn_stream *)stream, TARN_CAPTURE_RELAXED);
}

/* What a thread counts for itself, while a capture that another one began is open and after it has
 * ended. */
static void *count_run(void *barrier)
{
    (void)thread_self();
    uintptr_t open = (uintptr_t)captures_of_thread(device_at(0));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return (void *)(open + (uintptr_t)captures_of_thread(device_at(0)));
}

static void who_may_end_a_capture_follows_its_mode(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    uint64_t ends = ledger_of(0).calls[DRIVER_CALL_capture_end];
    assert_status(ended_elsewhere(stream), TARN_ERROR_CAPTURE);
    /* A driver might end it all the same */
    assert_int_equal(ledger_of(0).calls[DRIVER_CALL_capture_end], ends);
    assert_survives(stream);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    assert_ok(ended_elsewhere(stream));
    assert_int_equal(captures_of_thread(device_at(0)), 0);

    pthread_t thread; /* that ends with its capture open */
    assert_int_equal(pthread_create(&thread, NULL, begin_run, &stream), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(captures_open(device_at(0)), 1);
    assert_int_equal(captures_of_thread(device_at(0)), 0);
    void *left = NULL;
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    /* Takes what the other thread was */
    assert_int_equal(pthread_create(&thread, NULL, count_run, &barrier), 0);
    pthread_barrier_wait(&barrier);
    assert_survives(stream);
    tarn_stream other = lease(0); /* whose capture it counts beside */
    assert_ok(tarn_capture_begin(other, TARN_CAPTURE_RELAXED));
    pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, &left), 0);
    assert_int_equal((uintptr_t)left, 0);
    assert_ok(tarn_capture_abort(other));
    pthread_barrier_destroy(&barrier);
    assert_ok(tarn_stream_return(other));
    assert_ok(tarn_stream_return(stream));
}

static void *end_later(void *stream)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    return end_run(stream);
}

static void a_wait_for_captures_has_a_limit(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    pthread_t thread;
    assert_true(captures_wait(device_at(0), 0, NULL, 0));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    assert_true(captures_wait(device_at(1), 0, NULL, 0));
    assert_false(captures_wait(device_at(0), 0, NULL, 0));
    assert_false(captures_wait(device_at(0), 5000000, NULL, 0));
    assert_int_equal(pthread_create(&thread, NULL, end_later, &stream), 0);
    assert_true(captures_wait(device_at(0), UINT64_MAX, NULL, 0));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_ok(tarn_stream_return(stream));
}

/* Each call that would end a capture on a device is refused, whoever began it, and the capture
 * lives. */
static void what_would_end_a_capture_is_refused(void **state)
{
    (void)state;
    tarn_stream stream, outside = lease(0), other = lease(0);
    tarn_event *event, *inside, *of_other;
    void *graph;
    assert_ok(tarn_event_create(0, &event));
    assert_ok(tarn_event_create(0, &inside));
    assert_ok(tarn_event_create(0, &of_other));
    for (int known = 0; known < 2; known++) {
        assert_ok(tarn_event_record(event, outside));
        assert_ok(tarn_stream_adopt(0, new_stream(0, false), &stream));
        if (known)
            assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        else
            assert_ok(driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_GLOBAL));
        assert_ok(tarn_capture_begin(other, TARN_CAPTURE_GLOBAL));
        assert_ok(tarn_event_record(inside, stream));
        assert_ok(tarn_event_record(of_other, other));

        assert_refused(tarn_stream_query(stream), TARN_ERROR_CAPTURE, "captures");
        assert_refused(tarn_stream_synchronize(stream), TARN_ERROR_CAPTURE, "captures");
        assert_refused(tarn_device_synchronize(0), TARN_ERROR_CAPTURE, "captures are open");
        assert_refused(tarn_shutdown(), TARN_ERROR_CAPTURE, "captures are open");
        assert_refused(tarn_event_query(inside), TARN_ERROR_CAPTURE, "recorded in a capture");
        assert_refused(tarn_event_synchronize(inside), TARN_ERROR_CAPTURE, "recorded in a capture");
        assert_refused(tarn_stream_wait(stream, event), TARN_ERROR_CAPTURE, "outside its capture");
        assert_refused(tarn_stream_wait(stream, of_other), TARN_ERROR_CAPTURE, "another capture");
        assert_refused(tarn_stream_wait(TARN_STREAM_LEGACY, inside), TARN_ERROR_CAPTURE, "legacy");
        assert_refused(tarn_stream_retire(stream), TARN_ERROR_CAPTURE, "captures");
        assert_refused(tarn_stream_return(stream), TARN_ERROR_CAPTURE, "captures");
        assert_ok(tarn_event_query(event));
        assert_ok(tarn_event_synchronize(event));
        assert_ok(tarn_stream_query(outside));
        assert_ok(tarn_stream_synchronize(outside));

        assert_survives(other);
        assert_int_equal(state_of(stream), TARN_CAPTURE_ACTIVE);
        if (known) {
            assert_survives(stream);
        } else {
            assert_ok(driver->capture_end(0, native_of(stream), &graph));
            assert_ok(tarn_host_graph_destroy(graph));
        }
        assert_refused(tarn_event_query(inside), TARN_ERROR_CAPTURE, "recorded in a capture");
        assert_ok(tarn_event_record(inside, stream));
        assert_ok(tarn_event_synchronize(inside));
        assert_ok(tarn_stream_retire(stream));
    }
    assert_ok(tarn_event_destroy(event));
    assert_ok(tarn_event_destroy(inside));
    assert_ok(tarn_event_destroy(of_other));
}

/* The per-thread default stream is blocking: while one captures, the legacy stream is not to be
 * touched. */
static void the_legacy_stream_is_left_alone_beside_a_blocking_capture(void **state)
{
    (void)state;
    tarn_event *event;
    driver_stream native = new_stream(0, true);
    tarn_stream stream;
    assert_ok(tarn_event_create(0, &event));
    assert_ok(tarn_stream_adopt(0, native, &stream));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_THREAD_LOCAL));
    assert_refused(tarn_stream_query(TARN_STREAM_LEGACY), TARN_ERROR_CAPTURE, "legacy");
    assert_refused(tarn_stream_synchronize(TARN_STREAM_LEGACY), TARN_ERROR_CAPTURE, "legacy");
    assert_refused(tarn_event_record(event, TARN_STREAM_LEGACY), TARN_ERROR_CAPTURE, "legacy");
    struct stream *legacy;
    struct mark *mark = NULL;
    assert_ok(stream_find(TARN_STREAM_LEGACY, 0, &legacy));
    assert_true(stream_captures(legacy));
    assert_status(mark_record(legacy, &mark), TARN_ERROR_CAPTURE);
    assert_survives(stream);
    assert_false(stream_captures(legacy));
    assert_ok(tarn_stream_retire(stream));
    assert_ok(driver->stream_destroy(0, native));
    assert_ok(tarn_event_destroy(event));
}

static void marks_leave_captures_alone(void **state)
{
    (void)state;
    tarn_stream value = lease(0);
    struct stream *stream;
    struct mark *mark = NULL, *before = NULL;
    void *graph;
    assert_ok(stream_find(value, 0, &stream));
    assert_ok(mark_record(stream, &before));
    uint64_t records = ledger_of(0).calls[DRIVER_CALL_event_record];
    assert_status(tarn_device_get(NULL), TARN_ERROR_INVALID_ARGUMENT);
    const char *last = tarn_last_error();
    char text[256];
    snprintf(text, sizeof text, "%s", last);

    assert_ok(tarn_capture_announce(value)); /* not begun yet: the driver would say no */
    assert_status(mark_record(stream, &mark), TARN_ERROR_CAPTURE);
    assert_ok(tarn_capture_end_announced(value, NULL));
    assert_ok(driver->capture_begin(0, native_of(value), DRIVER_CAPTURE_GLOBAL)); /* unknown */
    assert_status(mark_record(stream, &mark), TARN_ERROR_CAPTURE);
    assert_true(stream_captures(stream));
    assert_ok(mark_query(before)); /* recorded outside */
    assert_ok(driver->capture_end(0, native_of(value), &graph));
    assert_int_equal(ledger_of(0).calls[DRIVER_CALL_event_record], records);
    assert_string_equal(tarn_last_error(), text);
    assert_null(mark);
    assert_ok(mark_record(stream, &mark));
    assert_ok(mark_query(mark));
    mark_release(mark);
    mark_release(before);
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_stream_return(value));
}

/* A record that a capture which tarn does not know gets, since it begins after the question. */
static tarn_status record_captured(int device, driver_event event, driver_stream stream)
{
    driver_graph graph = NULL;
    tarn_status status = driver_host.capture_begin(device, stream, DRIVER_CAPTURE_RELAXED);
    if (!status)
        status = driver_host.event_record(device, event, stream);
    if (!status)
        status = driver_host.capture_end(device, stream, &graph);
    return status ? status : driver_host.graph_destroy(device, graph);
}

static void an_event_that_a_capture_took_is_recorded_anew(void **state)
{
    (void)state;
    tarn_stream value = lease(0);
    struct stream *stream;
    struct mark *mark = NULL;
    struct driver hooked = driver_host;
    hooked.event_record = record_captured;
    assert_ok(stream_find(value, 0, &stream));
    driver = &hooked;
    tarn_status status = mark_record(stream, &mark);
    driver = &driver_host;
    assert_ok(status);
    assert_ok(tarn_host_work(0, stream->native, NULL, 0, 100));
    assert_status(mark_query(mark), TARN_ERROR_NOT_READY);
    assert_status(mark_query(mark), TARN_ERROR_NOT_READY);
    assert_ok(tarn_host_advance(time_now() + 100));
    assert_ok(mark_query(mark));
    mark_release(mark);
    assert_ok(tarn_stream_return(value));
}

/* A record during which another thread tries to begin a known capture. */
static tarn_stream wanted;
static atomic_bool begun, seen;

static void *begin_wanted(void *argument)
{
    atomic_store(&begun, tarn_capture_begin(wanted, TARN_CAPTURE_RELAXED) == TARN_OK);
    return argument;
}

static pthread_t beginner;

static tarn_status record_slowly(int device, driver_event event, driver_stream stream)
{
    const struct timespec moment = {.tv_nsec = 20000000};
    if (pthread_create(&beginner, NULL, begin_wanted, NULL))
        return TARN_ERROR_OUT_OF_HOST_MEMORY;
    nanosleep(&moment, NULL);
    atomic_store(&seen, atomic_load(&begun));
    return driver_host.event_record(device, event, stream);
}

static void a_known_capture_begins_before_a_record_or_after_it(void **state)
{
    (void)state;
    struct stream *stream;
    struct mark *mark = NULL;
    struct driver hooked = driver_host;
    hooked.event_record = record_slowly;
    wanted = lease(0);
    assert_ok(stream_find(wanted, 0, &stream));
    driver = &hooked;
    tarn_status status = mark_record(stream, &mark);
    pthread_join(beginner, NULL);
    driver = &driver_host;
    assert_ok(status);
    assert_false(atomic_load(&seen));
    assert_ok(mark_query(mark));
    mark_release(mark);
    assert_survives(wanted);
    assert_ok(tarn_stream_return(wanted));
}

/* Threads that begin, record and end at once: no mark of ours ever lands in a known capture. */
#define ROUNDS 300
static atomic_bool stop;

static void *mark_storm(void *argument)
{
    struct stream *stream = argument;
    uintptr_t wrong = 0;
    while (!atomic_load(&stop)) {
        struct mark *mark = NULL;
        tarn_status status = mark_record(stream, &mark);
        if (status == TARN_ERROR_CAPTURE)
            continue;
        wrong += status != TARN_OK || mark_query(mark) == TARN_ERROR_CAPTURE;
        mark_release(mark);
    }
    return (void *)wrong;
}

static void a_known_capture_survives_a_storm_of_marks(void **state)
{
    (void)state;
    tarn_stream value = lease(0);
    struct stream *stream;
    pthread_t thread;
    void *wrong, *graph;
    assert_ok(stream_find(value, 0, &stream));
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, mark_storm, stream), 0);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2) {
            assert_ok(tarn_capture_begin(value, TARN_CAPTURE_GLOBAL));
            assert_ok(tarn_capture_end(value, &graph));
        } else {
            assert_ok(tarn_capture_announce(value));
            assert_ok(driver->capture_begin(0, native_of(value), DRIVER_CAPTURE_GLOBAL));
            assert_ok(driver->capture_end(0, native_of(value), &graph));
            assert_ok(tarn_capture_end_announced(value, graph));
        }
        assert_ok(tarn_host_graph_destroy(graph));
    }
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_int_equal((uintptr_t)wrong, 0);
    assert_ok(tarn_stream_return(value));
}

static sem_t go_on; /* of work that takes its time */

static void wait_to_go_on(void *argument)
{
    sem_wait(argument);
}

static void *wait_for_device(void *argument)
{
    (void)argument;
    return (void *)(uintptr_t)tarn_device_synchronize(0);
}

/* Work of a stream that tarn does not know is what the driver's own wait is for. */
static void no_capture_begins_in_a_wait_for_its_device(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    driver_stream unknown = NULL;
    pthread_t thread;
    void *status = NULL;
    sem_init(&go_on, 0, 0);
    assert_ok(driver->stream_create(0, 0, false, &unknown));
    assert_ok(tarn_host_call(0, unknown, wait_to_go_on, &go_on));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_device, NULL), 0);
    while (!captures_are_barred(0))
        sched_yield();
    assert_refused(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_BUSY, "waited for");
    sem_post(&go_on);
    assert_int_equal(pthread_join(thread, &status), 0);
    assert_int_equal((uintptr_t)status, 0);
    assert_ok(driver->stream_destroy(0, unknown));
    assert_ok(tarn_stream_return(stream));
    sem_destroy(&go_on);
}

int main(void)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = 2, .memory = 64 * MIB};
    int count;
    if (tarn_host_configuration_set(&config) || tarn_device_count_get(&count))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_is_counted_while_it_is_open),
        cmocka_unit_test(bad_begins_and_ends_are_refused),
        cmocka_unit_test(status_is_the_drivers),
        cmocka_unit_test(an_abort_ends_it_and_leaves_nothing),
        cmocka_unit_test(an_invalidated_capture_is_over_with_its_end),
        cmocka_unit_test(a_failing_driver_leaves_the_table_true),
        cmocka_unit_test(who_may_end_a_capture_follows_its_mode),
        cmocka_unit_test(a_wait_for_captures_has_a_limit),
        cmocka_unit_test(what_would_end_a_capture_is_refused),
        cmocka_unit_test(the_legacy_stream_is_left_alone_beside_a_blocking_capture),
        cmocka_unit_test(no_capture_begins_in_a_wait_for_its_device),
        cmocka_unit_test(marks_leave_captures_alone),
        cmocka_unit_test(an_event_that_a_capture_took_is_recorded_anew),
        cmocka_unit_test(a_known_capture_begins_before_a_record_or_after_it),
        cmocka_unit_test(a_known_capture_survives_a_storm_of_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
