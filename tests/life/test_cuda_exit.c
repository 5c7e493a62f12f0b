/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A driver that has shut down before its users have: at the exit of a process CUDA and HIP answer
 * "deinitialized" to every call, and destructors and exit handlers that run later still have
 * blocks, pools and handles. Every public call then returns, none claims what it cannot know, and
 * the exit status is the program's. On the simulated libraries, which behave so. */
#include "support/every_call.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WELL = 7 };

static void *small[50], *used;
static const char *driver_name;

static void check_driver(void)
{
    tarn_device_properties properties = {.size = sizeof properties};
    OK(tarn_device_properties_get(0, &properties));
    CHECK(strcmp(properties.driver, driver_name) == 0);
}

static void make_all(void)
{
    check_driver();
    world_make();
    for (int i = 0; i < 50; i++)
        small[i] = tarn_malloc((size_t)(i + 1) * 700);
    used = alloc_on(world.stream, 3 * MIB);
    OK(tarn_record_stream(used, world.adopted));
}

static void all_is_over(void)
{
    CHECK(!tarn_malloc(100));
    GIVES(tarn_last_status(), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_device_synchronize(0), TARN_ERROR_SHUTDOWN);
}

/* Memory is known without the driver: a block is given back once, and what needs the driver says
 * that it is gone. */
static void after_the_driver(void)
{
    void *fresh = NULL;
    for (int i = 0; i < 50; i++) {
        OK(tarn_free(small[i]));
        GIVES(tarn_free(small[i]), TARN_ERROR_DOUBLE_FREE);
    }
    OK(tarn_free(world.pool_block));
    OK(tarn_free_on(used, world.stream)); /* no mark can be recorded on the other stream that uses
                                             it */
    OK(tarn_free(world.pinned));
    GIVES(tarn_alloc_on(world.stream, 100 * MIB, &fresh), TARN_ERROR_SHUTDOWN);
    CHECK(!fresh);
    GIVES(tarn_stream_synchronize(world.stream), TARN_ERROR_SHUTDOWN);
    GIVES(tarn_device_synchronize(0), TARN_ERROR_SHUTDOWN);
    every_call_returns();
    (void)tarn_capture_abort(world.stream); /* that was announced meanwhile */
    OK(tarn_shutdown());
    all_is_over();
}

/* Registered before the first use: runs after the driver's own handler. */
static void exit_with_everything(void)
{
    CHECK(atexit(after_the_driver) == 0);
    make_all();
    exit(WELL);
}

static void only_shut_down(void)
{
    OK(tarn_shutdown());
    every_call_returns();
    all_is_over();
}

static void exit_and_shut_down(void)
{
    CHECK(atexit(only_shut_down) == 0);
    make_all();
    exit(WELL);
}

/* Registered after it: the driver is still there. */
static void before_the_driver(void)
{
    OK(tarn_free(small[0]));
    OK(tarn_device_synchronize(0));
    CHECK((small[0] = tarn_malloc(100 * MIB)));
    OK(tarn_free(small[0]));
    OK(tarn_device_trim(0, 0));
}

static void exit_in_time(void)
{
    make_all();
    CHECK(atexit(before_the_driver) == 0);
    exit(WELL);
}

static void exit_after_a_shutdown(void)
{
    CHECK(atexit(only_shut_down) == 0);
    make_all();
    OK(tarn_shutdown());
    exit(WELL);
}

static atomic_int busy_threads;

/* Uses memory until the driver is gone, and then goes on being refused. */
static void *work(void *argument)
{
    void *blocks[20] = {0};
    tarn_stream own = 0;
    (void)tarn_stream_lease(0, 0, &own);
    atomic_fetch_add(&busy_threads, 1);
    for (;;) {
        for (int i = 0; i < 20; i++)
            (void)tarn_alloc_on(own, (size_t)(i + 1) * (i % 5 ? 3000 : 3000000), &blocks[i]);
        for (int i = 0; i < 20; i++)
            (void)tarn_free(blocks[i]);
        memset(blocks, 0, sizeof blocks);
        (void)tarn_device_trim(0, 0);
    }
    return argument;
}

static void exit_with_threads_at_work(void)
{
    pthread_t thread;
    CHECK(atexit(every_call_returns) == 0);
    make_all();
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    while (atomic_load(&busy_threads) < 4)
        usleep(1000);
    usleep(5000);
    exit(WELL);
}

static void (*to_run)(void);

static void run_on_driver(void)
{
    CHECK(setenv("TARN_DRIVER", driver_name, 1) == 0);
    to_run();
}

static void on_both(void (*run)(void))
{
    static const char *const drivers[] = {"cuda", "hip"};
    to_run = run;
    for (int i = 0; i < 2; i++) {
        driver_name = drivers[i];
        in_child_that_exits(run_on_driver, WELL);
    }
}

static void blocks_are_given_back_after_the_driver_is_gone(void **state)
{
    (void)state;
    on_both(exit_with_everything);
}

static void a_shutdown_after_the_driver_is_gone_is_one(void **state)
{
    (void)state;
    on_both(exit_and_shut_down);
}

static void what_runs_before_the_driver_is_gone_works(void **state)
{
    (void)state;
    on_both(exit_in_time);
}

static void a_shutdown_before_the_exit_stays_one(void **state)
{
    (void)state;
    on_both(exit_after_a_shutdown);
}

static void threads_go_on_while_the_driver_goes(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        on_both(exit_with_threads_at_work);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_given_back_after_the_driver_is_gone),
        cmocka_unit_test(a_shutdown_after_the_driver_is_gone_is_one),
        cmocka_unit_test(what_runs_before_the_driver_is_gone_works),
        cmocka_unit_test(a_shutdown_before_the_exit_stays_one),
        cmocka_unit_test(threads_go_on_while_the_driver_goes),
    };
    CHECK(setenv("TARN_HOST_DEVICES", "2", 1) == 0 && setenv("TARN_HOST_MEMORY", "256M", 1) == 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
