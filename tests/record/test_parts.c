/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Parts of the counters: whoever counts in which part, the sets say what they would say without
 * parts. A peak is the same to the byte where threads do not compete, and within the bound of the
 * header where they do. */
#include "record/counters.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POOLS 2
#define PARTS 4 /* of each pool */
#define LIVE 64
#define THREADS 4

/* Blocks without parts, to compare with. */
static struct counters device, pools[POOLS], plain_device, plain_pools[POOLS];
static struct counters_part parts[POOLS][PARTS];

static struct block {
    size_t size, requested;
    int pool, part;
    counters_oversize oversize, plain;
} blocks[LIVE];

static void start(void)
{
    counters_init(&device, NULL);
    counters_init(&plain_device, NULL);
    memset(parts, 0, sizeof parts);
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < POOLS; i++) {
        counters_init(&pools[i], &device);
        counters_init(&plain_pools[i], &plain_device);
    }
}

static counters_oversize allocate(struct counters *pool, struct counters_part *part, size_t size,
                                  size_t requested)
{
    counters_oversize oversize = 0;
    counters_part_lock(part);
    bool counted = counters_part_allocated_locked(part, size, requested);
    counters_part_unlock(part);
    if (counted)
        return 0;
    counters_take_up(&device, part);
    oversize = counters_allocated_locked(pool, part, size, requested);
    counters_return(&device, part, pool);
    return oversize;
}

static void give(struct block *block)
{
    counters_freed_and_completed(&pools[block->pool], &parts[block->pool][block->part], block->size,
                                 block->requested, block->oversize);
    counters_lock(&plain_device);
    counters_freed_and_completed_locked(&plain_pools[block->pool], NULL, block->size,
                                        block->requested, block->plain);
    counters_unlock(&plain_device);
    *block = (struct block){0};
}

static void same(struct counters *counters, struct counters *plain)
{
    tarn_stats stats, wanted;
    counters_read(counters, &stats);
    counters_read(plain, &wanted);
    assert_memory_equal(&stats, &wanted, sizeof stats);
}

static void all_same(void)
{
    same(&device, &plain_device);
    for (int i = 0; i < POOLS; i++)
        same(&pools[i], &plain_pools[i]);
}

/* A block that other streams use is counted in the sets alone, and is active longer than it is
 * live. */
static void wait_for_others(struct block *block)
{
    struct counters *both[] = {&pools[block->pool], &plain_pools[block->pool]};
    for (int i = 0; i < 2; i++) {
        counters_freed(both[i], block->size, block->requested, i ? block->plain : block->oversize);
    }
}

static void end_of_wait(struct block *block)
{
    counters_completed(&pools[block->pool], block->size);
    counters_completed(&plain_pools[block->pool], block->size);
    *block = (struct block){0};
}

static void one_step(uint64_t *random, bool waiting[LIVE])
{
    size_t i = random_next(random) % LIVE;
    struct block *block = &blocks[i];
    if (!block->size) {
        size_t requested = 1 + random_next(random) % (random_next(random) % 2 ? MIB : 40 * MIB);
        *block = (struct block){.size = (requested + 511) & ~(size_t)511,
                                .requested = requested,
                                .pool = (int)(random_next(random) % POOLS),
                                .part = (int)(random_next(random) % PARTS)};
        block->oversize =
            allocate(&pools[block->pool], &parts[block->pool][block->part], block->size, requested);
        counters_lock(&plain_device);
        block->plain =
            counters_allocated_locked(&plain_pools[block->pool], NULL, block->size, requested);
        counters_unlock(&plain_device);
        assert_int_equal(block->oversize, block->plain);
    } else if (waiting[i]) {
        waiting[i] = false;
        end_of_wait(block);
    } else if (random_next(random) % 8 == 0) {
        waiting[i] = true;
        wait_for_others(block);
    } else {
        give(block);
    }
}

static void rare_step(uint64_t *random)
{
    struct counters_small small = {3, 2, 3000, 2000, 2900, 1900};
    struct counters_part *part = &parts[random_next(random) % POOLS][random_next(random) % PARTS];
    int pool = (int)(random_next(random) % POOLS);
    switch (random_next(random) % 8) {
    case 0:
        all_same();
        break;
    case 1:
        counters_reset_peak(&device);
        counters_reset_peak(&plain_device);
        break;
    case 2:
        counters_reset_accumulated(&pools[pool]);
        counters_reset_accumulated(&plain_pools[pool]);
        break;
    case 3:
        counters_part_close(part);
        break;
    case 4:
        counters_publish(&pools[pool], &small);
        counters_publish(&plain_pools[pool], &small);
        break;
    case 5: {
        int64_t limit = random_next(random) % 2 ? -1 : (int64_t)(20 * MIB);
        counters_max_split(&pools[pool], limit);
        counters_max_split(&plain_pools[pool], limit);
        break;
    }
    default:
        break;
    }
}

