/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Storms, for the sanitizers above all: threads that share streams, pass blocks to each other, and
 * run a small device full. Running out of memory is allowed in a storm; afterwards everything must
 * be as if it had not been. TARN_STORM_STEPS is the length. */
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 8
#define STREAMS 4
#define MEMORY (64 * MIB)
#define MAILBOXES 64
#define OWN 24

static tarn_stream streams[STREAMS];
static void *natives[STREAMS];
static _Atomic(unsigned char *) mailboxes[MAILBOXES];
static atomic_uint outs, served;
static atomic_bool ends;

static int steps(void)
{
    const char *text = getenv("TARN_STORM_STEPS");
    return text ? atoi(text) : 3000;
}

static size_t random_size(uint64_t *random)
{
    switch (random_next(random) % 4) {
    case 0:
        return 1 + random_next(random) % 2000;
    case 1:
        return 1 + random_next(random) % 100000;
    case 2:
        return 1 + random_next(random) % (MIB * 3 / 2);
    default:
        return 1 + random_next(random) % (8 * MIB);
    }
}

/* The first bytes say how long the block is and what it is painted with. */
struct mark_in_block {
    size_t size;
    unsigned char paint;
};

static void paint(unsigned char *block, size_t size, unsigned char value)
{
    if (size < sizeof(struct mark_in_block) + 1)
        return;
    struct mark_in_block mark = {size, value};
    memcpy(block, &mark, sizeof mark);
    block[size - 1] = value;
}

static void check_paint(const unsigned char *block)
{
    size_t usable = usable_size(block);
    struct mark_in_block mark;
    memcpy(&mark, block, sizeof mark);
    CHECK(mark.size <= usable && block[mark.size - 1] == mark.paint);
}

static void release(uint64_t *random, unsigned char *block)
{
    int stream = (int)(random_next(random) % STREAMS);
    check_paint(block);
    switch (random_next(random) % 4) {
    case 0:
        OK(tarn_host_work(0, natives[stream], block, 16, random_next(random) % 500));
        OK(tarn_free_on(block, streams[stream]));
        break;
    case 1: { /* an inner address, while its neighbours come and go */
        size_t size = usable_size(block);
        OK(tarn_record_stream(block + random_next(random) % size, streams[stream]));
        OK(tarn_free(block));
        break;
    }
    case 2: {
        tarn_event *event = NULL;
        OK(tarn_event_create(0, &event));
        OK(tarn_event_record(event, streams[stream]));
        OK(tarn_free_after(block, event));
        OK(tarn_event_destroy(event));
        break;
    }
    default:
        OK(tarn_free(block));
    }
}

static void *blow(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u;
    unsigned char *own[OWN] = {0};
    for (int step = 0, count = steps(); step < count; step++) {
        unsigned char **place = &own[random_next(&random) % OWN];
        if (!*place) {
            size_t size = sizeof(struct mark_in_block) + random_size(&random);
            void *block = NULL;
            tarn_status status =
                tarn_alloc_on(streams[random_next(&random) % STREAMS], size, &block);
            CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
            atomic_fetch_add_explicit(status ? &outs : &served, 1, memory_order_relaxed);
            if (status)
                continue;
            *place = block;
            paint(*place, size, (unsigned char)random_next(&random));
        } else if (random_next(&random) % 3 == 0) { /* to another thread, which frees it */
            *place = atomic_exchange(&mailboxes[random_next(&random) % MAILBOXES], *place);
            if (*place)
                check_paint(*place);
        } else {
            tarn_block_info info = {.size = sizeof info};
            OK(tarn_pointer_info_get(*place + usable_size(*place) - 1, &info));
            CHECK(info.base == *place);
            release(&random, *place);
            *place = NULL;
        }
        if (random_next(&random) % 64 == 0)
            OK(tarn_host_advance(time_now() + random_next(&random) % 300));
    }
    for (int i = 0; i < OWN; i++)
        if (own[i])
            release(&random, own[i]);
    return NULL;
}

