/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is left out of a long trace: never what lives at the peak or at an error, nor what the trace
 * has only a part of; and the sums of what stays are as exact as it is said. */
#include "input/thin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EVENTS = 6000, PLACES = 300 };

static uint64_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % below;
}

static struct snapshot_event events[EVENTS], before[EVENTS];
static struct snapshot_mark marks[EVENTS];

/* A trace as an allocator makes it, with frees of what was there before it, errors, and completions
 * that come late. Each event's time is its number. */
static size_t make(bool completes)
{
    uint64_t size[PLACES] = {0};
    int state[PLACES] = {0}; /* 1: live, 2: it is freed, and its work is not over */
    size_t count = 0;
    while (count < EVENTS) {
        uint32_t at = draw(PLACES);
        struct snapshot_event event = {.address = (at + 1) << 20, .time_us = (int64_t)count};
        if (draw(700) == 0) {
            event.action = SNAPSHOT_OOM;
        } else if (state[at] == 0 && draw(300) != 0) {
            event.action = SNAPSHOT_ALLOC;
            size[at] = 1 + draw(1 + (1U << draw(20)));
            state[at] = 1;
        } else if (state[at] < 2) { /* or a free of what was there before, which has no size here */
            event.action = SNAPSHOT_FREE_REQUESTED;
            state[at] = state[at] && completes ? 2 : 0;
        } else {
            event.action = SNAPSHOT_FREE_COMPLETED;
            state[at] = 0;
        }
        event.size = event.action == SNAPSHOT_OOM ? 0 : size[at];
        events[count++] = event;
    }
    return count;
}

/* Bytes that are allocated after each event, by the times of a whole trace. */
static int64_t follow(const struct snapshot_event *list, size_t count, int64_t *sums)
{
    int64_t sum = 0, most = 0;
    size_t next = 0;
    for (size_t time = 0; time < EVENTS; time++) {
        if (next < count && list[next].time_us == (int64_t)time) {
            const struct snapshot_event *event = &list[next++];
            if (event->action == SNAPSHOT_ALLOC)
                sum += (int64_t)event->size;
            else if (event->action == SNAPSHOT_FREE_REQUESTED)
                sum -= (int64_t)event->size; /* of what was there before, too */
        }
        sums[time] = sum;
        most = sum > most ? sum : most;
    }
    return most;
}

static void sums_are_as_exact_as_it_is_said(void **state)
{
    static int64_t whole[EVENTS], thin[EVENTS];
    (void)state;
    for (seed = 1; seed < 60 * 7; seed += 7) {
        uint64_t drawn = seed;
        bool completes = seed % 2;
        size_t count = make(completes), most = 500 + draw(EVENTS);
        memcpy(before, events, sizeof before);
        struct snapshot_trace trace = {.events = events, .event_count = count};
        for (size_t i = 0; i < EVENTS; i++)
            marks[i] = (struct snapshot_mark){.at = i};
        struct snapshot snapshot = {.traces = &trace, .trace_count = 1};
        snapshot.tarn.marks = marks;
        snapshot.tarn.mark_count = EVENTS;
        assert_true(thin_trace(&snapshot, 0, most));
        assert_int_equal(trace.event_count + trace.thinned, count);
        if (most < count)
            assert_true(trace.thinned > 0);
        int64_t peak = follow(before, count, whole);
        assert_int_equal(follow(events, trace.event_count, thin), peak);
        int64_t missing = 0;
        for (size_t i = 0; i < EVENTS; i++) {
            assert_true(thin[i] <= whole[i]);
            missing = whole[i] - thin[i] > missing ? whole[i] - thin[i] : missing;
            if (before[i].action == SNAPSHOT_OOM)
                assert_int_equal(thin[i], whole[i]);
        }
        assert_int_equal(missing, trace.thinned_bytes);
        for (size_t i = 0; i < EVENTS; i++) { /* before the same event, or the next that is there */
            assert_true(marks[i].at <= trace.event_count);
            assert_true(marks[i].at == trace.event_count ||
                        events[marks[i].at].time_us >= (int64_t)i);
            assert_true(!marks[i].at || events[marks[i].at - 1].time_us < (int64_t)i);
        }
        seed = drawn;
    }
}

