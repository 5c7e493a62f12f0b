/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The vendor's per-thread default stream, on a simulated driver: a slot for each thread behind one
 * constant, and memory that goes from thread to thread. Included after driver/cuda_test.h or
 * driver/hip_test.h, with DRIVER and LIBRARY. TARN_SEED chooses the storm. */
#ifndef TARN_TESTS_MEMORY_PER_THREAD_TEST_H
#define TARN_TESTS_MEMORY_PER_THREAD_TEST_H

#include "memory/pressure/release.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <tarn/config.h>
#include <tarn/tarn.h>
#include <time.h>

#define LEGACY ((void *)1)
#define PER_THREAD ((void *)2)

static void wait_at(void *gate)
{
    sem_wait(gate);
}

static void nap(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static tarn_stream own_stream(void)
{
    tarn_stream stream = 0;
    GOOD(tarn_stream_adopt(0, PER_THREAD, &stream));
    return stream;
}

static size_t reserved(void)
{
    tarn_stats stats = {.size = sizeof stats};
    GOOD(tarn_device_stats_get(0, &stats));
    return (size_t)stats.reserved_bytes[0].current;
}

static void trimmed_to_nothing(void)
{
    assert_ok(tarn_device_trim(0, 0));
    assert_int_equal(reserved(), 0);
}

/* A thread that does what it is told, and stays in between: so its per-thread stream stays. */
struct worker {
    pthread_t thread;
    sem_t go, done, gate;
    void (*task)(struct worker *worker);
    tarn_stream stream;
    unsigned char *block;
    unsigned char seen[64]; /* what its queued work finds in the block */
};

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    for (;;) {
        sem_wait(&worker->go);
        if (!worker->task)
            return NULL;
        worker->task(worker);
        sem_post(&worker->done);
    }
}

static void worker_start(struct worker *worker)
{
    memset(worker, 0, sizeof *worker);
    sem_init(&worker->go, 0, 0);
    sem_init(&worker->done, 0, 0);
    sem_init(&worker->gate, 0, 0);
    assert_int_equal(pthread_create(&worker->thread, NULL, worker_main, worker), 0);
}

static void worker_do(struct worker *worker, void (*task)(struct worker *worker))
{
    worker->task = task;
    sem_post(&worker->go);
    sem_wait(&worker->done);
}

static void worker_end(struct worker *worker)
{
    worker->task = NULL;
    sem_post(&worker->go);
    pthread_join(worker->thread, NULL);
}

static void take_stream(struct worker *worker)
{
    worker->stream = own_stream();
}

static void synchronize(struct worker *worker)
{
    GOOD(tarn_stream_synchronize(worker->stream));
}

/* Work that has begun and does not end before the gate opens: then it reads the block, which is
 * free by then. */
static void take_use_and_free(struct worker *worker)
{
    void *block = NULL;
    take_stream(worker);
    GOOD(tarn_alloc_on(worker->stream, 8 * MIB, &block));
    worker->block = block;
    GOOD(driver->set(0, (uintptr_t)block, 0xAA, 8 * MIB, PER_THREAD));
    GOOD(driver->call(0, PER_THREAD, wait_at, &worker->gate));
    GOOD(driver->copy(0, (uintptr_t)worker->seen, (uintptr_t)block, sizeof worker->seen,
                      PER_THREAD));
    GOOD(tarn_free(block));
}

static void take_and_fill(struct worker *worker)
{
    void *block = NULL;
    take_stream(worker);
    GOOD(tarn_alloc_on(worker->stream, 8 * MIB, &block));
    worker->block = block;
    GOOD(driver->set(0, (uintptr_t)block, 0x55, 8 * MIB, PER_THREAD));
}

static void free_block(struct worker *worker)
{
    GOOD(tarn_free(worker->block));
}

static bool saw(const struct worker *worker, unsigned char value)
{
    for (size_t i = 0; i < sizeof worker->seen; i++)
        if (worker->seen[i] != value)
            return false;
    return true;
}

/* ---- Slots ---- */

