/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* NVIDIA's rows on the simulated libraries: cuDNN, cuBLAS, cuBLASLt, cuSPARSE, cuSOLVER, cuDSS,
 * cuRAND, cuSPARSELt. */
#include "base/pages.h"
#include "driver/cuda_test.h"
#include "handle/vendor_test.h"
#include "vendor/common.h"

static const struct subject cuda_subjects[] = {
    {TARN_LIBRARY_CUDNN, "CUDNN", "9.19.0"},
    {TARN_LIBRARY_CUBLAS, "CUBLAS", "13.1.0"},
    {TARN_LIBRARY_CUBLASLT, "CUBLASLT", "13.1.0"},
    {TARN_LIBRARY_CUSPARSE, "CUSPARSE", "12.6.3"},
    {TARN_LIBRARY_CUSOLVER_DN, "CUSOLVER", "12.0.4"},
    {TARN_LIBRARY_CUSOLVER_SP, "CUSOLVER", "12.0.4"},
    {TARN_LIBRARY_CUDSS, "CUDSS", "1.0.0"},
    {TARN_LIBRARY_CURAND, "CURAND", "10.4.0"},
    {TARN_LIBRARY_CUSPARSELT, "CUSPARSELT", "0.8.1"},
};

/* A create past tarn while a capture bars the thread: it is refused, and the capture is lost. This
 * is what the relaxed mode that tarn creates in is for; it also holds the simulated libraries to
 * what the real ones do. */
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
    assert_ok(tarn_handle_get(TARN_LIBRARY_CUDSS, stream, &handle));
    library = entry_at(TARN_LIBRARY_CUDSS)->opened;
    loader_store(&create, dlsym(library, "cudssDataCreate"));
    loader_store(&destroy, dlsym(library, "cudssDataDestroy"));
    assert_int_equal(create(handle, &data), 0);
    assert_ok(tarn_usable_size_get(data, &size));
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
    asking->status = tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL,
                                        &asking->pointer, &size);
    pthread_barrier_wait(&asking->barrier); /* others clear all */
    pthread_barrier_wait(&asking->barrier);
    asking->usable = tarn_usable_size_get(asking->pointer, &size);
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
    assert_ok(workspaces_clear_all(&cleared));
    pthread_barrier_wait(&asking.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&asking.barrier);
    assert_ok(asking.status);
    assert_ok(asking.usable);
    assert_int_equal(cleared.deferred, MIB);
}

static void *clear_all(void *argument)
{
    tarn_status *status = argument;
    *status = workspaces_clear_all(NULL);
    return NULL;
}

static void clear_in_another_thread(void)
{
    tarn_status status = TARN_ERROR_SYSTEM;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, clear_all, &status), 0);
    pthread_join(thread, NULL);
    assert_ok(status);
}

/* Until the thread asks on another stream or after a clear: whatever else changes in the world. */
static void the_workspace_of_cublaslt_stays_while_its_handle_is_asked_for(void **state)
{
    (void)state;
    tarn_stream streams[2];
    void *pointer = NULL, *handle = NULL, *graph = NULL;
    size_t size = 0;
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_lease(0, 0, &streams[i]));
    for (int other = 0; other < 3; other++) {
        assert_ok(tarn_stream_set(streams[0]));
        assert_ok(
            tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &pointer, &size));
        assert_ok(tarn_capture_begin(streams[1], TARN_CAPTURE_RELAXED));
        assert_ok(tarn_capture_end(streams[1], &graph));
        assert_ok(tarn_handle_get(TARN_LIBRARY_CUBLASLT, streams[other == 1], &handle));
        if (other == 2)
            clear_in_another_thread();
        if (other == 2)
            assert_ok(tarn_usable_size_get(pointer, &size));
        clear_in_another_thread();
        if (other == 2) /* after a clear */
            assert_ok(tarn_handle_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, &handle));
        if (other)
            assert_int_not_equal(tarn_usable_size_get(pointer, &size), TARN_OK);
        else
            assert_ok(tarn_usable_size_get(pointer, &size));
        assert_ok(driver->graph_destroy(0, graph));
    }
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_return(streams[i]));
}

/* cuBLASLt takes its workspace as an argument: one per thread and stream, of tarn's memory, under
 * every policy. */
