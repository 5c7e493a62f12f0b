/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Hands: where threads compete for a heap, each keeps some of the blocks that it frees. No search,
 * trim, loan or count misses them. */
#include "memory/heap/hands.h"
#include "memory/heap/parked.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static tarn_stream own;
static struct heap *heap;

static unsigned in_hands(void)
{
    struct hand *hands = atomic_load(&heap->hands.of);
    unsigned count = 0;
    for (unsigned i = 0; hands && i < HANDS; i++)
        count += atomic_load(&hands[i].count);
    return count;
}

/* What a lock that many wait for does. */
static void compete(void)
{
    mutex_lock(&heap->lock);
    heap->hands.contention = HANDS_MOST;
    hands_weigh_locked(heap, true);
    mutex_unlock(&heap->lock);
    CHECK(hands_are_open(&heap->hands) && in_hands() == 0);
}

/* A heap with free memory and open hands. */
static void prepare(void)
{
    struct stream *found = NULL;
    OK(stream_find(own, 0, &found));
    void *large = alloc_on(own, 60 * MIB), *small = alloc_on(own, MIB);
    OK(default_heap(found, &heap));
    OK(tarn_free(large));
    OK(tarn_free(small));
    (void)stats_of(0); /* joins what is parked */
    compete();
}

static void *alloc_3(void *argument)
{
    (void)argument;
    return alloc_on(own, 3 * MIB);
}

static void *free_it(void *block)
{
    OK(tarn_free(alloc_on(own, 512))); /* the thread's first call is a slow one */
    OK(tarn_free(block));
    return NULL;
}

static void *free_again(void *block)
{
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    return NULL;
}

/* What a function returns in another thread. */
static void *elsewhere(void *(*call)(void *), void *argument)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, call, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result;
}

static void each_thread_has_its_own_blocks_again(void **state)
{
    (void)state;
    tarn_block_info info = {.size = sizeof info};
    prepare();
    void *first = alloc_on(own, 3 * MIB), *second = alloc_on(own, 5 * MIB),
         *third = alloc_on(own, 3 * MIB);
    OK(tarn_free(first)); /* not the last that was cut: so only a hand has it */
    CHECK(in_hands() == 1);
    void *other = elsewhere(alloc_3, NULL);
    CHECK(other != first && in_hands() == 1);
    CHECK(alloc_on(own, 3 * MIB - 7) == first && in_hands() == 0);
    OK(tarn_pointer_info_get(first, &info));
    CHECK(info.requested == 3 * MIB - 7 && info.usable_size == 3 * MIB);
    elsewhere(free_it, other);
    OK(tarn_free(third));
    CHECK(in_hands() == 2);
    verify(0);
    tarn_stats stats = stats_of(0); /* who looks finds free memory */
    CHECK(stats.allocation[0].current == 2 &&
          stats.allocated_bytes[0].current == 8 * (int64_t)MIB && in_hands() == 0);
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
}

