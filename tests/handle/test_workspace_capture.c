/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Workspaces in captures and beside pools: whose memory they are, what a stream that joins a
 * capture has, what clears, aborts and restores leave alone. */
#include "handle/fake.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "support/live.h"

/* Calls of a kind on the device, so far. */
static uint64_t host_calls(const char *name)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    int kind = 0;
    while (strcmp(tarn_host_call_name(kind), name) != 0)
        kind++;
    assert_ok(tarn_host_ledger_get(THIS_DEVICE, &ledger));
    return ledger.calls[kind];
}

static struct {
    tarn_library library;
    tarn_stream stream;
    void *workspace;
    uint64_t id;
} captured_by_thread;

static void *capture_and_end(void *argument)
{
    (void)argument;
    void *got, *graph = NULL;
    tarn_capture_state capture;
    assert_ok(tarn_handle_get(captured_by_thread.library, captured_by_thread.stream, &got));
    assert_ok(tarn_capture_begin(captured_by_thread.stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_get(captured_by_thread.library, captured_by_thread.stream, &got));
    captured_by_thread.workspace = ((struct fake_handle *)got)->workspace;
    assert_ok(
        tarn_capture_state_get(captured_by_thread.stream, &capture, &captured_by_thread.id, NULL));
    assert_ok(tarn_capture_end(captured_by_thread.stream, &graph));
    return NULL;
}

/* pytorch/pytorch#192061: a graph that was captured in a short-lived thread outlived its
 * workspace. */
/* One that tarn does not know has the stream's, as every other use of it. */
static void test_an_unknown_capture_has_the_streams_workspace(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    driver_graph graph = NULL;
    void *got;
    assert_ok(tarn_handle_get(library, stream, &got));
    struct fake_handle *handle = got;
    void *workspace = handle->workspace;
    assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_RELAXED));
    assert_ok(tarn_workspace_size_set(library, 1 << 12)); /* so that it is looked for anew */
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_ptr_equal(handle->workspace, workspace);
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_ok(driver->capture_end(0, native(stream), &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
}

static void test_a_graphs_workspace_outlives_thread_and_handle(void **state)
{
    (void)state;
    captured_by_thread.library = fake_register(0, true);
    captured_by_thread.stream = new_stream();
    assert_ok(tarn_workspace_size_set(captured_by_thread.library, 1 << 20));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, capture_and_end, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    size_t destroyed = 0;
    assert_ok(tarn_handle_trim(captured_by_thread.library, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    tarn_block_info info = {.size = sizeof info};
    /* The graph may be replayed */
    assert_ok(tarn_pointer_info_get(captured_by_thread.workspace, &info));
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_int_equal(workspace_stats().count, 1);
    tarn_workspace_cleared cleared;
    assert_ok(workspaces_clear_capture(captured_by_thread.id, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_stream_return(captured_by_thread.stream));
}

static void test_captures_have_workspaces_of_their_own(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    tarn_workspace_cleared cleared;
    tarn_block_info info = {.size = sizeof info};
    tarn_capture_state capture;
    uint64_t id = 0;
    void *got, *graph = NULL, *captured[2];
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_handle_get(library, stream, &got));
    struct fake_handle *handle = got;
    void *ordinary = handle->workspace;
    for (int i = 0; i < 2; i++) {
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        assert_ok(tarn_handle_get(library, stream, &got));
        captured[i] = handle->workspace;
        assert_ok(tarn_capture_state_get(stream, &capture, &id, NULL));
        assert_status(workspaces_clear_stream(stream, NULL), TARN_ERROR_CAPTURE);
        assert_status(workspaces_clear_capture(id, NULL), TARN_ERROR_CAPTURE);
        assert_ok(tarn_capture_end(stream, &graph));
    }
    assert_ptr_not_equal(captured[0], ordinary);
    assert_ptr_not_equal(captured[1], captured[0]);
    assert_ptr_not_equal(captured[1], ordinary);
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_ptr_equal(handle->workspace, ordinary);
    assert_int_equal(workspace_stats().captured_count, 2);

    assert_ok(workspaces_clear_all(&cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_ok(tarn_pointer_info_get(captured[0], &info)); /* the graphs may be replayed */
    assert_ok(workspaces_clear_capture(id, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_ok(tarn_pointer_info_get(captured[0], &info));
    assert_ok(workspaces_clear_stream(stream, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_stream_return(stream));
}

static tarn_pool_id pool_of(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    assert_ok(tarn_pointer_info_get(pointer, &info));
    return info.pool;
}

/* The workspace of a capture on the pool; its graph. */
static void *capture_on(tarn_pool *pool, tarn_library library, tarn_stream stream, void **workspace)
{
    void *got, *graph = NULL;
    assert_ok(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_get(library, stream, &got));
    *workspace = ((struct fake_handle *)got)->workspace;
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(tarn_handle_get(library, stream, &got)); /* bound to the stream's own one again */
    return graph;
}

static void test_a_captures_workspace_is_of_its_pool_and_goes_with_it(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    tarn_workspace_cleared cleared;
    tarn_pool_info info = {.size = sizeof info};
    tarn_pool *pool = NULL;
    void *got, *graphs[2], *workspaces[2];
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_int_equal(pool_of(((struct fake_handle *)got)->workspace).first, 0);

    /* Of the graph's own pool: nothing need be cleared, also where the handle is gone. */
    for (int i = 0; i < 3; i++) {
        graphs[0] = capture_on(NULL, library, stream, &workspaces[0]);
        assert_int_not_equal(pool_of(workspaces[0]).first, 0);
        assert_int_equal(workspace_stats().captured_count, 1);
        assert_ok(tarn_device_trim(0, 0));
        assert_int_equal(workspace_stats().captured_count, 1);
        assert_ok(tarn_host_graph_destroy(graphs[0]));
        assert_ok(tarn_device_trim(0, 0));
        assert_int_equal(workspace_stats().captured_count, 0);
        assert_int_equal(workspace_stats().bytes, 1 << 20);
    }

    /* Of a pool that is kept: each with its graph. */
    assert_ok(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                               &pool));
    assert_ok(tarn_pool_info_get(pool, &info));
    for (int i = 0; i < 2; i++) {
        graphs[i] = capture_on(pool, library, stream, &workspaces[i]);
        assert_int_equal(pool_of(workspaces[i]).second, info.id.second);
    }
    assert_ptr_not_equal(workspaces[0], workspaces[1]);
    assert_refused(workspaces_clear_pool(pool, &cleared), TARN_ERROR_CAPTURE,
                   "a capture or a graph uses pool");
    assert_ok(tarn_host_graph_destroy(graphs[0]));
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_status(workspaces_clear_pool(pool, &cleared), TARN_ERROR_CAPTURE);
    assert_ok(tarn_host_graph_destroy(graphs[1]));
    assert_ok(workspaces_clear_pool(pool, &cleared));
    assert_int_equal(cleared.freed, 0);
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_int_equal(workspace_stats().bytes, 1 << 20);
    bool same = false;
    assert_ok(live_are(pool, NULL, 0, &same));
    assert_true(same);
    assert_ok(tarn_pool_release(pool));
    assert_status(workspaces_clear_pool(NULL, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
}

/* A workspace that a handle keeps is in no pool of the program's, whatever is open when it is made:
 * the pool may be suspended, checked, restored and released while the handle points to it. */
static void test_no_scope_serves_a_workspace(void **state)
{
    (void)state;
    static const tarn_scope_kind kinds[] = {TARN_SCOPE_THREAD, TARN_SCOPE_STREAM,
                                            TARN_SCOPE_ALWAYS};
    for (int i = 0; i < 4; i++) {
        bool per_call = i == 3;
        tarn_library library = fake_register(0, true);
        tarn_stream stream = new_stream();
        tarn_workspace_call call = {0};
        tarn_pool *pool = NULL;
        tarn_scope scope;
        void *got = NULL;
        bool same = false;
        assert_ok(tarn_workspace_size_set(library, 1 << 20));
        assert_ok(tarn_stream_set(stream));
        assert_ok(tarn_pool_create(NULL, &pool));
        assert_ok(tarn_scope_begin(pool, per_call ? TARN_SCOPE_THREAD : kinds[i], stream, &scope));
        if (per_call) {
            assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
            assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
            assert_non_null(call.pointer);
        }
        assert_ok(tarn_handle_get(library, stream, &got));
        struct fake_handle *handle = got;
        assert_int_equal(pool_of(handle->workspace).second, 0);
        assert_ok(live_are(pool, NULL, 0, &same));
        assert_true(same);
        assert_ok(tarn_scope_end(scope));
        assert_ok(tarn_pool_suspend(pool, false));
        memset(handle->workspace, i, handle->workspace_size); /* it is there */
        if (per_call) {
            assert_ok(tarn_workspace_end(&call));
            assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
        }
        assert_ok(tarn_pool_resume(pool));
        assert_ok(tarn_pool_release(pool));
        assert_ok(workspaces_clear_all(NULL));
        assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
        assert_ok(tarn_stream_return(stream));
    }
}

/* Nor does a pool that helps the default one out. */
static void test_no_spare_pool_serves_a_workspace(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_pool_options options = {.size = sizeof options, .device = 0, .use_on_oom = true};
    tarn_pool *pool = NULL;
    void *block = NULL, *got = NULL;
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_device_trim(0, 0));
    assert_ok(tarn_workspace_size_set(library, 8 << 20));
    assert_ok(tarn_pool_create(&options, &pool));
    assert_ok(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 32 * MIB, &block));
    assert_ok(tarn_free(block));
    assert_ok(tarn_device_limit_set(0, 32 * MIB));
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &got), TARN_ERROR_OUT_OF_MEMORY,
                   "workspace");
    assert_null(got);
    /* Which a block of the program's is served by */
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 8 * MIB, &block));
    assert_ok(tarn_free(block));
    assert_ok(tarn_pool_release(pool));
    assert_ok(tarn_device_limit_set(0, TARN_NO_LIMIT));
    assert_int_equal(pool_of(get(library)->workspace).second, 0);
    assert_ok(workspaces_clear_all(NULL));
}

/* Has `stream` wait for what `from` has recorded. */
static void wait_for(tarn_stream stream, tarn_stream from)
{
    tarn_event *event = NULL;
    tarn_stream_info info = {.size = sizeof info};
    assert_ok(tarn_stream_info_get(from, &info));
    assert_ok(tarn_event_create(info.device, &event));
    assert_ok(tarn_event_record(event, from));
    assert_ok(tarn_stream_wait(stream, event));
    assert_ok(tarn_event_destroy(event));
}

static void *workspace_on(tarn_library library, tarn_stream stream)
{
    void *got = NULL;
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_ptr_equal(((struct fake_handle *)got)->stream, native(stream));
    return ((struct fake_handle *)got)->workspace;
}

/* No epoch moves when a stream joins: the driver is asked. The second stream may be another
 * device's. */
static void join_after_a_get(unsigned flags, int device)
{
    tarn_library library = fake_register(flags, true);
    tarn_stream first = new_stream(), second = 0;
    void *graph = NULL;
    assert_ok(tarn_stream_lease(device, 0, &second));
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    void *ordinary[2] = {workspace_on(library, first), workspace_on(library, second)};
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
    assert_ok(tarn_capture_begin(first, TARN_CAPTURE_RELAXED));
    void *captured = workspace_on(library, first);
    assert_ptr_not_equal(captured, ordinary[0]);
    for (int i = 0; i < 2; i++) /* it runs its work still */
        assert_ptr_equal(workspace_on(library, second), ordinary[1]);
    wait_for(second, first);
    void *joined = workspace_on(library, second);
    assert_ptr_not_equal(joined, ordinary[1]);
    assert_ptr_not_equal(joined, captured);
    assert_ptr_equal(workspace_on(library, second), joined);
    wait_for(first, second);
    assert_ok(tarn_capture_end(first, &graph));
    assert_ptr_equal(workspace_on(library, first), ordinary[0]);
    assert_ptr_equal(workspace_on(library, second), ordinary[1]);
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(workspaces_clear_stream(first, NULL));
    assert_ok(workspaces_clear_stream(second, NULL));
    assert_ok(tarn_stream_return(first));
    assert_ok(tarn_stream_return(second));
    assert_int_equal(workspace_stats().bytes, 0);
}

static void test_a_stream_joins_after_its_handle_was_asked_for(void **state)
{
    (void)state;
    join_after_a_get(0, 0);
    join_after_a_get(TARN_LIBRARY_BY_STREAM, 0);
    join_after_a_get(0, 1);
}

static void test_a_get_between_the_announcement_and_the_begin(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    driver_graph graph = NULL;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    void *ordinary = workspace_on(library, stream);
    assert_ok(tarn_capture_announce(stream));
    assert_ptr_equal(workspace_on(library, stream), ordinary);
    assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_RELAXED));
    assert_ptr_not_equal(workspace_on(library, stream), ordinary);
    assert_ok(driver->capture_end(0, native(stream), &graph));
    assert_ok(tarn_capture_end_announced(stream, graph));
    assert_ptr_equal(workspace_on(library, stream), ordinary);
    /* The caller has a graph, for all that tarn knows */
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(workspaces_clear_stream(stream, NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_stream_return(stream));
}

/* While a capture is open the slot is not trusted, after it a get is a hit again: it asks the
 * driver nothing. */
static void test_only_an_open_capture_is_asked_about(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true), without = fake_register(0, false);
    tarn_stream stream = new_stream(), capturing = new_stream();
    void *graph = NULL, *got = NULL;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    for (int open = 0; open < 3; open++) {
        if (open == 1)
            assert_ok(tarn_capture_begin(capturing, TARN_CAPTURE_RELAXED));
        (void)workspace_on(library, stream);
        assert_ok(tarn_handle_get(without, stream, &got));
        uint64_t asked = host_calls("capture_status");
        (void)workspace_on(library, stream);
        assert_int_equal(host_calls("capture_status") - asked, open == 1);
        /* It has nothing that a capture could share */
        assert_ok(tarn_handle_get(without, stream, &got));
        assert_int_equal(host_calls("capture_status") - asked, open == 1);
        if (open == 1)
            assert_ok(tarn_capture_end(capturing, &graph));
    }
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(capturing));
}