static void the_workspace_of_cublaslt_is_asked_for(void **state)
{
    (void)state;
    void *first = NULL, *again = NULL, *other = NULL;
    size_t size = 0, usable = 0;
    tarn_workspace_cleared cleared;
    tarn_stream before, streams[2];
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, NULL, &size),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(
        tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &first, NULL),
        TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, NULL, &first, &size),
                  TARN_ERROR_NOT_SUPPORTED);
    assert_status(
        tarn_workspace_get(TARN_LIBRARY_CUSPARSE, TARN_STREAM_CURRENT, NULL, &first, &size),
        TARN_ERROR_NOT_SUPPORTED);
    assert_null(first);

    assert_ok(tarn_stream_get(0, &before));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_lease(0, 0, &streams[i]));
    assert_ok(tarn_stream_set(streams[0]));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &first, &size));
    assert_ok(tarn_usable_size_get(first, &usable));
    assert_true(size == MIB && usable >= size);
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &again, &size));
    assert_ptr_equal(again, first);
    assert_ok(tarn_stream_set(streams[1]));
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_PER_CALL, NULL));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &other, &size));
    assert_true(other != first && size == MIB);
    assert_ok(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL));

    /* A larger one is another; the smaller ones are given back by the clear, the one of this stream
     * with them. */
    assert_ok(tarn_workspace_size_set(TARN_LIBRARY_CUBLASLT, 4 << 20));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &again, &size));
    assert_true(size >= 4 * MIB);
    assert_ok(tarn_workspace_size_set(TARN_LIBRARY_CUBLASLT, -1));
    assert_ok(workspaces_clear_all(&cleared));
    assert_true(cleared.freed >= 5 * MIB && cleared.deferred == 0);
    assert_int_not_equal(tarn_usable_size_get(first, &usable), TARN_OK);
    assert_ok(tarn_stream_set(before));
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_stream_return(streams[i]));
}

#define OWN_STREAM ((void *)2) /* CU_STREAM_PER_THREAD */

/* What a thread does on its own per-thread default stream, and others meanwhile. */
struct owner {
    pthread_barrier_t barrier;
    tarn_stream own, origin, other; /* the first is its per-thread stream */
    bool joins;                     /* the capture of the origin, which tarn knows; else it begins
                                       one past tarn */
    uint64_t id;
    const char *wrong;
};

#define OWNER(condition)                                             \
    do {                                                             \
        if (!(condition)) {                                          \
            print_error("%s\n", tarn_last_error());                  \
            owner->wrong = owner->wrong ? owner->wrong : #condition; \
        }                                                            \
    } while (0)

static void join_capture(struct owner *owner)
{
    tarn_event *event = NULL;
    OWNER(tarn_event_create(0, &event) == TARN_OK);
    OWNER(tarn_capture_begin(owner->origin, TARN_CAPTURE_RELAXED) == TARN_OK);
    OWNER(tarn_event_record(event, owner->origin) == TARN_OK);
    OWNER(tarn_stream_wait(owner->own, event) == TARN_OK);
    OWNER(tarn_event_destroy(event) == TARN_OK);
}

static void *capture_on_own_stream(void *argument)
{
    struct owner *owner = argument;
    void *handle = NULL;
    driver_graph graph = NULL;
    tarn_capture_state state = TARN_CAPTURE_NONE;
    OWNER(tarn_stream_adopt(0, OWN_STREAM, &owner->own) == TARN_OK);
    OWNER(tarn_handle_get(TARN_LIBRARY_CUBLAS, owner->own, &handle) == TARN_OK);
    if (owner->joins)
        join_capture(owner);
    else
        OWNER(driver->capture_begin(0, OWN_STREAM, DRIVER_CAPTURE_RELAXED) == TARN_OK);
    OWNER(tarn_capture_state_get(owner->own, &state, &owner->id, NULL) == TARN_OK &&
          state == TARN_CAPTURE_ACTIVE);
    OWNER(tarn_handle_get(TARN_LIBRARY_CUBLAS, owner->own, &handle) == TARN_OK);
    /* The workspace of its own stream is not bound any more. */
    OWNER(tarn_handle_get(TARN_LIBRARY_CUBLAS, owner->other, &handle) == TARN_OK);
    pthread_barrier_wait(&owner->barrier);
    pthread_barrier_wait(&owner->barrier); /* others clear, and want memory */
    OWNER(tarn_handle_get(TARN_LIBRARY_CUBLAS, owner->own, &handle) == TARN_OK);
    OWNER(tarn_capture_state_get(owner->own, &state, NULL, NULL) == TARN_OK &&
          state == TARN_CAPTURE_ACTIVE);
    if (owner->joins) {
        OWNER(tarn_capture_abort(owner->origin) == TARN_OK);
    } else {
        OWNER(driver->capture_end(0, OWN_STREAM, &graph) == TARN_OK && graph);
        OWNER(driver->graph_destroy(0, graph) == TARN_OK);
    }
    return NULL;
}

