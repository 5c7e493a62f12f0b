/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory and captures: what a capture used is kept, what it did not use is not, a capture is
 * never touched, and pools of their own keep each other's memory apart until they die. The first
 * tests are PyTorch's TestCachingHostAllocatorCudaGraph (test/test_cuda.py). */
#include "memory/settings/hooks.h"
#include "support/pinned.h"

/* How a capture begins: the first two are known. */
enum how { BY_TARN, ANNOUNCED, UNKNOWN, HOWS };

static void begin(tarn_stream stream, enum how how)
{
    if (how == BY_TARN) {
        OK(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        return;
    }
    if (how == ANNOUNCED)
        OK(tarn_capture_announce(stream));
    OK(driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_GLOBAL));
}

static void *end(tarn_stream stream, enum how how)
{
    void *graph = NULL;
    if (how == BY_TARN) {
        OK(tarn_capture_end(stream, &graph));
    } else {
        OK(driver->capture_end(0, native_of(stream), &graph));
        if (how == ANNOUNCED)
            OK(tarn_capture_end_announced(stream, graph));
    }
    CHECK(graph);
    return graph;
}

/* A copy in a stream, as a program queues it. */
static void copy(tarn_stream stream, void *to, const void *from, size_t size)
{
    OK(driver->copy(0, (uintptr_t)to, (uintptr_t)from, size, native_of(stream)));
}

static void each_way(enum how how)
{
    tarn_stream stream = lease(0), other = lease(0);
    char *device = alloc_on(other, MIB);
    begin(stream, how);

    /* Not used: the same memory again, inside the capture. */
    char *unused = pinned_take(MIB);
    OK(tarn_free(unused));
    CHECK(pinned_take(MIB) == (void *)unused);

    /* Used: kept. */
    char *used = unused;
    memset(used, 5, MIB);
    copy(stream, device, used, MIB);
    OK(tarn_record_stream(used, stream));
    OK(tarn_free(used));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    GIVES(tarn_free(used), TARN_ERROR_DOUBLE_FREE);
    char *next = pinned_take(MIB);
    CHECK(next != used);

    /* Work of others goes on, with events of their own. */
    char *beside = pinned_take(2 * MIB);
    work_on(other, beside, 1, 100);
    OK(tarn_record_stream(beside, other));
    OK(tarn_free(beside));
    CHECK(pinned_stats().pending_bytes == (int64_t)(2 * MIB));
    OK(tarn_host_advance(time_now() + 100));
    CHECK(pinned_stats().pending_bytes == 0);
    if (how != UNKNOWN)
        GIVES(tarn_pinned_trim(0), TARN_ERROR_CAPTURE);

    void *graph = end(stream, how);
    char *after = pinned_take(MIB);
    CHECK(after != used); /* over, and to be launched yet */
    for (int i = 0; i < 3; i++) {
        memset(device, 0, MIB);
        OK(tarn_host_graph_launch(0, graph, native_of(stream)));
        OK(tarn_stream_synchronize(stream));
        CHECK(device[0] == 5 && device[MIB - 1] == 5);
    }
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_free(after));
    OK(tarn_free(next));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    pinned_check(1);
    OK(tarn_pinned_forget_captures());
    CHECK(pinned_stats().graph_bytes == 0);
    OK(tarn_free(device));
    pinned_nothing_is_left(1);
}

static void a_capture_keeps_what_it_uses(void)
{
    host_start_with(1, 64 * MIB);
    for (enum how how = 0; how < HOWS; how++)
        each_way(how);
}

/* Device to host, and memory that is not pinned at all. */
static void the_other_direction_is_kept_too(void)
{
    static char plain[1000];
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    char *device = alloc_on(stream, MIB);
    memset(device, 3, MIB);
    begin(stream, BY_TARN);
    char *to = pinned_take(MIB);
    copy(stream, to, device, MIB);
    copy(stream, plain, device, sizeof plain);
    OK(tarn_record_stream(to + 100, stream));
    GIVES(tarn_record_stream(plain, stream), TARN_ERROR_INVALID_POINTER);
    void *graph = end(stream, BY_TARN);
    OK(tarn_host_graph_launch(0, graph, native_of(stream)));
    OK(tarn_stream_synchronize(stream));
    CHECK(to[MIB - 1] == 3 && plain[999] == 3);
    OK(tarn_free(to)); /* after the capture: kept all the same */
    CHECK(pinned_take(MIB) != (void *)to);
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_host_graph_destroy(graph));
}

