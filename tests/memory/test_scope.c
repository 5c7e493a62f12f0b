/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)

static tarn_pool *pools[4];
static uint64_t ids[4];

static void make_pools(void)
{
    for (int i = 0; i < 4; i++) {
        tarn_pool_id id;
        OK(tarn_pool_create(NULL, &pools[i]));
        id = pool_info_of(pools[i]).id;
        ids[i] = id.second;
    }
}

static void release_pools(void)
{
    for (int i = 0; i < 4; i++) {
        unsigned count = pool_info_of(pools[i]).use_count;
        CHECK(count == 1);
        OK(tarn_pool_release(pools[i]));
    }
    nothing_is_left(0);
}

/* Which pool a block comes from: its index, or -1 for the default one; and frees it. */
static int index_of(void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    CHECK(pointer);
    OK(tarn_pointer_info_get(pointer, &info));
    OK(tarn_free(pointer));
    for (int i = 0; i < 4; i++)
        if (info.pool.second == ids[i])
            return i;
    CHECK(info.pool.first == 0 && info.pool.second == 0);
    return -1;
}

/* Asks twice each, small and large, so that what a thread remembers is asked too. */
static int route(void)
{
    int first = index_of(tarn_malloc(700));
    CHECK(index_of(tarn_malloc(700)) == first && index_of(tarn_malloc(3 * MIB)) == first);
    return first;
}

static int route_on(tarn_stream stream)
{
    int first = index_of(alloc_on(stream, 700));
    CHECK(index_of(alloc_on(stream, 700)) == first && index_of(alloc_on(stream, 3 * MIB)) == first);
    return first;
}

static tarn_scope begin(int pool, tarn_scope_kind kind, tarn_stream stream)
{
    tarn_scope scope = 0;
    OK(tarn_scope_begin(pools[pool], kind, stream, &scope));
    CHECK(scope != 0);
    return scope;
}

static void *route_in_thread(void *result)
{
    *(int *)result = route();
    return NULL;
}

static int route_of_another_thread(void)
{
    pthread_t thread;
    int result = -2;
    CHECK(!pthread_create(&thread, NULL, route_in_thread, &result));
    pthread_join(thread, NULL);
    return result;
}

/* PyTorch: test_nested_mempool, test_mempool_ctx_multithread (test/test_cuda.py). */
static void the_newest_scope_of_a_thread_wins_and_others_see_nothing_of_it(void **state)
{
    (void)state;
    make_pools();
    CHECK(route() == -1);
    tarn_scope outer = begin(0, TARN_SCOPE_THREAD, 0);
    unsigned count = pool_info_of(pools[0]).use_count;
    CHECK(count == 2);
    CHECK(route() == 0 && route_of_another_thread() == -1);
    tarn_scope inner = begin(1, TARN_SCOPE_THREAD, 0);
    CHECK(route() == 1);
    OK(tarn_scope_end(inner));
    CHECK(route() == 0);
    inner = begin(2, TARN_SCOPE_THREAD, 0);
    CHECK(route() == 2);
    GIVES(tarn_scope_end(outer), TARN_ERROR_SCOPE);
    CHECK(strstr(tarn_last_error(), "not the newest") && route() == 2);
    OK(tarn_scope_end(inner));
    OK(tarn_scope_end(outer));
    CHECK(route() == -1);
    GIVES(tarn_scope_end(outer), TARN_ERROR_SCOPE);
    release_pools();
}

static void a_scope_of_a_stream_is_for_every_thread(void **state)
{
    (void)state;
    make_pools();
    tarn_stream a = lease(0), b = lease(0);
    CHECK(route_on(a) == -1); /* remembered */
    tarn_scope scope = begin(0, TARN_SCOPE_STREAM, a),
               legacy = begin(1, TARN_SCOPE_STREAM, TARN_STREAM_LEGACY);
    CHECK(route_on(a) == 0 && route_on(b) == -1);
    CHECK(route() == 1 && route_of_another_thread() == 1);
    OK(tarn_scope_end(scope)); /* in any order */
    CHECK(route_on(a) == -1 && route() == 1);
    OK(tarn_scope_end(legacy));
    CHECK(route() == -1);
    OK(tarn_stream_return(a));
    OK(tarn_stream_return(b));
    release_pools();
}

