/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NVIDIA's rows on the simulated libraries: cuDNN, cuBLAS, cuBLASLt, cuSPARSE, cuSOLVER, cuDSS, cuRAND. */
#include "driver/cuda_test.h"
#include "handle/vendor_test.h"

static const struct subject cuda_subjects[] = {
    {TARN_LIBRARY_CUDNN, "CUDNN", "9.19.0"},          {TARN_LIBRARY_CUBLAS, "CUBLAS", "13.1.0"},
    {TARN_LIBRARY_CUBLASLT, "CUBLASLT", "13.1.0"},    {TARN_LIBRARY_CUSPARSE, "CUSPARSE", "12.6.3"},
    {TARN_LIBRARY_CUSOLVER_DN, "CUSOLVER", "12.0.4"}, {TARN_LIBRARY_CUSOLVER_SP, "CUSOLVER", "12.0.4"},
    {TARN_LIBRARY_CUDSS, "CUDSS", "1.0.0"},           {TARN_LIBRARY_CURAND, "CURAND", "10.4.0"},
};

/* A create past tarn while a capture bars the thread: it is refused, and the capture is lost. This is what the relaxed
 * mode that tarn creates in is for; it also holds the simulated libraries to what the real ones do. */
static void a_create_past_tarn_breaks_a_capture(void **state)
{
    (void)state;
    static const struct {
        tarn_library library;
        int status;
        bool leaves_null, leaves_dangling;
    } creates[] = {
        {TARN_LIBRARY_CUDNN, 1001, true, false},
        {TARN_LIBRARY_CUBLAS, 1, false, false},
        {TARN_LIBRARY_CUSOLVER_DN, 1, false, true},
    };
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    for (size_t i = 0; i < sizeof creates / sizeof *creates; i++) {
        struct entry *entry = entry_at(creates[i].library);
        driver_graph graph = NULL;
        void *before = &entry, *handle = before;
        assert_ok(entry_load(entry));
        assert_ok(driver->activate(0));
        assert_ok(driver->capture_begin(0, native_of(stream), DRIVER_CAPTURE_GLOBAL));
        assert_int_equal(entry->calls.create(&handle), creates[i].status);
        assert_int_equal(handle == NULL, creates[i].leaves_null);
        assert_int_equal(handle != NULL && handle != before, creates[i].leaves_dangling);
        assert_status(driver->capture_end(0, native_of(stream), &graph), TARN_ERROR_CAPTURE);
    }
    assert_ok(tarn_stream_return(stream));
}

/* cuDSS asks for the memory of a system of equations through the handler that tarn has given it. */
static void cudss_has_its_memory_from_tarn(void **state)
{
    (void)state;
    void *handle = NULL, *data = NULL, *library = NULL;
    int (*create)(void *, void **) = NULL, (*destroy)(void *, void *) = NULL;
    size_t size = 0;
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_handle_get_on(TARN_LIBRARY_CUDSS, stream, &handle));
    library = entry_at(TARN_LIBRARY_CUDSS)->opened;
    loader_store(&create, dlsym(library, "cudssDataCreate"));
    loader_store(&destroy, dlsym(library, "cudssDataDestroy"));
    assert_int_equal(create(handle, &data), 0);
    assert_ok(tarn_usable_size(data, &size));
    assert_true(size >= 3 * MIB);
    assert_int_equal(calls_in(library, "memory"), 1);
    assert_int_equal(destroy(handle, data), 0);
    assert_int_equal(calls_in(library, "memory"), 0);
    assert_int_equal(calls_in(library, "device_free failed"), 0);
    assert_ok(tarn_stream_return(stream));
}

struct asking {
    pthread_barrier_t barrier;
    void *pointer;
    tarn_status status, usable;
};

static void *ask_and_keep(void *argument)
{
    struct asking *asking = argument;
    size_t size = 0;
    asking->status = tarn_workspace_get(TARN_LIBRARY_CUBLASLT, &asking->pointer, &size);
    pthread_barrier_wait(&asking->barrier); /* others clear all */
    pthread_barrier_wait(&asking->barrier);
    asking->usable = tarn_usable_size(asking->pointer, &size);
    return NULL;
}