static void each_thread_has_a_slot_behind_the_vendors_constant(void **state)
{
    (void)state;
    struct worker other;
    tarn_stream ours = own_stream(), again = 0, legacy = 0, null = 0;
    void *native = NULL;
    assert_ok(tarn_stream_native_get(TARN_STREAM_PER_THREAD, &native));
    assert_ptr_equal(native, PER_THREAD);
    assert_ok(tarn_stream_adopt(0, PER_THREAD, &again));
    assert_true(again == ours);
    assert_ok(tarn_stream_set(TARN_STREAM_PER_THREAD));
    assert_ok(tarn_stream_get(0, &again));
    assert_true(again == ours);
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));

    worker_start(&other);
    worker_do(&other, take_stream);
    assert_true(other.stream != ours);
    worker_end(&other);

    assert_ok(tarn_stream_adopt(0, LEGACY, &legacy));
    assert_ok(tarn_stream_adopt(0, NULL, &null));
    assert_true(legacy == null);
    assert_ok(tarn_stream_native_get(legacy, &native));
    assert_null(native);
    assert_ok(tarn_stream_retire(legacy)); /* nothing was entered, so nothing leaves */
    assert_ok(tarn_stream_retire(ours));
    assert_ok(tarn_stream_synchronize(ours));
    assert_int_equal(tarn_stream_retire(TARN_STREAM_PER_THREAD), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(tarn_capture_begin(ours, TARN_CAPTURE_RELAXED), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(tarn_capture_announce(ours), TARN_ERROR_INVALID_ARGUMENT);
}

#define REFUSED(call)                                                 \
    do {                                                              \
        assert_int_equal(call, TARN_ERROR_INVALID_STREAM);            \
        assert_non_null(strstr(tarn_last_error(), "another thread")); \
    } while (0)

/* While its owner lives and after that. */
static void refused_and_right(tarn_stream stream)
{
    void *native = NULL, *block = NULL, *handle = NULL;
    tarn_stream_info info = {.size = sizeof info, .device = -1};
    tarn_capture_state capture;
    tarn_lease lease = {0};
    tarn_event *event = NULL;
    assert_ok(tarn_event_create(0, &event));
    assert_ok(tarn_event_record(event, TARN_STREAM_LEGACY));
    REFUSED(tarn_stream_native_get(stream, &native));
    REFUSED(tarn_stream_query(stream));
    REFUSED(tarn_stream_synchronize(stream));
    REFUSED(tarn_stream_wait(stream, event));
    REFUSED(tarn_event_record(event, stream));
    REFUSED(tarn_capture_state_get(stream, &capture, NULL, NULL));
    REFUSED(tarn_handle_get(LIBRARY, stream, &handle));
    REFUSED(tarn_handle_lease(LIBRARY, stream, &lease));
    assert_ok(tarn_handle_lease(LIBRARY, TARN_STREAM_PER_THREAD, &lease));
    REFUSED(tarn_handle_lease_bind(&lease, stream));
    assert_ok(tarn_handle_return(&lease));
    assert_ok(tarn_stream_set(stream));
    REFUSED(tarn_handle_get(LIBRARY, TARN_STREAM_CURRENT, &handle));
    assert_ok(tarn_stream_set(TARN_STREAM_LEGACY));
    assert_ok(tarn_event_destroy(event));

    assert_ok(tarn_stream_info_get(stream, &info));
    assert_int_equal(info.device, 0);
    assert_ok(tarn_alloc_on(stream, 3 * MIB, &block)); /* only keeps books */
    assert_ok(tarn_free(block));
    assert_ok(tarn_alloc_on(TARN_STREAM_PER_THREAD, 3 * MIB, &block));
    assert_ok(tarn_record_stream(block, stream));
    assert_ok(tarn_free_on(block, stream));
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 3 * MIB, &block));
    assert_ok(tarn_free_on(block, stream));
}

static void another_threads_slot_is_refused_where_the_driver_would_be_asked(void **state)
{
    (void)state;
    struct worker other;
    worker_start(&other);
    worker_do(&other, take_stream);
    refused_and_right(other.stream);
    worker_end(&other);
    refused_and_right(other.stream);
    assert_ok(tarn_handle_trim(LIBRARY, 0, NULL)); /* and workspaces */
    trimmed_to_nothing();
}

