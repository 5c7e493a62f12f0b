/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every failure of a driver call or a host allocation in calls on ranges: what fails changes
 * nothing, committed pages keep their contents, and the next call works. */
#include "support/failures.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (64 * MIB)
#define PAGE (2 * MIB)
#define PAGES 32

static struct {
    tarn_stream streams[2];
    tarn_pool *pool;   /* NULL: none */
    tarn_range *range; /* NULL: none */
    char *start;       /* of the range */
    bool committed[PAGES];
    void *graph;
} t;

static tarn_range_info info_of(void)
{
    tarn_range_info info = {.size = sizeof info};
    OK(tarn_range_info_get(t.range, &info));
    return info;
}

/* The pages that are committed are those that the program thinks are, with what it wrote there. */
static void check(void)
{
    size_t committed = 0;
    for (int i = 0; t.range && i < PAGES; i++) {
        committed += t.committed[i] ? PAGE : 0;
        CHECK(!t.committed[i] ||
              (t.start[(size_t)i * PAGE] == i + 1 && t.start[(size_t)(i + 1) * PAGE - 1] == i + 1));
    }
    CHECK(!t.range || info_of().committed == committed);
}

static bool commit(int page, int count, int stream)
{
    if (!went_well(tarn_range_commit(t.range, (size_t)page * PAGE, (size_t)count * PAGE,
                                     t.streams[stream]),
                   true, "a commit")) {
        check();
        return false;
    }
    if (tarn_stream_synchronize(t.streams[stream])) {
        clear_injection();
        (void)tarn_stream_synchronize(t.streams[stream]);
    }
    for (int i = page; i < page + count; i++) {
        t.committed[i] = true;
        t.start[(size_t)i * PAGE] = t.start[(size_t)(i + 1) * PAGE - 1] = (char)(i + 1);
    }
    check();
    return true;
}

/* With work of `ns` that still uses the pages. */
static void decommit(int page, int count, int stream, uint64_t ns)
{
    for (int i = page; i < page + count; i++)
        if (!t.committed[i])
            return;
    if (ns)
        (void)machine->work(0, native_of(t.streams[stream]), t.start + (size_t)page * PAGE,
                            (size_t)count * PAGE, ns);
    if (TRY(tarn_range_decommit(t.range, (size_t)page * PAGE, (size_t)count * PAGE,
                                t.streams[stream])))
        for (int i = page; i < page + count; i++)
            t.committed[i] = false;
    check();
}

static bool begin(bool private)
{
    tarn_range_options options = {.size = sizeof options};
    if (private && !TRY(tarn_pool_create(NULL, &t.pool)))
        return false;
    options.pool = t.pool;
    if (!TRY(tarn_range_create(&options, PAGES * PAGE, &t.range)))
        return false;
    t.start = info_of().address;
    return true;
}

/* ---- Scenarios ---- */

static void pages_come_and_go(void)
{
    if (!begin(false))
        return;
    (void)commit(0, 4, 0);
    (void)commit(6, 1, 0);
    decommit(0, 2, 0, 0);
    (void)commit(0, 2, 0);
    decommit(0, 4, 0, 0);
    (void)TRY(tarn_device_trim(0, PAGE));
    (void)commit(1, 2, 0);
}

static void memory_moves(void)
{
    if (!begin(true))
        return;
    (void)commit(0, 4, 0);
    decommit(0, 4, 0, 0);
    (void)commit(8, 3, 0); /* from idle pages */
    decommit(8, 3, 0, 1000000);
    (void)commit(16, 2, 0); /* a second time */
    (void)commit(8, 1, 0);  /* which waits for the old page */
    decommit(16, 2, 0, 1000000);
    (void)commit(16, 2, 1); /* after an event */
    (void)TRY(tarn_pool_trim(t.pool, 0));
}