static void one_thread_has_the_same_peaks_as_without_parts(void **state)
{
    (void)state;
    uint64_t random = 7;
    bool waiting[LIVE] = {false};
    start();
    for (int step = 0; step < 100000; step++) {
        one_step(&random, waiting);
        if (random_next(&random) % 200 == 0)
            rare_step(&random);
    }
    all_same();
}

/* What one part counts by itself is in the statistics of its pool and of the device, and only
 * there. */
static void a_part_is_in_the_sets_of_its_pool_and_of_the_device(void **state)
{
    (void)state;
    tarn_stats stats;
    start();
    struct counters_part *part = &parts[0][0];
    (void)allocate(&pools[0], part, 8 * MIB, 8 * MIB);
    counters_freed_and_completed(&pools[0], part, 8 * MIB, 8 * MIB, 0);
    counters_part_lock(part);
    assert_true(counters_part_allocated_locked(part, 8 * MIB, 8 * MIB - 1));
    assert_false(counters_part_allocated_locked(part, 512, 1)); /* a new peak */
    counters_part_unlock(part);
    counters_read(&device, &stats);
    assert_int_equal(stats.allocated_bytes[TARN_STAT_LARGE_POOL].current, 8 * MIB);
    assert_int_equal(stats.requested_bytes[TARN_STAT_ALL].current, 8 * MIB - 1);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].allocated, 2);
    counters_read(&pools[1], &stats);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].allocated, 0);
    counters_read(&pools[0], &stats);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].current, 1);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].freed, 1);
    assert_int_equal(stats.active_bytes[TARN_STAT_ALL].peak, 8 * MIB);
}

/* Two threads that take turns. */
static pthread_barrier_t turn;
static int rounds;
static size_t held; /* bytes, at most, by each */

static void *compete(void *argument)
{
    struct counters_part *part = argument;
    bool first = part == &parts[0][0];
    for (int i = 0; i < rounds; i++) {
        if (!first)
            pthread_barrier_wait(&turn);
        (void)allocate(&pools[0], part, held, held);
        if (first)
            pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
        counters_freed_and_completed(&pools[0], part, held, held, 0);
        pthread_barrier_wait(&turn);
    }
    return NULL;
}

static void two_compete(int times, size_t size)
{
    pthread_t threads[2];
    rounds = times;
    held = size;
    pthread_barrier_init(&turn, NULL, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compete, &parts[0][i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&turn);
}

static bool is_apart(const struct counters_part *part)
{
    return part->state == COUNTERS_APART;
}

static void who_competes_counts_apart_until_nobody_does(void **state)
{
    (void)state;
    tarn_stats stats;
    start();
    two_compete(16, 32 * MIB);
    assert_true(is_apart(&parts[0][0]) && is_apart(&parts[0][1]));
    counters_read(&device, &stats);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].allocated, 32);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].freed, 32);
    assert_int_equal(stats.allocated_bytes[TARN_STAT_ALL].current, 0);
    /* From before they were apart */
    assert_int_equal(stats.allocated_bytes[TARN_STAT_ALL].peak, 64 * MIB);

    /* Alone: what is too much for a part is published, and from the second time on by the same
     * thread it is exact again. */
    int64_t before = COUNTERS_APART_LARGE;
    for (int i = 0; i < 3; i++)
        (void)allocate(&pools[0], &parts[0][0], (size_t)before, (size_t)before);
    assert_int_equal(parts[0][0].state, COUNTERS_EXACT);
    counters_freed_and_completed(&pools[0], &parts[0][0], (size_t)before, (size_t)before, 0);
    counters_read(&device, &stats);
    assert_int_equal(stats.allocated_bytes[TARN_STAT_ALL].peak, 3 * before);
    assert_int_equal(stats.allocation[TARN_STAT_ALL].allocated, 32 + 3);

    /* A reset of the peaks begins anew. */
    two_compete(16, MIB);
    assert_true(is_apart(&parts[0][1]));
    counters_reset_peak(&pools[0]);
    assert_int_equal(parts[0][1].state, COUNTERS_CLOSED);
    (void)allocate(&pools[0], &parts[0][1], MIB, MIB);
    assert_int_equal(parts[0][1].state, COUNTERS_EXACT);
}

