/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A driver that refuses address ranges, as on some machines with much free memory: what needs none
 * goes on. Each test is a process of its own, since the simulated libcuda reads once which calls
 * fail. */
#include "driver/driver.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)

/* Every range; or the first ones alone. */
static void refuse(const char *which, const char *settings)
{
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0 && setenv("TARN_SIM_FAIL", which, 1) == 0);
    CHECK(setenv("TARN_ALLOC_CONF", settings, 1) == 0);
    host_start_with(1, MEMORY);
}

static void refuse_all(const char *settings)
{
    refuse("cuMemAddressReserve:1:2+", settings);
}

/* Allocation, a pool that says nothing, and all back; then a handle with its workspace, and memory
 * that the library takes itself. */
static void everything_works(void)
{
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    void *handle = NULL;
    void *blocks[] = {alloc_on(stream, 100), alloc_on(stream, 300 * MIB),
                      alloc_in(pool, stream, 9 * MIB)};
    verify(0);
    for (int i = 0; i < 3; i++)
        OK(tarn_free(blocks[i]));
    void *large = alloc_on(stream, 400 * MIB);
    OK(tarn_free(large));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle));
    CHECK(handle && stats_of(0).reserved_bytes[0].current > 0);
}

static void the_default_takes_plain_segments(void)
{
    refuse_all("");
    everything_works();
    CHECK(calls_of(0, "map") == 0);
}

/* CUDA_ERROR_INVALID_VALUE and others, which drivers give for ranges that they do not have. */
static const char *reason_now;

static void it_takes_plain_segments_for_this_reason(void)
{
    refuse(reason_now, "");
    everything_works();
    CHECK(calls_of(0, "map") == 0);
}

static void whatever_the_reason_is(void **state)
{
    static const char *const reasons[] = {"cuMemAddressReserve:1:1+", "cuMemAddressReserve:1:800+",
                                          "cuMemAddressReserve:1:801+",
                                          "cuMemAddressReserve:1:304+"};
    (void)state;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        reason_now = reasons[i];
        in_child(it_takes_plain_segments_for_this_reason);
    }
}

/* A range of four times the memory is refused; the second is half as long. */
static void the_default_tries_smaller_ranges(void)
{
    refuse("cuMemAddressReserve:1:2", "");
    everything_works();
    CHECK(calls_of(0, "map") > 0);
}

/* As many addresses as memory: what small blocks have must not lie in the middle. */
static void a_range_as_long_as_the_memory_serves_large_blocks(void)
{
    refuse("cuMemAddressReserve:1:2,cuMemAddressReserve:2:2", "");
    everything_works();
    CHECK(calls_of(0, "map") > 0);
}

/* The default has fallen back to plain segments; then the driver has addresses again. */
static void a_pool_that_needs_them_asks_again(void)
{
    refuse("cuMemAddressReserve:1:2,cuMemAddressReserve:2:2,cuMemAddressReserve:3:2", "");
    void *plain = alloc_on(lease(0), 30 * MIB);
    CHECK(calls_of(0, "map") == 0);
    tarn_pool *pools[] = {pool_with((tarn_pool_options){.exportable = true}),
                          pool_with((tarn_pool_options){.registrable = true})};
    for (int i = 0; i < 2; i++) {
        int before = (int)calls_of(0, "map");
        tarn_share *share = NULL;
        void *block = alloc_in(pools[i], lease(0), 5 * MIB);
        CHECK((int)calls_of(0, "map") > before);
        OK(tarn_export(block, &share));
        OK(tarn_share_close(share));
        OK(tarn_free(block));
        OK(tarn_pool_release(pools[i]));
    }
    verify(0);
    OK(tarn_free(plain));
    nothing_is_left(0);
}

/* Even while a pool that asked for it has virtual memory, and when nothing is left of the
 * segments. */
