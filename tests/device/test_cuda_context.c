/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Contexts of the simulated libcuda: which calls make one, and what a thread has current after
 * them. */
#include "../driver/cuda_test.h"

#include <pthread.h>
#include <tarn/tarn.h>

/* cmocka's assertions are for the main thread. */

static void in_thread(void *(*function)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    pthread_join(thread, NULL);
}

/* A thread that never chose a device comes back from device 1 to nothing. */
static void *guards(void *unused)
{
    tarn_stream stream;
    tarn_guard guard;
    tarn_guard device_guard;
    int device = -1;
    GOOD(tarn_stream_lease(1, 0, &stream));
    GOOD(tarn_stream_guard_set(&guard, stream));
    NEED(current_context());
    GOOD(tarn_guard_restore(&guard));
    NEED(!current_context());
    GOOD(tarn_device_guard_set(&device_guard, 1));
    GOOD(tarn_guard_restore(&device_guard));
    NEED(!current_context());
    GOOD(tarn_device_get(&device));
    NEED(device == 0);
    GOOD(tarn_stream_return(stream));
    return unused;
}

/* The handle's context stays with the thread that had none, and no other thread's call leaves
 * one. */
static void *gets(void *unused)
{
    tarn_stream stream;
    void *handle = NULL;
    int device = -1;
    GOOD(tarn_stream_lease(1, 0, &stream));
    GOOD(tarn_handle_get(TARN_LIBRARY_CUDNN, stream, &handle));
    NEED(current_context());
    GOOD(tarn_device_adopt(&device));
    NEED(device == 1);
    GOOD(tarn_stream_return(stream));
    return unused;
}

static void *trims(void *unused)
{
    size_t count = 0;
    GOOD(tarn_handle_trim(TARN_LIBRARY_CUDNN, 1, &count));
    NEED(count == 1 && !current_context());
    return unused;
}

static void no_context_is_made_on_a_device_that_is_not_used(void **state)
{
    (void)state;
    int device = -1;
    assert_ok(tarn_device_adopt(&device));
    assert_int_equal(device, 0);
    assert_false(has_context(0));
    in_thread(guards);
    in_thread(gets);
    in_thread(trims);
    assert_true(has_context(1));
    assert_false(has_context(0));
}

static void a_handle_leaves_a_context_of_another_device_as_it_was(void **state)
{
    (void)state;
    tarn_stream stream;
    void *handle = NULL;
    assert_ok(tarn_device_set(0));
    cu_context before = current_context();
    assert_ok(tarn_stream_lease(1, 0, &stream));
    assert_ok(tarn_handle_get(TARN_LIBRARY_CUSPARSE, stream, &handle));
    assert_ptr_equal(current_context(), before);
    assert_ok(tarn_handle_trim(TARN_LIBRARY_CUSPARSE, 1, NULL));
    assert_ptr_equal(current_context(), before);
    assert_ok(tarn_stream_return(stream));
}

static void a_stream_of_another_device_is_not_adopted(void **state)
{
    (void)state;
    tarn_stream stream, adopted = 77;
    void *native = NULL;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_stream_native_get(stream, &native));
    cu_context before = current_context();
    assert_int_equal(tarn_stream_adopt(1, native, &adopted), TARN_ERROR_INVALID_STREAM);
    assert_non_null(strstr(tarn_last_error(), "device 1"));
    assert_true(adopted == 77);
    assert_ptr_equal(current_context(), before);
    assert_ok(tarn_stream_adopt(0, native, &adopted));
    assert_ok(tarn_stream_retire(adopted));
    assert_ok(tarn_stream_return(stream));
}

/* A driver that says less: the device of the stream's context, or nothing at all. */
static int old_driver(bool tells)
{
    tarn_stream stream, adopted = 77;
    void *native = NULL;
    GOOD(tarn_stream_lease(0, 0, &stream));
    GOOD(tarn_stream_native_get(stream, &native));
    tarn_status status = tarn_stream_adopt(1, native, &adopted);
    NEED(status == (tells ? TARN_ERROR_INVALID_STREAM : TARN_OK));
    GOOD(tarn_stream_adopt(0, native, &adopted));
    return 0;
}

static void old_drivers_are_asked_as_far_as_they_can_tell(void **state)
{
    (void)state;
    const char *const device[] = {"TARN_SIM_CUDA_VERSION=12040", NULL};
    const char *const failing[] = {"TARN_SIM_FAIL=cuStreamGetCtx:1:999+", NULL};
    assert_int_equal(run_scenario("device", device), 0);
    assert_int_equal(run_scenario("nothing", failing), 0); /* what it cannot tell may be right */
}

int main(int count, char **arguments)
{
    setenv("TARN_DRIVER", "cuda", 1);
    setenv("TARN_HOST_DEVICES", "2", 1);
    setenv("TARN_HOST_MEMORY", "64M", 1);
    if (count > 1)
        return old_driver(strcmp(arguments[1], "device") == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_context_is_made_on_a_device_that_is_not_used),
        cmocka_unit_test(a_handle_leaves_a_context_of_another_device_as_it_was),
        cmocka_unit_test(a_stream_of_another_device_is_not_adopted),
        cmocka_unit_test(old_drivers_are_asked_as_far_as_they_can_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