static tarn_workspace_stats workspace_stats(void)
{
    tarn_workspace_stats stats = {.size = sizeof stats};
    assert_ok(tarn_workspace_stats_get(0, &stats));
    return stats;
}

static void owner_start(struct owner *owner, pthread_t *thread, void *(*function)(void *))
{
    assert_int_equal(pthread_barrier_init(&owner->barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(thread, NULL, function, owner), 0);
    pthread_barrier_wait(&owner->barrier);
}

static void owner_end(struct owner *owner, pthread_t thread)
{
    pthread_barrier_wait(&owner->barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&owner->barrier);
    if (owner->wrong)
        fail_msg("not so: %s", owner->wrong);
}

static void try_to_take_from(struct owner *owner)
{
    tarn_workspace_cleared cleared = {0};
    pthread_t thread;
    void *block = NULL;
    uint64_t before = workspace_stats().count;
    owner_start(owner, &thread, capture_on_own_stream);
    tarn_workspace_stats captured = workspace_stats();
    (void)tarn_device_limit_set(0, 256 * MIB);
    tarn_status full = tarn_alloc_on(TARN_STREAM_LEGACY, 256 * MIB, &block);
    (void)tarn_device_limit_set(0, TARN_NO_LIMIT);
    uint64_t after_shortage = workspace_stats().count;
    tarn_status of_capture = workspaces_clear_capture(owner->id, NULL);
    tarn_status all = workspaces_clear_all(&cleared);
    uint64_t after_clear = workspace_stats().count;
    owner_end(owner, thread);
    uint64_t allocations = workspace_stats().allocations;

    assert_int_equal(captured.count - before, owner->joins ? 3 : 2);
    assert_status(full, TARN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(after_shortage, captured.count);
    /* Which has none of its own there */
    assert_status(of_capture, owner->joins ? TARN_ERROR_CAPTURE : TARN_OK);
    assert_ok(all);
    assert_int_equal(cleared.freed, 0);
    assert_int_equal(after_clear, captured.count);
    assert_int_equal(allocations, captured.allocations); /* the capture went on with what it had */
    assert_ok(workspaces_clear_all(NULL));               /* and is over now */
    assert_int_equal(workspace_stats().count, before);
}

/* The driver does not say of another thread's default stream which capture it is in: it may be
 * any. */
static void the_workspace_of_a_capture_on_another_threads_stream_stays(void **state)
{
    (void)state;
    for (int joins = 0; joins < 2; joins++) {
        struct owner owner = {.joins = joins};
        assert_ok(workspaces_clear_all(NULL));
        assert_ok(tarn_device_trim(0, 0));
        assert_ok(tarn_stream_lease(0, 0, &owner.origin));
        assert_ok(tarn_stream_lease(0, 0, &owner.other));
        try_to_take_from(&owner);
        assert_ok(tarn_stream_return(owner.other));
        assert_ok(tarn_stream_return(owner.origin));
    }
}

static void *have_own_stream(void *argument)
{
    struct owner *owner = argument;
    OWNER(tarn_stream_adopt(0, OWN_STREAM, &owner->own) == TARN_OK);
    pthread_barrier_wait(&owner->barrier);
    pthread_barrier_wait(&owner->barrier); /* another has it for its current stream */
    return NULL;
}

/* The driver has a name for it only in the thread that it belongs to. */
static void no_workspace_is_for_another_threads_stream(void **state)
{
    (void)state;
    struct owner owner = {.wrong = NULL};
    pthread_t thread;
    owner_start(&owner, &thread, have_own_stream);
    tarn_status set = tarn_stream_set(owner.own), get[3], begin[3], by_call[3];
    tarn_workspace_call calls[3] = {{0}};
    void *handle = NULL, *pointer = NULL;
    size_t size = 0;
    for (int policy = TARN_WORKSPACE_CACHED; policy <= TARN_WORKSPACE_LIBRARY; policy++) {
        (void)tarn_workspace_policy_set((tarn_workspace_policy)policy, NULL);
        get[policy] = tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle);
        begin[policy] =
            tarn_workspace_begin(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, NULL, &calls[policy]);
        if (!begin[policy])
            (void)tarn_workspace_end(&(tarn_workspace_call){.owner = calls[policy].owner});
        by_call[policy] =
            tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &pointer, &size);
    }
    (void)tarn_workspace_policy_set(TARN_WORKSPACE_CACHED, NULL);
    (void)tarn_stream_set(TARN_STREAM_LEGACY);
    owner_end(&owner, thread);

    assert_ok(set);
    for (int i = 0; i < 3; i++) {
        assert_status(get[i], TARN_ERROR_INVALID_STREAM);
        assert_status(begin[i], TARN_ERROR_INVALID_STREAM);
        assert_status(by_call[i], TARN_ERROR_INVALID_STREAM);
        assert_true(!calls[i].handle && !calls[i].pointer && !calls[i].owner);
    }
    assert_true(!handle && !pointer && !size);
}

