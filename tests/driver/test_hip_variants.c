/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The whole of tarn on HIP: with virtual memory, without it, and on runtimes that lack entry
 * points, fail, were forked away from or are going down. Each runs in a process of its own, as an
 * environment is read once. */
#include "hip_test.h"
#include "hold_test.h"

#include <signal.h>
#include <tarn/tarn.h>

/* ---- Scenarios ---- */

static void use_streams_and_captures(void)
{
    tarn_stream stream;
    tarn_event *event = NULL;
    void *graph = NULL;
    NEED(tarn_stream_lease(0, 0, &stream) == TARN_OK);
    NEED(tarn_event_create(0, &event) == TARN_OK);
    NEED(tarn_event_record(event, stream) == TARN_OK);
    NEED(tarn_event_synchronize(event) == TARN_OK);
    NEED(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL) == TARN_OK);
    NEED(tarn_device_synchronize(0) == TARN_ERROR_CAPTURE);
    NEED(tarn_capture_end(stream, &graph) == TARN_OK);
    NEED(graph);
    NEED(driver->graph_destroy(0, graph) == TARN_OK);
    NEED(tarn_event_destroy(event) == TARN_OK);
    NEED(tarn_stream_synchronize(stream) == TARN_OK);
    NEED(tarn_stream_return(stream) == TARN_OK);
    NEED(tarn_device_synchronize(0) == TARN_OK);
}

/* Blocks of many sizes keep what is in them, and everything goes back. */
static void use_memory(void)
{
    enum { BLOCKS = 200 };
    unsigned char *blocks[BLOCKS];
    size_t before = 0, after = 0, total = 0;
    NEED(tarn_device_memory_get(0, &before, &total) == TARN_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            size_t size = (size_t)i * 7919 % 300000 + 1;
            blocks[i] = tarn_malloc(size);
            NEED(blocks[i]);
            NEED(driver->set(0, (uintptr_t)blocks[i], (unsigned char)i, size, NULL) == TARN_OK);
        }
        NEED(tarn_device_synchronize(0) == TARN_OK);
        for (int i = 0; i < BLOCKS; i++)
            NEED(blocks[i][0] == (unsigned char)i &&
                 blocks[i][(size_t)i * 7919 % 300000] == (unsigned char)i);
        for (int i = 0; i < BLOCKS; i++)
            NEED(tarn_free(blocks[(i * 71 + round) % BLOCKS]) == TARN_OK);
    }
    use_streams_and_captures();
    NEED(tarn_device_trim(0, 0) == TARN_OK);
    NEED(tarn_device_memory_get(0, &after, &total) == TARN_OK);
    NEED(before == after);
    NEED(tarn_shutdown() == TARN_OK);
}

static bool is_virtual(void)
{
    tarn_device_properties properties = {.size = sizeof properties};
    NEED(tarn_device_properties_get(0, &properties) == TARN_OK);
    return properties.virtual_memory;
}

static void scenario_plain(void)
{
    NEED(!is_virtual());
    use_memory();
}

static void scenario_virtual(void)
{
    NEED(is_virtual());
    use_memory();
}

/* Virtual memory was asked for where there is none. */
static void scenario_refused(void)
{
    NEED(!is_virtual());
    NEED(tarn_malloc(512) == NULL && tarn_last_status() == TARN_ERROR_NOT_SUPPORTED);
    NEED(tarn_shutdown() == TARN_OK);
}

/* Calls fail as TARN_SIM_FAIL has it: the blocks that there are stay good. */
static void scenario_failing(void)
{
    unsigned char *blocks[32] = {NULL};
    for (int i = 0; i < 32; i++) {
        blocks[i] = tarn_malloc(3 * MIB);
        if (blocks[i])
            blocks[i][0] = (unsigned char)i;
    }
    int made = 0;
    for (int i = 0; i < 32; i++) {
        made += blocks[i] != NULL;
        NEED(!blocks[i] || blocks[i][0] == (unsigned char)i);
        NEED(tarn_free(blocks[i]) == TARN_OK || !blocks[i]);
    }
    NEED(made > 0 && made < 32);
    void *block = tarn_malloc(MIB);
    NEED(block);
    NEED(tarn_free(block) == TARN_OK);
}

static void scenario_missing(void)
{
    int count = 0;
    loader_fail("hipStreamEndCapture");
    NEED(tarn_device_count_get(&count) == TARN_ERROR_NO_DRIVER);
    NEED(strstr(tarn_last_error(), "has no hipStreamEndCapture of HIP 4.3"));
    loader_fail(
        "hipLaunchHostFunc hipGetErrorString hipGetErrorName hipPointerGetAttributes hipFreeAsync");
    NEED(tarn_device_count_get(&count) == TARN_OK && count == 1);
    uintptr_t address = 0;
    NEED(driver->alloc(0, 0, &address) == TARN_ERROR_INVALID_ARGUMENT);
    NEED(strstr(tarn_last_error(), "HIP error 1"));
    NEED(driver->alloc_async(0, GRANULE, NULL, &address) == TARN_ERROR_NOT_SUPPORTED);
    NEED(strstr(tarn_last_error(), "hipMallocAsync: ") &&
         strstr(tarn_last_error(), "has no such call"));
    NEED(driver->free_async(0, GRANULE, NULL) == TARN_ERROR_NOT_SUPPORTED);
    use_streams_and_captures();
}

static void scenario_missing_library(void)
{
    int count = 0;
    loader_fail("libamdhip64.so.7 libamdhip64.so.6 libamdhip64.so.5");
    NEED(tarn_device_count_get(&count) == TARN_ERROR_NO_DRIVER);
    NEED(strstr(tarn_last_error(), "libamdhip64.so.7: missing") &&
         strstr(tarn_last_error(), "libamdhip64.so.5: missing"));
}