/* Recorded before its stream captured, freed while it does: neither kept nor marked, and free soon
 * after the end. */
static void a_free_during_a_capture_waits_for_its_end(void)
{
    host_start_with(1, 64 * MIB);
    for (enum how how = 0; how < HOWS; how++) {
        tarn_stream stream = lease(0);
        char *block = pinned_take(MIB);
        work_on(stream, block, 1, 100);
        OK(tarn_record_stream(block, stream));
        begin(stream, how);
        uint64_t records = calls_of(0, "event_record"), queries = calls_of(0, "event_query");
        OK(tarn_free(block));
        time_pass(200);
        CHECK(pinned_stats().pending_bytes == (int64_t)MIB);
        char *other = pinned_take(MIB);
        CHECK(other != block);
        CHECK(calls_of(0, "event_record") == records && calls_of(0, "event_query") == queries);
        CHECK(strcmp(tarn_last_error(), "") == 0);
        OK(tarn_host_graph_destroy(end(stream, how)));
        CHECK(pinned_stats().pending_bytes == 0 && pinned_stats().graph_bytes == 0);
        OK(tarn_free(other));
        pinned_nothing_is_left(1);
    }
}

/* A stream that joins by an event of the program's captures too. */
static void streams_that_join_are_asked(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0), joined = lease(0);
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    char *block = pinned_take(MIB);
    begin(stream, BY_TARN);
    OK(tarn_event_record(event, stream));
    OK(tarn_stream_wait(joined, event));
    OK(tarn_record_stream(block, joined));
    OK(tarn_free(block));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_event_record(event, joined));
    OK(tarn_stream_wait(stream, event));
    OK(tarn_host_graph_destroy(end(stream, BY_TARN)));
    OK(tarn_event_destroy(event));
    OK(tarn_pinned_forget_captures());
    /* The legacy stream captures never, so nothing that it uses is kept for good. */
    block = pinned_take(MIB);
    begin(stream, BY_TARN);
    OK(tarn_record_stream(block, TARN_STREAM_LEGACY));
    OK(tarn_free(block));
    OK(tarn_host_graph_destroy(end(stream, BY_TARN)));
    CHECK(pinned_stats().graph_bytes == 0);
    pinned_nothing_is_left(1);
}

/* ---- Pools of their own ---- */

static struct {
    tarn_stream stream[2];
    struct pinned_pool *pool[2];
} routes;

static struct pinned_pool *choose(struct stream *stream)
{
    for (int i = 0; i < 2; i++) {
        if (routes.pool[i] && stream_value(stream) == routes.stream[i]) {
            pinned_pool_retain(routes.pool[i]);
            return routes.pool[i];
        }
    }
    return NULL;
}

static void *take_on(tarn_stream stream, size_t size)
{
    void *pointer = NULL;
    OK(tarn_pinned_alloc(stream, size, &pointer));
    return pointer;
}

static void pools_keep_their_memory_apart(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream plain = lease(0);
    for (int i = 0; i < 2; i++) {
        routes.stream[i] = lease(0);
        OK(pinned_pool_create(&routes.pool[i]));
    }
    char *standard = pinned_take(MIB), *mine[2];
    OK(tarn_free(standard));
    atomic_store(&upper_hooks.pinned_route, choose);
    begin(routes.stream[0], BY_TARN);
    begin(routes.stream[1], UNKNOWN);
    for (int i = 0; i < 2; i++) {
        mine[i] = take_on(routes.stream[i], MIB);
        CHECK(mine[i] != standard && (i == 0 || mine[1] != mine[0]));
        OK(tarn_free(mine[i])); /* unused: again in its own pool, and nowhere else */
        CHECK(take_on(plain, MIB) == (void *)standard);
        OK(tarn_free(standard));
        CHECK(take_on(routes.stream[i], MIB) == (void *)mine[i]);
        OK(tarn_record_stream(mine[i], routes.stream[i]));
        OK(tarn_free(mine[i]));
    }
    OK(tarn_stream_set(routes.stream[0])); /* the current stream routes too */
    char *live = pinned_take(3 * MIB);
    OK(tarn_record_stream(live, routes.stream[0]));
    OK(tarn_stream_set(TARN_STREAM_LEGACY));
    OK(tarn_host_graph_destroy(end(routes.stream[0], BY_TARN)));
    OK(tarn_host_graph_destroy(end(routes.stream[1], UNKNOWN)));
    CHECK(pinned_stats().graph_bytes == (int64_t)(2 * MIB));
    pinned_check(1);
    OK(tarn_pinned_forget_captures()); /* of the default pool only */
    CHECK(pinned_stats().graph_bytes == (int64_t)(2 * MIB));

    /* The first one dies: its kept block is the default pool's now, its live one lives on. */
    pinned_pool_retain(routes.pool[0]);
    pinned_pool_release(routes.pool[0]);
    CHECK(pinned_stats().graph_bytes == (int64_t)(2 * MIB));
    pinned_pool_release(routes.pool[0]);
    routes.pool[0] = NULL;
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    pinned_check(1);
    memset(live, 1, 3 * MIB);
    OK(tarn_free(live));
    CHECK(take_on(plain, 3 * MIB) == (void *)live);
    OK(tarn_free(live));
    char *one = take_on(plain, MIB), *two = take_on(plain, MIB);
    CHECK((one == standard && two == mine[0]) || (one == mine[0] && two == standard));

    pinned_pool_release(routes.pool[1]);
    routes.pool[1] = NULL;
    atomic_store(&upper_hooks.pinned_route, NULL);
    CHECK(pinned_stats().graph_bytes == 0);
    OK(tarn_free(one));
    OK(tarn_free(two));
    pinned_nothing_is_left(1);
    pinned_pool_release(NULL);
}

