/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Kept spans: a freed block that is given again as it is, seen by nobody else, and only where the
 * best fit would give the same. */
#include "memory/heap/parked.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static tarn_stream own;

static struct heap *heap_of_stream(tarn_stream stream, int device)
{
    struct stream *found = NULL;
    struct heap *heap = NULL;
    OK(stream_find(stream, device, &found));
    OK(default_heap(found, &heap));
    return heap;
}

static unsigned parked(void)
{
    return atomic_load(&heap_of_stream(own, 0)->parked.count);
}

/* A heap with free memory of both zones, so that what is allocated next is cut off it. */
static void prepare(void)
{
    void *large = alloc_on(own, 60 * MIB), *small = alloc_on(own, MIB);
    OK(tarn_free(large));
    OK(tarn_free(small));
    (void)stats_of(0); /* joins what is parked */
}

static void a_freed_block_is_given_again_without_a_search(void **state)
{
    (void)state;
    tarn_block_info info = {.size = sizeof info};
    prepare();
    void *block = alloc_on(own, 3 * MIB - 5);
    OK(tarn_free(block));
    /* Who looks finds free memory */
    CHECK(parked() == 1 && stats_of(0).allocation[0].current == 0 && parked() == 0);
    CHECK(alloc_on(own, 3 * MIB) == block);
    OK(tarn_free(block));
    CHECK(parked() == 1);
    CHECK(alloc_on(own, 3 * MIB - 100) == block && parked() == 0); /* the same in units of 512 B */
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.requested == 3 * MIB - 100 && info.base == block && info.usable_size == 3 * MIB);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void nested_pairs_are_undone_and_done_again(void **state)
{
    (void)state;
    enum { DEPTH = 6 };
    void *blocks[DEPTH];
    prepare();
    for (size_t i = 0; i < DEPTH; i++)
        blocks[i] = alloc_on(own, (i + 2) * MIB);
    for (size_t i = DEPTH; i-- > 0;)
        OK(tarn_free(blocks[i]));
    CHECK(parked() == DEPTH);
    for (size_t i = 0; i < DEPTH; i++)
        CHECK(alloc_on(own, (i + 2) * MIB) == blocks[i]);
    CHECK(parked() == 0);
    for (size_t i = 0; i < DEPTH; i++)
        OK(tarn_free(blocks[i])); /* the first first: that undoes nothing but the last */
    CHECK(parked() <= 1);
    nothing_is_left(0);
}

static void counters_are_exact_at_once(void **state)
{
    (void)state;
    prepare();
    void *block = alloc_on(own, 5 * MIB);
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    OK(tarn_free(block));
    for (int i = 0; i < 10; i++) {
        block = alloc_on(own, 5 * MIB - 7);
        OK(tarn_free(block));
    }
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[TARN_STAT_LARGE_POOL].allocated == 10 &&
          stats.allocation[TARN_STAT_LARGE_POOL].freed == 11);
    CHECK(stats.active_bytes[0].freed == 11 * 5 * (int64_t)MIB &&
          stats.requested_bytes[0].current == 0);
    CHECK(stats.requested_bytes[0].allocated == 10 * (5 * (int64_t)MIB - 7));
    CHECK(stats.allocated_bytes[0].peak == 5 * (int64_t)MIB && stats.active[0].peak == 1);
    nothing_is_left(0);
}

static void *free_again(void *block)
{
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    return NULL;
}

