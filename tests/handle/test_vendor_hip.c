/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* AMD's rows on the simulated libraries: MIOpen, rocBLAS, hipBLAS, hipBLASLt, rocSPARSE, hipSPARSE,
 * hipSOLVER. */
#include "driver/hip_test.h"
#include "handle/vendor_test.h"

#include <signal.h>
#include <tarn/stats.h>
#include <unistd.h>

static const struct subject hip_subjects[] = {
    {TARN_LIBRARY_MIOPEN, "MIOPEN", "3.5.0"},
    {TARN_LIBRARY_ROCBLAS, "ROCBLAS", "5.0.0.0-simulated"},
    {TARN_LIBRARY_HIPBLAS, "HIPBLAS", ""},
    {TARN_LIBRARY_HIPBLASLT, "HIPBLASLT", ""},
    {TARN_LIBRARY_ROCSPARSE, "ROCSPARSE", ""},
    {TARN_LIBRARY_HIPSPARSE, "HIPSPARSE", ""},
    {TARN_LIBRARY_HIPSOLVER, "HIPSOLVER", ""},
};

static int64_t bytes_ever(void)
{
    tarn_stats stats = {.size = sizeof stats};
    assert_ok(tarn_device_stats_get(0, &stats));
    return stats.requested_bytes[TARN_STAT_ALL].allocated;
}

/* A search for solutions wants a buffer, through the allocator that tarn has given the handle. */
static void miopen_has_its_memory_from_tarn(void **state)
{
    (void)state;
    void *handle = NULL;
    int (*find)(void *, void *, void *, void *, size_t *, size_t) = NULL;
    size_t found = 1;
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_handle_get(TARN_LIBRARY_MIOPEN, stream, &handle));
    void *library = entry_at(TARN_LIBRARY_MIOPEN)->opened;
    loader_store(&find, dlsym(library, "miopenFindSolutions"));
    int64_t before = bytes_ever();
    assert_int_equal(find(handle, NULL, NULL, NULL, &found, 0), 0);
    assert_int_equal(found, 0);
    assert_int_equal(bytes_ever() - before, 3 * MIB);
    assert_int_equal(calls_in(library, "memory"), 0);
    assert_ok(tarn_stream_return(stream));
}

/* rocBLAS itself says whose workspace a handle is on. */
static void rocblas_is_on_tarns_workspace(void **state)
{
    (void)state;
    void *handle = NULL;
    bool (*manages)(void *) = NULL;
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_handle_get(TARN_LIBRARY_ROCBLAS, stream, &handle));
    loader_store(&manages, dlsym(entry_at(TARN_LIBRARY_ROCBLAS)->opened,
                                 "rocblas_is_managing_device_memory"));
    assert_false(manages(handle));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_LIBRARY, NULL));
    assert_ok(tarn_handle_get(TARN_LIBRARY_ROCBLAS, stream, &handle));
    assert_true(manages(handle));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    assert_ok(tarn_handle_get(TARN_LIBRARY_ROCBLAS, stream, &handle));
    assert_false(manages(handle));
    assert_ok(tarn_stream_return(stream));
}

/* rocBLAS frees the memory that a handle came with when it is first given other, which ends a
 * capture. The prewarm has done that. */
static void a_prewarmed_rocblas_handle_is_bound_in_a_capture(void **state)
{
    (void)state;
    bool (*manages)(void *) = NULL;
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    for (int on = 0; on < 2; on++) {
        void *graph = NULL;
        tarn_lease lease;
        tarn_capture_state captures;
        assert_ok(tarn_handle_trim(TARN_LIBRARY_ROCBLAS, 0, NULL));
        assert_ok(on ? tarn_handle_prewarm(TARN_LIBRARY_ROCBLAS, TARN_CURRENT_DEVICE, stream, 1)
                     : tarn_handle_prewarm(TARN_LIBRARY_ROCBLAS, 0, TARN_STREAM_NONE, 1));
        loader_store(&manages, dlsym(entry_at(TARN_LIBRARY_ROCBLAS)->opened,
                                     "rocblas_is_managing_device_memory"));
        assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
        assert_ok(tarn_handle_lease(TARN_LIBRARY_ROCBLAS, stream, &lease));
        assert_false(manages(lease.handle));
        assert_ok(tarn_capture_state_get(stream, &captures, NULL, NULL));
        assert_int_equal(captures, TARN_CAPTURE_ACTIVE);
        assert_ok(tarn_handle_return(&lease));
        assert_ok(tarn_capture_end(stream, &graph));
        assert_non_null(graph);
        assert_ok(driver->graph_destroy(0, graph));
    }

    /* One that has its own memory, as the policy wants it outside of captures, keeps that in
     * one. */
    void *graph = NULL;
    tarn_lease lease;
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_handle_lease(TARN_LIBRARY_ROCBLAS, stream, &lease));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_lease_bind(&lease, stream));
    assert_true(manages(lease.handle));
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    assert_ok(workspaces_clear_stream(stream, NULL));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_handle_trim(TARN_LIBRARY_ROCBLAS, 0, NULL));
}

