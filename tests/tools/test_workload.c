/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* From traces to workloads: what was alive before, late frees, the recorded peak, and traces that
 * contradict themselves. */
#include "input/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define COUNT(array) (sizeof(array) / sizeof *(array))

#define EVENT(kind, where, bytes)                                       \
    {                                                                   \
        .action = SNAPSHOT_##kind, .address = (where), .size = (bytes), \
        .time_us = SNAPSHOT_NO_TIME                                     \
    }
#define TIMED(kind, where, bytes, us)                                                   \
    {                                                                                   \
        .action = SNAPSHOT_##kind, .address = (where), .size = (bytes), .time_us = (us) \
    }

static struct workload build(struct snapshot_event *events, size_t count,
                             struct snapshot_segment *segments, size_t segment_count,
                             struct snapshot_block *blocks, size_t block_count)
{
    struct snapshot_trace trace = {.events = events, .event_count = count};
    uint64_t streams[] = {0, 1, 2, 3}, pools[][2] = {{0, 0}, {0, 1}, {0, 2}};
    struct snapshot snapshot = {
        .streams = streams,
        .stream_count = COUNT(streams),
        .pools = pools,
        .pool_count = COUNT(pools),
        .segments = segments,
        .segment_count = segment_count,
        .blocks = blocks,
        .block_count = block_count,
        .traces = &trace,
        .trace_count = 1,
    };
    struct workload workload;
    assert_true(workload_build(&snapshot, 0, &workload));
    assert_int_equal(workload.event_count, count);
    return workload;
}

static struct workload build_trace(struct snapshot_event *events, size_t count)
{
    return build(events, count, NULL, 0, NULL, 0);
}

static void assert_op(const struct workload *workload, size_t at, enum workload_action action,
                      uint32_t block)
{
    assert_true(at < workload->op_count);
    assert_int_equal(workload->ops[at].action, action);
    assert_int_equal(workload->ops[at].block, block);
}

static void blocks_are_numbered_in_the_order_of_allocation(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(ALLOC, 0x9000, 700),
        EVENT(ALLOC, 0x1000, 100),
        EVENT(FREE_REQUESTED, 0x9000, 700),
        EVENT(FREE_COMPLETED, 0x9000, 0),
        EVENT(ALLOC, 0x9000, 50),
        EVENT(OOM, 123, 1000),
        EVENT(TAKEN, 0, 0),
    };
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.block_count, 4); /* with what failed */
    assert_int_equal(workload.initial_count, 0);
    assert_int_equal(workload.alloc_count, 3);
    assert_int_equal(workload.oom_count, 1);
    assert_int_equal(workload.lost_count, 0);
    assert_int_equal(workload.late_count, 0);
    assert_int_equal(workload.op_count, 7);
    assert_op(&workload, 0, WORKLOAD_ALLOC, 0);
    assert_op(&workload, 1, WORKLOAD_ALLOC, 1);
    assert_op(&workload, 2, WORKLOAD_FREE, 0);
    assert_op(&workload, 3, WORKLOAD_COMPLETED, 0);
    assert_op(&workload, 4, WORKLOAD_ALLOC, 2);
    assert_op(&workload, 5, WORKLOAD_TRY, 3);
    assert_op(&workload, 6, WORKLOAD_OTHER, WORKLOAD_NO_BLOCK);
    assert_int_equal(workload.blocks[2].size, 50);
    assert_int_equal(workload.peak_requested, 800);
    assert_int_equal(workload.peak_active, 1024 + 512);
    assert_int_equal(workload.peak_tried, 100 + 50 + 1000);
    assert_int_equal(workload.device_memory, 0); /* nothing speaks of what was reserved */
    assert_true(workload.recorded_peak_reserved == WORKLOAD_NOT_KNOWN);
    assert_false(workload.has_times);
    assert_int_equal(workload.ops[4].time, 4 * WORKLOAD_EVENT_TIME);
    workload_forget_tries(&workload);
    assert_op(&workload, 5, WORKLOAD_OOM, WORKLOAD_NO_BLOCK);
    workload_finish(&workload);
    assert_null(workload.ops);
}

/* What was reserved and what was free together; where more was free than was asked for, a limit
 * refused, and what had been reserved once is below it. */
static void an_error_tells_the_size_of_the_device(void **state)
{
    (void)state;
    const uint64_t mib = 1 << 20;
    struct snapshot_event events[] = {
        EVENT(SEGMENT_ALLOC, 100 * mib, 80 * mib),
        EVENT(ALLOC, 100 * mib, 80 * mib),
        EVENT(SEGMENT_ALLOC, 200 * mib, 20 * mib),
        EVENT(SEGMENT_FREE, 200 * mib, 20 * mib),
        EVENT(OOM, 50 * mib, 60 * mib),
        EVENT(SEGMENT_FREE, 100 * mib, 80 * mib),
    };
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.device_memory, 130 * mib);
    assert_int_equal(workload.peak_tried, 140 * mib);
    workload_finish(&workload);
    events[4].address = 19 * mib; /* less than there had been: another program has it now */
    workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.device_memory, 100 * mib);
    workload_finish(&workload);
    events[4].address = 60 * mib + WORKLOAD_ROUNDED;
    workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.device_memory, 100 * mib);
    workload_finish(&workload);
}

