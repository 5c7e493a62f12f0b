/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The CUDA driver does on the simulated libcuda what the host device does: memory, streams, events,
 * work, captures, peers; and it leaves the program's contexts alone. */
#include "cuda_test.h"
#include "graph_test.h"
#include "memory_test.h"
#include "share_test.h"
#include "work_test.h"

#include <stdatomic.h>

static int start_cuda(void **state)
{
    (void)state;
    setenv("TARN_DRIVER", "cuda", 1);
    assert_ok(driver_init());
    assert_string_equal(driver->name, "cuda");
    return 0;
}

#define CUDA_TEST(function) cmocka_unit_test_setup_teardown(function, start_cuda, finish)

/* First of all tests: afterwards every device has its context. */
static void unused_devices_get_no_context(void **state)
{
    (void)state;
    int count = 0;
    assert_ok(driver->device_count(&count));
    assert_int_equal(count, 2);
    for (int device = 0; device < 2; device++) {
        struct driver_properties properties;
        assert_ok(driver->device_properties(device, &properties));
        assert_string_equal(properties.name, "tarn simulated CUDA device");
        assert_int_equal(properties.memory, 64 * MIB);
        assert_int_equal(properties.granule, GRANULE);
        assert_true(properties.virtual_memory && properties.alias);
        assert_int_equal(properties.least_priority, 0);
        assert_int_equal(properties.greatest_priority, -5);
        assert_false(has_context(device));
    }
    bool possible = false;
    assert_ok(driver->peer_possible(0, 1, &possible));
    assert_true(possible);
    assert_ok(driver->is_active(0, &possible));
    assert_false(possible);
    assert_false(has_context(0) || has_context(1));

    driver_stream stream = new_stream(1, false);
    assert_true(has_context(1));
    assert_false(has_context(0));
    assert_ok(driver->stream_destroy(1, stream));
    struct driver_properties properties;
    assert_ok(driver->device_properties(1, &properties)); /* asks, now that there is one */
    assert_int_equal(properties.greatest_priority, -3);

    assert_refused(driver->device_properties(2, &properties), TARN_ERROR_INVALID_DEVICE,
                   "no device 2");
    assert_refused(driver->activate(-1), TARN_ERROR_INVALID_DEVICE, "no device -1");
    assert_non_null(strstr(driver_reason(), "cuda: "));
    assert_non_null(strstr(driver_reason(), "libcuda.so.1, driver 13.0, 2 devices"));
}

static void the_context_of_the_caller_stays(void **state)
{
    (void)state;
    assert_ok(driver->activate(0));
    cu_context zero = current_context();
    assert_non_null(zero);
    assert_ok(driver->activate(1));
    cu_context one = current_context();
    assert_ptr_not_equal(zero, one);
    int device = -1;
    assert_ok(driver->current(&device));
    assert_int_equal(device, 1);

    cu_context before[] = {NULL, zero, one};
    for (int i = 0; i < 3; i++) {
        set_context(before[i]);
        for (int d = 0; d < 2; d++) {
            size_t available, total;
            uintptr_t address;
            assert_ok(driver->memory_info(d, &available, &total));
            assert_ok(driver->alloc(d, MIB, &address));
            assert_ok(driver->free(d, address));
            driver_stream stream = new_stream(d, true);
            driver_event event = recorded(d, stream);
            assert_ok(driver->event_synchronize(d, event));
            assert_ok(driver->event_destroy(d, event));
            assert_ok(driver->stream_destroy(d, stream));
            assert_ok(driver->peer_enable(d, 1 - d));
            assert_status(driver->free(d, 4096), TARN_ERROR_INVALID_ARGUMENT);
            assert_ok(driver->device_synchronize(d));
            assert_ptr_equal(current_context(), before[i]);
        }
    }
    set_context(NULL);
    assert_ok(driver->current(&device));
    assert_int_equal(device, 0);
}

static void others_are_known_where_nvml_says(void **state)
{
    (void)state;
    struct driver_process list[2];
    /* Read at each question, the first included */
    setenv("TARN_SIM_PROCESSES", "41:1048576,42:?,43:7", 1);
    assert_int_equal(driver->processes(1, list, 2), 2);
    assert_int_equal(list[0].number, 41);
    assert_int_equal(list[0].bytes, MIB);
    assert_int_equal(list[1].number, 42);
    assert_true(list[1].bytes == SIZE_MAX);
    unsetenv("TARN_SIM_PROCESSES");
    assert_int_equal(driver->processes(0, list, 2), 0);
}

