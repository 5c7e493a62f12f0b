/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles and workspaces when memory is short: what nobody uses serves others, in the order of its
 * stream, and what somebody may use does not; and a thread that works on many streams has few
 * handles, which follow. */
#include "handle/fake.h"

#include "driver/driver.h"

enum { STREAMS = 32 };

static tarn_library library;
static tarn_stream stream;

static void report(const char *text, void *user)
{
    (void)user;
    print_error("%s\n", text);
}

static void start(size_t memory)
{
    host_start(1, memory);
    assert_ok(tarn_host_check_set(true, report, NULL));
}

static uint64_t reports(void)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    assert_ok(tarn_host_ledger_get(0, &ledger));
    return ledger.reports;
}

static struct fake_handle *get_on(tarn_stream wanted)
{
    void *got = NULL;
    assert_ok(tarn_handle_get(library, wanted, &got));
    struct fake_handle *handle = got;
    assert_ptr_equal(handle->stream, native(wanted));
    return handle;
}

static void work(tarn_stream of, const struct fake_handle *handle, uint64_t ns)
{
    assert_ok(tarn_host_work(0, native(of), handle->workspace, handle->workspace_size, ns));
}

static bool is_live(const void *pointer)
{
    tarn_block_info info = {.size = sizeof info};
    return tarn_pointer_info_get(pointer, &info) == TARN_OK;
}

static void *get_and_work(void *argument)
{
    (void)argument;
    work(stream, get_on(stream), 1000000);
    return NULL;
}

/* Threads that are gone have left workspaces on streams whose work is not over. */
static int idle_workspaces(void)
{
    void *block = NULL;
    start(96 * MIB);
    library = fake_register(0, true);
    assert_ok(tarn_workspace_size_set(library, 32 << 20));
    for (int i = 0; i < 6; i++) {
        stream = new_stream();
        in_thread(get_and_work, NULL);
    }
    assert_int_equal(handle_stats(library).created, 1);
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 80 * MIB, &block));
    assert_ok(tarn_host_work(0, NULL, block, 80 * MIB, 1000));
    assert_int_equal(workspace_stats().count, 0);
    assert_int_equal(reports(), 0);
    void *more = NULL;
    stream = new_stream();
    void *got = NULL;
    assert_refused(tarn_handle_get(library, stream, &got), TARN_ERROR_OUT_OF_MEMORY, "workspace");
    assert_int_not_equal(tarn_alloc_on(TARN_STREAM_LEGACY, 80 * MIB, &more), TARN_OK);
    assert_ok(tarn_free(block));
    work(stream, get_on(stream), 1000);
    assert_int_equal(reports(), 0);
    return 0;
}

/* A pool that is to have its memory again. */
static int idle_workspaces_and_a_resume(void)
{
    tarn_pool *pool = NULL;
    void *block = NULL;
    start(96 * MIB);
    library = fake_register(0, true);
    assert_ok(tarn_workspace_size_set(library, 32 << 20));
    assert_ok(tarn_pool_create(NULL, &pool));
    assert_ok(tarn_pool_alloc(pool, TARN_STREAM_LEGACY, 64 * MIB, &block));
    memset(block, 7, 64);
    assert_ok(tarn_pool_suspend(pool, true));
    for (int i = 0; i < 2; i++) {
        stream = new_stream();
        in_thread(get_and_work, NULL);
    }
    assert_int_equal(workspace_stats().count, 2);
    assert_ok(tarn_pool_resume(pool));
    assert_int_equal(((char *)block)[63], 7);
    assert_int_equal(workspace_stats().count, 0);
    assert_int_equal(reports(), 0);
    return 0;
}

/* What others have, what a graph has, what an open capture may use; of a thread that has several,
 * the one that its handle points to. */