static void what_was_alive_before_comes_first_and_by_address(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(ALLOC, 0x8000, 10),
        EVENT(FREE_REQUESTED, 0x4000, 300), /* no allocation of it in the trace: it was there */
        EVENT(FREE_COMPLETED, 0x4000, 300),
        EVENT(FREE_COMPLETED, 0x5000, 64), /* was freed before, and waited */
        EVENT(ALLOC, 0x4000, 20),
    };
    struct snapshot_block blocks[] = {
        {.address = 0x2000, .size = 512, .requested_size = 444, .state = SNAPSHOT_ACTIVE_ALLOCATED},
        {.address = 0x2200, .size = 512, .requested_size = 0, .state = SNAPSHOT_INACTIVE},
        {.address = 0x4000, .size = 512, .requested_size = 20, .state = SNAPSHOT_ACTIVE_ALLOCATED},
        {.address = 0x8000, .size = 512, .requested_size = 10, .state = SNAPSHOT_ACTIVE_ALLOCATED},
        {.address = 0x9000,
         .size = 1024,
         .requested_size = 0,
         .state = SNAPSHOT_ACTIVE_PENDING_FREE},
    };
    struct snapshot_segment segments[] = {
        {.device = 0,
         .address = 0x2000,
         .total_size = 2 * MIB,
         .stream = 7,
         .first_block = 0,
         .block_count = 5},
        {.device = 1,
         .address = 0x2000,
         .total_size = 64 * MIB,
         .first_block = 0,
         .block_count = 5},
    };
    struct workload workload =
        build(events, COUNT(events), segments, COUNT(segments), blocks, COUNT(blocks));
    assert_int_equal(workload.lost_count, 0);
    assert_int_equal(workload.initial_count, 4);
    assert_int_equal(workload.block_count, 6);
    static const uint64_t sizes[] = {444, 300, 64, 1024, 10, 20};
    for (size_t i = 0; i < COUNT(sizes); i++)
        assert_int_equal(workload.blocks[i].size, sizes[i]);
    assert_op(&workload, 0, WORKLOAD_FREE, 2); /* before the trace */
    assert_int_equal(workload.ops[0].event, WORKLOAD_BEFORE);
    assert_op(&workload, 1, WORKLOAD_FREE, 3); /* which waits at the end */
    assert_op(&workload, 2, WORKLOAD_ALLOC, 4);
    assert_op(&workload, 3, WORKLOAD_FREE, 1);
    assert_op(&workload, 4, WORKLOAD_COMPLETED, 1);
    assert_op(&workload, 5, WORKLOAD_COMPLETED, 2);
    assert_op(&workload, 6, WORKLOAD_ALLOC, 5);
    assert_true(workload.blocks[2].late && workload.blocks[2].completed == 3 * WORKLOAD_EVENT_TIME);
    assert_int_equal(workload.stream_count, 2);
    assert_int_equal(workload.streams[workload.blocks[0].stream], 7);
    assert_int_equal(workload.streams[workload.blocks[4].stream], 0);
    assert_int_equal(workload.peak_requested, 444 + 300 + 10);
    assert_int_equal(workload.recorded_peak_reserved, 2 * MIB);
    workload_finish(&workload);
}

static void a_free_is_late_when_something_comes_between(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        TIMED(ALLOC, 0x1000, 10, 100),          TIMED(ALLOC, 0x2000, 20, 101),
        TIMED(ALLOC, 0x3000, 30, 102),          TIMED(FREE_REQUESTED, 0x1000, 10, 103),
        TIMED(FREE_REQUESTED, 0x2000, 20, 104), TIMED(FREE_COMPLETED, 0x2000, 20, 104),
        TIMED(FREE_REQUESTED, 0x3000, 30, 99), /* the clock of another thread */
        TIMED(FREE_COMPLETED, 0x1000, 10, 110),
    };
    struct snapshot_block blocks[] = {
        {.address = 0x3000,
         .size = 512,
         .requested_size = 30,
         .state = SNAPSHOT_ACTIVE_PENDING_FREE},
    };
    struct snapshot_segment segments[] = {
        {.address = 0x3000, .total_size = 2 * MIB, .block_count = 1}};
    struct workload workload = build(events, COUNT(events), segments, 1, blocks, 1);
    assert_true(workload.has_times);
    assert_int_equal(workload.lost_count, 0);
    assert_int_equal(workload.late_count, 2);
    assert_true(workload.blocks[0].late);
    assert_int_equal(workload.blocks[0].completed, 10000);
    assert_false(workload.blocks[1].late);
    assert_true(workload.blocks[2].late); /* to the end of the trace */
    assert_int_equal(workload.blocks[2].completed, 10000);
    assert_int_equal(workload.ops[6].time, 4000);
    assert_int_equal(workload.peak_requested, 60);
    assert_int_equal(workload.peak_active, 3 * 512);
    workload_finish(&workload);
}