static void the_default_that_fell_back_stays_plain(void)
{
    refuse("cuMemAddressReserve:1:2,cuMemAddressReserve:2:2,cuMemAddressReserve:3:2", "");
    tarn_stream stream = lease(0);
    OK(tarn_free(alloc_on(stream, 30 * MIB)));
    OK(tarn_device_trim(0, 0));
    tarn_pool *virtual = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL});
    void *mapped = alloc_in(virtual, stream, 5 * MIB);
    uint64_t maps = calls_of(0, "map");
    CHECK(maps > 0);
    tarn_pool *like_it = pool_with((tarn_pool_options){0});
    void *blocks[] = {alloc_on(stream, 30 * MIB), alloc_in(like_it, stream, 30 * MIB)};
    CHECK(calls_of(0, "map") == maps);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    OK(tarn_free(mapped));
    OK(tarn_pool_release(like_it));
    OK(tarn_pool_release(virtual));
    nothing_is_left(0);
}

static void plain_settings_ask_for_none(const char *settings)
{
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0 && setenv("TARN_ALLOC_CONF", settings, 1) == 0);
    host_start_with(1, MEMORY);
    void *some = alloc_on(lease(0), 30 * MIB);
    CHECK(calls_of(0, "reserve") == 0);
    tarn_pool *virtual = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL});
    CHECK(calls_of(0, "reserve") == 1);
    void *block = alloc_in(virtual, lease(0), 5 * MIB);
    CHECK(calls_of(0, "map") > 0);
    verify(0);
    OK(tarn_free(block));
    OK(tarn_free(some));
    OK(tarn_pool_release(virtual));
    everything_works();
    CHECK(calls_of(0, "reserve") == 1);
}

static void plain_segments_ask_for_none(void)
{
    plain_settings_ask_for_none("segments:plain");
}

static void exact_segments_ask_for_none(void)
{
    plain_settings_ask_for_none("segments:exact");
}

static void plain_segments_work(void)
{
    refuse_all("segments:plain");
    everything_works();
}

static void says_what_helps(void)
{
    CHECK(strstr(tarn_last_error(), "cuMemAddressReserve") &&
          strstr(tarn_last_error(), "TARN_ALLOC_CONF=segments:plain"));
}

static void who_asks_for_virtual_memory_is_told_what_needs_none(void)
{
    static const tarn_pool_options options = {.size = sizeof options,
                                              .segments = TARN_SEGMENTS_VIRTUAL};
    tarn_pool *pool = NULL;
    refuse_all("");
    GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_OUT_OF_MEMORY);
    says_what_helps();
    everything_works();
}

static void virtual_segments_are_refused(void)
{
    void *block = NULL, *handle = NULL;
    refuse_all("segments:virtual");
    GIVES(tarn_alloc_on(TARN_STREAM_LEGACY, 100, &block), TARN_ERROR_OUT_OF_MEMORY);
    says_what_helps();
    GIVES(tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle),
          TARN_ERROR_OUT_OF_MEMORY);
    says_what_helps();
}

/* What else is out of memory then says nothing of addresses. */
static void a_shortage_of_plain_segments_is_told_without_addresses(void)
{
    void *block = NULL;
    refuse_all("");
    GIVES(tarn_alloc_on(lease(0), 600 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!strstr(tarn_last_error(), "of addresses are left") &&
          !strstr(tarn_last_error(), "expandable_segments"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(the_default_takes_plain_segments),
        cmocka_unit_test(whatever_the_reason_is),
        CHILD_TEST(the_default_tries_smaller_ranges),
        CHILD_TEST(a_range_as_long_as_the_memory_serves_large_blocks),
        CHILD_TEST(a_pool_that_needs_them_asks_again),
        CHILD_TEST(the_default_that_fell_back_stays_plain),
        CHILD_TEST(plain_segments_ask_for_none),
        CHILD_TEST(exact_segments_ask_for_none),
        CHILD_TEST(plain_segments_work),
        CHILD_TEST(who_asks_for_virtual_memory_is_told_what_needs_none),
        CHILD_TEST(virtual_segments_are_refused),
        CHILD_TEST(a_shortage_of_plain_segments_is_told_without_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
