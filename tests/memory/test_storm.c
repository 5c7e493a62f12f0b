/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The model of many threads: each does at random whatever the headers allow, with memory short, limits that change, streams that
 * are adopted and retired at full speed, and driver calls and host allocations that fail meanwhile. What is checked: no two live blocks
 * share a unit, a live block holds what its thread wrote, a free of a live block succeeds, only statuses come that may, and in the end
 * everything is at rest and nothing is left. TARN_SEED and TARN_STORM_STEPS say which storm. */
#include "base/pages.h"
#include "support/host.h"
#include "support/shadow.h"
#include "support/snapshots.h"

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
#define SHARED 3
#define BLOCKS 40
#define MAILBOXES 32
#define MEMORY (96 * MIB)

struct block {
    unsigned char *start;
    size_t size;
    unsigned char paint;
};

#define BURST 150
#define BURSTS 4
struct burst {
    size_t size;
    unsigned count;
    unsigned char paint, *blocks[BURST];
};

static tarn_stream shared[SHARED];
static _Atomic(struct burst *) bursts[BURSTS];
static _Atomic(struct block *) mailboxes[MAILBOXES];
static uint64_t seed = 1;
static bool inject;

struct worker {
    uint64_t random;
    tarn_stream adopted;
    void *native;
    struct block blocks[BLOCKS];
};

static int steps(void)
{
    const char *text = getenv("TARN_STORM_STEPS");
    return text ? atoi(text) : 4000;
}

static uint64_t below(struct worker *worker, uint64_t limit)
{
    return random_next(&worker->random) % limit;
}

/* What may come of a request while memory is short and calls fail. */
static bool may_fail(tarn_status status)
{
    return status == TARN_ERROR_OUT_OF_MEMORY || status == TARN_ERROR_OUT_OF_HOST_MEMORY ||
           (inject && (status == TARN_ERROR_DRIVER || status == TARN_ERROR_MAPPING_LIMIT));
}

/* A few bytes at both ends and in between: a block that shares memory with another is found by one of the two. */
static void paint(const struct block *block)
{
    for (size_t i = 0; i < block->size; i += block->size / 37 + 1)
        block->start[i] = block->paint;
    block->start[block->size - 1] = block->paint;
}

static void check_paint(const struct block *block)
{
    bool whole = block->start[block->size - 1] == block->paint;
    for (size_t i = 0; i < block->size && whole; i += block->size / 37 + 1)
        whole = block->start[i] == block->paint;
    CHECK(whole);
}

static size_t some_size(struct worker *worker)
{
    static const size_t most[] = {2000, 2000, 70000, 70000, MIB, 3 * MIB, 12 * MIB, 40 * MIB};
    return 1 + below(worker, most[below(worker, 8)]);
}

static tarn_stream some_stream(struct worker *worker)
{
    switch (below(worker, 4)) {
    case 0:
        return worker->adopted;
    case 1:
        return below(worker, 2) ? TARN_STREAM_LEGACY : TARN_STREAM_PER_THREAD;
    default:
        return shared[below(worker, SHARED)];
    }
}

static void allocate(struct worker *worker, struct block *block)
{
    void *start = NULL;
    size_t size = some_size(worker);
    tarn_status status = TARN_OK;
    if (below(worker, 4) == 0) {
        start = tarn_malloc(size);
        status = start ? TARN_OK : tarn_last_status();
    } else if (below(worker, 8) == 0) {
        tarn_alloc_options options = {.size = sizeof options,
                                      .device = TARN_CURRENT_DEVICE,
                                      .stream = some_stream(worker),
                                      .alignment = (size_t)1 << below(worker, 22)};
        status = tarn_alloc(&options, size, &start);
        CHECK(status || (uintptr_t)start % options.alignment == 0);
    } else {
        status = tarn_alloc_on(some_stream(worker), size, &start);
    }
    CHECK((start != NULL) == (status == TARN_OK));
    CHECK(!status || may_fail(status));
    if (!status) {
        *block = (struct block){start, size, (unsigned char)below(worker, 256)};
        shadow_enter(start, size);
        paint(block);
    }
}

