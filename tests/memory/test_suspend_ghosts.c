/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Suspends of pools whose memory is mapped a second time, at old addresses (ghost.h). */
#include "support/host.h"

#include "driver/driver.h"
#include "driver/host/host.h"
#include "memory/growth/ghost.h"
#include "memory/heap/heap.h"
#include "memory/pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define MEMORY (1024 * MIB) /* so that pieces are small, and move */

static tarn_pool *pool;
static tarn_stream stream, second;

static tarn_pool_state state_of(void)
{
    return pool_info_of(pool).state;
}

/* A program ahead of its device: what it frees is used by work that is not over, so the same memory
 * is mapped a second time for each larger block, on both streams. Gives blocks that are to be freed
 * at the end. */
#define AHEAD 14
#define AHEAD_NS UINT64_C(1000000000)
static void *ahead[2 * AHEAD];

static size_t ghost_bytes(void)
{
    const struct store *store = &pool_of_public(pool)->store;
    size_t bytes = 0;
    for (struct heap *heap = heap_next(store->arena, NULL); heap;
         heap = heap_next(store->arena, heap))
        for (const struct ghost *ghost = heap_store(heap) == store ? heap->ghosts : NULL; ghost;
             ghost = ghost->next)
            bytes += ghost->size;
    return bytes;
}

static void begin_ahead(void)
{
    OK(tarn_pool_create(NULL, &pool));
    stream = lease(0);
    second = lease(0);
    work_on(stream, NULL, 0, AHEAD_NS);
    work_on(second, NULL, 0, AHEAD_NS);
    for (int i = 0; i < 2 * AHEAD; i++) {
        tarn_stream own = i % 2 ? second : stream;
        size_t size = 4 * MIB + (size_t)(i / 2) * MIB;
        void *scratch = NULL;
        OK(tarn_pool_alloc(pool, own, size, &scratch));
        OK(tarn_pool_alloc(pool, own, 2 * MIB, &ahead[i]));
        work_on(own, scratch, size, 1000);
        OK(tarn_free(scratch));
    }
    CHECK(ghost_bytes());
    verify(0);
}

static void end_ahead(void)
{
    for (int i = 0; i < 2 * AHEAD; i++)
        OK(tarn_free(ahead[i]));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    OK(tarn_configuration_set("all:default"));
    OK(tarn_stream_return(stream));
    OK(tarn_stream_return(second));
}

/* All work is waited for, whatever the driver says when it is asked whether it has ended. */
static void old_addresses_go_although_the_driver_is_late_to_say(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        begin_ahead();
        OK(tarn_host_fail_set(kind_of("event_query"), 1, true, TARN_ERROR_NOT_READY));
        OK(tarn_pool_suspend(pool, keep));
        OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
        CHECK(ghost_bytes() == 0 && ledger_of(0).created == 0 && ledger_of(0).mapped == 0);
        verify(0);
        OK(tarn_pool_resume(pool));
        end_ahead();
    }
}

/* One that learns of an unmap, in the thread that suspends, while it suspends: queues work, and
 * frees and allocates. */
static int told;

static void be_told(const tarn_mapping *range, void *user)
{
    (void)user;
    (void)range;
    void *block = NULL;
    if (told++)
        return;
    work_on(stream, NULL, 0, AHEAD_NS);
    work_on(second, NULL, 0, AHEAD_NS);
    for (int i = 0; i < 4; i++) {
        OK(tarn_free(ahead[i]));
        ahead[i] = NULL;
    }
    GIVES(tarn_pool_alloc(pool, stream, 3 * MIB, &block), TARN_ERROR_SUSPENDED);
}

static void old_addresses_go_although_work_is_queued_meanwhile(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        tarn_observer_options options = {.size = sizeof options, .unmapping = be_told};
        tarn_observer observer = 0;
        begin_ahead();
        OK(tarn_observer_add(&options, &observer));
        told = 0;
        OK(tarn_pool_suspend(pool, keep));
        OK(tarn_observer_remove(observer));
        CHECK(told > 0 && ghost_bytes() == 0 && ledger_of(0).created == 0 &&
              ledger_of(0).mapped == 0);
        verify(0);
        OK(tarn_pool_resume(pool));
        end_ahead();
    }
}

/* Memory that is mapped at an old address as well would stay with the driver: it is not taken out,
 * and the pool runs. */
static void an_old_address_that_stays_mapped_stops_a_suspend(void **state)
{
    (void)state;
    begin_ahead();
    time_pass(2 * AHEAD_NS);
    OK(tarn_host_fail_set(kind_of("unmap"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_pool_suspend(pool, true), TARN_ERROR_DRIVER);
    CHECK(host_fail_hits() == 1 && state_of() == TARN_POOL_RUNS && ghost_bytes());
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    verify(0);
    OK(tarn_pool_suspend(pool, true));
    CHECK(ghost_bytes() == 0 && ledger_of(0).created == 0);
    OK(tarn_pool_resume(pool));
    end_ahead();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_addresses_go_although_the_driver_is_late_to_say),
        cmocka_unit_test(old_addresses_go_although_work_is_queued_meanwhile),
        cmocka_unit_test(an_old_address_that_stays_mapped_stops_a_suspend),
    };
    host_start_with(1, MEMORY);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
