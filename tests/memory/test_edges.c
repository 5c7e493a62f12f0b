/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Where two rare things meet: a stream retired under a cache that a thread remembers, a block freed
 * twice at once, memory that is short while other threads move it, a device that is lost. The
 * device has 128 MiB. */
#include "driver/host/host.h"
#include "memory/heap/cache.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY (128 * MIB)

static tarn_stream own, other, third;

static tarn_stream adopt(void)
{
    tarn_stream stream = 0;
    OK(tarn_stream_adopt(0, native_made(0), &stream));
    return stream;
}

/* Streams that come and go --------------------------------------------------------------------- */

static void *use(void *argument)
{
    tarn_stream *stream = argument;
    void *first = alloc_on(*stream, 1000);
    OK(tarn_free(alloc_on(*stream, 1000)));
    return first;
}

static void a_retired_stream_is_refused_although_its_cache_has_another_owner(void **state)
{
    (void)state;
    pthread_t thread;
    void *block = NULL, *others = NULL;
    tarn_stream first = adopt();
    OK(tarn_free(alloc_on(first, 1000)));
    OK(tarn_stream_retire(first));
    OK(tarn_device_synchronize(0));
    OK(tarn_device_trim(0, 0));

    tarn_stream second = adopt();
    CHECK((uint32_t)second == (uint32_t)first); /* the same slot: this thread gives its cache of the
                                                   first one up */
    tarn_alloc_options options = {.size = sizeof options, .device = 0, .stream = second};
    OK(tarn_alloc(&options, 1000, &block));

    tarn_stream next = adopt(); /* for its heap that cache is made use of */
    assert_int_equal(pthread_create(&thread, NULL, use, &next), 0);
    assert_int_equal(pthread_join(thread, &others), 0);

    void *none = &none;
    GIVES(tarn_alloc_on(first, 1000, &none), TARN_ERROR_INVALID_STREAM);
    OK(tarn_free(block));
    OK(tarn_free(others));
    OK(tarn_stream_retire(second));
    OK(tarn_stream_retire(next));
    nothing_is_left(0);
}

static void streams_that_come_and_go_use_the_memory_of_those_before_them(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        tarn_stream stream = adopt();
        OK(tarn_free(alloc_on(stream, 1000)));
        OK(tarn_free(alloc_on(stream, 3 * MIB)));
        OK(tarn_stream_retire(stream));
        OK(tarn_device_synchronize(0));
    }
    CHECK(stats_of(0).reserved_bytes[0].peak <= (int64_t)(50 * MIB));
    nothing_is_left(0);
}

static void a_block_of_a_retired_stream_grows_only_over_idle_memory(void **state)
{
    (void)state;
    tarn_stream stream = adopt();
    void *block = alloc_on(stream, 2 * MIB), *next = alloc_on(stream, 2 * MIB),
         *end = alloc_on(stream, 2 * MIB);
    work_on(stream, next, 2 * MIB, 1000);
    OK(tarn_free(next));
    OK(tarn_stream_retire(stream));
    GIVES(tarn_extend(block, 3 * MIB), TARN_ERROR_NO_ROOM);
    time_pass(1000);
    OK(tarn_extend(block, 3 * MIB));
    OK(tarn_free(block));
    OK(tarn_free(end));
    nothing_is_left(0);
}

/* Blocks that two threads free at once --------------------------------------------------------- */

static struct slab *slab_of(void *pointer)
{
    struct slab *slab = map_slab(map_get((uintptr_t)pointer));
    assert_non_null(slab);
    return slab;
}

/* As another thread. */
static void free_from_elsewhere(struct slab *slab, unsigned slot, size_t requested)
{
    CHECK(cache_give_remote(slab, slot));
    counters_freed_and_completed(slab_owner(slab)->heap->store->counters, NULL, slab->slot_size,
                                 requested, 0);
}

