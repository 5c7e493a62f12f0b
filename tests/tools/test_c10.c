/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The model of PyTorch's allocator: its rules one by one, and the recorded peaks of real traces within 0.5 %. */
#include "replay/c10.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* A trace written as it happens. */
static struct snapshot_event events[256];
static struct snapshot_trace trace = {.events = events};
static uint64_t streams[] = {0, 1, 2, 3, 4, 5, 6, 7},
                pools[8][2] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}};

static int start(void **state)
{
    (void)state;
    trace.event_count = 0;
    return 0;
}

static void add(enum snapshot_action action, uint64_t address, uint64_t size, uint32_t stream, uint32_t pool)
{
    assert_true(trace.event_count < sizeof events / sizeof *events);
    events[trace.event_count++] = (struct snapshot_event){.action = (uint8_t)action,
                                                          .address = address,
                                                          .size = size,
                                                          .stream = stream,
                                                          .pool = pool,
                                                          .time_us = SNAPSHOT_NO_TIME};
}

static void take(uint64_t address, uint64_t size)
{
    add(SNAPSHOT_ALLOC, address, size, 0, 0);
}

static void give(uint64_t address)
{
    add(SNAPSHOT_FREE_REQUESTED, address, 1, 0, 0);
    add(SNAPSHOT_FREE_COMPLETED, address, 1, 0, 0);
}

static struct c10_result run(uint64_t memory)
{
    struct snapshot snapshot = {.traces = &trace, .trace_count = 1, .streams = streams, .pools = pools};
    struct workload workload;
    struct c10_result result;
    assert_true(workload_build(&snapshot, 0, &workload));
    assert_true(c10_run(&workload, memory, &result));
    workload_finish(&workload);
    return result;
}

static void segments_have_pytorchs_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t request, segment;
    } cases[] = {
        {1, 2 * MIB},         {MIB, 2 * MIB},           {MIB + 1, 20 * MIB},      {10 * MIB - 512, 20 * MIB},
        {10 * MIB, 10 * MIB}, {10 * MIB + 1, 12 * MIB}, {12 * MIB + 1, 14 * MIB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(NULL);
        take(1, cases[i].request);
        struct c10_result result = run(GIB);
        assert_int_equal(result.peak_reserved, cases[i].segment);
        assert_int_equal(result.allocs, 1);
        assert_int_equal(result.time_a_ns, 160000 + 16000 * (cases[i].segment / MIB));
        assert_int_equal(result.time_b_ns, 160000 + 800 * (cases[i].segment / MIB));
    }
}

static void small_blocks_share_a_segment_to_the_last_byte(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4; i++)
        take(i, 512 * KIB);
    assert_int_equal(run(GIB).allocs, 1);
    take(9, 1);
    assert_int_equal(run(GIB).allocs, 2);
}

static void a_large_rest_up_to_one_mib_is_not_split_off(void **state)
{
    (void)state;
    take(1, 9 * MIB);
    take(2, 9 * MIB); /* leaves 2 MiB */
    take(3, 2 * MIB);
    assert_int_equal(run(GIB).allocs, 1);

    start(NULL);
    take(1, 9 * MIB);
    take(2, 10 * MIB - 512); /* leaves 1 MiB and 512 bytes: split, but too small */
    take(3, MIB + 512);
    assert_int_equal(run(GIB).allocs, 1);

    start(NULL);
    take(1, 9 * MIB + 512);
    take(2, 9 * MIB + MIB - 512); /* leaves exactly 1 MiB: stays with its block */
    take(3, MIB + 512);
    assert_int_equal(run(GIB).allocs, 2);
}

static void neighbours_are_joined_and_the_best_fit_taken(void **state)
{
    (void)state;
    take(1, 30 * MIB); /* an own segment; free, it is 30 MiB */
    take(2, 6 * MIB);
    take(3, 6 * MIB);
    take(4, 6 * MIB); /* one segment of 20 */
    give(1);
    give(2);
    give(4);
    give(3);           /* joined with both sides: 20 MiB again */
    take(5, 20 * MIB); /* best fit is the 20 */
    take(6, 30 * MIB);
    struct c10_result result = run(GIB);
    assert_int_equal(result.allocs, 2);
    assert_int_equal(result.peak_reserved, 50 * MIB);
}

static void streams_and_pools_do_not_share(void **state)
{
    (void)state;
    take(1, 20 * MIB);
    give(1);
    add(SNAPSHOT_ALLOC, 1, 20 * MIB, 5, 0);
    add(SNAPSHOT_ALLOC, 2, 20 * MIB, 0, 7);
    take(3, 20 * MIB);
    assert_int_equal(run(GIB).allocs, 3);
}

static void cached_segments_are_given_back_when_the_device_is_full(void **state)
{
    (void)state;
    take(1, 40 * MIB);
    take(2, 40 * MIB);
    give(1);
    take(3, 50 * MIB); /* 100 in all: the free 40 must go */
    take(4, 12 * MIB); /* too much */
    give(4);
    take(5, 10 * MIB);
    struct c10_result result = run(100 * MIB);
    assert_int_equal(result.frees, 1);
    assert_int_equal(result.retries, 2);
    assert_int_equal(result.ooms, 1);
    assert_int_equal(result.peak_reserved, 100 * MIB);
    assert_int_equal(result.time_a_ns, 4 * 160000 + 16000 * (40 + 40 + 50 + 10) + 50000);
}

