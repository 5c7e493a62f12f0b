/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "driver/driver.h"
#include "support/host.h"
#include "support/live.h"

#include "memory/pool/pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (512 * MIB)

static size_t reserved_by(tarn_pool *pool)
{
    return (size_t)pool_stats_of(pool).reserved_bytes[0].current;
}

static tarn_pool *pool_new(void)
{
    return pool_with((tarn_pool_options){0});
}

static void *pool_alloc(tarn_pool *pool, tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    OK(tarn_pool_alloc(pool, stream, size, &pointer));
    return pointer;
}

static tarn_pool_id pool_of(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(pointer, &info));
    return info.pool;
}

static unsigned count_of(tarn_pool *pool)
{
    return pool_info_of(pool).use_count;
}

/* Where small blocks have segments of their own. */
static bool plain_segments(void)
{
    return !arena_if_used(0)->store.kind.pieces;
}

static bool is_id(tarn_pool_id id, uint64_t first, uint64_t second)
{
    return id.first == first && id.second == second;
}

static void ids_are_never_given_twice(void **state)
{
    (void)state;
    tarn_pool_id before = {0}, id;
    for (int i = 0; i < 10; i++) {
        tarn_pool *pool = pool_new();
        id = pool_info_of(pool).id;
        CHECK(id.first == 0 && id.second > before.second);
        before = id;
        OK(tarn_pool_release(pool));
    }
    int device = -1;
    tarn_pool *pool = NULL;
    OK(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 1},
                        &pool));
    device = pool_info_of(pool).device;
    CHECK(device == 1);
    OK(tarn_pool_release(pool));
}