/* Trims, statistics and limits beside the storm. */
static void *watch(void *argument)
{
    uint64_t random = 99;
    while (!atomic_load(&ends)) {
        tarn_stats stats = stats_of(0);
        CHECK(stats.reserved_bytes[0].current <= (int64_t)MEMORY &&
              stats.allocation[0].current >= 0);
        OK(tarn_device_trim(0, random_next(&random) % MEMORY));
        OK(tarn_device_limit_set(0, random_next(&random) % 2
                                        ? TARN_NO_LIMIT
                                        : MEMORY / 2 + random_next(&random) % MEMORY));
        OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
        size_t free_bytes, total_bytes;
        OK(tarn_device_memory_get(0, &free_bytes, &total_bytes));
    }
    return argument;
}

static void empty_mailboxes(void)
{
    for (int i = 0; i < MAILBOXES; i++)
        OK(tarn_free(atomic_exchange(&mailboxes[i], NULL)));
}

static void a_storm_leaves_nothing_behind(void **state)
{
    (void)state;
    pthread_t threads[THREADS], watcher;
    assert_int_equal(pthread_create(&watcher, NULL, watch, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, blow, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store(&ends, true);
    assert_int_equal(pthread_join(watcher, NULL), 0);
    empty_mailboxes();
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
    printf("%u blocks, %u times out of memory\n", atomic_load(&served), atomic_load(&outs));
    CHECK(atomic_load(&served) > 0);
    verify(0);
    nothing_is_left(0);
}

static void *allocate_once(void *argument)
{
    char *block = alloc_on(TARN_STREAM_PER_THREAD, (size_t)(uintptr_t)argument % 3000 + 1);
    block[0] = 1;
    if ((uintptr_t)argument % 2 == 0) {
        OK(tarn_free(block));
        return NULL;
    }
    return block; /* the joining thread frees it when its stream is another thread's already */
}

static void thousands_of_short_threads_use_few_streams(void **state)
{
    (void)state;
    uint64_t made = calls_of(0, "stream_create"), bytes = 0;
    int count = steps() < 2000 ? steps() : 2000;
    for (int i = 0; i < count; i += 4) {
        pthread_t threads[4];
        for (int k = 0; k < 4; k++)
            assert_int_equal(
                pthread_create(&threads[k], NULL, allocate_once, (void *)(uintptr_t)(i + k)), 0);
        for (int k = 0; k < 4; k++) {
            void *block = NULL;
            assert_int_equal(pthread_join(threads[k], &block), 0);
            OK(tarn_free(block));
        }
        if (i == 100)
            bytes = metadata_bytes();
    }
    CHECK(calls_of(0, "stream_create") - made <= 4);
    CHECK(metadata_bytes() <= bytes + MIB);
    nothing_is_left(0);
}

#define ADOPTED 4
static _Atomic(unsigned char *) passed[MAILBOXES];

/* Adopts, allocates, uses, retires; the blocks outlive the stream and are freed by whoever finds
 * them. */
static void *adopt_use_retire(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u;
    void *native = native_made(0);
    for (int i = 0, count = steps() / 10; i < count; i++) {
        tarn_stream stream = 0;
        OK(tarn_stream_adopt(0, native, &stream));
        for (int k = 0; k < 3; k++) {
            void *block = NULL;
            if (tarn_alloc_on(stream, 1 + random_next(&random) % MIB, &block))
                continue;
            OK(tarn_host_work(0, native, block, 1, random_next(&random) % 300));
            unsigned char *found =
                atomic_exchange(&passed[random_next(&random) % MAILBOXES], block);
            if (!found)
                continue;
            OK(tarn_record_stream(found, stream)); /* freed while its users are retired elsewhere */
            found = atomic_exchange(&passed[random_next(&random) % MAILBOXES], found);
            OK(tarn_free(found));
        }
        OK(tarn_stream_retire(stream));
        OK(tarn_host_advance(time_now() + 50));
    }
    return NULL;
}

static void streams_are_retired_while_other_threads_free_what_they_use(void **state)
{
    (void)state;
    pthread_t threads[ADOPTED];
    for (uintptr_t i = 0; i < ADOPTED; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, adopt_use_retire, (void *)(i + 1)), 0);
    for (int i = 0; i < ADOPTED; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < MAILBOXES; i++)
        OK(tarn_free(atomic_exchange(&passed[i], NULL)));
    verify(0);
    nothing_is_left(0);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = lease(0);
        natives[i] = native_of(streams[i]);
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_storm_leaves_nothing_behind),
        cmocka_unit_test(thousands_of_short_threads_use_few_streams),
        cmocka_unit_test(streams_are_retired_while_other_threads_free_what_they_use),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, NULL);
}
