/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* If memory is short, the end of any work that holds back enough is waited for, and not of the work
 * that happens to come first (pytorch/pytorch#171771). */
#include "support/host.h"

#include "device/stream.h"
#include "driver/driver.h"
#include "memory/arena/arena.h"
#include "memory/arena/moves.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

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
            OK(tarn_record_stream(blocks[i], streams[i]));
        }
        for (int i = 0; i < 2; i++)
            OK(tarn_free(blocks[late_first ? !i : i]));
        OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 7 * MIB, &block));
        CHECK(time_now() - start >= SOON && time_now() - start < 2 * SOON);
        OK(tarn_free(block));
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

/* Bounds --------------------------------------------------------------------------------------- */

static tarn_status alloc_within(tarn_stream stream, uint64_t wait, size_t size, void **block)
{
    return tarn_alloc(
        &(tarn_alloc_options){
            .size = sizeof(tarn_alloc_options), .device = 0, .stream = stream, .wait = wait},
        size, block);
}

static uint64_t shortages;

static bool count_shortage(const tarn_shortage *shortage, void *user)
{
    (void)shortage;
    (void)user;
    shortages++;
    return false;
}

/* Memory that is not idle is not waited for; what is at hand, or can be mapped, is taken. A refusal
 * is no shortage. */
