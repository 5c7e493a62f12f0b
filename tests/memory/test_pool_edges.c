/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Where the rules of private pools meet those of streams, captures, suspension and shutdown. Each
 * case runs in a process of its own. */
#include "base/thread/clock.h"
#include "driver/driver.h"
#include "memory/growth/growth.h"
#include "memory/pool/pool.h"
#include "memory/pressure/ladder.h"
#include "memory/watch/verify.h"
#include "support/host.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)

static tarn_pool *pool_new(bool use_on_oom)
{
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .device = 0, .use_on_oom = use_on_oom};
    OK(tarn_pool_create(&options, &pool));
    return pool;
}

static void *pool_alloc(tarn_pool *pool, tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    OK(tarn_pool_alloc(pool, stream, size, &pointer));
    return pointer;
}

static tarn_stream adopt(void **native)
{
    tarn_stream stream = 0;
    OK(driver->stream_create(0, 0, false, native));
    OK(tarn_stream_adopt(0, *native, &stream));
    return stream;
}

static struct stream *stream_of(tarn_stream value)
{
    struct stream *stream = NULL;
    OK(stream_find(value, 0, &stream));
    return stream;
}

static struct store *store_of(tarn_pool *pool)
{
    return &pool_of_public(pool)->store;
}

/* Streams -------------------------------------------------------------------------------------- */

/* A stream whose retirement fails goes on, and with it the order of its memory, in every pool: in
 * the end nothing is handed out on which its later work is unfinished. */
static void a_failed_retirement_leaves_every_heap_of_the_stream(void)
{
    tarn_pool *pool = pool_new(false);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        void *native = NULL, *taken = NULL, *held[2];
        tarn_stream stream = adopt(&native), other = lease(0);
        void *blocks[2] = {alloc_on(stream, 60 * MIB), pool_alloc(pool, stream, 60 * MIB)};
        OK(tarn_host_fail_set(kind_of("event_record"), nth, false, TARN_ERROR_DRIVER));
        GIVES(tarn_stream_retire(stream), TARN_ERROR_DRIVER);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        for (int i = 0; i < 2; i++) {
            uint64_t end = time_now() + 1000000;
            work_on(stream, blocks[i], 60 * MIB, 1000000);
            OK(tarn_free(blocks[i]));
            if (i == 0)
                OK(tarn_alloc_on(other, 60 * MIB, &taken));
            else
                taken = pool_alloc(pool, other, 60 * MIB);
            CHECK(time_now() >= end);
            held[i] = taken;
        }
        OK(tarn_free(held[0]));
        OK(tarn_free(held[1]));
        OK(tarn_stream_retire(stream));
        OK(tarn_device_trim(0, 0));
        OK(tarn_pool_trim(pool, 0));
        verify(0);
        OK(driver->stream_destroy(0, native));
        OK(tarn_stream_return(other));
    }
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* A scope of a stream that was retired says nothing of the one that has its slot now. */
static void a_scope_of_a_retired_stream_is_not_that_of_the_next(void)
{
    tarn_pool *pool = pool_new(false);
    tarn_scope before = 0, after = 0;
    void *natives[2];
    tarn_stream stream = adopt(&natives[0]);
    OK(tarn_scope_begin(pool, TARN_SCOPE_STREAM, stream, &before));
    const struct stream *slot = stream_of(stream);
    OK(tarn_stream_retire(stream));
    stream = adopt(&natives[1]);
    CHECK(stream_of(stream) == slot);
    OK(tarn_scope_begin(pool, TARN_SCOPE_STREAM, stream, &after));
    OK(tarn_scope_end(after));
    OK(tarn_scope_end(before));
    OK(tarn_stream_retire(stream));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    for (int i = 0; i < 2; i++)
        OK(driver->stream_destroy(0, natives[i]));
}

/* The statistics of a heap's former life stay counted. */
static void a_heap_that_is_used_again_has_counted_before(void)
{
    tarn_stream stream = lease(0);
    int64_t allocated = 0;
    for (int i = 0; i < 3; i++) {
        tarn_pool *pool = pool_new(false);
        void *blocks[3];
        for (int k = 0; k < 3; k++)
            blocks[k] = pool_alloc(pool, stream, 3 * MIB);
        for (int k = 0; k < 3; k++)
            OK(tarn_free(blocks[k]));
        CHECK(stats_of(0).inactive_split[0].allocated > allocated);
        allocated = stats_of(0).inactive_split[0].allocated;
        OK(tarn_pool_release(pool));
        CHECK(stats_of(0).inactive_split[0].allocated >= allocated);
    }
    nothing_is_left(0);
}

/* Graphs --------------------------------------------------------------------------------------- */