static void host_memory_is_pinned(void **state)
{
    (void)state;
    uintptr_t pinned = 7;
    static _Alignas(4096) char own[8192];
    bool active = false;
    assert_ok(driver->is_active(1, &active));
    assert_true(active);
    assert_refused(driver->is_active(2, &active), TARN_ERROR_INVALID_DEVICE, "no device 2");
    assert_refused(driver->host_alloc(0, 0, &pinned), TARN_ERROR_INVALID_ARGUMENT,
                   "cuMemHostAlloc of 0 bytes");
    assert_int_equal(pinned, 7);
    assert_ok(driver->host_alloc(0, 5000, &pinned));
    the_device_reaches(pinned, 5000);
    assert_refused(driver->host_free(0, pinned + 4096), TARN_ERROR_INVALID_ARGUMENT,
                   "cuMemFreeHost of");
    assert_refused(driver->host_unregister(0, pinned), TARN_ERROR_INVALID_ARGUMENT,
                   "CUDA error 713");
    assert_ok(driver->host_register(1, (uintptr_t)own, 4096));
    assert_refused(driver->host_register(0, (uintptr_t)own, 8192), TARN_ERROR_INVALID_ARGUMENT,
                   "cuMemHostRegister of");
    assert_refused(driver->host_free(0, (uintptr_t)own), TARN_ERROR_INVALID_ARGUMENT,
                   "cuMemFreeHost");

    no_capture_bars_pinned_memory((uintptr_t)own + 4096, 4096);
    assert_ok(driver->host_unregister(1, (uintptr_t)own));
    assert_ok(driver->host_free(0, pinned));
}