static void free_twice_at_once(void *pointer)
{
    struct slab *slab = slab_of(pointer);
    unsigned slot = slab_slot(slab, (uintptr_t)pointer);
    free_from_elsewhere(slab, slot, slab_requested(slab, slot));
    /* As the owner, which had looked before that, and goes on now: into the magazine. */
    struct cache *cache = slab_owner(slab);
    struct magazine *magazine = cache->magazines[slab->class];
    slab_note *note = &slab->notes[slot];
    cache_count_given(&cache->counts, slab->slot_size, slab_requested(slab, slot));
    slab_note_end(note, *note);
    CHECK(magazine->top < magazine->limit);
    magazine->entries[magazine->top++] = (struct magazine_entry){(uintptr_t)pointer, note};
}

static void a_slab_stays_while_a_word_of_it_is_listed(void **state)
{
    (void)state;
    enum { BLOCKS = 128 };
    void *blocks[BLOCKS];
    tarn_stream stream = adopt();
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = alloc_on(stream, 512);
    for (int i = 1; i < BLOCKS - 1; i++)
        OK(tarn_free(blocks[i]));
    struct slab *slab = slab_of(blocks[0]);
    struct cache *cache = slab_owner(slab);
    free_twice_at_once(blocks[0]); /* two words of one slab, which is empty then */
    free_twice_at_once(blocks[BLOCKS - 1]);
    CHECK(slab_is_freed(slab, 0) && slab_is_freed(slab, BLOCKS - 1) && atomic_load(&cache->remote));
    OK(tarn_stream_retire(stream)); /* drains the words and keeps nothing */
    CHECK(!map_get((uintptr_t)blocks[0]));
    CHECK(cache->empty_bytes == 0);
    OK(tarn_device_synchronize(0));
    nothing_is_left(0);
}

/* The other way round: the owner frees, and another thread goes on that has seen the block live, of
 * that size, before. */
static void free_twice_later(void *pointer, size_t requested)
{
    struct slab *slab = slab_of(pointer);
    unsigned slot = slab_slot(slab, (uintptr_t)pointer);
    OK(tarn_free(pointer));
    CHECK(!slab_is_taken(slab, slot));
    slab->notes[slot] |= NOTE_TAKEN;
    free_from_elsewhere(slab, slot, requested);
    slab->notes[slot] &= ~NOTE_TAKEN;
}

/* Blocks in the default pool and in a private one, whose counters have the device's above them. */
static void what_was_freed_twice_at_once_is_counted_once(void **state)
{
    (void)state;
    tarn_pool *pool = NULL;
    void *blocks[3];
    OK(tarn_pool_create(NULL, &pool));
    tarn_stats before = stats_of(0);
    for (int i = 0; i < 2; i++) {
        blocks[i] = alloc_on(own, 300);
        void *beside = alloc_on(own, 1000);
        OK(tarn_pool_alloc(pool, own, 5000, &blocks[2]));
        if (i) {
            free_twice_at_once(blocks[2]);
            free_twice_later(blocks[i], 300);
        } else {
            free_twice_later(blocks[2], 5000);
            free_twice_at_once(blocks[i]);
        }
        OK(tarn_free(beside));
        OK(tarn_pool_trim(pool, 0)); /* which drains */
        OK(tarn_device_trim(0, 0));
        tarn_stats now = stats_of(0), own_stats = {.size = sizeof own_stats};
        OK(tarn_pool_stats_get(pool, &own_stats));
        int64_t rounds = i + 1;
        CHECK(now.allocation[0].current == 0 && own_stats.allocation[0].current == 0);
        CHECK(now.allocated_bytes[0].current == 0 && own_stats.allocated_bytes[0].current == 0);
        CHECK(now.requested_bytes[0].current == 0 && own_stats.requested_bytes[0].current == 0);
        CHECK(now.active_bytes[0].current == 0 && own_stats.active_bytes[0].current == 0);
        CHECK(now.allocation[0].freed == before.allocation[0].freed + 3 * rounds &&
              own_stats.allocation[0].freed == rounds);
        CHECK(now.requested_bytes[0].freed == before.requested_bytes[0].freed + 6300 * rounds);
        CHECK(now.allocated_bytes[0].freed ==
              before.allocated_bytes[0].freed + (512 + 1024 + 5120) * rounds);
    }
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
}

