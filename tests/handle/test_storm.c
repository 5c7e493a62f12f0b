/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Many threads, and the ends of processes: storms of threads that live a millisecond, fork, exit
 * with live threads, and tarn_shutdown() that races with gets. What ends a process runs in a child.
 * The fake's handles notice a second user. */
#include "handle/fake.h"

static tarn_library library;

static void *short_life(void *argument)
{
    (void)argument;
    void *handle = NULL;
    assert_ok(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
    assert_ptr_equal(get(library), handle);
    return handle;
}

static int storm(void)
{
    enum { WAVES = SLOW_BUILD ? 25 : 250, WIDTH = 16 };
    pthread_t threads[WIDTH];
    host_start(1, 256 * MIB);
    library = fake_register(0, true);
    if (tarn_workspace_size_set(library, 1 << 20))
        return 1;
    for (int wave = 0; wave < WAVES; wave++) {
        for (int i = 0; i < WIDTH; i++)
            if (pthread_create(&threads[i], NULL, short_life, NULL))
                return 2;
        for (int i = 0; i < WIDTH; i++)
            pthread_join(threads[i], NULL);
    }
    tarn_handle_stats stats = handle_stats(library);
    if (stats.in_use != 0 || stats.created > WIDTH || stats.available != stats.created ||
        stats.peak_in_use > WIDTH)
        return 3;
    size_t destroyed = 0;
    if (tarn_handle_trim(library, 0, &destroyed) || destroyed != stats.created ||
        workspace_stats().bytes)
        return 4;
    return atomic_load(&fake.misuse) ? 5 : 0;
}

/* aten/src/ATen/test's idea of multiple_threads_same_device: pairs of threads that alternate on one
 * device, on streams of their own. */
static void *alternate(void *argument)
{
    tarn_stream streams[2] = {new_stream(), new_stream()};
    struct fake_handle *first = NULL;
    (void)argument;
    for (int i = 0; i < 300; i++) {
        void *got = NULL;
        assert_ok(tarn_handle_get(library, streams[i % 2], &got));
        struct fake_handle *handle = got;
        assert_ptr_equal(handle->stream, native(streams[i % 2]));
        if (first)
            assert_ptr_equal(handle, first);
        first = handle;
    }
    return NULL;
}

static int same_device(void)
{
    pthread_t threads[8];
    host_start(1, 256 * MIB);
    library = fake_register(0, false);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 8; i++)
            if (pthread_create(&threads[i], NULL, alternate, NULL))
                return 1;
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    }
    return handle_stats(library).created > 8 || atomic_load(&fake.misuse) ? 2 : 0;
}

static int forked(void)
{
    void *handle = NULL;
    tarn_lease lease = {0};
    host_start(1, 256 * MIB);
    library = fake_register(0, true);
    get(library);
    assert_ok(tarn_handle_lease(library, TARN_STREAM_LEGACY, &lease));
    int calls = fake_calls(FAKE_SET_STREAM);
    pid_t child = fork();
    if (child == 0) {
        bool refused =
            tarn_handle_get(library, TARN_STREAM_CURRENT, &handle) == TARN_ERROR_FORKED &&
            tarn_handle_get(library, TARN_STREAM_LEGACY, &handle) == TARN_ERROR_FORKED &&
            tarn_handle_return(&lease) == TARN_ERROR_FORKED &&
            tarn_handle_trim(library, 0, NULL) == TARN_ERROR_FORKED &&
            workspaces_clear_all(NULL) == TARN_ERROR_FORKED && tarn_shutdown() == TARN_ERROR_FORKED;
        _exit(refused && !handle && fake_calls(FAKE_SET_STREAM) == calls ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    get(library); /* the parent goes on */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

static void *never_ends(void *argument)
{
    get(library);
    pthread_barrier_wait(argument);
    for (;;)
        pause();
    return NULL;
}

static int exit_with_threads(void)
{
    static pthread_barrier_t barrier;
    pthread_t thread;
    host_start(1, 256 * MIB);
    library = fake_register(0, true);
    get(library);
    pthread_barrier_init(&barrier, NULL, 5);
    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread, NULL, never_ends, &barrier))
            return 1;
    pthread_barrier_wait(&barrier);
    atomic_store(&fake.fail_nth[FAKE_DESTROY], 1); /* a destroy would be counted */
    exit(fake_calls(FAKE_DESTROY));
}

static atomic_int started, wrong;

static void *get_until_shutdown(void *argument)
{
    tarn_stream streams[2] = {new_stream(), new_stream()};
    bool creates = argument != NULL;
    atomic_fetch_add(&started, 1);
    for (int i = 0;; i++) {
        void *handle = NULL;
        tarn_status status = tarn_handle_get(library, streams[i % 2], &handle);
        if (status == TARN_ERROR_SHUTDOWN)
            break;
        if (status || !atomic_load(&((struct fake_handle *)handle)->alive))
            atomic_fetch_add(&wrong, 1);
        if (creates) { /* a lease makes handles again and again */
            tarn_lease lease;
            if (tarn_handle_lease(library, streams[0], &lease) == TARN_OK &&
                tarn_handle_return(&lease))
                atomic_fetch_add(&wrong, 1);
        }
    }
    void *handle = NULL;
    if (tarn_handle_get(library, TARN_STREAM_CURRENT, &handle) != TARN_ERROR_SHUTDOWN || handle)
        atomic_fetch_add(&wrong, 1);
    return NULL;
}

static int shutdown_race(void)
{
    pthread_t threads[6];
    tarn_lease lease;
    host_start(1, 256 * MIB);
    library = fake_register(0, true);
    if (tarn_workspace_size_set(library, 1 << 16))
        return 1;
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 10));
    assert_ok(tarn_handle_lease(library, TARN_STREAM_LEGACY, &lease));
    get(library);
    for (int i = 0; i < 6; i++)
        if (pthread_create(&threads[i], NULL, get_until_shutdown, i % 2 ? &started : NULL))
            return 2;
    while (atomic_load(&started) < 6)
        sched_yield();
    usleep(5000);
    if (tarn_shutdown() || tarn_shutdown())
        return 3;
    int destroyed = fake_calls(FAKE_DESTROY);
    if (destroyed < 2) /* what was prewarmed and not taken, and that of this thread */
        return 4;
    if (!atomic_load(&((struct fake_handle *)lease.handle)->alive)) /* still the caller's */
        return 5;
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    if (tarn_handle_return(&lease) || tarn_handle_return(&lease) != TARN_ERROR_INVALID_ARGUMENT)
        return 6;
    if (fake_calls(FAKE_DESTROY) != destroyed)
        return 7;
    return atomic_load(&wrong) || atomic_load(&fake.misuse) ? 8 : 0;
}