/* Of cuBLASLt: the current stream's, a named one's, and a lease's are each another's. */
static void a_workspace_by_call_is_the_streams(void **state)
{
    (void)state;
    tarn_stream stream = TARN_STREAM_LEGACY, other = TARN_STREAM_LEGACY;
    tarn_workspace_cleared cleared;
    tarn_lease lease = {0}, blas = {0};
    void *mine = NULL, *named = NULL, *again = NULL, *leased = NULL;
    size_t size = 0;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_stream_lease(0, 0, &other));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &mine, &size));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, stream, NULL, &named, &size));
    assert_ptr_not_equal(mine, named);
    assert_ok(tarn_stream_set(stream));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_CURRENT, NULL, &again, &size));
    assert_ptr_equal(again, named);
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));

    assert_ok(tarn_handle_lease(TARN_LIBRARY_CUBLASLT, stream, &lease));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &lease, &leased, &size));
    assert_ptr_not_equal(leased, named);
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &lease, &again, &size));
    assert_ptr_equal(again, leased);
    assert_ok(workspaces_clear_stream(stream, &cleared));
    assert_int_equal(cleared.freed, size);    /* ours */
    assert_int_equal(cleared.deferred, size); /* whoever has the lease may be about to use its
                                                 own */
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &lease, &again, &size));
    assert_ok(tarn_handle_lease_bind(&lease, other));
    assert_ok(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &lease, &again, &size));
    assert_ok(workspaces_clear_stream(other, &cleared));
    assert_int_equal(cleared.deferred, size);
    assert_ok(tarn_handle_return(&lease));
    assert_status(
        tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &lease, &again, &size),
        TARN_ERROR_INVALID_ARGUMENT);

    assert_ok(tarn_handle_lease(TARN_LIBRARY_CUBLAS, stream, &blas));
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLASLT, TARN_STREAM_NONE, &blas, &again, &size),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLAS, stream, &blas, &again, &size),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_workspace_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_NONE, &blas, &again, &size),
                  TARN_ERROR_NOT_SUPPORTED);
    assert_ok(tarn_handle_return(&blas));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
    assert_ok(tarn_stream_return(other));
}

static int math_mode_of(void *handle)
{
    int mode = -1, (*get)(void *, int *) = NULL;
    loader_store(&get, dlsym(entry_at(TARN_LIBRARY_CUBLAS)->opened, "cublasGetMathMode"));
    assert_int_equal(get(handle, &mode), 0);
    return mode;
}

static int math_mode(void)
{
    void *handle = NULL;
    assert_ok(tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle));
    return math_mode_of(handle);
}

static void *have_math_mode(void *mode)
{
    *(int *)mode = math_mode();
    return NULL;
}

static int math_mode_of_another_thread(void)
{
    pthread_t thread;
    int mode = -1;
    assert_int_equal(pthread_create(&thread, NULL, have_math_mode, &mode), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return mode;
}

/* Sets this thread's own mode, and returns the one before. */
static int own_math(int value)
{
    int previous = -2;
    assert_ok(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH,
                                   TARN_HANDLE_MODE_FOR_THREAD, value, &previous));
    return previous;
}

