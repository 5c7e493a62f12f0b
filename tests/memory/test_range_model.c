/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random commits, decommits, trims and suspends of two ranges on three streams, against a model.
 *
 * What a page holds is written and read by work of its stream, behind delays: so a page that is
 * handed out before its earlier work has ended is found with that work's contents. The read goes to
 * a slot of its own, which is looked at when all work has ended. A call that must fail leaves
 * everything as it was. TARN_SEED chooses the sequence, TARN_MODEL_STEPS its length. */
#include "driver/driver.h"
#include "memory/pressure/release.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (96 * MIB)
#define PAGE (2 * MIB)
#define RANGES 2
#define FIRST 500 /* the first page that is used: a border of the table of pages is behind it */
#define PAGES 40
#define STREAMS 3
#define SLOTS 256
#define BYTES 512 /* of a page that are written and read */
#define LIMIT (20 * PAGE)

static uint64_t seed = 0x5eed;
static tarn_stream streams[STREAMS];
static tarn_pool *pool;
static struct {
    tarn_range *range;
    char *start;
    bool committed[PAGES];
    int stream[PAGES];
    unsigned char value[PAGES];
} m[RANGES];
static bool suspended;
static char *slots; /* a block */
static unsigned char expected[SLOTS];
static int used;
static unsigned long committed, refused;

static size_t below(size_t bound)
{
    return (size_t)(random_next(&seed) % bound);
}

static void look_at_slots(void)
{
    OK(tarn_device_synchronize(0));
    for (int i = 0; i < used; i++)
        for (int at = 0; at < BYTES; at++)
            CHECK((unsigned char)slots[i * BYTES + at] == expected[i]);
    used = 0;
}

static size_t offset_of(int page)
{
    return (size_t)(FIRST + page) * PAGE;
}

static char *page_of(int range, int page)
{
    return m[range].start + offset_of(page);
}

/* Reads a page on its stream. */
static void read_page(int range, int page)
{
    if (used == SLOTS)
        look_at_slots();
    void *native = native_of(streams[m[range].stream[page]]);
    if (below(2))
        work_on(streams[m[range].stream[page]], page_of(range, page), PAGE, below(100000));
    OK(driver->copy(0, (uintptr_t)(slots + used * BYTES), (uintptr_t)page_of(range, page), BYTES,
                    native));
    expected[used++] = m[range].value[page];
}

static void write_page(int range, int page, int stream)
{
    if (below(2))
        work_on(streams[stream], page_of(range, page), PAGE, below(100000));
    m[range].committed[page] = true;
    m[range].stream[page] = stream;
    m[range].value[page] = (unsigned char)random_next(&seed);
    OK(driver->set(0, (uintptr_t)page_of(range, page), m[range].value[page], BYTES,
                   native_of(streams[stream])));
}

static void check_counts(void)
{
    for (int range = 0; range < RANGES; range++) {
        tarn_range_info info = {.size = sizeof info};
        size_t bytes = 0;
        OK(tarn_range_info_get(m[range].range, &info));
        for (int page = 0; page < PAGES; page++)
            bytes += m[range].committed[page] ? PAGE : 0;
        CHECK(info.committed == bytes);
    }
    CHECK(pool_stats_of(pool).reserved_bytes[0].current <= (int64_t)LIMIT);
}

static void do_commit(void)
{
    int range = (int)below(RANGES), first = (int)below(PAGES), stream = (int)below(STREAMS);
    int count = 1 + (int)below(below(4) ? 2 : 8);
    count = first + count > PAGES ? PAGES - first : count;
    bool taken = false;
    for (int page = first; page < first + count; page++)
        taken = taken || m[range].committed[page];
    tarn_status status =
        tarn_range_commit(m[range].range, offset_of(first), (size_t)count * PAGE, streams[stream]);
    if (range == 1 && suspended) {
        CHECK(status == TARN_ERROR_SUSPENDED);
        return;
    }
    if (status == TARN_ERROR_INVALID_ARGUMENT) {
        CHECK(taken);
        return;
    }
    if (status) {
        CHECK(status == TARN_ERROR_OUT_OF_MEMORY);
        refused++;
        return;
    }
    CHECK(!taken);
    committed++;
    for (int page = first; page < first + count; page++)
        write_page(range, page, stream);
}

