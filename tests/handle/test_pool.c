/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Who gets which handle, and what the vendor is told: pytorch's rules for handle pools, and where
 * tarn goes beyond them. */
#include "handle/fake.h"

#include "base/pages.h"
#include "driver/driver.h"
#include "handle/handle.h"

#include <semaphore.h>

static void test_one_handle_a_thread_and_device(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    struct fake_handle *first = get(library);
    assert_ptr_equal(get(library), first);
    assert_ok(tarn_device_set(1));
    struct fake_handle *other = get(library);
    assert_ptr_not_equal(other, first);
    assert_ok(tarn_device_set(0));
    assert_ptr_equal(get(library), first);
    assert_int_equal(fake_calls(FAKE_CREATE), 2);
    assert_int_equal(handle_stats(library).in_use, 1);
    assert_ptr_not_equal(get(fake_register(0, false)), first);
}

static void test_no_call_of_the_vendor_on_an_unchanged_stream(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    tarn_stream a = new_stream(), b = new_stream();
    struct fake_handle *handle = NULL;
    tarn_stream bound = 0;
    int told = 0;
    srand(1);
    for (int i = 0; i < 5000; i++) {
        tarn_stream wanted = rand() % 3 ? bound ? bound : a : rand() % 2 ? a : b;
        void *got = NULL;
        if (rand() % 2) {
            assert_ok(tarn_handle_get(library, wanted, &got));
        } else {
            assert_ok(tarn_stream_set(wanted));
            assert_ok(tarn_handle_get(library, TARN_STREAM_CURRENT, &got));
        }
        handle = got;
        told += wanted != bound;
        bound = wanted;
        assert_ptr_equal(handle->stream, native(wanted));
        assert_int_equal(fake_calls(FAKE_SET_STREAM), told);
    }
    assert_int_equal(fake_calls(FAKE_CREATE), 1);
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    assert_null(get(library)->stream);
    assert_ok(tarn_stream_return(a));
    assert_ok(tarn_stream_return(b));
}

static void *get_in_thread(void *argument)
{
    return get(*(tarn_library *)argument);
}

static void test_a_thread_that_ends_gives_its_handle_back(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    pthread_t thread;
    void *first = NULL, *second = NULL;
    assert_int_equal(pthread_create(&thread, NULL, get_in_thread, &library), 0);
    pthread_join(thread, &first);
    assert_int_equal(handle_stats(library).available, 1);
    ((struct fake_handle *)first)->pointer_mode = 1; /* as its thread may have left it */
    assert_int_equal(pthread_create(&thread, NULL, get_in_thread, &library), 0);
    pthread_join(thread, &second);
    assert_ptr_equal(first, second);
    assert_int_equal(((struct fake_handle *)second)->pointer_mode, 0);
    tarn_handle_stats stats = handle_stats(library);
    assert_int_equal(stats.created, 1);
    assert_int_equal(stats.in_use, 0);
    assert_int_equal(stats.peak_in_use, 1);
    assert_int_equal(fake_calls(FAKE_DESTROY), 0);
}

struct meeting {
    tarn_library library;
    pthread_barrier_t barrier;
    void *handles[16];
    atomic_int next;
};

static void *meet(void *argument)
{
    struct meeting *meeting = argument;
    void *handle = get(meeting->library);
    meeting->handles[atomic_fetch_add(&meeting->next, 1)] = handle;
    pthread_barrier_wait(&meeting->barrier);
    return handle;
}

static void test_sixteen_slow_creates_side_by_side(void **state)
{
    (void)state;
    struct meeting meeting = {.library = fake_register(0, false)};
    pthread_t threads[16];
    pthread_barrier_init(&meeting.barrier, NULL, 16);
    atomic_store(&fake.create_ms, 100);
    atomic_store(&fake.create_meet, 15);
    for (int i = 0; i < 16; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, meet, &meeting), 0);
    for (int i = 0; i < 16; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&fake.peak_with_first), 1); /* it ran alone */
    assert_int_equal(atomic_load(&fake.creating_peak), 15);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(meeting.handles[i], meeting.handles[j]);
    tarn_handle_stats stats = handle_stats(meeting.library);
    assert_int_equal(stats.created, 16);
    assert_int_equal(stats.peak_in_use, 16);
    assert_int_equal(stats.available, 16);
    assert_true(stats.create_ns_max >= 100000000 &&
                stats.create_ns_sum >= 16 * UINT64_C(100000000));
    pthread_barrier_destroy(&meeting.barrier);
}

