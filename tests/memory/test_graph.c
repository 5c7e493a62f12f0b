/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures and graphs that use a pool: who allocates from it and when, what stays mapped for whom,
 * and who counts it how long. PyTorch's tests of the same are in test_graph_pytorch.c. */
#include "base/pages.h"
#include "device/capture.h"
#include "driver/driver.h"
#include "driver/host/host.h"
#include "memory/pool/pool.h"

#include <pthread.h>

#include "graph_test.h" /* last: its names are global here */

static tarn_pool_id pool_of(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(pointer, &info));
    return info.pool;
}

static bool is_default(const void *pointer)
{
    tarn_pool_id id = pool_of(pointer);
    return id.first == 0 && id.second == 0;
}

/* Streams behind each other, captured or not. */
static void follow(tarn_stream behind, tarn_stream ahead)
{
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, ahead));
    OK(tarn_stream_wait(behind, event));
    OK(tarn_event_destroy(event));
}

/* ---- Routing ---- */

static void the_streams_of_a_capture_allocate_from_its_pool(void **state)
{
    (void)state;
    tarn_stream outside = lease(0);
    void *before = alloc_on(stream, 5000);
    begin(NULL);
    void *on_origin = alloc_on(stream, 5000), *not_yet = alloc_on(other, 5000);
    fill(stream, on_origin, 1, 5000);
    follow(other, stream);
    void *on_joined = alloc_on(other, 3 * MIB), *elsewhere = alloc_on(outside, 3 * MIB);
    fill(other, on_joined, 2, 3 * MIB);
    follow(stream, other);
    tarn_pool_id id = pool_of(on_origin);
    CHECK(id.first && !id.second); /* one of its own */
    CHECK(pool_of(on_joined).first == id.first);
    CHECK(is_default(before) && is_default(not_yet) && is_default(elsewhere));
    void *graph = end();
    void *after = alloc_on(stream, 5000), *after_too = alloc_on(other, 5000);
    CHECK(is_default(after) && is_default(after_too));

    tarn_pool *pool = NULL;
    OK(tarn_pool_find(id, &pool));
    CHECK(count_of(pool) == 2); /* the graph, and this test */
    launch(graph, outside);
    OK(tarn_stream_synchronize(outside));
    CHECK(((unsigned char *)on_origin)[4999] == 1 &&
          ((unsigned char *)on_joined)[3 * MIB - 1] == 2);
    destroy(graph);
    CHECK(count_of(pool) == 1);
    OK(tarn_pool_release(pool));
    GIVES(tarn_pool_find(id, &pool), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(((unsigned char *)on_joined)[0] == 2); /* live blocks outlive graph and pool */
    void *const all[] = {before, on_origin, not_yet, on_joined, elsewhere, after, after_too};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        OK(tarn_free(all[i]));
    OK(tarn_stream_return(outside));
}

/* Memory of another pool would be in the graph, which does not hold it. */
static void where_the_driver_does_not_say_what_captures_nothing_is_given(void **state)
{
    (void)state;
    void *block = NULL;
    begin(NULL);
    follow(other, stream);
    /* The stream's own capture, and that of the pool's stream */
    for (unsigned nth = 1; nth <= 2; nth++) {
        OK(tarn_host_fail_set(kind_of("capture_status"), nth, false, TARN_ERROR_DRIVER));
        GIVES(tarn_alloc_on(other, 5000, &block), TARN_ERROR_DRIVER);
        CHECK(host_fail_hits() == 1);
    }
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_alloc_on(other, 5000, &block));
    CHECK(pool_of(block).first);
    follow(stream, other);
    void *graph = end();
    OK(tarn_free(block));
    destroy(graph);
}

static void what_is_freed_inside_is_used_again_inside(void **state)
{
    (void)state;
    begin(NULL);
    void *small = alloc_on(stream, 1000), *large = alloc_on(stream, 30 * MIB);
    int64_t bytes = reserved();
    for (int i = 0; i < 10; i++) {
        OK(tarn_free(small));
        OK(tarn_free(large));
        CHECK(alloc_on(stream, 1000) == small);
        CHECK(alloc_on(stream, 30 * MIB) == large);
    }
    CHECK(reserved() == bytes);
    OK(tarn_free(small));
    OK(tarn_free(large));
    destroy(end());
}

