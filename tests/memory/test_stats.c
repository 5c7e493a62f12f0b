/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The counters, with the meanings of torch.cuda.memory_stats(): requested as asked for, allocated
 * in units of 512 B, active until the memory can be used again, small up to 1 MiB. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static tarn_stream own, other;

static void is(tarn_stat stat, int64_t current, int64_t peak, int64_t allocated, int64_t freed)
{
    CHECK(stat.current == current);
    CHECK(stat.peak == peak);
    CHECK(stat.allocated == allocated);
    CHECK(stat.freed == freed);
}

static void fresh(void)
{
    nothing_is_left(0);
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
}

static void one_byte_is_requested_as_1_and_allocated_as_512(void **state)
{
    (void)state;
    fresh();
    void *block = alloc_on(own, 1);
    tarn_stats stats = stats_of(0);
    for (int class = TARN_STAT_ALL; class <= TARN_STAT_SMALL_POOL; class ++) {
        is(stats.allocation[class], 1, 1, 1, 0);
        is(stats.active[class], 1, 1, 1, 0);
        is(stats.requested_bytes[class], 1, 1, 1, 0);
        is(stats.allocated_bytes[class], 512, 512, 512, 0);
        is(stats.active_bytes[class], 512, 512, 512, 0);
    }
    is(stats.allocation[TARN_STAT_LARGE_POOL], 0, 0, 0, 0);
    is(stats.segment[TARN_STAT_ALL], 1, 1, 1, 0);
    is(stats.reserved_bytes[TARN_STAT_ALL], 2 << 20, 2 << 20, 2 << 20, 0);
    CHECK(stats.num_device_alloc == 1 && stats.num_device_free == 0 && stats.max_split_size == -1);
    OK(tarn_free(block));
    stats = stats_of(0);
    /* a peak may be low by what a thread has not published yet */
    CHECK(stats.allocation[0].current == 0 && stats.allocation[0].allocated == 1 &&
          stats.allocation[0].freed == 1);
    CHECK(stats.requested_bytes[0].current == 0 && stats.requested_bytes[0].freed == 1);
    CHECK(stats.allocated_bytes[0].current == 0 && stats.allocated_bytes[0].freed == 512);
    CHECK(stats.active_bytes[0].current == 0 && stats.active_bytes[0].freed == 512);
    is(stats.reserved_bytes[TARN_STAT_ALL], 2 << 20, 2 << 20, 2 << 20, 0);
}

static void resets_hold_for_what_threads_have_not_published_yet(void **state)
{
    (void)state;
    fresh();
    void *blocks[100];
    for (int i = 0; i < 100; i++)
        blocks[i] = alloc_on(own, 600);
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    is(stats_of(0).allocation[TARN_STAT_ALL], 100, 100, 0, 0);
    for (int i = 0; i < 100; i++)
        OK(tarn_free(blocks[i]));
    is(stats_of(0).allocation[TARN_STAT_ALL], 0, 100, 0, 100);
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    is(stats_of(0).allocation[TARN_STAT_ALL], 0, 0, 0, 100);
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    is(stats_of(0).allocation[TARN_STAT_ALL], 0, 0, 0, 0);
    fresh();
}

static void blocks_up_to_1_mib_are_small_and_above_it_large(void **state)
{
    (void)state;
    fresh();
    void *small = alloc_on(own, MIB), *large = alloc_on(own, MIB + 1);
    tarn_stats stats = stats_of(0);
    is(stats.allocated_bytes[TARN_STAT_SMALL_POOL], 1 << 20, 1 << 20, 1 << 20, 0);
    is(stats.allocated_bytes[TARN_STAT_LARGE_POOL], (1 << 20) + 512, (1 << 20) + 512,
       (1 << 20) + 512, 0);
    is(stats.requested_bytes[TARN_STAT_LARGE_POOL], (1 << 20) + 1, (1 << 20) + 1, (1 << 20) + 1, 0);
    is(stats.allocation[TARN_STAT_ALL], 2, 2, 2, 0);
    OK(tarn_free(small));
    OK(tarn_free(large));
    fresh();
}