static void a_trace_without_completions_completes_at_once(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(ALLOC, 0x1000, 10),
        EVENT(FREE_REQUESTED, 0x1000, 10),
        EVENT(ALLOC, 0x1000, 10),
    };
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.late_count, 0);
    assert_int_equal(workload.lost_count, 0);
    assert_op(&workload, 2, WORKLOAD_COMPLETED, 0);
    assert_op(&workload, 3, WORKLOAD_ALLOC, 1);
    workload_finish(&workload);
}

static void the_recorded_peak_is_found_backwards(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(SEGMENT_FREE, 0x100000, 20 * MIB),
        EVENT(SEGMENT_ALLOC, 0x200000, 2 * MIB),
        EVENT(ALLOC, 0x200000, 10),
        EVENT(SEGMENT_MAP, 0x900000, 40 * MIB),
        EVENT(SEGMENT_UNMAP, 0x900000, 40 * MIB),
    };
    struct snapshot_block blocks[] = {
        {.address = 0x200000,
         .size = 512,
         .requested_size = 10,
         .state = SNAPSHOT_ACTIVE_ALLOCATED},
    };
    struct snapshot_segment segments[] = {
        {.address = 0x200000, .total_size = 2 * MIB, .block_count = 1}};
    struct workload workload = build(events, COUNT(events), segments, 1, blocks, 1);
    assert_int_equal(workload.recorded_peak_reserved, 42 * MIB);
    workload_finish(&workload);

    events[0].size = 50 * MIB;
    workload = build(events, COUNT(events), segments, 1, blocks, 1);
    assert_int_equal(workload.recorded_peak_reserved, 50 * MIB);
    workload_finish(&workload);

    events[0].size = UINT64_MAX; /* more than a sum can hold */
    workload = build(events, COUNT(events), segments, 1, blocks, 1);
    assert_true(workload.recorded_peak_reserved == WORKLOAD_NOT_KNOWN);
    workload_finish(&workload);

    events[0].size = 0;
    events[1].size = 3 * MIB; /* more than there was at the end */
    workload = build(events, COUNT(events), segments, 1, blocks, 1);
    assert_true(workload.recorded_peak_reserved == WORKLOAD_NOT_KNOWN);
    workload_finish(&workload);
}

/* Segments go because memory is short where one follows for which there was no room; else the
 * program has emptied the cache. */
static void what_the_program_gives_back_is_told_from_a_shortage(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(SEGMENT_ALLOC, 0x1000, 1000),
        EVENT(ALLOC, 0x1000, 900),
        EVENT(FREE_REQUESTED, 0x1000, 900),
        EVENT(FREE_COMPLETED, 0x1000, 900),
        EVENT(SEGMENT_FREE, 0x1000, 1000), /* 4: the program */
        EVENT(TAKEN, 0, 0),
        EVENT(SEGMENT_ALLOC, 0x2000, 400),
        EVENT(ALLOC, 0x2000, 400),
        EVENT(SEGMENT_ALLOC, 0x3000, 500),
        EVENT(ALLOC, 0x3000, 500),
        EVENT(FREE_REQUESTED, 0x3000, 500),
        EVENT(FREE_COMPLETED, 0x3000, 500),
        EVENT(SEGMENT_FREE, 0x3000, 500), /* 12: 900 and 600 would have been more than ever was */
        EVENT(SEGMENT_ALLOC, 0x4000, 600),
        EVENT(ALLOC, 0x4000, 600),
        EVENT(FREE_REQUESTED, 0x4000, 600),
        EVENT(FREE_COMPLETED, 0x4000, 600),
        EVENT(FREE_REQUESTED, 0x2000, 400),
        EVENT(SEGMENT_FREE, 0x4000, 600), /* 18: the program; one run */
        EVENT(FREE_COMPLETED, 0x2000, 400),
        EVENT(SEGMENT_UNMAP, 0x2000, 400),
        EVENT(SEGMENT_MAP, 0x5000, 300),
        EVENT(ALLOC, 0x5000, 300),
        EVENT(FREE_REQUESTED, 0x5000, 300),
        EVENT(FREE_COMPLETED, 0x5000, 300),
        EVENT(SEGMENT_UNMAP, 0x5000, 300), /* 25: an allocation fails */
        EVENT(OOM, 1, 10),
        EVENT(SEGMENT_MAP, 0x5000, 100),
        EVENT(SEGMENT_UNMAP, 0x5000, 100), /* 28: nothing follows */
    };
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.recorded_peak_reserved, 1000);
    assert_int_equal(workload.trim_count, 3);
    for (size_t i = 0; i < workload.op_count; i++) {
        const struct workload_op *op = &workload.ops[i];
        assert_int_equal(op->action == WORKLOAD_TRIM,
                         op->event == 4 || op->event == 18 || op->event == 28);
    }
    workload_finish(&workload);
}

/* A program that empties its cache after each step begins the next one with segments that it has
 * just given back: no shortage, however full the device was. It is one the first time that a step
 * begins with a larger one, or one of another stream, pool or kind. With a largest size to split
 * nothing is known. */