static void other_scopes_go_before_an_older_capture_and_after_a_newer_one(void **state)
{
    (void)state;
    tarn_pool *mine = graph_pool();
    tarn_pool_id id, of_mine;
    tarn_scope scope = 0;
    of_mine = pool_info_of(mine).id;
    begin(NULL);
    void *block = alloc_on(stream, 100);
    id = pool_of(block);
    OK(tarn_scope_begin(mine, TARN_SCOPE_STREAM, stream, &scope));
    void *newer = alloc_on(stream, 100);
    CHECK(pool_of(newer).second == of_mine.second);
    OK(tarn_scope_end(scope));
    void *again = alloc_on(stream, 100);
    CHECK(pool_of(again).first == id.first);
    destroy(end());
    OK(tarn_scope_begin(mine, TARN_SCOPE_STREAM, stream, &scope));
    begin(NULL);
    void *inside = alloc_on(stream, 100);
    CHECK(pool_of(inside).first && !pool_of(inside).second);
    destroy(end());
    OK(tarn_scope_end(scope));
    void *const all[] = {block, newer, again, inside};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        OK(tarn_free(all[i]));
    OK(tarn_pool_release(mine));
}

/* ---- What a graph holds ---- */

static void nothing_of_a_graph_is_unmapped_while_it_lives(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    begin(pool);
    unsigned char *block = alloc_on(stream, 100 * MIB);
    fill(stream, block, 7, 100 * MIB);
    OK(tarn_free(block));
    CHECK(count_of(pool) == 2);
    void *graph = end(), *large = NULL;
    CHECK(count_of(pool) == 2);
    uint64_t unmaps = calls_of(0, "unmap");
    OK(tarn_device_synchronize(0));
    OK(tarn_device_trim(0, 0));
    OK(tarn_pool_trim(pool, 0));
    OK(tarn_pool_release(pool)); /* the graph's is left */
    OK(tarn_device_trim(0, 0));
    GIVES(tarn_alloc_on(other, 200 * MIB, &large), TARN_ERROR_OUT_OF_MEMORY);
    GIVES(tarn_alloc_on(stream, 200 * MIB, &large), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(calls_of(0, "unmap") == unmaps && ledger_of(0).mapped >= 100 * MIB);
    block[0] = block[100 * MIB - 1] = 0;
    launch(graph, other);
    OK(tarn_stream_synchronize(other));
    CHECK(block[0] == 7 && block[100 * MIB - 1] == 7);
    verify(0);

    destroy(graph);
    OK(tarn_alloc_on(other, 200 * MIB, &large));
    OK(tarn_free(large));
}

/* The end of a graph is the end of its work, whoever destroys it and when. */
static void a_graph_counts_its_pool_until_its_work_has_ended(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    begin(pool);
    void *block = alloc_on(stream, 8 * MIB);
    work_on(stream, block, 8 * MIB, 5000);
    OK(tarn_free(block));
    void *graph = end();
    launch(graph, other);
    destroy(graph);
    CHECK(count_of(pool) == 2);
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).mapped >= 8 * MIB);
    time_pass(4999);
    CHECK(count_of(pool) == 2);
    time_pass(1);
    CHECK(count_of(pool) == 1);
    OK(tarn_pool_trim(pool, 0));
    CHECK(ledger_of(0).created == 0);
    OK(tarn_pool_release(pool));
}

static void an_aborted_or_broken_capture_leaves_nothing(void **state)
{
    (void)state;
    tarn_pool *shared = graph_pool();
    for (int i = 0; i < 4; i++) {
        tarn_pool *pool = i % 2 ? shared : NULL;
        void *graph = NULL;
        begin(pool);
        void *kept = alloc_on(stream, 7 * MIB), *freed = alloc_on(stream, 9 * MIB);
        fill(stream, kept, 1, MIB);
        OK(tarn_free(freed));
        if (i < 2) {
            OK(tarn_capture_abort(stream));
        } else {
            CHECK(driver->stream_query(0, native_of(stream)) == TARN_ERROR_CAPTURE);
            GIVES(tarn_capture_end(stream, &graph), TARN_ERROR_CAPTURE);
            CHECK(!graph);
        }
        CHECK(count_of(shared) == 1 && ledger_of(0).graphs == 0);
        OK(tarn_free(kept));
        OK(tarn_pool_trim(shared, 0));
        OK(tarn_device_trim(0, 0));
        CHECK(ledger_of(0).created == 0);
        verify(0);
    }
    OK(tarn_pool_release(shared));
}

