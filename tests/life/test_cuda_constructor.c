/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A constructor that uses tarn inside dlopen(), where its thread has the loader, while another
 * thread is in tarn and has come to the loader: neither may wait for the other. Whatever tarn asks
 * the loader for has a scenario, each in a process of its own, in both orders, with a limit of
 * time. On simulated CUDA. */
#include "driver/driver.h"
#include "support/host.h"
#include "support/system.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/snapshot.h>
#include <tarn/trace.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define LIMIT_S 20

/* What both threads do, after what was done in peace. */
struct scenario {
    const char *name, *variable, *value; /* of the environment */
    void (*before)(void);
    void (*other)(void);
    void (*own)(void);
    bool slow; /* tried in one order only */
};

static const struct scenario *now;
static pthread_t other_thread;
static atomic_bool other_began, other_arrived;
static _Thread_local bool is_other;         /* this thread is the other one */
static _Thread_local bool waits_for_loader; /* it is the constructor's, and has not come to the
                                               loader yet */

static void allocate(void)
{
    void *pointer = tarn_malloc(1000);
    CHECK(pointer);
    OK(tarn_free(pointer));
}

static void get_a_handle(void)
{
    void *handle = NULL;
    OK(tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle));
    CHECK(handle);
}

static void trace_with_stacks(void)
{
    const tarn_trace_options options = {
        .size = sizeof options, .records = 64, .stacks = TARN_TRACE_STACKS_ALL};
    OK(tarn_trace_start(&options));
    allocate();
}

static void ask_who_has_memory(void)
{
    struct driver_process list[4];
    (void)driver->processes(0, list, 4);
}

static bool drop(const void *data, size_t size, void *user)
{
    (void)user, (void)data, (void)size;
    return true;
}

static void take_a_snapshot(void)
{
    OK(tarn_snapshot_print(drop, NULL, NULL));
}

static void *freed;

static void free_once(void)
{
    CHECK((freed = tarn_malloc(100)));
    OK(tarn_free(freed));
}

static void free_again(void)
{
    CHECK(tarn_free(freed) != TARN_OK);
}

static const struct scenario scenarios[] = {
    {"the driver", NULL, NULL, NULL, allocate, allocate, false},
    {"a library of handles", NULL, NULL, allocate, get_a_handle, get_a_handle, false},
    {"the unwinder", NULL, NULL, allocate, trace_with_stacks, trace_with_stacks, false},
    {"the unwinder, by the environment", "TARN_TRACE", "stacks=all", NULL, allocate, allocate,
     false},
    {"the names of functions", NULL, NULL, trace_with_stacks, take_a_snapshot, take_a_snapshot,
     true},
    {"the monitor", NULL, NULL, allocate, ask_who_has_memory, ask_who_has_memory, false},
    {"the names in a report", "TARN_DEBUG", "redzone", free_once, free_again, allocate, false},
    {"a tool", "TARN_NVTX", "1", NULL, allocate, allocate, false},
};

/* The other thread is about to wait for the loader. */
static void arrive(void)
{
    if (is_other)
        atomic_store(&other_arrived, true);
}

static void *do_other(void *argument)
{
    is_other = true;
    atomic_store(&other_began, true);
    now->other();
    return argument;
}

static void begin_other(void)
{
    CHECK(pthread_create(&other_thread, NULL, do_other, NULL) == 0);
}

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void other_comes_first(void)
{
    atomic_store(&system_at_loader, arrive);
    begin_other();
    while (!atomic_load(&other_arrived))
        sleep_ms(1);
    now->own();
}

/* The constructor's thread is about to ask the loader, for the first time: now the other begins,
 * and gets as far as it can. */
static void let_other_begin(void)
{
    if (!waits_for_loader)
        return;
    waits_for_loader = false;
    begin_other();
    while (!atomic_load(&other_began))
        sleep_ms(1);
    sleep_ms(20);
}

static void constructor_comes_first(void)
{
    waits_for_loader = true;
    atomic_store(&system_at_loader, let_other_begin);
    now->own();
    if (waits_for_loader) { /* it has not asked the loader at all */
        waits_for_loader = false;
        begin_other();
    }
}

static void run(void (*constructor)(void))
{
    char address[32];
    alarm(LIMIT_S);
    snprintf(address, sizeof address, "%llx", (unsigned long long)(uintptr_t)constructor);
    CHECK(setenv("TARN_TEST_CONSTRUCT", address, 1) == 0 && setenv("TARN_DRIVER", "auto", 1) == 0);
    const char *tool = getenv("TARN_TEST_INJECTION");
    CHECK(tool && setenv("NVTX_INJECTION64_PATH", tool, 1) == 0);
    CHECK(setenv("TARN_NVTX", "0", 1) == 0);
    CHECK(!now->variable || setenv(now->variable, now->value, 1) == 0);
    if (now->before)
        now->before();
    const char *path = getenv("TARN_TEST_CONSTRUCTOR");
    CHECK(path && dlopen(path, RTLD_NOW | RTLD_LOCAL));
    atomic_store(&system_at_loader, NULL);
    CHECK(pthread_join(other_thread, NULL) == 0);
    CHECK(strcmp(driver->name, "cuda") == 0);
    allocate();
}

static void run_other_first(void)
{
    run(other_comes_first);
}

static void run_constructor_first(void)
{
    run(constructor_comes_first);
}

static void try_all(void (*order)(void), const char *which)
{
    bool again = order == run_constructor_first;
    int failures = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        now = &scenarios[i];
        if (now->slow && again)
            continue;
        int status = child_status(order);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            continue;
        fprintf(stderr, "%s, %s: %s\n", now->name, which,
                WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                    ? "the threads wait for each other"
                    : "failed");
        failures++;
    }
    assert_int_equal(failures, 0);
}

static void another_thread_is_at_the_loader_first(void **state)
{
    (void)state;
    try_all(run_other_first, "the other thread first");
}

static void the_constructor_is_at_the_loader_first(void **state)
{
    (void)state;
    try_all(run_constructor_first, "the constructor first");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_thread_is_at_the_loader_first),
        cmocka_unit_test(the_constructor_is_at_the_loader_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
