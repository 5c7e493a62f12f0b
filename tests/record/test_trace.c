/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The rings of the trace: what was written comes back in the order of time, whole records only,
 * with what is missing counted and the moment known from which on nothing is. Each test is a
 * process of its own, since rings are never given back. */
#include "base/pages.h"
#include "record/trace.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define LEAST 1024 /* records that a ring has at least */

static void start(size_t records)
{
    ticks_init();
    trace_start(records, TRACE_STACKS_NONE);
    trace_is_whole();
}

static void put(struct trace_ring *ring, enum trace_kind kind, uint64_t address)
{
    trace_put(ring, kind, address, 3 * address, (uint32_t)address & 0xffffff, (uint32_t)address + 1,
              (uint32_t)address + 2, (uint16_t)address);
}

static struct trace_copy copy_now(void)
{
    struct trace_copy copy;
    CHECK(trace_read(&copy));
    for (size_t i = 1; i < copy.count; i++)
        CHECK(copy.records[i - 1].time <= copy.records[i].time);
    CHECK(copy.exact_from <= copy.count);
    return copy;
}

static void nothing_was_recorded(void)
{
    struct trace_copy copy = copy_now();
    uint64_t kept = 1, lost = 1;
    CHECK(copy.count == 0 && copy.lost == 0 && copy.exact_from == 0);
    trace_copy_finish(&copy);
    trace_count(&kept, &lost);
    CHECK(kept == 0 && lost == 0);
}

static void a_record_comes_back_as_it_was(void)
{
    start(0);
    struct trace_ring *ring = trace_ring_take(0);
    trace_put(ring, TRACE_segment_map, UINT64_C(0x7fffffffffff), UINT64_C(1) << 40, 0xabcdef,
              0xfedcba98, 0x12345678, 0xffff);
    struct trace_copy copy = copy_now();
    CHECK(copy.count == 1 && copy.lost == 0 && copy.exact_from == 0);
    const struct trace_record *record = copy.records;
    CHECK(record->address == UINT64_C(0x7fffffffffff) && record->size == UINT64_C(1) << 40);
    CHECK(trace_kind_of(record) == TRACE_segment_map && trace_place_of(record) == 0xabcdef);
    CHECK(record->region == 0xfedcba98 && record->stack == 0x12345678 && record->tag == 0xffff &&
          record->thread == 1);
    trace_copy_finish(&copy);
}

static void a_ring_keeps_its_newest(void)
{
    start(1);
    struct trace_ring *ring = trace_ring_take(0);
    for (uint64_t i = 0; i < 3 * LEAST; i++)
        put(ring, TRACE_trim, i);
    struct trace_copy copy = copy_now();
    CHECK(copy.count >= LEAST - 1 && copy.count + copy.lost == 3 * LEAST);
    for (size_t i = 0; i < copy.count; i++)
        CHECK(copy.records[i].address == 3 * LEAST - copy.count + i);
    uint64_t kept = 0, lost = 0;
    trace_count(&kept, &lost);
    CHECK(kept == LEAST && lost == 2 * LEAST);
    trace_copy_finish(&copy);
}

static void sizes_are_powers_of_two_above_what_was_asked(void)
{
    start(LEAST + 1);
    struct trace_ring *ring = trace_ring_take(0);
    CHECK(ring->mask + 1 == 2 * LEAST);
    start(7);
    CHECK(trace_ring_take(0)->mask + 1 == LEAST);
}

static void what_a_wrapped_ring_misses_makes_the_others_inexact(void)
{
    start(1);
    struct trace_ring *long_ago = trace_ring_take(0), *busy = trace_ring_take(0);
    put(long_ago, TRACE_trim, 1);
    put(busy, TRACE_trim, 2);
    for (uint64_t i = 0; i < 2 * LEAST; i++)
        put(busy, TRACE_trim, 100 + i);
    put(long_ago, TRACE_trim, 3);
    struct trace_copy copy = copy_now();
    CHECK(copy.records[0].address == 1 && copy.records[copy.count - 1].address == 3);
    CHECK(copy.exact_from > 0 && copy.exact_from < copy.count);
    CHECK(copy.records[copy.exact_from].address >= 100 + LEAST);
    trace_copy_finish(&copy);
}

/* Two stamps of one block may be out of order by the time between two processors. */
static void a_free_stands_before_the_next_owner_of_the_block(void)
{
    start(0);
    struct trace_ring *one = trace_ring_take(0), *two = trace_ring_take(0);
    put(one, TRACE_alloc, 512);
    put(two, TRACE_alloc, 512); /* too early */
    put(one, TRACE_alloc, 1024);
    put(one, TRACE_free_remote, 512);
    put(two, TRACE_free, 512);
    struct trace_copy copy = copy_now();
    static const enum trace_kind kinds[] = {TRACE_alloc, TRACE_free_remote, TRACE_alloc,
                                            TRACE_alloc, TRACE_free};
    static const uint64_t addresses[] = {512, 512, 512, 1024, 512};
    CHECK(copy.count == 5);
    for (size_t i = 0; i < 5; i++)
        CHECK(trace_kind_of(&copy.records[i]) == kinds[i] &&
              copy.records[i].address == addresses[i]);
    CHECK(copy.records[1].thread == 1 && copy.records[2].thread == 2);
    trace_copy_finish(&copy);
}