/* Goes with a mode of its own, in a thread that has had no handle before. */
static void *leave_with_mode(void *handle)
{
    tarn_status status = tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH,
                                              TARN_HANDLE_MODE_FOR_THREAD, 3, NULL);
    return status || tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, handle)
               ? "a mode or a get failed"
               : NULL;
}

static void a_mode_of_one_thread_is_its_alone(void **state)
{
    (void)state;
    tarn_lease lease = {0};
    int value = 0;
    assert_int_equal(math_mode(), 0);
    assert_int_equal(own_math(3), -1); /* CUBLAS_TF32_TENSOR_OP_MATH */
    assert_int_equal(math_mode(), 3);
    assert_int_equal(math_mode_of_another_thread(), 0);

    /* Whatever all have, until it has none of its own. */
    assert_ok(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL,
                                   2, &value));
    assert_int_equal(value, -1);
    assert_int_equal(math_mode(), 3);
    assert_int_equal(math_mode_of_another_thread(), 2);
    assert_int_equal(own_math(-1), 3);
    assert_int_equal(math_mode(), 2);
    assert_int_equal(own_math(3), -1);
    assert_int_equal(math_mode(), 3);

    /* A lease has what all have. */
    assert_ok(tarn_handle_lease(TARN_LIBRARY_CUBLAS, TARN_STREAM_LEGACY, &lease));
    assert_int_equal(math_mode_of(lease.handle), 2);
    assert_ok(tarn_handle_return(&lease));
    assert_int_equal(own_math(-1), 3);
    assert_int_equal(math_mode(), 2);
    assert_ok(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL,
                                   -1, &value));
    assert_int_equal(value, 2);
    assert_int_equal(math_mode(), 0);

    for (int whose = TARN_HANDLE_MODE_FOR_ALL; whose <= TARN_HANDLE_MODE_FOR_THREAD; whose++) {
        assert_status(tarn_handle_mode_set(TARN_LIBRARY_CUDNN, TARN_HANDLE_MATH,
                                           (tarn_handle_mode_for)whose, 1, &value),
                      TARN_ERROR_NOT_SUPPORTED);
        assert_status(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, (tarn_handle_mode)2,
                                           (tarn_handle_mode_for)whose, 1, &value),
                      TARN_ERROR_INVALID_ARGUMENT);
        assert_status(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH,
                                           (tarn_handle_mode_for)whose, -2, &value),
                      TARN_ERROR_INVALID_ARGUMENT);
    }
    assert_status(tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH,
                                       (tarn_handle_mode_for)2, 1, &value),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(value, 2);
    assert_int_equal(math_mode(), 0);
}

/* The mode ends with the thread: neither the handle nor the next thread has anything of it. */
static void a_mode_goes_with_its_thread(void **state)
{
    (void)state;
    pthread_t thread;
    void *handle = NULL, *wrong = NULL;
    tarn_lease lease = {0};
    assert_int_equal(pthread_create(&thread, NULL, leave_with_mode, &handle), 0);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    assert_int_equal(math_mode_of(handle), 3); /* told by the next bind */
    assert_ok(tarn_handle_lease(TARN_LIBRARY_CUBLAS, TARN_STREAM_LEGACY, &lease));
    assert_ptr_equal(lease.handle, handle);
    assert_int_equal(math_mode_of(handle), 0);
    assert_ok(tarn_handle_return(&lease));
    assert_int_equal(math_mode_of_another_thread(), 0); /* which has what is left of the first */
}

static void a_mode_of_one_thread_is_set_in_a_capture(void **state)
{
    (void)state;
    tarn_stream stream = TARN_STREAM_LEGACY;
    void *graph = NULL;
    int in = -1, after = -1;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_stream_set(stream));
    assert_int_equal(math_mode(), 0);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    assert_int_equal(own_math(3), -1);
    in = math_mode();
    tarn_status status = tarn_handle_mode_set(TARN_LIBRARY_CUBLAS, TARN_HANDLE_MATH,
                                              TARN_HANDLE_MODE_FOR_THREAD, -1, NULL);
    after = math_mode();
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(status);
    assert_int_equal(in, 3);
    assert_int_equal(after, 0);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    assert_ok(workspaces_clear_all(NULL));
    assert_ok(tarn_stream_return(stream));
}

