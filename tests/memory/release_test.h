/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of idle memory share: passes of the thread that gives it back, at times that the
 * tests choose. The setting is a day, so that the thread itself sleeps. */
#ifndef TESTS_MEMORY_RELEASE_TEST_H
#define TESTS_MEMORY_RELEASE_TEST_H

#include "memory/pressure/release.h"
#include "memory/range_test.h"

#include <pthread.h>

#define TIME UINT64_C(86400000000000) /* ns: the setting */

static uint64_t now; /* ns; of the passes */

static inline void start_on(int devices, size_t memory, const char *settings)
{
    host_start_with(devices, memory);
    OK(tarn_configuration_set(settings));
    stream = lease(0);
    now = TIME;
}

static inline void start_with(const char *settings)
{
    start_on(1, MEMORY, settings);
}

static inline void begin(void)
{
    start_with("idle_release:86400000");
}

static inline void pass_after(uint64_t ns)
{
    now += ns;
    release_pass(now);
}

static inline size_t reserved(void)
{
    return (size_t)stats_of(0).reserved_bytes[0].current;
}

static inline void in_another_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, run, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A public call on memory by the program's own thread, which serves no request. */
static inline void call_slowly(void)
{
    tarn_pool *pool;
    OK(tarn_pool_default(0, &pool));
}

/* All passes and calls after which memory that is idle now is gone. */
static inline void rest(void)
{
    for (int i = 0; i < 4; i++) {
        pass_after(TIME);
        call_slowly();
    }
}

static inline void use(size_t size)
{
    void *block = alloc_on(stream, size);
    work_on(stream, block, size, 1000);
    OK(tarn_free(block));
    OK(tarn_stream_synchronize(stream));
}

#endif