static void a_parked_block_is_not_live(void **state)
{
    (void)state;
    pthread_t thread;
    tarn_block_info info = {.size = sizeof info};
    prepare();
    void *block = alloc_on(own, 3 * MIB);
    OK(tarn_free(block));
    CHECK(parked() == 1);
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_extend(block, 4 * MIB), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_record_stream(block, lease(0)), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_pointer_info_get(block, &info), TARN_ERROR_INVALID_POINTER);
    assert_int_equal(pthread_create(&thread, NULL, free_again, block), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK(parked() == 1 && alloc_on(own, 3 * MIB) == block);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void what_is_parked_is_joined_before_a_search(void **state)
{
    (void)state;
    prepare();
    void *blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = alloc_on(own, 20 * MIB); /* all of it */
    uint64_t created = ledger_of(0).created;
    for (int i = 3; i-- > 0;)
        OK(tarn_free(blocks[i]));
    CHECK(parked() == 3);
    void *whole = alloc_on(own, 60 * MIB);
    CHECK(whole == blocks[0] && ledger_of(0).created == created && parked() == 0);
    OK(tarn_free(whole));
    nothing_is_left(0);
}

static void a_block_is_extended_into_what_is_parked_behind_it(void **state)
{
    (void)state;
    prepare();
    char *block = alloc_on(own, 20 * MIB), *behind = alloc_on(own, 20 * MIB);
    CHECK(behind == block + 20 * MIB);
    OK(tarn_free(behind));
    CHECK(parked() == 1);
    OK(tarn_extend(block, 30 * MIB));
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void memory_that_is_parked_goes_to_other_streams_when_it_is_idle(void **state)
{
    (void)state;
    tarn_stream other = lease(0);
    prepare();
    void *block = alloc_on(own, 60 * MIB), *there = NULL;
    OK(tarn_free(block));
    block = alloc_on(own, 60 * MIB);
    work_on(own, block, 60 * MIB, 1000);
    OK(tarn_free(block));
    CHECK(parked() == 1);
    OK(tarn_device_limit_set(0, ledger_of(0).created));
    uint64_t before = time_now();
    OK(tarn_alloc_on(other, 50 * MIB, &there)); /* waits for the work, and for no more */
    CHECK(time_now() - before >= 1000 && parked() == 0);
    OK(tarn_free(there));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

static void a_block_that_others_use_is_not_parked(void **state)
{
    (void)state;
    tarn_stream other = lease(0);
    prepare();
    void *block = alloc_on(own, 3 * MIB);
    OK(tarn_record_stream(block, other));
    work_on(other, block, 3 * MIB, 1000);
    OK(tarn_free(block));
    CHECK(parked() == 0 && stats_of(0).active[0].current == 1);
    void *next = alloc_on(own, 3 * MIB);
    CHECK(next != block);
    OK(tarn_free(next));
    time_pass(1000);
    nothing_is_left(0);
}

static void a_retired_stream_keeps_nothing(void **state)
{
    (void)state;
    tarn_stream adopted = 0;
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    OK(tarn_free(alloc_on(adopted, 60 * MIB)));
    void *block = alloc_on(adopted, 3 * MIB), *beside = alloc_on(adopted, 4 * MIB);
    struct heap *heap = heap_of_stream(adopted, 0);
    OK(tarn_free(beside));
    CHECK(atomic_load(&heap->parked.count) == 1);
    OK(tarn_stream_retire(adopted));
    CHECK(atomic_load(&heap->parked.count) == 0);
    OK(tarn_free(block));
    CHECK(atomic_load(&heap->parked.count) == 0);
    nothing_is_left(0);
}

/* The same requests on two devices, of which one parks nothing: every block must come to lie at the
 * same place. */
static void the_placement_is_that_of_the_best_fit(void **state)
{
    (void)state;
    enum { BLOCKS = 24, STEPS = 20000 };
    tarn_stream streams[2] = {own, lease(1)};
    static struct pair {
        char *blocks[2];
    } pairs[BLOCKS];
    uint64_t random = 5, hits = 0;
    char *bases[2];
    for (int device = 0; device < 2; device++) {
        OK(tarn_device_set(device));
        OK(tarn_free(alloc_on(streams[device], 300 * MIB)));
        bases[device] = (char *)heap_of_stream(streams[device], device)->arena->base;
    }
    heap_of_stream(streams[1], 1)->parked.parks = false;
    for (int step = 0; step < STEPS; step++) {
        struct pair *pair =
            &pairs[random_next(&random) % (random_next(&random) % 4 ? BLOCKS / 6 : BLOCKS)];
        size_t size = (random_next(&random) % 6 + 1) << (random_next(&random) % 2 ? 20 : 18);
        bool fill = !pair->blocks[0];
        hits += fill && parked();
        for (int device = 0; device < 2; device++) {
            OK(tarn_device_set(device));
            if (fill)
                pair->blocks[device] = alloc_on(streams[device], size);
            else
                OK(tarn_free(pair->blocks[device]));
        }
        if (fill)
            CHECK(pair->blocks[0] - bases[0] == pair->blocks[1] - bases[1]);
        else
            pair->blocks[0] = NULL;
        if (step % 1000 == 0)
            verify(0);
    }
    CHECK(hits > STEPS / 100);
    for (int i = 0; i < BLOCKS; i++)
        for (int device = 0; pairs[i].blocks[0] && device < 2; device++)
            OK(tarn_free(pairs[i].blocks[device]));
    OK(tarn_device_set(0));
    nothing_is_left(0);
    nothing_is_left(1);
}

enum { ROUNDS = 20000 };
static _Atomic(void *) mailbox;

/* Takes what the other thread has put into the mailbox, or puts a block there. */
static void *exchange(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        void *block = alloc_on(own, (random_next(&random) % 3 + 2) * MIB);
        if (random_next(&random) % 4 == 0)
            block = atomic_exchange(&mailbox, block);
        if (block)
            OK(tarn_free(block));
    }
    return NULL;
}

static void two_threads_keep_and_take_in_one_heap(void **state)
{
    (void)state;
    pthread_t threads[2];
    prepare();
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)), 0);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    OK(tarn_free(atomic_exchange(&mailbox, NULL)));
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[0].current == 0 && stats.requested_bytes[0].current == 0);
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_freed_block_is_given_again_without_a_search),
        cmocka_unit_test(nested_pairs_are_undone_and_done_again),
        cmocka_unit_test(counters_are_exact_at_once),
        cmocka_unit_test(a_parked_block_is_not_live),
        cmocka_unit_test(what_is_parked_is_joined_before_a_search),
        cmocka_unit_test(a_block_is_extended_into_what_is_parked_behind_it),
        cmocka_unit_test(memory_that_is_parked_goes_to_other_streams_when_it_is_idle),
        cmocka_unit_test(a_block_that_others_use_is_not_parked),
        cmocka_unit_test(a_retired_stream_keeps_nothing),
        cmocka_unit_test(the_placement_is_that_of_the_best_fit),
        cmocka_unit_test(two_threads_keep_and_take_in_one_heap),
    };
    host_start_with(2, 512 * MIB);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
