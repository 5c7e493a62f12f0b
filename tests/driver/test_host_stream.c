/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams and events: order within a stream, waits between streams, the legacy stream, recordings,
 * real work. */
#include "host_test.h"

#include "base/pages.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define READY(event) assert_ok(driver->event_query(0, (event)))
#define NOT_READY(event) assert_status(driver->event_query(0, (event)), TARN_ERROR_NOT_READY)

/* A host function that ends when its gate is opened, and counts itself. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;
    int entered, left;
};

#define GATE                                                                                  \
    {                                                                                         \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .open = false \
    }

static void pass(void *argument)
{
    struct gate *gate = argument;
    pthread_mutex_lock(&gate->lock);
    gate->entered++;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    gate->left++;
    pthread_mutex_unlock(&gate->lock);
}

static void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->lock);
    gate->open = true;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_await_entered(struct gate *gate, int count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->entered < count)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
}

static void idle_streams_complete_at_once(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    driver_event event = new_event(0);
    READY(event); /* never recorded */
    assert_ok(driver->event_synchronize(0, event));
    assert_ok(driver->stream_wait_event(0, stream, event));
    assert_ok(driver->stream_query(0, stream));
    assert_ok(driver->event_record(0, event, stream));
    READY(event);
    assert_ok(driver->event_record(0, event, NULL));
    READY(event);
    assert_ok(driver->stream_synchronize(0, stream));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(time_now(), 0);
}

static void timed_work_ends_at_its_time(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    assert_ok(tarn_host_work(0, stream, NULL, 0, 100));
    driver_event first = recorded(0, stream);
    assert_ok(tarn_host_advance(50));
    assert_ok(tarn_host_work(0, stream, NULL, 0, 20)); /* would end at 70, but follows the first */
    driver_event second = recorded(0, stream);
    assert_ok(tarn_host_work(0, stream, NULL, 0, 100)); /* 150 */
    driver_event third = recorded(0, stream);
    assert_ok(tarn_host_advance(99));
    NOT_READY(first);
    assert_ok(tarn_host_advance(100));
    READY(first);
    READY(second);
    NOT_READY(third);
    assert_status(driver->stream_query(0, stream), TARN_ERROR_NOT_READY);
    assert_ok(tarn_host_advance(10)); /* never back */
    assert_int_equal(time_now(), 100);
    assert_ok(tarn_host_advance(150));
    READY(third);
    assert_ok(driver->stream_query(0, stream));
}

static void a_wait_of_a_stream_orders_it_after_the_recording(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false), c = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    driver_event of_a = recorded(0, a);
    assert_ok(driver->stream_wait_event(0, b, of_a));
    driver_event of_b = recorded(0, b);
    assert_ok(driver->stream_wait_event(0, c, of_b));
    assert_ok(tarn_host_work(0, c, NULL, 0, 0));
    driver_event of_c = recorded(0, c);
    NOT_READY(of_b);
    NOT_READY(of_c);
    assert_ok(tarn_host_advance(100));
    READY(of_a);
    READY(of_b);
    READY(of_c);
}

static void a_wait_crosses_devices(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(1, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    driver_event of_a = recorded(0, a);
    assert_ok(driver->stream_wait_event(1, b, of_a));
    assert_status(driver->stream_query(1, b), TARN_ERROR_NOT_READY);
    assert_ok(driver->device_synchronize(1));
    assert_int_equal(time_now(), 100);
    assert_int_equal(ledger_of(1).waited_ns, 100);
    assert_int_equal(ledger_of(0).waited_ns, 0);
    driver_event of_b = new_event(1);
    assert_refused(driver->event_record(0, of_b, a), TARN_ERROR_INVALID_ARGUMENT,
                   "event of device 1");
    assert_refused(driver->event_record(0, of_a, b), TARN_ERROR_INVALID_STREAM,
                   "not a stream of device 0");
}

static void a_wait_keeps_the_recording_it_saw(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false), c = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    driver_event event = recorded(0, a);
    assert_ok(driver->stream_wait_event(0, b, event));
    assert_ok(tarn_host_work(0, c, NULL, 0, 500));
    assert_ok(driver->event_record(0, event, c)); /* b still waits for a */
    driver_event of_b = recorded(0, b);
    assert_ok(tarn_host_advance(100));
    READY(of_b);
    NOT_READY(event);
    assert_ok(driver->event_record(0, event, b)); /* forgets c */
    READY(event);
}

