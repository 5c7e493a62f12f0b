/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* When workspaces go by themselves: those of a capture with the last of its graph, and those that
 * nobody uses when they are more than the settings allow, the least recently used first. A
 * workspace that a graph may use stays. */
#include "handle/fake.h"

#include "driver/driver.h"

#include <pthread.h>

#define SIZE MIB          /* of a workspace */
#define ALLOWED (4 * MIB) /* of unused ones */
#define STREAMS 20
#define THREADS 8

static tarn_library library;

static void *workspace_on(tarn_stream stream)
{
    void *got = NULL;
    assert_ok(tarn_handle_get(library, stream, &got));
    return ((struct fake_handle *)got)->workspace;
}

/* Whether a workspace is a live block of its stream. Another stream's may be at its address. */
static bool lives(const void *workspace, tarn_stream stream)
{
    tarn_block_info info = {.size = sizeof info};
    return tarn_pointer_info_get(workspace, &info) == TARN_OK && info.stream == stream;
}

static void use_many_streams(void)
{
    tarn_stream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
        (void)workspace_on(streams[i]);
    }
    for (int i = 0; i < STREAMS; i++)
        assert_ok(tarn_stream_return(streams[i]));
}

static void begin(void)
{
    assert_ok(workspaces_clear_all(NULL)); /* of the tests before */
    library = fake_register(0, true);
    assert_ok(tarn_configuration_set("idle_workspaces_mb:4"));
    assert_ok(tarn_workspace_size_set(library, SIZE));
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
}

/* pytorch/pytorch#99196: a model that is captured again and again, and each of its graphs is
 * destroyed. */
static void test_a_captures_workspace_goes_with_its_graph(void **state)
{
    (void)state;
    begin();
    tarn_stream stream = new_stream();
    tarn_pool *pool = NULL;
    assert_ok(tarn_pool_create(NULL, &pool));
    for (int i = 0; i < 60; i++) {
        void *graph = NULL;
        if (i % 3 == 0)
            assert_ok(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        else if (i % 3 == 1)
            assert_ok(tarn_capture_announce(stream));
        else
            assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        if (i % 3 == 1)
            assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_RELAXED));
        const void *workspace = workspace_on(stream);
        if (i % 3 == 1) {
            assert_ok(driver->capture_end(0, native(stream), &graph));
            assert_ok(tarn_capture_end_announced(stream, graph));
        } else {
            assert_ok(tarn_capture_end(stream, &graph));
        }
        (void)workspace_on(stream);
        assert_int_equal(workspace_stats().captured_count, 1);
        assert_ok(tarn_host_graph_launch(0, graph, native(stream)));
        assert_true(lives(workspace, stream));
        assert_ok(tarn_stream_synchronize(stream));
        assert_ok(tarn_host_graph_destroy(graph));
        assert_int_equal(workspace_stats().captured_count, 0);
        assert_false(lives(workspace, stream));
    }
    assert_ok(tarn_pool_release(pool));
    assert_ok(tarn_stream_return(stream));
}

static int kind_of(const char *call)
{
    int kind = 0;
    while (strcmp(tarn_host_call_name(kind), call) != 0)
        kind++;
    return kind;
}

/* Then it stays until its pool ends. */
static void test_where_the_driver_does_not_report_an_end(void **state)
{
    (void)state;
    begin();
    tarn_stream stream = new_stream();
    void *graph = NULL;
    assert_ok(tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED));
    const void *workspace = workspace_on(stream);
    /* Behind that for the pool */
    assert_ok(tarn_host_fail_set(kind_of("graph_hold"), 2, false, TARN_ERROR_DRIVER));
    assert_ok(tarn_capture_end(stream, &graph));
    (void)workspace_on(stream);
    assert_ok(tarn_host_graph_destroy(graph));
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_true(lives(workspace, stream));
    assert_ok(tarn_device_trim(0, 0));
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_false(lives(workspace, stream));
    assert_ok(tarn_stream_return(stream));
}

/* The vendor's handle may still point to it, so the owner's next bind frees it. */
static void test_a_bound_one_waits_for_its_owner(void **state)
{
    (void)state;
    begin();
    tarn_stream stream = new_stream();
    void *graph = NULL;
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    const void *workspace = workspace_on(stream);
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(tarn_host_graph_destroy(graph));
    assert_int_equal(workspace_stats().deferred_bytes, SIZE);
    assert_true(lives(workspace, stream));
    (void)workspace_on(stream);
    assert_false(lives(workspace, stream));
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_ok(tarn_stream_return(stream));
}

