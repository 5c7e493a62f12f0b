/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Random moves of memory, on a small device that is late to say what has ended: pools are
 * suspended, with contents and without, and resumed, beside allocations from others on three
 * streams that are behind with their work; driver calls fail now and then, and another thread
 * trims. While nobody moves anything the driver's ledger equals what tarn reports; blocks keep what
 * was written into them; when all is freed, released and trimmed, nothing is left. TARN_SEED
 * chooses the sequence, TARN_STORM_STEPS its length. */
#include "driver/host/host.h"
#include "memory/pool/pool.h"
#include "support/host.h"

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)
#define STREAMS 3
#define POOLS 2
#define BLOCKS 64

struct block {
    uint64_t *start;
    size_t words;
    uint64_t paint;
    int pool; /* POOLS: the default one */
};

static uint64_t seed = 1, state_of_random;
static tarn_stream streams[STREAMS];
static tarn_pool *pools[POOLS];
static struct block blocks[BLOCKS];
static unsigned suspends, refused, injected;

/* Shared by the thread that trims, alone while the books are compared. */
static pthread_rwlock_t trims = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool ends;

static uint64_t below(uint64_t limit)
{
    return random_next(&state_of_random) % limit;
}

static bool may_fail(tarn_status status)
{
    return status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_DRIVER;
}

static void paint(struct block *block)
{
    block->paint = below(UINT64_MAX);
    block->start[0] = block->start[block->words - 1] = block->paint;
}

static bool is_painted(const struct block *block)
{
    return block->start[0] == block->paint && block->start[block->words - 1] == block->paint;
}

static void allocate(struct block *block)
{
    size_t size = 8 + below(UINT64_C(256) << below(17)); /* to 32 MiB */
    tarn_stream stream = streams[below(STREAMS)];
    void *start = NULL;
    block->pool = (int)below(POOLS + 1);
    tarn_status status = block->pool == POOLS
                             ? tarn_alloc_on(stream, size, &start)
                             : tarn_pool_alloc(pools[block->pool], stream, size, &start);
    CHECK(may_fail(status));
    refused += status == TARN_ERROR_OUT_OF_MEMORY;
    if (status)
        return;
    block->start = start;
    block->words = size / sizeof(uint64_t);
    paint(block);
    if (below(2))
        work_on(stream, start, size, 1 + below(1000000));
    if (below(4) == 0)
        OK(tarn_record_stream(start, streams[below(STREAMS)]));
}

static void release(struct block *block)
{
    CHECK(is_painted(block));
    OK(tarn_free(block->start));
    block->start = NULL;
}

static tarn_pool_state state_of(tarn_pool *pool)
{
    return pool_info_of(pool).state;
}

static void nothing_fails(void)
{
    injected += host_fail_hits() > 0;
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
}

static void something_fails(void)
{
    static const char *const kinds[] = {"create", "map",          "set_access",
                                        "unmap",  "event_record", "release"};
    OK(tarn_host_fail_set(kind_of(kinds[below(6)]), 1 + below(2), false, TARN_ERROR_DRIVER));
}

