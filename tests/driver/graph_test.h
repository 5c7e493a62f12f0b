/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What every driver says of graphs: once, and not too early, that one has come to its end; and what
 * its nodes wait for. */
#ifndef TARN_TESTS_DRIVER_GRAPH_TEST_H
#define TARN_TESTS_DRIVER_GRAPH_TEST_H

#include "host_test.h"

#include <stdatomic.h>
#include <time.h>

static atomic_int hold_ends, hold_gate;

static void hold_ended(void *argument)
{
    atomic_fetch_add(&hold_ends, *(int *)argument);
}

static void hold_wait_at_gate(void *unused)
{
    (void)unused;
    const struct timespec moment = {.tv_nsec = 1000000};
    while (!atomic_load(&hold_gate))
        nanosleep(&moment, NULL);
}

/* A graph with a host function that waits for the gate; or an empty one. */
static driver_graph hold_graph(driver_stream stream, bool waits)
{
    driver_graph graph = NULL;
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
    if (waits)
        assert_ok(driver->call(0, stream, hold_wait_at_gate, NULL));
    assert_ok(driver->capture_end(0, stream, &graph));
    return graph;
}

static void hold_starts(void)
{
    atomic_store(&hold_ends, 0);
    atomic_store(&hold_gate, 0);
}

static void the_end_of_a_graph_is_told_once(void **state)
{
    (void)state;
    int one = 1, ten = 10;
    hold_starts();
    driver_stream stream = new_stream(0, false);
    driver_graph graph = hold_graph(stream, false), other = hold_graph(stream, false);
    assert_ok(driver->graph_hold(0, graph, hold_ended, &one));
    assert_ok(driver->graph_hold(0, graph, hold_ended, &ten));
    assert_ok(driver->graph_destroy(0, other));
    assert_int_equal(atomic_load(&hold_ends), 0);
    assert_ok(driver->graph_destroy(0, graph));
    assert_int_equal(atomic_load(&hold_ends), 11);
    assert_status(driver->graph_hold(0, NULL, hold_ended, &one), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(atomic_load(&hold_ends), 11);
    struct driver_capture open; /* which ends with its stream, and takes its graph with it */
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->capture_status(0, stream, &open));
    assert_ok(driver->graph_hold(0, open.graph, hold_ended, &one));
    assert_ok(driver->stream_destroy(0, stream));
    assert_int_equal(atomic_load(&hold_ends), 12);
}

static void the_end_of_a_graph_waits_for_its_work(void **state)
{
    (void)state;
    int one = 1;
    hold_starts();
    driver_stream stream = new_stream(0, false), other = new_stream(0, false);
    driver_graph graph = hold_graph(stream, true);
    assert_ok(driver->graph_launch(0, graph, other)); /* before it is held */
    assert_ok(driver->graph_hold(0, graph, hold_ended, &one));
    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->graph_launch(0, graph, other));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->stream_destroy(0, other));
    assert_int_equal(atomic_load(&hold_ends), 0);
    atomic_store(&hold_gate, 1);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(atomic_load(&hold_ends), 1);
    assert_ok(driver->stream_destroy(0, stream));
}

/* The last node of a stream that captures. */
static driver_node last_node(driver_stream stream, size_t count)
{
    struct driver_capture capture;
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.node_count, count);
    assert_false(capture.partial);
    return capture.nodes[0];
}

static void a_node_names_those_before_it(void **state)
{
    (void)state;
    uintptr_t address = 0;
    driver_stream a = new_stream(0, false), b = new_stream(0, false);
    driver_event fork_at = new_event(0), join_at = new_event(0);
    driver_graph graph = NULL;
    driver_node before[4] = {NULL};
    size_t count = 9;
    assert_ok(driver->alloc(0, GRANULE, &address));
    assert_ok(driver->capture_begin(0, a, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->set(0, address, 1, 4, a));
    driver_node first = last_node(a, 1);
    assert_ok(driver->node_before(0, first, before, 4, &count));
    assert_int_equal(count, 0);

    assert_ok(driver->event_record(0, fork_at, a));
    assert_ok(driver->stream_wait_event(0, b, fork_at));
    assert_ok(driver->set(0, address + 8, 2, 4, b));
    assert_ok(driver->set(0, address, 3, 4, a));
    driver_node on_a = last_node(a, 1), on_b = last_node(b, 1);
    assert_ok(driver->node_before(0, on_b, before, 1, &count));
    assert_true(count == 1 && before[0] == first);
    assert_ok(driver->node_before(0, on_a, before, 4, &count));
    assert_true(count == 1 && before[0] == first);

    assert_ok(driver->event_record(0, join_at, b));
    assert_ok(driver->stream_wait_event(0, a, join_at));
    (void)last_node(a, 2);
    assert_ok(driver->set(0, address, 4, 4, a));
    driver_node joined = last_node(a, 1);
    assert_ok(driver->node_before(0, joined, before, 4, &count));
    assert_int_equal(count, 2);
    assert_true((before[0] == on_a && before[1] == on_b) ||
                (before[0] == on_b && before[1] == on_a));
    for (size_t room = 0; room < 2; room++) { /* that there are more is told */
        count = 9;
        assert_ok(driver->node_before(0, joined, before, room, &count));
        assert_int_equal(count, 2);
    }
    assert_int_not_equal(driver->node_before(0, NULL, before, 4, &count), TARN_OK);
    assert_int_equal(count, 2);
    assert_ok(driver->capture_end(0, a, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->event_destroy(0, fork_at));
    assert_ok(driver->event_destroy(0, join_at));
    assert_ok(driver->stream_destroy(0, a));
    assert_ok(driver->stream_destroy(0, b));
    assert_ok(driver->free(0, address));
}

#endif
