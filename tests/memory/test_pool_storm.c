/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The storm of private pools: each thread does at random whatever the headers allow with pools that all of them share. Pools are made,
 * counted and released, with blocks that others free later; scopes are begun, joined, left and ended; pools are trimmed, suspended
 * and resumed; streams capture into pools, graphs are launched and destroyed; streams are adopted and retired at full speed; memory
 * is short. What is checked: no two live blocks share a unit, a live block holds what its thread wrote and is of a pool that may have
 * served it, a free of a live block succeeds, only statuses come that may, and in the end nothing is left. TARN_SEED and TARN_STORM_STEPS
 * say which storm. */
#include "base/pages.h"
#include "support/host.h"
#include "support/shadow.h"
#include "support/snapshots.h"

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
#define SHARED 3
#define BLOCKS 24
#define MAILBOXES 16
#define PLACES 5
#define MEMORY (4096 * MIB) /* room for a resume, whatever the others hold meanwhile */
#define LIMIT (128 * MIB)   /* what the threads have otherwise */

struct block {
    unsigned char *start;
    size_t size;
    unsigned char paint;
};

/* Pools that every thread may use. Whoever uses one counts it first, under the lock; who replaces it releases what lay there. What
 * touches a block's contents shares `contents`, since nothing may use a pool's memory while it is suspended. */
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static tarn_pool *places[PLACES];
static pthread_rwlock_t contents = PTHREAD_RWLOCK_INITIALIZER;
static tarn_scope joinable; /* places_lock: one of threads that may be open */
static tarn_stream shared[SHARED];
static _Atomic(struct block *) mailboxes[MAILBOXES];
static atomic_uint_fast64_t operations, made, suspends, captures;
static uint64_t seed = 1;
static bool inject;

struct worker {
    uint64_t random;
    tarn_stream adopted;
    void *native;
    tarn_scope begun, joined;
    struct block blocks[BLOCKS];
};

static int steps(void)
{
    const char *text = getenv("TARN_STORM_STEPS");
    return text ? atoi(text) : 1000;
}

static uint64_t below(struct worker *worker, uint64_t limit)
{
    return random_next(&worker->random) % limit;
}

static bool may_fail(tarn_status status)
{
    return status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_OUT_OF_HOST_MEMORY ||
           (inject && (status == TARN_ERROR_DRIVER || status == TARN_ERROR_MAPPING_LIMIT));
}

static void paint(const struct block *block)
{
    for (size_t i = 0; i < block->size; i += block->size / 37 + 1)
        block->start[i] = block->paint;
    block->start[block->size - 1] = block->paint;
}

static void check_paint(const struct block *block)
{
    bool whole = block->start[block->size - 1] == block->paint;
    for (size_t i = 0; i < block->size && whole; i += block->size / 37 + 1)
        whole = block->start[i] == block->paint;
    CHECK(whole);
}

static tarn_stream some_stream(struct worker *worker)
{
    uint64_t which = below(worker, 2 + SHARED);
    return which == 0 ? TARN_STREAM_LEGACY : which == 1 ? worker->adopted : shared[which - 2];
}

/* A pool counted for the caller, or NULL. */
static tarn_pool *pool_get(struct worker *worker)
{
    pthread_mutex_lock(&places_lock);
    tarn_pool *pool = places[below(worker, PLACES)];
    if (pool)
        OK(tarn_pool_retain(pool));
    pthread_mutex_unlock(&places_lock);
    return pool;
}

/* Another pool in a place, or none; what lay there is released, whoever has blocks of it or scopes on it. */
static void pool_change(struct worker *worker)
{
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options,
                                 .device = 0,
                                 .limit = below(worker, 3) ? 0 : below(worker, LIMIT),
                                 .use_on_oom = below(worker, 3) == 0,
                                 .no_remap = below(worker, 3) == 0};
    if (below(worker, 4)) {
        tarn_status status = tarn_pool_create(&options, &pool);
        CHECK(!status || may_fail(status));
        atomic_fetch_add(&made, status == TARN_OK);
    }
    pthread_mutex_lock(&places_lock);
    tarn_pool **place = &places[below(worker, PLACES)], *before = *place;
    *place = pool;
    pthread_mutex_unlock(&places_lock);
    OK(tarn_pool_release(before));
}

