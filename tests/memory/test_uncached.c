/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The mode without caching: an allocation of the driver's a block, which goes back when it is
 * idle. */
#include "driver/driver.h"
#include "driver/host/host.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)

static tarn_stream own, other;

static uint64_t plain(void)
{
    return ledger_of(0).plain;
}

static void each_block_is_an_allocation_of_its_size_and_is_not_used_twice(void **state)
{
    (void)state;
    bool caches = false;
    OK(tarn_caching_set(false, &caches));
    CHECK(caches);
    OK(tarn_caching_set(false, &caches));
    CHECK(!caches);
    uint64_t allocs = calls_of(0, "alloc"), frees = calls_of(0, "free");
    void *a = alloc_on(own, 1), *b = alloc_on(own, 700), *c = alloc_on(own, 5 * MIB + 1);
    CHECK(calls_of(0, "alloc") == allocs + 3 && plain() == 3);
    CHECK(usable_size(a) == 512 && usable_size(b) == 1024 && usable_size(c) == 5 * MIB + 512);
    CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(5 * MIB + 2048) &&
          stats_of(0).segment[0].current == 3);
    verify(0);
    OK(tarn_free(a));
    GIVES(tarn_free(a), TARN_ERROR_DOUBLE_FREE);
    CHECK(calls_of(0, "free") == frees); /* a free never waits, as the driver's may */
    void *d = alloc_on(own, 1);
    CHECK(calls_of(0, "alloc") == allocs + 4 && calls_of(0, "free") == frees + 1 && plain() == 3);
    OK(tarn_free(b));
    OK(tarn_free(c));
    OK(tarn_free(d));
    OK(tarn_device_trim(0, 0));
    CHECK(plain() == 0);
    OK(tarn_caching_set(true, &caches));
    CHECK(!caches);
    nothing_is_left(0);
}

static void what_work_uses_stays_until_it_has_ended(void **state)
{
    (void)state;
    OK(tarn_caching_set(false, NULL));
    void *block = alloc_on(own, MIB);
    work_on(own, block, MIB, 1000);
    OK(tarn_free(block));
    void *next = alloc_on(own, MIB);
    CHECK(plain() == 2 && next != block);
    work_on(other, next, MIB, 5000);
    uint64_t waited = ledger_of(0).waited_ns;
    OK(tarn_free_on(next, other));
    CHECK(ledger_of(0).waited_ns == waited);
    time_pass(2000);
    void *last = alloc_on(own, MIB); /* of the first nothing is left, the second was in use */
    CHECK(plain() == 2);
    OK(tarn_free(last));
    time_pass(5000);
    OK(tarn_caching_set(true, NULL));
    CHECK(plain() <= 1); /* the second has only now been found to have ended */
    nothing_is_left(0);
}

static void caching_goes_on_and_off_at_any_time(void **state)
{
    (void)state;
    void *small = tarn_malloc(100), *large = tarn_malloc(3 * MIB);
    CHECK(small && large && plain() == 0);
    OK(tarn_caching_set(false, NULL));
    void *raw = tarn_malloc(100);
    CHECK(plain() == 1);
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_caching_set(true, NULL));
    void *again = tarn_malloc(100);
    CHECK(plain() == 1 && again == small);
    OK(tarn_free(raw));
    OK(tarn_free(again));
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_caching_set(false, NULL));
    raw = tarn_malloc(100);
    OK(tarn_pointer_info_get(raw, &info));
    CHECK(info.pool.first == 0 && info.pool.second == 0 && info.requested == 100);
    OK(tarn_free(raw));
    OK(tarn_caching_set(true, NULL));
    nothing_is_left(0);
}

