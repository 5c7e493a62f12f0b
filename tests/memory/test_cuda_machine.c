/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Devices that are not a discrete GPU of their own, on the simulated libcuda (sim/common/card.h):
 * integrated ones, whose default limit is what the machine has available, one whose memory the
 * system pages, and others where tarn must behave differently. Each test is a process of its own.
 */
#include "base/machine.h"
#include "driver/driver.h"
#include "memory/arena/arena.h"
#include "support/host.h"
#include "support/machine_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* The kernel of a large machine does not count what a simulated device hands out and nobody
 * touches. Its own simulated machine does. */
static void a_simulated_machine_has_what_its_device_leaves(void)
{
    size_t free_bytes = 0, total = 0;
    void *pinned = NULL;
    begin("orin", MEMORY);
    machine_taken = NULL;
    machine_has(1 << 20, 1 << 20);
    OK(tarn_device_memory_get(0, &free_bytes, &total));
    CHECK(free_bytes == MEMORY && total == MEMORY);
    void *block = alloc_on(stream, 280 * MIB);
    OK(tarn_pinned_alloc(stream, 100 * MIB, &pinned));
    OK(tarn_device_memory_get(0, &free_bytes, &total));
    CHECK(free_bytes <= MEMORY - 380 * MIB && free_bytes > MEMORY - 400 * MIB);
    is_refused(free_bytes - MEMORY / 32 + 2 * MIB);
    void *more = alloc_on(stream, free_bytes - MEMORY / 32 - 2 * MIB);
    OK(tarn_free(more));
    OK(tarn_free(pinned));
    OK(tarn_free(block));
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
    OK(tarn_free(pinned));
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
    OK(tarn_free(pinned));
    OK(tarn_free(block));
    nothing_is_left(0);
    machine_files_end();
}

/* What an observer was told last. */
static tarn_shortage told;

static bool hear(const tarn_shortage *shortage, void *user)
{
    (void)user;
    told = *shortage;
    return false;
}

static void is_told(size_t size)
{
    tarn_observer observer = 0;
    tarn_observer_options options = {.size = sizeof options, .device = 0, .out_of_memory = hear};
    void *none = NULL;
    OK(tarn_observer_add(&options, &observer));
    GIVES(tarn_alloc_on(stream, size, &none), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_observer_remove(observer));
    CHECK(told.requested == size && told.reserved < told.limit);
    CHECK(told.reserved + size > told.limit);
}

/* Observers learn of the limit that refuses, though none is set. */
static void observers_learn_what_the_machine_has(void)
{
    begin("orin", MEMORY);
    void *block = alloc_on(stream, 200 * MIB);
    machine_has(RESERVE + 100 + 300, TOTAL); /* of which `taken` are not counted as available */
    is_told(300 * MIB);
    CHECK(told.limit == 400 * MIB);
    OK(tarn_device_limit_set(0, 250 * MIB));
    is_told(100 * MIB);
    CHECK(told.limit == 250 * MIB);
    OK(tarn_free(block));
    OK(tarn_device_limit_set(0, TARN_NO_LIMIT));
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
    CHECK(!properties().integrated && properties().coherent);
    OK(tarn_free(alloc_on(stream, 500 * MIB)));
    nothing_is_left(0);
    machine_files_end();
}

static void begin_wsl2(void)
{
    CHECK(setenv("WSL_DISTRO_NAME", "Debian", 1) == 0);
    begin("wsl2", MEMORY);
}

static void is_not_paged(size_t size)
{
    void *block = NULL;
    GIVES(tarn_alloc_on(stream, size, &block), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!block && strstr(tarn_last_error(), "the limit is what the driver says is free") &&
          strstr(tarn_last_error(), "lets the system page"));
}

static void observers_learn_what_is_not_paged(void)
{
    begin_wsl2();
    void *block = alloc_on(stream, MEMORY - 20 * MIB);
    is_told(40 * MIB);
    CHECK(told.limit == MEMORY && told.free == MEMORY - told.reserved);
    OK(tarn_free(block));
    nothing_is_left(0);
    machine_files_end();
}