/* Fills the device with memory that tarn has and nobody uses. */
static void fill_with_idle_memory(void)
{
    void *blocks[32];
    size_t count = 0;
    for (size_t size = (size_t)16 << 30; size >= MIB && count < 32; size /= 2)
        while (count < 32 && tarn_alloc_on(TARN_STREAM_LEGACY, size, &blocks[count]) == TARN_OK)
            count++;
    while (count)
        assert_ok(tarn_free(blocks[--count]));
}

static void *get_once(void *argument)
{
    const tarn_library *library = argument;
    void *handle = NULL;
    static tarn_status status;
    status = tarn_handle_get(*library, TARN_STREAM_CURRENT, &handle);
    return &status;
}

static tarn_status get_in_another_thread(tarn_library library)
{
    pthread_t thread;
    void *status = NULL;
    assert_int_equal(pthread_create(&thread, NULL, get_once, &library), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    return *(const tarn_status *)status;
}

/* cuSPARSELt's handle is tarn's memory: it goes with the handle, and where none comes of a
 * create. */
static void a_structure_goes_with_its_handle(void **state)
{
    (void)state;
    const struct vendor_failures *failures;
    assert_ok(get_in_another_thread(TARN_LIBRARY_CUSPARSELT));
    assert_ok(tarn_handle_trim(TARN_LIBRARY_CUSPARSELT, 0, NULL));
    failures = dlsym(entry_at(TARN_LIBRARY_CUSPARSELT)->opened, "tarn_sim_failures");
    assert_non_null(failures);
    uint64_t metadata = pages_bytes();
    for (int i = 0; i < 20; i++) {
        assert_ok(get_in_another_thread(TARN_LIBRARY_CUSPARSELT));
        assert_ok(tarn_handle_trim(TARN_LIBRARY_CUSPARSELT, 0, NULL));
        (failures->fail)(1, false, VENDOR_FAILS);
        assert_status(get_in_another_thread(TARN_LIBRARY_CUSPARSELT), TARN_ERROR_LIBRARY);
        (failures->fail)(0, false, VENDOR_FAILS);
    }
    assert_true(pages_bytes() <= metadata + 65536);
}

/* cuDNN and cuSOLVER do not say that a device is full (JuliaGPU/CUDA.jl#244, #1691): what is free
 * on it does. */
static void a_create_on_a_full_device_reports_another_error(void **state)
{
    (void)state;
    static const tarn_library libraries[] = {TARN_LIBRARY_CUDNN, TARN_LIBRARY_CUSOLVER_DN,
                                             TARN_LIBRARY_CUSOLVER_SP};
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        struct entry *entry = entry_at(libraries[i]);
        assert_ok(entry_load(entry));
        unsigned long creates = calls_in(entry->opened, entry->row->create);
        fill_with_idle_memory();
        assert_ok(get_in_another_thread(libraries[i]));
        assert_int_equal(calls_in(entry->opened, entry->row->create) - creates, 2);
        assert_ok(tarn_handle_trim(libraries[i], 0, NULL));
        assert_ok(tarn_device_trim(0, 0));
    }

    /* The same status on a device with room is what it says it is. */
    struct entry *entry = entry_at(TARN_LIBRARY_CUDNN);
    const struct vendor_failures *failures = dlsym(entry->opened, "tarn_sim_failures");
    unsigned long creates = calls_in(entry->opened, entry->row->create);
    assert_non_null(failures);
    (failures->fail)(1, false, 0); /* NOT_INITIALIZED */
    assert_status(get_in_another_thread(TARN_LIBRARY_CUDNN), TARN_ERROR_LIBRARY);
    (failures->fail)(0, false, 0);
    assert_int_equal(calls_in(entry->opened, entry->row->create) - creates, 1);
}

/* Libraries that are newer than the driver. */
static void scenario_old_driver(void)
{
    void *handle = NULL;
    NEED(tarn_handle_get(TARN_LIBRARY_CUDNN, TARN_STREAM_CURRENT, &handle) == TARN_ERROR_LIBRARY &&
         !handle);
    NEED(strstr(tarn_last_error(), "3005 (CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER)"));
    NEED(tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle) == TARN_ERROR_LIBRARY &&
         !handle);
    NEED(strstr(tarn_last_error(), "CUBLAS_STATUS_NOT_INITIALIZED"));
    NEED(tarn_handle_get(TARN_LIBRARY_CUSOLVER_DN, TARN_STREAM_CURRENT, &handle) ==
             TARN_ERROR_LIBRARY &&
         !handle);
    NEED(tarn_handle_get(TARN_LIBRARY_CURAND, TARN_STREAM_CURRENT, &handle) == TARN_OK);
}