static void test_creates_that_lie(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    void *handle = &handle;
    atomic_store(&fake.lie, FAKE_OK_WITHOUT_HANDLE);
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_LIBRARY,
                   "created no handle");
    atomic_store(&fake.lie, FAKE_FAILED_WITH_GARBAGE);
    assert_refused(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_LIBRARY,
                   "create gave status 1 (FAKE_ERROR)");
    assert_ptr_equal(handle, &handle); /* untouched on failure */
    assert_int_equal(fake_calls(FAKE_DESTROY), 0);
    atomic_store(&fake.lie, FAKE_HONEST);
    assert_non_null(get(library));
    assert_int_equal(handle_stats(library).failures, 2);
}

static void test_full_device_is_trimmed_and_tried_again(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    void *block = tarn_malloc(8 * MIB), *handle;
    assert_non_null(block);
    assert_ok(tarn_free(block));
    fake_fail(FAKE_CREATE, 1, 2);
    assert_non_null(get(library));
    assert_int_equal(fake_calls(FAKE_CREATE), 2);
    tarn_library other = fake_register(0, false);
    fake_fail(FAKE_CREATE, 1, 7);
    assert_refused(tarn_handle_get(other, TARN_STREAM_CURRENT, &handle), TARN_ERROR_LIBRARY,
                   "FAKE_IS_BUSY");
}

static void test_every_failure_leaves_things_as_they_were(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    tarn_stream stream = new_stream();
    void *handle = NULL;
    for (int call = FAKE_CREATE; call < FAKE_CALLS; call++) {
        if (call == FAKE_DESTROY)
            continue;
        tarn_library fresh = fake_register(0, true);
        fake_fail((enum fake_call)call, 1, 7);
        assert_status(tarn_handle_get(fresh, stream, &handle), TARN_ERROR_LIBRARY);
        assert_null(handle);
        assert_int_equal(handle_stats(fresh).in_use, 0);
        assert_ok(tarn_handle_get(fresh, stream, &handle));
        assert_true(((struct fake_handle *)handle)->workspace_follows);
        handle = NULL;
    }
    /* A rebinding that fails half-way is done whole by the next get. */
    assert_ok(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle));
    fake_fail(FAKE_SET_WORKSPACE, 1, 7);
    assert_status(tarn_handle_get(library, stream, &handle), TARN_ERROR_LIBRARY);
    struct fake_handle *same = get(library);
    assert_ptr_equal(same, handle);
    assert_null(same->stream);
    assert_true(same->workspace_follows);
    /* Host memory, at each allocation. */
    for (uint64_t nth = 1;; nth++) {
        tarn_library fresh = fake_register(0, true);
        pages_fail(nth, false);
        handle = NULL;
        tarn_status status = tarn_handle_get(fresh, stream, &handle);
        uint64_t hits = pages_fail_hits();
        pages_fail(0, false);
        if (hits && status) {
            assert_int_equal(status, TARN_ERROR_OUT_OF_HOST_MEMORY);
            assert_null(handle);
            assert_int_equal(handle_stats(fresh).in_use, 0);
        }
        assert_ok(tarn_handle_get(fresh, stream, &handle));
        if (!hits)
            break;
        assert_true(nth < 20);
    }
    assert_ok(tarn_stream_return(stream));
}

static void test_by_stream(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, false);
    tarn_stream a = new_stream(), b = new_stream();
    void *on_a, *on_b, *again;
    assert_ok(tarn_handle_get(library, a, &on_a));
    assert_ok(tarn_handle_get(library, b, &on_b));
    assert_ptr_not_equal(on_a, on_b);
    for (int i = 0; i < 10; i++) {
        assert_ok(tarn_handle_get(library, i % 2 ? b : a, &again));
        assert_ptr_equal(again, i % 2 ? on_b : on_a);
    }
    assert_int_equal(fake_calls(FAKE_SET_STREAM), 2);
    assert_int_equal(handle_stats(library).in_use, 2);

    /* A retired stream's handle serves another one, which comes after its work. */
    struct {
        void *native;
        tarn_stream stream;
    } own = {.native = native_made()};
    assert_ok(tarn_stream_adopt(0, own.native, &own.stream));
    void *on_own;
    assert_ok(tarn_handle_get(library, own.stream, &on_own));
    assert_ok(tarn_stream_retire(own.stream));
    tarn_stream c = new_stream();
    assert_ok(tarn_handle_get(library, c, &again));
    assert_ptr_equal(again, on_own);
    assert_int_equal(fake_calls(FAKE_CREATE), 3);
}

