/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the HIP driver share: the driver started on one of the simulated runtimes, and that library as a
 * caller beside tarn would use it. */
#ifndef TARN_TESTS_DRIVER_HIP_TEST_H
#define TARN_TESTS_DRIVER_HIP_TEST_H

#include "driver/hip.h"
#include "driver/loader.h"
#include "host_test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts the driver on libamdhip64.so.<major>, of the version that it claims by itself or of the one named. */
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

/* Runs this program again with a scenario's name as its argument and `variables` ("NAME=VALUE", NULL at the end) in its
 * environment. Gives its exit status; 128 and above for a signal. */
static inline int run_scenario(const char *name, const char *const *variables)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (; *variables; variables++)
            putenv((char *)(uintptr_t)*variables);
        execl("/proc/self/exe", "scenario", name, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* In a scenario, where cmocka does not run. */
#define NEED(condition)                                                                                     \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, tarn_last_error()); \
            _exit(1);                                                                                       \
        }                                                                                                   \
    } while (0)

#endif
