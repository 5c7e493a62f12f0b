/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges on one thread: what a commit and a decommit do, in which order, with which driver
 * calls. */
#include "memory/range_test.h"
#include "support/failures.h"

#include "base/pages.h"

#include <tarn/sleep.h>

#include <cmocka.h>

static void a_commit_gives_memory_and_a_decommit_keeps_it_mapped(void)
{
    start();
    tarn_range *range = range_of(NULL, 64 * PAGE);
    tarn_range_info info = info_of(range);
    CHECK(info.address && info.bytes == 64 * PAGE && info.page == PAGE && info.device == 0);
    CHECK(info.committed == 0 && stats_of(0).reserved_bytes[0].current == 0);

    OK(tarn_range_commit(range, 2 * PAGE, 3 * PAGE, stream));
    CHECK(info_of(range).committed == 3 * PAGE);
    CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(3 * PAGE));
    CHECK(calls_of(0, "set_access") == 1 && calls_of(0, "map") == 3);
    fill(range, 2, 3, 7);
    is_filled(range, 2, 3, 7);

    uint64_t before = all_calls(0);
    OK(tarn_range_decommit(range, 2 * PAGE, 3 * PAGE, stream));
    CHECK(info_of(range).committed == 0 && info_of(range).decommitted == 3 * PAGE);
    OK(tarn_range_commit(range, 3 * PAGE, PAGE, stream));
    OK(tarn_range_commit(range, 2 * PAGE, PAGE, stream));
    CHECK(all_calls(0) == before);
    is_filled(range, 2, 3, 7); /* the memory is the same */
    OK(tarn_range_decommit(range, 2 * PAGE, 2 * PAGE, stream));
    end(range);
}