/* What the driver's guards keep from the library: without them it would die here. */
static void scenario_wild(void)
{
    start_hip(7, NULL, true);
    (void)hip.call.hipMemAddressFree((void *)GRANULE, GRANULE);
}

static void scenario_wild_unmap(void)
{
    start_hip(7, NULL, true);
    (void)hip.call.hipMemUnmap((void *)GRANULE, GRANULE);
}

static void scenario_wild_attribute(void)
{
    int value = 0;
    start_hip(5, NULL, true);
    (void)hip.call.hipDeviceGetAttribute(&value, HIP_HAS_VIRTUAL_MEMORY, 0);
}

static void scenario_forked(void)
{
    int count = 0;
    NEED(tarn_device_count_get(&count) == TARN_OK);
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0)
        _exit(tarn_device_count_get(&count) == TARN_ERROR_FORKED ? 0 : 1);
    int status = 0;
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

/* At the end of the process the runtime says that it is deinitialised; tarn passes it on and does
 * nothing about it. */
static void at_exit(void)
{
    uintptr_t address = 0;
    if (driver->alloc(0, MIB, &address) != TARN_ERROR_SHUTDOWN)
        _exit(3);
}

static void scenario_exit(void)
{
    int count = 0;
    void *block;
    NEED(atexit(at_exit) == 0);
    NEED(tarn_device_count_get(&count) == TARN_OK);
    block = tarn_malloc(MIB);
    NEED(block);
    exit(0);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"plain", scenario_plain},
    {"plain_refused", scenario_refused},
    {"virtual", scenario_virtual},
    {"failing", scenario_failing},
    {"missing", scenario_missing},
    {"hold_failing", scenario_hold_failing},
    {"missing_library", scenario_missing_library},
    {"wild", scenario_wild},
    {"wild_unmap", scenario_wild_unmap},
    {"wild_attribute", scenario_wild_attribute},
    {"forked", scenario_forked},
    {"exit", scenario_exit},
};

/* ---- Tests ---- */

#define SCENARIO(name, ...)                                  \
    do {                                                     \
        const char *const variables[] = {__VA_ARGS__, NULL}; \
        assert_int_equal(run_scenario(name, variables), 0);  \
    } while (0)

static void without_virtual_memory_all_of_it_works_too(void **state)
{
    (void)state;
    SCENARIO("plain", "TARN_HIP_VMM=0");
    SCENARIO("plain", "TARN_HIP_VMM=");
    SCENARIO("plain", "TARN_HIP_VMM=1", "TARN_SIM_HIP_VERSION=60032830");
    SCENARIO("plain_refused", "TARN_ALLOC_CONF=segments:virtual");
}

static void with_virtual_memory_all_of_it_works(void **state)
{
    (void)state;
    SCENARIO("virtual", "TARN_HIP_VMM=1");
    SCENARIO("virtual", "TARN_HIP_VMM=1", "TARN_SIM_HIP_VERSION=60100000");
}

static void failures_leave_blocks_alone(void **state)
{
    (void)state;
    SCENARIO("failing", "TARN_HIP_VMM=1",
             "TARN_SIM_FAIL=hipMemCreate:3:2,hipMemCreate:4:2,hipMemCreate:5:999");
    SCENARIO("failing", "TARN_HIP_VMM=1", "TARN_SIM_FAIL=hipMemMap:2:2,hipMemMap:4:999");
    SCENARIO("failing", "TARN_HIP_VMM=1",
             "TARN_SIM_FAIL=hipMemSetAccess:2:2,hipMemSetAccess:5:999");
}

static void a_failed_hold_holds_nothing(void **state)
{
    (void)state;
    SCENARIO("hold_failing", "TARN_SIM_FAIL=hipUserObjectCreate:1:2,hipGraphRetainUserObject:1:2");
}

static void entry_points_may_be_missing(void **state)
{
    (void)state;
    SCENARIO("missing", "TARN_HIP_VMM=0");
    SCENARIO("missing_library", "TARN_HIP_VMM=0");
}

static void the_guards_are_needed(void **state)
{
    (void)state;
    static const char *const names[] = {"wild", "wild_unmap", "wild_attribute"};
    const char *const variables[] = {"TARN_HIP_VMM=1", NULL};
    for (int i = 0; i < 3; i++)
        assert_int_equal(run_scenario(names[i], variables), 128 + SIGABRT);
}

static void a_child_is_refused(void **state)
{
    (void)state;
    SCENARIO("forked", "TARN_HIP_VMM=1");
}

static void the_end_of_the_process_is_survived(void **state)
{
    (void)state;
    SCENARIO("exit", "TARN_HIP_VMM=1");
}

int main(int count, char **arguments)
{
    setenv("TARN_HOST_DEVICES", "1", 1);
    setenv("TARN_HOST_MEMORY", "256M", 1);
    setenv("TARN_DRIVER", "hip", 1);
    for (size_t i = 0; count == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(arguments[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_virtual_memory_all_of_it_works_too),
        cmocka_unit_test(with_virtual_memory_all_of_it_works),
        cmocka_unit_test(failures_leave_blocks_alone),
        cmocka_unit_test(a_failed_hold_holds_nothing),
        cmocka_unit_test(entry_points_may_be_missing),
        cmocka_unit_test(the_guards_are_needed),
        cmocka_unit_test(a_child_is_refused),
        cmocka_unit_test(the_end_of_the_process_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
