/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices that are not a discrete GPU, on the simulated libcuda (sim/cuda/card.h): integrated ones,
 * whose default limit is what the machine has available, and others where tarn must behave
 * differently. Each test is a process of its own. */
#include "base/machine.h"
#include "driver/driver.h"
#include "support/host.h"
#include "support/machine_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MEMORY (1024 * MIB)
#define TOTAL 3200   /* MiB of the machine */
#define RESERVE 100u /* MiB: a thirty-second part */
#define BLOCKS 24
#define STEPS 3000

static tarn_stream stream;

/* The kernel counts what the devices have as used. */
static size_t taken(void)
{
    tarn_host_ledger ledger = ledger_of(0);
    return ledger.created + ledger.pinned_bytes;
}

static void begin(const char *card, size_t memory)
{
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0 && setenv("TARN_SIM_CARD", card, 1) == 0);
    machine_files_begin();
    machine_has(RESERVE + 300, TOTAL);
    host_start_with(1, memory);
    machine_taken = taken;
    stream = lease(0);
}

static tarn_device_properties properties(void)
{
    tarn_device_properties known = {.size = sizeof known};
    OK(tarn_device_properties_get(0, &known));
    return known;
}

static void is_refused(size_t size)
{
    void *block = NULL;
    GIVES(tarn_alloc_on(stream, size, &block), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!block && strstr(tarn_last_error(), "the limit is the machine's memory"));
    CHECK(strstr(tarn_last_error(), "end what fills it"));
}

static void growth_stops_at_what_the_machine_has(void)
{
    begin("orin", MEMORY);
    size_t free_bytes = 0, total = 0;
    CHECK(properties().integrated);
    OK(tarn_device_memory_get(0, &free_bytes, &total));
    CHECK(free_bytes == (RESERVE + 300) * MIB && total == MEMORY);
    is_refused(320 * MIB);
    void *block = alloc_on(stream, 280 * MIB);
    machine_has(RESERVE + 300, TOTAL);
    is_refused(40 * MIB);
    machine_has(RESERVE + 700, TOTAL);
    void *more = alloc_on(stream, 380 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(more));
    nothing_is_left(0);
    machine_files_end();
}

/* The limit falls below what is in use: what is there goes on. */
static void a_fall_only_stops_growth(void)
{
    begin("thor", MEMORY);
    void *block = alloc_on(stream, 200 * MIB);
    tarn_pool *pool = pool_with((tarn_pool_options){0});
    void *other = alloc_in(pool, stream, 20 * MIB);
    machine_has(1, TOTAL);
    verify(0);
    OK(tarn_free(block));
    block = alloc_on(stream, 200 * MIB);
    is_refused(100 * MIB);
    OK(tarn_free(other));
    other = alloc_in(pool, stream, 20 * MIB);
    OK(tarn_free(other));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    machine_files_end();
}

static void pinned_memory_shares_the_limit(void)
{
    void *pinned = NULL, *block = NULL;
    begin("gb10", MEMORY);
    GIVES(tarn_pinned_alloc(stream, 320 * MIB, &pinned), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!pinned && strstr(tarn_last_error(), "the machine's memory"));
    OK(tarn_pinned_alloc(stream, 200 * MIB, &pinned));
    machine_has(RESERVE + 290, TOTAL);
    is_refused(100 * MIB);
    OK(tarn_alloc_on(stream, 80 * MIB, &block));
    OK(tarn_pinned_free(pinned));
    OK(tarn_free(block));
    machine_files_end();
}

static void a_limit_that_was_set_takes_its_place(void)
{
    void *pinned = NULL;
    begin("orin", MEMORY);
    machine_has(1, TOTAL);
    OK(tarn_configuration_set("limit_mb:600,pinned_limit_mb:400"));
    void *block = alloc_on(stream, 500 * MIB);
    GIVES(tarn_alloc_on(stream, 200 * MIB, &pinned), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "the limit is 600 MiB"));
    OK(tarn_pinned_alloc(stream, 300 * MIB, &pinned));
    OK(tarn_pinned_free(pinned));
    OK(tarn_free(block));
    nothing_is_left(0);
    machine_files_end();
}