static void pages_are_whole_and_each_is_committed_once(void)
{
    start();
    tarn_range *range = range_of(NULL, 8 * PAGE);
    OK(tarn_range_commit(range, PAGE, PAGE, stream));
    static const size_t bad[][2] = {{0, 0},
                                    {1, PAGE},
                                    {0, PAGE - 1},
                                    {8 * PAGE, PAGE},
                                    {7 * PAGE, 2 * PAGE},
                                    {SIZE_MAX - PAGE + 1, PAGE},
                                    {0, SIZE_MAX - PAGE + 1}};
    const size_t parts = 3; /* the first ones are no whole pages; the others lie outside */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        GIVES(tarn_range_commit(range, bad[i][0], bad[i][1], stream), TARN_ERROR_INVALID_ARGUMENT);
        CHECK(strstr(tarn_last_error(), i < parts ? "are not whole pages" : "outside the range"));
        GIVES(tarn_range_decommit(range, bad[i][0], bad[i][1], stream),
              TARN_ERROR_INVALID_ARGUMENT);
        GIVES(tarn_range_hold(range, bad[i][0], bad[i][1], NULL), TARN_ERROR_INVALID_ARGUMENT);
    }
    uint64_t before = calls_of(0, "map");
    GIVES(tarn_range_commit(range, 0, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_range_decommit(range, 0, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_range_decommit(range, PAGE, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(info_of(range).committed == PAGE && calls_of(0, "map") == before);
    OK(tarn_range_commit(range, 2 * PAGE, PAGE, stream));
    OK(tarn_range_decommit(range, PAGE, PAGE, stream));
    GIVES(tarn_range_decommit(range, PAGE, PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    /* A commit that begins with a page at hand and cannot be is none */
    GIVES(tarn_range_commit(range, PAGE, 2 * PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(info_of(range).committed == PAGE && info_of(range).decommitted == PAGE);
    tarn_range *none = NULL;
    GIVES(tarn_range_create(NULL, 0, &none), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_range_create(&(tarn_range_options){.size = sizeof(tarn_range_options), .page = 4096},
                            PAGE, &none),
          TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_range_create(&(tarn_range_options){.size = sizeof(tarn_range_options), .tag = 9},
                            PAGE, &none),
          TARN_ERROR_INVALID_ARGUMENT);
    CHECK(!none);
    end(range);
    GIVES(tarn_range_commit(range, 0, PAGE, stream), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_range_destroy(range), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_range_destroy(NULL));
}

/* Another stream gets a page at its address with the event of the first one's work, and does not
 * get it before. */
static void another_stream_comes_after_the_work(void)
{
    start();
    tarn_stream other = lease(0);
    tarn_range *range = range_of(NULL, 8 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    work_on(stream, address_of(range, 0), PAGE, 5000000);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    CHECK(tarn_stream_query(stream) == TARN_ERROR_NOT_READY);
    uint64_t waits = calls_of(0, "stream_wait_event"), maps = calls_of(0, "map");
    OK(tarn_range_commit(range, 0, 2 * PAGE, other));
    CHECK(calls_of(0, "stream_wait_event") == waits + 1 && calls_of(0, "map") == maps);
    OK(tarn_stream_synchronize(other));
    CHECK(tarn_stream_query(stream) == TARN_OK);
    /* What is idle needs no event */
    OK(tarn_range_decommit(range, 0, 2 * PAGE, other));
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    CHECK(calls_of(0, "stream_wait_event") == waits + 1);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    end(range);
    OK(tarn_stream_return(other));
}

/* Work that was queued after the last mark of a page's stream, and before its decommit, counts. */
/* What is known of the other stream's work needs host memory, for which the commit asks more than
 * once. */
static void a_commit_fails_where_host_memory_is_short_for_a_moment(void)
{
    start();
    tarn_stream other = lease(0);
    tarn_status status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    for (uint64_t nth = 1; status; nth++) {
        tarn_range *range = range_of(NULL, PAGE);
        OK(tarn_range_commit(range, 0, PAGE, stream));
        work_on(stream, address_of(range, 0), PAGE, 1000);
        OK(tarn_range_decommit(range, 0, PAGE, stream));
        pages_fail_times(nth, 2);
        status = tarn_range_commit(range, 0, PAGE, other);
        pages_fail(0, false);
        CHECK(!status || status == TARN_ERROR_OUT_OF_HOST_MEMORY);
        CHECK(info_of(range).committed == (status ? 0 : PAGE));
        OK(tarn_range_destroy(range));
    }
    OK(tarn_stream_return(other));
    OK(tarn_stream_return(stream));
    nothing_is_left(0);
}

static void a_later_decommit_waits_for_later_work(void)
{
    start();
    tarn_stream other = lease(0);
    tarn_range *range = range_of(NULL, 8 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_range_commit(range, 0, PAGE, other)); /* marks the stream */
    work_on(stream, address_of(range, 1), PAGE, 5000000);
    OK(tarn_range_decommit(range, PAGE, PAGE, stream));
    OK(tarn_range_commit(range, PAGE, PAGE, other));
    OK(tarn_stream_synchronize(other));
    CHECK(tarn_stream_query(stream) == TARN_OK);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, other));
    end(range);
    OK(tarn_stream_return(other));
}

/* Idle memory of the range serves its other pages, before any is created: one unmap per run. */
static void idle_pages_serve_other_addresses(void)
{
    start();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, 4 * PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    uint64_t creates = calls_of(0, "create"), unmaps = calls_of(0, "unmap");
    OK(tarn_range_commit(range, 8 * PAGE, 3 * PAGE, stream));
    CHECK(calls_of(0, "create") == creates && calls_of(0, "unmap") == unmaps + unmaps_of(3, 1));
    CHECK(info_of(range).decommitted == PAGE);
    fill(range, 8, 3, 9);
    OK(tarn_range_decommit(range, 8 * PAGE, 3 * PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_device_trim(0, 0));
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 0, 4 * PAGE, stream));
    unmaps = calls_of(0, "unmap");
    OK(tarn_pool_suspend(pool, false)); /* takes all, which is one run too */
    CHECK(calls_of(0, "unmap") == unmaps + unmaps_of(4, 1));
    OK(tarn_pool_resume(pool));
    OK(tarn_range_destroy(range));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* Memory that is not idle is mapped a second time, for its own stream; its old page waits. */
static void the_same_stream_maps_a_second_time(void)
{
    start();
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    work_on(stream, address_of(range, 0), 2 * PAGE, 5000000);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    uint64_t creates = calls_of(0, "create"), unmaps = calls_of(0, "unmap");
    OK(tarn_range_commit(range, 8 * PAGE, 2 * PAGE, stream));
    CHECK(tarn_stream_query(stream) == TARN_ERROR_NOT_READY);
    CHECK(calls_of(0, "create") == creates + (aliases() ? 0 : 2) && calls_of(0, "unmap") == unmaps);
    if (!aliases()) { /* other memory serves instead */
        CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(4 * PAGE));
        OK(tarn_range_decommit(range, 8 * PAGE, 2 * PAGE, stream));
        end(range);
        return;
    }
    CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(2 * PAGE));
    /* The old pages are empty when their work has ended: a commit waits for that */
    OK(tarn_range_commit(range, 0, PAGE, stream));
    CHECK(tarn_stream_query(stream) == TARN_OK);
    CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(3 * PAGE));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_range_decommit(range, 8 * PAGE, 2 * PAGE, stream));
    end(range);
}

/* Not with `no_remap`, and not for another stream: then memory is created. */
static void a_second_mapping_needs_the_pool_and_the_stream(void)
{
    start();
    tarn_stream other = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.no_remap = true});
    tarn_range *range = range_of(pool, 16 * PAGE);
    OK(tarn_range_commit(range, 0, PAGE, stream));
    work_on(stream, address_of(range, 0), PAGE, 5000000);
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_range_commit(range, 8 * PAGE, PAGE, stream));
    CHECK(pool_stats_of(pool).reserved_bytes[0].current == (int64_t)(2 * PAGE));
    OK(tarn_range_decommit(range, 8 * PAGE, PAGE, stream));
    work_on(stream, address_of(range, 0), PAGE, 5000000);
    OK(tarn_range_commit(range, 9 * PAGE, 2 * PAGE, other));
    CHECK(tarn_stream_query(stream) == TARN_ERROR_NOT_READY);
    CHECK(pool_stats_of(pool).reserved_bytes[0].current == (int64_t)(4 * PAGE));
    OK(tarn_range_decommit(range, 9 * PAGE, 2 * PAGE, other));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_pool_release(pool)); /* the range has a reference */
    OK(tarn_range_commit(range, 0, PAGE, other));
    OK(tarn_range_decommit(range, 0, PAGE, other));
    end(range);
    OK(tarn_stream_return(other));
}