static void a_segment_that_was_there_is_no_shortage(void **state)
{
    (void)state;
    enum { STEPS = 28, BLOCKS = 4, EVENTS = BLOCKS * 5 };
    const struct {
        uint64_t first; /* MiB: the first request of a step, in a segment of its own */
        uint32_t stream, pool;
        const char *conf;
        size_t trims;
    } cases[] = {
        {100, 0, 0, "", STEPS},     {100, 0, 0, "max_split_size_mb:64", 1},
        {101, 0, 0, "", STEPS - 1}, {100, 1, 0, "", STEPS - 1},
        {100, 0, 1, "", STEPS - 1}, {1, 0, 0, "", STEPS - 1},
    };
    static struct snapshot_event events[STEPS * EVENTS];
    for (size_t c = 0; c < COUNT(cases); c++) {
        size_t count = 0;
        for (size_t step = 0; step < STEPS; step++) {
            const size_t begin = count;
            for (uint64_t i = 0; i < BLOCKS; i++) {
                uint64_t size = (step && !i ? cases[c].first : 100) * MIB,
                         segment = size < 2 * MIB ? 2 * MIB : size;
                events[count++] =
                    (struct snapshot_event)EVENT(SEGMENT_ALLOC, (i + 1) << 32, segment);
                events[count++] = (struct snapshot_event)EVENT(ALLOC, (i + 1) << 32, size);
                if (step && !i) {
                    events[count - 2].stream = events[count - 1].stream = cases[c].stream;
                    events[count - 2].pool = events[count - 1].pool = cases[c].pool;
                }
            }
            for (uint64_t i = 0; i < BLOCKS; i++) {
                struct snapshot_event event = events[begin + 2 * i + 1];
                event.action = SNAPSHOT_FREE_REQUESTED;
                events[count++] = event;
                event.action = SNAPSHOT_FREE_COMPLETED;
                events[count++] = event;
            }
            for (uint64_t i = 0; i < BLOCKS; i++) {
                events[count] = events[begin + 2 * i];
                events[count++].action = SNAPSHOT_SEGMENT_FREE;
            }
        }
        static uint64_t streams[] = {0, 1}, pools[][2] = {{0, 0}, {0, 1}};
        char conf[32];
        snprintf(conf, sizeof conf, "%s", cases[c].conf);
        size_t starts[] = {0, strlen(conf) + 1};
        struct snapshot_trace trace = {.events = events, .event_count = count};
        struct snapshot snapshot = {.traces = &trace,
                                    .trace_count = 1,
                                    .streams = streams,
                                    .stream_count = 2,
                                    .pools = pools,
                                    .pool_count = 2,
                                    .text_bytes = conf,
                                    .text_starts = starts,
                                    .text_count = 1};
        struct workload workload;
        assert_true(workload_build(&snapshot, 0, &workload));
        assert_int_equal(workload.trim_count, cases[c].trims);
        workload_finish(&workload);
    }
}

/* Most versions of PyTorch write the pool of a segment, and not that of an event. */
static void blocks_of_private_pools_are_recognised_by_their_segments(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(ALLOC, 0x1000, 100), /* before the segment came there */
        EVENT(FREE_REQUESTED, 0x1000, 100),
        EVENT(FREE_COMPLETED, 0x1000, 100),
        EVENT(SEGMENT_ALLOC, 0x1000, 0x1000),
        EVENT(ALLOC, 0x1800, 100),
        EVENT(ALLOC, 0x2000, 100),
        EVENT(FREE_REQUESTED, 0x8100, 100), /* was there before the trace */
    };
    struct snapshot_segment segments[] = {
        {.address = 0x8000, .total_size = 0x1000, .pool = {0, 2}, .pool_place = 2},
        {.address = 0x1000, .total_size = 0x1000, .pool = {0, 1}, .pool_place = 1},
        {.address = 0x2000, .total_size = 0x1000},
        {.device = 1, .address = 0x2000, .total_size = 0x1000, .pool = {0, 1}, .pool_place = 1},
    };
    struct workload workload = build(events, COUNT(events), segments, COUNT(segments), NULL, 0);
    assert_int_equal(workload.pool_count, 3);
    assert_int_equal(workload.initial_count, 1);
    assert_int_equal(workload.blocks[1].pool, 0);
    assert_int_equal(workload.blocks[2].pool, 1);
    assert_int_equal(workload.blocks[3].pool, 0);
    assert_int_equal(workload.blocks[0].pool, 2);
    workload_finish(&workload);
}

static void a_pool_ends_where_it_gives_back_and_is_not_used_again(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(ALLOC, 0x1000, 100),          EVENT(FREE_REQUESTED, 0x1000, 100),
        EVENT(FREE_COMPLETED, 0x1000, 100), EVENT(SEGMENT_FREE, 0x1000, 200), /* used again */
        EVENT(ALLOC, 0x1000, 100),          EVENT(FREE_REQUESTED, 0x1000, 100),
        EVENT(FREE_COMPLETED, 0x1000, 100), EVENT(SEGMENT_FREE, 0x1000, 200),
    };
    for (size_t i = 0; i < COUNT(events); i++)
        events[i].pool = 1;
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.trim_count, 0);
    assert_op(&workload, 3, WORKLOAD_OTHER, WORKLOAD_NO_BLOCK);
    assert_op(&workload, 7, WORKLOAD_POOL_END, WORKLOAD_NO_BLOCK);
    assert_int_equal(workload.ops[7].other, 1);
    workload_finish(&workload);
}

