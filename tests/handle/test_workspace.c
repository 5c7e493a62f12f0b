/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Workspaces: that one follows every set-stream, that nobody's is freed under him, sizes, policies.
 * test_workspace_capture.c has captures and pools. The test of PyTorch for clears that race with
 * gets (aten/src/ATen/test/cuda_cublas_handle_pool_test.cpp) is here. */
#include "handle/fake.h"

#include "base/pages.h"
#include "driver/driver.h"

static void test_a_workspace_follows_every_set_stream(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream streams[4];
    void *workspaces[4] = {NULL}, *got;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    for (int i = 0; i < 4; i++)
        streams[i] = new_stream();
    srand(2);
    int bound = -1, told = 0;
    for (int i = 0; i < 3000; i++) {
        int wanted = rand() % 3 && bound >= 0 ? bound : rand() % 4;
        assert_ok(tarn_handle_get(library, streams[wanted], &got));
        struct fake_handle *handle = got;
        told += wanted != bound;
        bound = wanted;
        assert_int_equal(fake_calls(FAKE_SET_STREAM), told);
        assert_int_equal(fake_calls(FAKE_SET_WORKSPACE), told);
        assert_true(handle->workspace_follows);
        assert_int_equal(handle->workspace_size, 1 << 20);
        if (!workspaces[wanted])
            workspaces[wanted] = handle->workspace;
        assert_ptr_equal(handle->workspace, workspaces[wanted]); /* one per stream, kept */
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(workspaces[i], workspaces[j]);
    tarn_block_info info = {.size = sizeof info};
    assert_ok(tarn_pointer_info_get(workspaces[0], &info));
    assert_string_equal(tarn_tag_text(info.tag), "workspace");
    assert_int_equal(info.stream, streams[0]);
    assert_ok(tarn_workspace_size_set(library, 2 << 20)); /* a larger one takes its place */
    assert_ok(tarn_handle_get(library, streams[0], &got));
    assert_int_equal(((struct fake_handle *)got)->workspace_size, 2 << 20);
    assert_ok(tarn_workspace_size_set(library, 1 << 19)); /* a smaller one does not */
    assert_ok(tarn_handle_get(library, streams[0], &got));
    assert_int_equal(((struct fake_handle *)got)->workspace_size, 2 << 20);
    assert_ok(workspaces_clear_all(NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    assert_int_equal(workspace_stats().count, 0);
    assert_ok(tarn_workspace_size_set(library, 0)); /* none at all, which the vendor is told */
    assert_ok(tarn_handle_get(library, streams[0], &got));
    assert_null(((struct fake_handle *)got)->workspace);
    assert_true(((struct fake_handle *)got)->workspace_follows);
    assert_ok(workspaces_clear_all(NULL));
}

static void *get_pause_get(void *argument)
{
    struct pausing *pausing = argument;
    void *got;
    assert_ok(tarn_handle_get(pausing->library, pausing->stream, &got));
    pausing->handle = got;
    pthread_barrier_wait(&pausing->barrier);
    pthread_barrier_wait(&pausing->barrier);
    assert_ok(tarn_handle_get(pausing->library, pausing->stream, &got));
    pthread_barrier_wait(&pausing->barrier);
    pthread_barrier_wait(&pausing->barrier);
    return NULL;
}

static void test_a_clear_frees_nothing_under_another_thread(void **state)
{
    (void)state;
    struct pausing pausing = {.library = fake_register(0, true), .stream = new_stream()};
    tarn_workspace_cleared cleared;
    tarn_block_info info = {.size = sizeof info};
    pthread_t thread;
    void *mine;
    pthread_barrier_init(&pausing.barrier, NULL, 2);
    assert_ok(tarn_workspace_size_set(pausing.library, 1 << 20));
    assert_int_equal(pthread_create(&thread, NULL, get_pause_get, &pausing), 0);
    pthread_barrier_wait(&pausing.barrier);
    assert_ok(tarn_handle_get(pausing.library, pausing.stream, &mine));
    void *workspace = pausing.handle->workspace, *own = ((struct fake_handle *)mine)->workspace;
    assert_ptr_not_equal(workspace, own);

    assert_ok(workspaces_clear_stream(pausing.stream, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);    /* ours */
    assert_int_equal(cleared.deferred, 1 << 20); /* the other thread may be about to use its own */
    assert_int_equal(workspace_stats().deferred_bytes, 1 << 20);
    assert_ok(tarn_pointer_info_get(workspace, &info));
    assert_int_not_equal(tarn_pointer_info_get(own, &info), TARN_OK);
    pthread_barrier_wait(&pausing.barrier); /* it asks again ... */
    pthread_barrier_wait(&pausing.barrier);
    assert_int_equal(workspace_stats().deferred_bytes, 0); /* ... and has let go of it */
    assert_int_equal(workspace_stats().bytes, 1 << 20);
    assert_true(pausing.handle->workspace_follows);

    assert_ok(workspaces_clear_all(&cleared)); /* once more; this time it ends */
    assert_int_equal(cleared.deferred, 1 << 20);
    pthread_barrier_wait(&pausing.barrier);
    pthread_join(thread, NULL);
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_handle_get(pausing.library, pausing.stream, &mine));
    assert_non_null(((struct fake_handle *)mine)->workspace);
    assert_ok(workspaces_clear_all(NULL));
}

static void test_a_clear_of_what_it_does_not_say_clears_nothing(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream streams[] = {new_stream(), new_stream()};
    void *handle;
    tarn_workspace_choice choice = {.size = sizeof choice};
    tarn_workspace_cleared cleared = {.size = sizeof cleared};
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_handle_get(library, streams[i], &handle));

    const tarn_workspace_choice wrong[] = {
        {.size = sizeof choice - 1},
        {.size = sizeof choice, .stream = streams[0]}, /* all, or of the stream? */
        {.size = sizeof choice, .capture = 7},
        {.size = sizeof choice,
         .which = TARN_WORKSPACES_OF_STREAM,
         .stream = streams[0],
         .capture = 7},
        {.size = sizeof choice, .which = TARN_WORKSPACES_OF_CAPTURE},
        {.size = sizeof choice,
         .which = TARN_WORKSPACES_OF_CAPTURE,
         .capture = 7,
         .stream = streams[0]},
        {.size = sizeof choice, .which = TARN_WORKSPACES_OF_POOL},
        {.size = sizeof choice, .which = (tarn_workspaces)4},
        {.size = sizeof choice, .which = (tarn_workspaces)-1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(tarn_workspace_clear(&wrong[i], &cleared), TARN_ERROR_INVALID_ARGUMENT);
    cleared.size--;
    assert_status(tarn_workspace_clear(NULL, &cleared), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(workspace_stats().bytes, 2 << 20);

    choice.which = TARN_WORKSPACES_OF_STREAM;
    choice.stream = streams[0];
    cleared.size++;
    assert_ok(tarn_workspace_clear(&choice, &cleared));
    assert_int_equal(cleared.size, sizeof cleared);
    assert_int_equal(cleared.freed, 1 << 20);
    choice.which = TARN_WORKSPACES_ALL;
    choice.stream = 0;
    assert_ok(tarn_workspace_clear(&choice, &cleared));
    assert_int_equal(cleared.freed, 1 << 20);
    assert_int_equal(workspace_stats().bytes, 0);
}

static struct {
    tarn_library library;
    atomic_int wrong;
} race;

static void *race_get(void *argument)
{
    (void)argument;
    tarn_block_info info = {.size = sizeof info};
    for (int i = 0; i < 50; i++) {
        struct fake_handle *handle = get(race.library);
        for (int use = 0; use < 20; use++) /* the GEMM: the memory is there all the time */
            if (!handle->workspace || tarn_pointer_info_get(handle->workspace, &info) ||
                info.base != handle->workspace)
                atomic_fetch_add(&race.wrong, 1);
    }
    return NULL;
}

static void *race_clear(void *argument)
{
    (void)argument;
    for (int i = 0; i < 50; i++)
        if (workspaces_clear_all(NULL))
            atomic_fetch_add(&race.wrong, 1);
    return NULL;
}

static void test_fifteen_threads_get_and_five_clear(void **state)
{
    (void)state;
    pthread_t threads[20];
    race.library = fake_register(0, true);
    assert_ok(tarn_workspace_size_set(race.library, 1 << 20));
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i % 4 == 3 ? race_clear : race_get, NULL), 0);
    for (int i = 0; i < 20; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&race.wrong), 0);
    assert_ok(workspaces_clear_all(NULL));
    assert_int_equal(workspace_stats().bytes, 0);
    assert_true(workspace_stats().peak_bytes >= 1 << 20);
}

static void test_policies(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_workspace_call call = {0};
    tarn_block_info info = {.size = sizeof info};
    tarn_workspace_policy policy;
    void *got;
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    struct fake_handle *handle = get(library);
    assert_non_null(handle->workspace);
    assert_ok(
        tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call)); /* under CACHED a get */
    assert_null(call.pointer);
    assert_ok(tarn_workspace_end(&call));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_LIBRARY, NULL));
    get(library);
    assert_null(handle->workspace);
    assert_false(handle->workspace_follows);

    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, &policy));
    assert_int_equal(policy, TARN_WORKSPACE_LIBRARY);
    get(library);
    assert_null(handle->workspace);
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    assert_ptr_equal(call.handle, handle);
    assert_non_null(call.pointer);
    assert_ptr_equal(handle->workspace, call.pointer);
    assert_ptr_equal(get(library), handle); /* a get in between changes nothing */
    assert_ptr_equal(handle->workspace, call.pointer);
    void *pointer = call.pointer;
    assert_ok(workspaces_clear_all(NULL)); /* nor does a clear */
    assert_ok(tarn_pointer_info_get(pointer, &info));
    assert_ok(tarn_workspace_end(&call));
    assert_null(handle->workspace); /* first the library forgets it, then it is freed */
    assert_int_not_equal(tarn_pointer_info_get(pointer, &info), TARN_OK);
    assert_ok(tarn_workspace_end(&call));

    /* A copy of a call that has ended ends no later call */
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    tarn_workspace_call copy = call;
    assert_ok(tarn_workspace_end(&call));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    assert_status(tarn_workspace_end(&copy), TARN_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(handle->workspace, call.pointer);
    assert_ok(tarn_workspace_end(&call));

    /* The stream changes meanwhile */
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    assert_ok(tarn_handle_get(library, new_stream(), &got));
    assert_null(handle->workspace);
    assert_ok(tarn_workspace_end(&call));

    uint64_t leaked = workspace_stats().leaked_bytes; /* the library does not let go of it */
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    pointer = call.pointer;
    fake_fail(FAKE_SET_STREAM, 1, 7);
    assert_refused(tarn_workspace_end(&call), TARN_ERROR_LIBRARY, "set_stream");
    assert_int_equal(workspace_stats().leaked_bytes, leaked + (1 << 20));
    assert_ok(tarn_pointer_info_get(pointer, &info));
    assert_ok(tarn_free(pointer));
    fake_fail(FAKE_SET_WORKSPACE, 1, 7);
    assert_status(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call),
                  TARN_ERROR_LIBRARY);
    get(library);
    assert_status(tarn_workspace_policy_set((tarn_workspace_policy)7, NULL),
                  TARN_ERROR_INVALID_ARGUMENT);
}