/* For a program of fibers, whose threads ask for no handle of their own. */
static void test_a_lease_frees_what_has_ended(void **state)
{
    (void)state;
    begin();
    tarn_stream stream = new_stream();
    tarn_lease lease;
    void *graph = NULL;
    assert_ok(tarn_handle_lease(library, stream, &lease));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    assert_ok(tarn_handle_lease_bind(&lease, stream));
    const void *workspace = ((const struct fake_handle *)lease.handle)->workspace;
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(tarn_handle_lease_bind(&lease, stream));
    assert_true(lives(workspace, stream));
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_handle_lease_bind(&lease, stream));
    assert_false(lives(workspace, stream));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_stream_return(stream));
}

static void test_unused_ones_are_few(void **state)
{
    (void)state;
    begin();
    use_many_streams();
    assert_true(workspace_stats().bytes <= ALLOWED + SIZE); /* and the bound one */
    assert_true(workspace_stats().count >= ALLOWED / SIZE);
    assert_ok(tarn_configuration_set("idle_workspaces_mb:0"));
    use_many_streams();
    assert_int_equal(workspace_stats().count, 1);
    assert_ok(tarn_configuration_set("idle_workspaces_mb:1000"));
    use_many_streams();
    assert_true(workspace_stats().count >= STREAMS);
}

static void *use_them(void *unused)
{
    use_many_streams();
    return unused;
}

/* The limit is the device's: not each thread has its own. */
static void test_unused_ones_of_many_threads_are_few(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    begin();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_them, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(workspace_stats().bytes <= ALLOWED + THREADS * SIZE); /* and the bound ones */
    use_many_streams();
    assert_true(workspace_stats().bytes <= ALLOWED + THREADS * SIZE);
}

static void test_the_least_recently_used_goes_first(void **state)
{
    (void)state;
    begin();
    tarn_stream often = new_stream(), once = new_stream(), more[4];
    const void *first = workspace_on(often), *second = workspace_on(once);
    for (int i = 0; i < 4; i++) {
        more[i] = new_stream();
        (void)workspace_on(more[i]);
        uint64_t made = workspace_stats().allocations;
        assert_ptr_equal(workspace_on(often), first);
        assert_int_equal(workspace_stats().allocations, made); /* it was kept */
    }
    assert_true(lives(first, often));
    assert_false(lives(second, once));
    assert_ok(tarn_stream_return(often));
    assert_ok(tarn_stream_return(once));
    for (int i = 0; i < 4; i++)
        assert_ok(tarn_stream_return(more[i]));
}

static double processor_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

/* As after the end of many threads. The get that finds too many unused ones may look at each some
 * times, but not at each for each: that would take far longer than to make them. */
static void test_ten_thousand_unused_ones_go_at_once(void **state)
{
    enum { MANY = 10000 };
    static tarn_lease leases[MANY + 1];
    (void)state;
    begin();
    assert_ok(tarn_configuration_set("idle_workspaces_mb:1000"));
    assert_ok(tarn_workspace_size_set(library, 4096));
    tarn_stream stream = new_stream(), other = new_stream();
    double before = processor_seconds();
    for (int i = 0; i < MANY; i++)
        assert_ok(tarn_handle_lease(library, stream, &leases[i]));
    for (int i = 0; i < MANY; i++)
        assert_ok(tarn_handle_return(&leases[i]));
    double made = processor_seconds();
    assert_ok(tarn_configuration_set("idle_workspaces_mb:4"));
    assert_ok(tarn_handle_lease(library, other, &leases[MANY]));
    assert_true(processor_seconds() - made < 2 * (made - before));
    assert_int_equal(workspace_stats().bytes, ALLOWED + 4096); /* and the bound one */
    assert_ok(tarn_handle_return(&leases[MANY]));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
}

/* A graph is replayed after the limit was reached: nothing else has its workspace, and the checker
 * of the host device is content. */
