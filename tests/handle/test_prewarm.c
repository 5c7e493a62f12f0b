/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles that a capture can have: what a prewarm counts, and for which stream; who waits for one;
 * and what a get says where none can be made. vendor_test.h has a storm of it for each library. */
#include "handle/fake.h"

#include "driver/driver.h"

struct place {
    tarn_library library;
    tarn_stream stream;
};

static void *get_there(void *argument)
{
    const struct place *place = argument;
    void *handle = NULL;
    assert_ok(tarn_handle_get(place->library, place->stream, &handle));
    return handle;
}

static void capture_with_a_lease(tarn_library library, tarn_stream stream, tarn_status expected)
{
    tarn_lease lease = {0};
    void *graph = NULL;
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    tarn_status status = tarn_handle_lease(library, stream, &lease);
    assert_ok(tarn_capture_end(stream, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_int_equal(status, expected);
    if (!status)
        assert_ok(tarn_handle_return(&lease));
}

/* Where a handle keeps its stream, one that was used on another serves no capture while the work
 * there runs. */
static void test_a_handle_of_a_busy_stream_does_not_count(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, false);
    struct place a = {library, new_stream()};
    tarn_stream b = new_stream();
    in_thread(get_there, &a);
    /* For a second of the virtual clock */
    assert_ok(tarn_host_work(0, native(a.stream), NULL, 0, 1000000000));
    assert_int_equal(handle_stats(library).available, 1);
    assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
    assert_int_equal(handle_stats(library).available, 2);
    capture_with_a_lease(library, b, TARN_OK);
    assert_ok(tarn_stream_return(a.stream));
    assert_ok(tarn_stream_return(b));
}

/* A program that captures again and again, each time on a stream that it retires, needs one
 * handle. */
static void test_handles_of_idle_streams_are_used_again(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, false);
    for (int round = 0; round < 5; round++) {
        tarn_stream stream;
        assert_ok(tarn_stream_adopt(0, native_made(), &stream));
        assert_ok(tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
        capture_with_a_lease(library, stream, TARN_OK);
        assert_ok(tarn_stream_retire(stream));
    }
    assert_int_equal(fake_calls(FAKE_CREATE), 1);
}

/* What is kept for a stream is bound to it, is nobody else's, and is found by a get there. */
static void test_a_handle_is_kept_for_a_stream(void **state)
{
    (void)state;
    for (int by_stream = 0; by_stream < 2; by_stream++) {
        tarn_library library = fake_register(by_stream ? TARN_LIBRARY_BY_STREAM : 0, true);
        tarn_stream a = new_stream(), b = new_stream();
        struct place elsewhere = {library, b};
        tarn_lease lease = {0};
        void *handle = NULL;
        int created = fake_calls(FAKE_CREATE);
        assert_ok(tarn_workspace_size_set(library, 1 << 20));
        assert_ok(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, a, 1));
        assert_ok(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, a, 1)); /* it is there */
        assert_int_equal(fake_calls(FAKE_CREATE), created + 1);
        in_thread(get_there, &elsewhere); /* makes another one */
        assert_int_equal(fake_calls(FAKE_CREATE), created + 2);
        assert_ok(
            /* Which is any stream's, its own having no work */
            tarn_handle_prewarm(library, 0, TARN_STREAM_NONE, 1));
        assert_int_equal(fake_calls(FAKE_CREATE), created + 2);
        assert_ok(tarn_capture_begin(b, TARN_CAPTURE_RELAXED));
        assert_ok(tarn_handle_lease(library, b, &lease));
        assert_status(tarn_handle_get(library, b, &handle), TARN_ERROR_CAPTURE);
        assert_ok(tarn_capture_abort(b));
        assert_ok(tarn_handle_return(&lease));
        assert_ok(tarn_capture_begin(a, TARN_CAPTURE_RELAXED));
        assert_ok(tarn_handle_lease(library, a, &lease));
        assert_ptr_equal(((struct fake_handle *)lease.handle)->stream, native(a));
        assert_non_null(((struct fake_handle *)lease.handle)->workspace);
        assert_ok(tarn_capture_abort(a));
        assert_ok(tarn_handle_return(&lease));
        assert_int_equal(fake_calls(FAKE_CREATE), created + 2);
        assert_ok(workspaces_clear_stream(a, NULL));
        assert_ok(workspaces_clear_stream(b, NULL));

        /* Nothing is kept for a stream that is gone. */
        tarn_stream adopted;
        assert_ok(tarn_handle_trim(library, 0, NULL));
        assert_ok(tarn_stream_adopt(0, native_made(), &adopted));
        assert_ok(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, adopted, 1));
        assert_ok(tarn_stream_retire(adopted));
        created = fake_calls(FAKE_CREATE);
        in_thread(get_there, &elsewhere);
        assert_int_equal(fake_calls(FAKE_CREATE), created);
        assert_ok(tarn_stream_return(a));
        assert_ok(tarn_stream_return(b));
    }
    tarn_library library = fake_register(0, false);
    assert_status(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, 12345678, 1),
                  TARN_ERROR_INVALID_STREAM);
    assert_status(tarn_handle_prewarm(0, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 1),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_handle_prewarm(library, TARN_CURRENT_DEVICE, TARN_STREAM_LEGACY, 65537),
                  TARN_ERROR_INVALID_ARGUMENT);
}

