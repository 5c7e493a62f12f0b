/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The HIP driver does on each of the simulated runtimes what the host device does: memory, streams,
 * events, work, captures, peers; with virtual memory where that may be; and it leaves the program's
 * device, capture mode and last error alone. */
#include "graph_test.h"
#include "hip_test.h"
#include "memory_test.h"
#include "share_test.h"
#include "work_test.h"

#include <stdatomic.h>

#define START(name, major, version, virtual_memory) \
    static int name(void **state)                   \
    {                                               \
        (void)state;                                \
        start_hip(major, version, virtual_memory);  \
        return 0;                                   \
    }
START(start5, 5, NULL, false)
START(start6, 6, NULL, false)
START(start7, 7, NULL, false)
START(start61_virtual, 6, "60100000", true)
START(start7_virtual, 7, NULL, true)

/* ---- Devices ---- */

static void devices_are_described(void **state)
{
    (void)state;
    int count = 0;
    assert_ok(driver->device_count(&count));
    assert_int_equal(count, 2);
    struct driver_properties properties;
    for (int device = 0; device < 2; device++) {
        assert_ok(driver->device_properties(device, &properties));
        assert_string_equal(properties.name, "tarn simulated AMD device");
        assert_int_equal(properties.memory, 64 * MIB);
        assert_int_equal(properties.granule, GRANULE);
        assert_false(properties.alias);
        assert_int_equal(properties.least_priority, 0);
        assert_int_equal(properties.capability_major, 9);
        assert_int_equal(properties.greatest_priority, -1);
        assert_int_equal(properties.virtual_memory, getenv("TARN_HIP_VMM") != NULL);
    }
    assert_refused(driver->device_properties(2, &properties), TARN_ERROR_INVALID_DEVICE,
                   "no device 2");
    assert_refused(driver->activate(-1), TARN_ERROR_INVALID_DEVICE, "no device -1");

    char expected[64];
    snprintf(expected, sizeof expected, "libamdhip64.so.%d, HIP %d.%d, 2 devices",
             HIP_MAJOR(hip.version), HIP_MAJOR(hip.version), hip.version / 100000 % 100);
    assert_non_null(strstr(driver_reason(), "hip: "));
    assert_non_null(strstr(driver_reason(), expected));
}

static void the_device_of_the_caller_stays(void **state)
{
    (void)state;
    for (int mine = 0; mine < 2; mine++) {
        assert_ok(driver->activate(mine));
        int device = -1;
        assert_ok(driver->current(&device));
        assert_int_equal(device, mine);
        for (int d = 0; d < 2; d++) {
            size_t available, total;
            uintptr_t address;
            assert_ok(driver->memory_info(d, &available, &total));
            assert_int_equal(total, 64 * MIB);
            assert_ok(driver->alloc(d, MIB, &address));
            struct hip_pointer_attributes attributes;
            assert_int_equal(hip.call.hipPointerGetAttributes(&attributes, (void *)address),
                             HIP_OK);
            assert_int_equal(attributes.device, d);
            assert_ok(driver->free(d, address));
            driver_stream stream = new_stream(d, true);
            driver_event event = recorded(d, stream);
            assert_ok(driver->event_synchronize(d, event));
            assert_ok(driver->event_destroy(d, event));
            assert_ok(driver->stream_destroy(d, stream));
            assert_ok(driver->peer_enable(d, 1 - d));
            assert_status(driver->free(d, 4096), TARN_ERROR_INVALID_ARGUMENT);
            assert_ok(driver->device_synchronize(d));
            assert_int_equal(current_device(), mine);
        }
    }
    assert_ok(driver->activate(0));
}

/* From HIP 5.6 on the runtime can tell. */
static void a_stream_of_another_device_is_found(void **state)
{
    (void)state;
    driver_stream stream = NULL;
    driver_context before = NULL, after = NULL;
    assert_ok(driver->stream_create(0, 0, false, &stream));
    assert_ok(driver->activate(1));
    assert_ok(driver->context_get(&before));
    assert_ok(driver->stream_check(0, stream));
    if (HIP_MAJOR(hip.version) > 5)
        assert_refused(driver->stream_check(1, stream), TARN_ERROR_INVALID_STREAM,
                       "is of device 0");
    else
        assert_ok(driver->stream_check(1, stream));
    assert_ok(driver->context_get(&after));
    assert_ptr_equal(before, after);
    assert_ok(driver->activate(0));
    assert_ok(driver->context_set(before));
    assert_int_equal(current_device(), 1);
    assert_ok(driver->context_set(NULL)); /* what HIP has not */
    assert_int_equal(current_device(), 1);
    assert_ok(driver->activate(0));
    assert_ok(driver->stream_destroy(0, stream));
}