static void parts_apart_hold_the_bound_of_the_peak(void **state)
{
    (void)state;
    tarn_stats stats;
    int64_t live[2] = {0}, peak = 0;
    uint64_t random = 11;
    size_t sizes[2][LIVE] = {{0}};
    start();
    two_compete(16, 2 * MIB);
    counters_read(&device, &stats);
    peak = stats.allocated_bytes[TARN_STAT_LARGE_POOL].peak;
    for (int step = 0; step < 50000; step++) {
        int i = (int)(random_next(&random) % 2);
        size_t *size = &sizes[i][random_next(&random) % LIVE];
        parts[0][i].lost = UINT32_MAX / 2; /* as if another thread competed */
        device.thread = (pthread_t){0};
        if (*size) {
            counters_freed_and_completed(&pools[0], &parts[0][i], *size, *size, 0);
            live[i] -= (int64_t)*size;
            *size = 0;
        } else {
            *size = (1 + random_next(&random) % 64) * 2 * MIB;
            (void)allocate(&pools[0], &parts[0][i], *size, *size);
            live[i] += (int64_t)*size;
        }
        assert_true(parts[0][i].state != COUNTERS_EXACT);
        peak = live[0] + live[1] > peak ? live[0] + live[1] : peak;
        counters_lock(&device);
        int64_t said = device.peak[TARN_STAT_LARGE_POOL].bytes;
        counters_unlock(&device);
        assert_true(llabs(said - peak) <= 2 * COUNTERS_APART_LARGE);
        for (int part = 0; part < 2; part++)
            assert_true(llabs(parts[0][part].of[1].most.bytes - parts[0][part].of[1].room.bytes) <=
                        COUNTERS_APART_LARGE);
    }
    counters_read(&device, &stats);
    assert_int_equal(stats.allocated_bytes[TARN_STAT_LARGE_POOL].current, live[0] + live[1]);
}

/* A storm: each thread with a part of its own, and now and then another's; who reads and resets
 * beside them. */
static atomic_bool ends;
static struct counters_part *const shared = &parts[1][0];

static void *storm(void *argument)
{
    struct counters_part *own = argument;
    uint64_t random = (uintptr_t)own;
    size_t sizes[LIVE] = {0};
    for (int step = 0; step < 30000; step++) {
        size_t i = random_next(&random) % LIVE;
        struct counters_part *part = i % 8 ? own : shared;
        struct counters *pool = i % 8 ? &pools[0] : &pools[1];
        if (sizes[i])
            counters_freed_and_completed(pool, part, sizes[i], sizes[i], 0);
        else
            (void)allocate(pool, part, (i + 1) << 18, (i + 1) << 18);
        sizes[i] = sizes[i] ? 0 : (i + 1) << 18;
        if (random_next(&random) % 500 == 0)
            counters_part_close(own);
    }
    for (size_t i = 0; i < LIVE; i++)
        if (sizes[i])
            counters_freed_and_completed(i % 8 ? &pools[0] : &pools[1], i % 8 ? own : shared,
                                         sizes[i], sizes[i], 0);
    return NULL;
}

static void *watch(void *argument)
{
    (void)argument;
    for (int i = 0; !atomic_load(&ends); i++) {
        tarn_stats stats;
        counters_read(i % 2 ? &device : &pools[1], &stats);
        CHECK(stats.allocation[TARN_STAT_ALL].current >= 0);
        CHECK(stats.allocated_bytes[TARN_STAT_ALL].peak >=
              stats.allocated_bytes[TARN_STAT_ALL].current);
        if (i % 64 == 0)
            counters_reset_peak(&device);
        if (i % 100 == 0)
            counters_max_split(&pools[1], i % 200 ? -1 : INT64_MAX);
        sched_yield();
    }
    return NULL;
}

static void nothing_is_lost_in_a_storm(void **state)
{
    (void)state;
    pthread_t threads[THREADS], watcher;
    start();
    atomic_store(&ends, false);
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, storm, &parts[0][i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&ends, true);
    pthread_join(watcher, NULL);
    struct counters *sets[] = {&device, &pools[0], &pools[1]};
    for (int i = 0; i < 3; i++) {
        tarn_stats stats;
        counters_read(sets[i], &stats);
        for (int class = 0; class < TARN_STAT_CLASSES; class ++) {
            assert_int_equal(stats.allocation[class].current, 0);
            assert_int_equal(stats.allocated_bytes[class].current, 0);
            assert_int_equal(stats.requested_bytes[class].current, 0);
            assert_int_equal(stats.allocation[class].allocated, stats.allocation[class].freed);
        }
        assert_true(stats.allocation[TARN_STAT_ALL].allocated > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_has_the_same_peaks_as_without_parts),
        cmocka_unit_test(a_part_is_in_the_sets_of_its_pool_and_of_the_device),
        cmocka_unit_test(who_competes_counts_apart_until_nobody_does),
        cmocka_unit_test(parts_apart_hold_the_bound_of_the_peak),
        cmocka_unit_test(nothing_is_lost_in_a_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