static void the_pools_limit_holds(void)
{
    start();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 64 * PAGE);
    OK(tarn_pool_limit_set(pool, 4 * PAGE));
    OK(tarn_range_commit(range, 0, 3 * PAGE, stream));
    GIVES(tarn_range_commit(range, 8 * PAGE, 2 * PAGE, stream), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "a commit of a range needs 4 MiB"));
    CHECK(info_of(range).committed == 3 * PAGE);
    OK(tarn_range_commit(range, 8 * PAGE, PAGE, stream));
    CHECK(pool_stats_of(pool).num_ooms == 1);
    /* What fails keeps no memory, and one that can never fit takes none from others */
    uint64_t unmaps = calls_of(0, "unmap");
    GIVES(tarn_range_commit(range, 16 * PAGE, 32 * PAGE, stream), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(pool_stats_of(pool).reserved_bytes[0].current == (int64_t)(4 * PAGE) &&
          calls_of(0, "unmap") == unmaps);
    OK(tarn_range_decommit(range, 0, 3 * PAGE, stream));
    OK(tarn_range_decommit(range, 8 * PAGE, PAGE, stream));
    OK(tarn_pool_release(pool));
    end(range);
}

/* What is decommitted in one range, or lies free in a heap, makes room for another, also after a
 * wait; and for blocks. */