/* The program shares hipGetLastError() with us, and checks it after its own launches. */
static void failures_stay_out_of_the_last_error(void **state)
{
    (void)state;
    uintptr_t address = 0;
    driver_stream stream = new_stream(0, false);
    assert_status(driver->alloc(0, 65 * MIB, &address), TARN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(hip.call.hipGetLastError(), HIP_OK);
    assert_status(driver->free(0, 4096), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(hip.call.hipGetLastError(), HIP_OK);
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
    assert_status(driver->stream_synchronize(0, stream), TARN_ERROR_CAPTURE);
    driver_graph graph = NULL;
    assert_status(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE);
    assert_int_equal(hip.call.hipGetLastError(), HIP_OK);
    assert_ok(driver->peer_enable(0, 1));
    assert_ok(driver->peer_enable(0, 1)); /* 704 */
    assert_int_equal(hip.call.hipGetLastError(), HIP_OK);
    assert_ok(driver->stream_destroy(0, stream));
}

static void host_memory_is_pinned(void **state)
{
    (void)state;
    uintptr_t pinned = 7;
    static _Alignas(4096) char own[8192];
    bool active = false;
    assert_ok(driver->is_active(0, &active));
    assert_true(active);
    assert_status(driver->is_active(2, &active), TARN_ERROR_INVALID_DEVICE);
    assert_refused(driver->host_alloc(0, 0, &pinned), TARN_ERROR_INVALID_ARGUMENT,
                   "hipHostMalloc of 0 bytes");
    assert_int_equal(pinned, 7);
    assert_ok(driver->host_alloc(0, 5000, &pinned));
    the_device_reaches(pinned, 5000);
    assert_refused(driver->host_free(0, pinned + 4096), TARN_ERROR_INVALID_ARGUMENT,
                   "hipHostFree of");
    assert_refused(driver->host_free(0, 0), TARN_ERROR_INVALID_ARGUMENT, "hipHostFree of");
    assert_refused(driver->host_unregister(0, pinned), TARN_ERROR_INVALID_ARGUMENT,
                   "hipHostUnregister of");
    assert_ok(driver->host_register(1, (uintptr_t)own, 4096));
    assert_refused(driver->host_register(0, (uintptr_t)own, 8192), TARN_ERROR_INVALID_ARGUMENT,
                   "hipHostRegister of");
    assert_int_equal(hip.call.hipGetLastError(), HIP_OK);

    no_capture_bars_pinned_memory((uintptr_t)own + 4096, 4096);
    assert_ok(driver->host_unregister(1, (uintptr_t)own));
    assert_ok(driver->host_free(0, pinned));
}

static void peers_are_enabled(void **state)
{
    (void)state;
    bool possible = false;
    assert_ok(driver->peer_possible(0, 0, &possible));
    assert_true(possible);
    possible = false;
    assert_ok(driver->peer_possible(0, 1, &possible));
    assert_true(possible);
    assert_ok(driver->peer_enable(1, 0));
    assert_ok(driver->peer_enable(1, 0));
    assert_ok(driver->peer_enable(1, 1));
    assert_status(driver->peer_possible(0, 2, &possible), TARN_ERROR_INVALID_DEVICE);
    assert_status(driver->peer_enable(0, 2), TARN_ERROR_INVALID_DEVICE);
}

/* ---- Memory ---- */

static void a_full_device_is_reported(void **state)
{
    (void)state;
    uintptr_t address = 5;
    assert_refused(
        driver->alloc(0, 65 * MIB, &address), TARN_ERROR_OUT_OF_MEMORY,
        HIP_MAJOR(hip.version) < 6
            ? "hipMalloc of 68157440 bytes on device 0: HIP error 2 (hipErrorOutOfMemory)"
            : "hipMalloc of 68157440 bytes on device 0: HIP error 2 (hipErrorOutOfMemory: out of "
              "memory)");
    assert_int_equal(address, 5);
    assert_refused(driver->alloc(0, 0, &address), TARN_ERROR_INVALID_ARGUMENT,
                   "hipMalloc of 0 bytes");
    assert_ok(driver->alloc(0, 60 * MIB, &address));
    uintptr_t more = 5;
    assert_status(driver->alloc(0, 6 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    assert_ok(driver->free(0, address));
    assert_status(driver->free(0, 0), TARN_ERROR_INVALID_ARGUMENT);
}

static void virtual_memory_is_off_unless_asked_for(void **state)
{
    (void)state;
    uintptr_t address = 5;
    driver_piece piece = 5;
    const char *why =
        hip.version < HIP_FIRST_VIRTUAL_MEMORY ? "does not have it" : "TARN_HIP_VMM=1";
    assert_refused(driver->reserve(0, GRANULE, 0, &address), TARN_ERROR_NOT_SUPPORTED, why);
    assert_refused(driver->create(0, GRANULE, 0, &piece), TARN_ERROR_NOT_SUPPORTED, why);
    assert_refused(driver->map(0, GRANULE, GRANULE, 1), TARN_ERROR_NOT_SUPPORTED, "hipMemMap");
    assert_refused(driver->unmap(0, GRANULE, GRANULE), TARN_ERROR_NOT_SUPPORTED, "hipMemUnmap");
    assert_refused(driver->unreserve(0, GRANULE, GRANULE), TARN_ERROR_NOT_SUPPORTED,
                   "hipMemAddressFree");
    assert_int_equal(address, 5);
    assert_int_equal(piece, 5);
}

/* Each of these would make the real library follow a wild pointer; the simulated one aborts. */
static void unknown_addresses_never_reach_the_library(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 8 * GRANULE);
    driver_piece piece = new_piece(0, GRANULE);
    uintptr_t wrong[] = {
        0, GRANULE, range + 1, range + GRANULE, range + 8 * GRANULE, range - GRANULE, UINTPTR_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_status(driver->unreserve(0, wrong[i], 8 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
        assert_status(driver->unmap(0, wrong[i], GRANULE), TARN_ERROR_INVALID_ARGUMENT);
        if (wrong[i] != range + GRANULE)
            assert_status(driver->map(0, wrong[i], GRANULE, piece), TARN_ERROR_INVALID_ARGUMENT);
    }
    assert_status(driver->unreserve(1, range, 8 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->unreserve(0, range, 4 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->unmap(0, range, 0), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->map(0, range, GRANULE, 0), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->release(0, piece));
    assert_ok(driver->unreserve(0, range, 8 * GRANULE));
    assert_status(driver->unreserve(0, range, 8 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
}

static void pieces_are_mapped_and_given_back(void **state)
{
    (void)state;
    size_t before, after, total;
    const int both[] = {0, 1}, none[] = {0, 2};
    assert_ok(driver->memory_info(0, &before, &total));
    uintptr_t range = new_range(0, 8 * GRANULE);
    driver_piece big = new_piece(0, 2 * GRANULE), little = new_piece(0, GRANULE);
    assert_ok(driver->map(0, range, 2 * GRANULE, big));
    assert_ok(driver->map(0, range + 2 * GRANULE, GRANULE, little));
    assert_ok(driver->set_access(0, range, 3 * GRANULE, both, 2)); /* once over the row */
    assert_refused(driver->set_access(0, range, 3 * GRANULE, none, 2), TARN_ERROR_INVALID_DEVICE,
                   "no device 2");
    assert_status(driver->set_access(0, range, 3 * GRANULE, both, 0), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->set_access(0, range, 4 * GRANULE, both, 1), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->set(0, range, 7, 3 * GRANULE, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_int_equal(((unsigned char *)range)[3 * GRANULE - 1], 7);
    assert_ok(driver->memory_info(0, &after, &total));
    assert_int_equal(before - after, 3 * GRANULE);

    assert_status(driver->map(0, range + GRANULE, GRANULE, little), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->unmap(0, range, GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->unmap(0, range + GRANULE, 2 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->unmap(0, range, 4 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->unreserve(0, range, 8 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->unmap(0, range, 3 * GRANULE)); /* two mappings, each by a call of its own */
    assert_ok(driver->map(0, range + GRANULE, GRANULE, little));
    assert_ok(driver->unmap(0, range + GRANULE, GRANULE));
    assert_ok(driver->release(0, big));
    assert_ok(driver->release(0, little));
    assert_ok(driver->unreserve(0, range, 8 * GRANULE));

    driver_piece special = 0;
    assert_ok(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA, &special));
    assert_ok(driver->release(0, special));
    assert_refused(driver->create(0, GRANULE, 64, &special), TARN_ERROR_INVALID_ARGUMENT,
                   "flags 0x40");
    assert_status(driver->create(0, 66 * MIB, 0, &special), TARN_ERROR_OUT_OF_MEMORY);
    assert_status(driver->reserve(0, GRANULE + 1, 0, &range), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->memory_info(0, &after, &total));
    assert_int_equal(before, after);
}

static hip_result (*real_unmap)(void *address, size_t size);
static uintptr_t stuck_at;

static hip_result unmap_but_one(void *address, size_t size)
{
    return (uintptr_t)address == stuck_at ? HIP_INVALID_VALUE : real_unmap(address, size);
}

/* HIP unmaps each mapping by a call of its own. What was unmapped before a failure is mapped
 * again. */
static void an_unmap_that_fails_halfway_leaves_all_mapped(void **state)
{
    (void)state;
    const int own[] = {0};
    uintptr_t range = new_range(0, 2 * GRANULE);
    driver_piece pieces[2] = {new_piece(0, GRANULE), new_piece(0, GRANULE)};
    for (size_t i = 0; i < 2; i++)
        assert_ok(driver->map(0, range + i * GRANULE, GRANULE, pieces[i]));
    assert_ok(driver->set_access(0, range, 2 * GRANULE, own, 1));
    memset((void *)range, 5, 2 * GRANULE);
    real_unmap = hip.call.hipMemUnmap;
    hip.call.hipMemUnmap = unmap_but_one;
    stuck_at = range + GRANULE;
    assert_status(driver->unmap(0, range, 2 * GRANULE), TARN_ERROR_INVALID_ARGUMENT);
    hip.call.hipMemUnmap = real_unmap;
    for (size_t i = 0; i < 2 * GRANULE; i += 4096)
        assert_int_equal(((unsigned char *)range)[i], 5);
    assert_ok(driver->unmap(0, range, 2 * GRANULE));
    assert_ok(driver->release(0, pieces[0]));
    assert_ok(driver->release(0, pieces[1]));
    assert_ok(driver->unreserve(0, range, 2 * GRANULE));
}

/* What the finish of the driver leaves reserved is unknown to the next one. */
static void a_finished_driver_knows_no_ranges(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, GRANULE);
    driver_finish();
    assert_ok(driver_init());
    assert_status(driver->unreserve(0, range, GRANULE), TARN_ERROR_INVALID_ARGUMENT);
}

/* ---- Streams, events, work ---- */

/* ---- Captures ---- */

/* HIP invalidates what bars an allocation, in either barring mode, this thread's or another's. */
static void an_allocation_leaves_captures_alone(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    uintptr_t keep = 0;
    assert_ok(driver->alloc(0, MIB, &keep));
    for (enum driver_capture_mode mode = DRIVER_CAPTURE_GLOBAL; mode <= DRIVER_CAPTURE_RELAXED;
         mode++) {
        uintptr_t address = 0;
        driver_graph graph = NULL;
        driver_event event = new_event(0);
        assert_ok(driver->capture_begin(0, stream, mode));
        assert_ok(driver->set(0, keep, 1, 4, stream));
        assert_ok(driver->alloc(0, MIB, &address));
        assert_ok(driver->free(0, address));
        assert_ok(driver->event_query(0, event));
        assert_ok(driver->event_destroy(0, event));
        driver_stream other = new_stream(0, true);
        assert_ok(driver->stream_synchronize(0, other));
        assert_ok(driver->stream_destroy(0, other));
        assert_ok(driver->capture_end(0, stream, &graph));
        assert_ok(driver->graph_destroy(0, graph));
        assert_ok(driver->device_synchronize(0));
    }

    /* The program's own call does what the driver's does not. */
    void *address = NULL;
    driver_graph graph = NULL;
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_int_equal(hip.call.hipMalloc(&address, MIB), HIP_CAPTURE_UNSUPPORTED);
    (void)hip.call.hipGetLastError();
    struct driver_capture capture;
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.state, DRIVER_CAPTURE_INVALIDATED);
    assert_refused(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE, "HIP error 901");
    assert_null(graph);
    assert_ok(driver->free(0, keep));
    assert_ok(driver->stream_destroy(0, stream));
}

/* A capture that the program began by itself shows on the legacy stream of every device if its own
 * is a blocking one. */
static void a_capture_of_the_program_is_seen(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, true);
    hip_graph graph = NULL;
    struct driver_capture capture;
    assert_int_equal(hip.call.hipStreamBeginCapture(stream, HIP_MODE_THREAD_LOCAL), HIP_OK);
    (void)driver->alloc(9, 1, &(uintptr_t){0});
    for (int device = 0; device < 2; device++)
        assert_status(driver->capture_status(device, NULL, &capture), TARN_ERROR_CAPTURE);
    assert_non_null(strstr(tarn_last_error(), "no device 9"));
    assert_int_equal(hip.call.hipStreamEndCapture(stream, &graph), HIP_OK);
    assert_non_null(graph);
    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->device_synchronize(0));
    assert_ok(driver->stream_destroy(0, stream));
}

/* The one of any device ends the captures of all, from 6.2 on; so `wait_ends_all`. */
static void a_wait_for_a_device_ends_the_captures_of_all(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        driver_stream stream = new_stream(0, false);
        driver_graph graph = NULL;
        struct driver_capture capture;
        bool looks = hip.version >= 60200000;
        assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
        assert_status(driver->device_synchronize(device), looks ? TARN_ERROR_CAPTURE : TARN_OK);
        assert_ok(driver->capture_status(0, stream, &capture));
        assert_int_equal(capture.state, looks ? DRIVER_CAPTURE_INVALIDATED : DRIVER_CAPTURE_ACTIVE);
        assert_status(driver->capture_end(0, stream, &graph), looks ? TARN_ERROR_CAPTURE : TARN_OK);
        if (graph)
            assert_ok(driver->graph_destroy(0, graph));
        assert_ok(driver->stream_destroy(0, stream));
    }
    assert_true(driver->wait_ends_all);
}

static void *end_elsewhere(void *argument)
{
    driver_graph graph = NULL;
    return driver->capture_end(0, argument, &graph) == TARN_ERROR_CAPTURE ? NULL : argument;
}

static void an_end_that_ends_nothing_leaves_the_capture(void **state)
{
    (void)state;
    pthread_t thread;
    void *wrong = NULL;
    driver_graph graph = NULL;
    driver_stream stream = new_stream(0, false), other = new_stream(0, false);
    assert_status(driver->capture_end(0, other, &graph), hip_status(HIP_ILLEGAL_STATE));
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_THREAD_LOCAL));
    assert_status(driver->capture_end(0, other, &graph), hip_status(HIP_ILLEGAL_STATE));
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, stream), 0);
    pthread_join(thread, &wrong);
    assert_null(wrong);
    (void)driver->capture_end(0, stream, &graph);
    assert_ok(driver->device_synchronize(0));
    if (graph)
        assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->stream_destroy(0, stream));
    assert_ok(driver->stream_destroy(0, other));
}

/* Before 5.3 a host function goes through hipStreamAddCallback(), and is not captured. */
static void a_runtime_that_cannot_report_the_end_of_a_graph_is_refused(void **state)
{
    (void)state;
    hold_starts();
    driver_stream stream = new_stream(0, false);
    driver_graph graph = hold_graph(stream, false);
    assert_refused(driver->graph_hold(0, graph, hold_ended, NULL), TARN_ERROR_NOT_SUPPORTED,
                   "has no hipGraphRetainUserObject; HIP 5.3 and later have it");
    assert_ok(driver->graph_destroy(0, graph));
    assert_int_equal(atomic_load(&hold_ends), 0);
}

static void a_host_function_is_captured_or_refused(void **state)
{
    (void)state;
    int number = 0;
    driver_graph graph = NULL;
    driver_stream stream = new_stream(0, false);
    atomic_store(&order, 0);
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    if (hip.version < HIP_VERSION_NUMBER(5, 3)) {
        assert_null(hip.call.hipLaunchHostFunc);
        assert_refused(driver->call(0, stream, take_number, &number), TARN_ERROR_CAPTURE,
                       "hipStreamAddCallback");
    } else {
        assert_ok(driver->call(0, stream, take_number, &number));
    }
    assert_ok(driver->capture_end(0, stream, &graph));
    assert_int_equal(number, 0);
    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(number, hip.version < HIP_VERSION_NUMBER(5, 3) ? 0 : 1);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->stream_destroy(0, stream));
}

/* ---- Versions ---- */

static void kinds_of_memory_are_read_by_version(void **state)
{
    (void)state;
    void *address = NULL;
    int here = 0;
    struct hip_pointer_attributes attributes = {.type = 99};
    assert_int_equal(hip.call.hipMalloc(&address, MIB), HIP_OK);
    assert_int_equal(hip.call.hipPointerGetAttributes(&attributes, address), HIP_OK);
    assert_int_equal(attributes.type, HIP_MAJOR(hip.version) < 6 ? 1 : 2);
    assert_int_equal(hip_memory_kind(hip.version, attributes.type), HIP_MEMORY_DEVICE);
    assert_int_equal(hip.call.hipFree(address), HIP_OK);
    hip_result code = hip.call.hipPointerGetAttributes(&attributes, &here);
    assert_int_equal(code, HIP_MAJOR(hip.version) < 6 ? HIP_INVALID_VALUE : HIP_OK);
    (void)hip.call.hipGetLastError();
    if (!code)
        assert_int_equal(hip_memory_kind(hip.version, attributes.type), HIP_MEMORY_UNKNOWN);
}

static void a_file_descriptor_is_passed_by_version(void **state)
{
    (void)state;
    hip_piece piece = NULL;
    int fd = dup(1);
    void *handle = hip_import_handle(hip.version, &fd);
    assert_ptr_equal(handle, HIP_MAJOR(hip.version) < 7 ? (void *)&fd : (void *)(intptr_t)fd);
    /* The simulated runtime finds the descriptor, which is not a piece. */
    assert_int_equal(hip.call.hipMemImportFromShareableHandle(&piece, handle, HIP_HANDLE_POSIX_FD),
                     HIP_INVALID_VALUE);
    close(fd);
    assert_int_equal(hip.call.hipMemImportFromShareableHandle(&piece, handle, HIP_HANDLE_POSIX_FD),
                     HIP_INVALID_VALUE);
    (void)hip.call.hipGetLastError();
    assert_true(hip_import_handle(HIP_VERSION_NUMBER(7, 0), &fd) == &fd);
}

/* A runtime before 6.1 is not asked for an attribute that it does not have, whatever the user
 * wishes: it would abort. */
static void virtual_memory_needs_its_version(void **state)
{
    (void)state;
    static const struct {
        int major;
        const char *version;
        bool has;
    } cases[] = {{5, "50700000", false},
                 {6, "60032830", false},
                 {6, "60100000", true},
                 {7, "70000000", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct driver_properties properties;
        start_hip(cases[i].major, cases[i].version, true);
        assert_ok(driver->device_properties(1, &properties));
        assert_int_equal(properties.virtual_memory, cases[i].has);
        finish_hip(NULL);
    }
    setenv("TARN_HIP_VMM", "yes", 1);
    setenv("TARN_DRIVER", "hip", 1);
    assert_refused(driver_init(), TARN_ERROR_CONFIGURATION,
                   "TARN_HIP_VMM=yes: the values are 0 and 1");
    loader_fail("libcuda.so.1");
    setenv("TARN_DRIVER", "auto", 1); /* which does not make it the host device silently */
    assert_refused(driver_init(), TARN_ERROR_CONFIGURATION,
                   "TARN_HIP_VMM=yes: the values are 0 and 1");
    finish_hip(NULL);
}

static void what_is_unchecked_is_listed(void **state)
{
    (void)state;
    bool found = false;
    for (const struct hip_unchecked *at = hip_unchecked; at->what; at++) {
        assert_non_null(at->since);
        found |= strcmp(at->what, "hipLaunchHostFunc") == 0;
    }
    assert_true(found);
}

static void results_have_classes(void **state)
{
    (void)state;
    assert_int_equal(hip_status(HIP_ILLEGAL_ADDRESS), TARN_ERROR_DEVICE_LOST);
    assert_int_equal(hip_status(HIP_LAUNCH_FAILURE), TARN_ERROR_DEVICE_LOST);
    assert_int_equal(hip_status(HIP_UNKNOWN), TARN_ERROR_DRIVER);
    assert_int_equal(hip_status(HIP_CONTEXT_IS_DESTROYED), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(hip_status(HIP_DEINITIALIZED), TARN_ERROR_SHUTDOWN);
    assert_int_equal(hip_status(HIP_RUNTIME_MEMORY), TARN_ERROR_DRIVER);
    for (hip_result code = 900; code < 910; code++)
        assert_int_equal(hip_status(code), TARN_ERROR_CAPTURE);
    assert_int_equal(hip_status(HIP_GRAPH_UPDATE_FAILURE), TARN_ERROR_DRIVER);
    assert_int_equal(hip_status(911), TARN_ERROR_DRIVER); /* a channel descriptor to HIP */
}

#define ON_EACH(function)                                              \
    cmocka_unit_test_setup_teardown(function, start5, finish_hip),     \
        cmocka_unit_test_setup_teardown(function, start6, finish_hip), \
        cmocka_unit_test_setup_teardown(function, start7, finish_hip), \
        cmocka_unit_test_setup_teardown(function, start7_virtual, finish_hip)
#define ON_LATER(function)                                         \
    cmocka_unit_test_setup_teardown(function, start6, finish_hip), \
        cmocka_unit_test_setup_teardown(function, start7, finish_hip)
#define ON_VIRTUAL(function)                                                \
    cmocka_unit_test_setup_teardown(function, start61_virtual, finish_hip), \
        cmocka_unit_test_setup_teardown(function, start7_virtual, finish_hip)
#define ON_PLAIN(function)                                             \
    cmocka_unit_test_setup_teardown(function, start5, finish_hip),     \
        cmocka_unit_test_setup_teardown(function, start6, finish_hip), \
        cmocka_unit_test_setup_teardown(function, start7, finish_hip)

int main(void)
{
    setenv("TARN_HOST_DEVICES", "2", 1);
    setenv("TARN_HOST_MEMORY", "64M", 1);
    const struct CMUnitTest tests[] = {
        ON_EACH(devices_are_described),
        ON_EACH(the_device_of_the_caller_stays),
        ON_EACH(a_stream_of_another_device_is_found),
        ON_EACH(failures_stay_out_of_the_last_error),
        ON_EACH(host_memory_is_pinned),
        ON_EACH(memory_comes_and_goes_in_the_order_of_a_stream),
        ON_EACH(peers_are_enabled),
        ON_EACH(a_full_device_is_reported),
        ON_PLAIN(virtual_memory_is_off_unless_asked_for),
        ON_VIRTUAL(unknown_addresses_never_reach_the_library),
        ON_VIRTUAL(pieces_are_mapped_and_given_back),
        ON_VIRTUAL(an_unmap_that_fails_halfway_leaves_all_mapped),
        ON_VIRTUAL(pieces_go_through_descriptors),
        ON_VIRTUAL(a_finished_driver_knows_no_ranges),
        ON_EACH(streams_and_events_keep_order),
        ON_EACH(copies_and_fills_are_work),
        ON_EACH(a_capture_becomes_a_graph_that_runs),
        ON_EACH(dependencies_can_be_replaced),
        ON_EACH(an_allocation_leaves_captures_alone),
        ON_EACH(a_capture_of_the_program_is_seen),
        ON_EACH(a_wait_for_a_device_ends_the_captures_of_all),
        ON_EACH(an_end_that_ends_nothing_leaves_the_capture),
        ON_EACH(a_host_function_is_captured_or_refused),
        ON_EACH(a_node_names_those_before_it),
        ON_LATER(the_end_of_a_graph_is_told_once),
        ON_LATER(the_end_of_a_graph_waits_for_its_work),
        cmocka_unit_test_setup_teardown(a_runtime_that_cannot_report_the_end_of_a_graph_is_refused,
                                        start5, finish_hip),
        ON_EACH(kinds_of_memory_are_read_by_version),
        ON_VIRTUAL(a_file_descriptor_is_passed_by_version),
        cmocka_unit_test_teardown(virtual_memory_needs_its_version, finish_hip),
        cmocka_unit_test(what_is_unchecked_is_listed),
        cmocka_unit_test(results_have_classes),
        ON_EACH(threads_use_it_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
