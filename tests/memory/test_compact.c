/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compaction: live blocks keep addresses and contents, what is free between them goes back to the
 * driver, and what must stay stays. What others see of it is in test_compact_observers.c. */
#include "base/pages.h"
#include "driver/driver.h"
#include "driver/host/host.h"
#include "memory/growth/ghost.h"
#include "memory/heap/heap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "compact_test.h" /* last: its names are global here */

/* What one thread does takes ten times as long under the thread sanitizer, and shows it little:
 * there one in so many. */
#ifdef __SANITIZE_THREAD__
#define ONE_IN 9
#else
#define ONE_IN 1
#endif

static uint64_t piece_at(const void *address)
{
    tarn_host_extent extent;
    OK(tarn_host_extent_get(0, address, 1, &extent));
    CHECK(extent.accessible);
    return extent.piece;
}

static void blocks_stay_and_free_memory_between_them_goes_back(void **state)
{
    (void)state;
    fragment(NULL, stream, 6);
    fragment(NULL, other, 4);
    OK(tarn_device_trim(0, 0));
    uint64_t before = ledger_of(0).created;
    size_t gained = compact_by(SIZE_MAX);
    CHECK(gained >= before * 6 / 10);
    CHECK(ledger_of(0).created <= 10 * 4 * MIB + 2 * 2 * MIB);
    check();
    CHECK(compact_by(SIZE_MAX) == 0); /* there is nothing more */
    int more = add(NULL, stream, 30 * MIB);
    check();
    drop(more);
    end();
}

static void no_more_is_moved_than_was_wanted(void **state)
{
    (void)state;
    fragment(NULL, stream, 8);
    OK(tarn_device_trim(0, 0));
    uint64_t copies = calls_of(0, "copy");
    size_t gained = compact_by(10 * MIB);
    CHECK(gained >= 10 * MIB && gained <= 20 * MIB);
    CHECK(calls_of(0, "copy") - copies <= 2);
    CHECK(compact_by(0) == 0 && calls_of(0, "copy") - copies <= 2);
    end();
}