/* A thread that was given a workspace for its calls has it until it asks again. */
static void the_workspace_of_cublaslt_stays_while_others_clear(void **state)
{
    (void)state;
    struct asking asking = {.status = TARN_ERROR_SYSTEM};
    tarn_workspace_cleared cleared;
    pthread_t thread;
    assert_int_equal(pthread_barrier_init(&asking.barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, ask_and_keep, &asking), 0);
    pthread_barrier_wait(&asking.barrier);
    assert_ok(tarn_workspace_clear_all(&cleared));
    pthread_barrier_wait(&asking.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&asking.barrier);
    assert_ok(asking.status);
    assert_ok(asking.usable);
    assert_int_equal(cleared.deferred, MIB);
}

/* cuBLASLt takes its workspace as an argument: one a thread and stream, of tarn's memory, under every policy. */
static void the_workspace_of_cublaslt_is_asked_for(void **state)
{
    (void)state;
    void *first = NULL, *again = NULL, *other = NULL;
    size_t size = 0, usable = 0;
    tarn_workspace_cleared cleared;
    tarn_stream before, streams[2];
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, NULL, &size), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, &first, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLAS, &first, &size), TARN_ERROR_NOT_SUPPORTED);
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUSPARSE, &first, &size), TARN_ERROR_NOT_SUPPORTED);
    assert_null(first);

    assert_ok(tarn_stream_get(0, &before));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_lease(0, 0, &streams[i]));
    assert_ok(tarn_stream_set(streams[0]));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, &first, &size));
    assert_ok(tarn_usable_size(first, &usable));
    assert_true(size == MIB && usable >= size);
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, &again, &size));
    assert_ptr_equal(again, first);
    assert_ok(tarn_stream_set(streams[1]));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, &other, &size));
    assert_true(other != first && size == MIB);
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED));

    /* A larger one is another; the smaller ones are given back by the clear, the one of this stream with them. */
    assert_ok(tarn_workspace_size_set(TARN_LIBRARY_CUBLASLT, 4 << 20));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, &again, &size));
    assert_true(size >= 4 * MIB);
    assert_ok(tarn_workspace_size_set(TARN_LIBRARY_CUBLASLT, -1));
    assert_ok(tarn_workspace_clear_all(&cleared));
    assert_true(cleared.freed >= 5 * MIB && cleared.deferred == 0);
    assert_int_not_equal(tarn_usable_size(first, &usable), TARN_OK);
    assert_ok(tarn_stream_set(before));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_return(streams[i]));
}

/* Libraries that are newer than the driver. */
static void scenario_old_driver(void)
{
    void *handle = NULL;
    NEED(tarn_handle_get(TARN_LIBRARY_CUDNN, &handle) == TARN_ERROR_LIBRARY && !handle);
    NEED(strstr(tarn_last_error(), "3005 (CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER)"));
    NEED(tarn_handle_get(TARN_LIBRARY_CUBLAS, &handle) == TARN_ERROR_LIBRARY && !handle);
    NEED(strstr(tarn_last_error(), "CUBLAS_STATUS_NOT_INITIALIZED"));
    NEED(tarn_handle_get(TARN_LIBRARY_CUSOLVER_DN, &handle) == TARN_ERROR_LIBRARY && !handle);
    NEED(tarn_handle_get(TARN_LIBRARY_CURAND, &handle) == TARN_OK);
}

static void a_library_that_the_driver_is_too_old_for_is_refused(void **state)
{
    (void)state;
    const char *const variables[] = {"TARN_SIM_CUDA_VERSION=11040", "TARN_SIM_STRICT=1", NULL};
    assert_int_equal(run_scenario("old_driver", variables), 0);
}

