/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What TARN_STATS=1 has the library print when a program ends: by exit() or tarn_shutdown(), once,
 * with the figures of the statistics; and nothing without it. Each program is a child with a pipe
 * for its standard error. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/graph.h>
#include <tarn/host.h>
#include <tarn/pool.h>
#include <tarn/stats.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

enum ending { BY_EXIT, BY_SHUTDOWN, BY_FORK, BY_EXIT_WITH_GRAPHS };

/* Remembers a graph that fills each of the blocks. */
static void remember_graph(tarn_stream stream, void *const *blocks, size_t count)
{
    uint64_t number;
    void *graph = NULL, *native = native_of(stream);
    CHECK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED) == TARN_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(tarn_host_fill(0, native, blocks[i], 1, 64) == TARN_OK);
    CHECK(tarn_capture_end(stream, &graph) == TARN_OK);
    CHECK(tarn_graph_remember(graph, &number) == TARN_OK);
}

/* 300 graphs of one pool, and one of 20. */
static void remember_graphs(void)
{
    tarn_stream stream = lease(0);
    void *blocks[20];
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        blocks[i] = alloc_in(pool_with((tarn_pool_options){0}), stream, 64);
    for (int i = 0; i < 300; i++)
        remember_graph(stream, blocks, 1);
    remember_graph(stream, blocks, sizeof blocks / sizeof *blocks);
}

static void be_program(const char *wish, enum ending ending)
{
    unsetenv("TARN_LOG");
    unsetenv("TARN_STATS");
    if (wish)
        setenv("TARN_STATS", wish, 1);
    host_start_with(1, 256 * MIB);
    void *large = tarn_malloc(10 * MIB), *small = tarn_malloc(1000), *kept = tarn_malloc(3 * MIB);
    if (!large || !small || !kept)
        _exit(strstr(tarn_last_error(), "TARN_STATS=") ? 3 : 2);
    CHECK(tarn_free(large) == TARN_OK && tarn_free(small) == TARN_OK);
    if (ending == BY_SHUTDOWN)
        CHECK(tarn_free(kept) == TARN_OK && tarn_shutdown() == TARN_OK);
    if (ending == BY_EXIT_WITH_GRAPHS)
        remember_graphs();
    if (ending == BY_FORK && fork() != 0)
        _exit(0); /* only the child of the child ends as a program does */
    exit(0);
}

/* Runs one; gives its exit status, and what it wrote. */
static int run(const char *wish, enum ending ending, char *text, size_t size)
{
    int texts[2], status = -1;
    size_t length = 0;
    CHECK(pipe(texts) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(texts[1], STDERR_FILENO);
        close(texts[0]);
        close(texts[1]);
        be_program(wish, ending);
    }
    close(texts[1]);
    for (ssize_t part;
         length + 1 < size && (part = read(texts[0], text + length, size - 1 - length)) > 0;)
        length += (size_t)part;
    text[length] = '\0';
    close(texts[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fprintf(stderr, "not printed: %s\n%s", part, text);
    CHECK(strstr(text, part));
}

static void figures_are_printed_at_exit(void **state)
{
    char text[8192];
    (void)state;
    assert_int_equal(run("1", BY_EXIT, text, sizeof text), 0);
    says(text, "tarn: stats: device 0 (");
    says(text, "peaks: requested 13.0 MiB, allocated 13.0 MiB, active 13.0 MiB, reserved ");
    says(text, "now: 1 blocks of 3.00 MiB, reserved ");
    says(text, "blocks to 1 MiB: 1 allocated, 1 freed; at most ");
    says(text, "blocks above 1 MiB: 2 allocated, 1 freed; at most 2 and 13.0 MiB at once");
    says(text, "calls of the driver: ");
    says(text, "map ");
    says(text, "pool (0, 0): reserved ");
    CHECK(!strstr(strstr(text, "stats: device 0") + 1, "stats: device 0")); /* once */
}

static void figures_are_printed_at_shutdown(void **state)
{
    char text[8192];
    (void)state;
    assert_int_equal(run("1", BY_SHUTDOWN, text, sizeof text), 0);
    says(text, "now: 0 blocks of 0 B");
    CHECK(!strstr(strstr(text, "stats: device 0") + 1, "stats: device 0"));
}

/* What is not said of graphs is counted. */
static void graphs_are_printed_and_counted(void **state)
{
    static char text[1 << 17];
    (void)state;
    assert_int_equal(run("1", BY_EXIT_WITH_GRAPHS, text, sizeof text), 0);
    says(text, "graph 301: 20 addresses in 20 blocks of 1.25 KiB, of which 0 of 0 B are gone");
    says(text, ") and 4 more\n");
    says(text, "graph 300: 1 addresses");
    says(text, "graph 65: 1 addresses");
    CHECK(!strstr(text, "graph 64: "));
    says(text, "the oldest 64 are left out");
}

static void nothing_is_printed_unasked(void **state)
{
    char text[8192];
    (void)state;
    assert_int_equal(run(NULL, BY_EXIT, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(run("0", BY_SHUTDOWN, text, sizeof text), 0);
    assert_string_equal(text, "");
    /* A child of fork() has nothing to tell */
    assert_int_equal(run("1", BY_FORK, text, sizeof text), 0);
    assert_string_equal(text, "");
}

static void what_is_neither_0_nor_1_is_refused(void **state)
{
    char text[8192];
    (void)state;
    assert_int_equal(run("yes", BY_EXIT, text, sizeof text), 3);
    assert_string_equal(text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_printed_at_exit),
        cmocka_unit_test(figures_are_printed_at_shutdown),
        cmocka_unit_test(graphs_are_printed_and_counted),
        cmocka_unit_test(nothing_is_printed_unasked),
        cmocka_unit_test(what_is_neither_0_nor_1_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