static void test_a_capture_without_a_graph_leaves_no_workspace(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    driver_graph graph = NULL;
    void *given = NULL;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    void *ordinary = workspace_on(library, stream);
    for (int i = 0; i < 4; i++) {
        assert_ok(i % 2 ? tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED)
                        : tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        assert_ptr_not_equal(workspace_on(library, stream), ordinary);
        assert_int_equal(workspace_stats().captured_count, 1);
        if (i < 2) {
            assert_ok(tarn_capture_abort(stream));
        } else { /* a mistake past tarn invalidates it */
            assert_status(driver->stream_synchronize(0, native(stream)), TARN_ERROR_CAPTURE);
            assert_status(tarn_capture_end(stream, &given), TARN_ERROR_CAPTURE);
        }
        assert_int_equal(workspace_stats().captured_count, 0);
        assert_int_equal(workspace_stats().bytes, 1 << 20);
        assert_ptr_equal(workspace_on(library, stream), ordinary);
    }

    /* Another call has ended it, and may have its graph. */
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    assert_ptr_not_equal(workspace_on(library, stream), ordinary);
    assert_ok(driver->capture_end(0, native(stream), &graph));
    assert_int_not_equal(tarn_capture_end(stream, &given), TARN_OK);
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(workspaces_clear_stream(stream, NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_stream_return(stream));
}

static void *hold_across_an_abort(void *argument)
{
    struct pausing *pausing = argument;
    tarn_block_info info = {.size = sizeof info};
    void *captured = workspace_on(pausing->library, pausing->stream);
    pthread_barrier_wait(&pausing->barrier); /* it is aborted by the other thread */
    pthread_barrier_wait(&pausing->barrier);
    assert_ok(tarn_pointer_info_get(captured, &info)); /* a call may be on its way with it */
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_ptr_not_equal(workspace_on(pausing->library, pausing->stream), captured);
    assert_int_equal(workspace_stats().captured_count, 0);
    return NULL;
}

static void test_an_abort_takes_no_workspace_from_another_thread(void **state)
{
    (void)state;
    struct pausing pausing = {.library = fake_register(0, true), .stream = new_stream()};
    pthread_t thread;
    pthread_barrier_init(&pausing.barrier, NULL, 2);
    assert_ok(tarn_workspace_size_set(pausing.library, 1 << 20));
    assert_ok(tarn_handle_prewarm(pausing.library, 0, TARN_STREAM_NONE, 1));
    assert_ok(tarn_capture_begin(pausing.stream, TARN_CAPTURE_RELAXED));
    assert_int_equal(pthread_create(&thread, NULL, hold_across_an_abort, &pausing), 0);
    pthread_barrier_wait(&pausing.barrier);
    assert_ok(tarn_capture_abort(pausing.stream));
    pthread_barrier_wait(&pausing.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&pausing.barrier);
    assert_ok(workspaces_clear_all(NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_stream_return(pausing.stream));
}

/* The legacy stream is in no capture, though the driver does not say so while a blocking stream
 * captures. */
static void test_the_legacy_stream_beside_a_blocking_capture(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_workspace_call call = {0};
    driver_stream blocking = NULL;
    tarn_stream stream;
    void *graph = NULL;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    void *ordinary = get(library)->workspace;
    assert_ok(driver->stream_create(0, 0, true, &blocking));
    assert_ok(tarn_stream_adopt(0, blocking, &stream));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    assert_ptr_equal(get(library)->workspace, ordinary);
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_ok(workspaces_clear_stream(TARN_STREAM_LEGACY, NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    assert_non_null(call.pointer);
    assert_ok(tarn_workspace_end(&call));
    assert_ok(tarn_capture_end(stream, &graph));
    assert_int_equal(workspace_stats().count, 0);
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_stream_retire(stream));
    assert_ok(driver->stream_destroy(0, blocking));
}

/* A capture that tarn does not know uses the workspace of its stream, which no clear takes from it
 * before it is over. */
static void test_clears_beside_an_unknown_capture(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream(), other = new_stream(), known = new_stream();
    tarn_workspace_cleared cleared = {0};
    tarn_capture_state capture;
    driver_graph graph = NULL;
    uint64_t id = 0;
    void *own = NULL;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    (void)workspace_on(library, other);
    void *ordinary = workspace_on(library, stream);
    assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_RELAXED));
    assert_ptr_equal(workspace_on(library, stream), ordinary);
    assert_refused(workspaces_clear_stream(stream, NULL), TARN_ERROR_CAPTURE, "captures");
    assert_ok(workspaces_clear_all(&cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_int_equal(cleared.deferred, 0);
    assert_int_equal(workspace_stats().bytes, 1 << 20);

    /* While another is known, it is seen, and has a workspace of its own. */
    assert_ok(tarn_capture_begin(known, TARN_CAPTURE_RELAXED));
    void *seen = workspace_on(library, stream);
    assert_ptr_not_equal(seen, ordinary);
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_ok(tarn_capture_end(known, &own));
    assert_ok(tarn_capture_state_get(stream, &capture, &id, NULL));
    assert_refused(workspaces_clear_capture(id, NULL), TARN_ERROR_CAPTURE, "not over");

    assert_ok(driver->capture_end(0, native(stream), &graph));
    assert_ok(workspaces_clear_capture(id, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_ok(workspaces_clear_stream(stream, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->graph_destroy(0, own));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
    assert_ok(tarn_stream_return(known));
}

static size_t changed_blocks;

static void count_changed(const tarn_pool_block *block, bool live, void *user)
{
    (void)user, (void)block, (void)live;
    changed_blocks++;
}

static tarn_status restore(tarn_pool *pool, const tarn_checkpoint *checkpoint)
{
    changed_blocks = 0;
    return tarn_pool_restore(pool, checkpoint, count_changed, NULL);
}

static bool is_live(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    return tarn_pointer_info_get(pointer, &info) == TARN_OK && info.base == pointer;
}

static size_t blocks_of(tarn_pool *pool)
{
    size_t count = 0;
    assert_ok(tarn_pool_blocks_get(pool, NULL, 0, &count));
    return count;
}

/* A captured workspace is a block of the pool, but none of the program's: taking the pool back to
 * an earlier time neither frees it under the handle, nor revives one that is gone. */
static void test_a_restore_leaves_captured_workspaces_alone(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    tarn_checkpoint *empty = NULL, *with = NULL;
    tarn_workspace_cleared cleared;
    tarn_pool *pool = NULL;
    void *got, *graph, *workspace, *mine = NULL;
    bool same = false;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_ok(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                               &pool));
    assert_ok(tarn_pool_checkpoint(pool, &empty));
    graph = capture_on(pool, library, stream, &workspace);
    assert_int_equal(blocks_of(pool), 0);
    assert_ok(tarn_pool_checkpoint(pool, &with));

    /* Back to the time before the capture, whose graph lives on. */
    assert_ok(restore(pool, empty));
    assert_int_equal(changed_blocks, 0);
    assert_true(is_live(workspace));
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_ok(tarn_pool_alloc(pool, stream, 1 << 20, &mine));
    assert_ptr_not_equal(mine, workspace);
    assert_ok(live_are(pool, &mine, 1, &same));
    assert_true(same);
    assert_ok(restore(pool, empty));
    assert_int_equal(changed_blocks, 1);
    assert_true(is_live(workspace) && !is_live(mine));

    /* The other way: it was live at the checkpoint, has gone since, and stays gone; nobody frees
     * the program's block there. */
    assert_ok(tarn_host_graph_destroy(graph));
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_ok(restore(pool, with));
    assert_int_equal(changed_blocks, 0);
    assert_false(is_live(workspace));
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_ok(tarn_pool_alloc(pool, stream, 1 << 20, &mine));
    assert_ok(workspaces_clear_pool(pool, &cleared));
    assert_int_equal(cleared.freed, 0);
    assert_true(is_live(mine));
    assert_ok(tarn_free(mine));
    tarn_stats stats = {.size = sizeof stats};
    assert_ok(tarn_pool_stats_get(pool, &stats));
    assert_int_equal(stats.allocated_bytes[TARN_STAT_ALL].current, 0);
    assert_ok(tarn_checkpoint_destroy(with));
    assert_ok(tarn_checkpoint_destroy(empty));
    assert_ok(tarn_pool_release(pool));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
}

/* A workspace may lie where a block of the checkpoint was: then there is no way back, until it is
 * cleared. */
static void test_a_restore_does_not_take_a_workspaces_place(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    tarn_checkpoint *checkpoint = NULL;
    tarn_pool *pool = NULL;
    void *got, *graph, *workspace, *first, *second, *third;
    assert_ok(tarn_workspace_size_set(library, 2 << 20));
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_ok(tarn_pool_create(&(tarn_pool_options){.size = sizeof(tarn_pool_options), .device = 0},
                               &pool));
    assert_ok(tarn_pool_alloc(pool, stream, 2 << 20, &first));
    assert_ok(tarn_pool_alloc(pool, stream, 2 << 20, &second));
    assert_ok(tarn_pool_alloc(pool, stream, 2 << 20, &third));
    assert_ok(tarn_pool_checkpoint(pool, &checkpoint));
    assert_ok(tarn_free(second));
    graph = capture_on(pool, library, stream, &workspace);
    assert_ptr_equal(workspace, second);
    assert_ok(tarn_free(third));
    assert_refused(restore(pool, checkpoint), TARN_ERROR_NO_ROOM, "tarn_workspace_clear()");
    assert_int_equal(changed_blocks, 0);
    assert_true(is_live(first) && is_live(workspace) && !is_live(third));
    assert_int_equal(blocks_of(pool), 1);
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(workspaces_clear_pool(pool, NULL));
    assert_ok(restore(pool, checkpoint));
    assert_int_equal(changed_blocks, 2);
    assert_ok(tarn_free(first));
    assert_ok(tarn_free(second));
    assert_ok(tarn_free(third));
    assert_ok(tarn_checkpoint_destroy(checkpoint));
    assert_ok(tarn_pool_release(pool));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
}

/* The workspace of a capture stays with it when its handle is destroyed, and is no freer for that.
 * A trim is refused beside a capture that shows; one of a found stream does not, and is asked about
 * only beside a known one. */
static void test_a_clear_beside_an_unknown_capture_whose_handle_is_gone(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream known = new_stream(), unknown;
    driver_stream found = NULL;
    void *graph = NULL;
    driver_graph other = NULL;
    tarn_lease lease = {0};
    tarn_capture_state capture;
    tarn_workspace_cleared cleared;
    uint64_t id = 0;
    size_t destroyed = 0;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
    assert_ok(driver->stream_create(0, 0, false, &found));
    assert_ok(tarn_stream_find(0, found, &unknown));
    assert_ok(tarn_capture_begin(known, TARN_CAPTURE_RELAXED));
    assert_ok(driver->capture_begin(0, found, DRIVER_CAPTURE_RELAXED));
    /* Seen beside a known one: it has a workspace of its own */
    assert_ok(tarn_handle_lease(library, unknown, &lease));
    assert_ok(tarn_capture_state_get(unknown, &capture, &id, NULL));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_capture_end(known, &graph));
    assert_ok(tarn_handle_trim(library, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_capture_begin(known, TARN_CAPTURE_RELAXED));
    assert_refused(workspaces_clear_capture(id, &cleared), TARN_ERROR_CAPTURE, "not over");
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_ok(tarn_capture_end(known, &graph));
    assert_ok(driver->capture_end(0, found, &other));
    assert_ok(workspaces_clear_capture(id, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_ok(driver->graph_destroy(0, other));
    assert_ok(tarn_host_graph_destroy(graph));
    assert_ok(tarn_stream_return(known));
    assert_ok(tarn_stream_retire(unknown));
    assert_ok(driver->stream_destroy(0, found));
}

/* The program destroys a stream that tarn only found, and says nothing. Its workspace is cleared
 * with all others. */
static void test_a_clear_of_all_takes_those_of_found_streams(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_workspace_cleared cleared = {.size = sizeof cleared};
    uint64_t before = workspace_stats().count;
    driver_stream found = NULL;
    tarn_stream stream;
    void *got;
    assert_ok(driver->stream_create(0, 0, false, &found));
    assert_ok(tarn_stream_find(0, found, &stream));
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_int_equal(workspace_stats().count, before + 1);
    assert_ok(driver->stream_destroy(0, found));
    assert_ok(tarn_workspace_clear(NULL, &cleared));
    assert_true(cleared.freed > 0);
    assert_int_equal(workspace_stats().count, before);
}

/* A found stream is not asked whether it captures still. The workspaces of a capture in which it
 * took part can be cleared all the same. */
static void test_a_found_streams_capture_can_be_cleared(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    driver_stream found = NULL;
    tarn_stream origin = new_stream(), stream;
    tarn_capture_state capture;
    tarn_event *event = NULL;
    uint64_t id = 0;
    void *got, *graph = NULL;
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
    assert_ok(driver->stream_create(0, 0, false, &found));
    assert_ok(tarn_event_create(0, &event));
    assert_ok(tarn_capture_begin(origin, TARN_CAPTURE_RELAXED));
    assert_ok(tarn_capture_state_get(origin, &capture, &id, NULL));
    assert_ok(tarn_event_record(event, origin));
    assert_ok(tarn_stream_find(0, found, &stream));
    assert_ok(tarn_stream_wait(stream, event));
    assert_ok(tarn_handle_get(library, stream, &got));
    assert_int_equal(workspace_stats().captured_count, 1);
    assert_status(workspaces_clear_capture(id, NULL), TARN_ERROR_CAPTURE);
    assert_ok(tarn_event_record(event, stream));
    assert_ok(tarn_stream_wait(origin, event));
    assert_ok(tarn_capture_end(origin, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(workspaces_clear_capture(id, NULL));
    assert_int_equal(workspace_stats().captured_count, 0);
    assert_ok(tarn_event_destroy(event));
    assert_ok(tarn_stream_retire(stream));
    assert_ok(driver->stream_destroy(0, found));
}

#define WORKSPACE_TEST(function) \
    cmocka_unit_test_setup_teardown(function, fake_reset, back_to_default)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORKSPACE_TEST(test_a_clear_of_all_takes_those_of_found_streams),
        WORKSPACE_TEST(test_a_found_streams_capture_can_be_cleared),
        WORKSPACE_TEST(test_captures_have_workspaces_of_their_own),
        WORKSPACE_TEST(test_an_unknown_capture_has_the_streams_workspace),
        WORKSPACE_TEST(test_a_graphs_workspace_outlives_thread_and_handle),
        WORKSPACE_TEST(test_a_captures_workspace_is_of_its_pool_and_goes_with_it),
        WORKSPACE_TEST(test_a_restore_leaves_captured_workspaces_alone),
        WORKSPACE_TEST(test_a_restore_does_not_take_a_workspaces_place),
        WORKSPACE_TEST(test_no_scope_serves_a_workspace),
        WORKSPACE_TEST(test_no_spare_pool_serves_a_workspace),
        WORKSPACE_TEST(test_a_stream_joins_after_its_handle_was_asked_for),
        WORKSPACE_TEST(test_a_get_between_the_announcement_and_the_begin),
        WORKSPACE_TEST(test_only_an_open_capture_is_asked_about),
        WORKSPACE_TEST(test_a_capture_without_a_graph_leaves_no_workspace),
        WORKSPACE_TEST(test_an_abort_takes_no_workspace_from_another_thread),
        WORKSPACE_TEST(test_the_legacy_stream_beside_a_blocking_capture),
        WORKSPACE_TEST(test_clears_beside_an_unknown_capture),
        WORKSPACE_TEST(test_a_clear_beside_an_unknown_capture_whose_handle_is_gone),
    };
    host_start(2, 1024 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
