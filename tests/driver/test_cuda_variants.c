/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The CUDA driver on other machines: older drivers, missing entry points, no driver at all, the
 * toolkit's stub, devices that fail or are lost, the end of the process. Each runs in a process of
 * its own, as an environment is read once. */
#include "cuda_test.h"
#include "hold_test.h"

#include "base/pages.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <tarn/tarn.h>

/* ---- Scenarios ---- */

static bool says(const char *text, const char *part)
{
    if (strstr(text, part))
        return true;
    fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, text);
    return false;
}

/* A capture of one fill, which is run twice; the number of nodes where the driver tells it. */
static void use_a_capture(size_t nodes)
{
    driver_stream stream = NULL;
    driver_graph graph = NULL;
    uintptr_t address = 0;
    struct driver_capture capture;
    NEED(driver->stream_create(0, 0, false, &stream) == TARN_OK);
    NEED(driver->alloc(0, GRANULE, &address) == TARN_OK);
    NEED(driver->capture_begin(0, stream, DRIVER_CAPTURE_THREAD_LOCAL) == TARN_OK);
    NEED(driver->set(0, address, 5, 1, stream) == TARN_OK);
    NEED(driver->capture_status(0, stream, &capture) == TARN_OK);
    NEED(capture.state == DRIVER_CAPTURE_ACTIVE && capture.id && capture.node_count == nodes);
    NEED(capture.partial == !nodes); /* where nothing is known of them */
    NEED(driver->capture_end(0, stream, &graph) == TARN_OK);
    NEED(driver->graph_launch(0, graph, stream) == TARN_OK);
    NEED(driver->graph_launch(0, graph, stream) == TARN_OK);
    NEED(driver->stream_synchronize(0, stream) == TARN_OK);
    NEED(*(unsigned char *)address == 5);
    NEED(driver->graph_destroy(0, graph) == TARN_OK);
    NEED(driver->free(0, address) == TARN_OK);
    NEED(driver->stream_destroy(0, stream) == TARN_OK);
}

/* The whole of tarn: blocks of many sizes on two streams, whose contents are kept. Calls may fail;
 * nothing may break. Gives how many blocks there were. */
static int use_memory(void)
{
    enum { BLOCKS = 64 };
    unsigned char *blocks[BLOCKS] = {NULL};
    size_t sizes[BLOCKS];
    tarn_stream streams[2] = {TARN_STREAM_LEGACY, TARN_STREAM_LEGACY};
    int made = 0;
    (void)tarn_stream_shared_get(0, 0, &streams[1]);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            sizes[i] = ((size_t)i * 7919 + (size_t)round * 104729) % (i % 4 ? 20000 : 3 * MIB) + 1;
            if (tarn_alloc_on(streams[i & 1], sizes[i], (void **)&blocks[i]))
                continue;
            made++;
            memset(blocks[i], i + 1, sizes[i]); /* a simulated device's memory is the host's */
            if (i % 8 == 0)
                (void)tarn_record_stream(blocks[i], streams[!(i & 1)]);
        }
        for (int i = 0; i < BLOCKS; i++) {
            if (!blocks[i])
                continue;
            NEED(blocks[i][0] == i + 1 && blocks[i][sizes[i] - 1] == i + 1);
            (void)tarn_free(blocks[i]);
            blocks[i] = NULL;
        }
        (void)tarn_device_trim(0, 0);
    }
    return made;
}

/* What is newer than the driver is not asked for. */
static void scenario_version_12(void)
{
    unsigned (*refused)(void) = NULL;
    NEED(driver_init() == TARN_OK);
    NEED(says(driver_reason(), "driver 12.0, "));
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *found;
    NEED(library && (found = dlsym(library, "tarn_sim_refused_lookups")));
    memcpy(&refused, &found, sizeof refused);
    NEED(refused() == 0);
    NEED(dlclose(library) == 0);
    use_a_capture(1);
}

static void scenario_version_11_4(void)
{
    loader_fail("cuGetProcAddress_v2"); /* of 12.0 */
    NEED(driver_init() == TARN_OK);
    NEED(says(driver_reason(), "driver 11.4, "));
    use_a_capture(1);
}

static void scenario_version_11_0(void)
{
    loader_fail(
        "cuGetProcAddress_v2 cuGetProcAddress cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v3 "
        "cuStreamUpdateCaptureDependencies cuGraphInstantiateWithFlags");
    NEED(driver_init() == TARN_OK);
    use_a_capture(0);
    NEED(driver->capture_depend(0, NULL, NULL, 0) == TARN_ERROR_NOT_SUPPORTED);
    NEED(says(tarn_last_error(),
              "cuStreamUpdateCaptureDependencies: the driver, of CUDA 11.0, has no such call"));
}