/* What the process has already is used, though a newer one could be found: version 8 of cuDNN, 12 of cuBLAS. */
static void scenario_older_library(void)
{
    void *handle = NULL;
    tarn_library_info info = {.size = sizeof info};
    NEED(dlopen("libcudnn.so.8", RTLD_NOW | RTLD_LOCAL) && dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL));
    NEED(tarn_library_info_get(TARN_LIBRARY_CUDNN, &info) == TARN_OK);
    NEED(strcmp(info.version, "8.9.7") == 0 && strstr(info.path, "libcudnn.so.8"));
    NEED(setenv("TARN_SIM_CUDNN_FAIL", "1-2", 1) == 0);
    NEED(tarn_handle_get(TARN_LIBRARY_CUDNN, &handle) == TARN_ERROR_OUT_OF_MEMORY);
    NEED(strstr(tarn_last_error(), "status 2 (CUDNN_STATUS_ALLOC_FAILED)"));
    NEED(tarn_handle_get(TARN_LIBRARY_CUDNN, &handle) == TARN_OK);
    NEED(tarn_library_info_get(TARN_LIBRARY_CUBLAS, &info) == TARN_OK);
    NEED(strcmp(info.version, "12.9.1") == 0);
    NEED(tarn_handle_get(TARN_LIBRARY_CUBLAS, &handle) == TARN_OK);
}

static void an_older_library_serves_where_it_is_loaded(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("older_library", strict), 0);
}

/* As the real libraries do it, statuses and leavings. */
static void scenario_no_device(void)
{
    static const struct refusal refusals[] = {
        {"libcudnn.so.9", "cudnnCreate", 1001, LEFT_NULL, false},
        {"libcudnn.so.8", "cudnnCreate", 1, LEFT_NULL, false},
        {"libcublas.so.13", "cublasCreate_v2", 1, LEFT_AS_IT_WAS, false},
        {"libcublas.so.11", "cublasCreate_v2", 1, LEFT_AS_IT_WAS, false},
        {"libcublasLt.so.13", "cublasLtCreate", 1, LEFT_AS_IT_WAS, false},
        {"libcusparse.so.12", "cusparseCreate", 1, LEFT_AS_IT_WAS, false},
        {"libcusolver.so.12", "cusolverDnCreate", 1, LEFT_SOMETHING, false},
        {"libcusolver.so.11", "cusolverSpCreate", 1, LEFT_SOMETHING, false},
        {"libcurand.so.10", "curandCreateGenerator", 203, LEFT_AS_IT_WAS, true},
        {"libcudss.so.1", "cudssCreate", 1, LEFT_SOMETHING, false},
    };
    NEED(freopen("/dev/null", "w", stdout)); /* cuSPARSE prints a line */
    check_refusals(refusals, sizeof refusals / sizeof *refusals);
}

static void without_a_device_creates_fail_as_the_real_ones(void **state)
{
    (void)state;
    const char *const variables[] = {"TARN_SIM_FAIL=cuInit:1:100+", "TARN_SIM_STRICT=1", NULL};
    assert_int_equal(run_scenario("no_device", variables), 0);
}

int main(int count, char **arguments)
{
    setenv("TARN_HOST_DEVICES", "1", 1);
    setenv("TARN_HOST_MEMORY", "32G", 1); /* sixteen threads on five streams, with workspaces of 32 MiB */
    setenv("TARN_DRIVER", "cuda", 1);
    subjects = cuda_subjects;
    subject_count = sizeof cuda_subjects / sizeof *cuda_subjects;
    if (count == 2) {
        if (strcmp(arguments[1], "old_driver") == 0)
            scenario_old_driver();
        else if (strcmp(arguments[1], "older_library") == 0)
            scenario_older_library();
        else if (strcmp(arguments[1], "no_device") == 0)
            scenario_no_device();
        else if (!run_common_scenario(arguments[1]))
            return 127;
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exit_destroys_nothing),
        cmocka_unit_test(a_shutdown_destroys_all),
        cmocka_unit_test(the_version_is_the_librarys),
        cmocka_unit_test(a_library_that_the_driver_is_too_old_for_is_refused),
        cmocka_unit_test(an_older_library_serves_where_it_is_loaded),
        cmocka_unit_test(without_a_device_creates_fail_as_the_real_ones),
        cmocka_unit_test(a_create_past_tarn_breaks_a_capture),
        cmocka_unit_test(cudss_has_its_memory_from_tarn),
        cmocka_unit_test(the_workspace_of_cublaslt_is_asked_for),
        cmocka_unit_test(the_workspace_of_cublaslt_stays_while_others_clear),
    };
    int failures = run_each();
    return failures + cmocka_run_group_tests(tests, NULL, NULL);
}