static void decommitted_memory_makes_room(void)
{
    start();
    tarn_stream other = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(NULL, 2 * MEMORY), *second = range_of(pool, 2 * MEMORY);
    OK(tarn_range_commit(range, 0, MEMORY, stream));
    GIVES(tarn_range_commit(second, 0, PAGE, stream), TARN_ERROR_OUT_OF_MEMORY);
    work_on(stream, address_of(range, 0), PAGE, 2000000);
    OK(tarn_range_decommit(range, 0, MEMORY, stream));
    OK(tarn_range_commit(second, 0, MEMORY, other));
    CHECK(info_of(range).decommitted == 0);
    work_on(other, address_of(second, 0), PAGE, 2000000);
    OK(tarn_range_decommit(second, 0, MEMORY, other));
    void *block = alloc_on(stream, MEMORY / 2);
    CHECK(block && info_of(second).decommitted <= MEMORY / 2);
    GIVES(tarn_range_commit(second, 0, MEMORY, other), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(block));
    OK(tarn_range_commit(second, 0, MEMORY, other));
    OK(tarn_range_decommit(second, 0, MEMORY, other));
    OK(tarn_pool_release(pool));
    OK(tarn_range_destroy(second));
    end(range);
    OK(tarn_stream_return(other));
}

static void a_trim_gives_decommitted_pages_back(void)
{
    start();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(NULL, 16 * PAGE), *own = range_of(pool, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 8 * PAGE, stream));
    OK(tarn_range_commit(own, 0, 8 * PAGE, stream));
    fill(range, 0, 8, 3);
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    work_on(stream, address_of(range, 4), PAGE, 2000000);
    OK(tarn_range_decommit(range, 4 * PAGE, 2 * PAGE, stream));
    OK(tarn_range_decommit(own, 0, 4 * PAGE, stream));
    uint64_t unmaps = calls_of(0, "unmap");
    OK(tarn_device_trim(0, 0));
    CHECK(info_of(range).decommitted == 0 && info_of(own).decommitted == 4 * PAGE);
    CHECK(calls_of(0, "unmap") == unmaps + unmaps_of(4, 2)); /* one per run */
    CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(12 * PAGE));
    OK(tarn_pool_trim(pool, 6 * PAGE));
    CHECK(info_of(own).decommitted == 2 * PAGE);
    OK(tarn_pool_trim(pool, 0));
    CHECK(info_of(own).decommitted == 0);
    is_filled(range, 2, 2, 3);
    is_filled(range, 6, 2, 3);
    OK(tarn_pool_release(pool));
    OK(tarn_range_destroy(own)); /* with committed pages */
    end(range);
}

/* Old pages of memory that was mapped a second time go in one call per run, and the memory stays at
 * its second address. */
