/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The storm of private pools: each thread does at random whatever the headers allow with pools that
 * all of them share. Pools are made, counted and released, with blocks that others free later;
 * scopes are begun, joined, left and ended; pools are trimmed, suspended and resumed; streams
 * capture into pools, graphs are launched and destroyed; streams are adopted and retired at full
 * speed; memory is short. What is checked: no two live blocks share a unit, a live block holds what
 * its thread wrote and is of a pool that may have served it, a free of a live block succeeds, only
 * statuses come that may, and in the end nothing is left. */
#include "base/pages.h"
#include "support/storm.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 4
#define STEPS 1000
#define PLACES 5
#define MEMORY (4096 * MIB) /* room for a resume, whatever the others hold meanwhile */
#define LIMIT (128 * MIB)   /* what the threads have otherwise */

/* Pools that every thread may use. Whoever uses one counts it first, under the lock; who replaces
 * it releases what lay there. What touches a block's contents shares `contents`, since nothing may
 * use a pool's memory while it is suspended. */
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static tarn_pool *places[PLACES];
static pthread_rwlock_t contents = PTHREAD_RWLOCK_INITIALIZER;
static tarn_scope joinable; /* places_lock: one of threads that may be open */
static atomic_uint_fast64_t operations, made, suspends, captures;

/* What scopes a thread is in; `joined` is newer than `begun`. */
static struct {
    tarn_scope begun, joined;
} scopes[THREADS];

/* A pool counted for the caller, or NULL. */
static tarn_pool *pool_get(struct storm_worker *worker)
{
    pthread_mutex_lock(&places_lock);
    tarn_pool *pool = places[storm_below(worker, PLACES)];
    if (pool)
        OK(tarn_pool_retain(pool));
    pthread_mutex_unlock(&places_lock);
    return pool;
}

/* Another pool in a place, or none; what lay there is released, whoever has blocks of it or scopes
 * on it. */
static void pool_change(struct storm_worker *worker)
{
    tarn_pool *pool = NULL;
    size_t limit = storm_below(worker, 3) ? TARN_NO_LIMIT : storm_below(worker, LIMIT);
    tarn_pool_options options = {.size = sizeof options,
                                 .device = 0,
                                 .use_on_oom = storm_below(worker, 3) == 0,
                                 .no_remap = storm_below(worker, 3) == 0};
    if (storm_below(worker, 4)) {
        tarn_status status = tarn_pool_create(&options, &pool);
        CHECK(!status || storm_may_fail(status));
        atomic_fetch_add(&made, status == TARN_OK);
        if (!status)
            OK(tarn_pool_limit_set(pool, limit));
    }
    pthread_mutex_lock(&places_lock);
    tarn_pool **place = &places[storm_below(worker, PLACES)], *before = *place;
    *place = pool;
    pthread_mutex_unlock(&places_lock);
    OK(tarn_pool_release(before));
}

/* Every pool except a suspended one gives memory. */
static void allocate(struct storm_worker *worker, struct storm_block *block)
{
    void *start = NULL;
    size_t size = storm_size(worker);
    tarn_status status;
    tarn_pool *pool = storm_below(worker, 3) ? NULL : pool_get(worker);
    if (pool) {
        status = tarn_pool_alloc(pool, storm_stream(worker), size, &start);
        if (!status) {
            tarn_block_info info = {.size = sizeof info};
            tarn_pool_id id = pool_info_of(pool).id;
            OK(tarn_pointer_info_get(start, &info));
            CHECK(info.pool.first == id.first && info.pool.second == id.second);
        }
        OK(tarn_pool_release(pool));
    } else if (storm_below(worker, 2)) {
        start = tarn_malloc(size);
        status = start ? TARN_OK : tarn_last_status();
    } else {
        status = tarn_alloc_on(storm_stream(worker), size, &start);
    }
    CHECK((start != NULL) == (status == TARN_OK));
    CHECK(!status || storm_may_fail(status) || status == TARN_ERROR_SUSPENDED);
    if (!status)
        storm_begin_block(worker, block, start, size);
}

static void change_scope(struct storm_worker *worker)
{
    tarn_scope scope = 0;
    tarn_status status;
    if (scopes[worker->number].joined) {
        OK(tarn_scope_end(scopes[worker->number].joined)); /* newer than the one begun */
        scopes[worker->number].joined = 0;
    } else if (storm_below(worker, 3) == 0) {
        pthread_mutex_lock(&places_lock);
        scope = joinable;
        pthread_mutex_unlock(&places_lock);
        status = scope ? tarn_scope_join(scope) : TARN_ERROR_SCOPE;
        CHECK(!status || status == TARN_ERROR_SCOPE || storm_may_fail(status));
        if (!status && scope != scopes[worker->number].begun)
            scopes[worker->number].joined = scope;
    } else if (scopes[worker->number].begun) {
        OK(tarn_scope_end(scopes[worker->number].begun));
        scopes[worker->number].begun = 0;
    } else {
        tarn_pool *pool = pool_get(worker);
        int kind = (int)storm_below(worker, 3);
        status = pool ? tarn_scope_begin(pool, (tarn_scope_kind)kind, storm_stream(worker),
                                         &scopes[worker->number].begun)
                      : TARN_OK;
        CHECK(!status || status == TARN_ERROR_SCOPE || storm_may_fail(status));
        if (!status && pool && kind == TARN_SCOPE_THREAD) {
            pthread_mutex_lock(&places_lock);
            joinable = scopes[worker->number].begun;
            pthread_mutex_unlock(&places_lock);
        }
        OK(tarn_pool_release(pool));
    }
}