static void test_leases(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    tarn_stream a = new_stream(), b = new_stream();
    tarn_lease first = {0}, second = {0}, copy;
    assert_ok(tarn_handle_lease(library, a, &first));
    assert_ok(tarn_handle_lease(library, a, &second));
    assert_ptr_not_equal(first.handle, second.handle);
    assert_ptr_equal(((struct fake_handle *)first.handle)->stream, native(a));
    assert_ok(tarn_handle_lease_bind(&first, b));
    assert_ptr_equal(((struct fake_handle *)first.handle)->stream, native(b));
    copy = first;
    assert_ok(tarn_handle_return(&first));
    assert_null(first.handle);
    assert_status(tarn_handle_return(&first), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_return(&copy), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_lease_bind(&copy, a), TARN_ERROR_INVALID_ARGUMENT);
    tarn_lease third = {0};
    assert_ok(tarn_handle_lease(library, b, &third));
    assert_ptr_equal(third.handle, copy.handle);
    /* Not the lease that has it now */
    assert_status(tarn_handle_return(&copy), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(tarn_handle_return(&third));
    assert_ok(tarn_handle_return(&second));

    tarn_library by_stream = fake_register(TARN_LIBRARY_BY_STREAM, false);
    assert_ok(tarn_handle_lease(by_stream, a, &first));
    void *on_a = first.handle;
    assert_ok(tarn_handle_lease_bind(&first, b));
    assert_ptr_not_equal(first.handle, on_a);
    assert_int_equal(handle_stats(by_stream).in_use, 1);
    assert_ok(tarn_handle_return(&first));
}

/* Where a handle of another stream is there and not available, one is made. */
/* A lease that could not be bound is one still. */
static void test_a_lease_outlives_a_failed_bind(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    tarn_stream a = new_stream(), b = new_stream();
    tarn_lease lease = {0};
    assert_ok(tarn_handle_lease(library, a, &lease));
    fake_fail(FAKE_SET_STREAM, 1, 7);
    assert_refused(tarn_handle_lease_bind(&lease, b), TARN_ERROR_LIBRARY, "set_stream");
    assert_status(tarn_handle_lease_bind(&lease, UINT64_MAX - 5), TARN_ERROR_INVALID_STREAM);
    assert_ok(tarn_handle_lease_bind(&lease, b));
    assert_ok(tarn_handle_return(&lease));
    assert_int_equal(handle_stats(library).in_use, 0);
    assert_ok(tarn_stream_return(a));
    assert_ok(tarn_stream_return(b));
}

static int kind_of(const char *name)
{
    for (int kind = 0; tarn_host_call_name(kind); kind++)
        if (strcmp(tarn_host_call_name(kind), name) == 0)
            return kind;
    return -1;
}

/* A handle that cannot be ordered behind what it was used for goes back. */
static void test_by_stream_without_an_event(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, false);
    tarn_stream a = new_stream(), b = new_stream();
    tarn_lease lease = {0};
    void *handle = NULL;
    assert_ok(tarn_handle_lease(library, a, &lease));
    void *first = lease.handle;
    assert_ok(tarn_handle_return(&lease));
    for (int i = 0; i < 3; i++) {
        /* So that there is something to wait for */
        assert_ok(tarn_host_work(0, native(a), NULL, 0, 1000));
        assert_ok(tarn_host_fail_set(kind_of("event_record"), 1, true, TARN_ERROR_DRIVER));
        tarn_status status =
            i == 2 ? tarn_handle_lease(library, b, &lease) : tarn_handle_get(library, b, &handle);
        assert_ok(tarn_host_fail_set(-1, 0, false, TARN_OK));
        assert_int_equal(status, TARN_ERROR_DRIVER);
        assert_int_equal(handle_stats(library).in_use, 0);
        assert_int_equal(handle_stats(library).available, 1);
    }
    assert_ok(tarn_handle_get(library, b, &handle));
    assert_ptr_equal(handle, first);
    assert_ok(tarn_stream_return(a));
    assert_ok(tarn_stream_return(b));
}