static void pieces_are_mapped_and_given_back(void **state)
{
    (void)state;
    size_t before, after, total;
    assert_ok(driver->memory_info(0, &before, &total));
    assert_int_equal(total, 64 * MIB);
    uintptr_t range = new_range(0, 8 * GRANULE);
    driver_piece piece = new_piece(0, 2 * GRANULE);
    map_at(0, range, 2 * GRANULE, piece);
    map_at(0, range + 4 * GRANULE, 2 * GRANULE, piece); /* the alias shows the same */
    assert_ok(driver->set(0, range, 7, 16, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_int_equal(((unsigned char *)range)[4 * GRANULE + 15], 7);
    assert_ok(driver->memory_info(0, &after, &total));
    assert_int_equal(before - after, 2 * GRANULE);

    assert_refused(driver->unmap(0, range, GRANULE), TARN_ERROR_INVALID_ARGUMENT,
                   "cuMemUnmap of 2097152 bytes");
    assert_refused(driver->unreserve(0, range, 8 * GRANULE), TARN_ERROR_INVALID_ARGUMENT,
                   "CUDA error 1 (CUDA_ERROR_INVALID_VALUE");
    assert_refused(driver->map(0, range + 1, GRANULE, piece), TARN_ERROR_INVALID_ARGUMENT,
                   "cuMemMap");
    assert_ok(driver->unmap(0, range, 2 * GRANULE));
    assert_ok(driver->unmap(0, range + 4 * GRANULE, 2 * GRANULE));
    assert_ok(driver->release(0, piece));
    assert_status(driver->release(0, piece), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->unreserve(0, range, 8 * GRANULE));

    driver_piece special = 0;
    assert_ok(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE | DRIVER_PIECE_RDMA, &special));
    assert_ok(driver->release(0, special));
    assert_refused(driver->create(0, GRANULE, 64, &special), TARN_ERROR_INVALID_ARGUMENT,
                   "flags 0x40");
    assert_ok(driver->memory_info(0, &after, &total));
    assert_int_equal(before, after);
}

static void a_full_device_is_reported(void **state)
{
    (void)state;
    uintptr_t address = 5;
    driver_piece piece = 5;
    assert_refused(driver->alloc(0, 65 * MIB, &address), TARN_ERROR_OUT_OF_MEMORY,
                   "cuMemAlloc of 68157440 bytes on device 0: CUDA error 2 "
                   "(CUDA_ERROR_OUT_OF_MEMORY: out of memory)");
    assert_int_equal(address, 5);
    assert_refused(driver->create(0, 66 * MIB, 0, &piece), TARN_ERROR_OUT_OF_MEMORY,
                   "cuMemCreate of");
    assert_int_equal(piece, 5);
    assert_ok(driver->alloc(0, 60 * MIB, &address));
    assert_status(driver->create(0, 6 * MIB, 0, &piece), TARN_ERROR_OUT_OF_MEMORY);
    assert_ok(driver->free(0, address));
}

static void access_for_peers_is_given_in_a_list(void **state)
{
    (void)state;
    const int both[] = {0, 1}, none[] = {0, 2};
    uintptr_t range = new_range(0, GRANULE);
    driver_piece piece = new_piece(0, GRANULE);
    assert_ok(driver->map(0, range, GRANULE, piece));
    assert_ok(driver->peer_enable(1, 0));
    assert_ok(driver->peer_enable(1, 0)); /* 704 is fine */
    assert_ok(driver->peer_enable(1, 1));
    assert_ok(driver->set_access(0, range, GRANULE, both, 2));
    assert_refused(driver->set_access(0, range, GRANULE, none, 2), TARN_ERROR_INVALID_DEVICE,
                   "no device 2");
    assert_status(driver->set_access(0, range, GRANULE, both, 0), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(driver->unmap(0, range, GRANULE));
    assert_ok(driver->release(0, piece));
    assert_ok(driver->unreserve(0, range, GRANULE));
    bool possible = false;
    assert_ok(driver->peer_possible(0, 0, &possible));
    assert_true(possible);
    assert_status(driver->peer_possible(0, 2, &possible), TARN_ERROR_INVALID_DEVICE);
    assert_status(driver->peer_enable(0, 2), TARN_ERROR_INVALID_DEVICE);
}

/* ---- Captures ---- */

/* The vendor's own calls: the graph is destroyed first, what was instantiated from it later, its
 * work ends last. And what tarn's launch keeps of a graph that was destroyed behind its back goes
 * when its address serves again. */
static void the_vendors_own_calls_end_a_graph(void **state)
{
    (void)state;
    int one = 1;
    cu_result (*instantiate)(cu_graph_exec *, cu_graph, unsigned long long) = NULL;
    cu_result (*launch)(cu_graph_exec, cu_stream) = NULL;
    cu_result (*destroy_exec)(cu_graph_exec) = NULL;
    cu_result (*destroy)(cu_graph) = NULL;
    loader_store(&instantiate, their("cuGraphInstantiateWithFlags"));
    loader_store(&launch, their("cuGraphLaunch"));
    loader_store(&destroy_exec, their("cuGraphExecDestroy"));
    loader_store(&destroy, their("cuGraphDestroy"));
    assert_ok(driver->activate(0));
    hold_starts();
    driver_stream stream = new_stream(0, false);
    driver_graph graph = hold_graph(stream, true);
    cu_graph_exec exec = NULL;
    assert_ok(driver->graph_hold(0, graph, hold_ended, &one));
    assert_int_equal(instantiate(&exec, graph, 0), CU_OK);
    assert_int_equal(destroy(graph), CU_OK);
    assert_int_equal(atomic_load(&hold_ends), 0);
    assert_int_equal(launch(exec, stream), CU_OK);
    assert_int_equal(destroy_exec(exec), CU_OK);
    assert_int_equal(atomic_load(&hold_ends), 0);
    atomic_store(&hold_gate, 1);
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(atomic_load(&hold_ends), 1);

    graph = hold_graph(stream, false);
    assert_ok(driver->graph_hold(0, graph, hold_ended, &one));
    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(destroy(graph), CU_OK);
    assert_int_equal(atomic_load(&hold_ends), 1);
    driver_finish();
    assert_int_equal(atomic_load(&hold_ends), 2);
}

/* The simulated library's own: references of the caller's and of graphs, moved or more, and one
 * destructor. */
static void user_objects_are_counted(void **state)
{
    (void)state;
    int one = 1;
    cu_result (*create)(cu_user_object *, void *, cu_host_function, unsigned, unsigned) = NULL;
    cu_result (*release)(cu_user_object, unsigned) = NULL;
    cu_result (*retain)(cu_graph, cu_user_object, unsigned, unsigned) = NULL;
    cu_user_object object = NULL;
    loader_store(&create, their("cuUserObjectCreate"));
    loader_store(&release, their("cuUserObjectRelease"));
    loader_store(&retain, their("cuGraphRetainUserObject"));
    assert_ok(driver->activate(0));
    hold_starts();
    driver_stream stream = new_stream(0, false);
    driver_graph first = hold_graph(stream, false), second = hold_graph(stream, false);
    assert_int_equal(create(&object, &one, hold_ended, 0, CU_USER_OBJECT_NOT_SYNCHRONIZED),
                     CU_INVALID_VALUE);
    assert_int_equal(create(&object, &one, hold_ended, 2, 0), CU_INVALID_VALUE);
    assert_int_equal(create(&object, &one, NULL, 2, CU_USER_OBJECT_NOT_SYNCHRONIZED),
                     CU_INVALID_VALUE);
    assert_int_equal(create(&object, &one, hold_ended, 2, CU_USER_OBJECT_NOT_SYNCHRONIZED), CU_OK);
    assert_int_equal(retain(first, object, 3, CU_USER_OBJECT_IS_MOVED), CU_INVALID_VALUE);
    assert_int_equal(retain(NULL, object, 1, 0), CU_INVALID_VALUE);
    /* 2 that the caller has, 3 */
    assert_int_equal(retain(first, object, 3, 0), CU_OK);
    assert_int_equal(retain(second, object, 1, CU_USER_OBJECT_IS_MOVED), CU_OK); /* 1, 3, 1 */
    assert_int_equal(release(object, 6), CU_INVALID_VALUE);
    assert_int_equal(release(object, 1), CU_OK);
    assert_ok(driver->graph_destroy(0, first));
    assert_int_equal(atomic_load(&hold_ends), 0);
    assert_ok(driver->graph_destroy(0, second));
    assert_int_equal(atomic_load(&hold_ends), 1);
    assert_int_equal(release(object, 1), CU_INVALID_VALUE);
    assert_ok(driver->stream_destroy(0, stream));
}

static void what_breaks_a_capture_is_told(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, true);
    driver_event event = new_event(0);
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_refused(driver->event_record(0, event, NULL), TARN_ERROR_CAPTURE, "CUDA error 906");
    driver_graph graph = NULL;
    assert_refused(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE, "CUDA error 901");
    assert_refused(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE, "CUDA error 401");
    assert_null(graph);

    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    struct driver_capture capture;
    (void)driver->alloc(9, 1, &(uintptr_t){0});
    assert_status(driver->capture_status(0, NULL, &capture), TARN_ERROR_CAPTURE);
    assert_non_null(strstr(tarn_last_error(), "no device 9"));
    assert_status(driver->stream_synchronize(0, stream), TARN_ERROR_CAPTURE);
    assert_refused(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE,
                   "cuStreamEndCapture");
    assert_null(graph);

    /* The program's own call, in the mode that its thread has: 900, and the capture is invalid. */
    cu_result (*alloc)(cu_address *, size_t) = NULL;
    cu_address address = 0;
    loader_store(&alloc, their("cuMemAlloc_v2"));
    assert_ok(driver->activate(0));
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_int_equal(alloc(&address, MIB), CU_CAPTURE_UNSUPPORTED);
    assert_refused(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE, "CUDA error 901");

    /* Of an event, CUDA says something else while the capture is open than when it is over. */
    for (int i = 0; i < 2; i++) {
        assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_RELAXED));
        assert_ok(driver->event_record(0, event, stream));
        assert_refused(i ? driver->event_query(0, event) : driver->event_synchronize(0, event),
                       TARN_ERROR_CAPTURE, "CUDA error 907");
        assert_refused(driver->event_query(0, event), TARN_ERROR_CAPTURE, "CUDA error 1 ");
        assert_status(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE);
        assert_refused(driver->event_synchronize(0, event), TARN_ERROR_CAPTURE, "CUDA error 1 ");
        assert_refused(driver->stream_wait_event(0, stream, event), TARN_ERROR_CAPTURE,
                       "CUDA error 1 ");
    }
    assert_ok(driver->event_destroy(0, event));
    assert_ok(driver->stream_destroy(0, stream));
    set_context(NULL);
}