static int atomics_of_a_new_thread(void)
{
    void *handle = NULL;
    int mode = -1, (*get)(void *, int *) = NULL;
    assert_ok(tarn_handle_get(TARN_LIBRARY_ROCBLAS, TARN_STREAM_CURRENT, &handle));
    loader_store(&get, dlsym(entry_at(TARN_LIBRARY_ROCBLAS)->opened, "rocblas_get_atomics_mode"));
    assert_int_equal(get(handle, &mode), 0);
    return mode;
}

/* Those of rocBLAS 5 are not allowed; where the environment says otherwise, or the program, they
 * are. */
static void atomics_are_as_the_library_has_them(void **state)
{
    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        assert_ok(tarn_handle_trim(TARN_LIBRARY_ROCBLAS, 0, NULL));
        if (wanted)
            setenv("ROCBLAS_DEFAULT_ATOMICS_MODE", "1", 1);
        assert_int_equal(atomics_of_a_new_thread(), wanted);
        assert_ok(tarn_handle_mode_set(TARN_LIBRARY_ROCBLAS, TARN_HANDLE_ATOMICS,
                                       TARN_HANDLE_MODE_FOR_ALL, !wanted, NULL));
        assert_int_equal(atomics_of_a_new_thread(), !wanted);
        assert_ok(tarn_handle_mode_set(TARN_LIBRARY_ROCBLAS, TARN_HANDLE_ATOMICS,
                                       TARN_HANDLE_MODE_FOR_ALL, -1, NULL));
        assert_int_equal(atomics_of_a_new_thread(), wanted);
        tarn_stream stream;
        assert_ok(tarn_stream_lease(0, 0, &stream)); /* the next one is on another stream, where
                                                        this thread has none */
        assert_ok(tarn_stream_set(stream));
    }
    unsetenv("ROCBLAS_DEFAULT_ATOMICS_MODE");
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
}

static atomic_bool let_go;

static void hold(void *argument)
{
    (void)argument;
    while (!atomic_load(&let_go))
        usleep(100);
}

/* The streams that have_on_two() asks on. */
static tarn_stream pair[2];

/* A thread that works on one stream, and goes on to another while that work runs, has another
 * handle there. */
static const char *have_on_two(const struct subject *subject)
{
    void *first = NULL, *second = NULL;
    if (tarn_handle_get(subject->library, pair[0], &first) ||
        tarn_handle_get(subject->library, pair[1], &second))
        return "a thread has a handle on each stream";
    return first == second ? "the streams have two handles" : NULL;
}

static const char *have_on_the_other(const struct subject *subject)
{
    void *handle = NULL;
    return tarn_handle_get(subject->library, pair[1], &handle) ? "a thread has a handle" : NULL;
}

static const char *have_on_the_first(const struct subject *subject)
{
    void *handle = NULL;
    return tarn_handle_get(subject->library, pair[0], &handle) ? "a thread has a handle" : NULL;
}

/* All of AMD's handles have memory of the device of their own, or a rocBLAS handle in them, which a
 * change of stream does not order (ROCm/rocBLAS issue 1253; MIOpen, src/hip/handlehip.cpp;
 * rocSPARSE, library/src/include/handle.h). */
