/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Contents that travel in chunks, with each call that can fail failing: the pool has all of them
 * afterwards, whatever failed. */
#include "support/failures.h"
#include "support/host.h"

#include "memory/pool/contents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (64 * MIB)
#define BLOCK (3 * MIB)
#define STRIPE 4096

static tarn_pool *pool;
static tarn_stream stream;
static unsigned char *block;

static void set_up(void)
{
    void *address = NULL;
    host_start_with(1, MEMORY);
    contents_staging = (struct contents_staging){.least = MIB, .chunk = MIB / 4};
    stream = lease(0);
    OK(tarn_pool_create(NULL, &pool));
    OK(tarn_pool_alloc(pool, stream, BLOCK, &address));
    block = address;
    for (size_t i = 0; i < BLOCK / STRIPE; i++)
        memcpy(block + i * STRIPE, &i, sizeof i);
}

static void suspend_and_resume(void)
{
    if (TRY(tarn_pool_suspend(pool, true)))
        (void)TRY(tarn_pool_resume(pool));
}

/* Nothing fails any more: it can be resumed, unless it runs, and has its contents. What the driver
 * did not take back of the pinned memory goes with the next change. */
static void settle(void)
{
    tarn_pool_state state = pool_info_of(pool).state;
    if (state != TARN_POOL_RUNS)
        OK(tarn_pool_resume(pool));
    for (size_t i = 0; i < BLOCK / STRIPE; i++)
        CHECK(memcmp(block + i * STRIPE, &i, sizeof i) == 0);
    OK(tarn_pool_suspend(pool, true));
    OK(tarn_pool_resume(pool));
    CHECK(ledger_of(0).pinned == 0);
}

static void nothing_is_lost_whatever_fails(void **state)
{
    (void)state;
    const struct scenarios scenarios = {.set_up = set_up, .settle = settle, .most = 120};
    const struct scenario list[] = {{"suspend and resume", suspend_and_resume}};
    each_failure_of(&scenarios, list, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_whatever_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