static void contradictions_are_counted_and_repaired(void **state)
{
    (void)state;
    struct snapshot_event events[] = {
        EVENT(ALLOC, 0x1000, 10),
        EVENT(ALLOC, 0x1000, 20), /* the free between was lost */
        EVENT(FREE_REQUESTED, 0x1000, 20),
        EVENT(FREE_COMPLETED, 0x1000, 20),
        EVENT(FREE_REQUESTED, 0x1000, 20), /* an allocation was lost */
        EVENT(FREE_COMPLETED, 0x1000, 20), /* the same again */
        EVENT(ALLOC, 0x2000, 0),
        EVENT(ALLOC, 0x2000, UINT64_MAX),
        EVENT(FREE_REQUESTED, 0x3000, UINT64_MAX),
        EVENT(ALLOC, 0x4000, 5),
        EVENT(FREE_COMPLETED, 0x4000, 5), /* the request was lost */
    };
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.lost_count, 7);
    assert_int_equal(workload.block_count, 3);
    assert_op(&workload, 0, WORKLOAD_ALLOC, 0);
    assert_op(&workload, 1, WORKLOAD_FREE, 0);
    assert_op(&workload, 2, WORKLOAD_COMPLETED, 0);
    assert_op(&workload, 3, WORKLOAD_ALLOC, 1);
    assert_int_equal(workload.ops[3].event, 1);
    assert_int_equal(workload.peak_requested, 20);
    workload_finish(&workload);
}

static void sums_do_not_overflow(void **state)
{
    (void)state;
    struct snapshot_event events[64];
    for (size_t i = 0; i < COUNT(events); i++)
        events[i] = (struct snapshot_event)TIMED(ALLOC, i << 12, (uint64_t)1 << 60,
                                                 i % 2 ? INT64_MAX : INT64_MIN + 1 + (int64_t)i);
    struct workload workload = build_trace(events, COUNT(events));
    assert_int_equal(workload.lost_count, COUNT(events) - 2);
    assert_int_equal(workload.peak_requested, (uint64_t)1 << 61);
    for (size_t i = 1; i < workload.op_count; i++)
        assert_true(workload.ops[i].time >= workload.ops[i - 1].time);
    assert_op(&workload, 2, WORKLOAD_OTHER, WORKLOAD_NO_BLOCK);
    workload_finish(&workload);
}

/* Any events at all: what comes out is a workload that can be replayed. */
static void any_trace_gives_a_consistent_workload(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 300; round++) {
        struct snapshot_event events[400];
        struct snapshot_block blocks[40];
        for (size_t i = 0; i < COUNT(events); i++) {
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            events[i] = (struct snapshot_event){
                .action = (uint8_t)((random >> 40) %
                                    (round % 2 ? SNAPSHOT_SEGMENT_ALLOC : SNAPSHOT_OTHER + 1)),
                .address = ((random >> 33) % 30) * 512,
                .size = (random >> 50) % 5 ? (random >> 45) % 5000 : random,
                .stream = (uint32_t)((random >> 60) % 4),
                .pool = (uint32_t)((random >> 62) % 3),
                .time_us = round % 3 ? (int64_t)random : SNAPSHOT_NO_TIME,
            };
        }
        for (size_t i = 0; i < COUNT(blocks); i++)
            blocks[i] =
                (struct snapshot_block){.address = i * 512,
                                        .size = 512,
                                        .requested_size = i % 5,
                                        .state = (enum snapshot_state)((i + (size_t)round) % 3)};
        struct snapshot_segment segment = {.total_size = 20480, .block_count = COUNT(blocks)};
        struct workload workload =
            build(events, COUNT(events), &segment, (size_t)(round % 4 > 0), blocks, COUNT(blocks));
        enum { NEVER, LIVE, FREED, DONE } *life = calloc(workload.block_count + 1, sizeof *life);
        assert_non_null(life);
        for (size_t i = 0; i < workload.initial_count; i++)
            life[i] = LIVE;
        for (size_t i = 0; i < workload.op_count; i++) {
            const struct workload_op *op = &workload.ops[i];
            assert_true(op->event < COUNT(events) ||
                        (op->event == WORKLOAD_BEFORE && op->action == WORKLOAD_FREE &&
                         op->block < workload.initial_count));
            if (op->block == WORKLOAD_NO_BLOCK)
                continue;
            assert_true(op->block < workload.block_count);
            const struct workload_block *block = &workload.blocks[op->block];
            assert_true(block->size > 0 && block->stream < workload.stream_count &&
                        block->pool < workload.pool_count);
            bool begins = op->action == WORKLOAD_ALLOC || op->action == WORKLOAD_TRY;
            assert_int_equal(life[op->block], begins                        ? NEVER
                                              : op->action == WORKLOAD_FREE ? LIVE
                                                                            : FREED);
            assert_true(op->action != WORKLOAD_FREE || !block->late ||
                        block->completed >= op->time);
            life[op->block] = op->action == WORKLOAD_TRY ? DONE : life[op->block] + 1;
        }
        assert_true(workload.peak_tried >= workload.peak_requested);
        assert_true(!workload.device_memory ||
                    workload.recorded_peak_reserved == WORKLOAD_NOT_KNOWN ||
                    workload.device_memory >= workload.recorded_peak_reserved);
        free(life);
        workload_finish(&workload);
    }
}