static void a_request_may_refuse_to_wait(void **state)
{
    (void)state;
    tarn_observer observer = 0;
    tarn_observer_options options = {
        .size = sizeof options, .device = 0, .out_of_memory = count_shortage};
    OK(tarn_observer_add(&options, &observer));
    for (int way = 0; way < WAYS; way++) {
        void *block = NULL, *small = NULL;
        uint64_t start = free_busy_blocks(way, false);
        tarn_stats before = stats_of(0);
        GIVES(alloc_within(own, TARN_NO_WAIT, 100 * MIB, &block), TARN_ERROR_NOT_READY);
        CHECK(!block && time_now() == start && strstr(tarn_last_error(), "would have to wait for"));
        OK(alloc_within(own, TARN_NO_WAIT, 5 * MIB, &small));
        OK(alloc_within(own, TARN_NO_WAIT, 600, &block));
        CHECK(time_now() == start && shortages == 0 && stats_of(0).num_ooms == before.num_ooms);
        CHECK(stats_of(0).num_sync_all_streams == before.num_sync_all_streams);
        OK(tarn_free(small));
        OK(tarn_free(block));
        verify(0);
        time_pass(SOON); /* and what has become idle meanwhile serves */
        OK(alloc_within(own, TARN_NO_WAIT, 100 * MIB, &block));
        OK(tarn_free(block));
        end();
    }
    void *all = alloc_on(own, 250 * MIB), *more = NULL;
    GIVES(alloc_within(own, TARN_NO_WAIT, 100 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(shortages == 1); /* no wait would have helped */
    OK(tarn_free(all));
    OK(tarn_observer_remove(observer));
    end();
}

/* Frees a block that work of another stream uses, after a while. */
static bool free_used(const tarn_shortage *shortage, void *user)
{
    void **block = user;
    (void)shortage;
    if (!*block)
        return false;
    time_pass(SOON);
    OK(tarn_free_on(*block, streams[0]));
    *block = NULL;
    return true;
}

/* They run, take their time, and what they free serves a later call. */
static void observers_are_asked_by_a_request_that_does_not_wait(void **state)
{
    (void)state;
    tarn_observer observer = 0;
    void *block = NULL, *all = alloc_on(own, 240 * MIB);
    tarn_observer_options options = {
        .size = sizeof options, .device = 0, .user = &all, .out_of_memory = free_used};
    OK(tarn_observer_add(&options, &observer));
    tarn_stats before = stats_of(0);
    uint64_t start = time_now();
    work_on(streams[0], all, 240 * MIB, LATE);
    GIVES(alloc_within(own, TARN_NO_WAIT, 100 * MIB, &block), TARN_ERROR_NOT_READY);
    CHECK(!all && time_now() - start == SOON && stats_of(0).num_ooms == before.num_ooms);
    time_pass(LATE);
    OK(alloc_within(own, TARN_NO_WAIT, 100 * MIB, &block));
    OK(tarn_free(block));
    OK(tarn_observer_remove(observer));
    end();
}

/* One bound for the whole request, however many waits it takes. */
static void a_request_waits_as_long_as_it_may(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        void *block = NULL;
        uint64_t start = free_busy_blocks(way, true);
        if (way == OF_A_FOUND_STREAM)
            GIVES(alloc_within(own, LATE / 1000, 200 * MIB, &block), TARN_ERROR_NOT_READY);
        GIVES(alloc_within(own, LATE / 1000, 200 * MIB, &block), TARN_ERROR_NOT_READY);
        CHECK(time_now() - start < LATE && strstr(tarn_last_error(), "would have to wait longer"));
        OK(alloc_within(own, UINT64_C(3600) * 1000 * MIB, 100 * MIB, &block));
        CHECK(time_now() - start < LATE);
        OK(tarn_free(block));
        verify(0);
        end();
    }
}

static atomic_int moving; /* 1: moves alone; 2: is to end */

static void *move_alone(void *arena)
{
    move_begin_alone(arena);
    atomic_store(&moving, 1);
    while (atomic_load(&moving) != 2)
        sched_yield();
    move_end(arena);
    return NULL;
}

/* A thread that moves memory alone is waited for as long as the request may. */
static void another_threads_moves_are_waited_for_as_long_as_allowed(void **state)
{
    (void)state;
    struct arena *arena = arena_if_used(0);
    void *block = NULL;
    tarn_stream fresh = lease(0);
    const uint64_t waits[] = {TARN_NO_WAIT, 2000000};
    pthread_t mover;
    CHECK(!pthread_create(&mover, NULL, move_alone, arena));
    while (!atomic_load(&moving))
        sched_yield();
    for (int i = 0; i < 2; i++) {
        GIVES(alloc_within(fresh, waits[i], 50 * MIB, &block), TARN_ERROR_NOT_READY);
        CHECK(!block && strstr(tarn_last_error(), "other threads, which move memory"));
    }
    atomic_store(&moving, 2);
    CHECK(!pthread_join(mover, NULL));
    OK(alloc_within(fresh, TARN_NO_WAIT, 50 * MIB, &block));
    OK(tarn_free(block));
    OK(tarn_stream_return(fresh));
    OK(tarn_device_trim(0, 0));
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

/* Its work counts as ended. It is the last test, as the device stays lost. */
static void another_device_that_is_lost_holds_nothing_back(void **state)
{
    (void)state;
    enum { REQUEST, TRIM, SUSPEND, SUSPEND_LIVE, CALLS };
    tarn_stream other = lease(1);
    for (int call = 0; call < CALLS; call++) {
        tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
        void *block = alloc_in(pool, own, 200 * MIB), *next = NULL;
        OK(tarn_record_stream(block, other));
        work_on(other, block, 200 * MIB, SOON);
        if (call != SUSPEND_LIVE) {
            OK(tarn_free(block));
            OK(tarn_host_fail_set(kind_of("event_synchronize"), 1, false, TARN_ERROR_DEVICE_LOST));
        } else { /* the first is of the pool's own stream */
            OK(tarn_host_fail_set(kind_of("event_record"), 2, true, TARN_ERROR_DEVICE_LOST));
        }
        if (call == REQUEST)
            OK(tarn_pool_alloc(pool, own, 200 * MIB, &next));
        else
            OK(call == TRIM ? tarn_pool_trim(pool, 0) : tarn_pool_suspend(pool, false));
        CHECK(ledger_of(0).failed == 1 && (next || ledger_of(0).created == 0));
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        OK(tarn_free(call == SUSPEND_LIVE ? block : next));
        OK(tarn_pool_release(pool));
        time_pass(SOON);
    }
    GIVES(tarn_device_synchronize(1), TARN_ERROR_DEVICE_LOST);
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_waits_for_the_first_that_ends),
        cmocka_unit_test(a_trim_waits_for_no_more_than_it_must),
        cmocka_unit_test(pinned_memory_waits_for_the_first_that_ends),
        cmocka_unit_test(a_driver_is_asked_with_growing_pauses),
        cmocka_unit_test(a_request_may_refuse_to_wait),
        cmocka_unit_test(observers_are_asked_by_a_request_that_does_not_wait),
        cmocka_unit_test(a_request_waits_as_long_as_it_may),
        cmocka_unit_test(another_threads_moves_are_waited_for_as_long_as_allowed),
        cmocka_unit_test(another_device_that_is_lost_holds_nothing_back),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