static void a_capture_of_the_callers_own_uses_a_pool(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    void *graph = NULL;
    OK(tarn_pool_capture_announce(pool, stream));
    CHECK(count_of(pool) == 2);
    CHECK(!driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_RELAXED));
    unsigned char *block = alloc_on(stream, 4 * MIB);
    CHECK(!is_default(block));
    fill(stream, block, 5, 4 * MIB);
    OK(tarn_free(block));
    CHECK(!driver->capture_end(0, native_of(stream), &graph));
    OK(tarn_capture_end_announced(stream, graph));
    CHECK(count_of(pool) == 2);
    OK(tarn_pool_trim(pool, 0));
    launch(graph, other);
    OK(tarn_stream_synchronize(other));
    CHECK(block[4 * MIB - 1] == 5);
    OK(tarn_pool_hold(pool, graph)); /* once more */
    CHECK(count_of(pool) == 3);
    destroy(graph);
    CHECK(count_of(pool) == 1);

    /* One that is announced, and never begins. */
    OK(tarn_pool_capture_announce(pool, stream));
    OK(tarn_capture_abort(stream));
    CHECK(count_of(pool) == 1);
    OK(tarn_pool_release(pool));
}

/* Launches a graph that fills `inside` with 7, and looks whether what another stream allocates now
 * is the graph's memory. */
static void others_stay_theirs(void *graph, const unsigned char *inside)
{
    unsigned char *others = alloc_on(other, 4 * MIB);
    fill(other, others, 1, 4 * MIB);
    OK(tarn_stream_synchronize(other));
    launch(graph, other);
    OK(tarn_stream_synchronize(other));
    CHECK(others[0] == 1 && others[4 * MIB - 1] == 1 && inside[0] == 7);
    OK(tarn_free(others));
}

/* Whichever call is forgotten on the way from the announcement to the graph: what others allocate
 * meanwhile is not the graph's memory. */
static void a_forgotten_call_gives_no_memory_away(void **state)
{
    (void)state;
    for (int own = 0; own < 2; own++)
        for (int forgets = 0; forgets < 3; forgets++) {
            tarn_pool *pool = own ? NULL : graph_pool();
            void *graph = NULL, *wrong = &graph;
            OK(tarn_pool_capture_announce(pool, stream));
            CHECK(!driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_RELAXED));
            unsigned char *inside = alloc_on(stream, 4 * MIB);
            CHECK(!is_default(inside));
            fill(stream, inside, 7, 4 * MIB);
            OK(tarn_free(inside));
            if (forgets == 1) { /* the vendor's end */
                GIVES(tarn_capture_end_announced(stream, NULL), TARN_ERROR_CAPTURE);
                CHECK(strstr(tarn_last_error(), "still captures") &&
                      captures_open(device_at(0)) == 1);
            }
            CHECK(!driver->capture_end(0, native_of(stream), &graph));
            /* The call with the graph: the one for tarn's own captures is none */
            if (forgets == 2) {
                GIVES(tarn_capture_end(stream, &wrong), TARN_ERROR_INVALID_ARGUMENT);
                CHECK(strstr(tarn_last_error(), "tarn_capture_end_announced()") && wrong == &graph);
                GIVES(tarn_device_trim(0, 0), TARN_ERROR_CAPTURE);
                others_stay_theirs(graph, inside);
            }
            OK(tarn_host_fail_set(kind_of("graph_hold"), 1, false, TARN_ERROR_OUT_OF_HOST_MEMORY));
            GIVES(tarn_capture_end_announced(stream, graph), TARN_ERROR_OUT_OF_HOST_MEMORY);
            CHECK(captures_open(device_at(0)) == 1); /* it goes on, and can be ended again */
            OK(tarn_capture_end_announced(stream, graph));
            CHECK(captures_open(device_at(0)) == 0);
            GIVES(tarn_capture_end_announced(stream, graph), TARN_ERROR_INVALID_ARGUMENT);
            OK(tarn_pool_release(pool)); /* the memory is the graph's, whoever releases the pool */
            OK(tarn_device_trim(0, 0));
            others_stay_theirs(graph, inside);
            destroy(graph);
            OK(tarn_device_trim(0, 0));
            CHECK(ledger_of(0).created == 0);
            verify(0);
        }
}

