/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Every dlopen() and dlsym() of a driver's load fails, each once, and it with all later ones:
 * either it is not needed, or the error says which library and which symbol; and the next try finds
 * the driver. With `auto` the host device serves instead. Every attempt is a process of its own. */
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
static bool automatic;
static uint64_t *told; /* failures that were; shared with the children */

static const char *library_of(const char *driver_name)
{
    return strcmp(driver_name, "cuda") == 0 ? "libcuda.so.1" : "libamdhip64.so.";
}

static void load(void)
{
    int count = 0;
    tarn_status status = tarn_device_count_get(&count);
    clear_injection();
    if (!failure_is_tried())
        CHECK(status == TARN_OK && strcmp(driver->name, name) == 0);
    if (automatic) {
        CHECK(status == TARN_OK && count > 0);
        CHECK(strcmp(driver->name, "host") != 0 ||
              system_failure_named(driver_reason())); /* HIP serves where CUDA cannot */
    } else if (status) {
        ++*told;
        CHECK(status == TARN_ERROR_NO_DRIVER);
        CHECK(strstr(tarn_last_error(), library_of(name)) &&
              system_failure_named(tarn_last_error()));
        OK(tarn_device_count_get(&count));
        CHECK(strcmp(driver->name, name) == 0);
    }
}

static void try_each(const char *title, const char *setting)
{
    setenv("TARN_DRIVER", setting, 1);
    system_only("dlopen dlsym");
    each_failure_of_once(&(struct once){.name = title,
                                        .run = load,
                                        .without = ~(1u << FAIL_system),
                                        .most = automatic ? 120 : UINT64_MAX});
}

static void each_failure_of_the_load(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        name = drivers[i];
        *told = 0;
        try_each(name, name);
        CHECK(*told > 0);
    }
    name = drivers[0]; /* CUDA is found first */
    automatic = true;
    try_each("automatic", "auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_of_the_load)};
    told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (told == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
