/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* AMD's own hipSPARSE and rocSPARSE, unmodified, on the simulated HIP runtime that they were linked
 * for: real handles, made, bound to streams, pooled by threads, trimmed and destroyed. Skipped
 * where they are not installed. */
#include "driver/hip_test.h"

#include <pthread.h>
#include <tarn/tarn.h>

#define THREADS 16

static void *hipsparse, *rocsparse;

static int open_all(void **state)
{
    (void)state;
    hipsparse = dlopen("libhipsparse.so.0", RTLD_NOW | RTLD_LOCAL);
    rocsparse = dlopen("librocsparse.so.0", RTLD_NOW | RTLD_LOCAL);
    return 0;
}

#define NEEDS(library) \
    if (!(library))    \
    skip()

static void *symbol(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (!address)
        print_error("no %s\n", name);
    assert_non_null(address);
    return address;
}

/* ---- By itself ---- */

static void hipsparse_lives_on_the_simulated_runtime(void **state)
{
    (void)state;
    NEEDS(hipsparse);
    int (*create)(void **), (*destroy)(void *), (*version)(void *, int *), (*set)(void *, void *),
        (*get)(void *, void **), (*mode)(void *, int);
    unsigned (*make_stream)(hip_stream *), (*end_stream)(hip_stream);
    loader_store(&create, symbol(hipsparse, "hipsparseCreate"));
    loader_store(&destroy, symbol(hipsparse, "hipsparseDestroy"));
    loader_store(&version, symbol(hipsparse, "hipsparseGetVersion"));
    loader_store(&set, symbol(hipsparse, "hipsparseSetStream"));
    loader_store(&get, symbol(hipsparse, "hipsparseGetStream"));
    loader_store(&mode, symbol(hipsparse, "hipsparseSetPointerMode"));
    loader_store(&make_stream, symbol(hipsparse, "hipStreamCreate"));
    loader_store(&end_stream, symbol(hipsparse, "hipStreamDestroy"));

    void *handle = NULL, *bound = &handle;
    int number = 0;
    hip_stream stream = NULL;
    assert_int_equal(create(&handle), 0);
    assert_non_null(handle);
    assert_int_equal(version(handle, &number), 0);
    assert_true(number > 0);
    assert_int_equal(get(handle, &bound), 0);
    assert_null(bound);
    assert_int_equal(make_stream(&stream), 0);
    assert_int_equal(set(handle, stream), 0);
    assert_int_equal(get(handle, &bound), 0);
    assert_ptr_equal(bound, stream);
    assert_int_equal(mode(handle, 1), 0);
    assert_int_equal(destroy(handle), 0);
    assert_int_equal(end_stream(stream), 0);
}

/* ---- In tarn's pools ---- */

static void the_driver_joins_the_runtime_that_is_loaded(void **state)
{
    (void)state;
    NEEDS(hipsparse);
    int count = 0;
    assert_ok(tarn_device_count_get(&count));
    assert_int_equal(count, 1);
    assert_string_equal(driver->name, "hip");
    assert_int_equal(HIP_MAJOR(hip.version), 5); /* though .7 could be opened, and is newer */
    char why[256] = "";
    assert_true(driver_hip_serves(hipsparse, why, sizeof why));

    tarn_library_info info = {.size = sizeof info};
    assert_ok(tarn_library_info_get(TARN_LIBRARY_HIPSPARSE, &info));
    assert_true(info.found && info.usable && info.checked);
    assert_non_null(strstr(info.path, "libhipsparse.so.0"));
}

/* What its thread had, and saw. */
struct user {
    pthread_barrier_t *barrier;
    tarn_library library;
    void *(*bound_stream)(void *handle);
    void *handles[2]; /* one per stream */
    const char *wrong;
};

#define EXPECT(condition)             \
    do {                              \
        if (!(condition))             \
            user->wrong = #condition; \
    } while (0)