/* Where a free is missing, a later one is not taken for it. */
static void a_free_that_is_missing_is_not_made_up_for(void)
{
    start(1);
    struct trace_ring *one = trace_ring_take(0), *two = trace_ring_take(0);
    put(one, TRACE_alloc, 512);
    put(two, TRACE_free_remote, 512); /* which will be overwritten */
    for (uint64_t i = 0; i < LEAST; i++)
        put(two, TRACE_trim, i);
    usleep(1000);
    put(one, TRACE_alloc, 512);
    put(two, TRACE_free_remote, 512);
    struct trace_copy copy = copy_now();
    const struct trace_record *last = &copy.records[copy.count - 1];
    CHECK(trace_kind_of(last) == TRACE_free_remote && last->address == 512);
    CHECK(trace_kind_of(last - 1) == TRACE_alloc && copy.exact_from < copy.count - 1);
    trace_copy_finish(&copy);
}

static void what_was_cleared_is_gone(void)
{
    start(1);
    struct trace_ring *ring = trace_ring_take(0);
    for (uint64_t i = 0; i < 2 * LEAST; i++)
        put(ring, TRACE_trim, i);
    trace_clear();
    struct trace_copy copy = copy_now();
    CHECK(copy.count == 0 && copy.lost == 0);
    trace_copy_finish(&copy);
    put(ring, TRACE_trim, 7);
    copy = copy_now();
    CHECK(copy.count == 1 && copy.lost == 0 && copy.records[0].address == 7 &&
          copy.exact_from == 0);
    trace_copy_finish(&copy);
    for (uint64_t i = 0; i < 2 * LEAST; i++)
        put(ring, TRACE_trim, i);
    copy = copy_now();
    CHECK(copy.count + copy.lost == 2 * LEAST + 1);
    trace_copy_finish(&copy);
}

static void nothing_is_exact_but_while_all_is_recorded(void)
{
    ticks_init();
    trace_start(0, TRACE_STACKS_NONE);
    struct trace_ring *ring = trace_ring_take(0);
    put(ring, TRACE_trim, 1);
    struct trace_copy copy = copy_now();
    CHECK(copy.count == 1 && copy.exact_from == 1); /* some may not know yet that it is on */
    trace_copy_finish(&copy);
    trace_is_whole();
    put(ring, TRACE_trim, 2);
    copy = copy_now();
    CHECK(copy.count == 2 && copy.exact_from == 1);
    trace_copy_finish(&copy);
    trace_start(0, TRACE_STACKS_NONE); /* which it is already */
    put(ring, TRACE_trim, 3);
    copy = copy_now();
    CHECK(copy.count == 3 && copy.exact_from == 1);
    trace_copy_finish(&copy);
    trace_stop();
    CHECK(!trace_is_on());
    copy = copy_now();
    CHECK(copy.count == 3 && copy.exact_from == 3);
    trace_copy_finish(&copy);
    trace_is_whole(); /* of a start that was overtaken */
    copy = copy_now();
    CHECK(copy.exact_from == 3);
    trace_copy_finish(&copy);
}

static void what_had_no_ring_is_lost_and_said(void)
{
    start(0);
    struct trace_ring *ring = trace_ring_take(0);
    put(ring, TRACE_trim, 1);
    pages_fail(1, false);
    CHECK(trace_ring_take(0) == NULL);
    pages_fail(0, false);
    trace_lose();
    put(ring, TRACE_trim, 2);
    struct trace_copy copy = copy_now();
    CHECK(copy.count == 2 && copy.lost == 1 && copy.exact_from == 1);
    trace_copy_finish(&copy);
}

static void a_ring_is_used_again_by_the_next_thread(void)
{
    start(0);
    struct trace_ring *ring = trace_ring_take(0), *other = trace_ring_take(0);
    put(ring, TRACE_trim, 1);
    trace_ring_leave(ring);
    trace_ring_leave(NULL);
    CHECK(trace_ring_take(0) == ring);
    put(ring, TRACE_trim, 2);
    put(other, TRACE_trim, 3);
    struct trace_copy copy = copy_now();
    CHECK(copy.count == 3);
    CHECK(copy.records[0].thread == 1 && copy.records[1].thread == 3 &&
          copy.records[2].thread == 2);
    for (uint32_t i = 1; i <= 3; i++)
        CHECK(((const struct trace_thread *)intern_value(&trace_threads, i))->number == i);
    trace_copy_finish(&copy);
}

