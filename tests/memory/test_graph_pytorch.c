/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs that use a pool: PyTorch's tests (test/test_cuda.py), by their meaning. */
#include "graph_test.h"

/* test_graph_memory_stats_and_use_result_after_destroy_graph */
static void a_result_is_usable_after_its_graph(void **state)
{
    (void)state;
    static const size_t sizes[] = {512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB + 512};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t size = sizes[i];
        const tarn_stats before = stats_of(0);
        begin(NULL);
        unsigned char *blocks[8];
        for (int k = 0; k < 8; k++) {
            blocks[k] = alloc_on(stream, size);
            fill(stream, blocks[k], (unsigned char)(k + 1), size);
        }
        for (int k = 0; k < 7; k++)
            OK(tarn_free(blocks[k]));
        void *graph = end();
        tarn_stats captured = stats_of(0);
        CHECK(captured.active_bytes[0].current - before.active_bytes[0].current == (int64_t)size);
        CHECK(captured.active[0].current - before.active[0].current == 1);
        int64_t held = captured.reserved_bytes[0].current - before.reserved_bytes[0].current;
        CHECK(held >= (int64_t)(8 * size));
        OK(tarn_device_trim(0, 0));
        CHECK(reserved() - before.reserved_bytes[0].current == held);
        launch(graph, stream);
        OK(tarn_stream_synchronize(stream));
        destroy(graph);
        OK(tarn_device_trim(0, 0));
        CHECK(reserved() - before.reserved_bytes[0].current <= held);
        CHECK(stats_of(0).active_bytes[0].current - before.active_bytes[0].current ==
              (int64_t)size);
        for (size_t at = 0; at < size; at += 511)
            CHECK(blocks[7][at] == 8);
        fill(stream, blocks[7], 9, size);
        OK(tarn_stream_synchronize(stream));
        CHECK(blocks[7][size - 1] == 9);
        OK(tarn_free(blocks[7]));
        OK(tarn_device_trim(0, 0));
        CHECK(reserved() == before.reserved_bytes[0].current);
        CHECK(stats_of(0).segment[0].current == before.segment[0].current);
    }
}

/* The bytes that two captures hold, one after the other, each of which frees all except its last
 * block. */
static int64_t held_by_two(tarn_pool *pool, void *graphs[2], unsigned char *results[2], size_t size)
{
    int64_t before = reserved();
    for (int i = 0; i < 2; i++) {
        begin(pool);
        unsigned char *scratch = alloc_on(stream, size);
        fill(stream, scratch, (unsigned char)(10 + i), size);
        results[i] = alloc_on(stream, size);
        OK(driver->copy(0, (uintptr_t)results[i], (uintptr_t)scratch, size, native_of(stream)));
        OK(tarn_free(scratch));
        graphs[i] = end();
    }
    return reserved() - before;
}

/* test_graph_two_successive: the second capture saves exactly what the first freed. */
static void successive_captures_share_what_was_freed(void **state)
{
    (void)state;
    const size_t size = 20 * MIB;
    void *graphs[2];
    unsigned char *results[2];
    tarn_pool *pool = graph_pool();
    int64_t apart = held_by_two(NULL, graphs, results, size);
    for (int i = 0; i < 2; i++) {
        destroy(graphs[i]);
        OK(tarn_free(results[i]));
    }
    OK(tarn_device_trim(0, 0));
    int64_t together = held_by_two(pool, graphs, results, size);
    CHECK(apart - together == (int64_t)size);
    CHECK(count_of(pool) == 3);
    for (int round = 0; round < 3; round++) { /* in the order of the captures */
        memset(results[0], 0, size);
        memset(results[1], 0, size);
        launch(graphs[0], other);
        launch(graphs[1], other);
        OK(tarn_stream_synchronize(other));
        CHECK(results[0][size - 1] == 10 && results[1][size - 1] == 11);
    }
    destroy(graphs[0]);
    CHECK(count_of(pool) == 2);
    OK(tarn_pool_trim(pool, 0));
    memset(results[1], 0, size);
    launch(graphs[1], stream);
    OK(tarn_stream_synchronize(stream));
    CHECK(results[1][0] == 11);
    destroy(graphs[1]);
    CHECK(results[0][1] == 10);
    OK(tarn_free(results[0]));
    OK(tarn_free(results[1]));
    OK(tarn_pool_release(pool));
}