static void test_a_graph_is_replayed_after_the_limit_was_reached(void **state)
{
    (void)state;
    begin();
    tarn_stream stream = new_stream();
    void *graph = NULL;
    assert_ok(tarn_host_check_set(true, NULL, NULL));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    void *workspace = workspace_on(stream);
    assert_ok(tarn_host_work(0, native(stream), workspace, SIZE, 1000));
    assert_ok(tarn_capture_end(stream, &graph));
    use_many_streams();
    assert_ok(tarn_device_trim(0, 0));
    assert_true(lives(workspace, stream));
    for (int i = 0; i < 3; i++) {
        use_many_streams();
        assert_ok(tarn_host_graph_launch(0, graph, native(stream)));
    }
    assert_ok(tarn_stream_synchronize(stream));
    tarn_host_ledger ledger = {.size = sizeof ledger};
    assert_ok(tarn_host_ledger_get(0, &ledger));
    assert_int_equal(ledger.reports, 0);
    assert_ok(tarn_host_graph_destroy(graph));
    use_many_streams();
    assert_false(lives(workspace, stream));
    assert_ok(tarn_stream_return(stream));
}

/* A capture that tarn does not know shares the workspace of its stream. Where a bind shows it, that
 * stays until a call by the capture's id, which cannot be seen to end. */
static void test_what_an_unknown_capture_shares_stays(void **state)
{
    (void)state;
    begin();
    tarn_stream stream = new_stream();
    driver_graph graph = NULL;
    tarn_capture_state capture;
    uint64_t id = 0;
    assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_RELAXED));
    const void *workspace = workspace_on(stream);
    assert_ok(tarn_capture_state_get(stream, &capture, &id, NULL));
    assert_ok(driver->capture_end(0, native(stream), &graph));
    use_many_streams();
    assert_true(lives(workspace, stream));
    void *block = NULL;
    assert_ok(tarn_device_limit_set(0, 64 * MIB));
    assert_status(tarn_alloc_on(stream, 63 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    assert_ok(tarn_device_limit_set(0, TARN_NO_LIMIT));
    assert_true(lives(workspace, stream));
    assert_ok(driver->graph_destroy(0, graph));
    use_many_streams();
    assert_true(lives(workspace, stream));
    assert_ok(workspaces_clear_capture(id, NULL));
    assert_true(lives(workspace, stream)); /* it is the stream's */
    use_many_streams();
    assert_false(lives(workspace, stream));
    assert_ok(tarn_stream_return(stream));
}

static void test_a_shortage_names_workspaces(void **state)
{
    (void)state;
    begin();
    assert_ok(tarn_workspace_size_set(library, 24 << 20));
    tarn_stream stream = new_stream();
    void *graphs[16], *block = NULL;
    assert_ok(tarn_device_limit_set(0, 400 * MIB));
    for (int i = 0; i < 16; i++) {
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        (void)workspace_on(stream);
        assert_ok(tarn_capture_end(stream, &graphs[i]));
    }
    assert_status(tarn_alloc_on(stream, 100 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    assert_non_null(
        strstr(tarn_last_error(),
               "workspaces of library handles have 384 MiB, 384 MiB of it for captures"));
    for (int i = 0; i < 16; i++)
        assert_ok(tarn_host_graph_destroy(graphs[i]));
    /* What has ended goes when memory is short */
    assert_ok(tarn_alloc_on(stream, 100 * MIB, &block));
    assert_ok(tarn_free(block));
    assert_ok(tarn_stream_return(stream));
}

#define WORKSPACE_TEST(function) \
    cmocka_unit_test_setup_teardown(function, fake_reset, back_to_default)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORKSPACE_TEST(test_a_captures_workspace_goes_with_its_graph),
        WORKSPACE_TEST(test_where_the_driver_does_not_report_an_end),
        WORKSPACE_TEST(test_a_bound_one_waits_for_its_owner),
        WORKSPACE_TEST(test_a_lease_frees_what_has_ended),
        WORKSPACE_TEST(test_unused_ones_are_few),
        WORKSPACE_TEST(test_unused_ones_of_many_threads_are_few),
        WORKSPACE_TEST(test_the_least_recently_used_goes_first),
        WORKSPACE_TEST(test_ten_thousand_unused_ones_go_at_once),
        WORKSPACE_TEST(test_a_graph_is_replayed_after_the_limit_was_reached),
        WORKSPACE_TEST(test_what_an_unknown_capture_shares_stays),
        WORKSPACE_TEST(test_a_shortage_names_workspaces),
    };
    host_start(1, 1024 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