static void a_reader_without_host_memory_reads_nothing(void)
{
    start(0);
    for (int i = 0; i < 3; i++)
        put(trace_ring_take(0), TRACE_trim, 1);
    uint64_t allocations;
    pages_fail(UINT64_MAX, false);
    struct trace_copy copy = copy_now();
    allocations = pages_fail_calls();
    trace_copy_finish(&copy);
    CHECK(allocations >= 3);
    for (uint64_t n = 1; n <= allocations; n++) {
        pages_fail(n, false);
        bool read = trace_read(&copy);
        CHECK(pages_fail_hits() == 1);
        pages_fail(0, false);
        CHECK(!read || copy.count == 3); /* the table that puts frees first is not needed */
        trace_copy_finish(&copy);
    }
}

#define WRITERS 3

static atomic_bool ends;

/* Records that say their own number, thread and kind in each field. */
static void *write_on(void *argument)
{
    struct trace_ring *ring = argument;
    for (uint64_t i = 0; !atomic_load_explicit(&ends, memory_order_relaxed); i++)
        put(ring, i % 2 ? TRACE_alloc : TRACE_free_completed, i * WRITERS + ring->thread % WRITERS);
    return NULL;
}

static void check_whole(const struct trace_copy *copy, uint64_t last[WRITERS])
{
    for (size_t i = 0; i < copy->count; i++) {
        const struct trace_record *record = &copy->records[i];
        uint64_t address = record->address, number = address / WRITERS,
                 *before = &last[record->thread % WRITERS];
        CHECK(address % WRITERS == record->thread % WRITERS);
        CHECK(record->size == 3 * address && trace_place_of(record) == (address & 0xffffff));
        CHECK(record->region == (uint32_t)address + 1 && record->stack == (uint32_t)address + 2);
        CHECK(record->tag == (uint16_t)address);
        CHECK(trace_kind_of(record) == (number % 2 ? TRACE_alloc : TRACE_free_completed));
        /* None is missing between two of a thread */
        CHECK(*before == UINT64_MAX || number == *before + 1);
        *before = number;
    }
}

static void a_reader_beside_writers_sees_whole_records(void)
{
    pthread_t threads[WRITERS];
    start(1);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, write_on, trace_ring_take(0)) == 0);
    /* Of something: the writers may not have begun yet */
    for (int turn = 0, reads = 0; reads < 300; turn++) {
        uint64_t last[WRITERS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX}, kept, lost;
        if (turn % 50 == 49)
            trace_clear();
        struct trace_copy copy = copy_now();
        reads += copy.count > 0;
        CHECK(copy.count <= WRITERS * (size_t)LEAST);
        check_whole(&copy, last);
        trace_copy_finish(&copy);
        trace_count(&kept, &lost);
        CHECK(kept <= WRITERS * (uint64_t)LEAST);
    }
    atomic_store(&ends, true);
    for (int i = 0; i < WRITERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* Whether large pages were asked for where an address lies: the flag "hg" of its mapping (proc(5),
 * smaps). */
static bool prefers_large(const void *address)
{
    char line[512];
    bool there = false, large = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            there = (uintptr_t)address >= first && (uintptr_t)address < end;
        else if (there && strncmp(line, "VmFlags:", 8) == 0)
            large = strstr(line, " hg") != NULL;
    }
    (void)fclose(maps);
    return large;
}

static void only_what_is_behind_the_first_records_gets_large_pages(void)
{
    start((size_t)1 << 20);
    struct trace_ring *ring = trace_ring_take(0);
    CHECK(!prefers_large(ring) && !prefers_large((char *)ring + ((size_t)2 << 20) - 1));
    CHECK(prefers_large((char *)ring + ((size_t)2 << 20)));
    CHECK(prefers_large((char *)ring + ring->bytes - 1));
    start(1);
    CHECK(!prefers_large(trace_ring_take(0)));
}

#define TEST(function)                        \
    static void test_##function(void **state) \
    {                                         \
        (void)state;                          \
        in_child(function);                   \
    }
#define TEST_LIST(X)                                       \
    X(nothing_was_recorded)                                \
    X(a_record_comes_back_as_it_was)                       \
    X(a_ring_keeps_its_newest)                             \
    X(sizes_are_powers_of_two_above_what_was_asked)        \
    X(what_a_wrapped_ring_misses_makes_the_others_inexact) \
    X(a_free_stands_before_the_next_owner_of_the_block)    \
    X(a_free_that_is_missing_is_not_made_up_for)           \
    X(what_was_cleared_is_gone)                            \
    X(nothing_is_exact_but_while_all_is_recorded)          \
    X(what_had_no_ring_is_lost_and_said)                   \
    X(a_ring_is_used_again_by_the_next_thread)             \
    X(a_reader_without_host_memory_reads_nothing)          \
    X(a_reader_beside_writers_sees_whole_records)          \
    X(only_what_is_behind_the_first_records_gets_large_pages)

TEST_LIST(TEST)

int main(void)
{
#define X(function) cmocka_unit_test(test_##function),
    const struct CMUnitTest tests[] = {TEST_LIST(X)};
#undef X
    return cmocka_run_group_tests(tests, NULL, NULL);
}