/* A library with one handle per stream: the end of the stream gives no handle away that a call
 * uses. */
static void test_a_call_keeps_the_handle_of_a_retired_stream(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, true);
    tarn_workspace_call call = {0};
    tarn_stream own, other = new_stream();
    tarn_lease lease = {0};
    size_t destroyed = 99;
    void *got;
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_stream_adopt(THIS_DEVICE, native_made(), &own));
    assert_ok(tarn_workspace_begin(library, own, NULL, &call));
    struct fake_handle *used = call.handle;
    assert_ok(tarn_handle_lease(library, other, &lease));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_stream_retire(own));
    assert_ok(tarn_handle_get(library, other, &got));
    assert_ptr_not_equal(got, used);
    assert_ok(tarn_handle_trim(library, THIS_DEVICE, &destroyed));
    assert_int_equal(destroyed, 0);
    assert_ptr_equal(used->workspace, call.pointer);
    assert_ok(tarn_workspace_end(&call));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_handle_get(library, other, &got)); /* gives it back */
    assert_int_equal(handle_stats(library).available, 1);
}

static void *get_and_wait(void *argument)
{
    struct pausing *pausing = argument;
    void *got;
    assert_ok(tarn_handle_get(pausing->library, TARN_STREAM_CURRENT, &got));
    pausing->handle = got;
    pthread_barrier_wait(&pausing->barrier);
    pthread_barrier_wait(&pausing->barrier);
    return NULL;
}