static void a_graph_that_cannot_be_held_is_destroyed(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    static const tarn_status statuses[] = {TARN_ERROR_NOT_SUPPORTED, TARN_ERROR_OUT_OF_HOST_MEMORY};
    for (int i = 0; i < 2; i++) {
        void *graph = pool;
        begin(pool);
        void *block = alloc_on(stream, 3 * MIB);
        OK(tarn_host_fail_set(kind_of("graph_hold"), 1, false, statuses[i]));
        GIVES(tarn_capture_end(stream, &graph), statuses[i]);
        CHECK(strstr(tarn_last_error(), "graph_hold") && graph == pool);
        CHECK(ledger_of(0).graphs == 0 && count_of(pool) == 1);
        OK(tarn_free(block));
        OK(tarn_pool_trim(pool, 0));
        CHECK(ledger_of(0).created == 0);

        OK(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        graph = end();
        OK(tarn_host_fail_set(kind_of("graph_hold"), 1, false, statuses[i]));
        GIVES(tarn_pool_hold(pool, graph), statuses[i]);
        CHECK(count_of(pool) == 1);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        destroy(graph); /* which stays the caller's */
    }
    OK(tarn_pool_release(pool));
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool(), *elsewhere = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 1},
                        &elsewhere));
    GIVES(tarn_pool_capture_begin(pool, TARN_STREAM_LEGACY, TARN_CAPTURE_GLOBAL),
          TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_capture_begin(elsewhere, stream, TARN_CAPTURE_GLOBAL),
          TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_pool_capture_begin(pool, 12345, TARN_CAPTURE_GLOBAL), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_pool_capture_begin(pool, stream, (tarn_capture_mode)9), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_hold(NULL, pool), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(count_of(pool) == 1 && count_of(elsewhere) == 1);
    begin(pool);
    for (int i = 0; i < 3; i++) {
        tarn_pool *with = i == 0 ? pool : i == 1 ? NULL : elsewhere;
        GIVES(tarn_pool_capture_begin(with, stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_CAPTURE);
        GIVES(tarn_pool_capture_announce(with, stream), TARN_ERROR_CAPTURE);
    }
    CHECK(count_of(pool) == 2);
    void *block = alloc_on(stream, 100);
    CHECK(!is_default(block));
    OK(tarn_free(block));
    destroy(end());
    OK(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL)); /* one without a pool */
    GIVES(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL), TARN_ERROR_CAPTURE);
    block = alloc_on(stream, 100);
    CHECK(is_default(block));
    OK(tarn_free(block));
    destroy(end());
    OK(tarn_pool_release(pool));
    OK(tarn_pool_release(elsewhere));
}

/* A graph that nobody destroys keeps the driver, and its memory, over the end of tarn. */
static void shut_down_with_an_empty_graph(void)
{
    begin(NULL);
    void *graph = end();
    OK(tarn_shutdown());
    CHECK(!driver->graph_launch(0, graph, NULL) && !driver->device_synchronize(0));
    CHECK(!driver->graph_destroy(0, graph));
}

static void shut_down_with_memory(void)
{
    begin(NULL);
    unsigned char *block = alloc_on(stream, 2 * MIB);
    fill(stream, block, 3, 2 * MIB);
    OK(tarn_free(block));
    void *graph = end();
    OK(tarn_shutdown());
    CHECK(!driver->graph_launch(0, graph, NULL) && !driver->device_synchronize(0));
    CHECK(block[2 * MIB - 1] == 3);
    CHECK(!driver->graph_destroy(0, graph));
}

static void in_fresh_child(void (*function)(void));

static void a_graph_outlives_a_shutdown(void **state)
{
    (void)state;
    in_fresh_child(shut_down_with_an_empty_graph);
    in_fresh_child(shut_down_with_memory);
}

/* ---- Failures ---- */