static void memory_is_short(void)
{
    if (!begin(true) || !TRY(tarn_pool_limit_set(t.pool, 4 * PAGE)))
        return;
    (void)commit(0, 4, 0);
    decommit(0, 2, 0, 1000000);
    (void)commit(8, 2, 1);
    (void)commit(10, 3, 1);
    void *block = NULL;
    if (tarn_pool_alloc(t.pool, t.streams[0], PAGE, &block) == TARN_OK)
        OK(tarn_free(block));
    decommit(2, 2, 0, 0);
    if (tarn_pool_alloc(t.pool, t.streams[0], PAGE, &block) == TARN_OK)
        OK(tarn_free(block));
}

static void graphs_hold_pages(void)
{
    if (!begin(false) || !commit(0, 2, 0))
        return;
    if (TRY(tarn_capture_begin(t.streams[0], TARN_CAPTURE_RELAXED))) {
        while (!TRY(tarn_capture_end(t.streams[0], &t.graph)) && !device_is_lost() && !t.graph)
            clear_injection();
    }
    bool held = t.graph && TRY(tarn_range_hold(t.range, 0, PAGE, t.graph));
    if (held)
        GIVES(tarn_range_decommit(t.range, 0, 2 * PAGE, t.streams[0]), TARN_ERROR_BUSY);
    if (TRY(tarn_range_hold(t.range, PAGE, PAGE, NULL)))
        OK(tarn_range_unhold(t.range, PAGE, PAGE));
    if (t.graph && machine->graph_destroy(t.graph) == TARN_OK)
        t.graph = NULL;
    if (!t.graph)
        decommit(0, 2, 0, 0);
}

static void pools_are_suspended(void)
{
    if (!begin(true))
        return;
    (void)commit(0, 2, 0);
    decommit(0, 1, 0, 1000000);
    CHECK(tarn_pool_suspend(t.pool, false) != TARN_OK || !t.committed[1]);
    check();
    decommit(1, 1, 0, 0);
    tarn_status status = tarn_pool_suspend(t.pool, false);
    if (pool_info_of(t.pool).state != TARN_POOL_RUNS) {
        CHECK(info_of().committed + info_of().decommitted == 0);
        while (!TRY(tarn_pool_resume(t.pool)) && !device_is_lost())
            clear_injection();
    } else if (status) {
        (void)TRY(status);
    }
    (void)commit(0, 2, 0);
}

static const struct scenario scenarios[] = {
    {"pages come and go", pages_come_and_go},     {"memory moves", memory_moves},
    {"memory is short", memory_is_short},         {"graphs hold pages", graphs_hold_pages},
    {"pools are suspended", pools_are_suspended},
};

/* ---- The run ---- */

static void settle(void)
{
    if (t.graph)
        OK(machine->graph_destroy(t.graph));
    t.graph = NULL;
    check();
    verify(0);
    if (t.range) { /* everything still works */
        for (int i = 0; i < PAGES; i++)
            if (t.committed[i])
                OK(tarn_range_decommit(t.range, (size_t)i * PAGE, PAGE, t.streams[0]));
        memset(t.committed, 0, sizeof t.committed);
        OK(tarn_range_commit(t.range, 0, 2 * PAGE, t.streams[1]));
        OK(tarn_range_destroy(t.range));
    }
    t.range = NULL;
    if (t.pool)
        OK(tarn_pool_release(t.pool));
    t.pool = NULL;
    nothing_is_left(0);
}

static void lost(void)
{
    for (int i = 0; t.range && i < PAGES; i++)
        if (t.committed[i])
            OK(tarn_range_decommit(t.range, (size_t)i * PAGE, PAGE, t.streams[0]));
    if (t.range)
        GIVES(tarn_range_commit(t.range, 0, PAGE, t.streams[0]), TARN_ERROR_DEVICE_LOST);
    if (t.pool)
        OK(tarn_pool_release(t.pool));
}

static void set_up(void)
{
    for (int i = 0; i < 2; i++)
        t.streams[i] = lease(0);
}

static void any_failure_leaves_ranges_as_they_were(void **state)
{
    (void)state;
    static const struct scenarios shared = {
        .set_up = set_up, .settle = settle, .lost = lost, .most = 100};
    each_failure_of(&shared, scenarios, sizeof scenarios / sizeof *scenarios);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_failure_leaves_ranges_as_they_were)};
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
