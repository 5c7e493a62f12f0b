/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a vendor's driver does as the host device does it: streams and events keep order, copies and
 * fills are work, a capture becomes a graph, dependencies can be replaced, threads use it side by
 * side. */
#ifndef TARN_TESTS_DRIVER_WORK_TEST_H
#define TARN_TESTS_DRIVER_WORK_TEST_H

#include "host_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* A host function that waits until it may end. */
static atomic_bool gate, entered;
static atomic_int order;

static void wait_at_gate(void *argument)
{
    atomic_store(&entered, true);
    while (!atomic_load(&gate))
        usleep(100);
    *(int *)argument = atomic_fetch_add(&order, 1) + 1;
}

static void take_number(void *argument)
{
    *(int *)argument = atomic_fetch_add(&order, 1) + 1;
}

static void streams_and_events_keep_order(void **state)
{
    (void)state;
    int first = 0, second = 0, other = 0;
    atomic_store(&gate, false);
    atomic_store(&order, 0);
    driver_stream a = new_stream(0, false), b = NULL, c = new_stream(1, true);
    /* A priority beyond the range is taken as the greatest */
    assert_ok(driver->stream_create(0, -100, false, &b));
    assert_ok(driver->call(0, a, wait_at_gate, &first));
    driver_event event = recorded(0, a);
    assert_ok(driver->stream_wait_event(0, b, event));
    assert_ok(driver->stream_wait_event(1, c, event)); /* of another device */
    assert_ok(driver->call(0, b, take_number, &second));
    assert_ok(driver->call(1, c, take_number, &other));

    (void)driver->alloc(9, 1, &(uintptr_t){0});
    assert_status(driver->event_query(0, event), TARN_ERROR_NOT_READY);
    assert_status(driver->stream_query(0, b), TARN_ERROR_NOT_READY);
    assert_non_null(strstr(tarn_last_error(), "no device 9")); /* an answer is not an error */
    atomic_store(&gate, true);
    assert_ok(driver->event_synchronize(0, event));
    assert_ok(driver->event_query(0, event));
    assert_ok(driver->stream_synchronize(0, b));
    assert_ok(driver->device_synchronize(1));
    assert_ok(driver->stream_query(1, c));
    assert_int_equal(first, 1);
    assert_true(second > first && other > first);

    assert_ok(driver->event_destroy(0, event));
    assert_ok(driver->stream_destroy(0, a));
    assert_ok(driver->stream_destroy(0, b));
    assert_ok(driver->stream_destroy(1, c));
    assert_refused(driver->stream_query(0, a), TARN_ERROR_INVALID_ARGUMENT, DESTROYED_STREAM);
}