static void a_library_that_the_driver_is_too_old_for_is_refused(void **state)
{
    (void)state;
    const char *const variables[] = {"TARN_SIM_CUDA_VERSION=11040", "TARN_SIM_STRICT=1", NULL};
    assert_int_equal(run_scenario("old_driver", variables), 0);
}

/* What the process has already is used, though a newer one could be found: version 8 of cuDNN, 12
 * of cuBLAS. */
static void scenario_older_library(void)
{
    void *handle = NULL;
    tarn_library_info info = {.size = sizeof info};
    NEED(dlopen("libcudnn.so.8", RTLD_NOW | RTLD_LOCAL) &&
         dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL));
    NEED(tarn_library_info_get(TARN_LIBRARY_CUDNN, &info) == TARN_OK);
    NEED(strcmp(info.version, "8.9.7") == 0 && strstr(info.path, "libcudnn.so.8"));
    NEED(setenv("TARN_SIM_CUDNN_FAIL", "1-2", 1) == 0);
    NEED(tarn_handle_get(TARN_LIBRARY_CUDNN, TARN_STREAM_CURRENT, &handle) ==
         TARN_ERROR_OUT_OF_MEMORY);
    NEED(strstr(tarn_last_error(), "status 2 (CUDNN_STATUS_ALLOC_FAILED)"));
    NEED(tarn_handle_get(TARN_LIBRARY_CUDNN, TARN_STREAM_CURRENT, &handle) == TARN_OK);
    NEED(tarn_library_info_get(TARN_LIBRARY_CUBLAS, &info) == TARN_OK);
    NEED(strcmp(info.version, "12.9.1") == 0);
    NEED(tarn_handle_get(TARN_LIBRARY_CUBLAS, TARN_STREAM_CURRENT, &handle) == TARN_OK);
}

static void an_older_library_serves_where_it_is_loaded(void **state)
{
    (void)state;
    assert_int_equal(run_scenario("older_library", strict), 0);
}

static void expect_path(tarn_library library, const char *soname)
{
    tarn_library_info info = {.size = sizeof info};
    NEED(tarn_library_info_get(library, &info) == TARN_OK && info.found);
    NEED(strstr(info.path, soname));
}

/* The program's cuBLAS is CUDA 12's: cuSOLVER, which calls it, must be of the same, whatever is
 * newer. */
static void scenario_same_release(void)
{
    NEED(dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL));
    expect_path(TARN_LIBRARY_CUSOLVER_DN, "libcusolver.so.11");
    expect_path(TARN_LIBRARY_CUBLASLT, "libcublasLt.so.12");
    expect_path(TARN_LIBRARY_CUSPARSE, "libcusparse.so.12"); /* CUDA 12 and 13 have the same */
    expect_path(TARN_LIBRARY_CUBLAS, "libcublas.so.12");
    expect_path(TARN_LIBRARY_CUDNN, "libcudnn.so.9"); /* comes apart */
}

/* cuSPARSE alone says 12 or 13, and the newest of both is taken. */
static void scenario_either_release(void)
{
    NEED(dlopen("libcusparse.so.12", RTLD_NOW | RTLD_LOCAL));
    expect_path(TARN_LIBRARY_CUSOLVER_SP, "libcusolver.so.12");
    expect_path(TARN_LIBRARY_CUBLAS, "libcublas.so.13");
}

/* Only another one is there. */
static void scenario_other_release(void)
{
    void *handle = NULL;
    tarn_library_info info = {.size = sizeof info};
    NEED(dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL));
    loader_fail("libcusolver.so.11");
    NEED(tarn_handle_get(TARN_LIBRARY_CUSOLVER_DN, TARN_STREAM_CURRENT, &handle) ==
             TARN_ERROR_LIBRARY_NOT_FOUND &&
         !handle);
    NEED(strstr(tarn_last_error(),
                "libcusolver.so.12 is of CUDA 13, and libcublas.so.12 of CUDA 12 is loaded"));
    NEED(tarn_library_info_get(TARN_LIBRARY_CUSOLVER_DN, &info) == TARN_OK && !info.found &&
         !info.path[0]);
    NEED(!dlopen("libcusolver.so.12", RTLD_NOW | RTLD_NOLOAD)); /* nor was it opened */
}