/* Freed behind what a stream has to do now. */
static tarn_status free_after(struct worker *worker, void *start)
{
    tarn_event *event = NULL;
    tarn_status status = tarn_event_create(0, &event);
    if (!status && !(status = tarn_event_record(event, some_stream(worker))))
        status = tarn_free_after(start, event);
    (void)tarn_event_destroy(event);
    return status;
}

static void release(struct worker *worker, struct block *block)
{
    tarn_status status = TARN_ERROR_NO_ROOM;
    uint64_t how = below(worker, 8);
    check_paint(block);
    shadow_leave(block->start, block->size); /* before anybody else can have it */
    if (how < 2)
        status = tarn_free_on(block->start, some_stream(worker));
    else if (how == 2)
        status = free_after(worker, block->start);
    if (status) {
        CHECK(status == TARN_ERROR_NO_ROOM || may_fail(status)); /* and the block lives */
        check_paint(block);
        OK(tarn_free(block->start));
    }
    block->start = NULL;
}

static void use(struct worker *worker, struct block *block)
{
    size_t size = 0;
    check_paint(block);
    switch (below(worker, 3)) {
    case 0: {
        tarn_status status = tarn_record_stream(block->start + below(worker, block->size), some_stream(worker));
        CHECK(!status || may_fail(status));
        break;
    }
    case 1:
        if (tarn_extend(block->start, block->size + below(worker, 4096)) == TARN_OK) {
            OK(tarn_usable_size(block->start, &size));
            shadow_leave(block->start, block->size);
            shadow_enter(block->start, size);
            block->size = size;
            paint(block);
        }
        break;
    default: {
        tarn_block_info info = {.size = sizeof info};
        OK(tarn_pointer_info(block->start + below(worker, block->size), &info));
        CHECK(info.base == block->start && info.usable_size >= block->size);
    }
    }
}

/* Gives a block to whoever looks there next, and takes what lies there. */
static void exchange(struct worker *worker, struct block *block)
{
    struct block *parcel = malloc(sizeof *parcel);
    CHECK(parcel);
    *parcel = *block;
    parcel = atomic_exchange(&mailboxes[below(worker, MAILBOXES)], parcel);
    block->start = NULL;
    if (parcel)
        *block = *parcel;
    free(parcel);
}

/* More small blocks of one size than a magazine holds, which this thread frees, or whoever comes next. */
static void free_burst(struct burst *burst)
{
    for (unsigned i = 0; burst && i < burst->count; i++) {
        CHECK(*burst->blocks[i] == burst->paint);
        shadow_leave(burst->blocks[i], burst->size);
        OK(tarn_free(burst->blocks[i]));
    }
    free(burst);
}

static void burst(struct worker *worker)
{
    tarn_stream stream = some_stream(worker);
    struct burst *made = calloc(1, sizeof *made);
    CHECK(made);
    made->size = 1 + below(worker, 16384);
    made->paint = (unsigned char)below(worker, 256);
    while (made->count < BURST) {
        void *start = NULL;
        tarn_status status = tarn_alloc_on(stream, made->size, &start);
        CHECK(!status || may_fail(status));
        if (status)
            break;
        shadow_enter(start, made->size);
        made->blocks[made->count] = start;
        *made->blocks[made->count++] = made->paint;
    }
    if (below(worker, 2))
        made = atomic_exchange(&bursts[below(worker, BURSTS)], made);
    free_burst(made);
}

static void renew_stream(struct worker *worker)
{
    tarn_status status;
    while ((status = tarn_stream_set(TARN_STREAM_LEGACY))) /* it may be the current one */
        CHECK(may_fail(status));
    if ((status = tarn_stream_retire(worker->adopted))) {
        CHECK(may_fail(status));
        return;
    }
    while ((status = tarn_stream_adopt(0, worker->native, &worker->adopted)))
        CHECK(may_fail(status));
}