static void only_traces_with_blocks_are_replayed(void **state)
{
    (void)state;
    struct snapshot_event taken = EVENT(TAKEN, 0, 0), alloc = EVENT(ALLOC, 0, 1);
    struct snapshot_trace traces[] = {
        {0}, {.events = &taken, .event_count = 1}, {.events = &alloc, .event_count = 1}};
    struct snapshot snapshot = {.traces = traces, .trace_count = 3};
    struct workload workload;
    assert_false(workload_exists(&snapshot, -1));
    assert_false(workload_exists(&snapshot, 0));
    assert_false(workload_exists(&snapshot, 1));
    assert_true(workload_exists(&snapshot, 2));
    assert_false(workload_exists(&snapshot, 3));
    assert_false(workload_build(&snapshot, 3, &workload));
    workload_finish(&workload);
}

static void a_deal_is_by_address_and_every_twentieth_block_is_used_on_a_second_stream(void **state)
{
    (void)state;
    enum { BLOCKS = 400, LAG = 70000 };
    struct snapshot_event events[2 * BLOCKS + 1];
    /* Each freed after the next one is allocated; every address is used twice */
    for (size_t i = 0; i < BLOCKS; i++) {
        uint64_t address = 0x10000 * (i % (BLOCKS / 2)),
                 before = 0x10000 * ((i + BLOCKS - 1) % (BLOCKS / 2));
        events[2 * i] = (struct snapshot_event)TIMED(ALLOC, address, 700 + i, (int64_t)(40 * i));
        events[2 * i + 1] =
            (struct snapshot_event)TIMED(FREE_REQUESTED, before, 0, (int64_t)(40 * i + 20));
    }
    events[1].action = SNAPSHOT_TAKEN; /* nothing to free yet */
    events[2 * BLOCKS] = (struct snapshot_event)TIMED(TAKEN, 0, 0, 40 * BLOCKS + 1000);
    struct workload plain = build_trace(events, COUNT(events)),
                    dealt = build_trace(events, COUNT(events));
    assert_true(workload_deal(&dealt, 4, LAG));
    assert_int_equal(dealt.stream_count, 4);
    assert_int_equal(dealt.late_count, (BLOCKS - 1) / 20);
    assert_int_equal(dealt.op_count, plain.op_count);

    size_t on[4] = {0}, completed = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        const struct workload_block *block = &dealt.blocks[i];
        bool second = i % 20 == 19 && i != BLOCKS - 1; /* the last one is never freed */
        on[block->stream]++;
        assert_int_equal(block->stream, dealt.blocks[(i + BLOCKS / 2) % BLOCKS].stream);
        assert_int_equal(block->late, second);
        assert_int_equal(block->second, second ? (block->stream + 1) % 4 : WORKLOAD_NO_STREAM);
        assert_int_equal(block->size, plain.blocks[i].size);
    }
    for (size_t i = 0; i < 4; i++)
        assert_in_range(on[i], BLOCKS / 8, BLOCKS / 2);

    uint64_t freed[BLOCKS] = {0}, time = 0;
    for (size_t i = 0; i < dealt.op_count; i++) {
        const struct workload_op *op = &dealt.ops[i];
        assert_true(op->time >= time && op->event < dealt.event_count);
        if (op->action == WORKLOAD_FREE)
            freed[op->block] = op->time;
        if (op->action == WORKLOAD_COMPLETED) {
            assert_int_equal(op->time, freed[op->block] + (dealt.blocks[op->block].late ? LAG : 0));
            completed++;
        }
        time = op->time;
    }
    assert_int_equal(completed, BLOCKS - 1);
    workload_finish(&plain);
    workload_finish(&dealt);
}

static void threads_are_dealt_by_address_and_thirty_per_cent_of_the_frees_are_foreign(void **state)
{
    (void)state;
    enum { BLOCKS = 2000 };
    struct snapshot_event events[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++)
        events[i] = (struct snapshot_event)EVENT(ALLOC, 0x200 * i, 1);
    struct workload workload = build_trace(events, BLOCKS);
    size_t on[8] = {0}, by[8] = {0}, foreign = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t owner = workload_allocating_thread(&workload, i, 8),
                 last = workload_freeing_thread(&workload, i, 8);
        assert_true(owner < 8 && last < 8);
        on[owner]++;
        by[last]++;
        foreign += owner != last;
        assert_int_equal(workload_allocating_thread(&workload, i, 1), 0);
        assert_int_equal(workload_freeing_thread(&workload, i, 1), 0);
    }
    assert_in_range(foreign, BLOCKS * 27 / 100, BLOCKS * 33 / 100);
    for (size_t i = 0; i < 8; i++) {
        assert_in_range(on[i], BLOCKS / 16, BLOCKS / 4);
        assert_in_range(by[i], BLOCKS / 16, BLOCKS / 4);
    }
    workload_finish(&workload);
}