/* All but a suspended pool gives memory. */
static void allocate(struct worker *worker, struct block *block)
{
    static const size_t most[] = {2000, 2000, 70000, 70000, MIB, 3 * MIB, 12 * MIB, 30 * MIB};
    void *start = NULL;
    size_t size = 1 + below(worker, most[below(worker, 8)]);
    tarn_status status;
    tarn_pool *pool = below(worker, 3) ? NULL : pool_get(worker);
    if (pool) {
        status = tarn_pool_alloc(pool, some_stream(worker), size, &start);
        if (!status) {
            tarn_block_info info = {.size = sizeof info};
            tarn_pool_id id;
            OK(tarn_pool_id_get(pool, &id));
            OK(tarn_pointer_info(start, &info));
            CHECK(info.pool.first == id.first && info.pool.second == id.second);
        }
        OK(tarn_pool_release(pool));
    } else if (below(worker, 2)) {
        start = tarn_malloc(size);
        status = start ? TARN_OK : tarn_last_status();
    } else {
        status = tarn_alloc_on(some_stream(worker), size, &start);
    }
    CHECK((start != NULL) == (status == TARN_OK));
    CHECK(!status || may_fail(status) || status == TARN_ERROR_SUSPENDED);
    if (!status) {
        *block = (struct block){start, size, (unsigned char)below(worker, 256)};
        shadow_enter(start, size);
        paint(block);
    }
}

static void release(struct worker *worker, struct block *block)
{
    tarn_status status = TARN_ERROR_NO_ROOM;
    check_paint(block);
    shadow_leave(block->start, block->size); /* before anybody else can have it */
    if (below(worker, 4) == 0)
        status = tarn_free_on(block->start, some_stream(worker));
    if (status) {
        CHECK(status == TARN_ERROR_NO_ROOM || may_fail(status));
        check_paint(block);
        OK(tarn_free(block->start));
    }
    block->start = NULL;
}

/* Another stream's work, after which the block waits when it is freed; or more room in place. */
static void use(struct worker *worker, struct block *block)
{
    size_t size = 0;
    if (below(worker, 2)) {
        tarn_stream stream = some_stream(worker);
        tarn_status status = tarn_record_stream(block->start, stream);
        CHECK(!status || may_fail(status));
        (void)tarn_host_work(0, native_of(stream), block->start, block->size, below(worker, 3000));
    } else if (tarn_extend(block->start, block->size + below(worker, 4096)) == TARN_OK) {
        OK(tarn_usable_size(block->start, &size));
        shadow_leave(block->start, block->size);
        shadow_enter(block->start, size);
        block->size = size;
        paint(block);
    }
}

static void exchange(struct worker *worker, struct block *block)
{
    struct block *parcel = malloc(sizeof *parcel);
    CHECK(parcel);
    *parcel = *block;
    parcel = atomic_exchange(&mailboxes[below(worker, MAILBOXES)], parcel);
    block->start = NULL;
    if (parcel)
        *block = *parcel;
    free(parcel);
}

static void renew_stream(struct worker *worker)
{
    tarn_status status = tarn_stream_retire(worker->adopted);
    if (status) {
        CHECK(may_fail(status));
        return;
    }
    while ((status = tarn_stream_adopt(0, worker->native, &worker->adopted)))
        CHECK(may_fail(status));
}

