/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A vendor library made of functions of the test's: it counts its calls, keeps what its handles
 * were told, sleeps in create, fails, and lies, as asked. A handle notices when it is used after
 * its destroy, or by two threads at once. */
#ifndef TARN_TESTS_HANDLE_FAKE_H
#define TARN_TESTS_HANDLE_FAKE_H

#include "support/clearing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/driver.h"

#include "support/status.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define THIS_DEVICE 0

struct fake_handle {
    atomic_int alive, inside;
    void *stream, *workspace;
    size_t workspace_size;
    int pointer_mode, number;
    bool workspace_follows; /* a workspace was set after the stream was */
};

enum fake_call {
    FAKE_CREATE,
    FAKE_DESTROY,
    FAKE_SET_STREAM,
    FAKE_SET_WORKSPACE,
    FAKE_SET_POINTER_MODE,
    FAKE_CALLS
};

/* How create behaves. */
enum fake_lie {
    FAKE_HONEST,
    FAKE_OK_WITHOUT_HANDLE,
    FAKE_FAILED_WITH_GARBAGE,
    FAKE_REFUSES_USED_PLACE
};

static struct {
    atomic_int calls[FAKE_CALLS];
    atomic_int fail_nth[FAKE_CALLS], fail_status; /* fail_nth: from now, 1 is the next; 0 none */
    atomic_int create_ms, creating, creating_peak, misuse;
    atomic_int create_meet;     /* a create after the first waits until so many are in progress */
    atomic_int peak_with_first; /* how many creates were in progress during the first */
    _Atomic(enum fake_lie) lie;
    atomic_bool keeps_workspace; /* setting the stream does not end its use, as with rocBLAS */
} fake;

static inline int fake_enter(enum fake_call call)
{
    atomic_fetch_add(&fake.calls[call], 1);
    if (atomic_load(&fake.fail_nth[call]) > 0 && atomic_fetch_sub(&fake.fail_nth[call], 1) == 1)
        return atomic_load(&fake.fail_status);
    return 0;
}

static inline void fake_use(struct fake_handle *handle)
{
    if (!atomic_load(&handle->alive) || atomic_exchange(&handle->inside, 1))
        atomic_fetch_add(&fake.misuse, 1);
}

static inline void fake_end(struct fake_handle *handle)
{
    atomic_store(&handle->inside, 0);
}

static int fake_create(void **handle)
{
    int code = fake_enter(FAKE_CREATE), now = atomic_fetch_add(&fake.creating, 1) + 1,
        peak = atomic_load(&fake.creating_peak);
    while (now > peak && !atomic_compare_exchange_weak(&fake.creating_peak, &peak, now))
        ;
    bool first = atomic_load(&fake.calls[FAKE_CREATE]) == 1;
    int ms = atomic_load(&fake.create_ms), meet = atomic_load(&fake.create_meet);
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    if (ms)
        nanosleep(&time, NULL);
    if (first)
        atomic_store(&fake.peak_with_first, atomic_load(&fake.creating_peak));
    for (int i = 0; !first && i < 30000 && atomic_load(&fake.creating_peak) < meet; i++)
        usleep(1000);
    atomic_fetch_sub(&fake.creating, 1);
    if (*handle)
        atomic_fetch_add(&fake.misuse, 1); /* out-handles begin as NULL */
    enum fake_lie lie = atomic_load(&fake.lie);
    if (lie == FAKE_OK_WITHOUT_HANDLE)
        return 0;
    if (lie == FAKE_FAILED_WITH_GARBAGE) {
        memset(handle, 0x5a, sizeof *handle);
        return 1;
    }
    if (code)
        return code;
    static struct fake_handle handles[16384]; /* none is used twice, so that a use after its destroy
                                                is seen */
    static atomic_int numbers;
    int number = atomic_fetch_add(&numbers, 1) + 1;
    if (number >= (int)(sizeof handles / sizeof *handles))
        return 1;
    struct fake_handle *made = &handles[number];
    made->number = number;
    atomic_store(&made->alive, 1);
    *handle = made;
    return 0;
}

static int fake_destroy(void *handle)
{
    int code = fake_enter(FAKE_DESTROY);
    struct fake_handle *of = handle;
    fake_use(of);
    atomic_store(&of->alive, 0);
    fake_end(of);
    return code;
}

static int fake_set_stream(void *handle, void *stream)
{
    struct fake_handle *of = handle;
    int code = fake_enter(FAKE_SET_STREAM);
    fake_use(of);
    if (!code)
        of->stream = stream;
    if (!code && !atomic_load(&fake.keeps_workspace)) {
        of->workspace = NULL; /* as cuBLAS does */
        of->workspace_size = 0;
        of->workspace_follows = false;
    }
    fake_end(of);
    return code;
}

