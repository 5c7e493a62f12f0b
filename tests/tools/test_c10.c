/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The models of PyTorch's allocator: their rules one by one, and on real traces the recorded peak
 * within 0.5 % with segments of cudaMalloc, and with expandable segments what PyTorch reached with
 * them where that is known. */
#include "policy/c10.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define WHOLE (4000 * MIB) /* of both kinds of segments */

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

static void add(enum snapshot_action action, uint64_t address, uint64_t size, uint32_t stream,
                uint32_t pool)
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

/* Runs it with a policy on a device; the smallest one that would do is not larger than one that
 * does. */
static struct c10_result run_with(const struct c10_policy *policy, uint64_t memory)
{
    struct snapshot snapshot = {.traces = &trace,
                                .trace_count = 1,
                                .streams = streams,
                                .pools = pools,
                                .pool_count = sizeof pools / sizeof *pools};
    struct workload workload;
    struct c10_result result;
    assert_true(workload_build(&snapshot, 0, &workload));
    bool fits;
    assert_true(c10_run(&workload, policy, memory, &result));
    assert_true(c10_fits(&workload, policy, memory, &fits));
    assert_int_equal(fits, result.ooms == 0 && result.denied == 0);
    workload_finish(&workload);
    return result;
}

static struct c10_result run(uint64_t memory)
{
    const struct c10_policy policy = c10_policy_default(false);
    return run_with(&policy, memory);
}

static struct c10_result run_expandable(uint64_t memory)
{
    const struct c10_policy policy = c10_policy_default(true);
    return run_with(&policy, memory);
}

/* With settings of PyTorch's as a text. */
static struct c10_result run_conf(const char *conf, uint64_t memory)
{
    struct c10_policy policy = c10_policy_default(false);
    char error[256];
    if (!c10_policy_parse(conf, &policy, error, sizeof error))
        fail_msg("%s: %s", conf, error);
    return run_with(&policy, memory);
}

static uint64_t calls(const struct c10_result *result, enum c10_call call)
{
    return result->cost[call].calls;
}

static void assert_allocs(uint64_t count)
{
    struct c10_result result = run(GIB);
    assert_int_equal(calls(&result, C10_CALL_alloc), count);
}

static void segments_have_pytorchs_sizes(void **state)
{
    (void)state;
    static const struct {
        uint64_t request, segment;
    } cases[] = {
        {1, 2 * MIB},
        {MIB, 2 * MIB},
        {MIB + 1, 20 * MIB},
        {10 * MIB - 512, 20 * MIB},
        {10 * MIB, 10 * MIB},
        {10 * MIB + 1, 12 * MIB},
        {12 * MIB + 1, 14 * MIB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        start(NULL);
        take(1, cases[i].request);
        struct c10_result result = run(GIB);
        assert_int_equal(result.peak_reserved, cases[i].segment);
        assert_int_equal(calls(&result, C10_CALL_alloc), 1);
        assert_int_equal(result.cost[C10_CALL_alloc].bytes, cases[i].segment);
    }
}

static void small_blocks_share_a_segment_to_the_last_byte(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4; i++)
        take(i, 512 * KIB);
    assert_allocs(1);
    take(9, 1);
    assert_allocs(2);
}