/* A graph writes to what its capture has freed, at every launch: that is not free for others. */
static void a_pool_that_a_graph_holds_is_nobodys_spare(void)
{
    tarn_pool *pool = pool_new(true);
    tarn_stream stream = lease(0);
    void *graph = NULL, *inside = NULL, *block = NULL;
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(stream, 60 * MIB, &inside));
    work_on(stream, inside, 60 * MIB, 100);
    OK(tarn_free(inside));
    OK(tarn_capture_end(stream, &graph));
    GIVES(tarn_alloc_on(stream, 100 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    void *most = alloc_on(stream, 60 * MIB);
    GIVES(tarn_alloc_on(stream, 50 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_alloc_on(stream, 50 * MIB, &block));
    CHECK(block == inside);
    OK(tarn_free(block));
    OK(tarn_free(most));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The driver says in a thread of its own that a graph has ended; the next trim knows. */
static void what_a_graph_has_held_is_there_for_a_trim(void)
{
    tarn_stream stream = lease(0);
    void *graph = NULL, *inside = NULL;
    OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(stream, 30 * MIB, &inside));
    OK(tarn_free(inside));
    OK(tarn_capture_end(stream, &graph));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 30 * MIB);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 0);
    nothing_is_left(0);
}

static void a_graph_may_outlive_tarn(void)
{
    for (int i = 0; i < 3; i++) {
        tarn_stream stream = lease(0);
        void *graph = NULL, *inside = NULL;
        OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED));
        OK(tarn_alloc_on(stream, 3 * MIB, &inside));
        OK(tarn_free(inside));
        OK(tarn_capture_end(stream, &graph));
    }
    OK(tarn_shutdown());
}

/* Suspension ----------------------------------------------------------------------------------- */

/* The copy, and the unmapping, come behind the work of streams that were recorded for live
 * blocks. */
static void a_suspend_waits_for_streams_that_use_live_blocks(void)
{
    tarn_pool *pool = pool_new(false);
    tarn_stream stream = lease(0), second = lease(0), third = lease(0);
    unsigned char *blocks[2] = {pool_alloc(pool, stream, 3 * MIB), pool_alloc(pool, stream, 3000)};
    tarn_stream users[2] = {second, third};
    for (int i = 0; i < 2; i++) {
        OK(tarn_record_stream(blocks[i], users[i]));
        work_on(users[i], NULL, 0, 5000 + 1000 * (unsigned)i);
        OK(tarn_host_fill(0, native_of(users[i]), blocks[i], 7 + i, 3000));
    }
    OK(tarn_pool_suspend(pool, true));
    CHECK(time_now() >= 6000 && ledger_of(0).mapped == 0);
    OK(tarn_pool_resume(pool));
    CHECK(blocks[0][2999] == 7 && blocks[1][2999] == 8);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static sem_t gate;
static tarn_pool *slow;

static void wait_at_gate(void *argument)
{
    (void)argument;
    sem_wait(&gate);
}

static void *suspend_slow(void *argument)
{
    (void)argument;
    OK(tarn_pool_suspend(slow, true));
    return NULL;
}

/* It waits for streams, and where a graph counts the pool for the device, which would end a capture
 * that begins meanwhile. */
static void no_capture_begins_during_a_suspend(void)
{
    tarn_stream stream = lease(0), other = lease(0);
    tarn_pool_state state = TARN_POOL_RUNS;
    pthread_t thread;
    void *graph = NULL;
    sem_init(&gate, 0, 0);
    slow = pool_new(false);
    void *block = pool_alloc(slow, stream, 3 * MIB);
    OK(tarn_host_call(0, native_of(stream), wait_at_gate, NULL));
    CHECK(!pthread_create(&thread, NULL, suspend_slow, NULL));
    while (state != TARN_POOL_CHANGES)
        state = pool_info_of(slow).state;
    GIVES(tarn_capture_begin(other, TARN_CAPTURE_RELAXED), TARN_ERROR_BUSY);
    GIVES(tarn_capture_announce(other), TARN_ERROR_BUSY);
    GIVES(tarn_pool_capture_begin(NULL, other, TARN_CAPTURE_RELAXED), TARN_ERROR_BUSY);
    sem_post(&gate);
    pthread_join(thread, NULL);
    OK(tarn_capture_begin(other, TARN_CAPTURE_RELAXED));
    GIVES(tarn_pool_resume(slow), TARN_ERROR_CAPTURE);
    OK(tarn_capture_end(other, &graph));
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_pool_resume(slow));
    OK(tarn_free(block));
    OK(tarn_pool_release(slow));
    nothing_is_left(0);
}

/* A request that was on its way when the pool was suspended is refused on the next step. */
static void no_step_serves_a_request_of_a_suspended_pool(void)
{
    tarn_pool *pool = pool_new(false);
    tarn_stream stream = lease(0);
    struct heap *heap = NULL;
    struct span *span = NULL;
    OK(tarn_free(pool_alloc(pool, stream, 30 * MIB)));
    OK(heap_of(store_of(pool), stream_of(stream), &heap));
    OK(tarn_pool_suspend(pool, true));
    GIVES(ladder_climb(heap, ZONE_LARGE, 5 * MIB, TARN_BLOCK_UNIT, UNTIL_ENDED, &span),
          TARN_ERROR_SUSPENDED);
    OK(tarn_pool_resume(pool));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void tarn_may_be_shut_down_beside_a_suspended_pool(void)
{
    tarn_pool *pool = pool_new(false), *second = pool_new(false);
    tarn_stream stream = lease(0);
    OK(tarn_free(pool_alloc(pool, stream, 30 * MIB)));
    (void)pool_alloc(second, stream, 3 * MIB);
    (void)alloc_on(stream, 3 * MIB);
    OK(tarn_free(pool_alloc(second, stream, 30 * MIB)));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_suspend(second, false));
    OK(tarn_shutdown());
}