static void growth_stops_before_the_system_pages(void)
{
    size_t free_bytes = 0, total = 0;
    begin_wsl2();
    CHECK(properties().paged);
    OK(tarn_device_memory_get(0, &free_bytes, &total));
    CHECK(total == MEMORY && free_bytes == total);
    void *block = alloc_on(stream, MEMORY - 20 * MIB);
    is_not_paged(40 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(alloc_on(stream, MEMORY))); /* what is idle makes room for it */
    nothing_is_left(0);
    machine_files_end();
}

static void paging_is_for_those_who_ask_for_it(void)
{
    begin_wsl2();
    OK(tarn_configuration_set("limit_mb:1500"));
    void *block = alloc_on(stream, 700 * MIB), *more = alloc_on(stream, 700 * MIB);
    OK(tarn_free(block));
    OK(tarn_free(more));
    nothing_is_left(0);
    machine_files_end();
}

static void nap(void *nothing)
{
    (void)nothing;
    (void)usleep(50000);
}

/* Memory that the driver's own pool awaits is not free, and serves the stream's next request. */
static void the_drivers_own_pool_is_asked(void)
{
    CHECK(setenv("TARN_ALLOC_CONF", "backend:cudaMallocAsync", 1) == 0);
    begin_wsl2();
    void *native = NULL, *block = alloc_on(stream, 700 * MIB);
    OK(tarn_stream_native_get(stream, &native));
    OK(driver->call(0, native, nap, NULL));
    OK(tarn_free(block));
    OK(tarn_free(alloc_on(stream, 700 * MIB)));
    nothing_is_left(0);
    machine_files_end();
}

/* Other programs take and return memory at random, and calls of the driver fail. */
static void what_is_free_moves(void)
{
    static uint64_t *blocks[BLOCKS];
    uint64_t seed = 11, served = 0, refused = 0;
    driver_piece others = 0;
    begin_wsl2();
    for (uint64_t step = 1; step <= STEPS; step++) {
        size_t at = random_next(&seed) % BLOCKS, size = (1 + random_next(&seed) % 60) * MIB;
        if (step % 5 == 0 && others) {
            OK(driver->release(0, others));
            others = 0;
        } else if (step % 5 == 0) {
            OK(driver->create(0, (200 + random_next(&seed) % 250) * 2 * MIB, 0, &others));
        }
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
    if (others)
        OK(driver->release(0, others));
    for (size_t i = 0; i < BLOCKS; i++)
        OK(tarn_free(blocks[i]));
    nothing_is_left(0);
    machine_files_end();
}

static void wsl2_exports_nothing(void)
{
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .exportable = true};
    begin_wsl2();
    CHECK(!properties().exportable && properties().virtual_memory);
    GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_NOT_SUPPORTED);
    options = (tarn_pool_options){.size = sizeof options, .registrable = true};
    GIVES(tarn_pool_create(&options, &pool), TARN_ERROR_NOT_SUPPORTED);
    OK(tarn_free(alloc_on(stream, 500 * MIB)));
    nothing_is_left(0);
    machine_files_end();
}

/* The device file tells it too, in a container that has no such variable. */
static void wsl2_is_known_by_its_device_file(void)
{
    CHECK(setenv("TARN_DRIVER", "cuda", 1) == 0 && setenv("TARN_SIM_CARD", "wsl2", 1) == 0 &&
          unsetenv("WSL_DISTRO_NAME") == 0);
    machine_files_begin();
    machine_file("dev/dxg", "");
    host_start_with(1, MEMORY);
    CHECK(properties().paged && !properties().exportable);
    machine_files_end();
}

static void a_slice_has_its_own_name(void)
{
    struct driver_identity identity = {.uuid = ""};
    begin("mig", MEMORY);
    driver->identity(0, &identity);
    CHECK(properties().slice && strncmp(identity.uuid, "MIG-", 4) == 0);
    machine_files_end();
}