/* Cached memory of a pool goes back as anybody's, what it keeps does not; a dead pool's pending
 * blocks go on waiting. */
static void pools_give_back_and_die(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream other = lease(0);
    routes.stream[0] = lease(0);
    OK(pinned_pool_create(&routes.pool[0]));
    atomic_store(&upper_hooks.pinned_route, choose);
    char *a = take_on(routes.stream[0], 2 * MIB), *b = take_on(routes.stream[0], 3 * MIB);
    char *c = take_on(routes.stream[0], 4 * MIB);
    OK(tarn_free(a));
    work_on(other, b, 1, 1000);
    OK(tarn_record_stream(b, other));
    OK(tarn_free(b));
    begin(routes.stream[0], BY_TARN);
    OK(tarn_record_stream(c, routes.stream[0]));
    work_on(other, c, 1, 2000); /* besides */
    OK(tarn_record_stream(c, other));
    OK(tarn_free(c));
    OK(tarn_host_graph_destroy(end(routes.stream[0], BY_TARN)));
    OK(tarn_pinned_trim(7 * MIB));
    CHECK(pinned_stats().allocated_bytes.current == (int64_t)(7 * MIB));
    work_on(other, b, 1, 1000);
    work_on(other, c, 1, 1000);
    pinned_pool_release(routes.pool[0]);
    routes.pool[0] = NULL;
    pinned_check(1);
    CHECK(pinned_stats().graph_bytes == 0); /* free of the graph, and waits for the other stream */
    CHECK(pinned_stats().pending_bytes == (int64_t)(4 * MIB));
    OK(tarn_pinned_limit_set(7 * MIB));
    CHECK(take_on(other, 4 * MIB) == (void *)c);
    CHECK(pinned_stats().pending_bytes == 0);
    OK(tarn_free(c));
    pinned_nothing_is_left(1);
    OK(tarn_shutdown());
}

/* ---- Captures with pools ---- */

static void *end_with_graph(tarn_stream stream)
{
    void *graph = NULL;
    OK(tarn_capture_end(stream, &graph));
    return graph;
}

/* A graph of one pool reads a block: `block` itself, or where that is NULL one that the capture
 * takes. */
static void *graph_that_reads(tarn_stream stream, char **block, char *to)
{
    OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED));
    if (!*block)
        *block = take_on(stream, MIB);
    copy(stream, to, *block, MIB);
    OK(tarn_record_stream(*block, stream));
    return end_with_graph(stream);
}

static bool is_given_again(const void *block)
{
    void *taken = pinned_take(MIB);
    OK(tarn_free(taken));
    return taken == block;
}