static void copies_and_fills_are_work(void **state)
{
    (void)state;
    uintptr_t address = 0;
    unsigned char here[64];
    memset(here, 3, sizeof here);
    assert_ok(driver->alloc(0, GRANULE, &address));
    driver_stream stream = new_stream(0, false);
    assert_ok(driver->copy(0, address, (uintptr_t)here, sizeof here, stream));
    assert_ok(driver->set(0, address + 32, 9, 32, stream));
    assert_ok(driver->copy(0, (uintptr_t)here, address, sizeof here, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(here[31], 3);
    assert_int_equal(here[32], 9);
    assert_int_equal(here[63], 9);
    assert_ok(driver->stream_destroy(0, stream));
    assert_ok(driver->free(0, address));
}

static void a_capture_becomes_a_graph_that_runs(void **state)
{
    (void)state;
    uintptr_t address = 0;
    assert_ok(driver->alloc(0, GRANULE, &address));
    driver_stream stream = new_stream(0, false), other = new_stream(0, false);
    struct driver_capture capture;
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.state, DRIVER_CAPTURE_NONE);

    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_status(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL), TARN_ERROR_CAPTURE);
    assert_ok(driver->set(0, address, 1, 4, stream));
    driver_event fork_at = new_event(0), join = new_event(0);
    assert_ok(driver->event_record(0, fork_at, stream));
    assert_ok(driver->stream_wait_event(0, other, fork_at));
    assert_ok(driver->set(0, address + 8, 2, 4, other));
    struct driver_capture of_other;
    assert_ok(driver->capture_status(0, stream, &capture));
    uint64_t id = capture.id;
    assert_int_equal(capture.state, DRIVER_CAPTURE_ACTIVE);
    assert_int_equal(capture.node_count, 1);
    assert_ok(driver->capture_status(0, other, &of_other));
    assert_int_equal(of_other.state, DRIVER_CAPTURE_ACTIVE);
    assert_true(id != 0 && of_other.id == id);
    assert_ok(driver->event_record(0, join, other));
    assert_ok(driver->stream_wait_event(0, stream, join));

    /* What a global capture bars, tarn does in relaxed mode: all of this leaves the capture as it
     * is. */
    uintptr_t more = 0;
    assert_ok(driver->alloc(0, GRANULE, &more));
    assert_ok(driver->free(0, more));
    struct driver_properties properties;
    assert_ok(driver->device_properties(0, &properties));
    if (properties.virtual_memory)
        assert_ok(driver->release(0, new_piece(0, GRANULE)));
    driver_event outside = new_event(0);
    assert_ok(driver->event_query(0, outside));
    assert_ok(driver->event_destroy(0, outside));
    enum driver_capture_mode mode = DRIVER_CAPTURE_RELAXED;
    assert_ok(driver->capture_mode(&mode));
    assert_int_equal(mode, DRIVER_CAPTURE_GLOBAL); /* the thread's own is back each time */
    assert_ok(driver->capture_mode(&mode));
    assert_int_equal(mode, DRIVER_CAPTURE_RELAXED);

    driver_graph graph = NULL;
    assert_int_equal(((unsigned char *)address)[0], 0);
    assert_ok(driver->capture_end(0, stream, &graph));
    assert_non_null(graph);
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.state, DRIVER_CAPTURE_NONE);
    assert_int_equal(((unsigned char *)address)[0], 0); /* it was recorded, not run */

    for (int round = 0; round < 3; round++) {
        assert_ok(driver->set(0, address, 0, 16, stream));
        assert_ok(driver->graph_launch(0, graph, stream));
        assert_ok(driver->stream_synchronize(0, stream));
        assert_int_equal(((unsigned char *)address)[0], 1);
        assert_int_equal(((unsigned char *)address)[8], 2);
    }
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->event_destroy(0, fork_at));
    assert_ok(driver->event_destroy(0, join));
    assert_ok(driver->stream_destroy(0, stream));
    assert_ok(driver->stream_destroy(0, other));
    assert_ok(driver->free(0, address));
}

static void dependencies_can_be_replaced(void **state)
{
    (void)state;
    uintptr_t address = 0;
    assert_ok(driver->alloc(0, GRANULE, &address));
    driver_stream stream = new_stream(0, false);
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->set(0, address, 1, 4, stream));
    struct driver_capture capture;
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.node_count, 1);
    driver_node first = capture.nodes[0];
    assert_ok(driver->set(0, address, 2, 4, stream));
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.node_count, 1);
    assert_ptr_not_equal(capture.nodes[0], first);
    driver_node ends[] = {first, capture.nodes[0]};
    assert_ok(driver->capture_depend(0, stream, ends, 2));
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.node_count, 2);
    assert_ok(driver->set(0, address + 8, 3, 4, stream));
    driver_graph graph = NULL;
    assert_ok(driver->capture_end(0, stream, &graph));
    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(((unsigned char *)address)[0], 2);
    assert_int_equal(((unsigned char *)address)[8], 3);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->stream_destroy(0, stream));
    assert_ok(driver->free(0, address));
}

static void *churn(void *argument)
{
    int device = *(int *)argument;
    for (int i = 0; i < 200; i++) {
        driver_stream stream = NULL;
        driver_event event = NULL;
        uintptr_t address = 0;
        if (driver->stream_create(device, 0, i & 1, &stream) ||
            driver->event_create(device, &event) || driver->alloc(device, GRANULE, &address) ||
            driver->set(device, address, (unsigned char)i, 64, stream) ||
            driver->event_record(device, event, stream) ||
            driver->event_synchronize(device, event) ||
            ((unsigned char *)address)[63] != (unsigned char)i || driver->free(device, address) ||
            driver->event_destroy(device, event) || driver->stream_destroy(device, stream))
            return argument;
    }
    return NULL;
}

static void threads_use_it_side_by_side(void **state)
{
    (void)state;
    pthread_t threads[4];
    int devices[4] = {0, 1, 0, 1};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, &devices[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

#endif