/* Asked at 10.1, the lookup has nothing of 11.3 and 12.3 to give. */
static void scenario_version_10_1(void)
{
    NEED(driver_init() == TARN_OK);
    struct driver_properties properties;
    NEED(driver->device_properties(0, &properties) == TARN_OK);
    NEED(!properties.virtual_memory && !properties.alias);
    uintptr_t address = 0;
    NEED(driver->reserve(0, GRANULE, 0, &address) == TARN_ERROR_NOT_SUPPORTED);
    NEED(says(tarn_last_error(),
              "cuMemAddressReserve: device 0, or its driver, has no virtual memory"));
    NEED(driver->alloc(0, GRANULE, &address) == TARN_OK);
    NEED(driver->free(0, address) == TARN_OK);
    NEED(driver->alloc_async(0, GRANULE, NULL, &address) == TARN_ERROR_NOT_SUPPORTED);
    NEED(says(tarn_last_error(), "cuMemAllocAsync: the driver, of CUDA 10.1, has no such call"));
    NEED(driver->free_async(0, address, NULL) == TARN_ERROR_NOT_SUPPORTED);
}

static void scenario_no_captures(void)
{
    loader_fail(
        "cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamGetCaptureInfo "
        "cuStreamGetCaptureInfo_v2 "
        "cuStreamGetCaptureInfo_v3 cuThreadExchangeStreamCaptureMode cuGraphLaunch cuGraphDestroy "
        "cuGraphNodeGetDependencies cuGraphRetainUserObject cuLaunchHostFunc "
        "cuCtxGetStreamPriorityRange "
        "cuGetErrorName cuGetErrorString");
    NEED(driver_init() == TARN_OK);
    struct driver_capture capture;
    driver_graph graph = NULL;
    enum driver_capture_mode mode = DRIVER_CAPTURE_RELAXED;
    NEED(driver->capture_status(0, NULL, &capture) == TARN_OK &&
         capture.state == DRIVER_CAPTURE_NONE);
    NEED(driver->capture_begin(0, NULL, mode) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->capture_end(0, NULL, &graph) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->capture_mode(&mode) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->graph_launch(0, NULL, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->exec_launch(0, NULL, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->graph_destroy(0, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->node_before(0, NULL, NULL, 0, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->graph_hold(0, NULL, NULL, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(says(tarn_last_error(),
              "cuGraphRetainUserObject: the driver, of CUDA 13.0, has no such call"));
    NEED(driver->call(0, NULL, NULL, NULL) == TARN_ERROR_NOT_SUPPORTED);
    NEED(driver->free(0, 4096) == TARN_ERROR_INVALID_ARGUMENT);
    NEED(says(tarn_last_error(), "cuMemFree of 0x1000 on device 0: CUDA error 1"));
    NEED(use_memory() == 4 * 64);
}

static void scenario_needed_one_missing(void)
{
    loader_fail("cuMemAlloc_v2");
    NEED(driver_init() == TARN_ERROR_NO_DRIVER);
    NEED(says(tarn_last_error(), "TARN_DRIVER=cuda: ") &&
         says(tarn_last_error(), "has no cuMemAlloc of CUDA 3.2"));
    NEED(driver == NULL);
    loader_fail("cuInit");
    NEED(driver_init() == TARN_ERROR_NO_DRIVER);
    NEED(says(tarn_last_error(), "libcuda.so.1 has no cuInit"));
    loader_fail(NULL);
    NEED(driver_init() == TARN_OK);
}

static void scenario_no_library(void)
{
    NEED(driver_init() == TARN_ERROR_NO_DRIVER);
    NEED(says(tarn_last_error(), "TARN_DRIVER=cuda: libcuda.so.1: cannot open shared object file"));
    NEED(tarn_malloc(1) == NULL && tarn_last_status() == TARN_ERROR_NO_DRIVER);
    setenv("TARN_DRIVER", "auto", 1);
    NEED(driver_init() == TARN_OK);
    NEED(strcmp(driver->name, "host") == 0);
    NEED(says(driver_reason(), "host: libcuda.so.1: cannot open shared object file"));
}

static void scenario_stub(void)
{
    NEED(driver_init() == TARN_ERROR_NO_DRIVER);
    NEED(
        says(tarn_last_error(), "is the CUDA toolkit's stub, not a driver (cuInit: CUDA error 34"));
}

static void scenario_auto(void)
{
    NEED(driver_init() == TARN_OK);
    NEED(strcmp(driver->name, "cuda") == 0);
    NEED(says(driver_reason(), "cuda: ") && says(driver_reason(), "1 device"));
    tarn_device_properties properties = {.size = sizeof properties};
    NEED(tarn_device_properties_get(0, &properties) == TARN_OK);
    NEED(strcmp(properties.driver, "cuda") == 0);
    const tarn_host_configuration late = {.size = sizeof late, .devices = 3};
    NEED(tarn_host_configuration_set(&late) == TARN_ERROR_BUSY);
    NEED(says(tarn_last_error(), "the driver was chosen already (cuda: "));
}

/* What the host device is asked to be wins over a GPU that is there. */
static void scenario_host_configured(void)
{
    const tarn_host_configuration config = {.size = sizeof config, .devices = 3};
    NEED(tarn_host_configuration_set(&config) == TARN_OK);
    int count = 0;
    NEED(tarn_device_count_get(&count) == TARN_OK && count == 3);
    NEED(strcmp(driver->name, "host") == 0);
}

static void scenario_no_device(void)
{
    NEED(driver_init() == TARN_ERROR_NO_DRIVER);
    NEED(says(tarn_last_error(), "cuInit: CUDA error 100 (CUDA_ERROR_NO_DEVICE"));
}

static void scenario_lost(void)
{
    void *block = tarn_malloc(GRANULE), *other = tarn_malloc(MIB);
    NEED(block && other);
    NEED(tarn_device_synchronize(0) == TARN_ERROR_DEVICE_LOST);
    NEED(says(tarn_last_error(),
              "cuCtxSynchronize on device 0: CUDA error 700 (CUDA_ERROR_ILLEGAL_ADDRESS"));
    NEED(tarn_free(block) == TARN_OK && tarn_free(other) == TARN_OK); /* book-keeping only */
    NEED(tarn_malloc(64 * MIB) == NULL && tarn_last_status() == TARN_ERROR_DEVICE_LOST);
    size_t available, total;
    NEED(tarn_device_memory_get(0, &available, &total) == TARN_ERROR_DEVICE_LOST);
}

static void scenario_memory(void)
{
    NEED(use_memory() == 4 * 64);
    size_t available = 0, total = 1;
    NEED(tarn_device_trim(0, 0) == TARN_OK);
    NEED(tarn_device_memory_get(0, &available, &total) == TARN_OK && available == total);
    NEED(tarn_shutdown() == TARN_OK);
}

/* Failures somewhere; where they pass, all is well afterwards. */
static void scenario_failing(void)
{
    const char *rule = getenv("TARN_SIM_FAIL");
    bool passes = !strchr(rule, '+') && !strstr(rule, ":700") && !strstr(rule, ":999");
    int made = use_memory();
    NEED(made || !passes);
    NEED(use_memory() == 4 * 64 || !passes);
    size_t available = 0, total = 1;
    tarn_status status = tarn_device_trim(0, 0);
    NEED(status == TARN_OK || !passes);
    status = tarn_device_memory_get(0, &available, &total);
    NEED(status == TARN_OK || !passes);
    NEED(available == total || !passes);
    (void)tarn_shutdown();
}

static void *kept;

static void at_exit(void)
{
    tarn_status status = driver->device_synchronize(0);
    if (status != TARN_ERROR_SHUTDOWN || !says(tarn_last_error(), "CUDA error 4"))
        _exit(1);
    uintptr_t address = 0;
    driver_stream stream = NULL;
    if (driver->alloc(0, 1, &address) != TARN_ERROR_SHUTDOWN ||
        driver->activate(0) != TARN_ERROR_SHUTDOWN ||
        driver->stream_create(0, 0, false, &stream) != TARN_ERROR_SHUTDOWN)
        _exit(2);
    (void)tarn_free(kept);
    if (tarn_malloc(100 * MIB))
        _exit(3);
    (void)tarn_device_trim(0, 0);
    (void)tarn_shutdown();
    fflush(NULL);
    _exit(0);
}

/* The library's own exit handler runs before one that was registered earlier: what that still does
 * finds no driver. */
static void scenario_exit(void)
{
    atexit(at_exit);
    kept = tarn_malloc(MIB);
    NEED(kept);
    exit(9);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"version_12", scenario_version_12},
    {"version_11_4", scenario_version_11_4},
    {"version_11_0", scenario_version_11_0},
    {"version_10_1", scenario_version_10_1},
    {"no_captures", scenario_no_captures},
    {"needed_one_missing", scenario_needed_one_missing},
    {"no_library", scenario_no_library},
    {"stub", scenario_stub},
    {"auto", scenario_auto},
    {"host_configured", scenario_host_configured},
    {"no_device", scenario_no_device},
    {"lost", scenario_lost},
    {"memory", scenario_memory},
    {"failing", scenario_failing},
    {"hold_failing", scenario_hold_failing},
    {"exit", scenario_exit},
};

/* ---- Tests ---- */

#define RUNS(name, ...) \
    assert_int_equal(run_scenario(name, (const char *const[]){__VA_ARGS__, NULL}), 0)
#define MEMORY "TARN_HOST_MEMORY=96M"

static void older_drivers_do(void **state)
{
    (void)state;
    RUNS("version_12", "TARN_SIM_CUDA_VERSION=12000");
    RUNS("version_11_4", "TARN_SIM_CUDA_VERSION=11040");
    RUNS("version_11_0", "TARN_SIM_CUDA_VERSION=11000");
    RUNS("version_10_1", "TARN_SIM_CUDA_VERSION=10010");
}

static void missing_entry_points_are_tolerated_or_reported(void **state)
{
    (void)state;
    RUNS("no_captures", MEMORY);
    RUNS("needed_one_missing", MEMORY);
}

static void without_a_driver_it_says_what_was_tried(void **state)
{
    (void)state;
    RUNS("no_library", "LD_LIBRARY_PATH=/nowhere");
    RUNS("no_device", "TARN_SIM_FAIL=cuInit:1:100");
}

static void the_toolkits_stub_is_no_driver(void **state)
{
    (void)state;
    const char *stub = getenv("TARN_CUDA_STUB");
    if (!stub || !*stub)
        skip();
    char folder[] = "/tmp/tarn-stub-XXXXXX", link_path[64], path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(link_path, sizeof link_path, "%s/libcuda.so.1", folder);
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", folder);
    assert_int_equal(symlink(stub, link_path), 0);
    int status = run_scenario("stub", (const char *const[]){path, NULL});
    unlink(link_path);
    rmdir(folder);
    assert_int_equal(status, 0);
}

static void auto_takes_what_answers(void **state)
{
    (void)state;
    RUNS("auto", "TARN_DRIVER=auto");
    RUNS("auto", "TARN_DRIVER=");
    RUNS("host_configured", "TARN_DRIVER=auto");
    RUNS("host_configured", "TARN_DRIVER=cuda");
}

static void a_lost_device_is_lost(void **state)
{
    (void)state;
    RUNS("lost", "TARN_SIM_FAIL=cuCtxSynchronize:1:700");
}

static void all_memory_comes_back(void **state)
{
    (void)state;
    RUNS("memory", MEMORY);
    RUNS("memory", MEMORY, "TARN_SIM_SLOW=cuMemCreate:1");
}

/* Out of memory, nonsense, a lost device: at each of the first calls, and at every call from there
 * on. */
static void any_call_may_fail(void **state)
{
    (void)state;
    static const char *const codes[] = {"2", "400", "700", "999", "801", "2+", "400+"};
    for (int call = 1; call <= 60; call += call < 12 ? 1 : 7) {
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            char rule[64];
            snprintf(rule, sizeof rule, "TARN_SIM_FAIL=any:%d:%s", call, codes[i]);
            int status = run_scenario("failing", (const char *const[]){MEMORY, rule, NULL});
            if (status)
                print_error("%s: status %d\n", rule, status);
            assert_int_equal(status, 0);
        }
    }
}

static void a_failed_hold_holds_nothing(void **state)
{
    (void)state;
    RUNS("hold_failing", "TARN_SIM_FAIL=cuUserObjectCreate:1:2,cuGraphRetainUserObject:1:2");
}

static void the_end_of_the_process_is_no_crash(void **state)
{
    (void)state;
    RUNS("exit", MEMORY);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[0], "scenario") == 0) {
        for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
            if (strcmp(scenarios[i].name, argv[1]) == 0) {
                scenarios[i].run();
                return 0;
            }
        }
        return 126;
    }
    setenv("TARN_DRIVER", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_drivers_do),
        cmocka_unit_test(missing_entry_points_are_tolerated_or_reported),
        cmocka_unit_test(without_a_driver_it_says_what_was_tried),
        cmocka_unit_test(the_toolkits_stub_is_no_driver),
        cmocka_unit_test(auto_takes_what_answers),
        cmocka_unit_test(a_lost_device_is_lost),
        cmocka_unit_test(all_memory_comes_back),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(a_failed_hold_holds_nothing),
        cmocka_unit_test(the_end_of_the_process_is_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