int main(void)
{
    setenv("TARN_HOST_DEVICES", "2", 1);
    setenv("TARN_HOST_MEMORY", "64M", 1);
    const struct CMUnitTest tests[] = {
        CUDA_TEST(unused_devices_get_no_context),
        CUDA_TEST(the_context_of_the_caller_stays),
        CUDA_TEST(others_are_known_where_nvml_says),
        CUDA_TEST(host_memory_is_pinned),
        CUDA_TEST(memory_comes_and_goes_in_the_order_of_a_stream),
        CUDA_TEST(pieces_are_mapped_and_given_back),
        CUDA_TEST(pieces_go_through_descriptors),
        CUDA_TEST(a_full_device_is_reported),
        CUDA_TEST(access_for_peers_is_given_in_a_list),
        CUDA_TEST(streams_and_events_keep_order),
        CUDA_TEST(copies_and_fills_are_work),
        CUDA_TEST(a_capture_becomes_a_graph_that_runs),
        CUDA_TEST(dependencies_can_be_replaced),
        CUDA_TEST(what_breaks_a_capture_is_told),
        CUDA_TEST(threads_use_it_side_by_side),
        CUDA_TEST(the_end_of_a_graph_is_told_once),
        CUDA_TEST(the_end_of_a_graph_waits_for_its_work),
        CUDA_TEST(the_vendors_own_calls_end_a_graph),
        CUDA_TEST(a_node_names_those_before_it),
        CUDA_TEST(user_objects_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