/* The device has no granule free: the first piece goes by way of the host's memory. */
static void it_works_on_a_full_device(void **state)
{
    (void)state;
    fragment(NULL, stream, 5);
    OK(tarn_device_trim(0, 0));
    uint64_t created = ledger_of(0).created, size = MEMORY - created;
    uintptr_t filler = 0;
    OK(driver->alloc(0, size, &filler));
    CHECK(ledger_of(0).created == MEMORY);
    void *none = NULL;
    GIVES(tarn_alloc_on(stream, 30 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    uint64_t before = ledger_of(0).created;
    size_t gained = 0;
    OK(tarn_compact(0, 40 * MIB, &gained));
    CHECK(gained >= 40 * MIB && ledger_of(0).created == before - gained);
    check();
    void *large = alloc_on(stream, 30 * MIB);
    OK(tarn_free(large));
    OK(driver->free(0, filler));
    verify(0);
    end();
}

/* The same where tarn's own limit is what is full. */
static void it_works_at_a_limit(void **state)
{
    (void)state;
    fragment(NULL, stream, 5);
    OK(tarn_device_trim(0, 0));
    uint64_t created = ledger_of(0).created;
    OK(tarn_device_limit_set(0, created));
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    size_t gained = compact_by(SIZE_MAX);
    CHECK(gained > 0);
    CHECK((uint64_t)stats_of(0).reserved_bytes[0].peak <= created);
    check();
    OK(tarn_device_limit_set(0, SIZE_MAX));
    end();
}

/* A limit below what is reserved only stops growth: what is copied through host memory comes back
 * all the same. */
static void it_works_below_a_limit(void **state)
{
    tarn_pool *pool = pool_with((tarn_pool_options){0}), *own = NULL;
    (void)state;
    OK(tarn_pool_default(0, &own));
    for (int of_pool = 0; of_pool < 3; of_pool++) {
        fragment(of_pool == 2 ? pool : NULL, stream, 5);
        size_t before = ledger_of(0).created;
        if (of_pool)
            OK(tarn_pool_limit_set(of_pool == 2 ? pool : own, MIB));
        else
            OK(tarn_device_limit_set(0, MIB));
        OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
        CHECK(compact_by(SIZE_MAX) >= before * 6 / 10); /* checks that nothing is in host memory */
        CHECK((uint64_t)stats_of(0).reserved_bytes[0].peak <= before);
        void *none = NULL;
        GIVES(of_pool == 2 ? tarn_pool_alloc(pool, stream, 30 * MIB, &none)
                           : tarn_alloc_on(stream, 30 * MIB, &none),
              TARN_ERROR_OUT_OF_MEMORY);
        OK(tarn_pool_limit_set(of_pool == 2 ? pool : own, TARN_NO_LIMIT));
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        check();
        for (int i = 0; i < count; i++)
            drop(i);
        count = 0;
        OK(tarn_pool_trim(pool, 0));
    }
    OK(tarn_pool_release(pool));
    end();
}

static void configure(const char *text)
{
    OK(tarn_configuration_set(text));
}

static void the_setting_lets_a_request_have_it(void **state)
{
    (void)state;
    void *block = NULL;
    fragment(NULL, stream, 5);
    OK(tarn_device_trim(0, 0));
    OK(tarn_device_limit_set(0, ledger_of(0).created));
    GIVES(tarn_alloc_on(stream, 25 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_alloc_on(other, 25 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    configure("compaction:on_oom");
    uint64_t copies = calls_of(0, "copy");
    GIVES(tarn_alloc_on(stream, 99 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_capture_begin(other, TARN_CAPTURE_GLOBAL)); /* not during a capture */
    GIVES(tarn_alloc_on(stream, 25 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_capture_abort(other));
    tarn_alloc_options bounded = {
        .size = sizeof bounded, .device = 0, .stream = stream, .wait = TARN_NO_WAIT};
    GIVES(tarn_alloc(&bounded, 25 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY); /* it would wait */
    CHECK(calls_of(0, "copy") == copies); /* nothing is moved where that does not suffice */
    (void)add(NULL, other, 25 * MIB);
    (void)add(NULL, stream, 17 * MIB);
    CHECK(calls_of(0, "copy") > copies);
    check();
    verify(0);
    configure("compaction:off");
    OK(tarn_device_limit_set(0, SIZE_MAX));
    end();
}

/* A graph that was captured before reads and writes ordinary blocks; memory of the pool that it
 * holds stays where it is. */
static void a_graph_goes_on_to_find_its_blocks(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    fragment(NULL, stream, 3);
    int from = add(NULL, stream, 2 * MIB), to = add(NULL, stream, 2 * MIB);
    void *inside[3], *graph = NULL;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
    for (int i = 0; i < 3; i++)
        inside[i] = alloc_on(stream, 6 * MIB);
    OK(driver->copy(0, (uintptr_t)inside[1], (uintptr_t)blocks[from].start, 2 * MIB,
                    native_of(stream)));
    OK(driver->copy(0, (uintptr_t)blocks[to].start, (uintptr_t)inside[1], 2 * MIB,
                    native_of(stream)));
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_free(inside[0]));
    OK(tarn_free(inside[2]));
    uint64_t held = piece_at(inside[1]), ordinary = piece_at(blocks[from].start);
    CHECK(compact_by(SIZE_MAX) > 0);
    CHECK(piece_at(inside[1]) == held && piece_at(inside[0]));
    CHECK(piece_at(blocks[from].start) != ordinary);
    memset(blocks[from].start, 0x99, 2 * MIB);
    for (int i = 0; i < 2; i++)
        OK(tarn_host_graph_launch(0, graph, native_of(i ? other : stream)));
    OK(tarn_device_synchronize(0));
    for (size_t k = 0; k < 2 * MIB; k += 1021)
        CHECK(blocks[to].start[k] == 0x99);
    memset(blocks[from].start, 0x40 + from, 2 * MIB);
    memset(blocks[to].start, 0x40 + to, 2 * MIB);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_free(inside[1]));
    OK(tarn_pool_release(pool));
    end();
}

static void what_is_anchored_or_of_a_graph_stays(void **state)
{
    (void)state;
    fragment(NULL, stream, 3);
    int middle = 1; /* the live block of the second piece */
    OK(tarn_anchor(blocks[middle].start, 100));
    uint64_t piece = piece_at(blocks[middle].start), first = piece_at(blocks[0].start);
    CHECK(compact_by(SIZE_MAX) > 0);
    CHECK(piece_at(blocks[middle].start) == piece && piece_at(blocks[0].start) != first);
    check();
    OK(tarn_unanchor(blocks[middle].start, 100));
    CHECK(compact_by(SIZE_MAX) > 0);
    CHECK(piece_at(blocks[middle].start) != piece);
    end();
}

/* A segment of a registrable pool is one piece, anchored or not: whoever has registered it knows it
 * by that. */
static void segments_of_registrable_pools_stay_whole(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){.registrable = true});
    tarn_mapping before[8], after[8];
    size_t known = 0, left = 0;
    int first = count;
    fragment(pool, stream, 2);
    fragment(NULL, stream, 2);
    OK(tarn_pool_segments_get(pool, before, 8, &known));
    CHECK(known > 0 && known <= 8);
    uint64_t piece = piece_at(blocks[first].start);
    for (int round = 0; round < 2; round++) {
        CHECK((compact_by(SIZE_MAX) > 0) == (round == 0));
        OK(tarn_pool_segments_get(pool, after, 8, &left));
        CHECK(left == known);
        for (size_t i = 0; i < known; i++)
            CHECK(after[i].address == before[i].address && after[i].bytes == before[i].bytes &&
                  after[i].generation == before[i].generation);
        for (size_t i = 0; i < known; i++)
            for (size_t at = 0; at < before[i].bytes; at += 2 * MIB)
                CHECK(piece_at((char *)before[i].address + at) == piece_at(before[i].address));
        CHECK(piece_at(blocks[first].start) == piece);
        if (round == 0)
            OK(tarn_anchor(blocks[first].start, 1));
    }
    OK(tarn_unanchor(blocks[first].start, 1));
    check();
    for (int i = 0; i < count; i++)
        drop(i);
    count = 0;
    OK(tarn_pool_release(pool));
    end();
}

/* What is exported stays, and what comes in the place of the rest can be exported too. */
static void what_can_be_exported_still_can(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){.exportable = true});
    tarn_share *share = NULL;
    fragment(pool, stream, 3);
    uint64_t first = piece_at(blocks[0].start), second = piece_at(blocks[1].start);
    OK(tarn_export(blocks[0].start, &share));
    CHECK(compact_by(SIZE_MAX) > 0);
    CHECK(piece_at(blocks[0].start) == first && piece_at(blocks[1].start) != second);
    OK(tarn_share_close(share));
    OK(tarn_export(blocks[1].start, &share));
    OK(tarn_share_close(share));
    check();
    for (int i = 0; i < count; i++)
        drop(i);
    count = 0;
    OK(tarn_pool_release(pool));
    end();
}

static void a_capture_bars_it(void **state)
{
    (void)state;
    size_t gained = 77;
    fragment(NULL, stream, 2);
    (void)add(NULL, other, 3 * MIB);
    uint64_t piece = piece_at(blocks[0].start);
    OK(tarn_capture_begin(other, TARN_CAPTURE_RELAXED));
    GIVES(tarn_compact(0, SIZE_MAX, &gained), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(other));
    void *graph = NULL;
    tarn_stream empty = lease(0); /* nothing was ever allocated for it */
    OK(tarn_capture_begin(empty, TARN_CAPTURE_RELAXED));
    GIVES(tarn_compact(0, SIZE_MAX, &gained), TARN_ERROR_CAPTURE);
    OK(tarn_capture_end(empty, &graph)); /* it has survived */
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_stream_return(empty));
    /* One that tarn does not know */
    OK(driver->capture_begin(0, native_of(other), DRIVER_CAPTURE_RELAXED));
    GIVES(tarn_compact(0, SIZE_MAX, &gained), TARN_ERROR_CAPTURE);
    OK(driver->capture_end(0, native_of(other), &graph)); /* and so has it */
    OK(tarn_host_graph_destroy(graph));
    CHECK(gained == 77 && piece_at(blocks[0].start) == piece);
    CHECK(compact_by(SIZE_MAX) > 0);
    end();
}

static struct {
    tarn_stream stream;
    int tries, refused;
} beginner;

static void begin_a_capture(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    tarn_status status = tarn_capture_begin(beginner.stream, TARN_CAPTURE_RELAXED);
    beginner.tries++;
    beginner.refused += status == TARN_ERROR_BUSY;
    if (!status)
        OK(tarn_capture_abort(beginner.stream));
}

/* A capture that began now might record work on memory that is being moved. */
static void no_capture_begins_meanwhile(void **state)
{
    (void)state;
    tarn_observer observer = 0;
    tarn_observer_options options = {
        .size = sizeof options, .device = 0, .unmapping = begin_a_capture};
    beginner.stream = lease(0);
    fragment(NULL, stream, 2);
    OK(tarn_observer_add(&options, &observer));
    CHECK(compact_by(SIZE_MAX) > 0);
    OK(tarn_observer_remove(observer));
    CHECK(beginner.tries > 0 && beginner.refused == beginner.tries);
    OK(tarn_capture_begin(beginner.stream, TARN_CAPTURE_RELAXED));
    OK(tarn_capture_abort(beginner.stream));
    OK(tarn_stream_return(beginner.stream));
    check();
    end();
}

static void slow(void *argument)
{
    (void)usleep(30000);
    memset(argument, 0x40, blocks[0].size);
}

/* Work that is queued before is waited for, on every stream: also one that tarn has not heard
 * of. */
static void queued_work_is_waited_for(void **state)
{
    (void)state;
    void *unknown = native_made(0);
    for (int round = 0; round < 3; round++) {
        fragment(NULL, stream, 3);
        memset(blocks[0].start, 0, blocks[0].size);
        void *native = round == 2 ? unknown : native_of(round ? other : stream);
        OK(tarn_host_call(0, native, slow, blocks[0].start));
        CHECK(compact_by(SIZE_MAX) > 0);
        end();
    }
    fragment(NULL, stream, 3);
    work_on(stream, blocks[0].start, 100, 1000000);
    work_on(other, blocks[1].start, 100, 2000000);
    CHECK(compact_by(SIZE_MAX) > 0);
    OK(tarn_device_synchronize(0));
    end();
}

static void pools_are_compacted_each_for_itself(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){0}), *idle = pool_with((tarn_pool_options){0});
    fragment(pool, stream, 3);
    fragment(idle, other, 3);
    OK(tarn_pool_suspend(idle, true));
    uint64_t before = (uint64_t)pool_stats_of(pool).reserved_bytes[0].current;
    CHECK(compact_by(SIZE_MAX) > 0);
    CHECK((uint64_t)pool_stats_of(pool).reserved_bytes[0].current < before);
    OK(tarn_pool_resume(idle));
    check();
    CHECK(compact_by(SIZE_MAX) == 0); /* what was free between the blocks has not come back */
    check();
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    check();
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(idle));
    end();
}

