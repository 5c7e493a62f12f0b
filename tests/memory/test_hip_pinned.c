/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory on the simulated libamdhip64, allocated and registered, in and out of captures. It
 * needs no virtual memory. */
#include "../driver/hip_test.h"

#include <tarn/tarn.h>

static void it_is_served(void **state)
{
    (void)state;
    tarn_stream stream;
    tarn_pinned_stats stats = {.size = sizeof stats};
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_string_equal(driver->name, "hip");
    for (int i = 0; i < 2; i++) {
        char *used = NULL, *other = NULL;
        void *graph = NULL;
        assert_ok(tarn_configuration_set(
            i ? "pinned_use_hip_host_register:True,pinned_num_register_threads:2"
              : "pinned_num_register_threads:2"));
        assert_ok(tarn_pinned_alloc(TARN_STREAM_CURRENT, 3 * MIB, (void **)&used));
        memset(used, 1, 3 * MIB);
        assert_ok(tarn_record_stream(used, stream));
        assert_ok(tarn_free(used));
        assert_ok(tarn_stream_synchronize(stream));
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        assert_ok(tarn_pinned_alloc(TARN_STREAM_CURRENT, 3 * MIB, (void **)&other));
        assert_ptr_equal(other, used);
        assert_ok(tarn_record_stream(other, stream));
        assert_ok(tarn_free(other));
        assert_ok(tarn_pinned_alloc(TARN_STREAM_CURRENT, 3 * MIB, (void **)&other)); /* grows */
        assert_ptr_not_equal(other, used);
        assert_ok(tarn_free(other));
        assert_ok(tarn_capture_end(stream, &graph));
        assert_ok(driver->graph_destroy(0, graph));
        assert_ok(tarn_pinned_forget_captures());
        assert_ok(tarn_pinned_trim(0));
        assert_ok(tarn_pinned_stats_get(&stats));
        assert_int_equal(stats.allocated_bytes.current, 0);
    }
    assert_int_equal(stats.num_host_alloc, 4);
    assert_int_equal(hip.call.hipGetLastError(), HIP_OK);
    assert_ok(tarn_shutdown());
}

int main(void)
{
    setenv("TARN_DRIVER", "hip", 1);
    setenv("TARN_HOST_MEMORY", "64M", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_served)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