/* A capture on a shared pool and one on its own. Calls may fail; what was made is destroyed. */
static bool capture_twice(tarn_pool *pool)
{
    bool well = true;
    void *graphs[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        void *blocks[3] = {NULL, NULL, NULL};
        if (tarn_pool_capture_begin(i ? NULL : pool, stream, TARN_CAPTURE_GLOBAL)) {
            well = false;
            continue;
        }
        for (int k = 0; k < 3; k++)
            well = !tarn_alloc_on(stream, (size_t)k * 5 * MIB + 900, &blocks[k]) && well;
        for (int k = 0; k < 3; k++)
            OK(tarn_free(blocks[k]));
        tarn_status status = tarn_capture_end(stream, &graphs[i]);
        CHECK(!status == (graphs[i] != NULL));
        well = !status && well;
        tarn_capture_state captures;
        /* One that the driver did not end is still known, and can be ended. */
        while (status && !tarn_capture_state_get(stream, &captures, NULL, NULL) &&
               captures != TARN_CAPTURE_NONE)
            status = tarn_capture_abort(stream);
    }
    for (int i = 0; i < 2; i++)
        while (graphs[i] && tarn_host_graph_destroy(graphs[i]))
            ;
    return well;
}

static void each_failure_leaves_nothing_held(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    unsigned failures = 0;
    CHECK(capture_twice(pool));
    for (int own = 0; own < 2; own++) {
        for (uint64_t nth = 1;; nth++) {
            OK(tarn_pool_trim(pool, 0));
            OK(tarn_device_trim(0, 0));
            if (own)
                pages_fail(nth, false);
            else
                OK(tarn_host_fail_set(-1, nth, false, TARN_ERROR_DRIVER));
            (void)capture_twice(pool);
            bool hit = own ? pages_fail_hits() : host_fail_hits();
            pages_fail(0, false);
            OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
            if (!hit)
                break;
            failures++;
            CHECK(count_of(pool) == 1 && ledger_of(0).graphs == 0);
            verify(0);
            CHECK(capture_twice(pool));
        }
    }
    CHECK(failures > 40);
    OK(tarn_pool_release(pool));
}

/* ---- Threads ---- */

#define LINE 4
static struct {
    _Atomic(void *) graphs[LINE];
    atomic_int refused; /* captures that found no memory */
    atomic_bool over;
} line;

static void *capture_many(void *argument)
{
    tarn_pool *pool = argument;
    tarn_stream mine = lease(0);
    for (int i = 0; i < 200; i++) {
        void *graph = NULL, *block = NULL;
        OK(tarn_pool_capture_begin(i % 2 ? pool : NULL, mine, TARN_CAPTURE_THREAD_LOCAL));
        tarn_status status = tarn_alloc_on(mine, (size_t)(i % 5) * MIB + 1000, &block);
        /* What the other's stream freed serves nobody while that captures */
        if (status == TARN_ERROR_OUT_OF_MEMORY) {
            OK(tarn_capture_abort(mine));
            atomic_fetch_add(&line.refused, 1);
            continue;
        }
        OK(status);
        fill(mine, block, (unsigned char)i, 1000);
        CHECK(!is_default(block));
        OK(tarn_free(block));
        if (i % 7 == 0) {
            OK(tarn_capture_abort(mine));
            continue;
        }
        OK(tarn_capture_end(mine, &graph));
        launch(graph, mine);
        graph = atomic_exchange(&line.graphs[i % LINE], graph);
        if (graph)
            destroy(graph);
    }
    OK(tarn_stream_return(mine));
    return NULL;
}

static void *destroy_many(void *argument)
{
    while (!atomic_load(&line.over)) {
        for (int i = 0; i < LINE; i++) {
            void *graph = atomic_exchange(&line.graphs[i], NULL);
            if (graph)
                destroy(graph);
        }
        void *block = NULL;
        tarn_status status = tarn_alloc_on(TARN_STREAM_PER_THREAD, 20 * MIB, &block);
        CHECK(!status || status == TARN_ERROR_OUT_OF_MEMORY);
        CHECK(status || is_default(block));
        OK(tarn_free(block));
    }
    return argument;
}