static void running_out_gives_back_what_both_modes_have(void **state)
{
    (void)state;
    void *cached = alloc_on(own, 200 * MIB);
    OK(tarn_free(cached));
    OK(tarn_caching_set(false, NULL));
    void *raw = alloc_on(other, 200 * MIB), *more = NULL;
    GIVES(tarn_alloc_on(own, 100 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    work_on(other, raw, MIB, 1000);
    OK(tarn_free(raw));
    more = alloc_on(own, 100 * MIB); /* waits for the work */
    OK(tarn_free(more));
    OK(tarn_caching_set(true, NULL));
    cached = alloc_on(own, 200 * MIB);
    OK(tarn_free(cached));
    nothing_is_left(0);
}

static void captures_are_left_alone_and_private_pools_go_on_caching(void **state)
{
    (void)state;
    void *graph = NULL;
    OK(tarn_caching_set(false, NULL));
    void *before = alloc_on(other, MIB);
    OK(tarn_free(before));
    uint64_t frees = calls_of(0, "free");
    OK(tarn_pool_capture_begin(NULL, own, TARN_CAPTURE_GLOBAL));
    uint64_t raw = plain();
    void *inside = alloc_on(own, 1000), *beside = alloc_on(other, MIB);
    CHECK(calls_of(0, "free") == frees && plain() == raw + 1);
    OK(tarn_free(inside));
    CHECK(alloc_on(own, 1000) == inside);
    OK(tarn_free(inside));
    OK(tarn_capture_end(own, &graph));
    CHECK(driver->graph_destroy(0, graph) == TARN_OK);
    OK(tarn_free(beside));
    OK(tarn_caching_set(true, NULL));
    nothing_is_left(0);
}

static void *churn(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 300; i++) {
        void *blocks[4];
        for (int k = 0; k < 4; k++)
            blocks[k] = tarn_malloc(1 + random_next(&random) % 100000);
        if (random_next(&random) % 16 == 0)
            OK(tarn_caching_set(random_next(&random) % 2, NULL));
        for (int k = 0; k < 4; k++)
            OK(tarn_free(blocks[k]));
    }
    return NULL;
}

static void threads_may_switch_it(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    OK(tarn_caching_set(true, NULL));
    nothing_is_left(0);
}

static void by_the_environment(void)
{
    setenv("TARN_NO_CACHING", "yes", 1);
    host_start_with(1, MEMORY);
    CHECK(!tarn_malloc(100) && tarn_last_status() == TARN_ERROR_CONFIGURATION);
    setenv("TARN_NO_CACHING", "1", 1);
    void *block = tarn_malloc(100);
    CHECK(block && plain() == 1 && ledger_of(0).pieces == 0);
    OK(tarn_free(block));
    OK(tarn_shutdown());
}

/* With backend:cudaMallocAsync, where this is the only mode. */
static void the_drivers_own_pools(void)
{
    setenv("TARN_ALLOC_CONF", "backend:cudaMallocAsync", 1);
    host_start_with(1, MEMORY);
    own = lease(0);
    other = lease(0);
    GIVES(tarn_caching_set(true, NULL), TARN_ERROR_CONFIGURATION);
    OK(tarn_caching_set(false, NULL));

    /* In order: it goes back with the free, which waits for nothing, and takes effect after the
     * work. */
    void *block = alloc_on(own, 5 * MIB + 1), *small = alloc_on(own, 1);
    CHECK(calls_of(0, "alloc_async") == 2 && calls_of(0, "alloc") == 0 &&
          ledger_of(0).pieces == 0 && plain() == 2);
    CHECK(usable_size(small) == 512 && stats_of(0).segment[0].current == 2);
    work_on(own, block, 5 * MIB, 1000);
    OK(tarn_free(block));
    CHECK(calls_of(0, "free_async") == 1 && calls_of(0, "event_record") == 0 && plain() == 2);
    CHECK(stats_of(0).segment[0].current == 1 && stats_of(0).reserved_bytes[0].current == 512);
    GIVES(tarn_free(block), TARN_ERROR_INVALID_POINTER);
    CHECK(ledger_of(0).waited_ns == 0);
    time_pass(1000);
    CHECK(plain() == 1);
    OK(tarn_free(small));
    CHECK(calls_of(0, "free_async") == 2 && plain() == 0 && calls_of(0, "free") == 0);

    /* What another stream uses waits for that. */
    block = alloc_on(own, MIB);
    work_on(other, block, MIB, 5000);
    OK(tarn_free_on(block, other));
    CHECK(calls_of(0, "free_async") == 2);
    small = alloc_on(own, 1);
    CHECK(calls_of(0, "free_async") == 2 && plain() == 2 && ledger_of(0).waited_ns == 0);
    time_pass(6000);
    OK(tarn_free(small));
    small = alloc_on(own, 1);
    CHECK(calls_of(0, "free_async") == 4 && plain() == 1);
    OK(tarn_free(small));
    verify(0);

    /* A full device: the driver's pool waits for what was freed in it, and what tarn holds back is
     * given to it. */
    block = alloc_on(own, 200 * MIB);
    work_on(own, block, MIB, 1000);
    OK(tarn_free(block));
    block = alloc_on(other, 200 * MIB);
    CHECK(ledger_of(0).waited_ns == 1000);
    void *more = NULL;
    GIVES(tarn_alloc_on(own, 100 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    work_on(own, block, MIB, 1000);
    OK(tarn_free_on(block, own));
    more = alloc_on(own, 100 * MIB);
    OK(tarn_free(more));
    nothing_is_left(0);
}

static void the_drivers_own_pools_and_captures(void)
{
    void *graph = NULL;
    setenv("TARN_ALLOC_CONF", "backend:cudaMallocAsync", 1);
    host_start_with(1, MEMORY);
    own = lease(0);
    other = lease(0);
    void *before = alloc_on(own, MIB), *inside = NULL;

    /* Of a pool: its memory is tarn's. What is freed meanwhile goes back later. */
    OK(tarn_pool_capture_begin(NULL, own, TARN_CAPTURE_GLOBAL));
    inside = alloc_on(own, 1000);
    OK(tarn_free(before));
    CHECK(calls_of(0, "alloc_async") == 1 && calls_of(0, "free_async") == 0);
    before = alloc_on(other, MIB);
    OK(tarn_free(inside));
    OK(tarn_capture_end(own, &graph));
    CHECK(driver->graph_destroy(0, graph) == TARN_OK);
    OK(tarn_free(before));
    OK(tarn_free(alloc_on(own, 1)));
    CHECK(calls_of(0, "free_async") == 3 && plain() == 0);

    /* One that tarn does not know of: refused, and harmless. */
    before = alloc_on(own, MIB);
    CHECK(driver->capture_begin(0, native_of(own), DRIVER_CAPTURE_GLOBAL) == TARN_OK);
    GIVES(tarn_alloc_on(own, 1000, &inside), TARN_ERROR_CAPTURE);
    OK(tarn_free(before));
    CHECK(plain() == 1);
    CHECK(driver->capture_end(0, native_of(own), &graph) == TARN_OK);
    CHECK(driver->graph_destroy(0, graph) == TARN_OK);
    OK(tarn_free(alloc_on(own, 1)));
    CHECK(plain() == 0 && calls_of(0, "free") == 0);

    /* Nor does it get what the driver refused to take back before: that goes when the capture is
     * over. */
    before = alloc_on(own, MIB);
    OK(tarn_host_fail_set(kind_of("free_async"), 1, false, TARN_ERROR_DRIVER));
    OK(tarn_free(before));
    CHECK(plain() == 1);
    CHECK(driver->capture_begin(0, native_of(own), DRIVER_CAPTURE_GLOBAL) == TARN_OK);
    OK(tarn_device_trim(0, 0));
    CHECK(plain() == 1);
    CHECK(driver->capture_end(0, native_of(own), &graph) == TARN_OK);
    CHECK(driver->graph_destroy(0, graph) == TARN_OK);
    OK(tarn_device_trim(0, 0));
    CHECK(plain() == 0);
    nothing_is_left(0);
}

/* Of a stream that is gone nothing is ordered: it goes back when its work has ended. */
static void the_drivers_own_pools_and_streams_that_end(void)
{
    setenv("TARN_ALLOC_CONF", "backend:cudaMallocAsync", 1);
    host_start_with(1, MEMORY);
    int devices = 0;
    void *native = NULL;
    OK(tarn_device_count_get(&devices));
    CHECK(driver->stream_create(0, 0, false, &native) == TARN_OK);
    OK(tarn_stream_adopt(0, native, &own));
    void *block = alloc_on(own, MIB), *late = alloc_on(own, MIB);
    work_on(own, block, MIB, 1000);
    OK(tarn_stream_retire(own));
    CHECK(driver->stream_destroy(0, native) == TARN_OK);
    OK(tarn_free(block));
    OK(tarn_free(late));
    CHECK(plain() == 2 && calls_of(0, "free_async") == 0);
    OK(tarn_device_trim(0, 0));
    CHECK(plain() == 0 && ledger_of(0).waited_ns == 1000);
    nothing_is_left(0);
    OK(tarn_shutdown());
}

/* Each driver call of a few requests fails in turn: nothing is lost. */
static void the_drivers_own_pools_and_failures(void)
{
    setenv("TARN_ALLOC_CONF", "backend:cudaMallocAsync", 1);
    host_start_with(1, MEMORY);
    own = lease(0);
    OK(tarn_free(alloc_on(own, 1)));
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        void *blocks[2] = {NULL, NULL};
        OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
        for (int i = 0; i < 2; i++) {
            tarn_status status = tarn_alloc_on(own, MIB, &blocks[i]);
            CHECK(status == TARN_OK || (status == TARN_ERROR_DRIVER && !blocks[i]));
        }
        for (int i = 0; i < 2; i++)
            OK(tarn_free(blocks[i]));
        failed = host_fail_hits() > 0;
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        verify(0);
        OK(tarn_device_trim(0, 0));
        CHECK(plain() == 0);
        nothing_is_left(0);
    }
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    OK(tarn_device_trim(0, 0));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_block_is_an_allocation_of_its_size_and_is_not_used_twice),
        cmocka_unit_test(what_work_uses_stays_until_it_has_ended),
        cmocka_unit_test(caching_goes_on_and_off_at_any_time),
        cmocka_unit_test(running_out_gives_back_what_both_modes_have),
        cmocka_unit_test(captures_are_left_alone_and_private_pools_go_on_caching),
        cmocka_unit_test(threads_may_switch_it),
    };
    in_child(by_the_environment);
    in_child(the_drivers_own_pools);
    in_child(the_drivers_own_pools_and_captures);
    in_child(the_drivers_own_pools_and_streams_that_end);
    in_child(the_drivers_own_pools_and_failures);
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
