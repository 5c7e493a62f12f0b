/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NVML, which an out-of-memory error asks who else has memory: its library or a function of it is
 * not there, a call fails, or lies. Then the error does not know, and says the rest. Every attempt
 * is a process of its own, since what was not found at the first question is not looked for
 * again. */
#include "driver/driver.h"
#include "support/failures.h"
#include "support/host.h"
#include "support/system.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define OTHERS " Not tarn's: 8 MiB"
static const char known[] = OTHERS ": process 41 1 MiB, process 43 7 B.";
static const char unknown[] =
    OTHERS " (other processes, and what libraries and the driver have of this one).";

static bool *shared; /* with the children: something was not known */

static uintptr_t theirs; /* memory that is not tarn's */

static void use_device(void)
{
    OK(tarn_free(alloc_on(lease(0), 1000)));
    OK(driver->alloc(0, 8 * MIB, &theirs));
}

static bool is_known(void)
{
    void *pointer = NULL;
    tarn_status status = tarn_alloc_on(TARN_STREAM_LEGACY, 60 * MIB, &pointer);
    if (status == TARN_ERROR_OUT_OF_HOST_MEMORY && injecting)
        return false;
    CHECK(status == TARN_ERROR_OUT_OF_MEMORY && is_whole_shortage(tarn_last_error()));
    bool is = strstr(tarn_last_error(), known) != NULL;
    if (!is && strstr(tarn_last_error(), OTHERS))
        CHECK(strstr(tarn_last_error(), unknown));
    return is;
}

static void run_out(void)
{
    bool is = is_known();
    CHECK(is || injecting);
    *shared |= !is;
}

static void run_out_again(void)
{
    CHECK(is_known() || failure_tried()->kind == FAIL_system ||
          failure_tried()->kind == FAIL_handle);
    OK(driver->free(0, theirs));
    nothing_is_left(0);
    OK(tarn_shutdown());
}

static void what_is_not_known_is_not_said(void **state)
{
    (void)state;
    system_only("dlopen dlsym");
    each_failure_of_once(&(struct once){.name = "who else has memory",
                                        .before = use_device,
                                        .run = run_out,
                                        .after = run_out_again,
                                        .without = 1u << FAIL_driver,
                                        .most = UINT64_MAX});
    CHECK(*shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_not_known_is_not_said)};
    setenv("TARN_DRIVER", "cuda", 1);
    setenv("TARN_SIM_PROCESSES", "41:1048576,42:?,43:7", 1);
    host_start_with(1, 64 * MIB);
    failure_library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