/* Of the whole device, NVML tells processes only to the privileged. */
static void a_slice_asks_for_its_own_processes(void)
{
    struct driver_process list[4];
    void *block = NULL;
    CHECK(setenv("TARN_SIM_PROCESSES", "77:123456789", 1) == 0);
    begin("mig", MEMORY);
    CHECK(driver->processes(0, list, 4) == 1 && list[0].number == 77);
    CHECK(driver->alloc(0, 200 * MIB, &(uintptr_t){0}) == TARN_OK); /* what that process has */
    GIVES(tarn_alloc_on(stream, MEMORY, &block), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "process 77"));
    machine_files_end();
}

static const struct machine_known {
    const char *card;
    bool integrated, coherent, slice, mps;
} machines[] = {{.card = ""},
                {.card = "orin", .integrated = true},
                {.card = "thor", .integrated = true, .coherent = true},
                {.card = "gb10", .integrated = true, .coherent = true},
                {.card = "wsl2"},
                {.card = "mig", .slice = true},
                {.card = "mps", .mps = true},
                {.card = "gh200", .coherent = true},
                {.card = "va39"},
                {.card = "apu"}};
static const struct machine_known *known;

static void is_known(void)
{
    CHECK(unsetenv("WSL_DISTRO_NAME") == 0);
    begin(known->card, MEMORY);
    tarn_device_properties is = properties();
    CHECK(is.integrated == known->integrated && is.coherent == known->coherent &&
          is.slice == known->slice && is.mps == known->mps && !is.paged &&
          is.address_bits == machine_address_bits());
    machine_files_end();
}

/* A property is that of its machine alone. What WSL2 pages shows outside the driver. */
static void each_machine_has_its_properties(void **state)
{
    (void)state;
    for (known = machines; known < machines + sizeof machines / sizeof *machines; known++)
        in_child(is_known);
}

static void addresses_of_39_bits_suffice(void)
{
    tarn_range *range = NULL;
    tarn_range_options options = {.size = sizeof options};
    begin("va39", 128 * 1024 * MIB);
    OK(tarn_free(alloc_on(stream, 200 * MIB)));
    GIVES(tarn_range_create(&options, (size_t)1 << 40, &range), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(!range && strstr(tarn_last_error(), "those of the process have"));
    OK(tarn_range_create(&options, (size_t)1 << 37, &range));
    OK(tarn_range_destroy(range));
    nothing_is_left(0);
    machine_files_end();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they need more of them */
/* Three quarters of few addresses are left to ranges and to others. */
static void the_arena_leaves_addresses_to_others(void)
{
    tarn_range *range = NULL;
    tarn_range_options options = {.size = sizeof options};
    begin("va39", 100 * 1024 * MIB);
    CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)1 << 39, (rlim_t)1 << 39}) == 0);
    CHECK(properties().address_bits == 39);
    OK(tarn_free(alloc_on(stream, 200 * MIB)));
    CHECK(arena_if_used(0)->size == (size_t)100 * 1024 * MIB);
    OK(tarn_range_create(&options, (size_t)200 * 1024 * MIB, &range));
    OK(tarn_range_destroy(range));
    nothing_is_left(0);
    machine_files_end();
}
#endif

/* Where the driver reserves less than the memory, the default pool has plain segments. */
static void an_orin_has_plain_segments(void)
{
    tarn_range *range = NULL;
    tarn_range_options options = {.size = sizeof options};
    begin("orin", 64 * 1024 * MIB);
    OK(tarn_free(alloc_on(stream, 200 * MIB)));
    GIVES(tarn_range_create(&options, MIB, &range), TARN_ERROR_NOT_SUPPORTED);
    CHECK(!range && strstr(tarn_last_error(), "plain segments"));
    CHECK(strstr(tarn_last_error(), "TARN_SEGMENTS_VIRTUAL"));
    nothing_is_left(0);
    machine_files_end();
}

