/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The numbers of places: used again when nothing refers to them, and never before. */
#include "base/pages.h"
#include "record/trace.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define LEAST 1024  /* records that a ring has at least */
#define MANY 200000 /* places, one after the other */

static struct trace_place some(uint64_t pool)
{
    return (struct trace_place){
        .pool = {0, pool}, .native = pool * 3, .stream = pool % 7, .device = 1};
}

static bool is(uint32_t number, uint64_t pool)
{
    struct trace_place wanted = some(pool);
    const struct trace_place *place = trace_place_value(number);
    return place && memcmp(place, &wanted, sizeof wanted) == 0;
}

static uint32_t number_of(uint64_t pool)
{
    struct trace_place place = some(pool);
    return trace_place(&place);
}

static void the_same_place_has_the_same_number(void)
{
    CHECK(!trace_place_value(0) && !trace_place_value(1) && !trace_place_value(UINT32_MAX));
    for (uint64_t i = 1; i < 900; i++)
        CHECK(number_of(i) == i);
    for (uint64_t i = 1; i < 900; i++)
        CHECK(number_of(i) == i && is((uint32_t)i, i));
}

/* Makes places, each with a record, as pools that come and go do. */
static void come_and_go(struct trace_ring *ring, uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t number = number_of(i);
        CHECK(number && is(number, i));
        trace_put(ring, TRACE_trim, i, 0, number, 0, 0, 0);
    }
}

static struct trace_ring *start(void)
{
    ticks_init();
    trace_start(LEAST, TRACE_STACKS_NONE);
    return trace_ring_take(0);
}

static void numbers_are_used_again(void)
{
    struct trace_ring *ring = start();
    come_and_go(ring, 1, 20 * LEAST);
    uint64_t before = pages_bytes();
    come_and_go(ring, 20 * LEAST + 1, MANY);
    CHECK(pages_bytes() == before);
}

static void what_a_ring_has_keeps_its_number(void)
{
    struct trace_ring *ring = start(), *quiet = trace_ring_take(0);
    for (uint64_t i = 1; i <= LEAST; i++)
        trace_put(quiet, TRACE_trim, i, 0, number_of(i), 0, 0, 0);
    come_and_go(ring, LEAST + 1, MANY);
    struct trace_copy copy;
    CHECK(trace_read(&copy) && copy.count >= 2 * LEAST - 2);
    for (size_t i = 0; i < copy.count; i++)
        CHECK(is(trace_place_of(&copy.records[i]), copy.records[i].address));
    trace_copy_finish(&copy);
    /* Cleared, they go. */
    trace_clear();
    uint64_t before = pages_bytes();
    come_and_go(ring, LEAST + MANY + 1, MANY);
    CHECK(pages_bytes() == before && !is(1, 1));
}

static void what_is_held_keeps_its_number(void)
{
    struct trace_ring *ring = start();
    struct trace_place place = some(MANY + 1);
    uint32_t number = trace_place_keep(&place);
    CHECK(trace_place_keep(&place) == number);
    trace_place_drop(number);
    come_and_go(ring, 1, MANY);
    CHECK(is(number, MANY + 1));
    trace_place_drop(number);
    trace_place_drop(0);
    come_and_go(ring, MANY + 2, MANY);
    CHECK(!is(number, MANY + 1));
}

/* Who has let go of a number may be about to write it: it outlives the next look. */
static void what_was_held_until_now_keeps_its_number_a_while(void)
{
    struct trace_ring *ring = start();
    struct trace_place place = some(MANY + 1);
    uint32_t number = trace_place_keep(&place);
    uint64_t next = 1;
    for (; next <= 6 * LEAST; next++)
        come_and_go(ring, next, 1);
    trace_place_drop(number);
    uint32_t given = number_of(MANY + 2); /* at the same time, and by nobody kept: it goes with the
                                             other */
    for (; is(given, MANY + 2); next++) {
        CHECK(is(number, MANY + 1) && next < MANY);
        come_and_go(ring, next, 1);
    }
    come_and_go(ring, MANY + 3, MANY);
    CHECK(!is(number, MANY + 1));
}

static void who_reads_keeps_all(void)
{
    struct trace_ring *ring = start();
    come_and_go(ring, 1, 20 * LEAST);
    uint32_t number = number_of(MANY);
    trace_places_keep(true);
    trace_places_keep(true);
    come_and_go(ring, MANY + 1, 20 * LEAST);
    trace_places_keep(false);
    come_and_go(ring, 2 * MANY + 1, 20 * LEAST);
    CHECK(is(number, MANY));
    trace_places_keep(false);
    come_and_go(ring, 3 * MANY + 1, MANY);
    CHECK(!is(number, MANY));
}

static void without_host_memory_there_is_no_number(void)
{
    pages_fail(1, true);
    CHECK(number_of(1) == 0);
    pages_fail(0, false);
    CHECK(number_of(1) == 1 && is(1, 1));
    struct trace_ring *ring = start();
    come_and_go(ring, 2, LEAST);
    pages_fail(1, true); /* neither a look nor a further chunk */
    uint32_t number = 1;
    for (uint64_t i = 0; i < 300 && number; i++)
        number = number_of(MANY + i);
    CHECK(number == 0);
    pages_fail(0, false);
    come_and_go(ring, 2 * MANY, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(the_same_place_has_the_same_number),
        CHILD_TEST(numbers_are_used_again),
        CHILD_TEST(what_a_ring_has_keeps_its_number),
        CHILD_TEST(what_is_held_keeps_its_number),
        CHILD_TEST(what_was_held_until_now_keeps_its_number_a_while),
        CHILD_TEST(who_reads_keeps_all),
        CHILD_TEST(without_host_memory_there_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