/* What a graph uses is kept as long as that graph's pool is counted, whoever's memory it is. */
static void a_block_is_kept_for_the_graph_that_uses_it(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    char *to = alloc_on(stream, MIB), *block = NULL, *standard = pinned_take(MIB);

    /* Taken by a capture, and used by the next one too: the first graph's end is not the
     * second's. */
    void *first = graph_that_reads(stream, &block, to),
         *second = graph_that_reads(stream, &block, to);
    OK(tarn_free(block));
    OK(tarn_host_graph_destroy(first));
    OK(tarn_device_trim(0, 0)); /* pools are collected */
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB && !is_given_again(block));
    memset(block, 7, MIB);
    OK(tarn_host_graph_launch(0, second, native_of(stream)));
    OK(tarn_stream_synchronize(stream));
    CHECK(to[0] == 7 && to[MIB - 1] == 7);
    OK(tarn_host_graph_destroy(second));
    OK(tarn_pinned_forget_captures()); /* two pools used it */
    CHECK(pinned_stats().graph_bytes == 0);

    /* Used by the second only, by whose end it is free; and of no capture, used by one. */
    block = NULL;
    OK(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED));
    block = take_on(stream, MIB);
    first = end_with_graph(stream);
    second = graph_that_reads(stream, &block, to);
    OK(tarn_free(block));
    OK(tarn_host_graph_destroy(first));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_host_graph_destroy(second));
    OK(tarn_device_trim(0, 0));
    CHECK(pinned_stats().graph_bytes == 0);
    first = graph_that_reads(stream, &standard, to);
    OK(tarn_free(standard));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_host_graph_destroy(first));
    OK(tarn_device_trim(0, 0));
    CHECK(pinned_stats().graph_bytes == 0);

    /* Freed after the graph's end: nobody is asked for it. */
    standard = pinned_take(MIB);
    first = graph_that_reads(stream, &standard, to);
    OK(tarn_host_graph_destroy(first));
    OK(tarn_device_trim(0, 0));
    pinned_check(1);
    OK(tarn_free(standard));
    CHECK(pinned_stats().graph_bytes == 0);

    /* A capture without a pool used it last. */
    block = NULL;
    first = graph_that_reads(stream, &block, to);
    begin(stream, BY_TARN);
    OK(tarn_record_stream(block, stream));
    second = end(stream, BY_TARN);
    OK(tarn_free(block));
    OK(tarn_host_graph_destroy(first));
    OK(tarn_device_trim(0, 0));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_host_graph_destroy(second));
    OK(tarn_pinned_forget_captures());
    OK(tarn_free(to));
    pinned_nothing_is_left(1);
}

/* A pool that the caller has, with one graph after the other: what each has kept serves the next
 * one. */
static void a_callers_pool_keeps_for_graphs_that_exist(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    char *to = alloc_on(stream, MIB);
    void *graph = NULL, *lasting = NULL;
    for (int i = 0; i < 20; i++) {
        OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        char *from = take_on(stream, MIB);
        copy(stream, to, from, MIB);
        OK(tarn_record_stream(from, stream));
        OK(tarn_free(from));
        graph = end_with_graph(stream);
        CHECK(pinned_stats().graph_bytes == (int64_t)MIB &&
              pinned_stats().allocated_bytes.current <= (int64_t)(2 * MIB));
        OK(tarn_host_graph_destroy(graph));
    }
    CHECK(pinned_stats().graph_bytes == 0);

    /* Live at the end of its graph: neither kept by it nor, used by another pool's, by both. */
    tarn_pool *other = pool_with((tarn_pool_options){.device = 0});
    char *block = pinned_take(MIB);
    for (int i = 0; i < 2; i++) {
        OK(tarn_pool_capture_begin(i ? other : pool, stream, TARN_CAPTURE_RELAXED));
        copy(stream, to, block, MIB);
        OK(tarn_record_stream(block, stream));
        lasting = end_with_graph(stream);
        if (i == 0)
            OK(tarn_host_graph_destroy(lasting));
    }
    OK(tarn_free(block));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_host_graph_destroy(lasting));
    CHECK(pinned_stats().graph_bytes == 0);

    /* A hold counts as a graph does; and a graph that still runs has not ended. */
    OK(tarn_pool_hold(pool, NULL));
    OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    block = take_on(stream, MIB);
    OK(tarn_record_stream(block, stream));
    OK(tarn_free(block));
    OK(tarn_capture_abort(stream));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB);
    OK(tarn_pool_unhold(pool));
    CHECK(pinned_stats().graph_bytes == 0);
    pinned_check(1);
    OK(tarn_pool_release(other));
    OK(tarn_pool_release(pool));
    OK(tarn_free(to));
    pinned_nothing_is_left(1);
}

/* In a pool that a graph holds for good: what other graphs keep is free when they end, and what
 * both use when the last one ends. */
