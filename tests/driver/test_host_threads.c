/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Everything at once from several threads: for the thread sanitizer, and the books must balance
 * afterwards. */
#include "host_test.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 400, SLOTS = 8 };

static atomic_int reports, calls;

static void count_report(const char *text, void *user)
{
    (void)user;
    (void)text;
    atomic_fetch_add(&reports, 1);
}

static void count_call(void *unused)
{
    (void)unused;
    atomic_fetch_add(&calls, 1);
}

struct storm {
    pthread_t thread;
    int device;
    uint32_t random;
    driver_event shared; /* recorded and waited for by all */
};

static void storm_round(struct storm *storm, uintptr_t range, driver_stream stream,
                        driver_event event)
{
    uint32_t random = storm->random = storm->random * 1664525u + 1013904223u;
    int device = storm->device;
    uintptr_t at = range + (random >> 8) % SLOTS * GRANULE, plain;
    driver_piece piece;
    uint64_t now;
    GOOD(driver->create(device, GRANULE, random >> 28 ? 0 : DRIVER_PIECE_EXPORTABLE, &piece));
    GOOD(driver->map(device, at, GRANULE, piece));
    GOOD(driver->set_access(device, at, GRANULE, &device, 1));
    driver->owner_set(device, at, GRANULE, stream);
    GOOD(driver->set(device, at, (unsigned char)random, 4096, stream));
    GOOD(tarn_host_work(device, stream, (void *)at, 4096, random >> 24));
    GOOD(driver->event_record(device, event, stream));
    if (device == 0)
        GOOD(driver->event_record(0, storm->shared, stream));
    GOOD(driver->stream_wait_event(device, stream, storm->shared));
    GOOD(tarn_host_call(device, random & 64 ? NULL : stream, count_call, NULL));
    GOOD(tarn_host_time_get(&now));
    GOOD(tarn_host_advance(now + (random >> 27)));
    GOOD(driver->event_synchronize(device, event));
    if (((unsigned char *)at)[4095] != (unsigned char)random)
        abort();
    GOOD(driver->unmap(device, at, GRANULE));
    driver->owner_clear(device, at, GRANULE);
    GOOD(driver->release(device, piece));
    if ((random >> 16) % 8 == 0) {
        tarn_host_ledger ledger = {.size = sizeof ledger};
        GOOD(tarn_host_ledger_get(device, &ledger));
        GOOD(driver->alloc(device, GRANULE, &plain));
        GOOD(driver->set(device, plain, 3, GRANULE, stream));
        GOOD(driver->stream_synchronize(device, stream));
        GOOD(driver->free(device, plain));
    }
}

static void *storm_main(void *argument)
{
    struct storm *storm = argument;
    for (int outer = 0; outer < 4; outer++) {
        uintptr_t range;
        driver_stream stream;
        driver_event event;
        GOOD(driver->reserve(storm->device, SLOTS * GRANULE, 0, &range));
        GOOD(driver->stream_create(storm->device, -(outer % 4), outer % 2, &stream));
        GOOD(driver->event_create(storm->device, &event));
        for (int round = 0; round < ROUNDS / 4; round++)
            storm_round(storm, range, stream, event);
        GOOD(driver->event_destroy(storm->device, event));
        GOOD(driver->stream_destroy(storm->device, stream));
        GOOD(driver->unreserve(storm->device, range, SLOTS * GRANULE));
    }
    return NULL;
}

static void run_storm(void)
{
    struct storm storms[THREADS];
    driver_event shared = new_event(0);
    atomic_store(&calls, 0);
    for (int i = 0; i < THREADS; i++) {
        storms[i] = (struct storm){.device = i % 2, .random = (uint32_t)i + 1, .shared = shared};
        assert_int_equal(pthread_create(&storms[i].thread, NULL, storm_main, &storms[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(storms[i].thread, NULL);
    for (int device = 0; device < 2; device++) {
        assert_ok(driver->device_synchronize(device));
        tarn_host_ledger ledger = ledger_of(device);
        assert_int_equal(ledger.created + ledger.mapped + ledger.reserved_addresses, 0);
        assert_int_equal(ledger.pieces + ledger.mappings + ledger.plain + ledger.streams, 0);
        assert_int_equal(ledger.calls[DRIVER_CALL_map], THREADS / 2 * ROUNDS);
        assert_int_equal(ledger.calls[DRIVER_CALL_release], THREADS / 2 * ROUNDS);
    }
    assert_int_equal(atomic_load(&calls), THREADS * ROUNDS);
}

static void a_storm_leaves_nothing_behind(void **state)
{
    (void)state;
    run_storm();
}

static void a_storm_that_is_checked_is_silent(void **state)
{
    (void)state;
    assert_ok(tarn_host_check_set(true, count_report, NULL));
    run_storm();
    assert_ok(tarn_host_check_set(false, NULL, NULL));
    assert_int_equal(atomic_load(&reports), 0);
}

/* Two threads wait for the same timed work: the clock jumps once, and both go on. */
static void *synchronize(void *event)
{
    GOOD(driver->event_synchronize(0, event));
    return NULL;
}

static void waits_of_two_threads_jump_once(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    for (int round = 1; round <= 200; round++) {
        assert_ok(tarn_host_work(0, stream, NULL, 0, 100));
        driver_event event = recorded(0, stream);
        pthread_t threads[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, synchronize, event), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(time_now(), 100 * round);
        assert_int_equal(ledger_of(0).waited_ns, 100 * round);
        assert_ok(driver->event_destroy(0, event));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_storm_leaves_nothing_behind),
        TEST(a_storm_that_is_checked_is_silent),
        TEST(waits_of_two_threads_jump_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
