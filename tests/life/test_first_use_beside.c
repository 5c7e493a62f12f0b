/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that end, captures that end and streams that are retired, while another thread's first
 * use of memory, and of a handle, tells the device layer what to do then. ThreadSanitizer is what
 * looks on. */
#include "handle/fake.h"

static atomic_int running;
static pthread_barrier_t start;

/* One that has used devices and streams alone. */
static void *end_at_once(void *argument)
{
    assert_ok(tarn_device_set((int)(uintptr_t)argument % 2));
    assert_ok(tarn_stream_set(TARN_STREAM_PER_THREAD));
    return NULL;
}

static void *make_threads(void *argument)
{
    pthread_barrier_wait(&start);
    for (uintptr_t i = 0; i < 20; i++)
        in_thread(end_at_once, (void *)i);
    atomic_fetch_sub(&running, 1);
    return argument;
}

static void *capture_and_retire(void *argument)
{
    void *own = native_made();
    pthread_barrier_wait(&start);
    while (atomic_load(&running)) {
        tarn_stream stream;
        assert_ok(tarn_stream_adopt(0, own, &stream));
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        assert_ok(tarn_capture_abort(stream));
        assert_ok(tarn_stream_retire(stream));
    }
    return argument;
}

static void *use_memory_and_a_handle(void *argument)
{
    void *block = NULL;
    pthread_barrier_wait(&start);
    usleep(500);
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 1000, &block));
    assert_ok(tarn_free(block));
    void *handle = NULL;
    assert_ok(tarn_handle_wait_limit_set(20000000000u, NULL));
    assert_ok(tarn_handle_get(*(tarn_library *)argument, TARN_STREAM_CURRENT, &handle));
    return NULL;
}

static void test_a_first_use_beside_ends(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    void *(*const functions[])(void *) = {make_threads, capture_and_retire,
                                          use_memory_and_a_handle};
    enum { COUNT = sizeof functions / sizeof *functions };
    pthread_t threads[COUNT];
    atomic_store(&running, 1);
    pthread_barrier_init(&start, NULL, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, functions[i], &library), 0);
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(handle_stats(library).available, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_a_first_use_beside_ends)};
    host_start(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