/* What a pool holds idle can be in the way of a resume. */
static void trim_all(void)
{
    for (int i = 0; i < PLACES; i++) {
        pthread_mutex_lock(&places_lock);
        tarn_pool *pool = places[i];
        if (pool)
            OK(tarn_pool_retain(pool));
        pthread_mutex_unlock(&places_lock);
        if (pool)
            (void)tarn_pool_trim(pool, 0);
        OK(tarn_pool_release(pool));
    }
}

/* Alone with the contents of all blocks, beside threads that do all else. Kept ones come back. */
static void suspend(struct storm_worker *worker)
{
    tarn_pool *pool = pool_get(worker);
    if (!pool)
        return;
    pthread_rwlock_wrlock(&contents);
    tarn_status status = tarn_pool_suspend(pool, true);
    CHECK(!status || storm_may_fail(status) || status == TARN_ERROR_CAPTURE ||
          status == TARN_ERROR_SUSPENDED);
    tarn_pool_state state = pool_info_of(pool).state;
    atomic_fetch_add(&suspends, state != TARN_POOL_RUNS);
    while (state != TARN_POOL_RUNS) {
        pages_fail(0, false);
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
        OK(tarn_pool_limit_set(pool, TARN_NO_LIMIT));
        status = tarn_pool_resume(pool);
        CHECK(!status || status == TARN_ERROR_CAPTURE || storm_may_fail(status));
        state = pool_info_of(pool).state;
        trim_all();
    }
    OK(tarn_device_limit_set(0, LIMIT));
    pthread_rwlock_unlock(&contents);
    OK(tarn_pool_release(pool));
}

/* A capture on a stream of the thread's own, with memory that it frees itself. */
static void capture(struct storm_worker *worker)
{
    tarn_pool *pool = storm_below(worker, 2) ? pool_get(worker) : NULL;
    void *graph = NULL, *inside[2] = {0};
    tarn_status status = tarn_pool_capture_begin(pool, worker->adopted, TARN_CAPTURE_THREAD_LOCAL);
    CHECK(!status || storm_may_fail(status) || status == TARN_ERROR_BUSY);
    OK(tarn_pool_release(pool));
    if (status)
        return;
    atomic_fetch_add(&captures, 1);
    for (int i = 0; i < 2; i++) {
        status =
            tarn_alloc_on(worker->adopted, 1 + storm_below(worker, i ? 3 * MIB : 5000), &inside[i]);
        CHECK(!status || storm_may_fail(status) || status == TARN_ERROR_SUSPENDED);
    }
    for (int i = 0; i < 2; i++)
        if (inside[i])
            OK(tarn_free(inside[i]));
    if (storm_below(worker, 4) == 0) {
        while ((status = tarn_capture_abort(worker->adopted)) &&
               status != TARN_ERROR_INVALID_ARGUMENT)
            storm_calm(status);
        CHECK(!status || storm_injects); /* over, but the driver would not destroy the graph */
        return;
    }
    while ((status = tarn_capture_end(worker->adopted, &graph)) && storm_injects) {
        if (status == TARN_ERROR_INVALID_ARGUMENT)
            return; /* over without a graph, which was not held */
        storm_calm(status);
    }
    OK(status);
    (void)tarn_host_graph_launch(0, graph, worker->native);
    OK(tarn_host_graph_destroy(graph));
}

/* Without a touch of the memory: also while the pool is being suspended. */
static void breathe(struct storm_worker *worker)
{
    void *pointers[4] = {0};
    tarn_pool *pool = pool_get(worker);
    for (int i = 0; pool && i < 4; i++) {
        tarn_status status = tarn_pool_alloc(
            pool, storm_stream(worker), 1 + storm_below(worker, i % 2 ? MIB : 3000), &pointers[i]);
        CHECK(!status || storm_may_fail(status) || status == TARN_ERROR_SUSPENDED);
    }
    OK(tarn_pool_release(pool)); /* perhaps for the last time */
    for (int i = 0; i < 4; i++)
        OK(tarn_free(pointers[i]));
}

