/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every dlopen() and dlsym() of a driver's load fails, each once, and it with all later ones: either it is not needed, or the error says
 * which library and which symbol; and the next try finds the driver. With `auto` the host device serves instead. Every attempt is a
 * process of its own. */
#include "driver/driver.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/system.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static const char *const drivers[] = {"cuda", "hip"};
static const char *name; /* of the driver */
static struct failure attempted;
static bool automatic;
static uint64_t *shared; /* with the child: calls, failures that were told */

static const char *library_of(const char *driver_name)
{
    return strcmp(driver_name, "cuda") == 0 ? "libcuda.so.1" : "libamdhip64.so.";
}

static void attempt(void)
{
    int count = 0;
    system_only("dlopen dlsym");
    failure_arm(&attempted);
    tarn_status status = tarn_device_count(&count);
    failure_clear();
    shared[0] = failure_calls();
    if (attempted.nth == UINT64_MAX)
        CHECK(status == TARN_OK && strcmp(driver->name, name) == 0);
    else
        CHECK(failure_hits() > 0);
    if (automatic) {
        CHECK(status == TARN_OK && count > 0);
        CHECK(strcmp(driver->name, "host") != 0 ||
              system_failure_named(driver_reason())); /* HIP serves where CUDA cannot */
    } else if (status) {
        shared[1]++;
        CHECK(status == TARN_ERROR_NO_DRIVER);
        CHECK(strstr(tarn_last_error(), library_of(name)) && system_failure_named(tarn_last_error()));
        OK(tarn_device_count(&count));
        CHECK(strcmp(driver->name, name) == 0);
    }
}

static void each_failure_of_the_load(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        name = drivers[i];
        for (int mode = 0; mode < 2; mode++) {
            uint64_t calls[FAILURE_KINDS] = {0}, injections = 0;
            automatic = mode == 1;
            setenv("TARN_DRIVER", automatic ? "auto" : name, 1);
            if (automatic && i == 1)
                continue; /* CUDA is found first */
            shared[0] = shared[1] = 0;
            attempted = (struct failure){FAIL_system, UINT64_MAX, false, 0};
            in_child(attempt);
            calls[FAIL_system] = shared[0];
            uint64_t stride = automatic ? failure_stride(shared[0], 2, 40) : 1;
            for (attempted.nth = 1; attempted.nth <= calls[FAIL_system]; attempted.nth += stride)
                for (int forever = 0; forever < 2; forever++, injections++) {
                    attempted.forever = forever;
                    in_child(attempt);
                }
            CHECK(automatic || shared[1] > 0);
            failure_counts(automatic ? "automatic" : name, calls, injections);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_of_the_load)};
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