/* ---- Waiting ---- */

static struct {
    tarn_library library;
    pthread_barrier_t barrier;
    double took;
    tarn_status status;
} waiting;

static void *have_until_told(void *argument)
{
    get(waiting.library);
    pthread_barrier_wait(&waiting.barrier);
    pthread_barrier_wait(&waiting.barrier);
    return argument;
}

static void *wait_for_a_handle(void *argument)
{
    void *handle = NULL;
    double start = seconds();
    assert_ok(tarn_handle_wait_limit_set(20000000000u, NULL));
    waiting.status = tarn_handle_get(waiting.library, TARN_STREAM_CURRENT, &handle);
    waiting.took = seconds() - start;
    return argument;
}

/* A thread that waits for the captures of others has the handle of a thread that ends. */
static void test_a_handle_that_comes_back_ends_a_wait(void **state)
{
    (void)state;
    pthread_t has, waits;
    tarn_stream stream = new_stream();
    waiting.library = fake_register(0, false);
    pthread_barrier_init(&waiting.barrier, NULL, 2);
    assert_int_equal(pthread_create(&has, NULL, have_until_told, NULL), 0);
    pthread_barrier_wait(&waiting.barrier);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    assert_int_equal(pthread_create(&waits, NULL, wait_for_a_handle, NULL), 0);
    usleep(20000); /* it waits */
    pthread_barrier_wait(&waiting.barrier);
    pthread_join(has, NULL);
    pthread_join(waits, NULL);
    assert_int_equal(waiting.status, TARN_OK);
    assert_true(waiting.took < 15);
    assert_ok(tarn_capture_abort(stream));
    assert_int_equal(fake_calls(FAKE_CREATE), 1);
    assert_ok(tarn_stream_return(stream));
}

/* A capture that its caller or the driver ends without a word to tarn is over for a thread that
 * waits already. */
static void test_a_capture_that_ends_past_tarn_ends_a_wait(void **state)
{
    (void)state;
    for (int announced = 0; announced < 2; announced++) {
        pthread_t waits;
        driver_graph graph = NULL;
        tarn_stream stream = new_stream();
        waiting.library = fake_register(0, false);
        if (announced) {
            assert_ok(tarn_capture_announce(stream));
            assert_ok(driver->capture_begin(0, native(stream), DRIVER_CAPTURE_RELAXED));
        } else {
            assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        }
        assert_int_equal(pthread_create(&waits, NULL, wait_for_a_handle, NULL), 0);
        usleep(50000);                                        /* it waits */
        assert_int_equal(fake_calls(FAKE_CREATE), announced); /* the one of the round before */
        assert_ok(driver->capture_end(0, native(stream), &graph));
        pthread_join(waits, NULL);
        assert_int_equal(waiting.status, TARN_OK);
        assert_true(waiting.took < 15);
        if (announced)
            assert_ok(tarn_capture_end_announced(stream, graph));
        else
            assert_true(tarn_capture_abort(stream) != TARN_ERROR_CAPTURE);
        assert_ok(driver->graph_destroy(0, graph));
        assert_ok(tarn_stream_return(stream));
    }
}