static void blocks_name_their_pool_and_go_back_to_it(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_new();
    tarn_pool_id id = pool_info_of(pool).id;
    void *small = pool_alloc(pool, stream, 1000), *large = pool_alloc(pool, stream, 5 * MIB);
    void *other = alloc_on(stream, 1000);
    CHECK(is_id(pool_of(small), id.first, id.second) && is_id(pool_of(large), id.first, id.second));
    CHECK(is_id(pool_of(other), 0, 0));
    CHECK(pool_stats_of(pool).allocation[0].current == 2 && stats_of(0).allocation[0].current == 3);
    CHECK(reserved_by(pool) == 22 * MIB);
    verify(0);
    OK(tarn_free(small));
    OK(tarn_free(large));
    CHECK(pool_stats_of(pool).active_bytes[0].current == 0 && reserved_by(pool) == 22 * MIB);
    CHECK(pool_alloc(pool, stream, 5 * MIB) == large);
    CHECK(pool_alloc(pool, stream, 1000) == small);
    CHECK(!pool_alloc(pool, stream, 0));
    OK(tarn_free(small));
    OK(tarn_free(large));
    OK(tarn_free(other));
    OK(tarn_device_trim(0, 0)); /* of the default pool and what was left behind */
    CHECK(ledger_of(0).created == 22 * MIB);
    OK(tarn_pool_trim(pool, 2 * MIB));
    CHECK(reserved_by(pool) == 2 * MIB);
    OK(tarn_pool_release(pool)); /* gives the rest back at once */
    CHECK(ledger_of(0).created == 0);
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void a_pool_serves_nobody_else(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_new(), *other = pool_new();
    void *pointer = NULL;
    void *block = pool_alloc(pool, stream, 400 * MIB);
    OK(tarn_free(block));
    GIVES(tarn_alloc_on(stream, 200 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "Private pools reserve 400 MiB"));
    GIVES(tarn_pool_alloc(other, stream, 200 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!pointer && pool_stats_of(other).num_ooms == 1 && pool_stats_of(pool).num_ooms == 0);
    OK(tarn_pool_release(other));
    OK(tarn_pool_release(pool));
    OK(tarn_alloc_on(stream, 500 * MIB, &pointer));
    OK(tarn_free(pointer));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void what_lies_idle_in_the_default_pool_serves_a_pool_that_needs_it(void **state)
{
    (void)state;
    tarn_stream stream = lease(0), second = lease(0);
    tarn_pool *pool = pool_new();
    void *block = alloc_on(stream, 400 * MIB);
    work_on(stream, block, 400 * MIB, 1000);
    OK(tarn_free(block));
    void *inside = pool_alloc(pool, second, 300 * MIB); /* waits for the work */
    CHECK(reserved_by(pool) >= 300 * MIB);
    verify(0);
    OK(tarn_free(inside));
    void *same =
        pool_alloc(pool, stream, 450 * MIB); /* from the pool's other stream, and what is left of
                                                the default pool */
    verify(0);
    OK(tarn_free(same));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(second));
}

static void a_released_pool_lives_on_until_its_blocks_are_freed(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_new(), *found = NULL;
    tarn_pool_id id = pool_info_of(pool).id;
    OK(tarn_pool_find(id, &found));
    CHECK(found == pool && count_of(pool) == 2);
    OK(tarn_pool_release(found));
    char *block = pool_alloc(pool, stream, 3 * MIB), *small = pool_alloc(pool, stream, 700);
    void *freed = pool_alloc(pool, stream, 50 * MIB);
    memset(block, 7, 3 * MIB);
    memset(small, 8, 700);
    OK(tarn_free(freed));
    OK(tarn_pool_release(pool));
    uint64_t left = ledger_of(0).created;
    /* The 50 went back at once */
    CHECK(left == 4 * MIB || (plain_segments() && left == 22 * MIB));
    GIVES(tarn_pool_find(id, &found), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(is_id(pool_of(block), id.first, id.second));
    for (size_t i = 0; i < 3 * MIB; i += 4096)
        CHECK(block[i] == 7);
    CHECK(small[699] == 8);
    OK(tarn_device_trim(0, 0));
    verify(0);
    OK(tarn_free(small));
    OK(tarn_free(block));
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    void *next = alloc_on(stream, 4 * MIB); /* what it left behind serves the default pool */
    CHECK(ledger_of(0).created == left && is_id(pool_of(next), 0, 0));
    OK(tarn_free(next));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void a_stream_that_is_retired_gives_up_its_memory_in_every_pool(void **state)
{
    (void)state;
    tarn_stream stream = lease(0), adopted = 0;
    void *native = NULL;
    tarn_pool *pool = pool_new();
    OK(driver->stream_create(0, 0, false, &native));
    OK(tarn_stream_adopt(0, native, &adopted));
    void *blocks[] = {pool_alloc(pool, adopted, 30 * MIB), alloc_on(adopted, 30 * MIB),
                      pool_alloc(pool, adopted, 600)};
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    OK(tarn_stream_retire(adopted));
    size_t before = ledger_of(0).created;
    void *inside = pool_alloc(pool, stream, 30 * MIB);
    CHECK(ledger_of(0).created == before && reserved_by(pool) == 32 * MIB);
    OK(tarn_free(blocks[2]));
    OK(tarn_free(inside));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(driver->stream_destroy(0, native));
    OK(tarn_stream_return(stream));
}

static void a_limit_is_the_pools_own(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    void *pointer = NULL;
    size_t limit = pool_info_of(pool).limit;
    CHECK(limit == TARN_NO_LIMIT);
    OK(tarn_pool_limit_set(pool, 0)); /* is 0 */
    GIVES(tarn_pool_alloc(pool, stream, 100, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_pool_limit_set(pool, 64 * MIB));
    limit = pool_info_of(pool).limit;
    CHECK(limit == 64 * MIB);
    uint64_t creates = calls_of(0, "create");
    GIVES(tarn_pool_alloc(pool, stream, 65 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "of at most 64 MiB") && calls_of(0, "create") == creates);
    void *block = pool_alloc(pool, stream, 60 * MIB);
    GIVES(tarn_pool_alloc(pool, stream, 10 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    void *outside = alloc_on(stream, 100 * MIB);
    OK(tarn_pool_limit_set(pool, TARN_NO_LIMIT));
    OK(tarn_pool_alloc(pool, stream, 10 * MIB, &pointer));
    OK(tarn_free(pointer));
    OK(tarn_free(block));
    OK(tarn_free(outside));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

/* PyTorch: test_mempool_limited_memory_with_allocator, test_deleted_mempool_not_used_on_oom
 * (test/test_cuda.py). */
static void a_request_that_would_fail_is_served_by_a_pool_made_for_that(void **state)
{
    (void)state;
    tarn_stream stream = lease(0), second = lease(0);
    tarn_pool *spare = pool_with((tarn_pool_options){.use_on_oom = true}), *plain = pool_new(),
              *gone = pool_with((tarn_pool_options){.use_on_oom = true});
    void *pointer = NULL, *small = NULL;
    OK(tarn_free(pool_alloc(spare, stream, 100 * MIB)));
    OK(tarn_free(pool_alloc(plain, stream, 200 * MIB)));
    OK(tarn_free(pool_alloc(gone, stream, 10 * MIB)));
    OK(tarn_pool_release(gone));
    void *most = alloc_on(stream, 512 * MIB - 300 * MIB);
    int64_t ooms = stats_of(0).num_ooms;
    OK(tarn_alloc_on(stream, 90 * MIB, &pointer));
    tarn_pool_id id = pool_info_of(spare).id;
    CHECK(is_id(pool_of(pointer), id.first, id.second) && stats_of(0).num_ooms == ooms);
    OK(tarn_alloc_on(stream, 1000, &small)); /* a small one too: a slab in the rest */
    CHECK(is_id(pool_of(small), id.first, id.second));
    OK(tarn_free(small));
    GIVES(tarn_alloc_on(stream, 90 * MIB, &small), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(pointer)); /* back to that pool */
    CHECK(pool_stats_of(spare).allocation[0].current == 0);
    CHECK(pool_alloc(spare, stream, 90 * MIB) == pointer);
    OK(tarn_free(pointer));
    /* It lies free on another stream */
    GIVES(tarn_alloc_on(second, 90 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    /* Not for other pools */
    GIVES(tarn_pool_alloc(plain, stream, 290 * MIB, &pointer), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_free(most));
    OK(tarn_pool_release(spare));
    OK(tarn_pool_release(plain));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(second));
}

/* A device has stores of its own beside the pools': to take one for a pool would read behind it. */
static void only_a_private_pools_store_is_a_pool(void **state)
{
    (void)state;
    tarn_pool *pool = pool_new();
    struct arena *arena = arena_if_used(0);
    CHECK(!pool_of_store(&arena->store) && !pool_of_store(&arena->uncached) &&
          !pool_of_store(&arena->imports));
    struct store *store = &pool_of_public(pool)->store;
    CHECK(arena->pools.list == store && pool_of_store(store) == pool_of_public(pool));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

static void live_blocks_can_be_listed_and_compared(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_new();
    void *blocks[40];
    tarn_pool_block listed[40];
    size_t count = 7;
    bool same = false;
    OK(tarn_pool_blocks_get(pool, NULL, 0, &count));
    CHECK(count == 0);
    OK(live_are(pool, NULL, 0, &same));
    CHECK(same);
    for (size_t i = 0; i < 40; i++)
        blocks[i] = pool_alloc(pool, stream, 100 + i * 9000);
    OK(tarn_pool_blocks_get(pool, listed, 40, &count));
    CHECK(count == 40);
    for (size_t i = 0; i < 40; i++) {
        CHECK(i == 0 || listed[i].address > listed[i - 1].address);
        size_t k = 0;
        while (k < 40 && blocks[k] != listed[i].address)
            k++;
        CHECK(k < 40 && listed[i].requested == 100 + k * 9000 &&
              listed[i].usable_size >= listed[i].requested);
        CHECK(listed[i].stream == stream);
    }
    OK(live_are(pool, blocks, 40, &same));
    CHECK(same);
    OK(live_are(pool, blocks, 39, &same));
    CHECK(!same);
    void *wrong = blocks[3];
    blocks[3] = blocks[4]; /* twice the same, and one that is not there */
    OK(live_are(pool, blocks, 40, &same));
    CHECK(!same);
    blocks[3] = wrong;
    for (size_t i = 0; i < 40; i++)
        OK(tarn_free(blocks[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void ten_thousand_pools_one_after_the_other_cost_no_metadata(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    uint64_t before = 0;
    for (int i = 0; i < 10000; i++) {
        tarn_pool *pool = pool_new();
        OK(tarn_free(pool_alloc(pool, stream, i % 2 ? 1000 : 3 * MIB)));
        OK(tarn_pool_release(pool));
        if (i == 100)
            before = metadata_bytes();
    }
    CHECK(metadata_bytes() == before);
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = 3};
    tarn_pool_info info = {.size = sizeof info};
    GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_INVALID_ARGUMENT);
    options = (tarn_pool_options){.size = sizeof options, .device = 2};
    GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_INVALID_DEVICE);
    GIVES(tarn_pool_create(NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_retain(NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_pool_info_get(NULL, &info), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_pool_release(NULL));
    CHECK(!pool);
    pool = pool_new();
    GIVES(tarn_pool_info_get(pool, NULL), TARN_ERROR_INVALID_ARGUMENT);
    tarn_stream other = lease(1);
    void *pointer = NULL;
    GIVES(tarn_pool_alloc(pool, other, 1000, &pointer), TARN_ERROR_INVALID_STREAM);
    CHECK(!pointer);
    OK(tarn_pool_release(pool));
    OK(tarn_stream_return(other));
}

/* A hundred rounds of each of four threads: pools of their own and one that all share. */
static tarn_pool *shared;

static void *use_pools(void *argument)
{
    uint64_t seed = (uint64_t)(uintptr_t)argument * 77 + 5;
    tarn_stream stream = lease(0);
    for (int round = 0; round < 100; round++) {
        tarn_pool *own = pool_new();
        void *blocks[8];
        for (int i = 0; i < 8; i++)
            blocks[i] = pool_alloc(i % 2 ? own : shared, stream,
                                   1 + random_next(&seed) % (i < 4 ? 50000 : 2000000));
        if (round % 3 == 0)
            OK(tarn_pool_release(own));
        for (int i = 0; i < 8; i++)
            OK(tarn_free(blocks[i]));
        if (round % 3)
            OK(tarn_pool_release(own));
        if (round % 10 == 0)
            OK(tarn_device_trim(0, 0));
    }
    OK(tarn_stream_return(stream));
    return NULL;
}

static void threads_make_use_and_release_pools_at_once(void **state)
{
    (void)state;
    pthread_t threads[4];
    shared = pool_new();
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(!pthread_create(&threads[i], NULL, use_pools, (void *)(i + 1)));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK(count_of(shared) == 1);
    verify(0);
    OK(tarn_pool_release(shared));
    nothing_is_left(0);
}

/* A suspend asks all streams that use the pool's memory, those of other devices too. A sleep that
 * is prepared has the pool. */
static void a_suspend_asks_streams_of_other_devices(void **state)
{
    (void)state;
    if (plain_segments())
        return; /* they are not suspended */
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    tarn_pool_state now = TARN_POOL_RUNS;
    tarn_stream stream = lease(0), foreign = lease(1);
    void *block = alloc_in(pool, stream, 3 * MIB), *graph = NULL;
    OK(tarn_record_stream(block, foreign));
    OK(driver->capture_begin(1, native_of(foreign), DRIVER_CAPTURE_RELAXED)); /* tarn is not told */
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_CAPTURE);
    OK(driver->capture_end(1, native_of(foreign), &graph));
    OK(driver->graph_destroy(1, graph));
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    OK(tarn_sleep_prepare(NULL, NULL));
    now = pool_info_of(pool).state;
    CHECK(now == TARN_POOL_CHANGES);
    OK(tarn_sleep_cancel());
    now = pool_info_of(pool).state;
    CHECK(now == TARN_POOL_RUNS);
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(foreign));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_never_given_twice),
        cmocka_unit_test(blocks_name_their_pool_and_go_back_to_it),
        cmocka_unit_test(a_pool_serves_nobody_else),
        cmocka_unit_test(what_lies_idle_in_the_default_pool_serves_a_pool_that_needs_it),
        cmocka_unit_test(a_released_pool_lives_on_until_its_blocks_are_freed),
        cmocka_unit_test(a_stream_that_is_retired_gives_up_its_memory_in_every_pool),
        cmocka_unit_test(a_limit_is_the_pools_own),
        cmocka_unit_test(a_request_that_would_fail_is_served_by_a_pool_made_for_that),
        cmocka_unit_test(only_a_private_pools_store_is_a_pool),
        cmocka_unit_test(live_blocks_can_be_listed_and_compared),
        cmocka_unit_test(ten_thousand_pools_one_after_the_other_cost_no_metadata),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(threads_make_use_and_release_pools_at_once),
        cmocka_unit_test(a_suspend_asks_streams_of_other_devices),
    };
    host_start_with(2, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