/* The driver undoes a suspend no more than it does it: what is still mapped goes when the pool
 * does. */
static void a_pool_that_is_suspended_in_part_gives_back_what_it_has(void)
{
    tarn_pool *pool = pool_new(false);
    tarn_stream stream = lease(0);
    void *blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = pool_alloc(pool, stream, i ? 30 * MIB : 3000);
    for (uint64_t from = 1; from < 40; from++) {
        tarn_pool_state state = TARN_POOL_RUNS;
        OK(tarn_host_fail_set(-1, from, true, TARN_ERROR_DRIVER));
        (void)tarn_pool_suspend(pool, false);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        state = pool_info_of(pool).state;
        if (state != TARN_POOL_RUNS && ledger_of(0).mapped > 0)
            break;
        if (state != TARN_POOL_RUNS)
            OK(tarn_pool_resume(pool));
        CHECK(from < 39);
    }
    verify(0);
    OK(tarn_free(blocks[1]));
    OK(tarn_pool_release(pool));
    verify(0);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[2]));
    nothing_is_left(0);
}

/* Counts --------------------------------------------------------------------------------------- */

/* A request that has its way when the pool is released for the last time keeps its heap: nobody
 * else gets that. */
static void a_request_on_its_way_keeps_its_heap(void)
{
    tarn_pool *pool = pool_new(false), *next = pool_new(false);
    tarn_stream stream = lease(0), second = lease(0);
    tarn_scope scope = 0;
    struct route route = {0};
    struct heap *heap = NULL, *other = NULL;
    OK(tarn_free(pool_alloc(pool, stream, 3 * MIB)));
    OK(tarn_scope_begin(pool, TARN_SCOPE_ALWAYS, 0, &scope));
    OK(tarn_pool_release(pool));
    OK(route_of(stream_of(stream), &route));
    OK(heap_of(route.store, stream_of(stream), &heap));
    OK(tarn_scope_end(scope));
    OK(heap_of(store_of(next), stream_of(second), &other));
    CHECK(other != heap && heap->store == route.store);
    verify(0);
    route_end(&route);
    OK(tarn_pool_release(next));
    nothing_is_left(0);
}

/* The same where it has no heap yet. */
static void a_request_on_its_way_may_make_a_heap_of_a_pool_left_behind(void)
{
    tarn_stream stream = lease(0);
    for (int i = 0; i < 3; i++) {
        tarn_pool *pool = pool_new(false);
        tarn_scope scope = 0;
        struct route route = {0};
        struct heap *heap = NULL;
        OK(tarn_scope_begin(pool, TARN_SCOPE_ALWAYS, 0, &scope));
        OK(tarn_pool_release(pool));
        OK(route_of(stream_of(stream), &route));
        OK(tarn_scope_end(scope));
        OK(heap_of(route.store, stream_of(stream), &heap));
        verify(0);
        route_end(&route);
        OK(tarn_pool_release(pool_new(false)));
        verify(0);
    }
    nothing_is_left(0);
}

/* A pool's trim waits for the pool's work. */
static void a_trim_does_not_wait_for_what_cannot_help(void)
{
    tarn_pool *pool = pool_new(false);
    tarn_stream stream = lease(0), second = lease(0);
    void *live = pool_alloc(pool, stream, 3 * MIB), *block = alloc_on(stream, 30 * MIB);
    work_on(second, block, 30 * MIB, 1000000);
    OK(tarn_record_stream(block, second));
    OK(tarn_free(block));
    uint64_t before = time_now();
    OK(tarn_pool_trim(pool, 0));
    CHECK(time_now() < before + 1000000);
    OK(tarn_free(live));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_failed_retirement_leaves_every_heap_of_the_stream),
        CHILD_TEST(a_scope_of_a_retired_stream_is_not_that_of_the_next),
        CHILD_TEST(a_heap_that_is_used_again_has_counted_before),
        CHILD_TEST(a_pool_that_a_graph_holds_is_nobodys_spare),
        CHILD_TEST(what_a_graph_has_held_is_there_for_a_trim),
        CHILD_TEST(a_graph_may_outlive_tarn),
        CHILD_TEST(a_suspend_waits_for_streams_that_use_live_blocks),
        CHILD_TEST(no_capture_begins_during_a_suspend),
        CHILD_TEST(no_step_serves_a_request_of_a_suspended_pool),
        CHILD_TEST(tarn_may_be_shut_down_beside_a_suspended_pool),
        CHILD_TEST(a_pool_that_is_suspended_in_part_gives_back_what_it_has),
        CHILD_TEST(a_request_on_its_way_keeps_its_heap),
        CHILD_TEST(a_request_on_its_way_may_make_a_heap_of_a_pool_left_behind),
        CHILD_TEST(a_trim_does_not_wait_for_what_cannot_help),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
