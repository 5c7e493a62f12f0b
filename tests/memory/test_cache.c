/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The cache: what a thread hands out and takes back without a lock, what other threads free
 * meanwhile, and what is taken from threads that sleep. */
#include "memory/heap/cache.h"
#include "support/host.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static tarn_stream own;

static void every_size_gets_a_slot_that_is_large_enough_and_not_much_larger(void **state)
{
    (void)state;
    for (size_t size = 1; size <= SLAB_MOST; size += size < 9000 ? 1 : 61) {
        size_t slot = slab_slot_size(size);
        CHECK(slot >= size && slot % TARN_BLOCK_UNIT == 0);
        CHECK(slot - size < TARN_BLOCK_UNIT || (slot - size) * 8 <= slot);
    }
    for (unsigned class = 0; class < SLAB_CLASSES; class ++) {
        size_t bytes = slab_span_size(class), slots = bytes / slab_sizes[class];
        CHECK(slots >= 8 && slots <= SLAB_SLOTS && bytes % MAP_PAGE == 0);
        CHECK((bytes - slots * slab_sizes[class]) * 16 <= bytes);
        struct slab slab = {.start = 0};
        slab.reciprocal = slab_reciprocal(slab_sizes[class]);
        for (size_t offset = 0; offset < bytes; offset++) {
            bool begins = false;
            CHECK(slab_slot_begin(&slab, offset, &begins) == offset / slab_sizes[class]);
            CHECK(begins == (offset % slab_sizes[class] == 0));
        }
    }
}

static void slots_do_not_overlap_and_hold_what_was_written(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static unsigned char *blocks[COUNT];
    uint64_t random = 7;
    size_t sizes[COUNT];
    for (int i = 0; i < COUNT; i++) {
        sizes[i] = 1 + random_next(&random) % SLAB_MOST;
        blocks[i] = alloc_on(own, sizes[i]);
        memset(blocks[i], i & 255, sizes[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        CHECK(blocks[i][0] == (i & 255) && blocks[i][sizes[i] - 1] == (i & 255));
        OK(tarn_free(blocks[i]));
        GIVES(tarn_free(blocks[i]), TARN_ERROR_DOUBLE_FREE);
    }
    nothing_is_left(0);
}

static void *free_all(void *argument)
{
    void **blocks = argument;
    for (int i = 0; blocks[i]; i++)
        OK(tarn_free(blocks[i]));
    return NULL;
}

static void run_in_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *free_two(void *argument)
{
    void **blocks = argument;
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    return NULL;
}

static void what_another_thread_frees_is_found_when_it_is_needed(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static void *blocks[COUNT + 1];
    for (int i = 0; i < COUNT; i++)
        blocks[i] = alloc_on(own, 4096);
    uint64_t created = ledger_of(0).created;
    run_in_thread(free_all, blocks);
    CHECK(stats_of(0).allocation[0].current == 0);
    verify(0);
    /* Found although the owner has not drained it */
    GIVES(tarn_free(blocks[0]), TARN_ERROR_DOUBLE_FREE);
    for (int i = 0; i < COUNT; i++)
        blocks[i] = alloc_on(own, 4096);
    CHECK(ledger_of(0).created == created);
    run_in_thread(free_all, blocks);
    nothing_is_left(0);
}

static void *free_twice(void *argument)
{
    OK(tarn_free(argument));
    GIVES(tarn_free(argument), TARN_ERROR_DOUBLE_FREE);
    return NULL;
}

static void a_second_free_by_another_thread_is_refused_at_once(void **state)
{
    (void)state;
    void *block = alloc_on(own, 512), *beside = alloc_on(own, 512);
    run_in_thread(free_twice, block);
    OK(tarn_free(beside));
    nothing_is_left(0);
}

enum { SLEEPERS = 64 };
static struct sleeper {
    pthread_t thread;
    void *kept;
    sem_t asleep, wake;
} sleepers[SLEEPERS];

/* Fills and empties slabs of many sizes, keeps one block, and sleeps. */
static void *sleep_with_a_full_cache(void *argument)
{
    struct sleeper *self = argument;
    void *blocks[SLAB_CLASSES][8];
    for (unsigned class = 0; class < SLAB_CLASSES; class ++)
        for (int i = 0; i < 8; i++)
            blocks[class][i] = alloc_on(own, slab_sizes[class]);
    for (unsigned class = 0; class < SLAB_CLASSES; class ++)
        for (int i = 0; i < 8; i++)
            OK(tarn_free(blocks[class][i]));
    self->kept = alloc_on(own, 512);
    memset(self->kept, 0x5a, 512);
    sem_post(&self->asleep);
    sem_wait(&self->wake);
    for (int i = 0; i < 512; i++)
        CHECK(((unsigned char *)self->kept)[i] == 0x5a);
    OK(tarn_free(self->kept));
    OK(tarn_free(alloc_on(own, 512))); /* the cache works again */
    return NULL;
}

static void memory_of_sleeping_threads_is_reclaimed_except_live_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < SLEEPERS; i++) {
        sem_init(&sleepers[i].asleep, 0, 0);
        sem_init(&sleepers[i].wake, 0, 0);
        assert_int_equal(
            pthread_create(&sleepers[i].thread, NULL, sleep_with_a_full_cache, &sleepers[i]), 0);
        sem_wait(&sleepers[i].asleep); /* one after the other, so that each has slabs of its own */
    }
    CHECK(stats_of(0).allocation[0].current == SLEEPERS);
    OK(tarn_device_trim(0, 0));
    /* Everything except one slab each is free for the stream; a piece that holds one of them cannot
     * go back. */
    struct stream *stream = NULL;
    struct heap *heap = NULL;
    OK(stream_find(own, 0, &stream));
    OK(default_heap(stream, &heap));
    CHECK(ledger_of(0).created - heap->zones.free_bytes == (uint64_t)SLEEPERS * MAP_PAGE);
    CHECK(ledger_of(0).created <= (uint64_t)SLEEPERS * 2 * MIB);
    verify(0);

    size_t most = ledger_of(0).created; /* the same when a limit, not a trim, asks for it */
    OK(tarn_device_limit_set(0, most + 100 * MIB));
    void *large = alloc_on(own, 99 * MIB);
    OK(tarn_free(large));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    for (int i = 0; i < SLEEPERS; i++) {
        sem_post(&sleepers[i].wake);
        assert_int_equal(pthread_join(sleepers[i].thread, NULL), 0);
    }
    nothing_is_left(0);
}