static void a_scope_of_a_lease_is_not_the_next_ones(void **state)
{
    (void)state;
    make_pools();
    tarn_stream first = lease(0);
    void *native = native_of(first);
    tarn_scope scope = begin(0, TARN_SCOPE_STREAM, first), next;
    CHECK(route_on(first) == 0);
    OK(tarn_stream_return(first));
    tarn_stream second = lease(0);
    CHECK(native_of(second) == native && route_on(second) == -1);
    next = begin(0, TARN_SCOPE_STREAM, second); /* it is not open already */
    CHECK(route_on(second) == 0);
    OK(tarn_scope_end(scope));
    CHECK(route_on(second) == 0);
    OK(tarn_scope_end(next));
    CHECK(route_on(second) == -1);
    OK(tarn_stream_return(second));
    release_pools();
}

static void a_scope_for_all_is_for_all_and_newer_ones_go_before_it(void **state)
{
    (void)state;
    make_pools();
    tarn_stream a = lease(0), other = lease(1);
    tarn_scope thread = begin(1, TARN_SCOPE_THREAD, 0);
    tarn_scope all = begin(0, TARN_SCOPE_ALWAYS, 0);
    CHECK(route() == 0 && route_on(a) == 0 && route_of_another_thread() == 0 &&
          route_on(other) == -1);
    tarn_scope newer = begin(2, TARN_SCOPE_STREAM, a);
    CHECK(route_on(a) == 2 && route() == 0);
    tarn_scope newest = begin(3, TARN_SCOPE_THREAD, 0);
    CHECK(route_on(a) == 3 && route() == 3 && route_of_another_thread() == 0);
    OK(tarn_scope_end(newest));
    OK(tarn_scope_end(all));
    CHECK(route_on(a) == 2 && route() == 1 && route_of_another_thread() == -1);
    OK(tarn_scope_end(newer));
    OK(tarn_scope_end(thread));
    OK(tarn_stream_return(a));
    OK(tarn_stream_return(other));
    release_pools();
}

struct worker {
    pthread_barrier_t at;
    tarn_scope scope;
    int routes[6];
    tarn_status second, wrong;
};

static void *worker(void *argument)
{
    struct worker *worker = argument;
    tarn_scope own = 0;
    worker->routes[0] = route();
    OK(tarn_scope_join(worker->scope));
    worker->second = tarn_scope_join(worker->scope);
    worker->routes[1] = route();
    OK(tarn_scope_begin(pools[2], TARN_SCOPE_THREAD, 0, &own));
    worker->routes[2] = route();
    GIVES(tarn_scope_end(worker->scope), TARN_ERROR_SCOPE);
    OK(tarn_scope_end(own));
    OK(tarn_scope_end(worker->scope)); /* for this thread alone */
    worker->wrong = tarn_scope_end(worker->scope);
    worker->routes[5] = route();
    OK(tarn_scope_join(worker->scope));
    pthread_barrier_wait(&worker->at);
    pthread_barrier_wait(&worker->at); /* it has ended */
    worker->routes[3] = route();
    OK(tarn_scope_end(worker->scope));
    worker->routes[4] = route();
    GIVES(tarn_scope_end(worker->scope), TARN_ERROR_SCOPE);
    return NULL;
}

/* PyTorch: pytorch/pytorch#153356, backward threads escape the pool. */
static void a_worker_joins_the_scope_of_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    make_pools();
    struct worker about = {.scope = begin(0, TARN_SCOPE_THREAD, 0)};
    pthread_barrier_init(&about.at, NULL, 2);
    CHECK(!pthread_create(&thread, NULL, worker, &about));
    pthread_barrier_wait(&about.at);
    CHECK(route() == 0); /* a worker that leaves does not end it */
    OK(tarn_scope_end(about.scope));
    pthread_barrier_wait(&about.at);
    pthread_join(thread, NULL);
    CHECK(about.routes[0] == -1 && about.routes[1] == 0 && about.routes[2] == 2);
    CHECK(about.routes[3] == -1 && about.routes[4] == -1 && about.routes[5] == -1);
    CHECK(about.second == TARN_ERROR_SCOPE && about.wrong == TARN_ERROR_SCOPE);
    GIVES(tarn_scope_join(about.scope), TARN_ERROR_SCOPE);
    pthread_barrier_destroy(&about.at);
    release_pools();
}