static void look_at(struct storm_worker *worker)
{
    tarn_stats stats = {.size = sizeof stats};
    tarn_pool_block blocks[8];
    size_t count = 0;
    unsigned counted = 0;
    tarn_pool_id id;
    tarn_pool *pool = pool_get(worker), *found = NULL;
    if (!pool)
        return;
    OK(tarn_pool_stats_get(pool, &stats));
    CHECK(stats.reserved_bytes[0].current <= (int64_t)MEMORY);
    OK(tarn_pool_blocks_get(pool, blocks, 8, &count));
    counted = pool_info_of(pool).use_count;
    CHECK(counted >= 1);
    id = pool_info_of(pool).id;
    OK(tarn_pool_find(id, &found));
    CHECK(found == pool);
    OK(tarn_pool_release(found));
    OK(tarn_pool_release(pool));
}

static void trim(struct storm_worker *worker)
{
    tarn_pool *pool = storm_below(worker, 2) ? pool_get(worker) : NULL;
    size_t keep = storm_below(worker, 2) ? 0 : storm_below(worker, LIMIT);
    tarn_status status = pool ? tarn_pool_trim(pool, keep) : tarn_device_trim(0, keep);
    CHECK(!status || storm_may_fail(status) || status == TARN_ERROR_CAPTURE);
    OK(tarn_pool_release(pool));
}

static void disturb(struct storm_worker *worker)
{
    switch (storm_below(worker, 5)) {
    case 0:
        OK(tarn_device_limit_set(0, storm_below(worker, 2) ? LIMIT : storm_below(worker, LIMIT)));
        break;
    case 1:
    case 2:
    case 3:
        storm_inject(worker);
        break;
    default:
        OK(tarn_host_advance(time_now() + storm_below(worker, 2000)));
    }
}

/* What may be done at any time. */
static void step_without_contents(struct storm_worker *worker, uint64_t what)
{
    if (what == 0)
        suspend(worker);
    else if (what < 3)
        disturb(worker);
    else if (what < 5)
        storm_renew_stream(worker);
    else if (what < 9)
        pool_change(worker);
    else if (what < 14)
        change_scope(worker);
    else if (what < 16)
        trim(worker);
    else if (what < 18)
        capture(worker);
    else if (what < 22)
        breathe(worker);
    else
        look_at(worker);
}

static void step(struct storm_worker *worker)
{
    struct storm_block *block = &worker->blocks[storm_below(worker, STORM_BLOCKS)];
    uint64_t what = storm_below(worker, 128);
    if (what < 24) {
        step_without_contents(worker, what);
        return;
    }
    pthread_rwlock_rdlock(&contents);
    if (!block->start)
        allocate(worker, block);
    else if (what < 40)
        storm_exchange(worker, block);
    else if (what < 52)
        storm_use(worker, block);
    else
        storm_end_block(worker, block);
    pthread_rwlock_unlock(&contents);
}

static void *storm(void *argument)
{
    struct storm_worker *worker = argument;
    for (int i = 0, count = storm_steps(STEPS); i < count; i++)
        step(worker);
    /* Half of the threads end in their scopes. */
    if (scopes[worker->number].joined && storm_below(worker, 2))
        OK(tarn_scope_end(scopes[worker->number].joined));
    else if (scopes[worker->number].begun && !scopes[worker->number].joined &&
             storm_below(worker, 2))
        OK(tarn_scope_end(scopes[worker->number].begun));
    else
        return NULL;
    if (!scopes[worker->number].joined)
        scopes[worker->number].begun = 0;
    scopes[worker->number].joined = 0;
    return NULL;
}

/* A scope that is not one of threads outlives the thread that began it. */
static void end_scope(tarn_scope scope)
{
    if (scope) {
        tarn_status status = tarn_scope_end(scope);
        CHECK(!status || status == TARN_ERROR_SCOPE);
    }
}

static void run(bool with_failures)
{
    memset(scopes, 0, sizeof scopes);
    storm_run(THREADS, storm, with_failures);
    atomic_fetch_add(&operations, (uint64_t)THREADS * (uint64_t)storm_steps(STEPS));
    joinable = 0;
    for (int i = 0; i < THREADS; i++)
        end_scope(scopes[i].begun);
    for (int i = 0; i < PLACES; i++) {
        OK(tarn_pool_release(places[i]));
        places[i] = NULL;
    }
    storm_finish();
}

static void threads_share_pools(void **state)
{
    (void)state;
    run(false);
}

static void threads_share_pools_while_calls_fail(void **state)
{
    (void)state;
    run(true);
}

static int report(void **state)
{
    (void)state;
    printf("seed %" PRIu64 ": %" PRIuFAST64 " operations, %" PRIuFAST64 " pools made, %" PRIuFAST64
           " suspends, %" PRIuFAST64 " captures\n",
           storm_seed, atomic_load(&operations), atomic_load(&made), atomic_load(&suspends),
           atomic_load(&captures));
    CHECK(made > 0 && captures > 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_pools),
        cmocka_unit_test(threads_share_pools_while_calls_fail),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, storm_set_up, report);
}