static void *leave_blocks(void *argument)
{
    void **blocks = argument;
    for (int i = 0; i < 100; i++)
        blocks[i] = alloc_on(own, 1024);
    return NULL;
}

static void a_later_thread_goes_on_with_the_slabs_of_one_that_ended(void **state)
{
    (void)state;
    static void *blocks[101];
    run_in_thread(leave_blocks, blocks);
    uint64_t created = ledger_of(0).created;
    for (int i = 0; i < 100; i++)
        OK(tarn_free(blocks[i]));
    for (int round = 0; round < 50; round++) {
        run_in_thread(leave_blocks, blocks);
        run_in_thread(free_all, blocks);
    }
    CHECK(ledger_of(0).created == created);
    CHECK(stats_of(0).allocation[0].current == 0);
    nothing_is_left(0);
}

static void counters_are_exact_although_they_are_published_late(void **state)
{
    (void)state;
    OK(tarn_device_stats_reset(0, TARN_STATS_ACCUMULATED));
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    void *blocks[300];
    for (int i = 0; i < 300; i++) {
        blocks[i] = alloc_on(own, 700);
        CHECK(stats_of(0).allocation[TARN_STAT_SMALL_POOL].current == i + 1);
        CHECK(stats_of(0).requested_bytes[0].current == 700 * (i + 1));
        CHECK(stats_of(0).allocated_bytes[0].current == 1024 * (i + 1));
    }
    for (int i = 0; i < 300; i++)
        OK(tarn_free(blocks[i]));
    tarn_stats stats = stats_of(0);
    CHECK(stats.allocation[0].current == 0 && stats.allocation[0].allocated == 300 &&
          stats.allocation[0].freed == 300);
    CHECK(stats.active_bytes[0].current == 0 && stats.active_bytes[0].allocated == 300 * 1024);
    CHECK(stats.allocated_bytes[0].peak <= 300 * 1024);
    CHECK(stats.allocated_bytes[0].peak + CACHE_UNPUBLISHED >= 300 * 1024);
    nothing_is_left(0);
}