static void a_freed_block_is_active_until_its_other_streams_have_finished(void **state)
{
    (void)state;
    fresh();
    void *block = alloc_on(own, 3 * MIB);
    work_on(other, block, 1, 1000);
    OK(tarn_record_stream(block, other));
    OK(tarn_free(block));
    tarn_stats stats = stats_of(0);
    is(stats.allocation[TARN_STAT_ALL], 0, 1, 1, 1);
    is(stats.allocated_bytes[TARN_STAT_ALL], 0, 3 << 20, 3 << 20, 3 << 20);
    is(stats.active[TARN_STAT_ALL], 1, 1, 1, 0);
    is(stats.active_bytes[TARN_STAT_LARGE_POOL], 3 << 20, 3 << 20, 3 << 20, 0);
    time_pass(1000);
    OK(tarn_device_trim(0, 0));
    is(stats_of(0).active[TARN_STAT_ALL], 0, 1, 1, 1);
    fresh();
}

static void free_memory_beside_other_memory_is_inactive_split(void **state)
{
    (void)state;
    fresh();
    void *first = alloc_on(own, 20 * MIB - 512);
    tarn_stats stats = stats_of(0);
    CHECK(stats.inactive_split[TARN_STAT_LARGE_POOL].current == 1);
    CHECK(stats.inactive_split_bytes[TARN_STAT_LARGE_POOL].current == 512);
    OK(tarn_free(first)); /* one stretch again: not split */
    CHECK(stats_of(0).inactive_split[TARN_STAT_ALL].current == 0);
    first = alloc_on(own, 5 * MIB);
    void *second = alloc_on(own, 5 * MIB), *third = alloc_on(own, 10 * MIB);
    CHECK(stats_of(0).inactive_split[TARN_STAT_ALL].current == 0);
    OK(tarn_free(second));
    CHECK(stats_of(0).inactive_split_bytes[TARN_STAT_ALL].current == 5 << 20);
    OK(tarn_free(first));
    CHECK(stats_of(0).inactive_split[TARN_STAT_ALL].current == 1);
    CHECK(stats_of(0).inactive_split_bytes[TARN_STAT_ALL].current == 10 << 20);
    OK(tarn_free(third));
    fresh();
}

static void a_block_that_grew_counts_with_its_new_sizes(void **state)
{
    (void)state;
    fresh();
    void *block = alloc_on(own, 2 * MIB);
    OK(tarn_extend(block, 3 * MIB - 100));
    tarn_stats stats = stats_of(0);
    is(stats.requested_bytes[TARN_STAT_ALL], (3 << 20) - 100, (3 << 20) - 100, (3 << 20) - 100, 0);
    is(stats.allocated_bytes[TARN_STAT_ALL], 3 << 20, 3 << 20, 3 << 20, 0);
    is(stats.allocation[TARN_STAT_ALL], 1, 1, 1, 0);
    OK(tarn_free(block));
    is(stats_of(0).allocated_bytes[TARN_STAT_ALL], 0, 3 << 20, 3 << 20, 3 << 20);
    fresh();
}