static void a_large_rest_up_to_one_mib_is_not_split_off(void **state)
{
    (void)state;
    take(1, 9 * MIB);
    take(2, 9 * MIB); /* leaves 2 MiB */
    take(3, 2 * MIB);
    assert_allocs(1);

    start(NULL);
    take(1, 9 * MIB);
    take(2, 10 * MIB - 512); /* leaves 1 MiB and 512 bytes: split, but too small */
    take(3, MIB + 512);
    assert_allocs(1);

    start(NULL);
    take(1, 9 * MIB + 512);
    take(2, 9 * MIB + MIB - 512); /* leaves exactly 1 MiB: stays with its block */
    take(3, MIB + 512);
    assert_allocs(2);
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
    assert_int_equal(calls(&result, C10_CALL_alloc), 2);
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
    assert_allocs(3);
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
    assert_int_equal(calls(&result, C10_CALL_free), 1);
    assert_int_equal(result.retries, 2);
    assert_int_equal(result.ooms, 1);
    assert_int_equal(result.peak_reserved, 100 * MIB);
    assert_int_equal(result.cost[C10_CALL_free].bytes, 40 * MIB);
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
    assert_int_equal(calls(&result, C10_CALL_alloc), 2);
    assert_int_equal(calls(&result, C10_CALL_event_record), 1);
    assert_int_equal(calls(&result, C10_CALL_event_query), 2);

    /* ... or until memory is short: then the allocator waits for it. */
    start(NULL);
    take(1, 20 * MIB);
    add(SNAPSHOT_FREE_REQUESTED, 1, 20 * MIB, 0, 0);
    take(2, 20 * MIB);
    add(SNAPSHOT_FREE_COMPLETED, 1, 20 * MIB, 0, 0);
    result = run(30 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(calls(&result, C10_CALL_free), 1);
}

/* The program empties the cache: what is free goes, of the default pool, with either kind of
 * segments, though memory is not short. */
static void what_the_program_gives_back_goes(void **state)
{
    (void)state;
    take(1, 40 * MIB);
    take(2, 20 * MIB);
    add(SNAPSHOT_ALLOC, 3, 30 * MIB, 0, 5);
    give(1);
    add(SNAPSHOT_FREE_REQUESTED, 3, 1, 0, 5);
    add(SNAPSHOT_FREE_COMPLETED, 3, 1, 0, 5);
    add(SNAPSHOT_SEGMENT_FREE, 1, 40 * MIB, 0, 0);
    take(4, 40 * MIB);
    struct c10_result result = run(GIB);
    assert_int_equal(result.cost[C10_CALL_free].bytes, 40 * MIB);
    assert_int_equal(calls(&result, C10_CALL_alloc), 4);
    assert_int_equal(result.retries, 0);
    result = run_expandable(GIB);
    assert_int_equal(result.cost[C10_CALL_unmap].bytes, 40 * MIB);
    assert_int_equal(calls(&result, C10_CALL_create), 7);

    /* A pool that gives a segment back, and is not used again, is at its end. */
    add(SNAPSHOT_SEGMENT_FREE, 3, 30 * MIB, 0, 5);
    result = run(GIB);
    assert_int_equal(result.cost[C10_CALL_free].bytes, 70 * MIB);
    result = run_expandable(GIB);
    assert_int_equal(result.cost[C10_CALL_unmap].bytes, 80 * MIB);
    add(SNAPSHOT_ALLOC, 6, 30 * MIB, 0, 5);
    result = run(GIB);
    assert_int_equal(result.cost[C10_CALL_free].bytes, 40 * MIB);
}

/* Whatever comes, the sets stay whole: at the end one allocation finds every byte that was
 * freed. */
static void keep_the_segments_whole(bool expandable)
{
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
            many[long_trace.event_count++] =
                (struct snapshot_event){.action = SNAPSHOT_FREE_REQUESTED,
                                        .address = slot,
                                        .size = 1,
                                        .time_us = SNAPSHOT_NO_TIME};
    /* Everything is free now: on a full device a request for all of it succeeds only if each
     * segment is whole. */
    many[long_trace.event_count++] = (struct snapshot_event){
        .action = SNAPSHOT_ALLOC, .address = SLOTS, .size = WHOLE, .time_us = SNAPSHOT_NO_TIME};
    struct snapshot snapshot = {.traces = &long_trace,
                                .trace_count = 1,
                                .streams = streams,
                                .pools = pools,
                                .pool_count = sizeof pools / sizeof *pools};
    struct workload workload;
    struct c10_result result;
    assert_true(workload_build(&snapshot, 0, &workload));
    const struct c10_policy policy = c10_policy_default(expandable);
    assert_true(c10_run(&workload, &policy, WHOLE, &result));
    assert_int_equal(result.ooms, 0);
    /* The granules of the request are the only ones that are left, some of which were there
     * already */
    if (expandable) {
        assert_int_equal(result.cost[C10_CALL_map].bytes - result.cost[C10_CALL_unmap].bytes,
                         WHOLE);
        assert_int_equal(result.cost[C10_CALL_create].bytes - result.cost[C10_CALL_release].bytes,
                         WHOLE);
    } else {
        assert_int_equal(calls(&result, C10_CALL_free), calls(&result, C10_CALL_alloc) - 1);
    }
    workload_finish(&workload);
    free(many);
}

static void random_operations_keep_the_segments_whole(void **state)
{
    (void)state;
    keep_the_segments_whole(false);
    keep_the_segments_whole(true);
}

/* ---- expandable segments ---- */

static void segments_expand_by_the_granule(void **state)
{
    (void)state;
    take(1, 1); /* 2 MiB, of small blocks */
    take(2, 30 * MIB);
    take(3, 10 * MIB); /* the rest of the second granule */
    struct c10_result result = run_expandable(GIB);
    assert_int_equal(result.peak_reserved, 42 * MIB);
    assert_int_equal(calls(&result, C10_CALL_reserve), 2);
    assert_int_equal(calls(&result, C10_CALL_create), 3);
    assert_int_equal(calls(&result, C10_CALL_map), 3);
    assert_int_equal(calls(&result, C10_CALL_set_access), 2);
    assert_int_equal(result.cost[C10_CALL_set_access].pieces, 3);
    assert_int_equal(c10_calls(&result), 10);
    take(4, 41 * MIB + 1); /* three more, of which only what is needed is taken */
    take(5, 18 * MIB);
    assert_int_equal(run_expandable(GIB).peak_reserved, 102 * MIB);
}

static void a_hole_is_a_better_fit_than_the_growing_end(void **state)
{
    (void)state;
    take(1, 20 * MIB);
    take(2, 30 * MIB); /* and 10 MiB behind it, which could grow */
    give(1);
    take(3, 10 * MIB); /* of the hole */
    take(4, 20 * MIB); /* the end, which grows by 10, and a granule */
    assert_int_equal(run_expandable(GIB).peak_reserved, 80 * MIB);
}

static void free_granules_are_unmapped_when_the_device_is_full(void **state)
{
    (void)state;
    add(SNAPSHOT_ALLOC, 9, 20 * MIB, 5, 0);
    take(1, 10 * MIB);
    take(2, 40 * MIB); /* holds one granule as a whole, and half of two */
    take(3, 10 * MIB);
    give(2);
    take(4, 60 * MIB); /* behind the third */
    struct c10_result result = run_expandable(120 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.retries, 1);
    assert_int_equal(calls(&result, C10_CALL_unmap), 1);
    assert_int_equal(result.cost[C10_CALL_create].calls,
                     4 + 2 + 3); /* two were made before the device was full, and went */
    assert_int_equal(result.cost[C10_CALL_release].calls, 2 + 1);
    assert_int_equal(result.peak_reserved, 120 * MIB);
    assert_int_equal(run_expandable(119 * MIB).ooms, 1);

    /* The hole is filled again, with memory of another stream's. */
    add(SNAPSHOT_FREE_REQUESTED, 9, 1, 5, 0);
    add(SNAPSHOT_FREE_COMPLETED, 9, 1, 5, 0);
    take(5, 40 * MIB);
    assert_int_equal(run_expandable(120 * MIB).ooms, 0);
    give(1);
    give(4);
    give(5);
    give(3);
    take(6, 120 * MIB); /* everything, at one place */
    result = run_expandable(120 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.retries, 2);
}

static void expandable_segments_of_streams_and_pools_are_their_own(void **state)
{
    (void)state;
    take(1, 10 * MIB);
    add(SNAPSHOT_ALLOC, 2, 5 * MIB, 3, 0);
    add(SNAPSHOT_ALLOC, 3, 5 * MIB, 0, 2);
    struct c10_result result = run_expandable(GIB);
    assert_int_equal(result.peak_reserved, 60 * MIB);
    assert_int_equal(calls(&result, C10_CALL_reserve), 3);

    /* A range that is unmapped as a whole goes; a pool that is used keeps what it has. */
    add(SNAPSHOT_FREE_REQUESTED, 2, 1, 3, 0);
    add(SNAPSHOT_FREE_COMPLETED, 2, 1, 3, 0);
    add(SNAPSHOT_FREE_REQUESTED, 3, 1, 0, 2);
    add(SNAPSHOT_FREE_COMPLETED, 3, 1, 0, 2);
    take(4, 50 * MIB);
    result = run_expandable(80 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(calls(&result, C10_CALL_unreserve), 1);
    assert_int_equal(run_expandable(79 * MIB).ooms, 1);
}

/* ---- settings ---- */

static void settings_are_read_as_pytorch_writes_them(void **state)
{
    (void)state;
    struct c10_policy policy = c10_policy_default(false);
    char error[256];
    assert_true(c10_policy_parse(
        "expandable_segments:True,max_split_size_mb:64,max_non_split_rounding_mb:32,"
        "garbage_collection_threshold:0.75,pinned_num_register_threads:8,"
        "roundup_power2_divisions:[2:4,8:16,>:2]",
        &policy, error, sizeof error));
    assert_true(policy.expandable && policy.max_split == 64 * MIB &&
                policy.max_non_split_rounding == 32 * MIB);
    assert_true(policy.collect_above > 0.7499 && policy.collect_above < 0.7501);
    static const uint32_t divisions[C10_DIVISIONS] = {4, 4, 0, 16, 2, 2, 2, 2,
                                                      2, 2, 2, 2,  2, 2, 2, 2};
    assert_memory_equal(policy.divisions, divisions, sizeof divisions);
    static const char *const wrong[] = {"nonsense:1",
                                        "max_split_size_mb",
                                        "max_split_size_mb:",
                                        "max_split_size_mb:19",
                                        "max_split_size_mb:20,",
                                        "max_split_size_mb:32,large_segment_size_mb:40",
                                        "garbage_collection_threshold:1",
                                        "garbage_collection_threshold:0",
                                        "expandable_segments:yes",
                                        "roundup_power2_divisions:3",
                                        "roundup_power2_divisions:[4",
                                        "roundup_power2_divisions:[3:4]",
                                        "roundup_power2_divisions:[4:3]",
                                        "roundup_power2_divisions:[4]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        policy = c10_policy_default(false);
        *error = '\0';
        assert_false(c10_policy_parse(wrong[i], &policy, error, sizeof error));
        assert_true(*error);
    }
}

static void sizes_are_rounded_to_parts_of_powers_of_two(void **state)
{
    (void)state;
    take(1, 33 * MIB); /* 40 of 32, 40, 48, 56 */
    assert_int_equal(run_conf("roundup_power2_divisions:4", GIB).peak_reserved, 40 * MIB);
    assert_int_equal(run_conf("roundup_power2_divisions:[16:2,32:8,>:4]", GIB).peak_reserved,
                     36 * MIB);
    /* None at 32 */
    assert_int_equal(run_conf("roundup_power2_divisions:[16:2,64:8]", GIB).peak_reserved, 34 * MIB);
    start(NULL);
    take(1, 32 * MIB);
    assert_int_equal(run_conf("roundup_power2_divisions:1", GIB).peak_reserved, 32 * MIB);
    assert_int_equal(run_conf("roundup_power2_divisions:4", GIB).peak_reserved, 32 * MIB);
}

static void oversize_segments_are_not_cut(void **state)
{
    (void)state;
    take(1, 100 * MIB);
    give(1);
    take(2, 30 * MIB); /* not of the 100 */
    take(3, 90 * MIB); /* that is close enough */
    struct c10_result result = run_conf("max_split_size_mb:64", GIB);
    assert_int_equal(result.peak_reserved, 130 * MIB);
    assert_int_equal(run(GIB).peak_reserved, 190 * MIB);
    start(NULL);
    take(1, 100 * MIB);
    give(1);
    take(2, 80 * MIB); /* 20 MiB less are too many */
    assert_int_equal(run_conf("max_split_size_mb:64", GIB).peak_reserved, 180 * MIB);
    assert_int_equal(
        run_conf("max_split_size_mb:64,max_non_split_rounding_mb:40", GIB).peak_reserved,
        100 * MIB);

    /* Memory is short: the smallest that does goes, or else the largest ones. */
    result = run_conf("max_split_size_mb:64", 150 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.retries, 0);
    assert_int_equal(calls(&result, C10_CALL_free), 1);
    start(NULL);
    take(1, 100 * MIB);
    take(2, 70 * MIB);
    take(3, 40 * MIB); /* not oversize: stays */
    give(1);
    give(2);
    give(3);
    take(4, 160 * MIB);
    result = run_conf("max_split_size_mb:64", 230 * MIB);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.retries, 0);
    assert_int_equal(calls(&result, C10_CALL_free), 2);
}

static void old_segments_are_collected_above_the_threshold(void **state)
{
    (void)state;
    take(1, 100 * MIB);
    take(2, 60 * MIB);
    take(3, 50 * MIB);
    give(1);
    for (int i = 0; i < 5; i++) { /* it grows old */
        give(3);
        take(3, 50 * MIB);
    }
    give(2); /* young */
    take(4, 200 * MIB);
    struct c10_result result = run_conf("garbage_collection_threshold:0.6", 500 * MIB);
    assert_int_equal(calls(&result, C10_CALL_free), 0); /* 210 are below that part of 500 */
    result = run_conf("garbage_collection_threshold:0.3", 500 * MIB);
    assert_int_equal(result.cost[C10_CALL_free].bytes, 100 * MIB);
    result = run_conf("garbage_collection_threshold:0.2", 500 * MIB); /* one is not enough */
    assert_int_equal(result.cost[C10_CALL_free].bytes, 160 * MIB);
    assert_int_equal(result.retries, 0);
}

/* ---- recordings ---- */

/* What an independent model of both policies gives, over peak requested; with expandable segments
 * what was reserved is also what PyTorch 2.11 reached on an H200, for those that were recorded
 * there. The smallest devices were searched less finely. */
static const struct figures {
    const char *name;
    double native_reserved, native_least, expandable_reserved, expandable_least;
} figures[] = {
    {"finetune-cold-start", 1.1049, 1.0746, 1.0068, 1.0061},
    {"h200-gpt_varlen", 1.5047, 1.1972, 1.0476, 1.0082},
    {"h200-graphs", 1.1822, 0, 1.0171, 0}, /* which that model does not know: recorded on the
                                              H200 */
    {"h200-serve", 2.3919, 1.2936, 1.0360, 1.0032},
    {"h200-streams", 1.8067, 1.1828, 1.1169, 1.0059},
    {"lm-2.7b-ctx128-forward-bf16", 1.0156, 1.0156, 1.0032, 1.0032},
    {"lm-2.7b-ctx512-train", 1.1494, 1.0187, 1.0147, 1.0137},
    {"lm-medium-ctx1024-train", 1.0396, 1.0135, 1.0199, 1.0062},
    {"lm-medium-ctx512-infer", 1.0167, 1.0167, 1.0124, 1.0124},
    {"tiny-cold-start", 1.1637, 1.1637, 1.1689, 1.0145},
};
#define RESERVED_OFF 0.0001
#define LEAST_OFF 0.0035

static void check_fit(const struct workload *workload, const struct c10_policy *policy,
                      double ratio, bool expected)
{
    bool fits;
    assert_true(
        c10_fits(workload, policy, (uint64_t)(ratio * (double)workload->peak_requested), &fits));
    if (fits != expected)
        fail_msg("a device of %.4f times what is requested: fits is %d", ratio, fits);
}

static void check_policy(const struct workload *workload, bool expandable, double reserved,
                         double least)
{
    const struct c10_policy policy = c10_policy_default(expandable);
    struct c10_result result;
    assert_true(c10_run(workload, &policy, UINT64_MAX, &result));
    double ratio = (double)result.peak_reserved / (double)workload->peak_requested;
    if (fabs(ratio - reserved) > RESERVED_OFF)
        fail_msg("%s: reserved %.4f, not %.4f", expandable ? "expandable" : "native", ratio,
                 reserved);
    if (least == 0)
        return;
    check_fit(workload, &policy, least + LEAST_OFF, true);
    check_fit(workload, &policy, least - LEAST_OFF, false);
}

static void check_figures(const char *path, const struct workload *workload)
{
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (!strstr(path, figures[i].name))
            continue;
        print_message("%s: figures\n", figures[i].name);
        check_policy(workload, false, figures[i].native_reserved, figures[i].native_least);
        check_policy(workload, true, figures[i].expandable_reserved, figures[i].expandable_least);
    }
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
        const struct c10_policy policy = c10_policy_default(false);
        assert_true(workload_build(&snapshot, device, &workload));
        assert_true(c10_run(&workload, &policy, UINT64_MAX, &result));
        if (workload.recorded_peak_reserved != WORKLOAD_NOT_KNOWN) {
            double ratio = (double)result.peak_reserved / (double)workload.recorded_peak_reserved;
            print_message("%s, device %d: %.4f\n", path, device, ratio);
            assert_true(ratio > 0.995 && ratio < 1.005);
            checked++;
        }
        check_figures(path, &workload);
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
            int length = i ? asprintf(&pattern, "%s/*.pickle.zst", folder)
                           : asprintf(&pattern, "%s/*.pickle", folder);
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

/* What failed in the recording is tried: it may be served, fail again, and goes back at once.
 * Cached memory makes room for it first. */
static void what_failed_is_tried(void **state)
{
    (void)state;
    take(0x100000000, 50 * MIB);
    take(0x200000000, 50 * MIB);
    give(0x200000000);
    add(SNAPSHOT_OOM, 0, 80 * MIB, 0, 0);
    take(0x300000000, 40 * MIB);
    struct c10_result result = run(130 * MIB);
    assert_int_equal(result.tried, 1);
    assert_int_equal(result.denied, 0);
    assert_int_equal(result.ooms, 0);
    assert_int_equal(result.peak_reserved, 130 * MIB);
    result = run(128 * MIB);
    assert_int_equal(result.tried, 1);
    assert_int_equal(result.denied, 1);
    assert_int_equal(result.ooms, 0); /* the last one finds room again */
    assert_int_equal(result.first_oom, 4);
    assert_int_equal(result.first_oom_size, 80 * MIB);
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
        cmocka_unit_test_setup(what_the_program_gives_back_goes, start),
        cmocka_unit_test_setup(segments_expand_by_the_granule, start),
        cmocka_unit_test_setup(a_hole_is_a_better_fit_than_the_growing_end, start),
        cmocka_unit_test_setup(free_granules_are_unmapped_when_the_device_is_full, start),
        cmocka_unit_test_setup(expandable_segments_of_streams_and_pools_are_their_own, start),
        cmocka_unit_test_setup(settings_are_read_as_pytorch_writes_them, start),
        cmocka_unit_test_setup(sizes_are_rounded_to_parts_of_powers_of_two, start),
        cmocka_unit_test_setup(oversize_segments_are_not_cut, start),
        cmocka_unit_test_setup(old_segments_are_collected_above_the_threshold, start),
        cmocka_unit_test_setup(what_failed_is_tried, start),
        cmocka_unit_test(random_operations_keep_the_segments_whole),
        cmocka_unit_test(recorded_peaks_are_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