static void disturb(struct worker *worker)
{
    static const tarn_status failures[] = {TARN_ERROR_OUT_OF_MEMORY, TARN_ERROR_DRIVER, TARN_ERROR_MAPPING_LIMIT};
    tarn_stats stats = {.size = sizeof stats};
    switch (below(worker, 8)) {
    case 0: {
        tarn_status status = tarn_trim(0, below(worker, MEMORY));
        CHECK(!status || may_fail(status));
        break;
    }
    case 1:
        OK(tarn_stats_get(0, &stats));
        CHECK(stats.reserved_bytes[0].current <= (int64_t)MEMORY);
        break;
    case 2:
        OK(tarn_stats_reset_peak(0));
        break;
    case 3:
        OK(tarn_limit_set(0, below(worker, 2) ? SIZE_MAX : below(worker, MEMORY)));
        break;
    case 4:
        if (inject)
            OK(tarn_host_fail((int)below(worker, (uint64_t)tarn_host_call_kinds() + 1) - 1, 1 + below(worker, 20),
                              below(worker, 4) == 0, failures[below(worker, 3)]));
        break;
    case 5:
        if (inject)
            OK(tarn_host_fail(-1, 0, false, TARN_OK));
        break;
    case 6:
        if (inject)
            pages_fail(below(worker, 2) ? 0 : 1 + below(worker, 50), below(worker, 8) == 0);
        break;
    default:
        OK(tarn_host_advance(time_now() + below(worker, 2000)));
    }
}

static void work(struct worker *worker, const struct block *block)
{
    void *native = below(worker, 2) ? worker->native : native_of(shared[below(worker, SHARED)]);
    (void)tarn_host_work(0, native, block->start, block->size, below(worker, 3000));
}

static void *storm(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0, count = steps(); i < count; i++) {
        struct block *block = &worker->blocks[below(worker, BLOCKS)];
        uint64_t what = below(worker, 64);
        if (what == 0)
            disturb(worker);
        else if (what == 1)
            renew_stream(worker);
        else if (what == 2 && below(worker, 2))
            burst(worker);
        else if (what == 2)
            (void)tarn_stream_set(some_stream(worker));
        else if (!block->start)
            allocate(worker, block);
        else if (what < 10)
            exchange(worker, block);
        else if (what < 16)
            use(worker, block);
        else if (what < 20)
            work(worker, block);
        else
            release(worker, block);
    }
    return NULL;
}

/* The thread that allocates next is another one: it takes over what caches the ended ones left. */
static void *storm_twice(void *argument)
{
    struct worker *worker = argument;
    for (int half = 0; half < 2; half++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, storm, worker), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return NULL;
}

static void run(bool with_failures)
{
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    inject = with_failures;
    memset(workers, 0, sizeof workers);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = (seed * THREADS + i + 1) * 0x9e3779b97f4a7c15u;
        workers[i].native = native_of(lease(0));
        OK(tarn_stream_adopt(0, workers[i].native, &workers[i].adopted));
    }
    snapshots_begin(with_failures);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? storm : storm_twice, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pages_fail(0, false);
    snapshots_end();
    OK(tarn_host_fail(-1, 0, false, TARN_OK));
    OK(tarn_limit_set(0, SIZE_MAX));
    verify(0);
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < BLOCKS; k++)
            if (workers[i].blocks[k].start)
                release(&workers[i], &workers[i].blocks[k]);
    }
    for (int i = 0; i < BURSTS; i++)
        free_burst(atomic_exchange(&bursts[i], NULL));
    for (int i = 0; i < MAILBOXES; i++) {
        struct block *parcel = atomic_exchange(&mailboxes[i], NULL);
        if (parcel && parcel->start)
            release(&workers[0], parcel);
        free(parcel);
    }
    for (int i = 0; i < THREADS; i++)
        OK(tarn_stream_retire(workers[i].adopted));
    shadow_is_empty();
    verify(0);
    nothing_is_left(0);
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

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < SHARED; i++)
        shared[i] = lease(0);
    return 0;
}

static int report(void **state)
{
    (void)state;
    printf("seed %" PRIu64 ": %d operations\n", seed,
           3 * THREADS * steps()); /* half of the threads do them twice, in two runs */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_what_they_may),
        cmocka_unit_test(threads_do_what_they_may_while_calls_fail),
    };
    const char *text = getenv("TARN_SEED");
    if (text)
        seed = strtoull(text, NULL, 10);
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, set_up, report);
}