/* With blocks freed, and others allocated, while it is suspended. */
static void suspend(int index)
{
    tarn_pool *pool = pools[index];
    bool keep = below(2);
    tarn_status status = tarn_pool_suspend(pool, keep);
    CHECK(may_fail(status));
    bool emptied = state_of(pool) != TARN_POOL_RUNS;
    CHECK(emptied || status);
    suspends += emptied;
    nothing_fails();
    if (emptied && !status) {
        tarn_stats stats = {.size = sizeof stats};
        OK(tarn_pool_stats_get(pool, &stats));
        CHECK(stats.reserved_bytes[0].current == 0);
    }
    for (int i = 0; i < BLOCKS && emptied; i++) {
        struct block *block = &blocks[i];
        if (block->start && block->pool == index && below(4) == 0) {
            OK(tarn_free(block->start));
            block->start = NULL;
        } else if (block->start && block->pool != index && below(4) == 0) {
            release(block); /* room for the resume */
        }
    }
    for (int tries = 0; state_of(pool) != TARN_POOL_RUNS; tries++) {
        CHECK(tries < 1000);
        if (below(8) == 0)
            something_fails();
        status = tarn_pool_resume(pool);
        CHECK(may_fail(status));
        nothing_fails();
        for (int i = 0; i < BLOCKS && status == TARN_ERROR_OUT_OF_MEMORY; i++)
            if (blocks[i].start && blocks[i].pool != index) {
                release(&blocks[i]);
                break;
            }
    }
    for (int i = 0; i < BLOCKS && emptied && !keep; i++)
        if (blocks[i].start && blocks[i].pool == index)
            paint(&blocks[i]);
}

static void step(void)
{
    struct block *block = &blocks[below(BLOCKS)];
    if (below(4) == 0)
        something_fails();
    switch (below(12)) {
    case 0:
        time_pass(below(2000000));
        break;
    case 1:
        CHECK(may_fail(tarn_pool_trim(pools[below(POOLS)], below(MEMORY))));
        break;
    case 2:
        if (below(4) == 0)
            suspend((int)below(POOLS));
        break;
    default:
        if (block->start)
            release(block);
        else
            allocate(block);
    }
    nothing_fails();
}

static void *trim(void *argument)
{
    uint64_t random = seed + 1;
    (void)argument;
    while (!atomic_load(&ends)) {
        (void)pthread_rwlock_rdlock(&trims);
        CHECK(may_fail(tarn_device_trim(0, random_next(&random) % MEMORY)));
        (void)pthread_rwlock_unlock(&trims);
        sched_yield();
    }
    return NULL;
}

static void compare(void)
{
    (void)pthread_rwlock_wrlock(&trims);
    verify(0);
    (void)pthread_rwlock_unlock(&trims);
}

static void run(const char *settings, int steps)
{
    pthread_t trimmer;
    OK(tarn_configuration_set(settings));
    for (int i = 0; i < POOLS; i++)
        OK(tarn_pool_create(NULL, &pools[i]));
    atomic_store(&ends, false);
    host_fail_randomly(kind_of("event_query"), seed, 2 + (unsigned)below(3), TARN_ERROR_NOT_READY);
    CHECK(pthread_create(&trimmer, NULL, trim, NULL) == 0);
    for (int i = 0; i < steps; i++) {
        step();
        if (i % 50 == 0)
            compare();
    }
    atomic_store(&ends, true);
    CHECK(pthread_join(trimmer, NULL) == 0);
    for (int i = 0; i < POOLS; i++)
        suspend(i);
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].start)
            release(&blocks[i]);
    for (int i = 0; i < POOLS; i++)
        OK(tarn_pool_release(pools[i]));
    OK(tarn_device_synchronize(0));
    OK(tarn_device_trim(0, 0));
    /* While the device is still late to say */
    CHECK(ledger_of(0).created == 0 && ledger_of(0).mapped == 0);
    host_fail_randomly(0, 0, 0, TARN_OK);
    nothing_is_left(0);
    OK(tarn_configuration_set("all:default"));
}

static int steps_in_all(void)
{
    const char *text = getenv("TARN_STORM_STEPS");
    return text ? atoi(text) : 2000;
}

static void the_books_agree_whatever_is_late_or_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        run("all:default", steps_in_all() / 4);
    printf("seed %" PRIu64 ": %u suspends, %u refused, %u failures\n", seed, suspends, refused,
           injected);
    CHECK(suspends > 0 && injected > 0);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++)
        streams[i] = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_books_agree_whatever_is_late_or_fails),
    };
    const char *text = getenv("TARN_SEED");
    if (text)
        seed = strtoull(text, NULL, 10);
    state_of_random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