/* ---- Order ---- */

static void a_freed_block_of_a_busy_thread_goes_to_no_other(void **state)
{
    (void)state;
    struct worker a, b;
    worker_start(&a);
    worker_start(&b);
    worker_do(&a, take_use_and_free);
    worker_do(&b, take_and_fill);
    assert_ptr_not_equal(a.block, b.block);
    worker_do(&b, synchronize); /* which a's work does not hold up */
    sem_post(&a.gate);
    worker_do(&a, synchronize);
    assert_true(saw(&a, 0xAA));
    worker_do(&b, free_block);
    worker_end(&a);
    worker_end(&b);
    trimmed_to_nothing();
}

static void *trim_main(void *unused)
{
    (void)unused;
    GOOD(tarn_device_trim(0, 0));
    return NULL;
}

/* While its owner lives and after that. */
static void a_trim_waits_for_the_work_of_every_threads_stream(void **state)
{
    (void)state;
    for (int ended = 0; ended < 2; ended++) {
        struct worker a;
        pthread_t trimmer;
        worker_start(&a);
        worker_do(&a, take_use_and_free);
        if (ended)
            worker_end(&a);
        assert_int_equal(pthread_create(&trimmer, NULL, trim_main, NULL), 0);
        pause_ms(20);
        assert_true(reserved() > 0);
        sem_post(&a.gate);
        pthread_join(trimmer, NULL);
        assert_int_equal(reserved(), 0);
        assert_true(saw(&a, 0xAA));
        if (!ended)
            worker_end(&a);
    }
}

static void the_next_thread_comes_after_the_work_of_the_one_that_ended(void **state)
{
    (void)state;
    struct worker a, b;
    worker_start(&a);
    worker_do(&a, take_use_and_free);
    worker_end(&a);
    worker_start(&b);
    worker_do(&b, take_and_fill);
    assert_true(a.stream == b.stream); /* the slot, and its heap */
    assert_ptr_equal(a.block, b.block);
    sem_post(&a.gate);
    worker_do(&b, synchronize);
    assert_true(saw(&a, 0xAA));
    assert_int_equal(b.block[0], 0x55);
    worker_do(&b, free_block);
    worker_end(&b);
    trimmed_to_nothing();
}

static void a_block_waits_for_another_threads_stream(void **state)
{
    (void)state;
    struct worker a;
    void *block = NULL, *other = NULL;
    tarn_stream stream;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    assert_ok(tarn_alloc_on(stream, 8 * MIB, &block));
    worker_start(&a);
    worker_do(&a, take_use_and_free);
    assert_ok(tarn_record_stream(block, a.stream));
    assert_ok(tarn_free(block));
    assert_ok(tarn_alloc_on(stream, 8 * MIB, &other));
    assert_ptr_not_equal(block, other);
    assert_ok(tarn_free(other));
    sem_post(&a.gate);
    worker_do(&a, synchronize);
    worker_end(&a);
    assert_ok(tarn_stream_return(stream));
    trimmed_to_nothing();
}

/* ---- Captures ---- */

/* How a capture begins on a blocking stream of the program's own, beside which the legacy stream
 * cannot be used. */
enum beginning { UNKNOWN, ANNOUNCED, ANNOUNCED_ALONE };

/* A capture is neither ended nor spoilt by what is learnt of threads' streams meanwhile, and no
 * slot changes its thread. */
