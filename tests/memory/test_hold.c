/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A pool that is held by hand, for graphs that tarn is not shown. */
#include "support/host.h"

#include "driver/driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static tarn_stream stream, other;

static unsigned count_of(tarn_pool *pool)
{
    return pool_info_of(pool).use_count;
}

static tarn_pool *pool_make(void)
{
    tarn_pool *pool = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                        &pool));
    return pool;
}

static void launch(void *graph, tarn_stream on)
{
    OK(tarn_host_graph_launch(0, graph, native_of(on)));
}

static void destroy(void *graph)
{
    OK(tarn_host_graph_destroy(graph));
}

static void fill(tarn_stream on, void *block, unsigned char value, size_t size)
{
    OK(tarn_host_fill(0, native_of(on), block, value, size));
}

/* A framework's graph, which tarn is not shown. */
static void a_pool_is_held_by_hand(void **state)
{
    (void)state;
    tarn_pool *pool = pool_make();
    void *graph = NULL;
    GIVES(tarn_pool_unhold(pool), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(!driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_RELAXED));
    OK(tarn_pool_hold(pool, NULL));
    OK(tarn_capture_announce(stream)); /* after the driver's begin: as soon as it is known */
    void *block = NULL;
    OK(tarn_pool_alloc(pool, stream, 4 * MIB, &block));
    fill(stream, block, 9, 4 * MIB);
    OK(tarn_free(block));
    CHECK(!driver->capture_end(0, native_of(stream), &graph));
    OK(tarn_capture_abort(stream));
    CHECK(count_of(pool) == 2);
    OK(tarn_pool_trim(pool, 0));
    launch(graph, other);
    OK(tarn_stream_synchronize(other));
    CHECK(((unsigned char *)block)[4 * MIB - 1] == 9);
    destroy(graph);

    /* As often as it was held, and not once more; then its memory goes. */
    OK(tarn_pool_hold(pool, NULL));
    OK(tarn_pool_unhold(pool));
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created > 0);
    OK(tarn_pool_unhold(pool));
    GIVES(tarn_pool_unhold(pool), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created == 0);

    /* Whoever holds it can release it. */
    OK(tarn_pool_hold(pool, NULL));
    OK(tarn_pool_release(pool));
    OK(tarn_pool_unhold(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_pool_is_held_by_hand)};
    host_start_with(1, 256 * MIB);
    stream = lease(0);
    other = lease(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