/* Memory that is mapped a second time is not moved before the old addresses have gone. */
static void ghosts_end_before(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        (void)add(NULL, stream, 20 * MIB);
    for (int i = 0; i < 4; i += 2) {
        work_on(stream, blocks[i].start, 20 * MIB, 1000);
        drop(i);
    }
    (void)add(NULL, stream, 40 * MIB); /* at both addresses */
    struct stream *found = NULL;
    struct heap *heap = NULL;
    OK(stream_find(stream, 0, &found));
    OK(default_heap(found, &heap));
    CHECK(heap->ghosts);
    drop(1);
    (void)add(NULL, stream, 2 * MIB);
    CHECK(compact_by(SIZE_MAX) > 0);
    CHECK(!heap->ghosts);
    check();
    end();
}

static void bad_calls_are_refused(void **state)
{
    (void)state;
    size_t gained = 77;
    GIVES(tarn_compact(0, 1, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_compact(7, 1, &gained), TARN_ERROR_INVALID_DEVICE);
    CHECK(gained == 77);
    OK(tarn_compact(0, 0, &gained));
    CHECK(gained == 0);
}

/* Each driver call, and each host allocation, fails once: contents, addresses and invariants stand,
 * and the next call works. */
static void a_failure_loses_nothing(void **state)
{
    (void)state;
    int injected = 0;
    for (int way = 0; way < 4; way++) {
        bool full = way & 1, of_host = way & 2;
        for (uint64_t n = 1;; n += ONE_IN) {
            size_t gained = 0;
            fragment(NULL, stream, 2);
            OK(tarn_device_trim(0, 0));
            OK(tarn_device_limit_set(0, full ? ledger_of(0).created : SIZE_MAX));
            if (of_host)
                pages_fail(n, false);
            else
                OK(tarn_host_fail_set(-1, n, false, TARN_ERROR_DRIVER));
            size_t before = (size_t)stats_of(0).reserved_bytes[0].current;
            tarn_status status = tarn_compact(0, SIZE_MAX, &gained);
            uint64_t hits = of_host ? pages_fail_hits() : host_fail_hits();
            size_t after = (size_t)stats_of(0).reserved_bytes[0].current;
            CHECK(gained == (before > after ? before - after : 0));
            pages_fail(0, false);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            CHECK(status == TARN_OK || hits);
            check();
            verify(0);
            OK(tarn_compact(0, SIZE_MAX, &gained));
            check();
            verify(0);
            CHECK(ledger_of(0).created <= 2 * 4 * MIB + 2 * 2 * MIB);
            OK(tarn_device_limit_set(0, SIZE_MAX));
            end();
            if (!hits)
                break;
            injected++;
        }
    }
    CHECK(injected > 40 / ONE_IN);
}

/* All calls fail from one on, in a process of its own each: what is not lost has its contents; what
 * is says so. */
static uint64_t forever_from;

static void fail_forever(void)
{
    size_t gained = 0;
    fragment(NULL, stream, 2);
    OK(tarn_device_trim(0, 0));
    OK(tarn_host_fail_set(-1, forever_from, true, TARN_ERROR_DRIVER));
    tarn_status status = tarn_compact(0, SIZE_MAX, &gained);
    uint64_t hits = host_fail_hits();
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK(status == TARN_OK || hits);
    if (status != TARN_ERROR_DEVICE_LOST) {
        check();
        verify(0);
        OK(tarn_compact(0, SIZE_MAX, &gained));
        end();
        return;
    }
    void *block = NULL;
    GIVES(tarn_alloc_on(stream, MIB, &block), TARN_ERROR_DEVICE_LOST);
    for (int i = 0; i < count; i++)
        OK(tarn_free(blocks[i].start)); /* keeps the books */
}

static void begin_and_fail_forever(void)
{
    host_start_with(1, MEMORY);
    stream = lease(0);
    fail_forever();
}

/* In debug mode every block has contents that are looked at when it is freed. */
static void work_in_debug_mode(void)
{
    CHECK(setenv("TARN_DEBUG", "all", 1) == 0);
    host_start_with(1, MEMORY);
    stream = lease(0);
    other = lease(0);
    for (int round = 0; round < 3; round++) {
        size_t gained = 0;
        fragment(NULL, stream, 3);
        OK(tarn_device_synchronize(0)); /* the blocks' first contents are debug mode's, written in
                                           the background */
        for (int i = 0; i < count; i++)
            if (blocks[i].start)
                memset(blocks[i].start, 0x40 + i, blocks[i].size);
        OK(tarn_compact(0, SIZE_MAX, &gained));
        CHECK(round || gained > 0);
        check();
        verify(0);
        for (int i = 0; i < count; i++)
            if (blocks[i].start)
                drop(i);
        count = 0;
        OK(tarn_compact(0, SIZE_MAX, &gained));
        verify(0);
    }
    CHECK(ledger_of(0).reports == 0);
    nothing_is_left(0);
}

static void before_this_process_uses_it(void)
{
    for (forever_from = 1; forever_from < 60; forever_from += ONE_IN)
        in_child(begin_and_fail_forever);
    in_child(work_in_debug_mode);
}

/* Threads -------------------------------------------------------------------------------------- */

static atomic_bool over;

/* While a block is anchored it has the piece that it had. */
static void hold_in_place(void *block)
{
    tarn_mapping before, after;
    OK(tarn_anchor(block, 1));
    OK(tarn_mapping_get(block, &before));
    (void)usleep(20);
    OK(tarn_mapping_get(block, &after));
    CHECK(before.address == after.address && before.bytes == after.bytes);
    OK(tarn_unanchor(block, 1));
}

static void *churn(void *argument)
{
    tarn_stream own = *(tarn_stream *)argument;
    uint64_t random = own * 77 + 5;
    void *live[16] = {0};
    OK(tarn_stream_set(own));
    while (!atomic_load(&over)) {
        uint64_t number = random_next(&random);
        int i = (int)(number >> 8 & 15);
        OK(tarn_free(live[i]));
        live[i] = NULL;
        (void)tarn_alloc_on(
            own, number >> 20 & 1 ? (number >> 24) % 60000 + 1 : (number >> 24) % (9 * MIB) + 1,
            &live[i]);
        if (live[i] && number >> 21 & 1)
            hold_in_place(live[i]);
    }
    for (int i = 0; i < 16; i++)
        OK(tarn_free(live[i]));
    return NULL;
}

/* What the environment says, and no more than what is usual. */
static int steps_of(const char *variable, int usual)
{
    const char *text = getenv(variable);
    int number = text ? atoi(text) : usual;
    return number < usual ? number : usual;
}

static void others_allocate_and_free_meanwhile(void **state)
{
    (void)state;
    pthread_t threads[3];
    tarn_stream streams[3] = {stream, other, lease(0)};
    for (int round = 0, rounds = steps_of("TARN_STORM_STEPS", 6000) / 500; round < rounds;
         round++) {
        fragment(NULL, stream, 3);
        atomic_store(&over, false);
        for (int i = 0; i < 3; i++)
            CHECK(pthread_create(&threads[i], NULL, churn, &streams[i]) == 0);
        for (int i = 0; i < 6; i++) {
            size_t gained = 0;
            tarn_status status = tarn_compact(0, i % 2 ? SIZE_MAX : 8 * MIB, &gained);
            /* What it was about to move was anchored */
            CHECK(status == TARN_OK || status == TARN_ERROR_BUSY);
            check();
            if (i == 3)
                OK(tarn_device_trim(0, 0));
        }
        atomic_store(&over, true);
        for (int i = 0; i < 3; i++)
            CHECK(pthread_join(threads[i], NULL) == 0);
        verify(0);
        end();
    }
    OK(tarn_stream_return(streams[2]));
}

/* Everything at random ------------------------------------------------------------------------- */

static void anything_in_any_order(void **state)
{
    (void)state;
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    uint64_t random = 20261122;
    bool suspended = false, capturing = false, full = false, is_pools[BLOCKS] = {false};
    int moved = 0;
    count = BLOCKS;
    for (int step = 0, steps = steps_of("TARN_MODEL_STEPS", 4000 / ONE_IN); step < steps; step++) {
        uint64_t number = random_next(&random);
        int i = (int)(number >> 40) % BLOCKS, what = (int)(number >> 20) % 64;
        if (what < 44) {
            if (blocks[i].start) {
                if (number & 1)
                    OK(tarn_record_stream(blocks[i].start, other));
                if (!(suspended && is_pools[i]))
                    drop(i);
                continue;
            }
            void *block = NULL;
            size_t size = number & 2 ? (number >> 50) + 1 : (number >> 46) * 40 + 1;
            bool of_pool = what < 10 && !suspended;
            tarn_stream on = number & 4 ? stream : other;
            tarn_status status =
                of_pool ? tarn_pool_alloc(pool, on, size, &block) : tarn_alloc_on(on, size, &block);
            CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
            blocks[i].start = block;
            blocks[i].size = size;
            is_pools[i] = of_pool;
            if (block)
                memset(block, 0x40 + i, size);
        } else if (what < 52) {
            size_t gained = 0;
            tarn_status status =
                tarn_compact(0, number & 8 ? SIZE_MAX : (number >> 44) * 16, &gained);
            CHECK(capturing ? status == TARN_ERROR_CAPTURE : status == TARN_OK);
            /* None is of the host's */
            CHECK(ledger_of(0).created == (uint64_t)stats_of(0).reserved_bytes[0].current);
            moved += gained > 0;
            if (!suspended)
                check();
            verify(0);
        } else if (what < 54 && !capturing) {
            OK(tarn_device_trim(0, number >> 34));
        } else if (what < 56 && !capturing) {
            tarn_status status = suspended ? tarn_pool_resume(pool) : tarn_pool_suspend(pool, true);
            CHECK(status == TARN_OK || (full && suspended && status == TARN_ERROR_OUT_OF_MEMORY));
            suspended = suspended == (status != TARN_OK);
        } else if (what < 58) {
            if (capturing)
                OK(tarn_capture_abort(stream));
            else
                OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
            capturing = !capturing;
        } else if (what < 60) {
            full = !full;
            OK(tarn_device_limit_set(0,
                                     full ? ledger_of(0).created >> (number >> 17 & 3) : SIZE_MAX));
            OK(tarn_pool_limit_set(pool, number & 32 ? number >> 42 : TARN_NO_LIMIT));
        } else if (what < 62) {
            configure(number & 16 ? "compaction:on_oom" : "compaction:off");
        } else if (blocks[i].start && !(suspended && is_pools[i]) && !capturing) {
            work_on(number & 4 ? stream : other, blocks[i].start, 1, number >> 44);
        }
    }
    if (capturing)
        OK(tarn_capture_abort(stream));
    OK(tarn_device_limit_set(0, SIZE_MAX));
    if (suspended)
        OK(tarn_pool_resume(pool));
    CHECK(moved > 0);
    configure("compaction:off");
    OK(tarn_device_synchronize(0));
    check();
    for (int i = 0; i < BLOCKS; i++)
        drop(i);
    count = 0;
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

int main(void)
{
    before_this_process_uses_it();
    host_start_with(1, MEMORY);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_stay_and_free_memory_between_them_goes_back),
        cmocka_unit_test(no_more_is_moved_than_was_wanted),
        cmocka_unit_test(it_works_on_a_full_device),
        cmocka_unit_test(it_works_at_a_limit),
        cmocka_unit_test(it_works_below_a_limit),
        cmocka_unit_test(the_setting_lets_a_request_have_it),
        cmocka_unit_test(a_graph_goes_on_to_find_its_blocks),
        cmocka_unit_test(what_is_anchored_or_of_a_graph_stays),
        cmocka_unit_test(segments_of_registrable_pools_stay_whole),
        cmocka_unit_test(what_can_be_exported_still_can),
        cmocka_unit_test(a_capture_bars_it),
        cmocka_unit_test(no_capture_begins_meanwhile),
        cmocka_unit_test(queued_work_is_waited_for),
        cmocka_unit_test(pools_are_compacted_each_for_itself),
        cmocka_unit_test(ghosts_end_before),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(a_failure_loses_nothing),
        cmocka_unit_test(others_allocate_and_free_meanwhile),
        cmocka_unit_test(anything_in_any_order),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