static void survives(enum beginning beginning)
{
    struct worker a, b, c;
    tarn_stream stream = 0;
    driver_stream native = NULL;
    void *block = NULL, *graph = NULL;
    worker_start(&a);
    worker_do(&a, take_use_and_free);
    worker_end(&a);
    assert_ok(tarn_alloc_on(TARN_STREAM_PER_THREAD, 8 * MIB, &block));
    assert_ok(driver->stream_create(0, 0, true, &native));
    assert_ok(tarn_stream_adopt(0, native, &stream));
    if (beginning != UNKNOWN)
        assert_ok(tarn_capture_announce(stream));
    if (beginning != ANNOUNCED_ALONE)
        assert_ok(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));

    worker_start(&b);
    worker_do(&b, take_and_fill);
    assert_true(b.stream != a.stream);
    assert_ptr_not_equal(b.block, a.block);
    assert_ok(tarn_record_stream(block, a.stream));
    assert_ok(tarn_record_stream(block, b.stream));
    assert_ok(tarn_free(block));
    worker_do(&b, synchronize);
    worker_do(&b, free_block);
    assert_int_equal(tarn_device_trim(0, 0), beginning == UNKNOWN ? TARN_OK : TARN_ERROR_CAPTURE);
    assert_true(reserved() >= 16 * MIB); /* what a has left, and the block */

    if (beginning == ANNOUNCED_ALONE)
        assert_ok(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->capture_end(0, native, &graph));
    assert_non_null(graph);
    assert_ok(driver->graph_destroy(0, graph));
    if (beginning != UNKNOWN)
        assert_ok(tarn_capture_end_announced(stream, NULL));
    sem_post(&a.gate);
    worker_start(&c);
    worker_do(&c, take_stream);
    assert_true(c.stream == a.stream); /* now it can */
    worker_end(&c);
    worker_end(&b);
    assert_ok(tarn_stream_retire(stream));
    trimmed_to_nothing();
    assert_ok(driver->stream_destroy(0, native));
    assert_true(saw(&a, 0xAA));
}

static void call_about_memory(struct worker *worker)
{
    tarn_pool *pool;
    (void)worker;
    GOOD(tarn_pool_default(0, &pool));
}

static void take_and_free(struct worker *worker)
{
    take_and_fill(worker);
    GOOD(tarn_free(worker->block));
    synchronize(worker);
}

/* Only the thread itself records the mark that its idle memory needs: a call by another thread
 * before takes nothing from it. */
static void idle_memory_waits_for_a_call_of_its_thread(void **state)
{
    (void)state;
    const uint64_t day = UINT64_C(86400000000000);
    uint64_t now = day;
    struct worker worker;
    GOOD(tarn_configuration_set("idle_release:86400000"));
    worker_start(&worker);
    worker_do(&worker, take_and_free);
    for (int i = 0; i < 4; i++) {
        release_pass(now += day);
        call_about_memory(NULL);
    }
    assert_true(reserved() >= 8 * MIB);
    for (int i = 0; i < 3; i++) {
        release_pass(now += day);
        call_about_memory(NULL);
        worker_do(&worker, call_about_memory);
    }
    if (strcmp(DRIVER, "hip") != 0) /* whose segments are plain, and stay */
        assert_int_equal(reserved(), 0);
    worker_end(&worker);
    GOOD(tarn_configuration_set(""));
    trimmed_to_nothing();
}

static void captures_survive_threads_that_come_and_go(void **state)
{
    (void)state;
    survives(UNKNOWN);
    survives(ANNOUNCED);
    survives(ANNOUNCED_ALONE);
}

/* A capture on a stream that is not blocking forbids nothing of it. */
static void memory_of_threads_is_had_beside_a_capture(void **state)
{
    (void)state;
    struct worker a, b;
    tarn_stream stream;
    void *block = NULL, *graph = NULL;
    assert_ok(tarn_stream_lease(0, 0, &stream));
    worker_start(&a);
    worker_do(&a, take_use_and_free);
    worker_end(&a);
    assert_ok(tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    sem_post(&a.gate);
    assert_ok(tarn_alloc_on(TARN_STREAM_LEGACY, 240 * MIB, &block)); /* of 256, or of 248 */
    assert_true(saw(&a, 0xAA));
    assert_ok(tarn_free(block));
    worker_start(&b);
    worker_do(&b, take_stream);
    assert_true(b.stream == a.stream);
    worker_end(&b);
    assert_ok(tarn_capture_end(stream, &graph));
    assert_non_null(graph);
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(tarn_stream_return(stream));
    trimmed_to_nothing();
}

/* ---- A storm ---- */

#define EDGE 64
#define BOXES 8
#define SMALL_RUN 24 /* steps of a thread */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 2
#else
#define ROUNDS 6
#endif
#define AT_ONCE 4

/* What queued work read, and what it should have; looked at in the end. */
struct reading {
    struct reading *next;
    unsigned char pattern, edges[2 * EDGE];
    size_t edge;
};

struct parcel {
    unsigned char *block;
    size_t size;
    unsigned char pattern;
    tarn_event *written;
};

static pthread_mutex_t storm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct parcel boxes[BOXES];
static struct reading *readings;
static atomic_bool storm_ends;

static uint64_t storm_below(uint64_t *random, uint64_t n)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random % n;
}