/* The machine's memory moves at random, and calls of the driver fail. A request is served or
 * refused, live blocks keep their contents, and no claim is left. */
static void a_limit_that_moves(void)
{
    static uint64_t *blocks[BLOCKS];
    uint64_t seed = 7, served = 0, refused = 0;
    begin("orin", MEMORY);
    for (uint64_t step = 1; step <= STEPS; step++) {
        size_t at = random_next(&seed) % BLOCKS, size = (1 + random_next(&seed) % 60) * MIB;
        if (step % 5 == 0)
            machine_has(random_next(&seed) % 1000, TOTAL);
        if (step % 7 == 0)
            (machine->fail)(1 + random_next(&seed) % 12, false, 2);
        if (blocks[at]) {
            CHECK(blocks[at][0] == blocks[at][1] && blocks[at][0]);
            OK(tarn_free(blocks[at]));
            blocks[at] = NULL;
        } else {
            void *block = NULL;
            tarn_status status = tarn_alloc_on(stream, size, &block);
            CHECK(status == TARN_OK || status == TARN_ERROR_OUT_OF_MEMORY);
            blocks[at] = block;
            if (block)
                blocks[at][0] = blocks[at][1] = step;
            *(status ? &refused : &served) += 1;
        }
        (machine->fail)(0, false, 0);
        if (step % 100 == 0)
            verify(0);
        if (step % 100 == 50)
            OK(tarn_device_trim(0, 0));
    }
    CHECK(served > STEPS / 10 && refused > STEPS / 50);
    for (size_t i = 0; i < BLOCKS; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
    machine_has(RESERVE + 256, TOTAL);
    OK(tarn_free(alloc_on(stream, 256 * MIB)));
    nothing_is_left(0);
    machine_files_end();
}

static void a_coherent_gpu_has_memory_of_its_own(void)
{
    begin("gh200", MEMORY);
    machine_has(1, TOTAL);
    CHECK(!properties().integrated);
    OK(tarn_free(alloc_on(stream, 500 * MIB)));
    nothing_is_left(0);
    machine_files_end();
}

static void wsl2_exports_nothing(void)
{
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .exportable = true};
    begin("wsl2", MEMORY);
    CHECK(!properties().exportable && properties().virtual_memory);
    GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_NOT_SUPPORTED);
    OK(tarn_free(alloc_on(stream, 500 * MIB)));
    nothing_is_left(0);
    machine_files_end();
}

static void a_slice_has_its_own_name(void)
{
    struct driver_identity identity = {.uuid = ""};
    begin("mig", MEMORY);
    driver->identity(0, &identity);
    CHECK(strncmp(identity.uuid, "MIG-", 4) == 0);
    machine_files_end();
}

static void addresses_of_39_bits_suffice(void)
{
    tarn_range *range = NULL;
    begin("orin", 128 * 1024 * MIB);
    OK(tarn_free(alloc_on(stream, 200 * MIB)));
    tarn_range_options options = {.size = sizeof options};
    GIVES(tarn_range_create(&options, (size_t)1 << 40, &range), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!range);
    nothing_is_left(0);
    machine_files_end();
}

/* NVML that does not support a question is normal. */
static void a_monitor_may_say_nothing(void)
{
    CHECK(setenv("TARN_SIM_PROCESSES", "77:123456789", 1) == 0);
    begin("gb10", MEMORY);
    struct driver_process list[4];
    CHECK(driver->processes(0, list, 4) == 0);
    is_refused(320 * MIB);
    CHECK(!strstr(tarn_last_error(), "process 77"));
    machine_files_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHILD_TEST(growth_stops_at_what_the_machine_has),
        CHILD_TEST(a_fall_only_stops_growth),
        CHILD_TEST(pinned_memory_shares_the_limit),
        CHILD_TEST(a_limit_that_was_set_takes_its_place),
        CHILD_TEST(a_limit_that_moves),
        CHILD_TEST(a_coherent_gpu_has_memory_of_its_own),
        CHILD_TEST(wsl2_exports_nothing),
        CHILD_TEST(a_slice_has_its_own_name),
        CHILD_TEST(addresses_of_39_bits_suffice),
        CHILD_TEST(a_monitor_may_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