/* ---- What a get says ---- */

/* A handle whose last stream is in a capture that tarn does not know cannot be ordered behind that
 * stream; another is made. */
static void test_an_unknown_capture_of_another_stream(void **state)
{
    (void)state;
    tarn_library library = fake_register(TARN_LIBRARY_BY_STREAM, false);
    struct place a = {library, new_stream()};
    tarn_stream b = new_stream();
    driver_graph graph = NULL;
    void *handle = NULL;
    in_thread(get_there, &a);
    assert_ok(driver->capture_begin(0, native(a.stream), DRIVER_CAPTURE_RELAXED));
    assert_ok(tarn_handle_get(library, b, &handle));
    assert_int_equal(fake_calls(FAKE_CREATE), 2);
    assert_ok(driver->capture_end(0, native(a.stream), &graph));
    assert_ok(driver->graph_destroy(0, graph));

    /* The same on the stream that is asked for: the reason is said. */
    struct place c = {library, new_stream()};
    in_thread(get_there, &c);
    tarn_stream d = new_stream();
    assert_ok(tarn_host_work(0, native(c.stream), NULL, 0, 1000000000));
    assert_ok(driver->capture_begin(0, native(d), DRIVER_CAPTURE_RELAXED));
    assert_refused(tarn_handle_get(library, d, &handle), TARN_ERROR_CAPTURE, "tarn_handle_prewarm");
    assert_ok(driver->capture_end(0, native(d), &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_stream_return(a.stream));
    assert_ok(tarn_stream_return(b));
    assert_ok(tarn_stream_return(c.stream));
    assert_ok(tarn_stream_return(d));
}

/* The caller has destroyed a stream that it did not retire: nothing captures, and the driver's own
 * word is given. */
static void test_a_stream_that_is_gone(void **state)
{
    (void)state;
    tarn_library library = fake_register(0, false);
    driver_stream own = NULL;
    tarn_stream stream;
    void *handle = NULL;
    assert_ok(driver->stream_create(0, 0, false, &own));
    assert_ok(tarn_stream_adopt(0, own, &stream));
    assert_ok(driver->stream_destroy(0, own));
    tarn_status status = tarn_handle_get(library, stream, &handle);
    assert_int_not_equal(status, TARN_OK);
    assert_int_not_equal(status, TARN_ERROR_CAPTURE);
    assert_null(strstr(tarn_last_error(), "prewarm"));
    assert_null(handle);
}

/* ---- A create that asks tarn ---- */

static tarn_library asked;
static tarn_status answers[3];

static int create_that_asks(void **handle)
{
    void *inner = NULL;
    tarn_lease lease;
    answers[0] = tarn_handle_get(asked, TARN_STREAM_CURRENT, &inner);
    answers[1] = tarn_handle_lease(asked, TARN_STREAM_LEGACY, &lease);
    answers[2] = tarn_handle_prewarm(asked, 0, TARN_STREAM_NONE, 5);
    return fake_create(handle);
}

static int create_of_the_other(void **handle)
{
    void *inner = NULL;
    answers[0] = tarn_handle_get(asked, TARN_STREAM_CURRENT, &inner);
    return fake_create(handle);
}

static tarn_library other_library;

static int create_that_asks_another(void **handle)
{
    void *inner = NULL;
    /* Which asks for the first */
    assert_ok(tarn_handle_get(other_library, TARN_STREAM_CURRENT, &inner));
    return fake_create(handle);
}

static void test_a_create_that_asks_for_its_own_library(void **state)
{
    (void)state;
    tarn_library_row row = {
        .size = sizeof row, .name = "asks", .create = create_that_asks, .destroy = fake_destroy};
    assert_ok(tarn_library_register(&row, &asked));
    alarm(20);
    for (int i = 0; i < 2; i++) { /* the first create, which runs alone, and a later one */
        assert_ok(tarn_handle_prewarm(asked, 0, TARN_STREAM_NONE, 1));
        for (int j = 0; j < 3; j++)
            assert_int_equal(answers[j], TARN_ERROR_BUSY);
        assert_ok(tarn_handle_trim(asked, 0, NULL));
    }

    row.name = "asks another";
    row.create = create_that_asks_another;
    assert_ok(tarn_library_register(&row, &asked));
    row.name = "asks back";
    row.create = create_of_the_other;
    assert_ok(tarn_library_register(&row, &other_library));
    assert_non_null(get(asked));
    assert_int_equal(answers[0], TARN_ERROR_BUSY);
    alarm(0);
}

static tarn_library pair[2];
static pthread_barrier_t both_create;

static int create_that_asks_the_other(void **handle, int other)
{
    void *inner = NULL;
    if (fake_calls(FAKE_CREATE) == 0)
        pthread_barrier_wait(&both_create); /* both are in their first create now, which runs
                                               alone */
    (void)tarn_handle_get(pair[other], TARN_STREAM_CURRENT, &inner);
    return fake_create(handle);
}

static int create_first(void **handle)
{
    return create_that_asks_the_other(handle, 1);
}

static int create_second(void **handle)
{
    return create_that_asks_the_other(handle, 0);
}

static void *get_of_pair(void *which)
{
    return get(*(tarn_library *)which);
}

/* Each waits for the first create of the other to end, unless it is in a create itself. */
static void test_first_creates_that_ask_for_each_other(void **state)
{
    (void)state;
    pthread_t threads[2];
    const tarn_library_row rows[] = {
        {.size = sizeof rows[0], .name = "first", .create = create_first, .destroy = fake_destroy},
        {.size = sizeof rows[0],
         .name = "second",
         .create = create_second,
         .destroy = fake_destroy},
    };
    pthread_barrier_init(&both_create, NULL, 2);
    for (int i = 0; i < 2; i++)
        assert_ok(tarn_library_register(&rows[i], &pair[i]));
    alarm(30); /* a test that hangs */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_of_pair, &pair[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    alarm(0);
    pthread_barrier_destroy(&both_create);
}

/* ---- Stale leases ---- */

static struct {
    tarn_library library;
    atomic_bool over;
    _Atomic(void *) owner;
    atomic_uint_fast64_t number;
} stale;

static void *use_a_stale_lease(void *argument)
{
    while (!atomic_load(&stale.over)) {
        tarn_lease lease = {.owner = atomic_load(&stale.owner),
                            .number = atomic_load(&stale.number)};
        if (lease.number)
            assert_status(tarn_handle_return(&lease), TARN_ERROR_INVALID_ARGUMENT);
    }
    return argument;
}

/* It names a handle that a trim destroys, or that is another's by then. */
static void test_a_stale_lease_beside_a_trim(void **state)
{
    (void)state;
    pthread_t thread;
    stale.library = fake_register(0, false);
    assert_int_equal(pthread_create(&thread, NULL, use_a_stale_lease, NULL), 0);
    for (int i = 0; i < 3000; i++) {
        tarn_lease lease;
        assert_ok(tarn_handle_lease(stale.library, TARN_STREAM_LEGACY, &lease));
        void *owner = lease.owner;
        uint64_t number = lease.number;
        assert_ok(tarn_handle_return(&lease));
        atomic_store(&stale.number, 0);
        atomic_store(&stale.owner, owner);
        atomic_store(&stale.number, number);
        assert_ok(tarn_handle_trim(stale.library, 0, NULL));
    }
    atomic_store(&stale.over, true);
    pthread_join(thread, NULL);
    assert_int_equal(handle_stats(stale.library).in_use, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_handle_of_a_busy_stream_does_not_count),
        TEST(test_handles_of_idle_streams_are_used_again),
        TEST(test_a_handle_is_kept_for_a_stream),
        TEST(test_a_handle_that_comes_back_ends_a_wait),
        TEST(test_a_capture_that_ends_past_tarn_ends_a_wait),
        TEST(test_an_unknown_capture_of_another_stream),
        TEST(test_a_stream_that_is_gone),
        TEST(test_a_create_that_asks_for_its_own_library),
        TEST(test_first_creates_that_ask_for_each_other),
        TEST(test_a_stale_lease_beside_a_trim),
    };
    host_start(2, 512 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