static int fake_get_stream(void *handle, void **stream)
{
    *stream = ((struct fake_handle *)handle)->stream;
    return 0;
}

static int fake_set_workspace(void *handle, void *pointer, size_t size)
{
    struct fake_handle *of = handle;
    int code = fake_enter(FAKE_SET_WORKSPACE);
    fake_use(of);
    if (!code) {
        of->workspace = pointer;
        of->workspace_size = size;
        of->workspace_follows = true;
    }
    fake_end(of);
    return code;
}

static int fake_set_pointer_mode(void *handle, int mode)
{
    int code = fake_enter(FAKE_SET_POINTER_MODE);
    if (!code)
        ((struct fake_handle *)handle)->pointer_mode = mode;
    return code;
}

static const char *fake_status_text(int status)
{
    return status == 7 ? "FAKE_IS_BUSY" : "FAKE_ERROR";
}

/* A new library with the fake's functions; each test has its own, with pools of its own. `streams`
 * is how it learns of them, which it may lack. */
static inline tarn_library fake_register_with(unsigned flags, bool workspace,
                                              int (*streams)(void *, void *))
{
    static int count;
    char name[32];
    tarn_library library = 0;
    snprintf(name, sizeof name, "fake%d", ++count);
    tarn_library_row row = {
        .size = sizeof row,
        .name = name,
        .flags = flags,
        .out_of_memory = 2,
        .create = fake_create,
        .destroy = fake_destroy,
        .set_stream = streams,
        .get_stream = fake_get_stream,
        .set_workspace = workspace ? fake_set_workspace : NULL,
        .set_pointer_mode = fake_set_pointer_mode,
        .status_text = fake_status_text,
    };
    if (tarn_library_register(&row, &library))
        print_error("%s\n", tarn_last_error());
    assert_int_not_equal(library, 0);
    return library;
}

static inline tarn_library fake_register(unsigned flags, bool workspace)
{
    return fake_register_with(flags, workspace, fake_set_stream);
}

static inline int fake_calls(enum fake_call call)
{
    return atomic_load(&fake.calls[call]);
}

static inline void fake_fail(enum fake_call call, int nth, int status)
{
    atomic_store(&fake.fail_status, status);
    atomic_store(&fake.fail_nth[call], nth);
}

static inline int fake_reset(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&fake.misuse), 0);
    memset(&fake, 0, sizeof fake);
    return 0;
}

static inline int fake_check(void **state)
{
    (void)state;
    assert_int_equal(atomic_load(&fake.misuse), 0);
    return 0;
}

static inline void host_start(int devices, size_t memory)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = devices, .memory = memory};
    assert_ok(tarn_host_configuration_set(&config));
}

static inline struct fake_handle *get(tarn_library library)
{
    void *handle = NULL;
    assert_ok(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
    return handle;
}

static inline tarn_stream new_stream(void)
{
    tarn_stream stream;
    assert_ok(tarn_stream_lease(THIS_DEVICE, 0, &stream));
    return stream;
}

/* A stream of the driver that tarn has not heard of. */
static inline void *native_made(void)
{
    driver_stream made = NULL;
    int devices = 0;
    assert_ok(tarn_device_count_get(&devices)); /* the driver is chosen */
    assert_ok(driver->stream_create(0, 0, false, &made));
    return made;
}

static inline void *native(tarn_stream stream)
{
    void *result = NULL;
    assert_ok(tarn_stream_native_get(stream, &result));
    return result;
}

static inline tarn_handle_stats handle_stats(tarn_library library)
{
    tarn_handle_stats stats = {.size = sizeof stats};
    assert_ok(tarn_handle_stats_get(library, THIS_DEVICE, &stats));
    return stats;
}

static inline tarn_workspace_stats workspace_stats(void)
{
    tarn_workspace_stats stats = {.size = sizeof stats};
    assert_ok(tarn_workspace_stats_get(THIS_DEVICE, &stats));
    return stats;
}

/* For the end of a test that changed the policy. */
static inline int back_to_default(void **state)
{
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    return fake_check(state);
}

/* A thread with a handle, and the one that tests it: each waits at the barrier for the other. */
struct pausing {
    tarn_library library;
    tarn_stream stream;
    struct fake_handle *handle;
    pthread_barrier_t barrier;
};

static inline double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline void in_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Runs a function in a child that has not used tarn yet; its result is the child's exit status. The
 * caller must not have used it either. */
static inline int in_child(int (*function)(void))
{
    pid_t child = fork();
    if (child == 0)
        _exit(function());
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

#define TEST(function) cmocka_unit_test_setup_teardown(function, fake_reset, fake_check)

#endif