static void a_block_is_kept_for_its_own_graph_alone(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0});
    char *to = alloc_on(stream, MIB), *both = NULL, *lasts = NULL;
    void *lasting = NULL, *graph = NULL;
    for (int i = 0; i < 20; i++) {
        OK(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        char *from = take_on(stream, MIB);
        if (i == 0)
            both = take_on(stream, MIB);
        copy(stream, to, from, MIB);
        OK(tarn_record_stream(from, stream));
        if (i < 2)
            OK(tarn_record_stream(both, stream));
        OK(tarn_free(from));
        graph = end_with_graph(stream);
        lasts = i == 0 ? from : lasts;
        lasting = i == 0 ? graph : lasting;
        CHECK(i == 0 || from != lasts); /* whose graph reads it still */
        if (i > 0)
            OK(tarn_host_graph_destroy(graph));
        CHECK(pinned_stats().graph_bytes == (int64_t)MIB &&
              pinned_stats().allocated_bytes.current <= (int64_t)(4 * MIB));
    }
    OK(tarn_free(both)); /* of two graphs of the pool, which one holds */
    CHECK(pinned_stats().graph_bytes == (int64_t)(2 * MIB));
    memset(lasts, 9, MIB);
    OK(tarn_host_graph_launch(0, lasting, native_of(stream)));
    OK(tarn_stream_synchronize(stream));
    CHECK(to[0] == 9 && to[MIB - 1] == 9);
    OK(tarn_host_graph_destroy(lasting));
    CHECK(pinned_stats().graph_bytes == 0);
    pinned_check(1);
    OK(tarn_pool_release(pool));
    OK(tarn_free(to));
    pinned_nothing_is_left(1);
}

/* A trim, a shortage and the statistics see that a graph has ended, although its end could not
 * collect its pool. */
static void what_a_destroyed_graph_kept_is_at_hand(void)
{
    host_start_with(1, 64 * MIB);
    tarn_stream stream = lease(0);
    char *to = alloc_on(stream, MIB), *block = pinned_take(MIB);
    void *graph = graph_that_reads(stream, &block, to);
    OK(tarn_free(block));
    CHECK(pinned_stats().graph_bytes == (int64_t)MIB && pinned_stats().allocated_bytes.current > 0);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_pinned_trim(0));
    tarn_pinned_stats seen = {0};
    CHECK(pinned_view(&seen) && seen.graph_bytes == 0 && seen.allocated_bytes.current == 0);

    block = pinned_take(MIB);
    graph = graph_that_reads(stream, &block, to);
    OK(tarn_free(block));
    OK(tarn_pinned_limit_set((size_t)pinned_stats().allocated_bytes.current));
    void *more = NULL;
    GIVES(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_host_graph_destroy(graph));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, &more));
    OK(tarn_free(more));
    OK(tarn_pinned_limit_set(TARN_NO_LIMIT));

    block = pinned_take(MIB);
    graph = graph_that_reads(stream, &block, to);
    OK(tarn_free(block));
    OK(tarn_host_graph_destroy(graph));
    CHECK(pinned_stats().graph_bytes == 0);
    OK(tarn_free(to));
    pinned_nothing_is_left(1);
}

/* Nothing is kept for a graph on suspicion: such a block would never be given back. */
static void a_driver_that_cannot_say_keeps_nothing(void)
{
    host_start_with(1, 256 * MIB);
    tarn_stream stream = lease(0);
    char *block = pinned_take(MIB);
    OK(tarn_host_fail_set(kind_of("capture_status"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_record_stream(block, stream), TARN_ERROR_DRIVER);
    OK(tarn_record_stream(block, stream));
    OK(tarn_free(block));
    CHECK(pinned_stats().graph_bytes == 0);
    pinned_nothing_is_left(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(a_capture_keeps_what_it_uses),
        CHILD_TEST(the_other_direction_is_kept_too),
        CHILD_TEST(a_free_during_a_capture_waits_for_its_end),
        CHILD_TEST(streams_that_join_are_asked),
        CHILD_TEST(pools_keep_their_memory_apart),
        CHILD_TEST(pools_give_back_and_die),
        CHILD_TEST(a_block_is_kept_for_the_graph_that_uses_it),
        CHILD_TEST(a_callers_pool_keeps_for_graphs_that_exist),
        CHILD_TEST(a_block_is_kept_for_its_own_graph_alone),
        CHILD_TEST(what_a_destroyed_graph_kept_is_at_hand),
        CHILD_TEST(a_driver_that_cannot_say_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
