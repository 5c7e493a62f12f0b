/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What an out-of-memory error says: the facts, and no remedy that they do not bear out. */
#include "driver/driver.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICE ((size_t)512 << 20)

static tarn_stream stream;

static void begin(void)
{
    host_start_with(1, DEVICE);
    stream = lease(0);
}

static void refused(size_t size)
{
    void *pointer = NULL;
    GIVES(tarn_alloc_on(stream, size, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!pointer);
}

#define SAYS(text) check_at(strstr(tarn_last_error(), text), text, __FILE__, __LINE__)
#define SAYS_NOTHING_OF(text) check_at(!strstr(tarn_last_error(), text), text, __FILE__, __LINE__)

static void it_names_free_memory_and_its_fragmentation(void)
{
    begin();
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = alloc_on(stream, 60 * MIB + 512); /* a piece too many for the device to have 64
                                                         MiB besides */
    for (int i = 0; i < 8; i += 2)
        OK(tarn_free(blocks[i]));
    refused(400 * MIB);
    SAYS("400 MiB on device 0 (tarn host device), which has ");
    SAYS("of its 512 MiB free");
    SAYS("(the largest stretch ");
    SAYS(", fragmentation 7");
    SAYS(" in pieces that live blocks hold in place)");
    SAYS_NOTHING_OF("expandable_segments"); /* it is on */
    for (int i = 1; i < 8; i += 2)
        OK(tarn_free(blocks[i]));
}

static void what_no_device_holds_has_no_other_remedy(void)
{
    begin();
    OK(tarn_device_limit_set(0, 64 * MIB));
    refused(600 * MIB);
    SAYS("What helps: the device could not hold it if it were empty: ask for less at a time.");
}

static void a_limit_is_the_remedy_only_where_it_was_in_the_way(void)
{
    begin();
    OK(tarn_device_limit_set(0, 64 * MIB));
    refused(100 * MIB);
    SAYS("(the limit is 64 MiB)");
    SAYS("What helps: a higher limit (tarn_device_limit_set(), limit_mb) would have let it "
         "through.");
    OK(tarn_device_limit_set(0, 500 * MIB));
    void *most = alloc_on(stream, 480 * MIB);
    refused(100 * MIB);
    SAYS_NOTHING_OF("a higher limit"); /* the device would not have had it either */
    OK(tarn_free(most));
}

static void memory_that_waits_is_named_with_its_stream(void)
{
    begin();
    char text[64];
    tarn_stream capturing = lease(0);
    void *block = alloc_on(stream, 300 * MIB);
    /* Nothing can wait for what is in it */
    OK(tarn_capture_begin(capturing, TARN_CAPTURE_RELAXED));
    OK(tarn_record_stream(block, capturing));
    OK(tarn_free(block));
    refused(400 * MIB);
    snprintf(text, sizeof text, "300 MiB waiting for streams (300 MiB of stream %#llx)",
             (unsigned long long)(uintptr_t)native_of(capturing));
    SAYS(text);
    SAYS("open capture");
    snprintf(text, sizeof text, "or synchronize stream %#llx before",
             (unsigned long long)(uintptr_t)native_of(capturing));
    SAYS(text);
    OK(tarn_capture_abort(capturing));
    OK(tarn_free(alloc_on(stream, 400 * MIB)));
}

static void an_idle_pool_is_the_remedy_that_has_enough(void)
{
    begin();
    tarn_pool *small = NULL, *large = NULL;
    void *pointer = NULL;
    OK(tarn_pool_create(NULL, &small));
    OK(tarn_pool_create(NULL, &large));
    OK(tarn_pool_alloc(small, stream, 40 * MIB, &pointer));
    OK(tarn_pool_alloc(large, stream, 300 * MIB, &pointer));
    OK(tarn_free(pointer));
    refused(400 * MIB);
    SAYS("Private pools reserve 340 MiB, which serve nobody else: (0, ");
    SAYS("300 MiB, 300 MiB of it idle");
    SAYS("40 MiB, 0 B of it idle");
    SAYS("What helps: tarn_pool_trim() gives back up to 300 MiB of pool (0, ");
    OK(tarn_pool_alloc(large, stream, 100 * MIB, &pointer));
    refused(500 * MIB);
    SAYS_NOTHING_OF("tarn_pool_trim()"); /* 200 MiB would not do */
    OK(tarn_free(pointer));
    OK(tarn_pool_trim(large, 0));
    OK(tarn_free(alloc_on(stream, 400 * MIB))); /* and so it does */
    OK(tarn_pool_release(small));
    OK(tarn_pool_release(large));
}

static void others_memory_is_named(void)
{
    begin();
    uintptr_t foreign = 0;
    OK(driver->alloc(0, 400 * MIB, &foreign));
    refused(200 * MIB);
    SAYS("Not tarn's: 400 MiB");
    SAYS("400 MiB of the device are not tarn's: make room there");
    OK(driver->free(0, foreign));
}

static void plain_segments_that_do_not_join_are_told_so(void)
{
    setenv("TARN_ALLOC_CONF", "segments:plain", 1);
    begin();
    void *blocks[48];
    for (int i = 0; i < 48; i++)
        blocks[i] = alloc_on(stream, 9 * MIB); /* two of them in a segment */
    for (int i = 0; i < 48; i += 2)
        OK(tarn_free(blocks[i]));
    refused(200 * MIB);
    SAYS("264 MiB free in heaps (the largest stretch ");
    SAYS("virtual segments join it (the setting segments:virtual, or the pool's `segments`)");
}

static void free_memory_that_live_blocks_hold_in_place_is_told_so(void)
{
    enum { COUNT = 26 };
    void *blocks[COUNT];
    host_start_with(1, DEVICE / 2);
    stream = lease(0);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = alloc_on(stream, 9 * MIB); /* a piece has some of them */
    for (int i = 0; i < COUNT; i++)
        if (i % 5 < 2)
            OK(tarn_free(blocks[i]));
    refused(100 * MIB);
    SAYS("in pieces that live blocks hold in place)");
    SAYS("enough is free, but live blocks hold ");
    SAYS("compaction:on_oom");
    SAYS("live blocks lie between what is free");
    SAYS_NOTHING_OF("fill it");
    OK(tarn_configuration_set("compaction:on_oom_quiet"));
    refused(120 * MIB);
    SAYS_NOTHING_OF("compaction:"); /* it is on */
    OK(tarn_configuration_set("compaction:off"));
    for (int i = 0; i < COUNT; i++)
        if (i % 5 >= 2)
            OK(tarn_free(blocks[i]));
}

/* The same where a limit is in the way, and the driver has plenty. */
static void under(bool of_pool)
{
    enum { COUNT = 26 };
    void *blocks[COUNT], *more = NULL;
    host_start_with(1, 4 * DEVICE);
    stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    OK(tarn_device_limit_set(0, 256 * MIB));
    for (int i = 0; i < COUNT; i++)
        blocks[i] = alloc_in(pool, stream, 9 * MIB);
    if (of_pool) {
        OK(tarn_pool_limit_set(pool, 256 * MIB));
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    }
    for (int i = 0; i < COUNT; i++)
        if (i % 5 < 2)
            OK(tarn_free(blocks[i]));
    GIVES(tarn_pool_alloc(pool, stream, 100 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    SAYS(of_pool ? "a higher limit of the pool" : "a higher limit (tarn_device_limit_set()");
    SAYS("enough is free, but live blocks hold ");
    SAYS_NOTHING_OF("fill it");
    OK(tarn_pool_limit_set(pool, TARN_NO_LIMIT));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (int i = 0; i < COUNT; i++)
        if (i % 5 >= 2)
            OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(pool));
}

static void what_lies_between_live_blocks_below_a_limit_is_told_so(void)
{
    under(false);
}

static void what_lies_between_live_blocks_below_a_pools_limit_is_told_so(void)
{
    under(true);
}

/* What is not enough to get below the limit helps nobody. */
static void what_would_not_get_below_a_limit_is_no_remedy(void)
{
    host_start_with(1, 4 * DEVICE);
    stream = lease(0);
    uintptr_t foreign = 0;
    tarn_pool *idle = pool_with((tarn_pool_options){.device = 0});
    OK(driver->alloc(0, 400 * MIB, &foreign));
    OK(tarn_free(alloc_in(idle, stream, 30 * MIB)));
    OK(tarn_device_limit_set(0, 512 * MIB));
    void *most = alloc_on(stream, 450 * MIB);
    refused(200 * MIB);
    SAYS("a higher limit");
    SAYS_NOTHING_OF("make room there");
    SAYS_NOTHING_OF("tarn_pool_trim()");
    OK(tarn_free(most));
    OK(driver->free(0, foreign));
    OK(tarn_pool_release(idle));
}

static void the_way_to_see_more_is_named_unless_it_is_on(void)
{
    begin();
    void *most = alloc_on(stream, 480 * MIB);
    refused(100 * MIB);
    SAYS("live blocks fill it: run with TARN_OOM_SNAPSHOT=<folder> and TARN_TRACE=1 to see which");
    OK(tarn_trace_start(NULL));
    refused(100 * MIB);
    SAYS("run with TARN_OOM_SNAPSHOT=<folder> to see which");
    OK(tarn_trace_stop());
    OK(tarn_free(most));
}

int main(void)
{
    unsetenv("TARN_OOM_SNAPSHOT");
    unsetenv("TARN_TRACE");
    const struct CMUnitTest tests[] = {
        CHILD_TEST(it_names_free_memory_and_its_fragmentation),
        CHILD_TEST(what_no_device_holds_has_no_other_remedy),
        CHILD_TEST(a_limit_is_the_remedy_only_where_it_was_in_the_way),
        CHILD_TEST(memory_that_waits_is_named_with_its_stream),
        CHILD_TEST(an_idle_pool_is_the_remedy_that_has_enough),
        CHILD_TEST(others_memory_is_named),
        CHILD_TEST(what_lies_between_live_blocks_below_a_limit_is_told_so),
        CHILD_TEST(what_lies_between_live_blocks_below_a_pools_limit_is_told_so),
        CHILD_TEST(what_would_not_get_below_a_limit_is_no_remedy),
        CHILD_TEST(plain_segments_that_do_not_join_are_told_so),
        CHILD_TEST(free_memory_that_live_blocks_hold_in_place_is_told_so),
        CHILD_TEST(the_way_to_see_more_is_named_unless_it_is_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