static int used_workspaces(void)
{
    enum { BOUND, LEASED, UNKNOWN, IDLE, KINDS };
    tarn_stream streams[KINDS];
    void *workspaces[KINDS], *captured, *block = NULL, *graph = NULL;
    driver_graph unknown = NULL;
    tarn_lease lease;
    start(256 * MIB);
    library = fake_register(0, true);
    assert_ok(tarn_workspace_size_set(library, 16 << 20));
    for (int i = 0; i < KINDS; i++)
        streams[i] = new_stream();
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2));
    assert_ok(tarn_handle_lease(library, streams[LEASED], &lease));
    workspaces[LEASED] = ((struct fake_handle *)lease.handle)->workspace;
    workspaces[UNKNOWN] = get_on(streams[UNKNOWN])->workspace;
    workspaces[IDLE] = get_on(streams[IDLE])->workspace;
    assert_ok(tarn_capture_begin(streams[BOUND], TARN_CAPTURE_RELAXED));
    captured = get_on(streams[BOUND])->workspace;
    assert_ok(tarn_capture_end(streams[BOUND], &graph));
    workspaces[BOUND] = get_on(streams[BOUND])->workspace;
    assert_ptr_not_equal(captured, workspaces[BOUND]);
    assert_ok(driver->capture_begin(0, native(streams[UNKNOWN]), DRIVER_CAPTURE_RELAXED));
    assert_status(tarn_alloc_on(TARN_STREAM_LEGACY, 224 * MIB, &block), TARN_ERROR_OUT_OF_MEMORY);
    for (int i = 0; i < KINDS; i++)
        assert_int_equal(is_live(workspaces[i]), i != IDLE);
    assert_true(is_live(captured));
    assert_int_equal(workspace_stats().count, 4);
    assert_ok(driver->capture_end(0, native(streams[UNKNOWN]), &unknown));
    assert_ptr_equal(get_on(streams[BOUND])->workspace, workspaces[BOUND]);
    assert_ok(tarn_handle_return(&lease));
    /* Now the leased one and the unknown one go */
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 192 * MIB, &block));
    assert_false(is_live(workspaces[LEASED]) || is_live(workspaces[UNKNOWN]));
    assert_true(is_live(workspaces[BOUND]) && is_live(captured));
    assert_int_equal(reports(), 0);
    return 0;
}

/* A thread on many streams. */
static int few_handles(void)
{
    tarn_stream streams[STREAMS];
    struct fake_handle *handles[STREAMS];
    start(1024 * MIB);
    library = fake_register(TARN_LIBRARY_BY_STREAM, true);
    assert_ok(tarn_workspace_size_set(library, 8 << 20));
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream();
        handles[i] = get_on(streams[i]);
        if (i >= TARN_HANDLE_STREAMS) {
            /* The one that was asked for longest ago, with its workspace, behind its work there. */
            assert_ptr_equal(handles[i], handles[i - TARN_HANDLE_STREAMS]);
            assert_int_equal(tarn_stream_query(streams[i]), TARN_ERROR_NOT_READY);
        }
        work(streams[i], handles[i], 1000000);
    }
    assert_int_equal(handle_stats(library).created, TARN_HANDLE_STREAMS);
    assert_int_equal(handle_stats(library).in_use, TARN_HANDLE_STREAMS);
    assert_int_equal(workspace_stats().count, TARN_HANDLE_STREAMS);
    for (int i = STREAMS - TARN_HANDLE_STREAMS; i < STREAMS; i++)
        assert_ptr_equal(get_on(streams[i]), handles[i]); /* the last ones are where they were */

    /* The workspace waits for all the streams that it went along with. */
    void *block = NULL, *workspace = get_on(streams[1])->workspace;
    work(streams[1], get_on(streams[1]), 100000000);
    assert_ok(workspaces_clear_all(NULL));
    assert_false(is_live(workspace));
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 1024 * MIB, &block));
    assert_ok(tarn_host_work(0, NULL, block, 1024 * MIB, 1000));
    assert_int_equal(reports(), 0);
    return 0;
}

/* Where a handle cannot follow, or must not, another does, or is made. */
static int handles_that_stay(void)
{
    tarn_stream streams[STREAMS];
    struct fake_handle *handles[STREAMS];
    tarn_workspace_call call = {0};
    driver_graph unknown = NULL;
    void *graph = NULL;
    start(1024 * MIB);
    library = fake_register(TARN_LIBRARY_BY_STREAM, true);
    assert_ok(tarn_workspace_size_set(library, 8 << 20));
    for (int i = 0; i < STREAMS; i++)
        streams[i] = new_stream();
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_stream_set(streams[0]));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL,
                                   &call)); /* the first is in a call, the second's stream
                                               captures */
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    for (int i = 0; i < TARN_HANDLE_STREAMS; i++)
        if (i)
            handles[i] = get_on(streams[i]);
    assert_ok(driver->capture_begin(0, native(streams[1]), DRIVER_CAPTURE_RELAXED));
    handles[8] = get_on(streams[8]);
    assert_ptr_equal(handles[8], handles[2]);
    struct fake_handle *called = call.handle;
    assert_ptr_equal(called->stream, native(streams[0]));
    assert_ptr_equal(handles[1]->stream, native(streams[1]));
    assert_ok(driver->capture_end(0, native(streams[1]), &unknown));
    assert_ok(tarn_workspace_end(&call));
    assert_ptr_equal(get_on(streams[9]), called);

    /* Beside a capture none follows. */
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
    assert_int_equal(handle_stats(library).created, TARN_HANDLE_STREAMS + 1);
    assert_ok(tarn_capture_begin(streams[20], TARN_CAPTURE_RELAXED));
    assert_int_equal(get_on(streams[20])->number, TARN_HANDLE_STREAMS + 1);
    assert_ok(tarn_capture_end(streams[20], &graph));
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    assert_int_equal(reports(), 0);
    return 0;
}