static void *begin_and_end_as_a_thread(void *argument)
{
    (void)argument;
    tarn_scope scope = begin(0, TARN_SCOPE_THREAD, 0);
    OK(tarn_scope_begin(pools[1], TARN_SCOPE_THREAD, 0, &scope));
    CHECK(route() == 1);
    return NULL;
}

static void a_thread_that_ends_leaves_its_scopes(void **state)
{
    (void)state;
    pthread_t thread;
    make_pools();
    CHECK(!pthread_create(&thread, NULL, begin_and_end_as_a_thread, NULL));
    pthread_join(thread, NULL);
    release_pools(); /* which are counted once */
}

static void *begin_and_end_beside_a_worker(void *argument)
{
    struct worker *worker = argument;
    worker->scope = begin(0, TARN_SCOPE_THREAD, 0);
    pthread_barrier_wait(&worker->at);
    pthread_barrier_wait(&worker->at); /* the worker has joined */
    return NULL;
}

static void a_scope_goes_on_for_the_workers_of_a_thread_that_ends(void **state)
{
    (void)state;
    for (int times = 0; times < 2; times++) {
        struct worker about = {0};
        pthread_t thread;
        unsigned count = 0;
        make_pools();
        pthread_barrier_init(&about.at, NULL, 2);
        CHECK(!pthread_create(&thread, NULL, begin_and_end_beside_a_worker, &about));
        pthread_barrier_wait(&about.at);
        OK(tarn_scope_join(about.scope));
        pthread_barrier_wait(&about.at);
        pthread_join(thread, NULL);
        CHECK(route() == 0);
        GIVES(tarn_scope_join(about.scope), TARN_ERROR_SCOPE);
        count = pool_info_of(pools[0]).use_count;
        CHECK(count == 2);
        OK(tarn_scope_end(about.scope)); /* the last one, which ends it for all */
        CHECK(route() == -1);
        count = pool_info_of(pools[0]).use_count;
        CHECK(count == 1);
        GIVES(tarn_scope_join(about.scope), TARN_ERROR_SCOPE);
        GIVES(tarn_scope_end(about.scope), TARN_ERROR_SCOPE);
        pthread_barrier_destroy(&about.at);
        release_pools();
    }
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    make_pools();
    tarn_scope scope = 0, none = 0;
    tarn_stream other = lease(1), a = lease(0);
    GIVES(tarn_scope_begin(NULL, TARN_SCOPE_THREAD, 0, &scope), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_scope_begin(pools[0], TARN_SCOPE_THREAD, 0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_scope_begin(pools[0], (tarn_scope_kind)3, 0, &scope), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_scope_begin(pools[0], TARN_SCOPE_STREAM, other, &scope), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_scope_begin(pools[0], TARN_SCOPE_STREAM, 12345678, &scope),
          TARN_ERROR_INVALID_STREAM);
    OK(tarn_device_set(1));
    GIVES(tarn_scope_begin(pools[0], TARN_SCOPE_THREAD, 0, &scope), TARN_ERROR_INVALID_DEVICE);
    OK(tarn_device_set(0));
    GIVES(tarn_scope_end(0), TARN_ERROR_SCOPE);
    GIVES(tarn_scope_join(77777), TARN_ERROR_SCOPE);
    CHECK(scope == 0);
    static const tarn_scope_kind kinds[] = {TARN_SCOPE_THREAD, TARN_SCOPE_STREAM,
                                            TARN_SCOPE_ALWAYS};
    for (int i = 0; i < 3; i++) {
        scope = begin(0, kinds[i], a);
        GIVES(tarn_scope_begin(pools[0], kinds[i], a, &none), TARN_ERROR_SCOPE); /* twice */
        if (kinds[i] != TARN_SCOPE_THREAD)
            GIVES(tarn_scope_join(scope), TARN_ERROR_SCOPE);
        OK(tarn_scope_end(scope));
    }
    CHECK(none == 0);
    OK(tarn_stream_return(other));
    OK(tarn_stream_return(a));
    release_pools();
}

/* A scope has no side effect: others' memory is trimmed, collected and waited for as ever
 * (pytorch/pytorch#159674). */
static void nothing_else_changes_while_a_scope_is_open(void **state)
{
    (void)state;
    make_pools();
    tarn_stream a = lease(0), b = lease(0);
    tarn_scope scope = begin(0, TARN_SCOPE_ALWAYS, 0);
    void *inside = alloc_on(a, 40 * MIB);
    OK(tarn_scope_end(scope));
    void *block = alloc_on(a, 100 * MIB);
    scope = begin(0, TARN_SCOPE_ALWAYS, 0);
    work_on(b, block, 100 * MIB, 1000);
    OK(tarn_record_stream(block, b));
    OK(tarn_free(block));
    OK(tarn_device_trim(0, 0));
    CHECK(ledger_of(0).created == 40 * MIB);
    OK(tarn_free(inside));
    OK(tarn_scope_end(scope));
    OK(tarn_stream_return(a));
    OK(tarn_stream_return(b));
    release_pools();
}

/* A heap that a thread used last, and that has free memory, serves no request that a scope covers
 * now. */
static void *begin_for_all(void *scope)
{
    *(tarn_scope *)scope = begin(0, TARN_SCOPE_ALWAYS, 0);
    return NULL;
}

static void large_blocks_follow_the_scopes_of_other_threads(void **state)
{
    (void)state;
    pthread_t thread;
    tarn_scope scope = 0;
    make_pools();
    void *wall = tarn_malloc(3 * MIB), *hole = tarn_malloc(3 * MIB);
    CHECK(index_of(wall) == -1); /* which frees it */
    CHECK(!pthread_create(&thread, NULL, begin_for_all, &scope));
    pthread_join(thread, NULL);
    CHECK(index_of(tarn_malloc(2 * MIB)) == 0);
    OK(tarn_scope_end(scope));
    CHECK(index_of(tarn_malloc(2 * MIB)) == -1);
    OK(tarn_free(hole));
    release_pools();
}

/* Threads allocate while scopes for all come and go: each block comes from a pool that had a scope
 * at some time, and all add up. */
static _Atomic bool stop;

static void *allocate(void *argument)
{
    (void)argument;
    while (!stop) {
        int index = index_of(tarn_malloc(900));
        CHECK(index == -1 || index == 0 || index == 1);
    }
    return NULL;
}

static void scopes_come_and_go_under_threads_that_allocate(void **state)
{
    (void)state;
    pthread_t threads[3];
    make_pools();
    stop = false;
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&threads[i], NULL, allocate, NULL));
    for (int i = 0; i < 300; i++) {
        tarn_scope first = begin(0, TARN_SCOPE_ALWAYS, 0),
                   second = begin(1, TARN_SCOPE_STREAM, TARN_STREAM_LEGACY);
        CHECK(route() == 1);
        OK(tarn_scope_end(i % 2 ? first : second));
        CHECK(route() == (i % 2 ? 1 : 0));
        OK(tarn_scope_end(i % 2 ? second : first));
        CHECK(route() == -1);
    }
    stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    verify(0);
    release_pools();
}

