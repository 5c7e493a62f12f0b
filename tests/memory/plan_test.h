/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of plans share: the file of the plan, a process that follows it on a device of 256
 * MiB, and requests of which a step fails. */
#ifndef TESTS_MEMORY_PLAN_TEST_H
#define TESTS_MEMORY_PLAN_TEST_H

#include "base/pages.h"
#include "memory/plan/plan.h"
#include "support/host.h"

#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/config.h>
#include <tarn/pool.h>
#include <unistd.h>

#include <cmocka.h>

#define MEMORY (256 * MIB)

static char path[] = "/tmp/tarn-test-plan.XXXXXX";

/* Before all tests, and after them. */
static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

/* Follows the plan that is in the file. */
static inline void use_file(void)
{
    char text[64];
    snprintf(text, sizeof text, "plan:%s", path);
    OK(tarn_configuration_set(text));
    host_start_with(1, MEMORY);
}

/* A request during which the n-th driver call, or host allocation, fails. It is served all the
 * same, or gives NULL. */
static inline void *alloc_with_failure(tarn_pool *pool, tarn_stream stream, size_t bytes,
                                       uint64_t n, bool host)
{
    void *block = NULL;
    if (host)
        pages_fail(n, false);
    else
        OK(tarn_host_fail_set(-1, n, false, TARN_ERROR_OUT_OF_MEMORY));
    tarn_status status =
        pool ? tarn_pool_alloc(pool, stream, bytes, &block) : tarn_alloc_on(stream, bytes, &block);
    pages_fail(0, false);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    CHECK((status == TARN_OK) == (block != NULL));
    verify(0);
    return block;
}

#endif