static void test_by_stream_in_a_capture(void **state)
{
    (void)state;
    tarn_library library =
        fake_register(TARN_LIBRARY_BY_STREAM | TARN_LIBRARY_CREATE_IN_CAPTURE, false);
    tarn_stream a = new_stream(), b = new_stream();
    tarn_lease first = {0}, second = {0};
    assert_ok(tarn_handle_lease(library, a, &first));
    assert_ok(tarn_handle_return(&first));
    assert_ok(tarn_capture_begin(b, TARN_CAPTURE_RELAXED));
    alarm(30);
    assert_ok(tarn_handle_lease(library, b, &second));
    alarm(0);
    assert_int_equal(fake_calls(FAKE_CREATE), 2);
    assert_ok(tarn_capture_abort(b));
    assert_ok(tarn_handle_return(&second));
}

static struct {
    tarn_lease lease;
    pthread_barrier_t start;
} shared;

static void *return_copy(void *argument)
{
    tarn_lease copy = shared.lease;
    (void)argument;
    pthread_barrier_wait(&shared.start);
    return (void *)(uintptr_t)(tarn_handle_return(&copy) == TARN_OK);
}

static void test_of_two_returns_at_once_one_counts(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    pthread_barrier_init(&shared.start, NULL, 2);
    for (int round = 0; round < (SLOW_BUILD ? 200 : 2000); round++) {
        pthread_t threads[2];
        uintptr_t sum = 0;
        assert_ok(tarn_handle_lease(library, TARN_STREAM_LEGACY, &shared.lease));
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, return_copy, NULL), 0);
        for (int i = 0; i < 2; i++) {
            void *returned = NULL;
            assert_int_equal(pthread_join(threads[i], &returned), 0);
            sum += (uintptr_t)returned;
        }
        assert_int_equal(sum, 1);
        assert_int_equal(handle_stats(library).available, 1);
    }
    pthread_barrier_destroy(&shared.start);
}

static void test_prewarm_and_trim(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, true);
    size_t destroyed = 99;
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 3));
    assert_int_equal(handle_stats(library).peak_in_use, 0);
    assert_int_equal(handle_stats(library).available, 3);
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 2));
    assert_int_equal(fake_calls(FAKE_CREATE), 3);
    struct fake_handle *mine = get(library);
    assert_int_equal(fake_calls(FAKE_CREATE), 3);
    assert_ok(tarn_handle_trim(library, 0, &destroyed));
    assert_int_equal(destroyed, 2);
    assert_ptr_equal(get(library), mine);
    in_thread(get_in_thread, &library);
    uint64_t before = workspace_stats().bytes;
    fake_fail(FAKE_DESTROY, 1, 7);
    assert_refused(tarn_handle_trim(library, 0, &destroyed), TARN_ERROR_LIBRARY, "destroy");
    assert_int_equal(destroyed, 1);
    assert_true(workspace_stats().bytes < before);
    tarn_handle_stats stats = handle_stats(library);
    assert_int_equal(stats.destroyed, 3);
    assert_int_equal(stats.available, 0);
    assert_int_equal(stats.in_use, 1);
    assert_status(tarn_handle_prewarm(library, 9, TARN_STREAM_NONE, 1), TARN_ERROR_INVALID_DEVICE);
    assert_status(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 100000),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_prewarm(library, 1, new_stream(), 1), TARN_ERROR_INVALID_STREAM);
    assert_ok(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, TARN_STREAM_CURRENT, 1));
}

struct other_thread {
    tarn_library library;
    uint64_t wait_ns;
    tarn_status status;
};

static void *get_with_limit(void *argument)
{
    struct other_thread *other = argument;
    void *handle;
    assert_ok(tarn_handle_wait_limit_set(other->wait_ns, NULL));
    other->status = tarn_handle_get(other->library, TARN_STREAM_CURRENT, &handle);
    return NULL;
}