/* On the pages' stream, or on another one that comes after it. */
static void do_decommit(void)
{
    int range = (int)below(RANGES), page = (int)below(PAGES);
    if (!m[range].committed[page]) {
        GIVES(tarn_range_decommit(m[range].range, offset_of(page), PAGE, streams[0]),
              TARN_ERROR_INVALID_ARGUMENT);
        return;
    }
    int stream = m[range].stream[page], end = page;
    int most = page + 1 + (int)below(8);
    for (; end < PAGES && end < most && m[range].committed[end] && m[range].stream[end] == stream;
         end++)
        read_page(range, end);
    if (below(3) == 0) {
        tarn_event *event = NULL;
        int other = (int)below(STREAMS);
        OK(tarn_event_create(0, &event));
        OK(tarn_event_record(event, streams[stream]));
        OK(tarn_stream_wait(streams[other], event));
        OK(tarn_event_destroy(event));
        stream = other;
    }
    OK(tarn_range_decommit(m[range].range, offset_of(page), (size_t)(end - page) * PAGE,
                           streams[stream]));
    for (; page < end; page++)
        m[range].committed[page] = false;
}

static void do_read(void)
{
    int range = (int)below(RANGES), page = (int)below(PAGES);
    if (m[range].committed[page])
        read_page(range, page);
}

static void do_block(void)
{
    void *block = NULL;
    tarn_stream stream = streams[below(STREAMS)];
    tarn_status status = below(2) || suspended
                             ? tarn_alloc_on(stream, 1 + below(8 * MIB), &block)
                             : tarn_pool_alloc(pool, stream, 1 + below(8 * MIB), &block);
    CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
    if (!status)
        OK(tarn_free(block));
}

static void do_suspend(void)
{
    bool any = false;
    for (int page = 0; page < PAGES; page++)
        any = any || m[1].committed[page];
    if (suspended) {
        tarn_status status = tarn_pool_resume(pool);
        CHECK(status == TARN_OK);
        suspended = false;
    } else {
        GIVES(tarn_pool_suspend(pool, false), any ? TARN_ERROR_BUSY : TARN_OK);
        suspended = !any;
    }
}

static void step(void)
{
    static uint64_t time; /* of passes of the thread that gives idle memory back; the setting is a
                             day */
    switch (below(42)) {
    case 0:
        OK(tarn_device_trim(0, below(MEMORY)));
        break;
    case 1:
        OK(tarn_pool_trim(pool, below(LIMIT)));
        break;
    case 2:
        do_suspend();
        break;
    case 3:
        time_pass(below(200000));
        break;
    case 4:
    case 5:
        do_block();
        break;
    case 40:
    case 41:
        release_pass(time += UINT64_C(86400000000000));
        break;
    case 6:
    case 7:
    case 8:
        do_read();
        break;
    default:
        if (below(20) < 9)
            do_commit();
        else
            do_decommit();
    }
}

static void ranges_do_what_the_model_says(void)
{
    const char *text = getenv("TARN_SEED"), *steps_text = getenv("TARN_MODEL_STEPS");
    unsigned long steps = steps_text ? strtoul(steps_text, NULL, 0) / 4 : 12000;
    seed = text ? strtoull(text, NULL, 0) : seed;
    host_start_with(1, MEMORY);
    OK(tarn_configuration_set("idle_release:86400000"));
    for (int i = 0; i < STREAMS; i++)
        streams[i] = lease(0);
    slots = alloc_on(streams[0], SLOTS * BYTES);
    pool = pool_with((tarn_pool_options){.device = 0});
    OK(tarn_pool_limit_set(pool, LIMIT));
    for (int range = 0; range < RANGES; range++) {
        tarn_range_options options = {.size = sizeof options, .pool = range ? pool : NULL};
        tarn_range_info info = {.size = sizeof info};
        OK(tarn_range_create(&options, (FIRST + PAGES) * PAGE, &m[range].range));
        OK(tarn_range_info_get(m[range].range, &info));
        m[range].start = info.address;
    }
    for (unsigned long i = 0; i < steps; i++) {
        step();
        if (i % 64 == 0) {
            check_counts();
            verify(0);
        }
    }
    look_at_slots();
    printf("%lu commits, %lu refused; seed %#llx\n", committed, refused,
           (unsigned long long)(text ? strtoull(text, NULL, 0) : 0x5eed));
    CHECK(committed > steps / 20 && refused > 0);
    for (int range = 0; range < RANGES; range++)
        OK(tarn_range_destroy(m[range].range));
    OK(tarn_pool_release(pool));
    OK(tarn_free(slots));
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHILD_TEST(ranges_do_what_the_model_says)};
    return cmocka_run_group_tests_name("range_model", tests, NULL, NULL);
}