static void a_stale_stream_is_refused_although_the_thread_has_its_cache(void **state)
{
    (void)state;
    void *native = native_made(0);
    tarn_stream adopted = 0;
    OK(tarn_stream_adopt(0, native, &adopted));
    void *block = alloc_on(adopted, 512), *other = NULL;
    OK(tarn_free(alloc_on(adopted, 512)));
    OK(tarn_stream_retire(adopted));
    GIVES(tarn_alloc_on(adopted, 512, &other), TARN_ERROR_INVALID_STREAM);
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void the_current_stream_is_followed(void **state)
{
    (void)state;
    tarn_stream one = lease(0), two = lease(0);
    tarn_block_info info = {.size = sizeof info};
    for (int i = 0; i < 4; i++) {
        OK(tarn_stream_set(i % 2 ? one : two));
        void *first = tarn_malloc(600), *second = tarn_malloc(600);
        OK(tarn_pointer_info_get(second, &info));
        CHECK(info.stream == (i % 2 ? one : two));
        OK(tarn_free(first));
        OK(tarn_free(second));
    }
    OK(tarn_device_set(1));
    void *there = tarn_malloc(600);
    OK(tarn_pointer_info_get(there, &info));
    CHECK(info.device == 1);
    OK(tarn_free(there));
    OK(tarn_device_set(0));
    OK(tarn_stream_set(TARN_STREAM_LEGACY));
    nothing_is_left(0);
    nothing_is_left(1);
}

static struct heap *heap_of_stream(tarn_stream stream)
{
    struct stream *found = NULL;
    struct heap *heap = NULL;
    OK(stream_find(stream, 0, &found));
    OK(default_heap(found, &heap));
    return heap;
}

/* A block of each class in turn, so that the cache has all of its magazines. */
static void use_all_classes(tarn_stream stream)
{
    for (unsigned class = 0; class < SLAB_CLASSES; class ++)
        OK(tarn_free(alloc_on(stream, slab_sizes[class])));
}

static void a_trim_has_the_memory_of_magazines(void **state)
{
    (void)state;
    enum { STREAMS = 40 };
    tarn_stream streams[STREAMS];
    uint64_t bytes = 0;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = lease(0);
        use_all_classes(streams[i]);
        OK(tarn_device_trim(0, 0));
        if (i == 0)
            bytes = metadata_bytes();
    }
    /* A heap and a cache each; the magazines are 23 KiB. */
    CHECK(metadata_bytes() <= bytes + (uint64_t)STREAMS * 10 * 1024);
    const struct cache *cache = heap_of_stream(streams[0])->caches.first;
    for (unsigned class = 0; class < SLAB_CLASSES; class ++)
        CHECK(cache->magazines[class] == &magazine_none);
    for (int i = 0; i < STREAMS; i++)
        OK(tarn_stream_return(streams[i]));
    nothing_is_left(0);
}

static void a_free_makes_the_magazine_that_a_trim_took(void **state)
{
    (void)state;
    void *blocks[16];
    const struct cache *cache = NULL;
    for (int i = 0; i < 16; i++)
        blocks[i] = alloc_on(own, 1024);
    for (cache = heap_of_stream(own)->caches.first; atomic_load(&cache->thread) != thread_here;
         cache = cache->next)
        ;
    OK(tarn_device_trim(0, 0));
    const unsigned class = slab_class(1024);
    CHECK(cache->magazines[class] == &magazine_none);
    for (int i = 0; i < 16; i++)
        OK(tarn_free(blocks[i]));
    CHECK(cache->magazines[class]->top == 15); /* except for the first all took the short way */
    nothing_is_left(0);
}

/* Which of the thread's blocks are freed without a lock. */
static unsigned freed_fast(void **blocks, int count)
{
    unsigned fast = 0;
    for (int i = 0; i < count; i++) {
        bool was = cache_give_fast(map_slab(map_get((uintptr_t)blocks[i])), (uintptr_t)blocks[i],
                                   thread_here, false);
        fast += was;
        if (!was)
            OK(tarn_free(blocks[i]));
    }
    return fast;
}