static void no_handle_serves_two_streams_at_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < subject_count; i++) {
        const struct subject *subject = &subjects[i];
        for (int j = 0; j < 2; j++)
            assert_ok(tarn_stream_lease(0, 0, &pair[j]));
        void *busy = native_of(pair[0]), *other = native_of(pair[1]);
        in_thread(have_on_two, subject);
        assert_ok(tarn_handle_trim(subject->library, 0, NULL));

        in_thread(have_on_the_first, subject);
        atomic_store(&let_go, false);
        assert_ok(driver->call(0, busy, hold, NULL)); /* what the library queued */
        in_thread(have_on_the_other, subject);
        /* The same one ... */
        assert_int_equal(stats_of(subject).available, 1);
        /* ... which comes after that */
        assert_int_equal(driver->stream_query(0, other), TARN_ERROR_NOT_READY);
        atomic_store(&let_go, true);
        for (int j = 0; j < 2; j++) {
            assert_ok(tarn_stream_synchronize(pair[j]));
            assert_ok(workspaces_clear_stream(pair[j], NULL));
            assert_ok(tarn_stream_return(pair[j]));
        }
        assert_ok(tarn_handle_trim(subject->library, 0, NULL));
    }
}

static bool rocblas_manages(void *handle)
{
    bool (*manages)(void *) = NULL;
    loader_store(&manages, dlsym(entry_at(TARN_LIBRARY_ROCBLAS)->opened,
                                 "rocblas_is_managing_device_memory"));
    return manages(handle);
}

/* Captures with the memory that the thread's handle came with, and then asks for that handle in
 * every way. */
static const char *capture_own_memory(const struct subject *subject)
{
    tarn_workspace_call call = {0};
    void *handle = NULL, *again = NULL, *graph = NULL;
    if (tarn_stream_set(pair[0]) ||
        tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &handle) || !rocblas_manages(handle))
        return "under this policy the library has its own memory";
    if (tarn_capture_begin(pair[0], TARN_CAPTURE_RELAXED) ||
        tarn_workspace_begin(subject->library, TARN_STREAM_CURRENT, NULL, &call) ||
        call.handle != handle || call.pointer || tarn_workspace_end(&call) ||
        tarn_capture_end(pair[0], &graph) || !graph)
        return "a capture with the library's memory";
    if (tarn_workspace_begin(subject->library, TARN_STREAM_CURRENT, NULL, &call) ||
        call.handle != handle || call.pointer || tarn_workspace_end(&call) ||
        !rocblas_manages(handle))
        return "a call has no workspace";
    if (tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL) ||
        tarn_handle_get(subject->library, TARN_STREAM_CURRENT, &again) || again != handle ||
        !rocblas_manages(handle))
        return "nor has the handle";
    return driver->graph_destroy(0, graph) ? "the graph is destroyed" : NULL;
}

/* What a graph uses of a rocBLAS handle's own memory is not freed: the library would do so with the
 * first workspace. */
static void memory_that_a_graph_shares_with_its_handle_stays(void **state)
{
    (void)state;
    const struct subject *subject = &subjects[1]; /* rocBLAS */
    tarn_lease lease;
    assert_int_equal(subject->library, TARN_LIBRARY_ROCBLAS);
    assert_ok(tarn_handle_trim(subject->library, 0, NULL));
    assert_ok(tarn_stream_lease(0, 0, &pair[0]));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    in_thread(capture_own_memory, subject);
    assert_int_equal(stats_of(subject).available, 1);

    /* Nor has it for whoever has it next: what was instantiated of the graph may use that memory
     * still. */
    assert_ok(tarn_handle_prewarm(subject->library, TARN_CURRENT_DEVICE, pair[0], 1));
    assert_int_equal(stats_of(subject).available, 1);
    assert_ok(tarn_handle_lease(subject->library, pair[0], &lease));
    assert_true(rocblas_manages(lease.handle));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_stream_return(pair[0]));
    assert_ok(tarn_handle_trim(subject->library, 0, NULL));
    assert_int_equal(calls(subject, "memory"), 0);
}

/* Numbers that only a handle tells, as the vendors write them. */
static void scenario_versions_of_handles(void)
{
    static const struct {
        tarn_library library;
        const char *version;
    } versions[] = {{TARN_LIBRARY_HIPBLASLT, "100000"},
                    {TARN_LIBRARY_ROCSPARSE, "400002"},
                    {TARN_LIBRARY_HIPSPARSE, "400001"}};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        void *handle = NULL;
        tarn_library_info info = {.size = sizeof info};
        NEED(tarn_handle_get(versions[i].library, TARN_STREAM_CURRENT, &handle) == TARN_OK);
        NEED(tarn_library_info_get(versions[i].library, &info) == TARN_OK);
        NEED(strcmp(info.version, versions[i].version) == 0);
    }
}