static void assert_stream_op(const struct workload *workload, size_t at,
                             enum workload_action action, uint32_t block, uint32_t stream,
                             uint32_t other, uint16_t thread)
{
    assert_op(workload, at, action, block);
    assert_int_equal(workload->ops[at].stream, stream);
    assert_int_equal(workload->ops[at].other, other);
    assert_int_equal(workload->ops[at].thread, thread);
}

/* tarn's own recordings say what streams did. Streams 0, 10 and 20 have the numbers in which they
 * appear. */
static void what_streams_did_is_kept(void **state)
{
    (void)state;
    uint64_t streams[] = {0, 10, 20}, pools[][2] = {{0, 0}, {0, 4}};
    struct snapshot_event events[] = {
        {.action = SNAPSHOT_ALLOC,
         .address = 0x1000,
         .size = 600,
         .stream = 1,
         .thread = 5,
         .time_us = SNAPSHOT_NO_TIME},
        {.action = SNAPSHOT_ALLOC,
         .address = 0x2000,
         .size = 600,
         .stream = 2,
         .pool = 1,
         .thread = 5,
         .time_us = SNAPSHOT_NO_TIME},
        {.action = SNAPSHOT_OOM,
         .address = 9,
         .size = 70000,
         .stream = 1,
         .thread = 6,
         .time_us = SNAPSHOT_NO_TIME},
        {.action = SNAPSHOT_FREE_REQUESTED,
         .address = 0x1000,
         .size = 600,
         .stream = 1,
         .thread = 5,
         .time_us = SNAPSHOT_NO_TIME},
    };
    struct snapshot_mark marks[] = {
        /* Before the trace is whole */
        {.at = 0, .kind = SNAPSHOT_CAPTURE_END, .stream = 2, .thread = 5},
        {.at = 1, .device = 1, .kind = SNAPSHOT_WAIT, .stream = 1, .other = 2},
        {.at = 1, .kind = SNAPSHOT_CAPTURE_END, .stream = 2, .thread = 5}, /* of nothing: lost */
        {.at = 1, .kind = SNAPSHOT_CAPTURE_BEGIN, .stream = 2, .thread = 5},
        {.at = 2, .kind = SNAPSHOT_RECORD_STREAM, .stream = 2, .value = 0x1000, .thread = 6},
        /* Of nothing: lost */
        {.at = 2, .kind = SNAPSHOT_RECORD_STREAM, .stream = 2, .value = 0x7000, .thread = 6},
        {.at = 2, .kind = SNAPSHOT_WAIT, .stream = 1, .other = 2, .thread = 6},
        {.at = 3, .kind = SNAPSHOT_FREE_ON, .stream = 0, .value = 0x1000, .thread = 5},
        {.at = 3, .kind = SNAPSHOT_REGION_BEGIN},
        {.at = 4, .kind = SNAPSHOT_MARK_OTHER},
    };
    struct snapshot_device device = {.total = 1 << 30, .limit = SNAPSHOT_NO_LIMIT};
    struct snapshot_trace trace = {.events = events, .event_count = COUNT(events), .exact_from = 1};
    struct snapshot snapshot = {.traces = &trace,
                                .trace_count = 1,
                                .streams = streams,
                                .stream_count = 3,
                                .pools = pools,
                                .pool_count = 2,
                                .tarn = {.there = true,
                                         .devices = &device,
                                         .device_count = 1,
                                         .marks = marks,
                                         .mark_count = COUNT(marks)}};
    struct workload workload;
    assert_true(workload_build(&snapshot, 0, &workload));
    const uint32_t none = WORKLOAD_NO_BLOCK;
    assert_int_equal(workload.op_count, 11);
    assert_stream_op(&workload, 0, WORKLOAD_ALLOC, 0, none, none, 0);
    assert_stream_op(&workload, 1, WORKLOAD_OTHER, none, none, none, 0);
    assert_stream_op(&workload, 2, WORKLOAD_CAPTURE, none, 1, 1, 0);
    assert_stream_op(&workload, 3, WORKLOAD_ALLOC, 1, none, none, 0);
    assert_stream_op(&workload, 4, WORKLOAD_RECORD, 0, 1, none, 1);
    assert_stream_op(&workload, 5, WORKLOAD_OTHER, none, none, none, 1);
    assert_stream_op(&workload, 6, WORKLOAD_WAIT, none, 0, 1, 1);
    assert_stream_op(&workload, 7, WORKLOAD_TRY, 2, none, none, 1);
    assert_stream_op(&workload, 8, WORKLOAD_FREE, 0, 2, none, 0);
    assert_stream_op(&workload, 9, WORKLOAD_COMPLETED, 0, none, none, 0);
    /* At the end of the trace */
    assert_stream_op(&workload, 10, WORKLOAD_CAPTURED, none, 1, none, 0);
    assert_int_equal(workload.lost_count, 2);
    assert_int_equal(workload.wait_count, 1);
    assert_int_equal(workload.capture_count, 1);
    assert_int_equal(workload.oom_count, 1);
    assert_int_equal(workload.thread_count, 2);
    assert_int_equal(workload.blocks[0].second, 1);
    assert_int_equal(workload.blocks[2].size, 70000);
    assert_int_equal(workload.device_memory, 1 << 30);
    assert_true(workload.has_order);
    assert_int_equal(workload.peak_requested, 1200);

    assert_true(workload_deal(&workload, 2, 0)); /* the streams are others then */
    assert_false(workload.has_order);
    for (size_t i = 0; i < workload.op_count; i++)
        assert_true(workload.ops[i].action <= WORKLOAD_OOM ||
                    workload.ops[i].action == WORKLOAD_OTHER);
    workload_finish(&workload);
}

