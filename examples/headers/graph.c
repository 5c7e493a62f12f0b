/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A block that a captured graph fills is freed after the capture: the check finds the node. */
#include <stdio.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

static void show(const tarn_graph_reference *it, void *user)
{
    (void)user;
    printf("node %zu uses a block of %zu bytes that is gone\n", it->node, it->requested);
}

int main(void)
{
    tarn_graph_summary summary = {.size = sizeof summary};
    tarn_stream stream;
    tarn_pool *pool;
    void *native, *block, *graph;
    if (tarn_stream_lease(0, 0, &stream) || tarn_stream_native_get(stream, &native) ||
        tarn_alloc_on(stream, 1 << 20, &block) || tarn_pool_create(NULL, &pool) ||
        tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED) ||
        tarn_host_fill(0, native, block, 0, 1 << 20) || /* with a GPU: launch kernels here */
        tarn_capture_end(stream, &graph) || tarn_graph_remember(graph, NULL) || tarn_free(block) ||
        tarn_graph_check(graph, NULL, show, NULL, &summary)) {
        fprintf(stderr, "%s\n", tarn_last_error());
        return 1;
    }
    (void)tarn_host_graph_destroy(graph);
    return tarn_pool_release(pool) || tarn_shutdown() || summary.verdict != TARN_GRAPH_SUSPICIOUS;
}
