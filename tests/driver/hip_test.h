/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the HIP driver share: the driver started on one of the simulated runtimes, and
 * that library as a caller beside tarn would use it. */
#ifndef TARN_TESTS_DRIVER_HIP_TEST_H
#define TARN_TESTS_DRIVER_HIP_TEST_H

#include "driver/hip/hip.h"
#include "driver/loader.h"
#include "scenario_test.h"

#include <dlfcn.h>

#define CALL(cuda, hip) hip                           /* the name of a call */
#define DESTROYED_STREAM "hipErrorContextIsDestroyed" /* what it says of one */

/* Starts the driver on libamdhip64.so.<major>, of the version that it claims by itself or of the
 * one named. */
static inline void start_hip(int major, const char *version, bool virtual_memory)
{
    static const char *const others[] = {[5] = "libamdhip64.so.6 libamdhip64.so.7",
                                         [6] = "libamdhip64.so.5 libamdhip64.so.7",
                                         [7] = "libamdhip64.so.5 libamdhip64.so.6"};
    loader_fail(others[major]);
    setenv("TARN_DRIVER", "hip", 1);
    if (version)
        setenv("TARN_SIM_HIP_VERSION", version, 1);
    if (virtual_memory)
        setenv("TARN_HIP_VMM", "1", 1);
    assert_ok(driver_init());
    assert_string_equal(driver->name, "hip");
    assert_int_equal(HIP_MAJOR(hip.version), major);
}

static inline int finish_hip(void **state)
{
    (void)state;
    driver_finish();
    loader_fail(NULL);
    unsetenv("TARN_SIM_HIP_VERSION");
    unsetenv("TARN_HIP_VMM");
    return 0;
}

/* An entry point of the library that the driver runs on, for the caller's own use. */
#define THEIR(symbol) (assert_non_null(hip.call.symbol), hip.call.symbol)

static inline int current_device(void)
{
    int device = -1;
    assert_int_equal(hip.call.hipGetDevice(&device), HIP_OK);
    return device;
}

#endif