/* Workers are in a scope, and in one inside it that another thread ends at any moment: from then on
 * they allocate from the outer one. While a capture is open, requests wait for each other. */
static tarn_scope around, inside;

static void *allocate_in_two(void *at)
{
    OK(tarn_scope_join(around));
    for (;;) {
        pthread_barrier_wait(at); /* the inner one has begun, or there is none any more */
        if (!inside)
            break;
        OK(tarn_scope_join(inside));
        pthread_barrier_wait(at);
        while (!stop)
            CHECK(index_of(tarn_malloc(2 * MIB)) != -1);
        OK(tarn_scope_end(inside));
        pthread_barrier_wait(at);
    }
    OK(tarn_scope_end(around));
    return NULL;
}

static void an_inner_scope_ends_under_workers_of_the_outer_one(void **state)
{
    (void)state;
    pthread_t threads[2];
    pthread_barrier_t at;
    tarn_stream captures;
    make_pools();
    OK(tarn_stream_lease(0, 0, &captures));
    pthread_barrier_init(&at, NULL, 3);
    around = begin(0, TARN_SCOPE_THREAD, 0);
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, allocate_in_two, &at));
    for (int i = 0; i < 500; i++) {
        stop = false;
        inside = begin(1, TARN_SCOPE_THREAD, 0);
        pthread_barrier_wait(&at);
        pthread_barrier_wait(&at); /* they have joined */
        OK(tarn_pool_capture_begin(pools[2], captures, TARN_CAPTURE_RELAXED));
        for (int spin = 0; spin < i % 100; spin++)
            CHECK(route() == 1);
        OK(tarn_scope_end(inside));
        stop = true;
        pthread_barrier_wait(&at);
        OK(tarn_capture_abort(captures));
    }
    inside = 0;
    pthread_barrier_wait(&at);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    OK(tarn_scope_end(around));
    pthread_barrier_destroy(&at);
    OK(tarn_stream_return(captures));
    release_pools();
}