static void test_captures(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false), cold = fake_register(0, false);
    tarn_library harmless = fake_register(TARN_LIBRARY_CREATE_IN_CAPTURE, false);
    tarn_stream stream = new_stream();
    void *handle, *graph = NULL;
    struct fake_handle *warm = get(library);
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    int told = fake_calls(FAKE_SET_STREAM);
    assert_ok(tarn_handle_get(library, stream, &handle));
    assert_ptr_equal(handle, warm);
    assert_int_equal(fake_calls(FAKE_SET_STREAM), told + 1);
    assert_refused(tarn_handle_get(cold, stream, &handle), TARN_ERROR_CAPTURE,
                   "tarn_handle_prewarm()");
    assert_refused(tarn_handle_prewarm(cold, 0, TARN_STREAM_NONE, 1), TARN_ERROR_CAPTURE,
                   "this thread");
    assert_refused(tarn_handle_trim(library, 0, NULL), TARN_ERROR_CAPTURE, "destroy");
    assert_ok(tarn_handle_get(harmless, stream, &handle));

    struct other_thread other = {.library = library};
    in_thread(get_with_limit, &other); /* takes the one that was made before */
    assert_int_equal(other.status, TARN_OK);
    other.library = cold;
    in_thread(get_with_limit, &other);
    assert_int_equal(other.status, TARN_ERROR_CAPTURE);
    other.wait_ns = 20000000;
    double start = seconds();
    in_thread(get_with_limit, &other);
    assert_int_equal(other.status, TARN_ERROR_CAPTURE);
    assert_true(seconds() - start >= 0.02);

    other.wait_ns = UINT64_MAX; /* as long as it takes */
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, get_with_limit, &other), 0);
    usleep(20000);
    assert_ok(tarn_capture_end(stream, &graph)); /* it has survived all that */
    pthread_join(thread, NULL);
    assert_int_equal(other.status, TARN_OK);
    told = fake_calls(FAKE_SET_STREAM);
    assert_ok(tarn_handle_get(library, stream, &handle)); /* a capture has ended: told anew */
    assert_int_equal(fake_calls(FAKE_SET_STREAM), told + 1);
    assert_ok(tarn_handle_get(library, stream, &handle));
    assert_int_equal(fake_calls(FAKE_SET_STREAM), told + 1);
    assert_ok(tarn_handle_trim(library, 0, NULL));
    assert_ok(tarn_stream_return(stream));
}

static void *get_on_second_device(void *argument)
{
    assert_ok(tarn_device_set(1));
    return get(*(tarn_library *)argument);
}

/* A create on one device harms no capture on another, whoever captures: two H200s have shown it. */
static void test_capture_on_another_device(void **state)
{
    (void)state;
    tarn_stream stream = new_stream();
    void *graph = NULL;
    for (int mode = TARN_CAPTURE_GLOBAL; mode <= TARN_CAPTURE_RELAXED; mode++) {
        tarn_library mine = fake_register(0, false), theirs = fake_register(0, false);
        assert_ok(tarn_capture_begin(stream, (tarn_capture_mode)mode));
        assert_refused(tarn_handle_prewarm(mine, 0, TARN_STREAM_NONE, 1), TARN_ERROR_CAPTURE,
                       "this thread");
        assert_ok(tarn_device_set(1));
        assert_non_null(get(mine));
        assert_ok(tarn_handle_prewarm(mine, 1, TARN_STREAM_NONE, 2));
        in_thread(get_on_second_device, &theirs);
        assert_ok(tarn_device_set(0));
        assert_ok(tarn_capture_end(stream, &graph));
        assert_ok(tarn_host_graph_destroy(graph));
    }
    assert_ok(tarn_stream_return(stream));
}

static tarn_stream begins_in_destroy;
static int destroys_that_begin;

/* Another thread begins a capture just when a handle is destroyed. */
static void *begin_capture(void *argument)
{
    (void)argument;
    assert_refused(tarn_capture_begin(begins_in_destroy, TARN_CAPTURE_GLOBAL), TARN_ERROR_BUSY,
                   "destroyed");
    assert_status(tarn_capture_announce(begins_in_destroy), TARN_ERROR_BUSY);
    return NULL;
}

static int destroy_while_a_capture_begins(void *handle)
{
    in_thread(begin_capture, NULL);
    destroys_that_begin++;
    return fake_destroy(handle);
}