static void an_orin_has_virtual_pools_and_ranges(void)
{
    tarn_range *range = NULL;
    void *more = NULL;
    begin("orin", 64 * 1024 * MIB);
    machine_has(60 * 1024, 64 * 1024);
    tarn_pool *pool = pool_with((tarn_pool_options){.segments = TARN_SEGMENTS_VIRTUAL});
    CHECK(arena_if_used(0)->size == (size_t)16 * 1024 * MIB);
    tarn_range_options options = {.size = sizeof options, .pool = pool};
    OK(tarn_range_create(&options, (size_t)24 * 1024 * MIB, &range));
    OK(tarn_range_commit(range, 0, 64 * MIB, stream));
    void *block = alloc_in(pool, stream, 200 * MIB);
    CHECK(calls_of(0, "map") > 0);
    verify(0);
    /* More than there are addresses, and less than there is memory */
    GIVES(tarn_pool_alloc(pool, stream, (size_t)20 * 1024 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(tarn_last_error(), "of addresses are left in a row"));
    OK(tarn_free(block));
    OK(tarn_range_decommit(range, 0, 64 * MIB, stream));
    OK(tarn_range_destroy(range));
    OK(tarn_pool_release(pool));
    nothing_is_left(0);
    machine_files_end();
}

/* The settings ask for it. */
static void an_orin_with_virtual_segments_has_fewer_addresses(void)
{
    CHECK(setenv("TARN_ALLOC_CONF", "segments:virtual", 1) == 0);
    begin("orin", 64 * 1024 * MIB);
    OK(tarn_free(alloc_on(stream, 200 * MIB)));
    CHECK(calls_of(0, "map") > 0 && arena_if_used(0)->size == (size_t)16 * 1024 * MIB);
    nothing_is_left(0);
    machine_files_end();
}

/* On WSL2 NVML lists processes without their memory. */
static void processes_without_memory_are_not_named(void)
{
    struct driver_process list[4];
    CHECK(setenv("TARN_SIM_PROCESSES", "77:123456789", 1) == 0);
    begin_wsl2();
    CHECK(driver->processes(0, list, 4) == 1 && list[0].bytes == SIZE_MAX);
    OK(tarn_free(alloc_on(stream, MEMORY - 20 * MIB)));
    void *block = alloc_on(stream, MEMORY - 20 * MIB);
    is_not_paged(40 * MIB);
    OK(tarn_free(block));
    CHECK(!strstr(tarn_last_error(), "process 77"));
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
        CHILD_TEST(a_simulated_machine_has_what_its_device_leaves),
        CHILD_TEST(a_fall_only_stops_growth),
        CHILD_TEST(pinned_memory_shares_the_limit),
        CHILD_TEST(a_limit_that_was_set_takes_its_place),
        CHILD_TEST(a_limit_that_moves),
        CHILD_TEST(a_coherent_gpu_has_memory_of_its_own),
        CHILD_TEST(growth_stops_before_the_system_pages),
        CHILD_TEST(paging_is_for_those_who_ask_for_it),
        CHILD_TEST(the_drivers_own_pool_is_asked),
        CHILD_TEST(what_is_free_moves),
        CHILD_TEST(wsl2_exports_nothing),
        CHILD_TEST(wsl2_is_known_by_its_device_file),
        CHILD_TEST(a_slice_has_its_own_name),
        CHILD_TEST(a_slice_asks_for_its_own_processes),
        cmocka_unit_test(each_machine_has_its_properties),
        CHILD_TEST(addresses_of_39_bits_suffice),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        CHILD_TEST(the_arena_leaves_addresses_to_others),
#endif
        CHILD_TEST(observers_learn_what_the_machine_has),
        CHILD_TEST(observers_learn_what_is_not_paged),
        CHILD_TEST(an_orin_has_plain_segments),
        CHILD_TEST(an_orin_has_virtual_pools_and_ranges),
        CHILD_TEST(an_orin_with_virtual_segments_has_fewer_addresses),
        CHILD_TEST(processes_without_memory_are_not_named),
        CHILD_TEST(a_monitor_may_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