static void old_pages_leave_run_by_run(void)
{
    start();
    tarn_range *range = range_of(NULL, 32 * PAGE);
    OK(tarn_range_commit(range, 0, 7 * PAGE, stream));
    work_on(stream, address_of(range, 0), 7 * PAGE, 5000000);
    OK(tarn_range_decommit(range, 0, 4 * PAGE, stream));
    OK(tarn_range_decommit(range, 5 * PAGE, 2 * PAGE, stream));
    OK(tarn_range_commit(range, 16 * PAGE, 6 * PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    if (aliases()) {
        fill(range, 16, 6, 3);
        uint64_t unmaps = calls_of(0, "unmap");
        OK(tarn_device_trim(0, 0));
        CHECK(calls_of(0, "unmap") == unmaps + 2);
        CHECK(ledger_of(0).mapped == 7 * PAGE);
        is_filled(range, 16, 6, 3);
    }
    OK(tarn_range_decommit(range, 4 * PAGE, PAGE, stream));
    OK(tarn_range_decommit(range, 16 * PAGE, 6 * PAGE, stream));
    end(range);
}

/* A run is one where the table of pages has a border (range.h, CHUNK_PAGES), and where the last
 * search for idle memory ended. */
static void a_run_has_no_borders(void)
{
    start();
    tarn_range *range = range_of(NULL, 1024 * PAGE);
    const size_t first = 508;
    OK(tarn_range_commit(range, first * PAGE, 8 * PAGE, stream));
    OK(tarn_range_decommit(range, first * PAGE, 8 * PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    uint64_t unmaps = calls_of(0, "unmap");
    OK(tarn_device_trim(0, 3 * PAGE));
    CHECK(calls_of(0, "unmap") == unmaps + unmaps_of(5, 1));
    OK(tarn_range_commit(range, first * PAGE, 8 * PAGE, stream));
    OK(tarn_range_decommit(range, first * PAGE, 8 * PAGE, stream));
    OK(tarn_stream_synchronize(stream));
    unmaps = calls_of(0, "unmap");
    OK(tarn_device_trim(0, 0));
    CHECK(calls_of(0, "unmap") == unmaps + unmaps_of(8, 1));
    CHECK(ledger_of(0).mapped == 0);
    end(range);
}

static void a_range_may_be_larger_than_the_memory(void)
{
    start();
    tarn_range *range = range_with((tarn_range_options){.page = 4 * PAGE}, 40 * MEMORY);
    CHECK(info_of(range).bytes == 40 * MEMORY && info_of(range).page == 4 * PAGE);
    size_t last = 40 * MEMORY - 4 * PAGE;
    OK(tarn_range_commit(range, last, 4 * PAGE, stream));
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    CHECK(stats_of(0).reserved_bytes[0].current == (int64_t)(8 * PAGE) &&
          stats_of(0).segment[0].current == 2);
    OK(tarn_range_decommit(range, last, 4 * PAGE, stream));
    tarn_range *more = NULL;
    GIVES(tarn_range_create(NULL, 40 * MEMORY, &more), TARN_ERROR_OUT_OF_MEMORY);
    end(range);
}

static void what_is_for_blocks_refuses_a_range(void)
{
    start();
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 2 * PAGE, stream));
    for (int i = 0; i < 2; i++) {
        char *at = address_of(range, 0) + (i ? 512 : 0);
        tarn_block_info info = {.size = sizeof info};
        tarn_share *share = NULL;
        tarn_mapping mapping;
        size_t size;
        tarn_event *event = NULL;
        GIVES(tarn_free(at), TARN_ERROR_INVALID_POINTER);
        CHECK(strstr(tarn_last_error(), "lies in a range"));
        OK(tarn_event_create(0, &event));
        GIVES(tarn_free_on(at, stream), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_free_after(at, event), TARN_ERROR_INVALID_POINTER);
        OK(tarn_event_destroy(event));
        GIVES(tarn_record_stream(at, stream), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_pointer_info_get(at, &info), TARN_ERROR_INVALID_POINTER);
        CHECK(strstr(tarn_last_error(), "lies in a range"));
        GIVES(tarn_export(at, &share), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_anchor(at, 100), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_mapping_get(at, &mapping), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_extend(at, 1000), TARN_ERROR_INVALID_POINTER);
        GIVES(tarn_usable_size_get(at, &size), TARN_ERROR_INVALID_POINTER);
        CHECK(strstr(tarn_last_error(), "lies in a range"));
    }
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    end(range);
}

static void a_pool_needs_virtual_segments_of_its_own(void)
{
    start();
    tarn_range *range = NULL;
    tarn_pool *pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_PLAIN});
    tarn_range_options options = {.size = sizeof options, .pool = pool};
    GIVES(tarn_range_create(&options, PAGE, &range), TARN_ERROR_NOT_SUPPORTED);
    OK(tarn_pool_release(pool));
    options.pool = pool_with((tarn_pool_options){.registrable = true});
    GIVES(tarn_range_create(&options, PAGE, &range), TARN_ERROR_NOT_SUPPORTED);
    OK(tarn_pool_release(options.pool));
    GIVES(tarn_range_create(&options, PAGE, &range), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(!range);
    nothing_is_left(0);
}

static void a_suspend_takes_what_is_decommitted(void)
{
    start();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 16 * PAGE);
    OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
    fill(range, 0, 4, 5);
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_BUSY);
    CHECK(strstr(tarn_last_error(), "tarn_range_decommit()"));
    CHECK(pool_info_of(pool).state == TARN_POOL_RUNS);
    is_filled(range, 0, 4, 5);
    work_on(stream, address_of(range, 0), PAGE, 1000000);
    OK(tarn_range_decommit(range, 0, 4 * PAGE, stream));
    OK(tarn_pool_suspend(pool, true));
    CHECK(ledger_of(0).created == 0 && info_of(range).decommitted == 0);
    GIVES(tarn_range_commit(range, 0, PAGE, stream), TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    OK(tarn_range_commit(range, 0, PAGE, stream));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_pool_release(pool));
    end(range);
}

static void let_work_end(const tarn_mapping *mapping, void *user)
{
    (void)mapping;
    (void)user;
    time_pass(1000000);
}

