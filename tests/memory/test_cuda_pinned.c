/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory on the simulated libcuda: which device's context serves, and that asking makes
 * none. */
#include "../driver/cuda_test.h"

#include <pthread.h>
#include <tarn/tarn.h>

/* A thread that never chose a device. */
static void *take(void *argument)
{
    assert_ok(tarn_pinned_alloc(TARN_STREAM_CURRENT, MIB, argument));
    return NULL;
}

static void no_context_is_made_for_it(void **state)
{
    (void)state;
    pthread_t thread;
    static void *pinned;
    void *device = NULL;
    tarn_stream stream;
    assert_false(tarn_pinned_contains(&pinned));
    assert_null(driver); /* nothing was started for the answer */
    assert_ok(tarn_device_set(1));
    assert_false(has_context(0));
    assert_int_equal(pthread_create(&thread, NULL, take, &pinned), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(tarn_pinned_contains(pinned));
    assert_false(has_context(0)); /* although that is the thread's device */

    assert_ok(tarn_stream_lease(1, 0, &stream));
    assert_ok(tarn_alloc_on(stream, MIB, &device));
    void *native = NULL;
    assert_ok(tarn_stream_native_get(stream, &native));
    memset(pinned, 5, MIB);
    assert_ok(driver->copy(1, (uintptr_t)device, (uintptr_t)pinned, MIB, native));
    assert_ok(tarn_record_stream(pinned, stream));
    assert_ok(tarn_free(pinned));
    assert_ok(tarn_stream_synchronize(stream));
    tarn_pinned_stats stats = {.size = sizeof stats};
    assert_ok(tarn_pinned_stats_get(&stats));
    assert_int_equal(stats.pending_bytes, 0);
    assert_int_equal(((unsigned char *)device)[MIB - 1], 5);

    /* During a capture of the strictest kind it grows all the same. */
    for (int i = 0; i < 2; i++) {
        void *graph = NULL;
        assert_ok(tarn_configuration_set(i ? "pinned_use_cuda_host_register:True" : ""));
        assert_ok(tarn_pinned_trim(0));
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        assert_ok(tarn_pinned_alloc(TARN_STREAM_CURRENT, 3 * MIB, &pinned));
        assert_ok(tarn_record_stream(pinned, stream));
        assert_ok(tarn_free(pinned));
        assert_ok(tarn_capture_end(stream, &graph));
        assert_ok(driver->graph_destroy(1, graph));
        assert_ok(tarn_pinned_forget_captures());
    }
    assert_ok(tarn_pinned_trim(0));
    assert_ok(tarn_pinned_stats_get(&stats));
    assert_int_equal(stats.allocated_bytes.current, 0);
    assert_int_equal(stats.num_host_free, 3);
    assert_ok(tarn_free(device));
    assert_ok(tarn_shutdown());
}

int main(void)
{
    setenv("TARN_DRIVER", "cuda", 1);
    setenv("TARN_HOST_DEVICES", "2", 1);
    setenv("TARN_HOST_MEMORY", "64M", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_context_is_made_for_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