/* test_graph_concurrent_replay: graphs with a pool each may run at once; those that share one must
 * not: they use the same memory. */
static void graphs_of_their_own_pools_run_side_by_side(void **state)
{
    (void)state;
    const size_t size = 4 * MIB;
    for (int shared = 0; shared < 2; shared++) {
        tarn_pool *pool = shared ? graph_pool() : NULL;
        void *graphs[2];
        unsigned char *scratch[2], *results[2];
        for (int i = 0; i < 2; i++) {
            begin(pool);
            scratch[i] = alloc_on(stream, size);
            results[i] = alloc_on(stream, size);
            fill(stream, scratch[i], (unsigned char)(1 + i), size);
            work_on(stream, scratch[i], size, 1000);
            OK(driver->copy(0, (uintptr_t)results[i], (uintptr_t)scratch[i], size,
                            native_of(stream)));
            OK(tarn_free(scratch[i]));
            graphs[i] = end();
        }
        CHECK((scratch[0] == scratch[1]) == (shared == 1));
        for (int i = 0; i < 50; i++) {
            memset(results[0], 0, size);
            memset(results[1], 0, size);
            launch(graphs[0], stream);
            launch(graphs[1], shared ? stream : other);
            OK(tarn_device_synchronize(0));
            CHECK(results[0][0] == 1 && results[0][size - 1] == 1);
            CHECK(results[1][0] == 2 && results[1][size - 1] == 2);
        }
        for (int i = 0; i < 2; i++) {
            destroy(graphs[i]);
            OK(tarn_free(results[i]));
        }
        OK(tarn_pool_release(pool));
    }
}

/* test_repeat_graph_capture_cublas_workspace_memory, and test_graph_capture_reset_recapture */
static void a_hundred_captures_hold_what_one_does(void **state)
{
    (void)state;
    int64_t one = 0;
    uint64_t metadata = 0;
    void *graph = NULL;
    for (int i = 0; i < 100; i++) {
        if (graph)
            destroy(graph);
        begin(NULL);
        void *small = alloc_on(stream, 700), *large = alloc_on(stream, 12 * MIB);
        fill(stream, large, 1, 100);
        OK(tarn_free(small));
        OK(tarn_free(large));
        graph = end();
        if (i == 2) {
            one = reserved();
            metadata = metadata_bytes();
        }
        CHECK(i < 3 || (reserved() <= one && metadata_bytes() <= metadata));
    }
    destroy(graph);
}

/* test_graph_capture_oom */
static void a_capture_that_runs_out_of_memory_reports_it_and_can_go_on(void **state)
{
    (void)state;
    begin(NULL);
    void *pointer = &pointer;
    GIVES(tarn_alloc_on(stream, (size_t)1 << 40, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(pointer == &pointer);
    CHECK(strstr(tarn_last_error(), "1 TiB on device 0"));
    unsigned char *block = alloc_on(stream, 30 * MIB);
    GIVES(tarn_alloc_on(stream, MEMORY, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    fill(stream, block, 4, 30 * MIB);
    void *graph = end();
    launch(graph, stream);
    OK(tarn_stream_synchronize(stream));
    CHECK(block[30 * MIB - 1] == 4);
    OK(tarn_free(block));
    destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GRAPH_TEST(a_result_is_usable_after_its_graph),
        GRAPH_TEST(successive_captures_share_what_was_freed),
        GRAPH_TEST(graphs_of_their_own_pools_run_side_by_side),
        GRAPH_TEST(a_hundred_captures_hold_what_one_does),
        GRAPH_TEST(a_capture_that_runs_out_of_memory_reports_it_and_can_go_on),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
