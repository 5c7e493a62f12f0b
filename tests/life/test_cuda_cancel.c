/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* No call of tarn is a cancellation point though the vendor's driver is one, as real ones are where
 * they wait: each call of the simulated drivers sleeps for no time, which ends a thread that is to
 * be cancelled. */
#include "life/cancel_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void move_memory(void)
{
    void *small[100], *large = alloc_on(world.stream, 100 * MIB);
    for (size_t i = 0; i < 100; i++)
        CHECK((small[i] = tarn_malloc((i + 1) * 1000)));
    OK(tarn_record_stream(large, world.adopted));
    OK(tarn_free(large));
    OK(tarn_alloc_on(world.adopted, 150 * MIB, &large));
    OK(tarn_free(large));
    for (size_t i = 0; i < 100; i++)
        OK(tarn_free(small[i]));
    OK(tarn_stream_synchronize(world.stream));
    OK(tarn_device_synchronize(0));
    OK(tarn_device_trim(0, 0));
}

static void shut_down(void)
{
    (void)tarn_capture_abort(world.stream); /* that was announced, with every other call */
    OK(tarn_shutdown());
}

static void all_at_once(void)
{
    outlives("the first use and one of everything", world_make);
    outlives("the moving of memory", move_memory);
    outlives("every call", every_call_returns);
    outlives("the shutdown", shut_down);
}

static void on_cuda(void **state)
{
    (void)state;
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0);
    in_child(all_at_once);
}

static void on_hip(void **state)
{
    (void)state;
    CHECK(setenv("TARN_DRIVER", "hip", 1) == 0);
    in_child(all_at_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_cuda),
        cmocka_unit_test(on_hip),
    };
    CHECK(setenv("TARN_HOST_DEVICES", "2", 1) == 0 && setenv("TARN_HOST_MEMORY", "320M", 1) == 0);
    CHECK(setenv("TARN_SIM_SLOW", "any:0", 1) == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
