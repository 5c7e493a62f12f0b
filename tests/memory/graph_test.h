/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of captures and graphs share: two streams, leased for each test, and that nothing
 * is left behind. The device has 256 MiB. */
#ifndef TESTS_MEMORY_GRAPH_TEST_H
#define TESTS_MEMORY_GRAPH_TEST_H

#include "memory/arena/arena.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define GRAPH_TEST(function) cmocka_unit_test_setup_teardown(function, start, finish)

static tarn_stream stream, other; /* leased for each test */

static inline unsigned count_of(tarn_pool *pool)
{
    return pool_info_of(pool).use_count;
}

static inline tarn_pool *graph_pool(void)
{
    tarn_pool *pool = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                        &pool));
    return pool;
}

static inline void begin(tarn_pool *pool)
{
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
}

static inline void *end(void)
{
    void *graph = NULL;
    OK(tarn_capture_end(stream, &graph));
    CHECK(graph);
    return graph;
}

static inline void launch(void *graph, tarn_stream on)
{
    OK(tarn_host_graph_launch(0, graph, native_of(on)));
}

static inline void destroy(void *graph)
{
    OK(tarn_host_graph_destroy(graph));
}

static inline void fill(tarn_stream on, void *block, unsigned char value, size_t size)
{
    OK(tarn_host_fill(0, native_of(on), block, value, size));
}

static inline int64_t reserved(void)
{
    return stats_of(0).reserved_bytes[0].current;
}

static inline int start(void **state)
{
    (void)state;
    stream = lease(0);
    other = lease(0);
    return 0;
}

/* Every test ends with nothing: no block, no piece, no graph, no pool. */
static inline int finish(void **state)
{
    (void)state;
    nothing_is_left(0);
    CHECK(ledger_of(0).graphs == 0);
    struct arena *arena = arena_if_used(0);
    CHECK(!arena || !arena->pools.list);
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(other));
    return 0;
}

#endif