/* The same as it happens: one thread frees by the fast path, and another at the same moment. */
static struct {
    _Atomic(void *) block; /* to free, as soon as it is seen; NULL when that was done, and the end
                              without one */
    atomic_bool over;
    atomic_uint freed;
    bool on; /* by tarn_free_on() */
} crossing;

static void *free_what_is_shown(void *argument)
{
    (void)argument;
    while (!atomic_load(&crossing.over)) {
        void *block = atomic_load(&crossing.block);
        if (!block)
            continue;
        tarn_status status = crossing.on ? tarn_free_on(block, own) : tarn_free(block);
        CHECK(status == TARN_OK || status == TARN_ERROR_DOUBLE_FREE);
        atomic_fetch_add(&crossing.freed, status == TARN_OK);
        atomic_store(&crossing.block, NULL);
    }
    return NULL;
}

static void frees_that_cross_are_counted_once(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    pthread_t thread;
    tarn_stats before = stats_of(0);
    CHECK(pthread_create(&thread, NULL, free_what_is_shown, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        void *block = alloc_on(own, 100 + (size_t)i % 2000);
        struct heap *heap = slab_owner(slab_of(block))->heap;
        crossing.on = i % 2;
        atomic_store(&crossing.block, block);
        for (int wait = i % 64; wait; wait--)
            atomic_signal_fence(memory_order_seq_cst);
        tarn_status status = tarn_free(block);
        CHECK(status == TARN_OK || status == TARN_ERROR_DOUBLE_FREE);
        atomic_fetch_add(&crossing.freed, status == TARN_OK);
        while (atomic_load(&crossing.block))
            sched_yield();
        mutex_lock(&heap->lock); /* before it is handed out again: then nobody could tell */
        caches_reclaim_locked(heap);
        mutex_unlock(&heap->lock);
    }
    atomic_store(&crossing.over, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(atomic_load(&crossing.freed) >= ROUNDS); /* more: that many crossed */
    tarn_stats now = stats_of(0);
    CHECK(now.allocation[0].current == 0 && now.allocated_bytes[0].current == 0 &&
          now.requested_bytes[0].current == 0);
    CHECK(now.allocation[0].freed == before.allocation[0].freed + ROUNDS);
    nothing_is_left(0);
}

static void a_block_freed_twice_at_once_does_not_count_twice_as_empty(void **state)
{
    (void)state;
    enum { BLOCKS = 64 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = alloc_on(own, 65536);
    struct slab *slab = slab_of(blocks[0]);
    struct cache *cache = slab_owner(slab);
    for (int i = 0; i < BLOCKS; i++) /* more than a magazine holds: the first slabs come home, and
                                        are empty */
        OK(tarn_free(blocks[i]));
    assert_ptr_equal(map_slab(map_get((uintptr_t)blocks[0])), slab);
    CHECK(slab->homes == slab->slots);
    size_t empty = cache->empty_bytes;
    CHECK(empty && empty <= CACHE_EMPTY_BYTES + slab_span_size(slab->class));
    slab_note_write(&slab->notes[0], 0, 0);
    free_from_elsewhere(slab, 0, 65536);
    slab_note_end(&slab->notes[0], slab->notes[0]);
    void *drained = NULL;
    OK(tarn_alloc_on(own, 20000, &drained)); /* another class: the slow path drains */
    CHECK(cache->empty_bytes == empty && !slab_is_freed(slab, 0));
    OK(tarn_free(drained));
    nothing_is_left(0);
}

/* Memory that is short ------------------------------------------------------------------------- */

static void free_memory_of_one_zone_serves_the_other_when_memory_is_short(void **state)
{
    (void)state;
    void *large = alloc_on(own, 120 * MIB), *rest[8];
    int count = 0;
    while (count < 8 && tarn_alloc_on(own, MIB + 1, &rest[count]) == TARN_OK)
        count++;
    for (int i = 0; i < count; i += 2) /* holes in pieces that are partly used */
        OK(tarn_free(rest[i]));
    void *small = alloc_on(own, 1000), *whole = alloc_on(own, MIB);
    OK(tarn_free(small));
    OK(tarn_free(whole));
    for (int i = 1; i < count; i += 2)
        OK(tarn_free(rest[i]));
    OK(tarn_free(large));
    nothing_is_left(0);
}

static void small_blocks_of_many_streams_leave_addresses_for_a_large_one(void **state)
{
    (void)state;
    enum { STREAMS = 16 };
    void *small[STREAMS];
    for (int i = 0; i < STREAMS; i++)
        small[i] = alloc_on(lease(0), 1000);
    OK(tarn_free(alloc_on(own, MEMORY - STREAMS * 2 * MIB))); /* each block holds a piece */
    for (int i = 0; i < STREAMS; i++)
        OK(tarn_free(small[i]));
    nothing_is_left(0);
}

static atomic_bool ends;
static atomic_uint churned;

/* Frees blocks that another stream uses, for ever. */
static void *churn(void *argument)
{
    (void)argument;
    while (!atomic_load(&ends)) {
        void *block = NULL;
        if (tarn_alloc_on(other, 4 * MIB, &block))
            continue;
        work_on(third, block, MIB, 1000);
        OK(tarn_free_on(block, third));
        atomic_fetch_add(&churned, 1);
    }
    return NULL;
}

static void no_request_or_trim_waits_for_what_other_threads_queue_for_ever(void **state)
{
    (void)state;
    pthread_t threads[2];
    void *live = alloc_on(own, 64 * MIB), *none = &none;
    atomic_store(&ends, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, NULL), 0);
    while (atomic_load(&churned) < 10)
        ;
    alarm(60);
    for (int i = 0; i < 5; i++) {
        GIVES(tarn_alloc_on(own, 100 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
        OK(tarn_device_trim(0, 0));
    }
    alarm(0);
    atomic_store(&ends, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    OK(tarn_free(live));
    nothing_is_left(0);
}

/* Asks for more than can be there, and has all that there is in its hands meanwhile. */
static void *ask_too_much(void *argument)
{
    (void)argument;
    void *none = NULL;
    while (!atomic_load(&ends))
        GIVES(tarn_alloc_on(other, 120 * MIB, &none), TARN_ERROR_OUT_OF_MEMORY);
    return NULL;
}

static void memory_in_another_threads_hands_is_waited_for(void **state)
{
    (void)state;
    pthread_t threads[2];
    void *live = alloc_on(own, 20 * MIB);
    atomic_store(&ends, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_too_much, NULL), 0);
    for (int i = 0; i < 300; i++) {
        OK(tarn_free(alloc_on(own, 90 * MIB)));
        OK(tarn_free(alloc_on(third, 100 * MIB)));
    }
    atomic_store(&ends, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    OK(tarn_free(live));
    nothing_is_left(0);
}

/* The end of a device and of a process --------------------------------------------------------- */

static void *wait_and_allocate(void *argument)
{
    pthread_barrier_t *barrier = argument;
    void *block = NULL;
    OK(tarn_free(alloc_on(other, 1000)));
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    GIVES(tarn_alloc_on(other, 1000, &block), TARN_ERROR_DEVICE_LOST);
    return NULL;
}

static void lose(void)
{
    pthread_t thread;
    pthread_barrier_t barrier;
    void *block = NULL;
    pthread_barrier_init(&barrier, NULL, 2);
    host_start_with(1, MEMORY);
    own = lease(0);
    other = lease(0);
    assert_int_equal(pthread_create(&thread, NULL, wait_and_allocate, &barrier), 0);
    pthread_barrier_wait(&barrier);
    void *live = alloc_on(own, 1000), *current = tarn_malloc(2000);
    OK(tarn_host_fail_set(kind_of("create"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_alloc_on(own, 30 * MIB, &block), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_alloc_on(own, 1000, &block), TARN_ERROR_DEVICE_LOST);
    CHECK(!tarn_malloc(2000) && tarn_last_status() == TARN_ERROR_DEVICE_LOST);
    pthread_barrier_wait(&barrier); /* another thread's cache too */
    assert_int_equal(pthread_join(thread, NULL), 0);
    OK(tarn_free(live));
    OK(tarn_free(current));
    GIVES(tarn_free(live), TARN_ERROR_DOUBLE_FREE);
    (void)stats_of(0);
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK)); /* publishes, and must not open the caches
                                                        again */
    GIVES(tarn_alloc_on(own, 1000, &block), TARN_ERROR_DEVICE_LOST);
    CHECK(stats_of(0).allocation[0].current == 0);
}

static void a_lost_device_gives_no_cached_memory(void **state)
{
    (void)state;
    in_child(lose);
}

/* Work may still use it, whatever the driver's book says. */
static void lose_segments(void)
{
    void *block = NULL, *refused = NULL;
    OK(tarn_configuration_set("segments:plain"));
    host_start_with(1, MEMORY);
    OK(tarn_host_check_set(true, NULL, NULL));
    own = lease(0);
    block = alloc_on(own, 30 * MIB);
    work_on(own, block, MIB, 1000000);
    OK(tarn_host_fail_set(kind_of("alloc"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_alloc_on(own, 40 * MIB, &refused), TARN_ERROR_DEVICE_LOST);
    OK(tarn_free(block));
    CHECK(tarn_device_trim(0, 0) == TARN_ERROR_DEVICE_LOST);
    OK(tarn_shutdown());
    CHECK(calls_of(0, "free") == 0 && ledger_of(0).reports == 0);
}

static void a_lost_device_keeps_its_segments(void **state)
{
    (void)state;
    in_child(lose_segments);
}

static void *child_of_a_thread(void *argument)
{
    (void)argument;
    tarn_host_ledger ledger = {.size = sizeof ledger};
    tarn_host_configuration config = {.size = sizeof config};
    uint64_t now = 0;
    GIVES(tarn_host_time_get(&now), TARN_ERROR_FORKED);
    GIVES(tarn_host_advance(1), TARN_ERROR_FORKED);
    GIVES(tarn_host_ledger_get(0, &ledger), TARN_ERROR_FORKED);
    GIVES(tarn_host_fail_set(-1, 0, false, TARN_OK), TARN_ERROR_FORKED);
    GIVES(tarn_host_configuration_set(&config), TARN_ERROR_FORKED);
    GIVES(tarn_host_work(0, NULL, NULL, 0, 1), TARN_ERROR_FORKED);
    GIVES(tarn_host_check_set(true, NULL, NULL), TARN_ERROR_FORKED);
    return NULL;
}

static void ask_in_child(void)
{
    (void)child_of_a_thread(NULL);
}

static void a_child_is_refused_by_the_host_device_too(void **state)
{
    (void)state;
    OK(tarn_free(alloc_on(own, 1000)));
    in_child(ask_in_child);
}

static int set_up(void **state)
{
    (void)state;
    host_start_with(1, MEMORY);
    own = lease(0);
    other = lease(0);
    third = lease(0);
    return 0;
}

static int start(void **state)
{
    (void)state;
    OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
    return 0;
}

int main(void)
{
    const struct CMUnitTest before[] = {cmocka_unit_test(a_lost_device_gives_no_cached_memory),
                                        cmocka_unit_test(a_lost_device_keeps_its_segments)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_retired_stream_is_refused_although_its_cache_has_another_owner),
        cmocka_unit_test_setup(streams_that_come_and_go_use_the_memory_of_those_before_them, start),
        cmocka_unit_test(a_block_of_a_retired_stream_grows_only_over_idle_memory),
        cmocka_unit_test(a_slab_stays_while_a_word_of_it_is_listed),
        cmocka_unit_test(what_was_freed_twice_at_once_is_counted_once),
        cmocka_unit_test(frees_that_cross_are_counted_once),
        cmocka_unit_test(a_block_freed_twice_at_once_does_not_count_twice_as_empty),
        cmocka_unit_test(free_memory_of_one_zone_serves_the_other_when_memory_is_short),
        cmocka_unit_test(small_blocks_of_many_streams_leave_addresses_for_a_large_one),
        cmocka_unit_test(no_request_or_trim_waits_for_what_other_threads_queue_for_ever),
        cmocka_unit_test(memory_in_another_threads_hands_is_waited_for),
        cmocka_unit_test(a_child_is_refused_by_the_host_device_too),
    };
    /* In a child of a process that has not used tarn */
    int failed = cmocka_run_group_tests(before, NULL, NULL);
    return failed + cmocka_run_group_tests(tests, set_up, NULL);
}