/* A capture's own routing is a scope too: of two, the newer wins, and the graph holds the pool of
 * its own alone. */
static void a_scope_in_a_capture_wins_and_the_graph_does_not_hold_its_pool(void **state)
{
    (void)state;
    unsigned count[2] = {0};
    void *graph = NULL;
    make_pools();
    tarn_stream stream = lease(0);
    OK(tarn_pool_capture_begin(pools[0], stream, TARN_CAPTURE_RELAXED));
    CHECK(index_of(alloc_on(stream, 3 * MIB)) == 0);
    tarn_scope scope = begin(1, TARN_SCOPE_STREAM, stream);
    CHECK(index_of(alloc_on(stream, 3 * MIB)) == 1);
    OK(tarn_scope_end(scope));
    CHECK(index_of(alloc_on(stream, 3 * MIB)) == 0);
    OK(tarn_capture_end(stream, &graph));
    count[0] = pool_info_of(pools[0]).use_count;
    count[1] = pool_info_of(pools[1]).use_count;
    CHECK(count[0] == 2 && count[1] == 1);
    OK(machine->graph_destroy(graph));
    OK(tarn_stream_return(stream));
    release_pools();
}

static void only_the_same_pool_kind_and_stream_is_open_twice(void **state)
{
    (void)state;
    tarn_scope second = 0;
    make_pools();
    tarn_stream one = lease(0), other = lease(0);
    tarn_scope scopes[] = {begin(0, TARN_SCOPE_STREAM, one), begin(1, TARN_SCOPE_STREAM, one),
                           begin(0, TARN_SCOPE_STREAM, other), begin(0, TARN_SCOPE_ALWAYS, 0),
                           begin(1, TARN_SCOPE_ALWAYS, 0)};
    GIVES(tarn_scope_begin(pools[0], TARN_SCOPE_STREAM, one, &second), TARN_ERROR_SCOPE);
    GIVES(tarn_scope_begin(pools[1], TARN_SCOPE_ALWAYS, 0, &second), TARN_ERROR_SCOPE);
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        OK(tarn_scope_end(scopes[i]));
    OK(tarn_stream_return(one));
    OK(tarn_stream_return(other));
    release_pools();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_scope_of_a_thread_wins_and_others_see_nothing_of_it),
        cmocka_unit_test(a_scope_of_a_stream_is_for_every_thread),
        cmocka_unit_test(a_scope_of_a_lease_is_not_the_next_ones),
        cmocka_unit_test(a_scope_for_all_is_for_all_and_newer_ones_go_before_it),
        cmocka_unit_test(a_worker_joins_the_scope_of_another_thread),
        cmocka_unit_test(a_thread_that_ends_leaves_its_scopes),
        cmocka_unit_test(a_scope_goes_on_for_the_workers_of_a_thread_that_ends),
        cmocka_unit_test(a_scope_in_a_capture_wins_and_the_graph_does_not_hold_its_pool),
        cmocka_unit_test(only_the_same_pool_kind_and_stream_is_open_twice),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(nothing_else_changes_while_a_scope_is_open),
        cmocka_unit_test(large_blocks_follow_the_scopes_of_other_threads),
        cmocka_unit_test(scopes_come_and_go_under_threads_that_allocate),
        cmocka_unit_test(an_inner_scope_ends_under_workers_of_the_outer_one),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