static void resets_touch_only_the_counters_that_they_name(void **state)
{
    (void)state;
    fresh();
    void *first = alloc_on(own, 4 * MIB), *second = alloc_on(own, 4 * MIB), *refused = NULL;
    GIVES(tarn_alloc_on(own, 300 * MIB, &refused), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(stats_of(0).num_ooms == 1);
    OK(tarn_free(first));
    is(stats_of(0).allocated_bytes[TARN_STAT_ALL], 4 << 20, 8 << 20, 8 << 20, 4 << 20);
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    is(stats_of(0).allocated_bytes[TARN_STAT_ALL], 4 << 20, 4 << 20, 8 << 20, 4 << 20);
    CHECK(stats_of(0).num_ooms == 1);
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    is(stats_of(0).allocated_bytes[TARN_STAT_ALL], 4 << 20, 4 << 20, 0, 0);
    tarn_stats stats = stats_of(0);
    CHECK(stats.num_ooms == 0 && stats.num_device_alloc == 0 && stats.num_alloc_retries == 0);
    OK(tarn_free(second));
    is(stats_of(0).allocated_bytes[TARN_STAT_ALL], 0, 4 << 20, 0, 4 << 20);
    fresh();
}

static void a_failed_request_counts_nothing_but_itself(void **state)
{
    (void)state;
    fresh();
    void *refused = NULL;
    GIVES(tarn_alloc_on(own, 200 * MIB, &refused), TARN_ERROR_OUT_OF_MEMORY);
    tarn_stats stats = stats_of(0);
    CHECK(stats.num_ooms == 1 && stats.num_oom_rejections == 1);
    is(stats.allocation[TARN_STAT_ALL], 0, 0, 0, 0);
    is(stats.reserved_bytes[TARN_STAT_ALL], 0, 0, 0, 0);
    is(stats.requested_bytes[TARN_STAT_ALL], 0, 0, 0, 0);
    fresh();
}

static void devices_are_counted_apart_and_arguments_checked(void **state)
{
    (void)state;
    fresh();
    tarn_stats wrong = {.size = 1};
    OK(tarn_free(alloc_on(lease(1), 100)));
    CHECK(stats_of(0).allocation[0].allocated == 0 && stats_of(1).allocation[0].allocated == 1);
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    CHECK(stats_of(1).allocation[0].allocated == 1);
    CHECK(stats_of(1).metadata_bytes > 0);
    GIVES(tarn_device_stats_get(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_device_stats_get(0, &wrong), TARN_ERROR_INVALID_ARGUMENT);
    nothing_is_left(1);
}

struct kinds {
    int64_t bytes, events, spans;
    bool map, pages;
};

static void add_kind(const tarn_metadata_kind *kind, void *user)
{
    struct kinds *kinds = user;
    CHECK(kind->size == sizeof *kind && kind->record_bytes > 0);
    CHECK(kind->records >= 0 &&
          (uint64_t)kind->bytes >= (uint64_t)kind->records * kind->record_bytes);
    kinds->bytes += kind->bytes;
    if (strcmp(kind->name, "tarn_event") == 0)
        kinds->events = kind->records;
    if (strcmp(kind->name, "span") == 0)
        kinds->spans = kind->records;
    kinds->map |= strcmp(kind->name, "leaf of the page map") == 0 && kind->records > 0;
    kinds->pages |= strcmp(kind->name, "page") == 0 && kind->records > 0;
    tarn_stats stats = stats_of(0); /* no lock is held */
    CHECK(kinds->bytes <= stats.metadata_bytes);
}

static struct kinds kinds_now(void)
{
    struct kinds kinds = {0};
    OK(tarn_metadata_list(add_kind, &kinds));
    CHECK(kinds.bytes == stats_of(0).metadata_bytes);
    CHECK(kinds.map && kinds.pages && kinds.spans > 0);
    return kinds;
}

static void metadata_is_reported_by_kind(void **state)
{
    (void)state;
    tarn_event *events[3];
    void *block = alloc_on(own, 8 * MIB);
    int64_t before = kinds_now().events;
    for (int i = 0; i < 3; i++)
        OK(tarn_event_create(0, &events[i]));
    CHECK(kinds_now().events == before + 3);
    for (int i = 0; i < 3; i++)
        OK(tarn_event_destroy(events[i]));
    CHECK(kinds_now().events == before);
    OK(tarn_free(block));
    GIVES(tarn_metadata_list(NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    other = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_byte_is_requested_as_1_and_allocated_as_512),
        cmocka_unit_test(resets_hold_for_what_threads_have_not_published_yet),
        cmocka_unit_test(blocks_up_to_1_mib_are_small_and_above_it_large),
        cmocka_unit_test(a_freed_block_is_active_until_its_other_streams_have_finished),
        cmocka_unit_test(free_memory_beside_other_memory_is_inactive_split),
        cmocka_unit_test(a_block_that_grew_counts_with_its_new_sizes),
        cmocka_unit_test(resets_touch_only_the_counters_that_they_name),
        cmocka_unit_test(a_failed_request_counts_nothing_but_itself),
        cmocka_unit_test(devices_are_counted_apart_and_arguments_checked),
        cmocka_unit_test(metadata_is_reported_by_kind),
    };
    host_start_with(2, 128 * MIB);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
