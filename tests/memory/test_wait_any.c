/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* If memory is short, the end of any work that holds back enough is waited for, and not of the work
 * that happens to come first (pytorch/pytorch#171771). */
#include "support/host.h"

#include "device/stream.h"
#include "driver/driver.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)
#define SOON UINT64_C(1000000)
#define LATE UINT64_C(5000000000)

static tarn_stream own, streams[2];

enum { USED_BY_OTHERS, OF_OTHERS, OF_A_FOUND_STREAM, WAYS };

static tarn_stream found_stream(void)
{
    tarn_stream stream = 0;
    OK(tarn_stream_find(0, native_made(0), &stream));
    return stream;
}

/* Two large blocks are freed while work on one ends soon, and on the other late. Returns when the
 * work began. */
static uint64_t free_busy_blocks(int way, bool late_first)
{
    tarn_stream late_stream = way == OF_A_FOUND_STREAM ? found_stream() : streams[1];
    tarn_stream users[2] = {streams[0], late_stream};
    void *blocks[2];
    uint64_t start = time_now();
    for (int i = 0; i < 2; i++)
        blocks[i] = alloc_on(way == USED_BY_OTHERS ? own : users[i], 120 * MIB);
    for (int i = 0; i < 2; i++) {
        if (way == USED_BY_OTHERS)
            OK(tarn_record_stream(blocks[i], users[i]));
        work_on(users[i], blocks[i], 120 * MIB, i ? LATE : SOON);
    }
    for (int i = 0; i < 2; i++)
        OK(tarn_free(blocks[late_first ? !i : i]));
    return start;
}

static void end(void)
{
    time_pass(LATE);
    nothing_is_left(0);
}

static void a_request_waits_for_the_first_that_ends(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++)
        for (int late_first = 0; late_first < 2; late_first++) {
            uint64_t start = free_busy_blocks(way, late_first);
            void *block = alloc_on(own, 100 * MIB);
            CHECK(time_now() - start >= SOON && time_now() - start < 2 * SOON);
            OK(tarn_free(block));
            end();
        }
}

static void a_trim_waits_for_no_more_than_it_must(void **state)
{
    (void)state;
    for (int way = 0; way < OF_A_FOUND_STREAM; way++)
        for (int late_first = 0; late_first < 2; late_first++) {
            uint64_t start = free_busy_blocks(way, late_first);
            OK(tarn_device_trim(0, 130 * MIB));
            CHECK(time_now() - start >= SOON && time_now() - start < 2 * SOON);
            CHECK(ledger_of(0).created <= 130 * MIB);
            OK(tarn_device_trim(0, 0));
            CHECK(time_now() - start >= LATE && ledger_of(0).created == 0);
            end();
        }
}

static void pinned_memory_waits_for_the_first_that_ends(void **state)
{
    (void)state;
    for (int late_first = 0; late_first < 2; late_first++) {
        void *blocks[2], *block = NULL;
        OK(tarn_pinned_limit_set(16 * MIB));
        uint64_t start = time_now();
        for (int i = 0; i < 2; i++) {
            OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 8 * MIB, &blocks[i]));
            work_on(streams[i], blocks[i], 1, i ? LATE : SOON);
            OK(tarn_pinned_record_stream(blocks[i], streams[i]));
        }
        for (int i = 0; i < 2; i++)
            OK(tarn_pinned_free(blocks[late_first ? !i : i]));
        OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 7 * MIB, &block));
        CHECK(time_now() - start >= SOON && time_now() - start < 2 * SOON);
        OK(tarn_pinned_free(block));
        time_pass(LATE);
        OK(tarn_pinned_trim(0));
        OK(tarn_pinned_limit_set(TARN_NO_LIMIT));
    }
}

/* Drivers of real devices can only be asked. */
static struct {
    uint64_t last, sum;
    int count;
} pauses;

static void pause_and_count(uint64_t ns)
{
    CHECK(ns >= pauses.last && ns <= 2 * pauses.last + 10000 && ns <= 1000000);
    pauses.last = ns;
    pauses.sum += ns;
    pauses.count++;
    time_pass(ns);
}

static void a_driver_is_asked_with_growing_pauses(void **state)
{
    (void)state;
    const struct driver *real = driver;
    struct driver asked = *driver;
    void (*usual)(uint64_t) = marks_pause;
    asked.event_wait_any = NULL;
    uint64_t start = free_busy_blocks(OF_OTHERS, true), queries = calls_of(0, "event_query");
    driver = &asked;
    marks_pause = pause_and_count;
    void *block = alloc_on(own, 100 * MIB);
    driver = real;
    marks_pause = usual;
    CHECK(time_now() - start >= SOON && time_now() - start < 2 * SOON);
    CHECK(pauses.count > 3 && pauses.count < 12 && pauses.sum < 2 * SOON);
    CHECK(calls_of(0, "event_query") - queries < 100);
    OK(tarn_free(block));
    end();
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    streams[0] = lease(0);
    streams[1] = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_waits_for_the_first_that_ends),
        cmocka_unit_test(a_trim_waits_for_no_more_than_it_must),
        cmocka_unit_test(pinned_memory_waits_for_the_first_that_ends),
        cmocka_unit_test(a_driver_is_asked_with_growing_pauses),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