static void read_on_own(const struct parcel *parcel)
{
    size_t edge = parcel->size < EDGE ? parcel->size : EDGE;
    uintptr_t start = (uintptr_t)parcel->block;
    struct reading *reading = calloc(1, sizeof *reading);
    MUST(reading);
    reading->pattern = parcel->pattern;
    reading->edge = edge;
    GOOD(driver->copy(0, (uintptr_t)reading->edges, start, edge, PER_THREAD));
    GOOD(driver->copy(0, (uintptr_t)reading->edges + EDGE, start + parcel->size - edge, edge,
                      PER_THREAD));
    pthread_mutex_lock(&storm_lock);
    reading->next = readings;
    readings = reading;
    pthread_mutex_unlock(&storm_lock);
}

static void swap_box(uint64_t *random, struct parcel *parcel)
{
    pthread_mutex_lock(&storm_lock);
    struct parcel *box = &boxes[storm_below(random, BOXES)], before = *box;
    *box = *parcel;
    *parcel = before;
    pthread_mutex_unlock(&storm_lock);
}

/* Reads what another thread wrote, and frees it in one of the ways there are. */
static void receive(uint64_t *random, tarn_stream own, struct parcel *parcel)
{
    if (!parcel->block)
        return;
    GOOD(tarn_stream_wait(own, parcel->written));
    bool recorded = storm_below(random, 2);
    if (recorded)
        GOOD(tarn_record_stream(parcel->block, own));
    read_on_own(parcel);
    if (recorded)
        GOOD(tarn_free(parcel->block));
    else
        GOOD(tarn_free_on(parcel->block, own));
    GOOD(tarn_event_destroy(parcel->written));
}

static void *storm_thread(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15u | 1;
    tarn_stream own = own_stream();
    for (int i = 0; i < SMALL_RUN; i++) {
        struct parcel parcel = {
            .size = 1 + (size_t)storm_below(&random, storm_below(&random, 3) ? 20000 : 5 * MIB),
            .pattern = (unsigned char)(1 + storm_below(&random, 255))};
        void *block = NULL;
        GOOD(tarn_alloc_on(own, parcel.size, &block));
        parcel.block = block;
        size_t edge = parcel.size < EDGE ? parcel.size : EDGE;
        if (storm_below(&random, 4) == 0)
            GOOD(driver->call(0, PER_THREAD, nap, NULL));
        GOOD(driver->set(0, (uintptr_t)block, parcel.pattern, edge, PER_THREAD));
        GOOD(driver->set(0, (uintptr_t)block + parcel.size - edge, parcel.pattern, edge,
                         PER_THREAD));
        if (storm_below(&random, 3)) {
            read_on_own(&parcel);
            GOOD(tarn_free(block));
            continue;
        }
        GOOD(tarn_event_create(0, &parcel.written));
        GOOD(tarn_event_record(parcel.written, own));
        swap_box(&random, &parcel);
        receive(&random, own, &parcel);
    }
    return NULL; /* with work that is queued */
}

static void *storm_trims(void *unused)
{
    (void)unused;
    while (!atomic_load(&storm_ends)) {
        tarn_status status = tarn_device_trim(0, 0);
        MUST(status == TARN_OK || status == TARN_ERROR_CAPTURE);
        pause_ms(1);
    }
    return NULL;
}