/* A library that forgets a workspace only when it is told to is told so, however the memory went
 * that it was given. */
static void test_no_handle_points_to_memory_that_was_cleared(void **state)
{
    (void)state;
    static const tarn_workspace_policy without[] = {TARN_WORKSPACE_LIBRARY,
                                                    TARN_WORKSPACE_PER_CALL};
    struct pausing pausing = {.library = fake_register_with(0, true, NULL)};
    void *got;
    pthread_barrier_init(&pausing.barrier, NULL, 2);
    for (int i = 0; i < 2; i++) {
        assert_ok(tarn_handle_get(pausing.library, TARN_STREAM_CURRENT, &got));
        struct fake_handle *handle = got;
        assert_non_null(handle->workspace);
        assert_ok(workspaces_clear_all(NULL)); /* its owner's own: at once */
        assert_ok(tarn_workspace_policy_set(without[i], NULL));
        assert_ok(tarn_handle_get(pausing.library, TARN_STREAM_CURRENT, &got));
        assert_null(handle->workspace);
        assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
        assert_ok(tarn_handle_get(pausing.library, TARN_STREAM_CURRENT, &got));
        assert_non_null(handle->workspace);
        assert_ok(tarn_workspace_policy_set(without[i], NULL));
        assert_ok(tarn_handle_get(pausing.library, TARN_STREAM_CURRENT, &got));
        assert_null(handle->workspace);
        assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
    }

    /* Another thread's: at its end. The next to have that handle is the first here who has none. */
    pausing.library = fake_register_with(0, true, NULL);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, get_and_wait, &pausing), 0);
    pthread_barrier_wait(&pausing.barrier);
    assert_ok(workspaces_clear_all(NULL));
    pthread_barrier_wait(&pausing.barrier);
    pthread_join(thread, NULL);
    assert_int_equal(workspace_stats().bytes, 0);
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_LIBRARY, NULL));
    assert_ok(tarn_handle_get(pausing.library, TARN_STREAM_CURRENT, &got));
    assert_ptr_equal(got, pausing.handle);
    assert_null(pausing.handle->workspace);
    pthread_barrier_destroy(&pausing.barrier);
}