/* The slow path is for the blocks that another stream uses: not for their neighbours, and not for
 * those that have them later. */
static void only_what_other_streams_use_is_freed_slowly(void **state)
{
    (void)state;
    enum { COUNT = 40, ROUNDS = 3 };
    void *blocks[COUNT];
    tarn_stream other = lease(0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++)
            blocks[i] = alloc_on(own, 1000);
        work_on(other, NULL, 0, 1000);
        for (int i = 0; i < COUNT; i += 4)
            OK(tarn_record_stream(blocks[i], other));
        OK(tarn_record_stream(blocks[1], own)); /* which is not another */
        CHECK(freed_fast(blocks, COUNT) == COUNT - COUNT / 4);
        for (int i = 0; i < COUNT; i++)
            GIVES(tarn_free(blocks[i]), TARN_ERROR_DOUBLE_FREE);
        verify(0);
        time_pass(2000);
        for (int pair = 0; pair < 1000; pair++) {
            void *block = alloc_on(own, 1000);
            CHECK(freed_fast(&block, 1) == 1);
        }
        for (int i = 0; i < COUNT; i++)
            blocks[i] = alloc_on(own, 1000);
        CHECK(freed_fast(blocks, COUNT) == COUNT);
    }
    nothing_is_left(0);
    OK(tarn_stream_return(other));
}

/* Nor by another thread, whose free of a simple block takes no lock either. */
static void a_neighbour_of_what_another_stream_uses_is_freed_by_another_thread(void **state)
{
    (void)state;
    void *blocks[2] = {alloc_on(own, 3000), alloc_on(own, 3000)};
    tarn_stream other = lease(0);
    struct slab *slab = map_slab(map_get((uintptr_t)blocks[0]));
    CHECK(slab == map_slab(map_get((uintptr_t)blocks[1])));
    work_on(other, NULL, 0, 1000);
    OK(tarn_record_stream(blocks[0], other));
    run_in_thread(free_two, blocks);
    CHECK(slab_state(slab, slab_slot(slab, (uintptr_t)blocks[0])) == NOTE_PENDING);
    CHECK(slab_is_freed(slab, slab_slot(slab, (uintptr_t)blocks[1])));
    nothing_is_left(0);
    OK(tarn_stream_return(other));
}

static int set_up(void **state)
{
    (void)state;
    own = lease(0);
    return 0;
}

/* Twice: with membarrier, and, in a child, as on a system that has none. */
static void run_without_membarrier(void)
{
    void *state = NULL;
    host_start_with(2, 512 * MIB);
    own = lease(0);
    OK(tarn_free(alloc_on(lease(0), 1)));
    cache_entry_is_barrier = true; /* for the caches made from now on */
    slots_do_not_overlap_and_hold_what_was_written(&state);
    what_another_thread_frees_is_found_when_it_is_needed(&state);
    memory_of_sleeping_threads_is_reclaimed_except_live_blocks(&state);
}

int main(void)
{
    in_child(run_without_membarrier);
    host_start_with(2, 512 * MIB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_do_not_overlap_and_hold_what_was_written),
        cmocka_unit_test(every_size_gets_a_slot_that_is_large_enough_and_not_much_larger),
        cmocka_unit_test(what_another_thread_frees_is_found_when_it_is_needed),
        cmocka_unit_test(a_second_free_by_another_thread_is_refused_at_once),
        cmocka_unit_test(memory_of_sleeping_threads_is_reclaimed_except_live_blocks),
        cmocka_unit_test(a_later_thread_goes_on_with_the_slabs_of_one_that_ended),
        cmocka_unit_test(counters_are_exact_although_they_are_published_late),
        cmocka_unit_test(a_stale_stream_is_refused_although_the_thread_has_its_cache),
        cmocka_unit_test(the_current_stream_is_followed),
        cmocka_unit_test(a_trim_has_the_memory_of_magazines),
        cmocka_unit_test(a_free_makes_the_magazine_that_a_trim_took),
        cmocka_unit_test(only_what_other_streams_use_is_freed_slowly),
        cmocka_unit_test(a_neighbour_of_what_another_stream_uses_is_freed_by_another_thread),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