static void change_scope(struct worker *worker)
{
    tarn_scope scope = 0;
    tarn_status status;
    if (worker->joined) {
        OK(tarn_scope_leave(worker->joined)); /* newer than the one begun */
        worker->joined = 0;
    } else if (below(worker, 3) == 0) {
        pthread_mutex_lock(&places_lock);
        scope = joinable;
        pthread_mutex_unlock(&places_lock);
        status = scope ? tarn_scope_join(scope) : TARN_ERROR_SCOPE;
        CHECK(!status || status == TARN_ERROR_SCOPE || may_fail(status));
        if (!status && scope != worker->begun)
            worker->joined = scope;
    } else if (worker->begun) {
        OK(tarn_scope_end(worker->begun));
        worker->begun = 0;
    } else {
        tarn_pool *pool = pool_get(worker);
        int kind = (int)below(worker, 3);
        status = pool ? tarn_scope_begin(pool, (tarn_scope_kind)kind, some_stream(worker), &worker->begun) : TARN_OK;
        CHECK(!status || status == TARN_ERROR_SCOPE || may_fail(status));
        if (!status && pool && kind == TARN_SCOPE_THREAD) {
            pthread_mutex_lock(&places_lock);
            joinable = worker->begun;
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
static void suspend(struct worker *worker)
{
    tarn_pool *pool = pool_get(worker);
    if (!pool)
        return;
    pthread_rwlock_wrlock(&contents);
    tarn_status status = tarn_pool_suspend(pool, true);
    CHECK(!status || may_fail(status) || status == TARN_ERROR_CAPTURE || status == TARN_ERROR_SUSPENDED);
    tarn_pool_state state = TARN_POOL_RUNS;
    OK(tarn_pool_state_get(pool, &state));
    atomic_fetch_add(&suspends, state != TARN_POOL_RUNS);
    while (state != TARN_POOL_RUNS) {
        pages_fail(0, false);
        OK(tarn_host_fail(-1, 0, false, TARN_OK));
        OK(tarn_limit_set(0, SIZE_MAX));
        OK(tarn_pool_limit_set(pool, SIZE_MAX));
        status = tarn_pool_resume(pool);
        CHECK(!status || status == TARN_ERROR_CAPTURE || may_fail(status));
        OK(tarn_pool_state_get(pool, &state));
        trim_all();
    }
    OK(tarn_limit_set(0, LIMIT));
    pthread_rwlock_unlock(&contents);
    OK(tarn_pool_release(pool));
}

/* A capture on a stream of the thread's own, with memory that it frees itself. */
static void capture(struct worker *worker)
{
    tarn_pool *pool = below(worker, 2) ? pool_get(worker) : NULL;
    void *graph = NULL, *inside[2] = {0};
    tarn_status status = tarn_pool_capture_begin(pool, worker->adopted, TARN_CAPTURE_THREAD_LOCAL);
    CHECK(!status || may_fail(status) || status == TARN_ERROR_BUSY);
    OK(tarn_pool_release(pool));
    if (status)
        return;
    atomic_fetch_add(&captures, 1);
    for (int i = 0; i < 2; i++) {
        status = tarn_alloc_on(worker->adopted, 1 + below(worker, i ? 3 * MIB : 5000), &inside[i]);
        CHECK(!status || may_fail(status) || status == TARN_ERROR_SUSPENDED);
    }
    for (int i = 0; i < 2; i++)
        if (inside[i])
            OK(tarn_free(inside[i]));
    if (below(worker, 4) == 0) {
        while ((status = tarn_capture_abort(worker->adopted)) && status != TARN_ERROR_INVALID_ARGUMENT)
            CHECK(may_fail(status));
        CHECK(!status || inject); /* over, but the driver would not destroy the graph */
        return;
    }
    while ((status = tarn_capture_end(worker->adopted, &graph)) && inject) {
        CHECK(may_fail(status) || status == TARN_ERROR_INVALID_ARGUMENT); /* over without a graph, which was not held */
        if (status == TARN_ERROR_INVALID_ARGUMENT)
            return;
    }
    OK(status);
    (void)tarn_host_graph_launch(0, graph, worker->native);
    OK(tarn_host_graph_destroy(graph));
}

/* Without a touch of the memory: also while the pool is being suspended. */
static void breathe(struct worker *worker)
{
    void *pointers[4] = {0};
    tarn_pool *pool = pool_get(worker);
    for (int i = 0; pool && i < 4; i++) {
        tarn_status status =
            tarn_pool_alloc(pool, some_stream(worker), 1 + below(worker, i % 2 ? MIB : 3000), &pointers[i]);
        CHECK(!status || may_fail(status) || status == TARN_ERROR_SUSPENDED);
    }
    OK(tarn_pool_release(pool)); /* perhaps for the last time */
    for (int i = 0; i < 4; i++)
        OK(tarn_free(pointers[i]));
}

static void look_at(struct worker *worker)
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
    OK(tarn_pool_blocks(pool, blocks, 8, &count));
    OK(tarn_pool_use_count(pool, &counted));
    CHECK(counted >= 1);
    OK(tarn_pool_id_get(pool, &id));
    OK(tarn_pool_find(id, &found));
    CHECK(found == pool);
    OK(tarn_pool_release(found));
    OK(tarn_pool_stats_reset_peak(pool));
    OK(tarn_pool_release(pool));
}

static void trim(struct worker *worker)
{
    tarn_pool *pool = below(worker, 2) ? pool_get(worker) : NULL;
    size_t keep = below(worker, 2) ? 0 : below(worker, LIMIT);
    tarn_status status = pool ? tarn_pool_trim(pool, keep) : tarn_trim(0, keep);
    CHECK(!status || may_fail(status) || status == TARN_ERROR_CAPTURE);
    OK(tarn_pool_release(pool));
}

static void disturb(struct worker *worker)
{
    static const tarn_status failures[] = {TARN_ERROR_OUT_OF_MEMORY, TARN_ERROR_DRIVER, TARN_ERROR_MAPPING_LIMIT};
    switch (below(worker, 5)) {
    case 0:
        OK(tarn_limit_set(0, below(worker, 2) ? LIMIT : below(worker, LIMIT)));
        break;
    case 1:
        if (inject)
            OK(tarn_host_fail((int)below(worker, (uint64_t)tarn_host_call_kinds() + 1) - 1, 1 + below(worker, 20),
                              below(worker, 4) == 0, failures[below(worker, 3)]));
        break;
    case 2:
        if (inject)
            OK(tarn_host_fail(-1, 0, false, TARN_OK));
        break;
    case 3:
        if (inject)
            pages_fail(below(worker, 2) ? 0 : 1 + below(worker, 50), below(worker, 8) == 0);
        break;
    default:
        OK(tarn_host_advance(time_now() + below(worker, 2000)));
    }
}

/* What may be done at any time. */
static void step_without_contents(struct worker *worker, uint64_t what)
{
    if (what == 0)
        suspend(worker);
    else if (what < 3)
        disturb(worker);
    else if (what < 5)
        renew_stream(worker);
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

static void step(struct worker *worker)
{
    struct block *block = &worker->blocks[below(worker, BLOCKS)];
    uint64_t what = below(worker, 128);
    if (what < 24) {
        step_without_contents(worker, what);
        return;
    }
    pthread_rwlock_rdlock(&contents);
    if (!block->start)
        allocate(worker, block);
    else if (what < 40)
        exchange(worker, block);
    else if (what < 52)
        use(worker, block);
    else
        release(worker, block);
    pthread_rwlock_unlock(&contents);
}

static void *storm(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0, count = steps(); i < count; i++)
        step(worker);
    /* Half of the threads end in their scopes. */
    if (worker->joined && below(worker, 2))
        OK(tarn_scope_leave(worker->joined));
    else if (worker->begun && !worker->joined && below(worker, 2))
        OK(tarn_scope_end(worker->begun));
    else
        return NULL;
    if (!worker->joined)
        worker->begun = 0;
    worker->joined = 0;
    return NULL;
}

/* A scope that is not one of threads outlives the thread that began it. */
static void end_scope(const struct worker *worker)
{
    if (worker->begun) {
        tarn_status status = tarn_scope_end(worker->begun);
        CHECK(!status || status == TARN_ERROR_SCOPE);
    }
}

static void run(bool with_failures)
{
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    inject = with_failures;
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = (seed * THREADS + i + 1) * 0x9e3779b97f4a7c15u;
        workers[i].native = native_of(lease(0));
        OK(tarn_stream_adopt(0, workers[i].native, &workers[i].adopted));
    }
    snapshots_begin(with_failures);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, storm, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_fetch_add(&operations, (uint64_t)THREADS * (uint64_t)steps());
    pages_fail(0, false);
    snapshots_end();
    OK(tarn_host_fail(-1, 0, false, TARN_OK));
    OK(tarn_limit_set(0, SIZE_MAX));
    verify(0);
    joinable = 0;
    for (int i = 0; i < THREADS; i++) {
        end_scope(&workers[i]);
        for (int k = 0; k < BLOCKS; k++)
            if (workers[i].blocks[k].start)
                release(&workers[i], &workers[i].blocks[k]);
    }
    for (int i = 0; i < MAILBOXES; i++) {
        struct block *parcel = atomic_exchange(&mailboxes[i], NULL);
        if (parcel && parcel->start)
            release(&workers[0], parcel);
        free(parcel);
    }
    for (int i = 0; i < PLACES; i++) {
        OK(tarn_pool_release(places[i]));
        places[i] = NULL;
    }
    for (int i = 0; i < THREADS; i++)
        OK(tarn_stream_retire(workers[i].adopted));
    shadow_is_empty();
    verify(0);
    nothing_is_left(0);
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

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < SHARED; i++)
        shared[i] = lease(0);
    return 0;
}

static int report(void **state)
{
    (void)state;
    printf("seed %" PRIu64 ": %" PRIuFAST64 " operations, %" PRIuFAST64 " pools made, %" PRIuFAST64
           " suspends, %" PRIuFAST64 " captures\n",
           seed, atomic_load(&operations), atomic_load(&made), atomic_load(&suspends), atomic_load(&captures));
    CHECK(made > 0 && captures > 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_pools),
        cmocka_unit_test(threads_share_pools_while_calls_fail),
    };
    const char *text = getenv("TARN_SEED");
    if (text)
        seed = strtoull(text, NULL, 10);
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, report);
}
