/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure while a graph is remembered, checked and launched. A call that fails says nothing
 * about the graph, and a launch that fails runs nothing; the next one does. */
#include "driver/driver.h"
#include "report/found_test.h"
#include "support/failures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define BLOCKS 3

static struct {
    tarn_stream stream;
    char *blocks[BLOCKS];
    void *graph;
    bool captures;
} t;

static void hear(const tarn_graph_reference *reference, void *user)
{
    *(const char **)user = reference->address;
}

/* Runs the graph: the last of its fills tells. */
static void launch(uint64_t number, const char *expected)
{
    const char *told = NULL;
    memset(t.blocks[BLOCKS - 1], 0, 64);
    bool well = TRY(tarn_graph_launch(t.graph, number, t.stream, hear, &told));
    CHECK(!told || told == expected);
    CHECK(!well || told == expected);
    if (device_is_lost() || !TRY(tarn_stream_synchronize(t.stream)))
        return;
    CHECK(t.blocks[BLOCKS - 1][0] == (well ? 1 : 0));
}

static void a_graph_is_launched(void)
{
    uint64_t number = 0;
    tarn_graph_summary summary = {.size = sizeof summary};
    for (int i = 0; i < BLOCKS; i++)
        if (!TRY(tarn_alloc_on(t.stream, MIB, (void **)&t.blocks[i])))
            return;
    if (!TRY(tarn_capture_begin(t.stream, TARN_CAPTURE_RELAXED)))
        return;
    bool well = true;
    for (int i = 0; i < BLOCKS && well; i++)
        well = driver->set(0, (uintptr_t)t.blocks[i], 1, 64, native_of(t.stream)) == TARN_OK;
    t.captures = !TRY(tarn_capture_end(t.stream, &t.graph));
    if (t.captures || !well)
        return;
    if (!TRY(tarn_graph_remember(t.graph, &number)))
        return;
    launch(number, NULL);
    if (TRY(tarn_graph_check(t.graph, NULL, NULL, NULL, &summary)))
        CHECK(summary.verdict == TARN_GRAPH_CLEAN);
    void *freed = t.blocks[0];
    t.blocks[0] = NULL;
    OK(tarn_free(freed));
    launch(number, freed);
    launch(number, freed);
    if (TRY(tarn_graph_check(t.graph, NULL, NULL, NULL, &summary)))
        CHECK(summary.certain == 1);
}

static void free_all(void)
{
    for (int i = 0; i < BLOCKS; i++)
        if (t.blocks[i])
            OK(tarn_free(t.blocks[i]));
    memset(t.blocks, 0, sizeof t.blocks);
}

static void settle(void)
{
    clear_injection();
    if (t.captures)
        (void)tarn_capture_end(t.stream, &t.graph);
    t.captures = false;
    OK(tarn_stream_synchronize(t.stream));
    if (t.graph)
        OK(tarn_host_graph_destroy(t.graph));
    t.graph = NULL;
    free_all();
    nothing_is_left(0);
}

static void lost(void)
{
    free_all();
    t.graph = NULL;
}

static void set_up(void)
{
    t.stream = lease(0);
}

static void any_failure_leaves_graphs_as_they_were(void **state)
{
    (void)state;
    static const struct scenario scenarios[] = {{"a graph is launched", a_graph_is_launched}};
    static const struct scenarios shared = {
        .set_up = set_up, .settle = settle, .lost = lost, .most = 100};
    each_failure_of(&shared, scenarios, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_failure_leaves_graphs_as_they_were)};
    host_start_with(1, 64 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
