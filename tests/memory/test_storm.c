/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The model of many threads: each does at random whatever the headers allow, with memory short,
 * limits that change, streams that are adopted and retired at full speed, and driver calls and host
 * allocations that fail meanwhile. What is checked: no two live blocks share a unit, a live block
 * holds what its thread wrote, a free of a live block succeeds, only statuses come that may, and in
 * the end everything is at rest and nothing is left. */
#include "support/shadow.h"
#include "support/storm.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define THREADS 8
#define STEPS 4000
#define MEMORY (96 * MIB)

#define BURST 150
#define BURSTS 4
struct burst {
    size_t size;
    unsigned count;
    unsigned char paint, *blocks[BURST];
};

static _Atomic(struct burst *) bursts[BURSTS];

static void allocate(struct storm_worker *worker, struct storm_block *block)
{
    void *start = NULL;
    size_t size = storm_size(worker);
    tarn_status status = TARN_OK;
    if (storm_below(worker, 4) == 0) {
        start = tarn_malloc(size);
        status = start ? TARN_OK : tarn_last_status();
    } else if (storm_below(worker, 8) == 0) {
        tarn_alloc_options options = {.size = sizeof options,
                                      .device = TARN_CURRENT_DEVICE,
                                      .stream = storm_stream(worker),
                                      .alignment = (size_t)1 << storm_below(worker, 22)};
        status = tarn_alloc(&options, size, &start);
        CHECK(status || (uintptr_t)start % options.alignment == 0);
    } else {
        status = tarn_alloc_on(storm_stream(worker), size, &start);
    }
    CHECK((start != NULL) == (status == TARN_OK));
    CHECK(!status || storm_may_fail(status));
    if (!status)
        storm_begin_block(worker, block, start, size);
}

/* More small blocks of one size than a magazine holds, which this thread frees, or whoever comes
 * next. */
static void free_burst(struct burst *burst)
{
    for (unsigned i = 0; burst && i < burst->count; i++) {
        CHECK(*burst->blocks[i] == burst->paint);
        shadow_leave(burst->blocks[i], burst->size);
        OK(tarn_free(burst->blocks[i]));
    }
    free(burst);
}

static void burst(struct storm_worker *worker)
{
    tarn_stream stream = storm_stream(worker);
    struct burst *made = calloc(1, sizeof *made);
    CHECK(made);
    made->size = 1 + storm_below(worker, 16384);
    made->paint = (unsigned char)storm_below(worker, 256);
    while (made->count < BURST) {
        void *start = NULL;
        tarn_status status = tarn_alloc_on(stream, made->size, &start);
        CHECK(!status || storm_may_fail(status));
        if (status)
            break;
        shadow_enter(start, made->size);
        made->blocks[made->count] = start;
        *made->blocks[made->count++] = made->paint;
    }
    if (storm_below(worker, 2))
        made = atomic_exchange(&bursts[storm_below(worker, BURSTS)], made);
    free_burst(made);
}

static void disturb(struct storm_worker *worker)
{
    tarn_stats stats = {.size = sizeof stats};
    switch (storm_below(worker, 8)) {
    case 0: {
        tarn_status status = tarn_device_trim(0, storm_below(worker, MEMORY));
        CHECK(!status || storm_may_fail(status));
        break;
    }
    case 1:
        OK(tarn_device_stats_get(0, &stats));
        CHECK(stats.reserved_bytes[0].current <= (int64_t)MEMORY);
        break;
    case 2:
        OK(tarn_device_stats_reset(0, TARN_STATS_PEAK));
        break;
    case 3:
        OK(tarn_device_limit_set(0, storm_below(worker, 2) ? TARN_NO_LIMIT
                                                           : storm_below(worker, MEMORY)));
        break;
    case 4:
    case 5:
    case 6:
        storm_inject(worker);
        break;
    default:
        OK(tarn_host_advance(time_now() + storm_below(worker, 2000)));
    }
}

static void work(struct storm_worker *worker, const struct storm_block *block)
{
    void *native = storm_below(worker, 2)
                       ? worker->native
                       : native_of(storm_shared[storm_below(worker, STORM_SHARED)]);
    (void)tarn_host_work(0, native, block->start, block->size, storm_below(worker, 3000));
}

static void *storm(void *argument)
{
    struct storm_worker *worker = argument;
    for (int i = 0, count = storm_steps(STEPS); i < count; i++) {
        struct storm_block *block = &worker->blocks[storm_below(worker, STORM_BLOCKS)];
        uint64_t what = storm_below(worker, 64);
        if (what == 0)
            disturb(worker);
        else if (what == 1)
            storm_renew_stream(worker);
        else if (what == 2 && storm_below(worker, 2))
            burst(worker);
        else if (what == 2)
            (void)tarn_stream_set(storm_stream(worker));
        else if (!block->start)
            allocate(worker, block);
        else if (what < 10)
            storm_exchange(worker, block);
        else if (what < 16)
            storm_use(worker, block);
        else if (what < 20)
            work(worker, block);
        else
            storm_end_block(worker, block);
    }
    return NULL;
}

/* Half of the threads do them twice: the thread that allocates next is another one, and takes over
 * what caches the ended ones left. */
static void *body(void *argument)
{
    struct storm_worker *worker = argument;
    pthread_t thread;
    if (worker->number % 2)
        return storm(worker);
    for (int half = 0; half < 2; half++) {
        CHECK(pthread_create(&thread, NULL, storm, worker) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return NULL;
}

static void run(bool with_failures)
{
    storm_run(THREADS, body, with_failures);
    for (int i = 0; i < BURSTS; i++)
        free_burst(atomic_exchange(&bursts[i], NULL));
    storm_finish();
}

static void threads_do_what_they_may(void **state)
{
    (void)state;
    run(false);
}

static void threads_do_what_they_may_while_calls_fail(void **state)
{
    (void)state;
    run(true);
}

static int report(void **state)
{
    (void)state;
    printf("seed %" PRIu64 ": %d operations\n", storm_seed,
           3 * THREADS * storm_steps(STEPS)); /* half of the threads do them twice, in two runs */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_what_they_may),
        cmocka_unit_test(threads_do_what_they_may_while_calls_fail),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, storm_set_up, report);
}
