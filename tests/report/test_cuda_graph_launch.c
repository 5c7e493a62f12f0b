/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* tarn_graph_launch() on the simulated libcuda: what it runs, what it finds before it does, and
 * what it refuses. */
#include "report/graph_test.h"

#include <pthread.h>
#include <stdlib.h>
#include <tarn/debug.h>

#define UNKNOWN ((uint64_t)1 << 40)

static struct found found;
static tarn_stream stream;

static void begin(void)
{
    host_start_with(1, 256 * MIB);
    cuda_calls_load();
    stream = lease(0);
}

/* A graph that fills a block with ones. */
struct filled {
    char *block;
    cu_graph graph;
    cu_graph_exec exec;
    uint64_t number;
};

static struct filled fill_of(char *block)
{
    struct filled made = {.block = block};
    void *graph = NULL;
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    CU(cu.cuMemsetD8Async((uintptr_t)block, 1, MIB, native_of(stream)));
    OK(tarn_capture_end(stream, &graph));
    made.graph = graph;
    CU(cu.cuGraphInstantiateWithFlags(&made.exec, made.graph, 0));
    OK(tarn_graph_remember(made.graph, &made.number));
    return made;
}

static void end(struct filled *made)
{
    CU(cu.cuGraphExecDestroy(made->exec));
    CU(cu.cuGraphDestroy(made->graph));
}

/* Whether a launch filled the block. */
static bool has_run(const struct filled *made)
{
    OK(tarn_stream_synchronize(stream));
    bool filled = made->block[0] == 1 && made->block[MIB - 1] == 1;
    made->block[0] = made->block[MIB - 1] = 0;
    return filled;
}

static void launch(const struct filled *made)
{
    found.count = 0;
    OK(tarn_graph_launch(made->exec, made->number, stream, note, &found));
}

static void a_launch_tells_what_it_finds_and_runs(void)
{
    begin();
    struct filled made = fill_of(alloc_on(stream, MIB));
    has_run(&made);
    launch(&made);
    CHECK(found.count == 0 && has_run(&made));
    OK(tarn_free(made.block));
    for (int i = 0; i < 2; i++) {
        launch(&made);
        CHECK(found.count == 1 && found.list[0].address == made.block &&
              found.list[0].certainty == TARN_GRAPH_CERTAIN &&
              found.list[0].state == TARN_GRAPH_FREE && found.list[0].block == made.block);
        CHECK(has_run(&made));
    }
    OK(tarn_graph_launch(made.exec, made.number, stream, NULL, NULL)); /* nobody is told */
    CHECK(has_run(&made));
    CHECK(alloc_at(stream, MIB, made.block));
    launch(&made);
    CHECK(found.count == 1 && found.list[0].state == TARN_GRAPH_CHANGED && has_run(&made));
    /* a graph that is gone, of which the executable is left */
    CU(cu.cuGraphDestroy(made.graph));
    launch(&made);
    CHECK(found.count == 1 && has_run(&made));
    CU(cu.cuGraphExecDestroy(made.exec));
    GIVES(tarn_graph_launch(made.exec, made.number, stream, NULL, NULL),
          TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_free(made.block));
}

static void debug_mode_reports_before_a_launch(void)
{
    setenv("TARN_DEBUG", "graphs,quiet", 1);
    begin();
    struct filled made = fill_of(alloc_on(stream, MIB));
    OK(tarn_graph_launch(made.exec, made.number, stream, NULL, NULL));
    CHECK(tarn_debug_reports() == 0);
    OK(tarn_free(made.block));
    for (int i = 0; i < 2; i++) {
        OK(tarn_graph_launch(made.exec, made.number, stream, NULL, NULL));
        CHECK(tarn_debug_reports() == 1);
    }
    OK(tarn_stream_synchronize(stream));
    end(&made);
}

static tarn_stream threads_stream;

static void *gives_its_stream(void *unused)
{
    OK(tarn_stream_set(TARN_STREAM_PER_THREAD));
    OK(tarn_stream_get(0, &threads_stream));
    return unused;
}

static void refuse(const struct filled *made, void *exec, uint64_t number, tarn_stream on,
                   tarn_status why)
{
    found.count = 0;
    GIVES(tarn_graph_launch(exec, number, on, note, &found), why);
    CHECK(found.count == 0 && !has_run(made));
}

static void a_wrong_launch_runs_nothing(void)
{
    begin();
    pthread_t thread;
    struct filled made = fill_of(alloc_on(stream, MIB));
    CHECK(pthread_create(&thread, NULL, gives_its_stream, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    has_run(&made);
    OK(tarn_free(made.block)); /* there would be something to tell */
    refuse(&made, NULL, made.number, stream, TARN_ERROR_INVALID_ARGUMENT);
    refuse(&made, made.exec, 0, stream, TARN_ERROR_INVALID_ARGUMENT);
    refuse(&made, made.exec, UNKNOWN, stream, TARN_ERROR_INVALID_ARGUMENT);
    refuse(&made, made.exec, made.number, UNKNOWN, TARN_ERROR_INVALID_STREAM);
    refuse(&made, made.exec, made.number, threads_stream, TARN_ERROR_INVALID_STREAM);
    CHECK(strstr(tarn_last_error(), "a launch: stream"));
    end(&made);
}

/* The capture goes on. */
static void a_stream_that_captures_is_refused(void)
{
    begin();
    struct filled made = fill_of(alloc_on(stream, MIB));
    tarn_stream other = lease(0);
    void *graph = NULL;
    has_run(&made);
    OK(tarn_capture_begin(other, TARN_CAPTURE_RELAXED));
    CU(cu.cuMemsetD8Async((uintptr_t)made.block, 2, 1, native_of(other)));
    GIVES(tarn_graph_launch(made.exec, made.number, other, note, &found), TARN_ERROR_CAPTURE);
    launch(&made); /* while another stream captures */
    CHECK(has_run(&made));
    OK(tarn_capture_end(other, &graph));
    CHECK(graph);
    CU(cu.cuGraphDestroy(graph));
    end(&made);
    OK(tarn_free(made.block));
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_launch_tells_what_it_finds_and_runs),
        CHILD_TEST(debug_mode_reports_before_a_launch),
        CHILD_TEST(a_wrong_launch_runs_nothing),
        CHILD_TEST(a_stream_that_captures_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