static void versions_that_a_handle_tells(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("versions_of_handles", strict), 0);
}

/* HIP by default, whose memory is plain segments: the libraries have tarn's memory there too. */
static void scenario_no_virtual_memory(void)
{
    void *handle = NULL;
    int (*find)(void *, void *, void *, void *, size_t *, size_t) = NULL;
    bool (*manages)(void *) = NULL;
    have_one_of_each(NULL);
    in_threads(2);
    NEED(tarn_handle_get(TARN_LIBRARY_ROCBLAS, TARN_STREAM_CURRENT, &handle) == TARN_OK);
    loader_store(&manages, dlsym(entry_at(TARN_LIBRARY_ROCBLAS)->opened,
                                 "rocblas_is_managing_device_memory"));
    NEED(manages && !manages(handle));
    NEED(tarn_handle_get(TARN_LIBRARY_MIOPEN, TARN_STREAM_CURRENT, &handle) == TARN_OK);
    loader_store(&find, dlsym(entry_at(TARN_LIBRARY_MIOPEN)->opened, "miopenFindSolutions"));
    int64_t before = bytes_ever();
    NEED(find && find(handle, NULL, NULL, NULL, NULL, 0) == 0);
    NEED(bytes_ever() - before == 3 * MIB);
    tarn_workspace_call call = {0};
    NEED(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL) == TARN_OK);
    NEED(tarn_workspace_begin(TARN_LIBRARY_ROCBLAS, TARN_STREAM_CURRENT, NULL, &call) == TARN_OK &&
         call.handle && call.pointer);
    NEED(tarn_workspace_end(&call) == TARN_OK);
}

static void without_virtual_memory_libraries_have_tarns(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("no_virtual_memory", strict), 0);
}

/* The driver is on the runtime of ROCm 6, and the library that is found is of ROCm 7. */
static void scenario_other_runtime(void)
{
    int count = 0;
    void *handle = NULL;
    NEED(dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL));
    NEED(tarn_device_count_get(&count) == TARN_OK && HIP_MAJOR(hip.version) == 6);
    NEED(tarn_handle_get(TARN_LIBRARY_ROCBLAS, TARN_STREAM_CURRENT, &handle) ==
             TARN_ERROR_NOT_SUPPORTED &&
         !handle);
    NEED(strstr(tarn_last_error(), "linked against another libamdhip64"));
    NEED(dlopen("libhipsparse.so.1", RTLD_NOW | RTLD_LOCAL)); /* that of ROCm 6 */
    NEED(tarn_handle_get(TARN_LIBRARY_HIPSPARSE, TARN_STREAM_CURRENT, &handle) == TARN_OK &&
         handle);
}

static void a_library_of_another_rocm_is_refused(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("other_runtime", strict), 0);
}

/* Past tarn: a create during a capture ends the process, as the real library does
 * (ROCm/rocm-libraries issue 11838). */
static void scenario_hipblaslt_in_capture(void)
{
    int count = 0;
    void *native = NULL, *handle = NULL;
    tarn_stream stream;
    struct entry *entry = entry_at(TARN_LIBRARY_HIPBLASLT);
    NEED(tarn_device_count_get(&count) == TARN_OK && tarn_stream_lease(0, 0, &stream) == TARN_OK);
    NEED(entry_load(entry) == TARN_OK && tarn_stream_native_get(stream, &native) == TARN_OK);
    NEED(driver->capture_begin(0, native, DRIVER_CAPTURE_GLOBAL) == TARN_OK);
    if (entry->calls.create(&handle))
        _exit(3);
    _exit(4);
}

static void hipblaslt_ends_the_process_past_tarn(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("hipblaslt_in_capture", strict), EXIT_FAILURE);
}

/* As the real libraries do it, where that is known: hipSPARSE says success, and leaves the handle
 * as it was. */