/* A program that has two has made its choice. */
static void scenario_both_releases(void)
{
    NEED(dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL) &&
         dlopen("libcusolver.so.12", RTLD_NOW | RTLD_LOCAL));
    expect_path(TARN_LIBRARY_CUSOLVER_DN, "libcusolver.so.12");
    expect_path(TARN_LIBRARY_CUBLAS, "libcublas.so.12");
    expect_path(TARN_LIBRARY_CUBLASLT, "libcublasLt.so.13");
}

/* The folder that the user names first has another one only, and the loader's own is right. */
static void scenario_other_release_by_path(void)
{
    char folder[] = "/tmp/tarn-vendor-XXXXXX", path[64];
    Dl_info simulated;
    void *library = dlopen("libcublas.so.12", RTLD_NOW | RTLD_LOCAL);
    NEED(library && dladdr(dlsym(library, "cublasCreate_v2"), &simulated));
    NEED(mkdtemp(folder) && setenv("TARN_LIBRARY_PATH", folder, 1) == 0);
    snprintf(path, sizeof path, "%s/libcusolver.so.12", folder);
    NEED(symlink(simulated.dli_fname, path) == 0);
    expect_path(TARN_LIBRARY_CUSOLVER_DN, "libcusolver.so.11");
    loader_fail("libcusolver.so.11");
    tarn_library_info info = {.size = sizeof info};
    NEED(tarn_library_info_get(TARN_LIBRARY_CUSOLVER_SP, &info) == TARN_OK && !info.found);
    NEED(strstr(info.reason, path));
    NEED(unlink(path) == 0 && rmdir(folder) == 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} releases[] = {
    {"same_release", scenario_same_release},
    {"either_release", scenario_either_release},
    {"other_release", scenario_other_release},
    {"both_releases", scenario_both_releases},
    {"other_release_by_path", scenario_other_release_by_path},
};

static bool run_release_scenario(const char *name)
{
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        if (strcmp(name, releases[i].name) != 0)
            continue;
        releases[i].run();
        return true;
    }
    return false;
}

static void a_library_is_of_the_release_that_is_loaded(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++)
        assert_int_equal(run_scenario(releases[i].name, strict), 0);
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
    setenv("TARN_HOST_MEMORY", "32G", 1); /* sixteen threads on five streams, with workspaces of 32
                                             MiB */
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
        else if (run_release_scenario(arguments[1]))
            return 0;
        else if (!run_common_scenario(arguments[1]))
            return 127;
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exit_destroys_nothing),
        cmocka_unit_test(a_get_after_the_drivers_end_says_so),
        cmocka_unit_test(a_shutdown_destroys_all),
        cmocka_unit_test(the_version_is_the_librarys),
        cmocka_unit_test(a_library_that_the_driver_is_too_old_for_is_refused),
        cmocka_unit_test(an_older_library_serves_where_it_is_loaded),
        cmocka_unit_test(a_library_is_of_the_release_that_is_loaded),
        cmocka_unit_test(without_a_device_creates_fail_as_the_real_ones),
        cmocka_unit_test(a_create_past_tarn_breaks_a_capture),
        cmocka_unit_test(cudss_has_its_memory_from_tarn),
        cmocka_unit_test(the_workspace_of_cublaslt_is_asked_for),
        cmocka_unit_test(a_create_on_a_full_device_reports_another_error),
        cmocka_unit_test(the_workspace_of_cublaslt_stays_while_others_clear),
        cmocka_unit_test(the_workspace_of_cublaslt_stays_while_its_handle_is_asked_for),
        cmocka_unit_test(the_workspace_of_a_capture_on_another_threads_stream_stays),
        cmocka_unit_test(no_workspace_is_for_another_threads_stream),
        cmocka_unit_test(a_workspace_by_call_is_the_streams),
        cmocka_unit_test(a_structure_goes_with_its_handle),
        cmocka_unit_test(a_mode_of_one_thread_is_its_alone),
        cmocka_unit_test(a_mode_goes_with_its_thread),
        cmocka_unit_test(a_mode_of_one_thread_is_set_in_a_capture),
    };
    int failures = run_each();
    return failures + cmocka_run_group_tests(tests, NULL, NULL);
}