static void test_a_library_that_keeps_its_workspace_is_told_when_it_is_gone(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_workspace_call call = {0};
    atomic_store(&fake.keeps_workspace, true);
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    for (int clears = 0; clears < 2; clears++) {
        assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
        struct fake_handle *handle = get(library);
        assert_non_null(handle->workspace);
        if (clears) /* freed at once; the next get is what tells the library */
            assert_ok(workspaces_clear_all(NULL));
        assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_LIBRARY, NULL));
        assert_ptr_equal(get(library), handle);
        assert_null(handle->workspace);
        int told = fake_calls(FAKE_SET_WORKSPACE);
        assert_ok(workspaces_clear_all(NULL));
        get(library);
        assert_int_equal(fake_calls(FAKE_SET_WORKSPACE), told); /* once is enough */
        assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
        assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
        assert_ptr_equal(handle->workspace, call.pointer);
        assert_ok(tarn_workspace_end(&call));
        assert_null(handle->workspace);
    }
}

static void test_no_room_for_a_workspace(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    void *handle = NULL;
    assert_ok(tarn_workspace_size_set(library, (int64_t)1 << 32));
    uint64_t metadata = pages_bytes();
    for (int i = 0; i < 3000; i++)
        assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle),
                       TARN_ERROR_OUT_OF_MEMORY, "workspace");
    assert_true(pages_bytes() <= metadata + 65536);
    assert_null(handle);
    assert_ok(tarn_workspace_size_set(library, 1 << 20));
    assert_true(get(library)->workspace_follows);
    assert_ok(workspaces_clear_all(NULL));
}