/* Two blocks are allocated, and the two of four times before are freed, again and again. */
static struct workload build_pairs(void)
{
    enum { BLOCKS = 4000, ALIVE = 8 };
    static struct snapshot_event events[2 * BLOCKS];
    size_t count = 0;
    for (uint64_t i = 0; i < BLOCKS; i++) {
        events[count++] =
            (struct snapshot_event)EVENT(ALLOC, 0x100000 * (i % (2 * ALIVE) + 1), 100000 + i % 8);
        for (uint64_t j = i - ALIVE - 1; i % 2 && i > ALIVE && j <= i - ALIVE; j++)
            events[count++] = (struct snapshot_event)EVENT(
                FREE_REQUESTED, 0x100000 * (j % (2 * ALIVE) + 1), 100000 + j % 8);
    }
    return build_trace(events, count);
}

static void a_varied_run_differs_a_little_and_is_whole(void **state)
{
    (void)state;
    struct workload plain = build_pairs(), varied = build_pairs(), again = build_pairs(),
                    other = build_pairs();
    assert_true(workload_vary(&varied, 7) && workload_vary(&again, 7) && workload_vary(&other, 8));
    assert_int_equal(varied.op_count, again.op_count);
    assert_memory_equal(varied.ops, again.ops, varied.op_count * sizeof *varied.ops);
    assert_true(varied.op_count != other.op_count ||
                memcmp(varied.ops, other.ops, varied.op_count * sizeof *varied.ops) != 0);

    size_t changed = 0, missing = 0, twins = varied.block_count - plain.block_count;
    for (size_t i = 0; i < plain.block_count; i++) {
        missing += varied.blocks[i].size == 0;
        changed += varied.blocks[i].size && varied.blocks[i].size != plain.blocks[i].size;
        assert_true(varied.blocks[i].size == 0 ||
                    (varied.blocks[i].size * 10 >= plain.blocks[i].size * 8 - 10 &&
                     varied.blocks[i].size * 4 <= plain.blocks[i].size * 5));
    }
    assert_in_range(changed, 20, 70);
    assert_in_range(missing, 8, 40);
    assert_in_range(twins, 8, 40);

    /* Every block that is there is allocated once, and then freed and completed at most once; one
     * that is missing, never. */
    char *life = calloc(varied.block_count, 1);
    size_t moved = 0, last = 0;
    assert_non_null(life);
    for (size_t i = 0; i < varied.op_count; i++) {
        const struct workload_op *op = &varied.ops[i];
        if (op->block == WORKLOAD_NO_BLOCK)
            continue;
        assert_true(varied.blocks[op->block].size > 0);
        /* WORKLOAD_ALLOC, _FREE, _COMPLETED */
        assert_int_equal(life[op->block]++, (int)op->action);
        if (op->action == WORKLOAD_ALLOC && op->block < plain.block_count) {
            moved += op->block < last;
            last = op->block;
        }
    }
    assert_in_range(moved, 1, 80);
    free(life);
    assert_true(varied.peak_requested != plain.peak_requested);
    workload_finish(&plain);
    workload_finish(&varied);
    workload_finish(&again);
    workload_finish(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_numbered_in_the_order_of_allocation),
        cmocka_unit_test(an_error_tells_the_size_of_the_device),
        cmocka_unit_test(what_was_alive_before_comes_first_and_by_address),
        cmocka_unit_test(a_free_is_late_when_something_comes_between),
        cmocka_unit_test(a_trace_without_completions_completes_at_once),
        cmocka_unit_test(the_recorded_peak_is_found_backwards),
        cmocka_unit_test(what_the_program_gives_back_is_told_from_a_shortage),
        cmocka_unit_test(a_segment_that_was_there_is_no_shortage),
        cmocka_unit_test(blocks_of_private_pools_are_recognised_by_their_segments),
        cmocka_unit_test(a_pool_ends_where_it_gives_back_and_is_not_used_again),
        cmocka_unit_test(contradictions_are_counted_and_repaired),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(any_trace_gives_a_consistent_workload),
        cmocka_unit_test(only_traces_with_blocks_are_replayed),
        cmocka_unit_test(a_deal_is_by_address_and_every_twentieth_block_is_used_on_a_second_stream),
        cmocka_unit_test(threads_are_dealt_by_address_and_thirty_per_cent_of_the_frees_are_foreign),
        cmocka_unit_test(what_streams_did_is_kept),
        cmocka_unit_test(a_varied_run_differs_a_little_and_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