static void test_no_capture_begins_during_a_trim(void **state)
{
    (void)state;
    tarn_library library = 0;
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "begins",
                                  .create = fake_create,
                                  .destroy = destroy_while_a_capture_begins};
    void *graph = NULL;
    begins_in_destroy = new_stream();
    assert_ok(tarn_library_register(&row, &library));
    for (int i = 0; i < 2; i++) {
        assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
        /* After the trim again */
        assert_ok(tarn_capture_begin(begins_in_destroy, TARN_CAPTURE_GLOBAL));
        assert_refused(tarn_handle_trim(library, 0, NULL), TARN_ERROR_CAPTURE, "destroy");
        assert_ok(tarn_capture_end(begins_in_destroy, &graph));
        assert_ok(tarn_host_graph_destroy(graph));
        assert_ok(tarn_handle_trim(library, 0, NULL));
        assert_int_equal(destroys_that_begin, i + 1);
    }
    assert_ok(tarn_stream_return(begins_in_destroy));
}

/* One that tarn does not know is seen when its stream is used; one that was announced, by
 * everybody. */
static void test_other_captures(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false), cold = fake_register(0, false);
    tarn_stream stream = new_stream();
    driver_graph graph = NULL;
    void *handle;
    get(library);
    assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_GLOBAL));
    assert_ok(tarn_handle_get(library, stream, &handle));
    assert_refused(tarn_handle_get(cold, stream, &handle), TARN_ERROR_CAPTURE, "prewarm");
    assert_non_null(get(cold)); /* on a stream that does not capture: made in relaxed mode, the
                                   capture lives */
    assert_ok(driver->capture_end(0, native(stream), &graph));
    assert_ok(driver->graph_destroy(0, graph));

    tarn_library colder = fake_register(0, false);
    assert_ok(tarn_capture_announce(stream));
    assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_GLOBAL));
    assert_status(tarn_handle_get(colder, TARN_STREAM_CURRENT, &handle), TARN_ERROR_CAPTURE);
    assert_status(tarn_handle_trim(library, 0, NULL), TARN_ERROR_CAPTURE);
    assert_ok(driver->capture_end(0, native(stream), &graph));
    assert_ok(tarn_capture_end_announced(stream, graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_non_null(get(colder));
    assert_ok(tarn_stream_return(stream));
}

static void test_retired_stream_is_refused(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    void *own = native_made(), *handle;
    tarn_stream stream;
    assert_ok(tarn_stream_adopt(0, own, &stream));
    assert_ok(tarn_stream_set(stream));
    assert_non_null(get(library));
    assert_ok(tarn_stream_retire(stream));
    assert_status(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle),
                  TARN_ERROR_INVALID_STREAM);
    assert_status(tarn_handle_get(library, stream, &handle), TARN_ERROR_INVALID_STREAM);
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    assert_non_null(get(library));
    /* The same native stream again is another stream, and the vendor is told. */
    int told = fake_calls(FAKE_SET_STREAM);
    assert_ok(tarn_stream_adopt(0, own, &stream));
    assert_ok(tarn_handle_get(library, stream, &handle));
    assert_int_equal(fake_calls(FAKE_SET_STREAM), told + 1);
    assert_ok(tarn_stream_retire(stream));
}

