/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Large blocks of many threads, each on a stream of its own: what a heap counts by itself is in the
 * statistics whenever nobody allocates, whatever goes on between: pools that end, streams that are
 * retired, blocks that others free or use, resets, trims, readers. TARN_STORM_STEPS is the
 * length. */
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#define THREADS 6
#define PHASES 4 /* between which nobody allocates */
#define OWN 16
#define MAILBOXES 16

/* What a thread has, or passes on. */
struct held {
    void *block;
    size_t size;
};

struct blower {
    pthread_t thread;
    uint64_t random;
    tarn_stream stream;
    tarn_pool *pool; /* or NULL */
    struct held own[OWN];
    bool of_pool[OWN];
};

static struct blower blowers[THREADS];
static struct held mailboxes[MAILBOXES];
static pthread_mutex_t mailboxes_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t rest;
static atomic_bool ends;

static int steps(void)
{
    const char *text = getenv("TARN_STORM_STEPS");
    return text ? atoi(text) : 3000;
}

static size_t random_size(uint64_t *random)
{
    return 65537 + random_next(random) % (random_next(random) % 2 ? MIB : 6 * MIB);
}

/* Exchanges what a thread has with what lies in a mailbox, so that another frees it. */
static void pass(struct blower *blower, struct held *held)
{
    struct held *box = &mailboxes[random_next(&blower->random) % MAILBOXES];
    pthread_mutex_lock(&mailboxes_lock);
    struct held found = *box;
    *box = *held;
    pthread_mutex_unlock(&mailboxes_lock);
    *held = found;
}

static void give(struct blower *blower, int i)
{
    struct held *held = &blower->own[i];
    if (held->block && random_next(&blower->random) % 16 == 0)
        OK(tarn_record_stream(held->block, blowers[random_next(&blower->random) % THREADS].stream));
    OK(tarn_free(held->block));
    *held = (struct held){0};
    blower->of_pool[i] = false;
}

/* A pool ends, and its heap is another's then. */
static void change_pool(struct blower *blower)
{
    for (int i = 0; i < OWN; i++)
        if (blower->of_pool[i])
            give(blower, i);
    if (blower->pool)
        OK(tarn_pool_release(blower->pool));
    blower->pool = pool_with((tarn_pool_options){0});
}

static void take(struct blower *blower, int i)
{
    size_t size = random_size(&blower->random);
    bool of_pool = blower->pool && random_next(&blower->random) % 4 == 0;
    blower->own[i].block =
        of_pool ? alloc_in(blower->pool, blower->stream, size) : alloc_on(blower->stream, size);
    blower->own[i].size = size;
    blower->of_pool[i] = of_pool;
}

static void step(struct blower *blower)
{
    int i = (int)(random_next(&blower->random) % OWN);
    if (!blower->own[i].block)
        take(blower, i);
    else if (!blower->of_pool[i] && random_next(&blower->random) % 8 == 0)
        pass(blower, &blower->own[i]);
    else
        give(blower, i);
    if (random_next(&blower->random) % 400 == 0)
        change_pool(blower);
    if (random_next(&blower->random) % 1000 == 0)
        (void)tarn_device_trim(0, 0);
}

static void *blow(void *argument)
{
    struct blower *blower = argument;
    for (int phase = 0; phase < PHASES; phase++) {
        for (int i = 0; i < steps() / PHASES; i++)
            step(blower);
        pthread_barrier_wait(&rest);
        pthread_barrier_wait(&rest); /* looked at */
    }
    return NULL;
}

static void *watch(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    while (!atomic_load(&ends)) {
        tarn_stats stats = stats_of(0);
        CHECK(stats.allocated_bytes[TARN_STAT_ALL].peak >= 0);
        if (random_next(&random) % 8 == 0)
            OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
        if (random_next(&random) % 64 == 0)
            OK(tarn_device_trim(0, 0));
        OK(tarn_host_advance(time_now() + 50));
    }
    return NULL;
}

static void add(const struct held *held, int64_t *blocks, int64_t *bytes)
{
    *blocks += held->block != NULL;
    *bytes += held->block ? (int64_t)held->size : 0;
}