/* A pass asks a stream once. What ends after that is found all the same. */
static void work_that_ends_during_a_pass_holds_nothing_back(void)
{
    start();
    tarn_stream other = lease(0);
    tarn_observer observer;
    OK(tarn_observer_add(
        &(tarn_observer_options){.size = sizeof(tarn_observer_options), .unmapping = let_work_end},
        &observer));
    for (int suspends = 0; suspends < 2; suspends++) {
        tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
        tarn_range *range = range_of(pool, 2 * PAGE);
        OK(tarn_range_commit(range, 0, PAGE, stream));
        OK(tarn_range_commit(range, PAGE, PAGE, other));
        work_on(other, address_of(range, 1), PAGE, 1000000);
        OK(tarn_range_decommit(range, 0, PAGE, stream));
        OK(tarn_range_decommit(range, PAGE, PAGE, other));
        OK(suspends ? tarn_pool_suspend(pool, false) : tarn_pool_trim(pool, 0));
        CHECK(ledger_of(0).created == 0 && info_of(range).decommitted == 0);
        OK(tarn_range_destroy(range));
        OK(tarn_pool_release(pool));
    }
    OK(tarn_observer_remove(observer));
    OK(tarn_stream_return(other));
    OK(tarn_stream_return(stream));
    nothing_is_left(0);
}

static void a_checkpoint_leaves_ranges_alone(void)
{
    start();
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_range *range = range_of(pool, 16 * PAGE);
    tarn_checkpoint *checkpoint = NULL;
    OK(tarn_range_commit(range, 0, PAGE, stream));
    OK(tarn_pool_checkpoint(pool, &checkpoint));
    OK(tarn_range_commit(range, PAGE, PAGE, stream));
    fill(range, 0, 2, 5);
    OK(tarn_pool_restore(pool, checkpoint, NULL, NULL));
    CHECK(info_of(range).committed == 2 * PAGE);
    is_filled(range, 0, 2, 5);
    OK(tarn_checkpoint_destroy(checkpoint));
    OK(tarn_pool_release(pool));
    end(range);
}

/* A retired stream's pages are as idle as its work. */
static void a_stream_may_go(void)
{
    start();
    void *native = native_made(0);
    tarn_stream gone;
    tarn_range *range = range_of(NULL, 16 * PAGE);
    OK(tarn_stream_adopt(0, native, &gone));
    OK(tarn_range_commit(range, 0, 2 * PAGE, gone));
    work_on(gone, address_of(range, 0), PAGE, 2000000);
    OK(tarn_range_decommit(range, 0, PAGE, gone));
    OK(tarn_stream_retire(gone));
    GIVES(tarn_range_commit(range, 0, PAGE, gone), TARN_ERROR_INVALID_STREAM);
    OK(tarn_range_commit(range, 0, PAGE, stream));
    OK(tarn_range_decommit(range, 0, 2 * PAGE, stream));
    end(range);
}

/* Also with pages that are mapped a second time, and with committed ones. */
static void nothing_of_a_range_stays(void)
{
    start();
    uint64_t before = 0;
    for (int i = 0; i < 20; i++) {
        tarn_range *range = range_of(NULL, 1024 * PAGE);
        OK(tarn_range_commit(range, 1000 * PAGE, 4 * PAGE, stream));
        work_on(stream, address_of(range, 1000), PAGE, 1000000);
        OK(tarn_range_decommit(range, 1000 * PAGE, 2 * PAGE, stream));
        OK(tarn_range_commit(range, 0, 4 * PAGE, stream));
        OK(tarn_range_hold(range, 0, PAGE, NULL));
        OK(tarn_range_unhold(range, 0, PAGE));
        end(range);
        before = i == 2 ? metadata_bytes() : before;
    }
    CHECK(metadata_bytes() == before && ledger_of(0).reserved_addresses == 4 * MEMORY);
}

static tarn_range *forked;

static void in_the_child(void)
{
    tarn_range_info info = {.size = sizeof info};
    GIVES(tarn_range_commit(forked, 0, PAGE, stream), TARN_ERROR_FORKED);
    GIVES(tarn_range_decommit(forked, 0, PAGE, stream), TARN_ERROR_FORKED);
    GIVES(tarn_range_info_get(forked, &info), TARN_ERROR_FORKED);
    GIVES(tarn_range_hold(forked, 0, PAGE, NULL), TARN_ERROR_FORKED);
    GIVES(tarn_range_destroy(forked), TARN_ERROR_FORKED);
}

