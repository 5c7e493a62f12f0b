/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A device that is lost while the process sleeps: the rest of the process wakes. */
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <tarn/sleep.h>

#include <cmocka.h>

#define BLOCK (4 * MIB)

static int woken;

static tarn_status falls_asleep(void *user, char *why, size_t room)
{
    (void)user, (void)why, (void)room;
    return TARN_OK;
}

static tarn_status wakes(void *user, char *why, size_t room)
{
    (void)user, (void)why, (void)room;
    woken++;
    return TARN_OK;
}

static tarn_sleep_state state_now(void)
{
    tarn_sleep_state now = TARN_SLEEP_CHANGES;
    OK(tarn_sleep_state_get(&now));
    return now;
}

static tarn_pool_state state_of(tarn_pool *pool)
{
    return pool_info_of(pool).state;
}

static void the_rest_of_the_process_wakes(void **state)
{
    (void)state;
    tarn_pool *pools[2];
    char *blocks[2];
    tarn_sleeper sleeper = 0;
    const tarn_sleeper_options options = {.size = sizeof options,
                                          .name = "a communicator",
                                          .device = 1,
                                          .commit = falls_asleep,
                                          .wake = wakes};
    for (int i = 0; i < 2; i++) {
        pools[i] = pool_with((tarn_pool_options){.device = i});
        blocks[i] = alloc_in(pools[i], lease(i), BLOCK);
        memset(blocks[i], i + 1, BLOCK);
    }
    OK(tarn_sleeper_add(&options, &sleeper));
    OK(tarn_sleep(NULL, NULL));
    OK(tarn_host_fail_set(-1, 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_device_synchronize(0), TARN_ERROR_DEVICE_LOST);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    uint64_t asked = calls_of(0, "capture_status") + calls_of(0, "is_active");
    GIVES(tarn_wake(), TARN_ERROR_DEVICE_LOST);
    /* Its answers would be failures */
    CHECK(calls_of(0, "capture_status") + calls_of(0, "is_active") == asked);
    CHECK(state_now() == TARN_SLEEP_AWAKE && woken == 1);
    CHECK(state_of(pools[0]) == TARN_POOL_SAVED && state_of(pools[1]) == TARN_POOL_RUNS);
    CHECK(blocks[1][0] == 2 && memcmp(blocks[1], blocks[1] + 1, BLOCK - 1) == 0);
    OK(tarn_sleep(NULL, NULL)); /* without what is lost */
    OK(tarn_wake());
    CHECK(state_of(pools[1]) == TARN_POOL_RUNS && blocks[1][BLOCK - 1] == 2);
    for (int i = 0; i < 2; i++) {
        OK(tarn_free(blocks[i]));
        OK(tarn_pool_release(pools[i]));
    }
    OK(tarn_sleeper_remove(sleeper));
    nothing_is_left(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_of_the_process_wakes),
    };
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