static void *use(void *argument)
{
    struct user *user = argument;
    tarn_stream streams[2] = {TARN_STREAM_LEGACY, TARN_STREAM_LEGACY};
    void *native = NULL, *again = NULL;
    EXPECT(tarn_stream_shared_get(0, 0, &streams[0]) == TARN_OK &&
           tarn_stream_shared_get(0, 0, &streams[1]) == TARN_OK);
    for (int i = 0; i < 2; i++)
        EXPECT(tarn_handle_get(user->library, streams[i], &user->handles[i]) == TARN_OK);
    pthread_barrier_wait(user->barrier); /* each has two at this moment */
    for (int round = 0; round < 100 && !user->wrong; round++) {
        EXPECT(tarn_stream_set(streams[round & 1]) == TARN_OK);
        EXPECT(tarn_handle_get(user->library, TARN_STREAM_CURRENT, &again) == TARN_OK &&
               again == user->handles[round & 1]);
        EXPECT(tarn_stream_native_get(streams[round & 1], &native) == TARN_OK && native);
        EXPECT(user->bound_stream(again) == native);
    }
    pthread_barrier_wait(user->barrier);
    return NULL;
}

static void *hipsparse_stream(void *handle)
{
    int (*get)(void *, void **);
    void *stream = NULL;
    loader_store(&get, symbol(hipsparse, "hipsparseGetStream"));
    return get(handle, &stream) ? handle : stream;
}

static void *rocsparse_stream(void *handle)
{
    int (*get)(void *, void **);
    void *stream = NULL;
    loader_store(&get, symbol(rocsparse, "rocsparse_get_stream"));
    return get(handle, &stream) ? handle : stream;
}

static tarn_handle_stats stats_of(tarn_library library)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    assert_ok(tarn_handle_stats_get(library, 0, &stats));
    return stats;
}

/* Sixteen threads at once, twice: the second lot finds the handles of the first. */
static void pool(tarn_library library, void *(*bound_stream)(void *))
{
    size_t before = 0, after = 0, total = 0, destroyed = 0;
    assert_ok(tarn_device_memory_get(0, &before, &total));
    for (int lot = 0; lot < 2; lot++) {
        pthread_t threads[THREADS];
        struct user users[THREADS];
        pthread_barrier_t barrier;
        pthread_barrier_init(&barrier, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
            users[i] = (struct user){
                .barrier = &barrier, .library = library, .bound_stream = bound_stream};
            assert_int_equal(pthread_create(&threads[i], NULL, use, &users[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
        for (int i = 0; i < THREADS; i++) {
            if (users[i].wrong)
                print_error("thread %d: not so: %s\n", i, users[i].wrong);
            assert_null(users[i].wrong);
            for (int j = 0; j < i * 2 + 1; j++)
                assert_ptr_not_equal(users[i].handles[1], users[j / 2].handles[j % 2]);
        }
        assert_int_equal(stats_of(library).created, 2 * THREADS);
        assert_int_equal(stats_of(library).available, 2 * THREADS);
        assert_int_equal(stats_of(library).in_use, 0);
    }
    tarn_handle_stats stats = stats_of(library);
    assert_true(stats.create_ns_last > 0);
    assert_int_equal(stats.failures, 0);
    assert_ok(tarn_device_memory_get(0, &after, &total));
    assert_true(after < before); /* they are real: each has memory of the device */
    assert_ok(tarn_handle_trim(library, 0, &destroyed));
    assert_int_equal(destroyed, 2 * THREADS);
    assert_int_equal(stats_of(library).available, 0);
    assert_int_equal(stats_of(library).destroyed, 2 * THREADS);
    assert_ok(tarn_device_memory_get(0, &after, &total));
    assert_int_equal(after, before);
}

static void hipsparse_is_pooled_by_threads(void **state)
{
    (void)state;
    NEEDS(hipsparse);
    pool(TARN_LIBRARY_HIPSPARSE, hipsparse_stream);
    tarn_library_info info = {.size = sizeof info};
    assert_ok(tarn_library_info_get(TARN_LIBRARY_HIPSPARSE, &info));
    assert_true(strlen(info.version) > 0);
}

static void rocsparse_is_pooled_by_threads(void **state)
{
    (void)state;
    NEEDS(rocsparse);
    pool(TARN_LIBRARY_ROCSPARSE, rocsparse_stream);
}

/* A handle that exists serves in a capture; one that does not is not made, and the capture
 * survives. */
static void a_capture_gets_no_new_handle(void **state)
{
    (void)state;
    NEEDS(hipsparse);
    void *graph = NULL, *other = NULL, *native = NULL;
    tarn_stream stream;
    tarn_lease lease;
    size_t destroyed = 0;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_handle_prewarm(TARN_LIBRARY_HIPSPARSE, 0, TARN_STREAM_NONE, 1));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_lease(TARN_LIBRARY_HIPSPARSE, stream, &lease));
    assert_ok(tarn_stream_native_get(stream, &native));
    assert_ptr_equal(hipsparse_stream(lease.handle), native);
    assert_refused(tarn_handle_get(TARN_LIBRARY_ROCSPARSE, stream, &other), TARN_ERROR_CAPTURE,
                   "tarn_handle_prewarm");
    assert_status(tarn_handle_trim(TARN_LIBRARY_HIPSPARSE, 0, &destroyed), TARN_ERROR_CAPTURE);
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_capture_end(stream, &graph));
    assert_non_null(graph);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_handle_trim(TARN_LIBRARY_HIPSPARSE, 0, &destroyed));
    assert_int_equal(destroyed, 1);
    assert_ok(tarn_stream_return(stream));
}