/* What threads have and what is passed on, by their own books. */
static void check_at_rest(void)
{
    int64_t blocks = 0, bytes = 0;
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < OWN; k++)
            add(&blowers[i].own[k], &blocks, &bytes);
    for (int i = 0; i < MAILBOXES; i++)
        add(&mailboxes[i], &blocks, &bytes);
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[TARN_STAT_ALL].current == blocks);
    CHECK(stats.requested_bytes[TARN_STAT_ALL].current == bytes);
    CHECK(stats.allocation[TARN_STAT_ALL].allocated - stats.allocation[TARN_STAT_ALL].freed ==
          blocks);
    CHECK(stats.allocation[TARN_STAT_SMALL_POOL].current +
              stats.allocation[TARN_STAT_LARGE_POOL].current ==
          blocks);
    CHECK(stats.allocated_bytes[TARN_STAT_ALL].peak >=
          stats.allocated_bytes[TARN_STAT_ALL].current);
    for (int i = 0; i < THREADS; i++) {
        blocks = bytes = 0;
        for (int k = 0; k < OWN && blowers[i].pool; k++)
            if (blowers[i].of_pool[k])
                add(&blowers[i].own[k], &blocks, &bytes);
        if (!blowers[i].pool)
            continue;
        stats = pool_stats_of(blowers[i].pool);
        CHECK(stats.allocation[TARN_STAT_ALL].current == blocks);
        CHECK(stats.requested_bytes[TARN_STAT_ALL].current == bytes);
    }
    verify(0);
}

static void statistics_are_exact_whenever_nobody_allocates(void **state)
{
    (void)state;
    pthread_t watcher;
    atomic_store(&ends, false);
    pthread_barrier_init(&rest, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        blowers[i] = (struct blower){.random = (uint64_t)i + 1, .stream = lease(0)};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&blowers[i].thread, NULL, blow, &blowers[i]), 0);
    for (int phase = 0; phase < PHASES; phase++) {
        assert_int_equal(pthread_create(&watcher, NULL, watch, (void *)(uintptr_t)(phase + 1)), 0);
        pthread_barrier_wait(&rest);
        atomic_store(&ends, true);
        assert_int_equal(pthread_join(watcher, NULL), 0);
        atomic_store(&ends, false);
        check_at_rest();
        pthread_barrier_wait(&rest);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(blowers[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < OWN; k++)
            OK(tarn_free(blowers[i].own[k].block));
        if (blowers[i].pool)
            OK(tarn_pool_release(blowers[i].pool));
    }
    for (int i = 0; i < MAILBOXES; i++)
        OK(tarn_free(mailboxes[i].block));
    nothing_is_left(0);
    for (int i = 0; i < THREADS; i++)
        OK(tarn_stream_return(blowers[i].stream));
}

/* One thread: whatever streams it uses, its peaks are exact. */
static void a_thread_alone_has_exact_peaks_on_all_its_streams(void **state)
{
    (void)state;
    tarn_stream streams[3] = {lease(0), lease(0), lease(0)};
    uint64_t random = 5;
    struct held own[OWN] = {{0}};
    nothing_is_left(0);
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    int64_t bytes = 0, peak = 0;
    for (int i = 0; i < 4000; i++) {
        struct held *held = &own[random_next(&random) % OWN];
        if (held->block) {
            OK(tarn_free(held->block));
            bytes -= (int64_t)held->size;
            *held = (struct held){0};
        } else {
            held->size = random_size(&random);
            held->block = alloc_on(streams[random_next(&random) % 3], held->size);
            bytes += (int64_t)held->size;
        }
        peak = bytes > peak ? bytes : peak;
        if (i % 100 == 0)
            CHECK(stats_of(0).requested_bytes[TARN_STAT_ALL].peak == peak);
        if (i % 1000 == 0) {
            OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
            peak = bytes;
        }
    }
    CHECK(stats_of(0).requested_bytes[TARN_STAT_ALL].peak == peak);
    for (int i = 0; i < OWN; i++)
        OK(tarn_free(own[i].block));
    nothing_is_left(0);
    for (int i = 0; i < 3; i++)
        OK(tarn_stream_return(streams[i]));
}

/* What was counted for a pool that has ended is not the next one's. */
static void a_pool_begins_with_nothing_counted(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    nothing_is_left(0);
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    for (int i = 0; i < 4; i++) {
        tarn_pool *pool = pool_with((tarn_pool_options){0});
        tarn_stats stats = pool_stats_of(pool);
        CHECK(stats.allocation[TARN_STAT_ALL].current == 0 &&
              stats.allocation[TARN_STAT_ALL].freed == 0);
        OK(tarn_free(alloc_in(pool, stream, 3 * MIB)));
        stats = stats_of(0);
        CHECK(stats.allocation[TARN_STAT_ALL].allocated == 2 * i + 1 &&
              stats.allocation[TARN_STAT_ALL].freed == 2 * i + 1);
        OK(tarn_free(alloc_in(pool, stream, 3 * MIB))); /* which no reading publishes */
        OK(tarn_pool_release(pool));
        OK(tarn_device_trim(0, 0));
    }
    CHECK(stats_of(0).allocation[TARN_STAT_ALL].freed == 8);
    nothing_is_left(0);
    OK(tarn_stream_return(stream));
}

static int set_up(void **state)
{
    (void)state;
    host_start_with(1, 2048 * MIB);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_exact_whenever_nobody_allocates),
        cmocka_unit_test(a_thread_alone_has_exact_peaks_on_all_its_streams),
        cmocka_unit_test(a_pool_begins_with_nothing_counted),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
