/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What every driver's graph_hold does: says once, and not too early, that a graph has come to its end. */
#ifndef TARN_TESTS_DRIVER_HOLD_TEST_H
#define TARN_TESTS_DRIVER_HOLD_TEST_H

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
    assert_ok(driver->stream_destroy(0, stream));
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

#endif
