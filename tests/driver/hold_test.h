/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A vendor's driver whose calls fail while a graph is held: nothing is left of the hold, and the
 * next one comes to be. */
#ifndef TARN_TESTS_DRIVER_HOLD_TEST_H
#define TARN_TESTS_DRIVER_HOLD_TEST_H

#include "scenario_test.h"

static int ends;

static void graph_ended(void *argument)
{
    (void)argument;
    ends++;
}

static driver_graph empty_graph(driver_stream stream)
{
    driver_graph graph = NULL;
    NEED(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED) == TARN_OK);
    NEED(driver->capture_end(0, stream, &graph) == TARN_OK);
    return graph;
}

/* A hold whose object cannot be made, one which the graph cannot retain, and one that comes to
 * be. */
static void scenario_hold_failing(void)
{
    driver_stream stream = NULL;
    NEED(driver_init() == TARN_OK && driver->stream_create(0, 0, false, &stream) == TARN_OK);
    for (int i = 0; i < 2; i++) {
        driver_graph graph = empty_graph(stream);
        NEED(driver->graph_hold(0, graph, graph_ended, NULL) == TARN_ERROR_OUT_OF_MEMORY);
        NEED(strstr(tarn_last_error(),
                    i ? CALL("cuGraphRetainUserObject", "hipGraphRetainUserObject")
                      : CALL("cuUserObjectCreate", "hipUserObjectCreate")));
        NEED(driver->graph_destroy(0, graph) == TARN_OK && ends == 0);
    }
    driver_graph graph = empty_graph(stream);
    NEED(driver->graph_hold(0, graph, graph_ended, NULL) == TARN_OK);
    NEED(driver->graph_destroy(0, graph) == TARN_OK && ends == 1);
}

#endif
