/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a call leaves as the caller had it: errno where it succeeds, and always the mask of signals,
 * the way that numbers are rounded and which exceptions of theirs are trapped, and whether and how
 * the thread can be cancelled. */
#include "support/every_call.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define STACK ((size_t)1 << 20)
#else
#define STACK ((size_t)64 << 10)
#endif
enum { THEIRS = 4242 }; /* no error that there is */

static unsigned succeeded, failed_calls, changed;

static void state_set(void)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &mask, NULL) == 0);
    CHECK(fesetround(FE_UPWARD) == 0);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL) == 0);
    errno = THEIRS;
}

static void complain(const char *name, const char *what)
{
    fprintf(stderr, "%s() changed %s\n", name, what);
    changed++;
}

static void state_check(const char *name, tarn_status status)
{
    int number = errno, before = -1;
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0);
    for (int i = 1; i < SIGRTMAX; i++)
        if ((i == SIGUSR2) != (sigismember(&mask, i) == 1)) {
            complain(name, "the mask of signals");
            break;
        }
    if (fegetround() != FE_UPWARD)
        complain(name, "the rounding of numbers");
    if (fegetexcept() != 0)
        complain(name, "the traps of numbers");
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before) == 0);
    if (before != PTHREAD_CANCEL_ENABLE)
        complain(name, "whether it can be cancelled");
    CHECK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &before) == 0);
    if (before != PTHREAD_CANCEL_DEFERRED)
        complain(name, "how it is cancelled");
    if (!status && number != THEIRS) {
        complain(name, "errno");
        fprintf(stderr, "... to %d, %s\n", number, strerror(number));
    }
    *(status ? &failed_calls : &succeeded) += 1;
}

/* A call that succeeds. */
#define KEEPS(name, call)       \
    do {                        \
        state_set();            \
        tarn_status got = call; \
        state_check(name, got); \
        GIVES(got, TARN_OK);    \
    } while (0)

/* Fibers and threads with little stack make calls too. */
static void *little_stack(void *argument)
{
    every_call_between(state_set, state_check);
    return argument;
}

/* Also where snapshots have call stacks, for which libdw wants more stack than there is. */
static void with_little_stack(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    CHECK(setenv("TARN_TRACE", "stacks=alloc", 1) == 0);
    world_make();
    CHECK(pthread_attr_init(&attributes) == 0 &&
          pthread_attr_setstacksize(&attributes, STACK) == 0);
    CHECK(pthread_create(&thread, &attributes, little_stack, NULL) == 0 &&
          pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0 && changed == 0);
}

static void *first_use_in_a_thread(void *argument)
{
    void *block = NULL;
    KEEPS("tarn_alloc_on of a thread", tarn_alloc_on(world.stream, 5000, &block));
    KEEPS("tarn_free of a thread", tarn_free(block));
    return argument;
}

static void every_call_keeps_it(void)
{
    pthread_t thread;
    int count = 0;
    void *large = NULL, *again = NULL;
    KEEPS("the first use", tarn_device_count_get(&count));
    state_set();
    void *small = tarn_malloc(100);
    state_check("the first tarn_malloc", small ? TARN_OK : TARN_ERROR_OUT_OF_MEMORY);
    CHECK(small != NULL);
    KEEPS("the first tarn_free", tarn_free(small));
    world_make();
    CHECK(pthread_create(&thread, NULL, first_use_in_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    KEEPS("tarn_alloc_on of much", tarn_alloc_on(world.stream, 100 * MIB, &large));
    KEEPS("tarn_record_stream", tarn_record_stream(large, world.adopted));
    KEEPS("tarn_free of much", tarn_free(large));
    KEEPS("tarn_alloc_on of what is waited for", tarn_alloc_on(world.adopted, 120 * MIB, &again));
    KEEPS("tarn_free after it", tarn_free(again));
    KEEPS("tarn_device_trim", tarn_device_trim(0, 0));
    every_call_between(state_set, state_check);
    (void)tarn_capture_abort(world.stream); /* that was announced, with every other call */
    KEEPS("tarn_shutdown", tarn_shutdown());
    printf("%u calls succeeded, %u failed\n", succeeded, failed_calls);
    CHECK(changed == 0);
    CHECK(succeeded > 120);
}

static void on_the_driver(void **state)
{
    (void)state;
    in_child(every_call_keeps_it);
}

/* Vendors' libraries are looked for, and not found. */
static void on_what_is_found(void **state)
{
    (void)state;
    const char *before = getenv("TARN_DRIVER");
    CHECK(setenv("TARN_DRIVER", "auto", 1) == 0);
    in_child(every_call_keeps_it);
    CHECK(setenv("TARN_DRIVER", before ? before : "", 1) == 0);
}

static void with_everything_on(void **state)
{
    (void)state;
    char folder[] = "/tmp/tarn-caller-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/metrics", folder);
    CHECK(setenv("TARN_LIVE", "1", 1) == 0 && setenv("TARN_METRICS", path, 1) == 0 &&
          setenv("TARN_TRACE", "on", 1) == 0 && setenv("TARN_DEBUG", "all", 1) == 0);
    in_child(every_call_keeps_it);
    (void)remove(path);
    CHECK(rmdir(folder) == 0);
}

static void on_a_little_stack(void **state)
{
    (void)state;
    in_child(with_little_stack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_little_stack),
        cmocka_unit_test(on_the_driver),
        cmocka_unit_test(on_what_is_found),
        cmocka_unit_test(with_everything_on),
    };
    CHECK(setenv("TARN_HOST_DEVICES", "2", 1) == 0 && setenv("TARN_HOST_MEMORY", "256M", 1) == 0);
    CHECK(setenv("TARN_SIM_SLOW", "any:0", 1) ==
          0); /* which leaves another errno behind each call of a simulated library */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
