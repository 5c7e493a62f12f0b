/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What happens when memory is short. The device has 128 MiB. */
#include "support/host.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)

static tarn_stream own, other, third;

static uint64_t waited(void)
{
    return ledger_of(0).waited_ns;
}

static void refused(tarn_stream stream, size_t size)
{
    void *pointer = &pointer;
    GIVES(tarn_alloc_on(stream, size, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(pointer == &pointer);
}

static void says(const char *text)
{
    check_at(strstr(tarn_last_error(), text), text, __FILE__, __LINE__);
}

static void out_of_memory_names_the_facts(void **state)
{
    (void)state;
    void *live = alloc_on(own, 60 * MIB), *hole = alloc_on(own, 1 * MIB),
         *end = alloc_on(own, 1000);
    OK(tarn_free(hole));
    tarn_stats before = stats_of(0);
    refused(own, 100 * MIB);
    says("100 MiB on device 0");
    says("of its 128 MiB free");
    says("tarn reserves 62 MiB (no limit is set): 60.06 MiB live, 1.94 MiB free in heaps");
    CHECK(stats_of(0).num_ooms == before.num_ooms + 1);
    OK(tarn_device_limit_set(0, 100 * MIB));
    refused(own, 90 * MIB);
    says("the limit is 100 MiB");
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    OK(tarn_free(live));
    OK(tarn_free(end));
    nothing_is_left(0);
}

static void after_out_of_memory_the_next_call_works_and_nothing_is_lost(void **state)
{
    (void)state;
    char *live = alloc_on(own, 60 * MIB);
    memset(live, 5, 60 * MIB);
    for (int i = 0; i < 5; i++) {
        refused(own, 90 * MIB);
        refused(other, 90 * MIB);
        verify(0);
        OK(tarn_free(alloc_on(own, 60 * MIB)));
    }
    CHECK(!tarn_malloc(90 * MIB));
    GIVES(tarn_last_status(), TARN_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < 60 * MIB; i += 4096)
        CHECK(live[i] == 5);
    OK(tarn_free(live));
    nothing_is_left(0);
}

static void
a_request_above_the_device_or_the_limit_is_refused_before_the_driver_is_asked(void **state)
{
    (void)state;
    void *block = alloc_on(other, 100 * MIB);
    work_on(other, block, MIB, 5000);
    OK(tarn_free(block));
    tarn_stats before = stats_of(0);
    uint64_t unmaps = calls_of(0, "unmap"), creates = calls_of(0, "create"), wait = waited();
    refused(own, MEMORY + 1);
    refused(own, TARN_MAX_SIZE);
    refused(own, TARN_MAX_SIZE + 1);
    refused(own, SIZE_MAX);
    CHECK(calls_of(0, "unmap") == unmaps && calls_of(0, "create") == creates && waited() == wait);
    CHECK(stats_of(0).num_oom_rejections == before.num_oom_rejections + 2);
    OK(tarn_device_limit_set(0, 50 * MIB)); /* below what is reserved: that can still be used */
    block = alloc_on(other, 100 * MIB);
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    refused(own, 51 * MIB);
    OK(tarn_free(alloc_on(own, 50 * MIB)));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void the_limit_holds_for_all_streams_together(void **state)
{
    (void)state;
    size_t limit = 0;
    OK(tarn_device_limit_set(0, 64 * MIB));
    OK(tarn_device_limit_get(0, &limit));
    CHECK(limit == 64 * MIB);
    void *first = alloc_on(own, 40 * MIB);
    refused(other, 25 * MIB);
    void *second = alloc_on(other, 24 * MIB);
    CHECK(ledger_of(0).created == 64 * MIB);
    refused(third, 512);
    OK(tarn_free(first));
    void *small = alloc_on(third, 512);
    CHECK(ledger_of(0).created <= 64 * MIB);
    OK(tarn_free(second));
    OK(tarn_free(small));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void memory_of_another_streams_heap_is_taken_without_a_wait_when_it_is_idle(void **state)
{
    (void)state;
    void *block = alloc_on(other, 100 * MIB);
    work_on(other, block, MIB, 1000);
    OK(tarn_free(block));
    time_pass(1000);
    work_on(third, NULL, 0, 100000); /* nobody's concern */
    uint64_t wait = waited(), creates = calls_of(0, "create");
    block = alloc_on(own, 100 * MIB);
    CHECK(waited() == wait && ledger_of(0).created <= MEMORY);
    CHECK(calls_of(0, "create") == creates);
    CHECK(stats_of(0).num_sync_all_streams == 0);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void a_request_waits_only_for_busy_memory_of_another_stream(void **state)
{
    (void)state;
    void *block = alloc_on(other, 100 * MIB);
    work_on(third, NULL, 0, 100000);
    work_on(other, block, MIB, 2000);
    OK(tarn_free(block));
    uint64_t wait = waited(), start = time_now();
    block = alloc_on(own, 100 * MIB);
    CHECK(waited() == wait + 2000 && time_now() == start + 2000);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void work_whose_end_frees_nothing_is_not_waited_for(void **state)
{
    (void)state;
    void *live = alloc_on(other, 100 * MIB), *hole = alloc_on(other, 100000),
         *beside = alloc_on(other, 100000);
    OK(tarn_free(hole));
    work_on(other, live, MIB, 50000);
    uint64_t wait = waited(), now = time_now();
    refused(own, 60 * MIB);
    CHECK(waited() == wait && time_now() == now);
    OK(tarn_free(live));
    OK(tarn_free(beside));
    nothing_is_left(0);
}

static void the_own_stream_never_waits_for_its_own_memory(void **state)
{
    (void)state;
    void *block = alloc_on(own, 100 * MIB);
    work_on(own, block, MIB, 50000);
    OK(tarn_free(block));
    uint64_t wait = waited(), calls = all_calls(0);
    void *again = alloc_on(own, 100 * MIB);
    CHECK(again == block && waited() == wait && all_calls(0) == calls);
    OK(tarn_free(again));
    nothing_is_left(0);
}

static void a_block_that_another_stream_uses_is_waited_for_when_it_must_be(void **state)
{
    (void)state;
    void *block = alloc_on(own, 100 * MIB);
    work_on(other, block, MIB, 3000);
    OK(tarn_free_on(block, other));
    work_on(third, NULL, 0, 100000);
    uint64_t start = time_now();
    block = alloc_on(own, 90 * MIB);
    CHECK(time_now() == start + 3000);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void of_two_busy_heaps_the_wait_goes_on_until_there_is_enough(void **state)
{
    (void)state;
    void *first = alloc_on(other, 60 * MIB), *second = alloc_on(third, 60 * MIB);
    work_on(other, first, MIB, 2000);
    work_on(third, second, MIB, 8000);
    OK(tarn_free(first));
    OK(tarn_free(second));
    uint64_t start = time_now();
    void *block = alloc_on(own, 120 * MIB);
    CHECK(time_now() == start + 8000);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void memory_of_a_retired_stream_is_used_by_others(void **state)
{
    (void)state;
    tarn_stream adopted = 0;
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    void *freed = alloc_on(adopted, 60 * MIB), *late = alloc_on(adopted, 60 * MIB);
    work_on(adopted, freed, MIB, 4000);
    OK(tarn_free(freed));
    OK(tarn_stream_retire(adopted));
    uint64_t start = time_now();
    void *block = alloc_on(own, 60 * MIB);
    CHECK(time_now() == start + 4000);
    OK(tarn_free(late));
    void *second = alloc_on(other, 60 * MIB);
    CHECK(time_now() == start + 4000);
    OK(tarn_free(block));
    OK(tarn_free(second));
    nothing_is_left(0);
}

static void a_small_block_is_served_from_idle_large_pieces(void **state)
{
    (void)state;
    void *large = alloc_on(own, 120 * MIB), *rest = alloc_on(own, 8 * MIB);
    OK(tarn_free(rest));
    void *small = alloc_on(own, 700); /* another zone: pieces move */
    CHECK(ledger_of(0).created <= MEMORY);
    OK(tarn_free(small));
    OK(tarn_free(large));
    nothing_is_left(0);
}

static void a_failed_wait_is_reported_and_the_next_call_works(void **state)
{
    (void)state;
    void *block = alloc_on(other, 100 * MIB), *pointer = NULL;
    work_on(other, block, MIB, 2000);
    OK(tarn_free(block));
    OK(tarn_host_fail_set(kind_of("event_synchronize"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_alloc_on(own, 100 * MIB, &pointer), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(!pointer);
    verify(0);
    OK(tarn_free(alloc_on(own, 100 * MIB)));
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    third = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory_names_the_facts),
        cmocka_unit_test(after_out_of_memory_the_next_call_works_and_nothing_is_lost),
        cmocka_unit_test(
            a_request_above_the_device_or_the_limit_is_refused_before_the_driver_is_asked),
        cmocka_unit_test(the_limit_holds_for_all_streams_together),
        cmocka_unit_test(memory_of_another_streams_heap_is_taken_without_a_wait_when_it_is_idle),
        cmocka_unit_test(a_request_waits_only_for_busy_memory_of_another_stream),
        cmocka_unit_test(work_whose_end_frees_nothing_is_not_waited_for),
        cmocka_unit_test(the_own_stream_never_waits_for_its_own_memory),
        cmocka_unit_test(a_block_that_another_stream_uses_is_waited_for_when_it_must_be),
        cmocka_unit_test(of_two_busy_heaps_the_wait_goes_on_until_there_is_enough),
        cmocka_unit_test(memory_of_a_retired_stream_is_used_by_others),
        cmocka_unit_test(a_small_block_is_served_from_idle_large_pieces),
        cmocka_unit_test(a_failed_wait_is_reported_and_the_next_call_works),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