static void scenario_no_device(void)
{
    static const struct refusal refusals[] = {
        {"libhipsparse.so.4", "hipsparseCreate", 0, LEFT_AS_IT_WAS, false},
        {"libhipsparse.so.1", "hipsparseCreate", 0, LEFT_AS_IT_WAS, false},
        {"librocsparse.so.1", "rocsparse_create_handle", 1, LEFT_NULL, false},
        {"librocblas.so.4", "rocblas_create_handle", 6, LEFT_AS_IT_WAS, false},
        {"libhipblas.so.2", "hipblasCreate", 1, LEFT_AS_IT_WAS, false},
        {"libhipsolver.so.0", "hipsolverCreate", 1, LEFT_AS_IT_WAS, false},
        {"libMIOpen.so.1", "miopenCreate", 7, LEFT_AS_IT_WAS, false},
    };
    check_refusals(refusals, sizeof refusals / sizeof *refusals);
}

static void without_a_device_creates_fail_as_the_real_ones(void **state)
{
    (void)state;
    const char *const variables[] = {"TARN_SIM_FAIL=hipInit:1:100+", "TARN_SIM_STRICT=1", NULL};
    assert_int_equal(run_scenario("no_device", variables), 0);
}

static void *late_handle;

static void destroy_late(void)
{
    (void)entry_at(TARN_LIBRARY_ROCBLAS)->calls.destroy(late_handle);
}

/* Past tarn: rocBLAS aborts when the driver is gone before its handle, which is why no exit of
 * tarn's destroys one. */
static void scenario_late_destroy(void)
{
    atexit(destroy_late);
    NEED(tarn_handle_get(TARN_LIBRARY_ROCBLAS, TARN_STREAM_CURRENT, &late_handle) == TARN_OK);
    exit(0);
}

static void rocblas_aborts_past_tarn_at_exit(void **state)
{
    (void)state;
    const char *const variables[] = {NULL};
    assert_int_equal(run_scenario("late_destroy", variables), 128 + SIGABRT);
}

int main(int count, char **arguments)
{
    setenv("TARN_HOST_DEVICES", "1", 1);
    setenv("TARN_HOST_MEMORY", "32G", 1); /* sixteen threads on five streams, with workspaces of 32
                                             MiB */
    setenv("TARN_DRIVER", "hip", 1);
    if (count == 2 && strcmp(arguments[1], "no_virtual_memory") == 0) {
        unsetenv("TARN_HIP_VMM"); /* which the tests have set */
        scenario_no_virtual_memory();
        return 0;
    }
    setenv("TARN_HIP_VMM", "1", 1); /* tarn's memory, for the workspaces */
    subjects = hip_subjects;
    subject_count = sizeof hip_subjects / sizeof *hip_subjects;
    if (count == 2) {
        if (strcmp(arguments[1], "versions_of_handles") == 0)
            scenario_versions_of_handles();
        else if (strcmp(arguments[1], "other_runtime") == 0)
            scenario_other_runtime();
        else if (strcmp(arguments[1], "hipblaslt_in_capture") == 0)
            scenario_hipblaslt_in_capture();
        else if (strcmp(arguments[1], "no_device") == 0)
            scenario_no_device();
        else if (strcmp(arguments[1], "late_destroy") == 0)
            scenario_late_destroy();
        else if (!run_common_scenario(arguments[1]))
            return 127;
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exit_destroys_nothing),
        cmocka_unit_test(a_get_after_the_drivers_end_says_so),
        cmocka_unit_test(a_shutdown_destroys_all),
        cmocka_unit_test(the_version_is_the_librarys),
        cmocka_unit_test(versions_that_a_handle_tells),
        cmocka_unit_test(a_library_of_another_rocm_is_refused),
        cmocka_unit_test(without_virtual_memory_libraries_have_tarns),
        cmocka_unit_test(without_a_device_creates_fail_as_the_real_ones),
        cmocka_unit_test(rocblas_aborts_past_tarn_at_exit),
        cmocka_unit_test(hipblaslt_ends_the_process_past_tarn),
        cmocka_unit_test(miopen_has_its_memory_from_tarn),
        cmocka_unit_test(rocblas_is_on_tarns_workspace),
        cmocka_unit_test(no_handle_serves_two_streams_at_once),
        cmocka_unit_test(a_prewarmed_rocblas_handle_is_bound_in_a_capture),
        cmocka_unit_test(atomics_are_as_the_library_has_them),
        cmocka_unit_test(memory_that_a_graph_shares_with_its_handle_stays),
    };
    int failures = run_each();
    return failures + cmocka_run_group_tests(tests, NULL, NULL);
}