static int shutdown_destroys_all(void)
{
    host_start(1, 256 * MIB);
    library = fake_register(0, true);
    get(library);
    in_thread(short_life, NULL);
    if (handle_stats(library).available != 1)
        return 1;
    if (tarn_shutdown())
        return 2;
    return fake_calls(FAKE_DESTROY) == fake_calls(FAKE_CREATE) && fake_calls(FAKE_CREATE) == 2 ? 0
                                                                                               : 3;
}

static int shutdown_in_a_capture(void)
{
    void *graph = NULL;
    host_start(1, 256 * MIB);
    library = fake_register(0, false);
    tarn_stream stream = new_stream();
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    if (tarn_shutdown() != TARN_ERROR_CAPTURE || fake_calls(FAKE_DESTROY))
        return 1;
    assert_ok(tarn_capture_end(stream, &graph));
    return tarn_shutdown() || fake_calls(FAKE_DESTROY) != 2 ? 2 : 0;
}

static int debug_reports_who_sets_the_stream(void)
{
    setenv("TARN_DEBUG", "handles", 1);
    host_start(1, 256 * MIB);
    library = fake_register(0, false);
    tarn_stream a = new_stream();
    void *handle = NULL;
    assert_ok(tarn_handle_get(library, a, &handle));
    assert_ok(tarn_handle_get(library, a, &handle));
    if (handle_stats(library).contract_breaks || fake_calls(FAKE_SET_STREAM) != 1)
        return 1;
    ((struct fake_handle *)handle)->stream = NULL; /* by the caller, behind our back */
    assert_ok(tarn_handle_get(library, a, &handle));
    return handle_stats(library).contract_breaks == 1 &&
                   ((struct fake_handle *)handle)->stream == native(a)
               ? 0
               : 2;
}

#define CHILD_TEST(name)                     \
    static void test_##name(void **state)    \
    {                                        \
        (void)state;                         \
        assert_int_equal(in_child(name), 0); \
    }
CHILD_TEST(storm)
CHILD_TEST(same_device)
CHILD_TEST(forked)
CHILD_TEST(exit_with_threads)
CHILD_TEST(shutdown_race)
CHILD_TEST(shutdown_destroys_all)
CHILD_TEST(shutdown_in_a_capture)
CHILD_TEST(debug_reports_who_sets_the_stream)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storm),
        cmocka_unit_test(test_same_device),
        cmocka_unit_test(test_forked),
        cmocka_unit_test(test_exit_with_threads),
        cmocka_unit_test(test_shutdown_race),
        cmocka_unit_test(test_shutdown_destroys_all),
        cmocka_unit_test(test_shutdown_in_a_capture),
        cmocka_unit_test(test_debug_reports_who_sets_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