static void *storm_captures(void *unused)
{
    tarn_stream stream;
    (void)unused;
    GOOD(tarn_stream_lease(0, 0, &stream));
    while (!atomic_load(&storm_ends)) {
        void *graph = NULL;
        GOOD(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
        pause_ms(1);
        GOOD(tarn_capture_end(stream, &graph));
        MUST(graph);
        GOOD(driver->graph_destroy(0, graph));
        pause_ms(3);
    }
    GOOD(tarn_stream_return(stream));
    return NULL;
}

static int storm(void)
{
    const char *text = getenv("TARN_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20261122;
    pthread_t trims, captures, threads[AT_ONCE];
    NEED(tarn_free(tarn_malloc(1)) == TARN_OK); /* all layers know each other before the threads
                                                   begin */
    NEED(pthread_create(&trims, NULL, storm_trims, NULL) == 0);
    NEED(pthread_create(&captures, NULL, storm_captures, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            void *argument = (void *)(uintptr_t)(seed + (uint64_t)(round * AT_ONCE + i));
            NEED(pthread_create(&threads[i], NULL, storm_thread, argument) == 0);
        }
        for (int i = 0; i < AT_ONCE; i++)
            pthread_join(threads[i], NULL);
    }
    atomic_store(&storm_ends, true);
    pthread_join(trims, NULL);
    pthread_join(captures, NULL);
    uint64_t random = seed | 1;
    for (int i = 0; i < BOXES; i++)
        receive(&random, own_stream(), &boxes[i]);
    NEED(tarn_device_synchronize(0) == TARN_OK);
    size_t wrong = 0, all = 0;
    while (readings) {
        struct reading *reading = readings;
        readings = reading->next;
        all++;
        for (size_t i = 0; i < 2 * EDGE; i++)
            wrong += i % EDGE < reading->edge && reading->edges[i] != reading->pattern;
        free(reading);
    }
    fprintf(stderr, "seed %llu: %zu readings, %zu bytes wrong\n", (unsigned long long)seed, all,
            wrong);
    NEED(all > ROUNDS * AT_ONCE && wrong == 0);
    NEED(tarn_device_trim(0, 0) == TARN_OK);
    NEED(reserved() == 0);
    NEED(tarn_shutdown() == TARN_OK);
    return 0;
}

static void contents_survive_a_storm_of_threads(void **state)
{
    (void)state;
    const char *const usual[] = {NULL};
    const char *const plain[] = {"TARN_ALLOC_CONF=segments:plain", NULL};
    const char *const ordered[] = {"TARN_ALLOC_CONF=backend:cudaMallocAsync", NULL};
    const char *const debug[] = {"TARN_DEBUG=redzone,poison,quarantine", NULL};
    assert_int_equal(run_scenario("storm", usual), 0);
    assert_int_equal(run_scenario("storm", plain), 0);
    assert_int_equal(run_scenario("storm", ordered), 0);
    assert_int_equal(run_scenario("storm", debug), 0);
}

int main(int count, char **arguments)
{
    setenv("TARN_DRIVER", DRIVER, 1);
    setenv("TARN_HOST_MEMORY", "256M", 1);
    if (count > 1)
        return storm();
    (void)arguments;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_thread_has_a_slot_behind_the_vendors_constant),
        cmocka_unit_test(another_threads_slot_is_refused_where_the_driver_would_be_asked),
        cmocka_unit_test(a_freed_block_of_a_busy_thread_goes_to_no_other),
        cmocka_unit_test(a_trim_waits_for_the_work_of_every_threads_stream),
        cmocka_unit_test(the_next_thread_comes_after_the_work_of_the_one_that_ended),
        cmocka_unit_test(a_block_waits_for_another_threads_stream),
        cmocka_unit_test(idle_memory_waits_for_a_call_of_its_thread),
        cmocka_unit_test(captures_survive_threads_that_come_and_go),
        cmocka_unit_test(memory_of_threads_is_had_beside_a_capture),
        cmocka_unit_test(contents_survive_a_storm_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
