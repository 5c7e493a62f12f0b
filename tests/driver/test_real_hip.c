/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* AMD's own libamdhip64 on a machine without an AMD device, which is what many machines with it
 * are: it is opened, says that there is none, and tarn says so and takes the host device. Skipped
 * where it is not installed or there is a device. */
#include "hip_test.h"

static int finish_all(void **state)
{
    unsetenv("TARN_DRIVER");
    return finish_hip(state);
}

static bool is_here(void)
{
    char why[512] = "";
    struct hip found;
    void *library = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
    return library && hip_probe(&found, why, sizeof why) == TARN_ERROR_NO_DRIVER;
}

static void the_probe_tells_why(void **state)
{
    (void)state;
    if (!is_here())
        skip();
    char why[512] = "";
    struct hip found;
    assert_int_equal(hip_probe(&found, why, sizeof why), TARN_ERROR_NO_DRIVER);
    assert_non_null(strstr(why, "libamdhip64.so.5 finds no device: hip"));
    /* From 5.3 on hipGetErrorString() has words of its own, which follow the name. */
    assert_true(strstr(why, "HIP error 100 (hipErrorNoDevice") ||
                strstr(why, "HIP error 101 (hipErrorInvalidDevice"));
    assert_int_equal(found.devices, 0);
}

static void auto_falls_back_to_the_host_device(void **state)
{
    (void)state;
    if (!is_here())
        skip();
    loader_fail("libcuda.so.1"); /* a machine with both is not what this is about */
    setenv("TARN_DRIVER", "auto", 1);
    assert_ok(driver_init());
    assert_string_equal(driver->name, "host");
    assert_non_null(strstr(driver_reason(), "finds no device"));
}

static void asked_for_it_fails_with_the_reason(void **state)
{
    (void)state;
    if (!is_here())
        skip();
    setenv("TARN_DRIVER", "hip", 1);
    assert_refused(driver_init(), TARN_ERROR_NO_DRIVER, "TARN_DRIVER=hip: ");
    assert_non_null(strstr(tarn_last_error(), "finds no device"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_probe_tells_why, finish_all),
        cmocka_unit_test_teardown(auto_falls_back_to_the_host_device, finish_all),
        cmocka_unit_test_teardown(asked_for_it_fails_with_the_reason, finish_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