static size_t size_of(tarn_library library)
{
    return handle_stats(library).workspace_bytes;
}

static void test_sizes(void **state)
{
    (void)state;
    /* `:128:8:64:16:32:32` is in the environment. */
    assert_int_equal(size_of(TARN_LIBRARY_CUBLAS), 3072 * 1024);
    assert_int_equal(size_of(TARN_LIBRARY_CUBLASLT), 2000 * 1024);
    /* Of HIPBLAS_..., which makes no sense, and ROCBLAS_... */
    assert_int_equal(size_of(TARN_LIBRARY_ROCBLAS), 77 * 1024);
    assert_int_equal(size_of(TARN_LIBRARY_HIPBLASLT), (size_t)76 << 20);
    assert_ok(tarn_workspace_size_set(TARN_LIBRARY_CUBLAS, 12345));
    assert_int_equal(size_of(TARN_LIBRARY_CUBLAS), 12345);
    assert_ok(tarn_workspace_size_set(TARN_LIBRARY_CUBLAS, -1));
    assert_int_equal(size_of(TARN_LIBRARY_CUBLAS), 3072 * 1024);
    /* What PyTorch takes where it knows no better */
    assert_int_equal(size_of(fake_register(0, true)), 8519680);
    assert_int_equal(size_of(TARN_LIBRARY_CUDNN), 0);
    assert_status(tarn_workspace_size_set(TARN_LIBRARY_CUDNN, 1), TARN_ERROR_NOT_SUPPORTED);
    assert_status(tarn_workspace_size_set(TARN_LIBRARY_CUBLAS, -2), TARN_ERROR_INVALID_ARGUMENT);
}

#define WORKSPACE_TEST(function) \
    cmocka_unit_test_setup_teardown(function, fake_reset, back_to_default)

/* The text names the function that failed, also of a library that has no other. */
static void test_the_end_of_a_call_names_what_failed(void **state)
{
    (void)state;
    tarn_library library = fake_register_with(0, true, NULL);
    tarn_workspace_call call;
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_workspace_begin(library, TARN_STREAM_CURRENT, NULL, &call));
    fake_fail(FAKE_SET_WORKSPACE, 1, 7);
    assert_refused(tarn_workspace_end(&call), TARN_ERROR_LIBRARY,
                   "set_workspace gave status 7 (FAKE_IS_BUSY)");
    assert_null(call.owner);
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORKSPACE_TEST(test_a_workspace_follows_every_set_stream),
        WORKSPACE_TEST(test_a_clear_frees_nothing_under_another_thread),
        WORKSPACE_TEST(test_a_clear_of_what_it_does_not_say_clears_nothing),
        WORKSPACE_TEST(test_fifteen_threads_get_and_five_clear),
        WORKSPACE_TEST(test_policies),
        WORKSPACE_TEST(test_a_call_keeps_the_handle_of_a_retired_stream),
        WORKSPACE_TEST(test_the_end_of_a_call_names_what_failed),
        WORKSPACE_TEST(test_no_handle_points_to_memory_that_was_cleared),
        WORKSPACE_TEST(test_a_library_that_keeps_its_workspace_is_told_when_it_is_gone),
        WORKSPACE_TEST(test_no_room_for_a_workspace),
        WORKSPACE_TEST(test_sizes),
    };
    setenv("CUBLAS_WORKSPACE_CONFIG", "x:128:8:64:16:32:32", 1);
    setenv("CUBLASLT_WORKSPACE_SIZE", "2000", 1);
    setenv("HIPBLAS_WORKSPACE_CONFIG", "much", 1);
    setenv("ROCBLAS_WORKSPACE_CONFIG", ":77:1", 1);
    unsetenv("HIPBLASLT_WORKSPACE_SIZE");
    host_start(2, 1024 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