static void a_recording_is_the_past_of_its_stream_only(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 10));
    driver_event event = recorded(0, a);
    assert_ok(tarn_host_work(0, a, NULL, 0, 1000));
    assert_ok(driver->event_synchronize(0, event));
    assert_int_equal(time_now(), 10);
    READY(event);
    assert_status(driver->stream_query(0, a), TARN_ERROR_NOT_READY);
}

static void an_event_may_go_while_it_is_waited_for(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    driver_event event = recorded(0, a);
    assert_ok(driver->stream_wait_event(0, b, event));
    assert_ok(driver->event_destroy(0, event));
    assert_int_equal(ledger_of(0).events, 0);
    assert_status(driver->stream_query(0, b), TARN_ERROR_NOT_READY);
    assert_refused(driver->event_destroy(0, event), TARN_ERROR_INVALID_ARGUMENT, "not an event");
    assert_status(driver->event_query(0, event), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->event_record(0, event, a), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(driver->event_query(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    assert_ok(tarn_host_advance(100));
    assert_ok(driver->stream_query(0, b));
}

static void a_stream_may_go_with_work_left(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    driver_event event = recorded(0, a);
    assert_ok(driver->stream_wait_event(0, b, event));
    assert_ok(driver->stream_destroy(0, a));
    assert_int_equal(ledger_of(0).streams, 1);
    assert_refused(driver->stream_query(0, a), TARN_ERROR_INVALID_STREAM, "not a stream");
    assert_status(driver->stream_destroy(0, a), TARN_ERROR_INVALID_STREAM);
    assert_status(driver->stream_destroy(0, NULL), TARN_ERROR_INVALID_STREAM);
    assert_status(tarn_host_work(0, a, NULL, 0, 1), TARN_ERROR_INVALID_STREAM);
    NOT_READY(event);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(time_now(), 100);
    READY(event);
    driver_stream c = new_stream(0, false); /* the same queue serves again; what was done stays
                                               done */
    assert_ptr_equal(c, a);
    assert_ok(tarn_host_work(0, c, NULL, 0, 100));
    READY(event);
    assert_status(driver->stream_query(0, c), TARN_ERROR_NOT_READY);
}

static void the_legacy_stream_waits_for_blocking_streams_and_they_for_it(void **state)
{
    (void)state;
    driver_stream blocking = new_stream(0, true), other = new_stream(0, true),
                  free_running = new_stream(0, false);
    driver_stream elsewhere = new_stream(1, true);
    assert_ok(tarn_host_work(0, blocking, NULL, 0, 100));
    assert_ok(tarn_host_work(0, free_running, NULL, 0, 900));
    assert_ok(tarn_host_work(1, elsewhere, NULL, 0, 900));
    /* Stands for the blocking ones too */
    assert_status(driver->stream_query(0, NULL), TARN_ERROR_NOT_READY);
    assert_ok(tarn_host_work(0, NULL, NULL, 0, 1));
    driver_event of_legacy = recorded(0, NULL);
    assert_ok(tarn_host_work(0, other, NULL, 0, 1));
    driver_event of_other = recorded(0, other), of_free = new_event(0);
    assert_ok(tarn_host_work(0, free_running, NULL, 0, 0));
    assert_ok(driver->event_record(0, of_free, free_running));
    assert_ok(tarn_host_advance(99));
    NOT_READY(of_legacy);
    NOT_READY(of_other);
    assert_ok(tarn_host_advance(100));
    READY(of_legacy);
    READY(of_other);
    NOT_READY(of_free);
    assert_ok(driver->stream_query(0, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_int_equal(time_now(), 100);

    for (int round = 0; round < 3; round++) { /* and again, from an idle legacy stream */
        assert_ok(tarn_host_work(0, blocking, NULL, 0, 100));
        assert_ok(driver->event_record(0, of_legacy, NULL));
        NOT_READY(of_legacy);
        assert_ok(driver->event_synchronize(0, of_legacy));
        assert_int_equal(time_now(), 200 + 100 * round);
    }
}

static void a_recording_on_the_legacy_stream_covers_blocking_streams(void **state)
{
    (void)state;
    driver_stream blocking = new_stream(0, true);
    assert_ok(tarn_host_work(0, blocking, NULL, 0, 100));
    driver_event of_legacy = recorded(0, NULL);
    assert_ok(tarn_host_work(0, blocking, NULL, 0, 900));
    assert_ok(driver->event_synchronize(0, of_legacy));
    assert_int_equal(time_now(), 100);
    assert_ok(tarn_host_work(0, NULL, NULL, 0, 0));
    driver_event later = recorded(0, blocking);
    assert_ok(driver->event_synchronize(0, later));
    assert_int_equal(time_now(), 900);
}

static void real_work_runs_in_the_background_in_order(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 4 * MIB);
    map_at(0, range, 4 * MIB, new_piece(0, 4 * MIB));
    driver_stream stream = new_stream(0, false);
    struct gate gate = GATE;
    assert_ok(driver->call(0, stream, pass, &gate));
    assert_ok(driver->set(0, range, 7, MIB, stream));
    assert_ok(driver->copy(0, range + GRANULE, range, MIB, stream));
    driver_event event = recorded(0, stream);
    gate_await_entered(&gate, 1);
    NOT_READY(event);
    assert_int_equal(*(unsigned char *)range, 0);
    gate_open(&gate);
    assert_ok(driver->event_synchronize(0, event));
    assert_int_equal(gate.left, 1);
    assert_int_equal(*(unsigned char *)(range + GRANULE + MIB - 1), 7);
    assert_int_equal(ledger_of(0).waited_ns, 0); /* real time is not the virtual clock's */
    char bytes[64] = {0};
    assert_ok(tarn_host_fill(0, stream, (void *)range, 9, 64));
    assert_ok(driver->copy(0, (uintptr_t)bytes, range, 64, stream)); /* memory of the host */
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(bytes[63], 9);
}

static void functions_that_block_starve_nobody(void **state)
{
    (void)state;
    enum { STREAMS = 20 };
    struct gate gate = GATE, last = GATE;
    for (int i = 0; i < STREAMS; i++)
        assert_ok(tarn_host_call(0, new_stream(0, false), pass, &gate));
    last.open = true;
    driver_stream stream = new_stream(0, false);
    assert_ok(tarn_host_call(0, stream, pass, &last));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(last.left, 1);
    gate_await_entered(&gate, STREAMS);
    assert_int_equal(gate.left, 0);
    gate_open(&gate);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(gate.left, STREAMS);
}

/* One idle worker is not enough for two streams that become ready at once. */
static void functions_that_start_together_need_a_worker_each(void **state)
{
    (void)state;
    struct gate gate = GATE, first = GATE;
    driver_stream opener = new_stream(0, false);
    first.open = true;
    assert_ok(tarn_host_call(0, opener, pass, &first));
    assert_ok(driver->stream_synchronize(0, opener));
    usleep(20000); /* the worker is idle now, most likely */
    assert_ok(tarn_host_work(0, opener, NULL, 0, 10));
    driver_event open = recorded(0, opener);
    for (int i = 0; i < 3; i++) {
        driver_stream stream = new_stream(0, false);
        assert_ok(driver->stream_wait_event(0, stream, open));
        assert_ok(tarn_host_call(0, stream, pass, &gate));
    }
    assert_ok(tarn_host_advance(10));
    gate_await_entered(&gate, 3);
    gate_open(&gate);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(gate.left, 3);
}

static void work_that_waits_for_real_work_ends_with_it(void **state)
{
    (void)state;
    driver_stream real = new_stream(0, false), timed = new_stream(0, false),
                  both = new_stream(0, false);
    struct gate gate = GATE;
    assert_ok(tarn_host_call(0, real, pass, &gate));
    driver_event of_real = recorded(0, real);
    assert_ok(driver->stream_wait_event(0, timed, of_real));
    assert_ok(tarn_host_work(0, timed, NULL, 0, 100));
    assert_ok(driver->stream_wait_event(0, both, recorded(0, timed)));
    driver_event end = recorded(0, both);
    assert_ok(tarn_host_advance(50));
    NOT_READY(end);
    gate_open(&gate);
    assert_ok(driver->event_synchronize(0, end));
    assert_int_equal(time_now(), 100);
    assert_int_equal(ledger_of(0).waited_ns, 50);
}

static void copies_are_checked_when_they_are_queued(void **state)
{
    (void)state;
    uintptr_t range = new_range(0, 6 * MIB), plain;
    driver_piece piece = new_piece(0, GRANULE);
    char bytes[16] = {0};
    assert_ok(driver->map(0, range + GRANULE, GRANULE, piece));
    assert_refused(driver->set(0, range, 1, 16, NULL), TARN_ERROR_INVALID_ARGUMENT,
                   "nothing is mapped");
    assert_refused(driver->set(0, range + GRANULE, 1, 16, NULL), TARN_ERROR_INVALID_ARGUMENT,
                   "access is not set");
    assert_ok(driver->set_access(0, range + GRANULE, GRANULE, (int[]){0}, 1));
    assert_ok(driver->set(0, range + GRANULE, 1, GRANULE, NULL));
    assert_refused(driver->set(0, range + GRANULE, 1, GRANULE + 1, NULL),
                   TARN_ERROR_INVALID_ARGUMENT, "nothing is mapped");
    assert_refused(driver->copy(0, (uintptr_t)bytes, range, 16, NULL), TARN_ERROR_INVALID_ARGUMENT,
                   "nothing is mapped");
    assert_refused(driver->copy(0, range, (uintptr_t)bytes, 16, NULL), TARN_ERROR_INVALID_ARGUMENT,
                   "nothing is mapped");
    assert_refused(driver->copy(0, SIZE_MAX - 3, (uintptr_t)bytes, 16, NULL),
                   TARN_ERROR_INVALID_ARGUMENT, "wraps");
    assert_refused(driver->call(0, NULL, NULL, NULL), TARN_ERROR_INVALID_ARGUMENT, "NULL");
    assert_ok(driver->alloc(0, GRANULE, &plain));
    assert_ok(driver->copy(0, plain, range + GRANULE, GRANULE, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_int_equal(*(char *)(plain + GRANULE - 1), 1);
}

static void free_waits_for_the_device(void **state)
{
    (void)state;
    uintptr_t plain;
    assert_ok(driver->alloc(0, GRANULE, &plain));
    driver_stream stream = new_stream(0, false), elsewhere = new_stream(1, false);
    assert_ok(tarn_host_work(0, stream, (void *)plain, GRANULE, 300));
    assert_ok(tarn_host_work(1, elsewhere, NULL, 0, 900));
    assert_ok(driver->free(0, plain));
    assert_int_equal(time_now(), 300);
    assert_int_equal(ledger_of(0).waited_ns, 300);
}

struct order_log {
    pthread_mutex_t lock;
    int names[8], count;
};

struct named {
    struct order_log *log;
    int name;
};

static void write_name(void *argument)
{
    struct named *named = argument;
    pthread_mutex_lock(&named->log->lock);
    named->log->names[named->log->count++] = named->name;
    pthread_mutex_unlock(&named->log->lock);
}

/* Four streams become ready at once, and there is one worker because no memory is left for
 * another. */
static void ready_work_of_higher_priority_goes_first(void **state)
{
    (void)state;
    struct order_log log = {.lock = PTHREAD_MUTEX_INITIALIZER};
    driver_stream opener = new_stream(0, false);
    assert_ok(tarn_host_work(0, opener, NULL, 0, 10));
    driver_event open = recorded(0, opener);
    static const int priorities[5] = {-1, 0, -3, -2, -3};
    struct named named[5];
    for (int i = 0; i < 5; i++) {
        driver_stream stream = NULL;
        assert_ok(driver->stream_create(0, priorities[i], false, &stream));
        named[i] = (struct named){.log = &log, .name = i};
        assert_ok(driver->stream_wait_event(0, stream, open));
        assert_ok(tarn_host_call(0, stream, write_name, &named[i]));
    }
    pages_fail(1, true);
    assert_ok(tarn_host_advance(10));
    pages_fail(0, false);
    assert_ok(driver->device_synchronize(0));
    static const int expected[5] = {2, 4, 3, 0, 1};
    assert_int_equal(log.count, 5);
    assert_memory_equal(log.names, expected, sizeof expected);
}

/* ---- Random operations against a model ---- */

enum { STREAMS = 4, OPERATIONS = 1000 };

/* What a host function saw when it ran: a stamp from a counter, taken at its start and at its
 * end. */
struct sample {
    atomic_int *counter;
    atomic_int begin, end;
};

static void take_sample(void *argument)
{
    struct sample *sample = argument;
    atomic_store(&sample->begin, atomic_fetch_add(sample->counter, 1) + 1);
    atomic_store(&sample->end, atomic_fetch_add(sample->counter, 1) + 1);
}

static uint32_t next_random(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

/* The model: for each stream, the samples that its next operation comes after, as the number of
 * samples of each stream (a vector clock). A host function must begin after the end of all that its
 * clock has. */
static void run_random(uint32_t random)
{
    static struct sample samples[STREAMS][OPERATIONS];
    static int clocks[STREAMS][OPERATIONS][STREAMS];
    int counts[STREAMS] = {0}, clock[STREAMS][STREAMS] = {{0}},
        event_clock[STREAMS][STREAMS] = {{0}};
    driver_stream streams[STREAMS];
    driver_event events[STREAMS];
    atomic_int counter = 0;
    for (int i = 0; i < STREAMS; i++) {
        /* The legacy one, two blocking, one not */
        streams[i] = i == 0 ? NULL : new_stream(0, i != 3);
        events[i] = new_event(0);
    }
    uint64_t time = time_now();
    for (int n = 0; n < OPERATIONS; n++) {
        int s = (int)(next_random(&random) % STREAMS), e = (int)(next_random(&random) % STREAMS);
        uint32_t operation = next_random(&random) % 8;
        bool queues = operation != 3 && operation != 4;
        /* The legacy rule, for all that is put into a stream */
        for (int other = 0; other < 3 && s < 3; other++)
            if (queues && (s == 0 || other == 0))
                for (int k = 0; k < STREAMS; k++)
                    if (clock[s][k] < clock[other][k])
                        clock[s][k] = clock[other][k];
        switch (operation) {
        case 0:
            assert_ok(driver->event_record(0, events[e], streams[s]));
            memcpy(event_clock[e], clock[s], sizeof clock[s]);
            break;
        case 1:
            assert_ok(driver->stream_wait_event(0, streams[s], events[e]));
            for (int k = 0; k < STREAMS; k++)
                if (clock[s][k] < event_clock[e][k])
                    clock[s][k] = event_clock[e][k];
            break;
        case 2:
            assert_ok(tarn_host_work(0, streams[s], NULL, 0, next_random(&random) % 100));
            break;
        case 3:
            assert_ok(tarn_host_advance(time += next_random(&random) % 20));
            break;
        case 4:
            if (driver->event_query(0, events[e]) == TARN_OK)
                for (int k = 0; k < STREAMS; k++)
                    for (int i = 0; i < event_clock[e][k]; i++)
                        assert_true(atomic_load(&samples[k][i].end) > 0);
            break;
        default: {
            int i = counts[s]++;
            samples[s][i] = (struct sample){.counter = &counter};
            memcpy(clocks[s][i], clock[s], sizeof clock[s]);
            assert_ok(tarn_host_call(0, streams[s], take_sample, &samples[s][i]));
            clock[s][s] = i + 1;
        }
        }
    }
    assert_ok(driver->device_synchronize(0));
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < counts[s]; i++) {
            assert_true(samples[s][i].end > samples[s][i].begin);
            for (int k = 0; k < STREAMS; k++)
                for (int j = 0; j < clocks[s][i][k]; j++)
                    assert_true(samples[k][j].end < samples[s][i].begin);
        }
}

static void random_operations_keep_the_order_that_was_asked_for(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 8; seed++)
        run_random(seed);
}

static void long_chains_need_no_stack(void **state)
{
    (void)state;
    enum { CHAIN = 20000 };
    driver_stream a = new_stream(0, false), b = new_stream(0, false);
    driver_event event = new_event(0);
    assert_ok(tarn_host_work(0, a, NULL, 0, 1));
    for (int i = 0; i < CHAIN; i++) {
        driver_stream from = i % 2 ? b : a, to = i % 2 ? a : b;
        assert_ok(driver->event_record(0, event, from));
        assert_ok(driver->stream_wait_event(0, to, event));
    }
    NOT_READY(event);
    assert_ok(tarn_host_advance(1));
    READY(event);
    assert_ok(driver->stream_query(0, a));
}

static void many_streams_wait_for_one(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    driver_stream first = new_stream(0, false), streams[COUNT];
    assert_ok(tarn_host_work(0, first, NULL, 0, 5));
    driver_event event = recorded(0, first);
    for (int i = 0; i < COUNT; i++) {
        streams[i] = new_stream(0, false);
        assert_ok(driver->stream_wait_event(0, streams[i], event));
        assert_ok(tarn_host_work(0, streams[i], NULL, 0, (uint64_t)(i * 7 % COUNT)));
    }
    assert_ok(tarn_host_advance(5));
    for (int i = 0; i < COUNT; i++) {
        tarn_status expected = i * 7 % COUNT <= 5 ? TARN_OK : TARN_ERROR_NOT_READY;
        assert_status(driver->stream_query(0, streams[i]), expected);
    }
    for (uint64_t now = 6; now < COUNT; now++) {
        assert_ok(tarn_host_advance(now));
        for (int i = 0; i < COUNT; i++)
            assert_int_equal(driver->stream_query(0, streams[i]) == TARN_OK,
                             (uint64_t)(i * 7 % COUNT) <= now);
    }
}

/* The capture goes on, and wants the work of the stream joined. Then a new stream may have its
 * place. */
static void a_stream_may_go_that_has_joined_a_capture(void **state)
{
    (void)state;
    for (int joined = 0; joined < 2; joined++) {
        driver_graph graph = NULL;
        struct driver_capture capture;
        driver_stream a = new_stream(0, false), b = new_stream(0, false);
        assert_ok(tarn_host_work(0, b, NULL, 0, 100)); /* which ends in between */
        assert_ok(driver->capture_begin(0, a, DRIVER_CAPTURE_GLOBAL));
        assert_ok(driver->stream_wait_event(0, b, recorded(0, a)));
        assert_ok(tarn_host_work(0, b, NULL, 0, 100));
        if (joined)
            assert_ok(driver->stream_wait_event(0, a, recorded(0, b)));
        assert_ok(driver->stream_destroy(0, b));
        assert_status(driver->stream_check(0, b), TARN_ERROR_INVALID_STREAM);
        assert_ok(tarn_host_advance(time_now() + 100));
        driver_stream c = new_stream(0, false);
        assert_ok(driver->capture_status(0, c, &capture));
        assert_int_equal(capture.state, DRIVER_CAPTURE_NONE);
        assert_ok(driver->capture_status(0, a, &capture));
        assert_int_equal(capture.state, DRIVER_CAPTURE_ACTIVE);
        assert_status(driver->capture_end(0, a, &graph), joined ? TARN_OK : TARN_ERROR_CAPTURE);
        if (joined)
            assert_ok(driver->graph_launch(0, graph, c));
        assert_ok(driver->device_synchronize(0));
        assert_ok(driver->stream_destroy(0, a));
        assert_ok(driver->stream_destroy(0, c));
        assert_int_equal(ledger_of(0).streams, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(idle_streams_complete_at_once),
        TEST(timed_work_ends_at_its_time),
        TEST(a_wait_of_a_stream_orders_it_after_the_recording),
        TEST(a_wait_crosses_devices),
        TEST(a_wait_keeps_the_recording_it_saw),
        TEST(a_recording_is_the_past_of_its_stream_only),
        TEST(an_event_may_go_while_it_is_waited_for),
        TEST(a_stream_may_go_with_work_left),
        TEST(the_legacy_stream_waits_for_blocking_streams_and_they_for_it),
        TEST(a_recording_on_the_legacy_stream_covers_blocking_streams),
        TEST(real_work_runs_in_the_background_in_order),
        TEST(functions_that_block_starve_nobody),
        TEST(functions_that_start_together_need_a_worker_each),
        TEST(work_that_waits_for_real_work_ends_with_it),
        TEST(copies_are_checked_when_they_are_queued),
        TEST(free_waits_for_the_device),
        TEST(ready_work_of_higher_priority_goes_first),
        TEST(random_operations_keep_the_order_that_was_asked_for),
        TEST(long_chains_need_no_stack),
        TEST(many_streams_wait_for_one),
        TEST(a_stream_may_go_that_has_joined_a_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