/* A page that a failed commit could not unmap was nobody's, so no work is waited for on its
 * behalf. The pages beside it are waited for, although their stream had that page before. */
static void the_end_waits_beside_a_page_that_is_stuck(void)
{
    start();
    tarn_range *range = range_of(NULL, 4 * PAGE);
    OK(tarn_range_commit(range, 0, PAGE, stream));
    OK(tarn_range_decommit(range, 0, PAGE, stream));
    OK(tarn_device_trim(0, 0));
    OK(tarn_range_commit(range, PAGE, PAGE, stream));
    /* Until the access fails, and the unmap after it */
    for (uint64_t n = 1; ledger_of(0).mapped == PAGE; n++) {
        OK(tarn_device_trim(0, 0)); /* so that each attempt makes all calls */
        failure_arm(&(struct failure){.kind = FAIL_driver, .nth = n, .forever = true});
        CHECK(tarn_range_commit(range, 0, PAGE, stream) != TARN_OK);
        failure_clear();
        CHECK(info_of(range).committed == PAGE);
    }
    work_on(stream, address_of(range, 1), PAGE, 5000000);
    CHECK(tarn_stream_query(stream) == TARN_ERROR_NOT_READY);
    OK(tarn_range_destroy(range));
    CHECK(tarn_stream_query(stream) == TARN_OK);
    nothing_is_left(0);
}

static void after_a_fork_and_a_shutdown_calls_are_refused(void)
{
    start();
    tarn_range *empty = range_of(NULL, 16 * PAGE);
    forked = range_of(NULL, 16 * PAGE);
    OK(tarn_range_commit(forked, 0, PAGE, stream));
    OK(tarn_range_commit(empty, 0, PAGE, stream));
    OK(tarn_range_decommit(empty, 0, PAGE, stream));
    in_child(in_the_child);
    fill(forked, 0, 1, 1);
    const char *page = address_of(forked, 0);
    OK(tarn_shutdown());
    CHECK(*page == 1); /* as live blocks, it stays */
    GIVES(tarn_range_commit(forked, PAGE, PAGE, stream), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_range_destroy(empty), TARN_ERROR_SHUTDOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_commit_gives_memory_and_a_decommit_keeps_it_mapped),
        CHILD_TEST(pages_are_whole_and_each_is_committed_once),
        CHILD_TEST(another_stream_comes_after_the_work),
        CHILD_TEST(a_commit_fails_where_host_memory_is_short_for_a_moment),
        CHILD_TEST(a_later_decommit_waits_for_later_work),
        CHILD_TEST(idle_pages_serve_other_addresses),
        CHILD_TEST(the_same_stream_maps_a_second_time),
        CHILD_TEST(a_second_mapping_needs_the_pool_and_the_stream),
        CHILD_TEST(the_pools_limit_holds),
        CHILD_TEST(decommitted_memory_makes_room),
        CHILD_TEST(a_trim_gives_decommitted_pages_back),
        CHILD_TEST(old_pages_leave_run_by_run),
        CHILD_TEST(a_run_has_no_borders),
        CHILD_TEST(a_range_may_be_larger_than_the_memory),
        CHILD_TEST(what_is_for_blocks_refuses_a_range),
        CHILD_TEST(a_pool_needs_virtual_segments_of_its_own),
        CHILD_TEST(a_suspend_takes_what_is_decommitted),
        CHILD_TEST(work_that_ends_during_a_pass_holds_nothing_back),
        CHILD_TEST(a_checkpoint_leaves_ranges_alone),
        CHILD_TEST(a_stream_may_go),
        CHILD_TEST(nothing_of_a_range_stays),
        CHILD_TEST(the_end_waits_beside_a_page_that_is_stuck),
        CHILD_TEST(after_a_fork_and_a_shutdown_calls_are_refused),
    };
    return cmocka_run_group_tests_name("range", tests, NULL, NULL);
}