static void a_block_in_a_hand_is_not_live(void **state)
{
    (void)state;
    prepare();
    void *block = alloc_on(own, 3 * MIB);
    OK(tarn_free(block));
    CHECK(in_hands() == 1);
    GIVES(tarn_free(block), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_extend(block, 4 * MIB), TARN_ERROR_DOUBLE_FREE);
    GIVES(tarn_record_stream(block, lease(0)), TARN_ERROR_DOUBLE_FREE);
    elsewhere(free_again, block);
    CHECK(in_hands() == 1 && alloc_on(own, 3 * MIB) == block);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void a_search_that_finds_nothing_empties_hands(void **state)
{
    (void)state;
    void *blocks[3];
    prepare();
    for (int i = 0; i < 3; i++)
        blocks[i] = alloc_on(own, 20 * MIB); /* all of it */
    uint64_t created = ledger_of(0).created;
    for (int i = 0; i < 3; i++)
        i == 1 ? (void)elsewhere(free_it, blocks[i]) : OK(tarn_free(blocks[i]));
    CHECK(in_hands() == 3);
    void *whole = alloc_on(own, 60 * MIB);
    CHECK(whole == blocks[0] && ledger_of(0).created == created && in_hands() == 0);
    OK(tarn_free(whole));
    nothing_is_left(0);
}

static void other_streams_get_what_is_in_hands(void **state)
{
    (void)state;
    tarn_stream other = lease(0);
    void *there = NULL;
    prepare();
    void *block = alloc_on(own, 60 * MIB);
    work_on(own, block, 60 * MIB, 1000);
    OK(tarn_free(block));
    CHECK(in_hands() == 1);
    OK(tarn_device_limit_set(0, ledger_of(0).created));
    uint64_t before = time_now();
    OK(tarn_alloc_on(other, 50 * MIB, &there));
    /* A free block is idle when its work has ended */
    CHECK(time_now() - before >= 1000 && in_hands() == 0);
    OK(tarn_free(there));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    nothing_is_left(0);
}

/* Once the sets have forgotten that the heap has free memory, the next free is news. */
static void a_heap_that_lends_no_more_has_closed_hands(void **state)
{
    (void)state;
    prepare();
    /* All of it */
    void *block = alloc_on(own, 60 * MIB), *small[2] = {alloc_on(own, MIB), alloc_on(own, MIB)};
    mutex_lock(&heap->lock);
    heap_lends_end_locked(heap);
    bool lends = heap->sets.lends, open = hands_are_open(&heap->hands);
    hands_weigh_locked(heap, true);
    bool opened = hands_are_open(&heap->hands);
    mutex_unlock(&heap->lock);
    CHECK(!lends && !open && !opened);
    OK(tarn_free(block));
    CHECK(in_hands() == 0 && heap->sets.lends);
    OK(tarn_free(small[0]));
    OK(tarn_free(small[1]));
    nothing_is_left(0);
}

static void a_block_that_others_use_comes_into_no_hand(void **state)
{
    (void)state;
    tarn_stream other = lease(0);
    prepare();
    void *block = alloc_on(own, 3 * MIB);
    OK(tarn_record_stream(block, other));
    work_on(other, block, 3 * MIB, 1000);
    OK(tarn_free(block));
    CHECK(in_hands() == 0 && stats_of(0).active[0].current == 1);
    time_pass(1000);
    nothing_is_left(0);
}

static void *take_and_give(void *block)
{
    OK(tarn_free(alloc_on(own, 512))); /* a thread's first two calls are slow ones */
    OK(tarn_free(alloc_on(own, 7 * MIB)));
    CHECK(in_hands() == 2);
    void *same = alloc_on(own, 3 * MIB);
    CHECK(same == block && in_hands() == 1);
    OK(tarn_free(same));
    return NULL;
}

static void a_request_looks_into_other_hands(void **state)
{
    (void)state;
    prepare();
    void *first = alloc_on(own, 3 * MIB), *second = alloc_on(own, 5 * MIB);
    OK(tarn_free(first)); /* not the last that was cut: so only a hand has it */
    elsewhere(take_and_give, first);
    CHECK(in_hands() == 2 && alloc_on(own, 3 * MIB) == first);
    OK(tarn_free(first));
    OK(tarn_free(second));
    nothing_is_left(0);
}

/* Allocates and frees blocks of 1 MiB, so that as many are in hands as there is room for. */
static void fill_hands(void **blocks, int count)
{
    for (int pass = 0; pass < 2; pass++) { /* in the second there is memory for all */
        prepare();
        for (int i = 0; i < count; i++)
            blocks[i] = alloc_on(own, MIB);
        for (int i = 0; i < count; i++)
            OK(tarn_free(blocks[i]));
    }
}

static void what_is_too_much_for_a_hand_goes_into_another(void **state)
{
    (void)state;
    enum { BLOCKS = HAND_SPANS + 8 };
    void *blocks[BLOCKS];
    fill_hands(blocks, BLOCKS);
    CHECK(in_hands() == BLOCKS && alloc_on(own, MIB) == blocks[HAND_SPANS - 1]);
    OK(tarn_free(blocks[HAND_SPANS - 1]));
    verify(0);
    nothing_is_left(0);
}

static void too_much_for_all_that_a_free_tries_goes_back(void **state)
{
    (void)state;
    enum { ROOM = HAND_TRIES * HAND_SPANS, BLOCKS = ROOM + 8 };
    void *blocks[BLOCKS];
    fill_hands(blocks, BLOCKS);
    CHECK(in_hands() >= ROOM - HAND_SPANS / 2 && in_hands() < ROOM &&
          alloc_on(own, MIB) == blocks[BLOCKS - 1]);
    OK(tarn_free(blocks[BLOCKS - 1]));
    verify(0);
    nothing_is_left(0);
}

static void hands_close_when_nobody_waits(void **state)
{
    (void)state;
    prepare();
    OK(tarn_free(alloc_on(own, 3 * MIB)));
    CHECK(in_hands() == 1);
    mutex_lock(&heap->lock);
    for (int i = 0; i <= HANDS_MOST; i++)
        hands_weigh_locked(heap, false);
    mutex_unlock(&heap->lock);
    CHECK(!hands_are_open(&heap->hands) && in_hands() == 0);
    void *block = alloc_on(own, 3 * MIB);
    OK(tarn_free(block));
    CHECK(atomic_load(&heap->parked.count) == 1);
    nothing_is_left(0);
}

enum { THREADS = 6, ROUNDS = 20000 };
static _Atomic(void *) mailbox;

/* Takes what another thread has put into the mailbox, or puts a block there. The first thread looks
 * at all, and trims. */
static void *exchange(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        void *block = alloc_on(own, (random_next(&random) % 3 + 2) * MIB);
        if (random_next(&random) % 4 == 0)
            block = atomic_exchange(&mailbox, block);
        if (block)
            OK(tarn_free(block));
        if ((uintptr_t)argument > 1 || i % 500)
            continue;
        OK(tarn_device_trim(0, SIZE_MAX));
        verify(0);
        mutex_lock(&heap->lock);
        heap->hands.contention = HANDS_MOST;
        mutex_unlock(&heap->lock);
    }
    return NULL;
}

static void threads_take_and_give_while_another_looks(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    prepare();
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    OK(tarn_free(atomic_exchange(&mailbox, NULL)));
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[0].current == 0 && stats.requested_bytes[0].current == 0);
    CHECK(stats.allocation[0].allocated == stats.allocation[0].freed);
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
        cmocka_unit_test(each_thread_has_its_own_blocks_again),
        cmocka_unit_test(a_block_in_a_hand_is_not_live),
        cmocka_unit_test(a_search_that_finds_nothing_empties_hands),
        cmocka_unit_test(other_streams_get_what_is_in_hands),
        cmocka_unit_test(a_heap_that_lends_no_more_has_closed_hands),
        cmocka_unit_test(a_block_that_others_use_comes_into_no_hand),
        cmocka_unit_test(a_request_looks_into_other_hands),
        cmocka_unit_test(what_is_too_much_for_a_hand_goes_into_another),
        cmocka_unit_test(too_much_for_all_that_a_free_tries_goes_back),
        cmocka_unit_test(hands_close_when_nobody_waits),
        cmocka_unit_test(threads_take_and_give_while_another_looks),
    };
    host_start_with(1, 512 * MIB);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