static void threads_capture_and_destroy_at_once(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    pthread_t makers[2], destroyer;
    CHECK(!pthread_create(&destroyer, NULL, destroy_many, NULL));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&makers[i], NULL, capture_many, pool));
    for (int i = 0; i < 2; i++)
        pthread_join(makers[i], NULL);
    atomic_store(&line.over, true);
    pthread_join(destroyer, NULL);
    for (int i = 0; i < LINE; i++)
        if (atomic_load(&line.graphs[i]))
            destroy(atomic_load(&line.graphs[i]));
    OK(tarn_device_synchronize(0));
    CHECK(count_of(pool) == 1 && atomic_load(&line.refused) < 200);
    OK(tarn_pool_release(pool));
}

/* In a process that has not used the device yet. */
static void (*child_function)(void);

static void child_run(void)
{
    host_start_with(2, MEMORY);
    stream = lease(0);
    other = lease(0);
    child_function();
}

static void in_fresh_child(void (*function)(void))
{
    child_function = function;
    in_child(child_run);
}

static tarn_pinned_stats pinned_stats(void)
{
    tarn_pinned_stats stats = {.size = sizeof stats};
    OK(tarn_pinned_stats_get(&stats));
    return stats;
}

/* Pinned memory of a capture is its pool's: what the graph reads again at each launch is kept until
 * its end (pytorch/pytorch#161583). */
static void pinned_memory_of_a_capture_lasts_as_long_as_its_graph(void **state)
{
    (void)state;
    tarn_pool *pool = graph_pool();
    void *device = alloc_on(stream, MIB), *used = NULL, *unused = NULL, *next = NULL;
    begin(pool);
    OK(tarn_pinned_alloc(stream, 5000, &used));
    OK(tarn_pinned_alloc(stream, 5000, &unused));
    memset(used, 7, 5000);
    OK(driver->copy(0, (uintptr_t)device, (uintptr_t)used, 5000, native_of(stream)));
    OK(tarn_record_stream(used, stream));
    OK(tarn_free(used));
    OK(tarn_free(unused));
    OK(tarn_pinned_alloc(stream, 5000, &next));
    CHECK(next == unused); /* inside too */
    OK(tarn_free(next));
    void *graph = end();
    CHECK(pinned_stats().graph_bytes >= 5000);
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 5000, &next));
    CHECK(next != used && next != unused); /* the default pool's */
    memset(next, 9, 5000);
    launch(graph, other);
    OK(tarn_device_synchronize(0));
    CHECK(*(unsigned char *)device == 7);
    OK(tarn_free(next));
    OK(tarn_free(device));
    destroy(graph);
    OK(tarn_pool_release(pool));
    OK(tarn_device_synchronize(0));
    CHECK(pinned_stats().graph_bytes == 0);
    OK(tarn_pinned_trim(0));
    CHECK(pinned_stats().allocated_bytes.current == 0);
}

int main(void)
{
    const struct CMUnitTest alone[] = {
        cmocka_unit_test(a_graph_outlives_a_shutdown), /* first: its children begin before the
                                                          device does */
    };
    const struct CMUnitTest tests[] = {
        GRAPH_TEST(the_streams_of_a_capture_allocate_from_its_pool),
        GRAPH_TEST(where_the_driver_does_not_say_what_captures_nothing_is_given),
        GRAPH_TEST(what_is_freed_inside_is_used_again_inside),
        GRAPH_TEST(pinned_memory_of_a_capture_lasts_as_long_as_its_graph),
        GRAPH_TEST(other_scopes_go_before_an_older_capture_and_after_a_newer_one),
        GRAPH_TEST(nothing_of_a_graph_is_unmapped_while_it_lives),
        GRAPH_TEST(a_graph_counts_its_pool_until_its_work_has_ended),
        GRAPH_TEST(an_aborted_or_broken_capture_leaves_nothing),
        GRAPH_TEST(a_capture_of_the_callers_own_uses_a_pool),
        GRAPH_TEST(a_forgotten_call_gives_no_memory_away),
        GRAPH_TEST(a_graph_that_cannot_be_held_is_destroyed),
        GRAPH_TEST(what_is_wrong_is_refused),
        GRAPH_TEST(each_failure_leaves_nothing_held),
        GRAPH_TEST(threads_capture_and_destroy_at_once),
    };
    int failed_alone = cmocka_run_group_tests(alone, NULL, NULL);
    host_start_with(2, MEMORY);
    return failed_alone + cmocka_run_group_tests(tests, NULL, NULL);
}