/* Before a thread fails for lack of a workspace, or of a handle, one that it has serves: not the
 * one that it asked for last. */
static int handles_follow_under_pressure(void)
{
    tarn_stream streams[4];
    void *got = NULL;
    start(96 * MIB);
    library = fake_register(TARN_LIBRARY_BY_STREAM, true);
    assert_ok(tarn_workspace_size_set(library, 40 << 20));
    for (int i = 0; i < 4; i++)
        streams[i] = new_stream();
    struct fake_handle *first = get_on(streams[0]), *second = get_on(streams[1]);
    work(streams[0], first, 1000000);
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(get_on(streams[2]), first);
    assert_ptr_equal(second->stream, native(streams[1]));
    assert_ptr_equal(get_on(streams[3]), second);
    assert_int_equal(tarn_stream_query(streams[2]), TARN_ERROR_NOT_READY);
    assert_int_equal(workspace_stats().count, 2);
    fake_fail(FAKE_CREATE, 1, 2); /* and once more, after memory was given back */
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_handle_get(library, streams[0], &got));
    assert_int_equal(reports(), 0);

    library = fake_register(TARN_LIBRARY_BY_STREAM, true); /* with one alone it is an error */
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_workspace_size_set(library, 60 << 20));
    first = get_on(streams[0]);
    assert_refused(tarn_handle_get(library, streams[1], &got), TARN_ERROR_OUT_OF_MEMORY,
                   "workspace");
    assert_ptr_equal(get_on(streams[0]), first);
    return 0;
}

static struct {
    tarn_library libraries[2];
    tarn_stream streams[6];
    atomic_int wrong, shortages;
} crowd;

/* Each uses its handles, and needs more memory than there is beside all the workspaces. */
static void *use_and_allocate(void *argument)
{
    unsigned random = (unsigned)(uintptr_t)argument;
    for (int i = 0; i < (SLOW_BUILD ? 40 : 150); i++) {
        void *got = NULL, *block = NULL;
        tarn_stream wanted = crowd.streams[(unsigned)rand_r(&random) % 6];
        tarn_status status =
            tarn_handle_get(crowd.libraries[(unsigned)rand_r(&random) % 2], wanted, &got);
        struct fake_handle *handle = got;
        tarn_status other = tarn_alloc_on(wanted, (8 + (size_t)rand_r(&random) % 24) * MIB, &block);
        if ((status && status != TARN_ERROR_OUT_OF_MEMORY) ||
            (other && other != TARN_ERROR_OUT_OF_MEMORY))
            atomic_fetch_add(&crowd.wrong, 1);
        if (status || other)
            atomic_fetch_add(&crowd.shortages, 1);
        if (!status && (!is_live(handle->workspace) || handle->workspace_size != 2 * MIB))
            atomic_fetch_add(&crowd.wrong, 1);
        if (!other && tarn_free(block))
            atomic_fetch_add(&crowd.wrong, 1);
    }
    return NULL;
}

static int threads_in_a_shortage(void)
{
    pthread_t threads[4];
    start(64 * MIB);
    for (int i = 0; i < 2; i++) {
        crowd.libraries[i] = fake_register(i ? TARN_LIBRARY_BY_STREAM : 0, true);
        assert_ok(tarn_workspace_size_set(crowd.libraries[i], 2 << 20));
    }
    for (int i = 0; i < 6; i++)
        crowd.streams[i] = new_stream();
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_and_allocate, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&crowd.wrong), 0);
    assert_int_equal(atomic_load(&fake.misuse), 0);
    assert_int_equal(reports(), 0);
    assert_ok(workspaces_clear_all(NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    return 0;
}

#define CHILD_TEST(name)                     \
    static void test_##name(void **state)    \
    {                                        \
        (void)state;                         \
        assert_int_equal(in_child(name), 0); \
    }
CHILD_TEST(idle_workspaces)
CHILD_TEST(idle_workspaces_and_a_resume)
CHILD_TEST(used_workspaces)
CHILD_TEST(few_handles)
CHILD_TEST(handles_that_stay)
CHILD_TEST(handles_follow_under_pressure)
CHILD_TEST(threads_in_a_shortage)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idle_workspaces),
        cmocka_unit_test(test_idle_workspaces_and_a_resume),
        cmocka_unit_test(test_used_workspaces),
        cmocka_unit_test(test_few_handles),
        cmocka_unit_test(test_handles_that_stay),
        cmocka_unit_test(test_handles_follow_under_pressure),
        cmocka_unit_test(test_threads_in_a_shortage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