static void a_late_free_is_in_use_until_it_completes(void **state)
{
    (void)state;
    take(1, 20 * MIB);
    add(SNAPSHOT_FREE_REQUESTED, 1, 20 * MIB, 0, 0);
    take(2, 20 * MIB);
    add(SNAPSHOT_FREE_COMPLETED, 1, 20 * MIB, 0, 0);
    take(3, 20 * MIB);
    struct c10_result result = run(GIB);
    assert_int_equal(result.allocs, 2);
    assert_int_equal(result.event_records, 1);
    assert_int_equal(result.event_queries, 2);

    /* ... or until memory is short: then the allocator waits for it. */
    start(NULL);
    take(1, 20 * MIB);
    add(SNAPSHOT_FREE_REQUESTED, 1, 20 * MIB, 0, 0);
    take(2, 20 * MIB);
    add(SNAPSHOT_FREE_COMPLETED, 1, 20 * MIB, 0, 0);
    result = run(30 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.frees, 1);
}

/* Whatever comes, the sets stay whole: at the end one allocation finds every byte that was freed. */
static void random_operations_keep_the_segments_whole(void **state)
{
    (void)state;
    enum { SLOTS = 200, EVENTS = 60000 };
    struct snapshot_event *many = calloc(EVENTS + 2 * SLOTS + 1, sizeof *many);
    assert_non_null(many);
    struct snapshot_trace long_trace = {.events = many};
    bool live[SLOTS] = {false};
    uint64_t random = 7;
    for (size_t i = 0; i < EVENTS; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t slot = (size_t)(random >> 33) % SLOTS;
        many[long_trace.event_count++] =
            (struct snapshot_event){.action = live[slot] ? SNAPSHOT_FREE_REQUESTED : SNAPSHOT_ALLOC,
                                    .address = slot,
                                    .size = 1 + (random >> 40) % ((random >> 60) ? MIB : 30 * MIB),
                                    .time_us = SNAPSHOT_NO_TIME};
        live[slot] = !live[slot];
    }
    for (size_t slot = 0; slot < SLOTS; slot++)
        if (live[slot])
            many[long_trace.event_count++] = (struct snapshot_event){
                .action = SNAPSHOT_FREE_REQUESTED, .address = slot, .size = 1, .time_us = SNAPSHOT_NO_TIME};
    /* Everything is free now: on a full device a request for all of it succeeds only if each segment is whole. */
    many[long_trace.event_count++] = (struct snapshot_event){
        .action = SNAPSHOT_ALLOC, .address = SLOTS, .size = 4 * GIB, .time_us = SNAPSHOT_NO_TIME};
    struct snapshot snapshot = {.traces = &long_trace, .trace_count = 1, .streams = streams, .pools = pools};
    struct workload workload;
    struct c10_result result;
    assert_true(workload_build(&snapshot, 0, &workload));
    assert_true(c10_run(&workload, 4 * GIB, &result));
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.frees, result.allocs - 1);
    workload_finish(&workload);
    free(many);
}

static int check_trace(const char *path)
{
    struct snapshot snapshot;
    struct snapshot_error error;
    if (!snapshot_read_file(path, &snapshot, &error))
        fail_msg("%s: %s", path, error.text);
    int checked = 0;
    for (int device = 0; (size_t)device < snapshot.trace_count; device++) {
        if (!workload_exists(&snapshot, device))
            continue;
        struct workload workload;
        struct c10_result result;
        assert_true(workload_build(&snapshot, device, &workload));
        assert_true(c10_run(&workload, UINT64_MAX / 2, &result));
        if (workload.recorded_peak_reserved != WORKLOAD_NOT_KNOWN) {
            double ratio = (double)result.peak_reserved / (double)workload.recorded_peak_reserved;
            print_message("%s, device %d: %.4f\n", path, device, ratio);
            assert_true(ratio > 0.995 && ratio < 1.005);
            checked++;
        }
        workload_finish(&workload);
    }
    snapshot_finish(&snapshot);
    return checked;
}

static void recorded_peaks_are_reproduced(void **state)
{
    (void)state;
    const char *folders = getenv("TARN_TRACES");
    char *list = strdup(folders ? folders : "examples/traces");
    assert_non_null(list);
    int checked = 0;
    char *rest = NULL;
    for (char *folder = strtok_r(list, ":", &rest); folder; folder = strtok_r(NULL, ":", &rest)) {
        for (int i = 0; i < 2; i++) {
            char *pattern;
            glob_t found;
            int length = i ? asprintf(&pattern, "%s/*.pickle.zst", folder) : asprintf(&pattern, "%s/*.pickle", folder);
            assert_true(length > 0);
            if (glob(pattern, 0, NULL, &found) == 0) {
                for (size_t j = 0; j < found.gl_pathc; j++)
                    checked += check_trace(found.gl_pathv[j]);
                globfree(&found);
            }
            free(pattern);
        }
    }
    free(list);
    if (!checked)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(segments_have_pytorchs_sizes, start),
        cmocka_unit_test_setup(small_blocks_share_a_segment_to_the_last_byte, start),
        cmocka_unit_test_setup(a_large_rest_up_to_one_mib_is_not_split_off, start),
        cmocka_unit_test_setup(neighbours_are_joined_and_the_best_fit_taken, start),
        cmocka_unit_test_setup(streams_and_pools_do_not_share, start),
        cmocka_unit_test_setup(cached_segments_are_given_back_when_the_device_is_full, start),
        cmocka_unit_test_setup(a_late_free_is_in_use_until_it_completes, start),
        cmocka_unit_test(random_operations_keep_the_segments_whole),
        cmocka_unit_test(recorded_peaks_are_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