/* The least go first, and no more than it takes. */
static void what_matters_least_goes(void **state)
{
    static const struct {
        uint8_t action;
        uint64_t address, size;
    } made[] = {{SNAPSHOT_ALLOC, 1, 4096},          {SNAPSHOT_ALLOC, 2, 16},
                {SNAPSHOT_FREE_REQUESTED, 2, 16},   {SNAPSHOT_ALLOC, 3, 64},
                {SNAPSHOT_FREE_REQUESTED, 3, 64},   {SNAPSHOT_FREE_REQUESTED, 1, 4096},
                {SNAPSHOT_ALLOC, 4, 1 << 20},       {SNAPSHOT_FREE_REQUESTED, 4, 1 << 20},
                {SNAPSHOT_FREE_REQUESTED, 9, 4096}, {SNAPSHOT_ALLOC, 5, 1}};
    enum { COUNT = sizeof made / sizeof *made };
    static const size_t wanted[][COUNT] = {
        {0, 3, 4, 5, 6, 7, 8, 9}, {0, 5, 6, 7, 8, 9}, {0, 5, 6, 7, 8, 9}};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < COUNT; j++)
            events[j] = (struct snapshot_event){.action = made[j].action,
                                                .address = made[j].address,
                                                .size = made[j].size,
                                                .time_us = (int64_t)j};
        struct snapshot_trace trace = {.events = events, .event_count = COUNT, .exact_from = 0};
        struct snapshot snapshot = {.traces = &trace, .trace_count = 1};
        size_t left = i ? 6 : 8; /* the last goes as far as it can: not the first event */
        assert_true(thin_trace(&snapshot, 0, i == 2 ? 1 : left));
        assert_int_equal(trace.event_count, left);
        for (size_t j = 0; j < left; j++)
            assert_int_equal(events[j].time_us, wanted[i][j]);
    }
}

/* Of blocks that are all alike, those that go are of all parts of the trace. */
static void no_part_of_a_trace_is_emptied(void **state)
{
    enum { PARTS = 10 };
    size_t in_part[PARTS] = {0};
    (void)state;
    for (size_t i = 0; i < EVENTS; i++)
        events[i] =
            (struct snapshot_event){.action = i % 2 ? SNAPSHOT_FREE_REQUESTED : SNAPSHOT_ALLOC,
                                    .address = 1 + i / 2 % 7,
                                    .size = 512,
                                    .time_us = (int64_t)i};
    struct snapshot_trace trace = {.events = events, .event_count = EVENTS};
    struct snapshot snapshot = {.traces = &trace, .trace_count = 1};
    assert_true(thin_trace(&snapshot, 0, EVENTS / 3));
    assert_int_equal(trace.event_count, EVENTS / 3);
    assert_int_equal(events[0].time_us, 0);
    assert_int_equal(events[trace.event_count - 1].time_us, EVENTS - 1);
    for (size_t i = 0; i < trace.event_count; i++)
        in_part[(size_t)events[i].time_us * PARTS / EVENTS]++;
    for (size_t i = 0; i < PARTS; i++)
        assert_in_range(in_part[i], EVENTS / 3 / PARTS - 10, EVENTS / 3 / PARTS + 10);
}

static void short_traces_stay(void **state)
{
    (void)state;
    struct snapshot_trace trace = {.events = events, .event_count = 10};
    struct snapshot snapshot = {.traces = &trace, .trace_count = 1};
    assert_true(thin_trace(&snapshot, 0, 10));
    assert_int_equal(trace.event_count, 10);
    assert_int_equal(trace.thinned, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_as_exact_as_it_is_said),
        cmocka_unit_test(what_matters_least_goes),
        cmocka_unit_test(no_part_of_a_trace_is_emptied),
        cmocka_unit_test(short_traces_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