static void test_arguments(void **state)
{
    (void)state;
    void *handle;
    tarn_handle_stats stats = {0};
    tarn_library library = fake_register(0, false);
    assert_status(tarn_handle_get(library, TARN_STREAM_CURRENT, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_get(0, TARN_STREAM_CURRENT, &handle), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_get(-1, TARN_STREAM_CURRENT, &handle), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_get(63, TARN_STREAM_CURRENT, &handle), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_get(1000, TARN_STREAM_CURRENT, &handle), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_get(library, 12345678, &handle), TARN_ERROR_INVALID_STREAM);
    assert_status(tarn_handle_stats_get(library, 0, &stats), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(
        tarn_handle_mode_set(library, TARN_HANDLE_MATH, TARN_HANDLE_MODE_FOR_ALL, 1, NULL),
        TARN_ERROR_NOT_SUPPORTED);
    assert_refused(tarn_handle_get(TARN_LIBRARY_CUDNN, TARN_STREAM_CURRENT, &handle),
                   TARN_ERROR_NOT_SUPPORTED, "needs the driver \"cuda\"");
    assert_refused(tarn_handle_get(TARN_LIBRARY_MIOPEN, TARN_STREAM_CURRENT, &handle),
                   TARN_ERROR_NOT_SUPPORTED, "needs the driver \"hip\"");
}

static sem_t inside, go_on; /* of a create that takes its time */

static int slow_create(void **handle)
{
    static int one;
    sem_post(&inside);
    sem_wait(&go_on);
    *handle = &one;
    return 0;
}

static int slow_destroy(void *handle)
{
    return !handle;
}

static void test_the_wait_for_a_first_create_ends(void **state)
{
    (void)state;
    const tarn_library_row row = {
        .size = sizeof row, .name = "slow", .create = slow_create, .destroy = slow_destroy};
    uint64_t usual = shelf_first_limit_ns;
    tarn_library library;
    pthread_t thread;
    void *handle = NULL;
    sem_init(&inside, 0, 0);
    sem_init(&go_on, 0, 0);
    assert_ok(tarn_library_register(&row, &library));
    assert_int_equal(pthread_create(&thread, NULL, get_in_thread, &library), 0);
    sem_wait(&inside);
    shelf_first_limit_ns = 20000000;
    assert_status(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_BUSY);
    assert_non_null(strstr(tarn_last_error(), "first handle of slow"));
    assert_status(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1), TARN_ERROR_BUSY);
    /* A longer limit of the thread's counts */
    assert_ok(tarn_handle_wait_limit_set(100000000, NULL));
    double start = seconds();
    assert_status(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_BUSY);
    assert_true(seconds() - start >= 0.1);
    assert_ok(tarn_handle_wait_limit_set(0, NULL));
    shelf_first_limit_ns = usual;
    sem_post(&go_on);
    pthread_join(thread, NULL);
    get(library);
}

/* It stays lost, so this is the last test. */
static void test_a_lost_device_gives_no_leases(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    tarn_stream stream, more;
    tarn_lease lease = {0}, other = {0};
    assert_ok(tarn_stream_lease(1, 0, &stream));
    assert_ok(tarn_handle_lease(library, stream, &lease));
    assert_ok(tarn_handle_lease(library, stream, &other));
    assert_ok(tarn_handle_return(&other));
    assert_ok(tarn_host_fail_set(kind_of("stream_create"), 1, false, TARN_ERROR_DEVICE_LOST));
    assert_status(tarn_stream_lease(1, 0, &more), TARN_ERROR_DEVICE_LOST);
    int told = fake_calls(FAKE_SET_STREAM);
    assert_refused(tarn_handle_lease(library, stream, &other), TARN_ERROR_DEVICE_LOST, "device 1");
    assert_refused(tarn_handle_lease_bind(&lease, stream), TARN_ERROR_DEVICE_LOST, "device 1");
    tarn_workspace_call call = {0};
    assert_refused(tarn_workspace_begin(library, TARN_STREAM_NONE, &lease, &call),
                   TARN_ERROR_DEVICE_LOST, "device 1");
    assert_int_equal(fake_calls(FAKE_SET_STREAM), told);
    assert_ok(tarn_handle_return(&lease));
    assert_int_equal(fake_calls(FAKE_CREATE), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_handle_a_thread_and_device),
        TEST(test_no_call_of_the_vendor_on_an_unchanged_stream),
        TEST(test_a_thread_that_ends_gives_its_handle_back),
        TEST(test_sixteen_slow_creates_side_by_side),
        TEST(test_creates_that_lie),
        TEST(test_the_wait_for_a_first_create_ends),
        TEST(test_full_device_is_trimmed_and_tried_again),
        TEST(test_every_failure_leaves_things_as_they_were),
        TEST(test_by_stream),
        TEST(test_leases),
        TEST(test_a_lease_outlives_a_failed_bind),
        TEST(test_by_stream_without_an_event),
        TEST(test_by_stream_in_a_capture),
        TEST(test_of_two_returns_at_once_one_counts),
        TEST(test_prewarm_and_trim),
        TEST(test_captures),
        TEST(test_capture_on_another_device),
        TEST(test_no_capture_begins_during_a_trim),
        TEST(test_other_captures),
        TEST(test_retired_stream_is_refused),
        TEST(test_arguments),
        TEST(test_a_lost_device_gives_no_leases),
    };
    host_start(2, 512 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