/* ---- The wrong runtime ---- */

/* The driver is on libamdhip64.so.7 before hipSPARSE, which needs .5, is opened: its handles could
 * do nothing with our streams. */
static void scenario_other_runtime(void)
{
    int count = 0;
    void *handle = NULL;
    NEED(tarn_device_count_get(&count) == TARN_OK);
    NEED(HIP_MAJOR(hip.version) == 7);
    /* Before a simulated one of a newer soname is found */
    NEED(dlopen("libhipsparse.so.0", RTLD_NOW | RTLD_LOCAL));
    NEED(tarn_handle_get(TARN_LIBRARY_HIPSPARSE, TARN_STREAM_CURRENT, &handle) ==
         TARN_ERROR_NOT_SUPPORTED);
    NEED(strstr(tarn_last_error(), "linked against another libamdhip64"));
    tarn_library_info info = {.size = sizeof info};
    NEED(tarn_library_info_get(TARN_LIBRARY_HIPSPARSE, &info) == TARN_OK);
    NEED(info.found && !info.usable && strstr(info.reason, "linked against another libamdhip64"));
}

static void a_library_on_another_runtime_is_refused(void **state)
{
    (void)state;
    NEEDS(hipsparse);
    const char *const variables[] = {"TARN_DRIVER=hip", NULL};
    assert_int_equal(run_scenario("other_runtime", variables), 0);
}

int main(int count, char **arguments)
{
    setenv("TARN_HOST_DEVICES", "1", 1);
    setenv("TARN_HOST_MEMORY", "2G", 1);
    setenv("TARN_DRIVER", "hip", 1);
    if (count == 2 && strcmp(arguments[1], "other_runtime") == 0) {
        scenario_other_runtime();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_on_another_runtime_is_refused),
        cmocka_unit_test(hipsparse_lives_on_the_simulated_runtime),
        cmocka_unit_test(the_driver_joins_the_runtime_that_is_loaded),
        cmocka_unit_test(hipsparse_is_pooled_by_threads),
        cmocka_unit_test(rocsparse_is_pooled_by_threads),
        cmocka_unit_test(a_capture_gets_no_new_handle),
    };
    return cmocka_run_group_tests(tests, open_all, NULL);
}
