/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The two virtual clocks: what each call costs by both tables, and what a wait of the host does to
 * the clock of queued work. */
#include "host_test.h"

#include <unistd.h>

#include <inttypes.h>

/* Runs a call and asserts what it added to device 0's time by table A and B. */
#define assert_costs(call, a, b)                                             \
    do {                                                                     \
        tarn_host_ledger before_call = ledger_of(0);                         \
        assert_ok(call);                                                     \
        tarn_host_ledger after_call = ledger_of(0);                          \
        assert_int_equal(after_call.time_a_ns - before_call.time_a_ns, (a)); \
        assert_int_equal(after_call.time_b_ns - before_call.time_b_ns, (b)); \
    } while (0)
#define US(us) ((uint64_t)((us)*1000.0 + 0.5))

static void do_nothing(void *unused)
{
    (void)unused;
}

static void each_call_costs_what_the_tables_say(void **state)
{
    (void)state;
    uintptr_t range = 0, plain = 0;
    driver_piece pieces[3] = {0};
    driver_stream stream = NULL;
    driver_event event = NULL;
    int number = 0;
    size_t free_bytes, total;
    struct driver_properties properties;
    bool active = false;
    uint64_t stream_number = 0;
    driver_context context = NULL;
    static _Alignas(4096) char own[MIB];
    assert_costs(driver->device_count(&number), 0, 0);
    assert_costs(driver->device_properties(0, &properties), 0, 0);
    assert_costs(driver->activate(0), 0, 0);
    assert_costs(driver->current(&number), 0, 0);
    assert_costs(driver->memory_info(0, &free_bytes, &total), 0, 0);
    assert_costs(driver->reserve(0, 32 * MIB, 0, &range), US(19), US(19));
    assert_costs(driver->create(0, GRANULE, 0, &pieces[0]), US(160 + 2 * 16), US(160 + 2 * 0.8));
    assert_costs(driver->create(0, 20 * MIB, 0, &pieces[1]), US(160 + 20 * 16), US(160 + 20 * 0.8));
    assert_costs(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &pieces[2]), US(160 + 2 * 16),
                 US(160 + 2 * 0.8));
    assert_costs(driver->map(0, range, GRANULE, pieces[0]), US(1.5), US(1.5));
    assert_costs(driver->map(0, range + GRANULE, 20 * MIB, pieces[1]), US(1.5), US(1.5));
    assert_costs(driver->map(0, range + 22 * MIB, GRANULE, pieces[2]), US(1.5), US(1.5));
    assert_costs(driver->set_access(0, range, 24 * MIB, (int[]){0}, 1), US(36), US(3 * 36));
    assert_costs(driver->set_access(0, range, GRANULE, (int[]){0}, 1), US(36), US(36));
    assert_costs(driver->unmap(0, range + GRANULE, 22 * MIB), US(2 * 26), US(2 * 26));
    assert_costs(driver->unmap(0, range, GRANULE), US(26), US(26));
    driver_piece imported = 0;
    int file = -1;
    assert_costs(driver->export(0, pieces[2], &file), 0, 0);
    assert_costs(driver->import(0, file, GRANULE, &imported), 0, 0);
    close(file);
    for (int i = 0; i < 3; i++)
        assert_costs(driver->release(0, pieces[i]), US(50), US(50));
    assert_costs(driver->unreserve(0, range, 32 * MIB), 0, 0);
    assert_costs(driver->alloc(0, 20 * MIB, &plain), US(160 + 20 * 16), US(160 + 20 * 0.8));
    assert_costs(driver->free(0, plain), US(50), US(50));
    assert_costs(driver->alloc_async(0, 20 * MIB, NULL, &plain), US(1), US(1));
    assert_costs(driver->free_async(0, plain, NULL), US(1), US(1));
    assert_costs(driver->is_active(0, &active), 0, 0);
    assert_costs(driver->context_get(&context), 0, 0);
    assert_costs(driver->context_set(context), 0, 0);
    assert_costs(driver->host_alloc(0, 2 * MIB, &plain), US(160 + 2 * 250), US(160 + 2 * 250));
    assert_costs(driver->host_free(0, plain), US(50 + 2 * 50), US(50 + 2 * 50));
    assert_costs(driver->host_register(0, (uintptr_t)own, MIB), US(160 + 100), US(160 + 100));
    assert_costs(driver->host_unregister(0, (uintptr_t)own), US(50 + 50), US(50 + 50));
    assert_costs(driver->stream_create(0, 0, false, &stream), 0, 0);
    assert_costs(driver->stream_check(0, stream), 0, 0);
    assert_costs(driver->stream_number(0, stream, &stream_number), 0, 0);
    assert_costs(driver->event_create(0, &event), 0, 0);
    assert_costs(driver->event_record(0, event, stream), US(0.5), US(0.5));
    assert_costs(driver->event_query(0, event), US(0.3), US(0.3));
    assert_costs(driver->event_synchronize(0, event), 0, 0);
    assert_costs(driver->stream_wait_event(0, stream, event), 0, 0);
    assert_costs(driver->stream_query(0, stream), 0, 0);
    assert_costs(driver->call(0, stream, do_nothing, NULL), 0, 0);
    assert_costs(driver->stream_synchronize(0, stream), 0, 0);
    assert_costs(driver->device_synchronize(0), 0, 0);
    struct driver_capture capture;
    enum driver_capture_mode mode = DRIVER_CAPTURE_GLOBAL;
    driver_graph graph = NULL;
    bool possible;
    assert_costs(driver->capture_mode(&mode), 0, 0);
    assert_costs(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL), 0, 0);
    assert_costs(driver->call(0, stream, do_nothing, NULL), 0, 0);
    assert_costs(driver->capture_status(0, stream, &capture), 0, 0);
    size_t before;
    assert_costs(driver->node_before(0, capture.nodes[0], NULL, 0, &before), 0, 0);
    assert_costs(driver->capture_depend(0, stream, NULL, 0), 0, 0);
    assert_costs(driver->capture_end(0, stream, &graph), 0, 0);
    assert_costs(driver->graph_launch(0, graph, stream), 0, 0);
    assert_costs(driver->exec_launch(0, graph, stream), 0, 0);
    assert_costs(driver->graph_hold(0, graph, do_nothing, NULL), 0, 0);
    assert_costs(driver->graph_destroy(0, graph), 0, 0);
    assert_costs(driver->peer_possible(0, 1, &possible), 0, 0);
    assert_costs(driver->peer_enable(0, 1), 0, 0);
    assert_costs(driver->event_destroy(0, event), 0, 0);
    assert_costs(driver->stream_destroy(0, stream), 0, 0);
    assert_costs(driver->copy(0, 0, 0, 0, NULL), 0, 0);
    assert_costs(driver->set(0, 0, 0, 0, NULL), 0, 0);
    tarn_host_ledger ledger = ledger_of(0);
    for (int call = 0; call < DRIVER_CALLS; call++)
        if (ledger.calls[call] == 0)
            fail_msg("%s was not tried here", driver_call_name(call));
    assert_int_equal(ledger.waited_ns, 0);
    assert_int_equal(ledger_of(1).time_a_ns, 0);
}

/* Default streams are there without being created. */
static void work_of_a_default_stream_needs_no_other_stream(void **state)
{
    (void)state;
    assert_ok(tarn_host_work(0, NULL, NULL, 0, 500));
    assert_int_equal(driver->stream_query(0, NULL), TARN_ERROR_NOT_READY);
    assert_ok(driver->stream_synchronize(0, NULL));
}

static void a_failed_call_is_counted_and_costs_nothing(void **state)
{
    (void)state;
    driver_piece piece;
    assert_status(driver->create(0, 100 * MIB, 0, &piece), TARN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(ledger_of(0).calls[DRIVER_CALL_create], 1);
    assert_int_equal(ledger_of(0).time_a_ns, 0);
}

static void a_query_that_says_not_yet_costs_as_much(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    assert_ok(tarn_host_work(0, stream, NULL, 0, 10));
    driver_event event = recorded(0, stream);
    uint64_t before = ledger_of(0).time_a_ns;
    assert_status(driver->event_query(0, event), TARN_ERROR_NOT_READY);
    assert_int_equal(ledger_of(0).time_a_ns - before, 300);
}

/* A wait jumps just to the end of what it waits for, whatever else is queued. */
static void waits_jump_as_far_as_is_needed(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false), c = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    driver_event of_a = recorded(0, a);
    assert_ok(tarn_host_work(0, a, NULL, 0, 400));
    assert_ok(tarn_host_work(0, b, NULL, 0, 250));
    assert_ok(tarn_host_work(0, c, NULL, 0, 9000));

    assert_ok(tarn_host_advance(30));
    assert_costs(driver->event_synchronize(0, of_a), 70, 70);
    assert_int_equal(time_now(), 100);
    assert_int_equal(ledger_of(0).waited_ns, 70);
    assert_costs(driver->event_synchronize(0, of_a), 0, 0); /* has happened */

    assert_costs(driver->stream_synchronize(0, b), 150, 150);
    assert_int_equal(time_now(), 250);
    assert_status(driver->stream_query(0, a), TARN_ERROR_NOT_READY);

    assert_costs(driver->stream_synchronize(0, a), 150, 150);
    assert_int_equal(time_now(), 400);

    assert_costs(driver->device_synchronize(0), 8600, 8600);
    assert_int_equal(time_now(), 9000);
    assert_int_equal(ledger_of(0).waited_ns, 8970);
}

static void a_wait_follows_waits_of_streams(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(1, false), c = new_stream(0, false);
    assert_ok(tarn_host_work(0, a, NULL, 0, 100));
    assert_ok(driver->stream_wait_event(1, b, recorded(0, a)));
    assert_ok(tarn_host_work(1, b, NULL, 0, 40)); /* due at 40, ends with the wait at 100 */
    assert_ok(tarn_host_work(1, b, NULL, 0, 300));
    assert_ok(driver->stream_wait_event(0, c, recorded(1, b)));
    assert_ok(tarn_host_work(0, c, NULL, 0, 0));
    assert_costs(driver->stream_synchronize(0, c), 300, 300);
    assert_int_equal(time_now(), 300);
}

static void synchronize_of_a_device_leaves_the_others_alone(void **state)
{
    (void)state;
    driver_stream here = new_stream(0, false), there = new_stream(1, false);
    assert_ok(tarn_host_work(0, here, NULL, 0, 10));
    assert_ok(tarn_host_work(1, there, NULL, 0, 70));
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(time_now(), 10);
    assert_status(driver->stream_query(1, there), TARN_ERROR_NOT_READY);
    assert_int_equal(ledger_of(1).waited_ns, 0);
}

/* The same random script twice: the same times and answers, to the nanosecond. */
static uint64_t run_script(uint32_t random)
{
    enum { STREAMS = 5 };
    start_with(1, 64 * MIB, 0);
    driver_stream streams[STREAMS];
    driver_event events[STREAMS];
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = new_stream(0, i < 2);
        events[i] = new_event(0);
    }
    for (int n = 0; n < 3000; n++) {
        random = random * 1664525u + 1013904223u;
        driver_stream stream = streams[(random >> 10) % STREAMS];
        driver_event event = events[(random >> 14) % STREAMS];
        uint64_t seen = 0;
        switch ((random >> 20) % 8) {
        case 0:
            assert_ok(tarn_host_advance(time_now() + (random >> 24)));
            break;
        case 1:
            assert_ok(driver->stream_wait_event(0, stream, event));
            break;
        case 2:
            assert_ok(driver->event_record(0, event, stream));
            break;
        case 3:
            seen = (uint64_t)driver->event_query(0, event);
            break;
        case 4:
            assert_ok((random >> 25) % 8 ? TARN_OK : driver->event_synchronize(0, event));
            break;
        case 5:
            assert_ok(tarn_host_work(0, NULL, NULL, 0, random >> 22));
            break;
        default:
            assert_ok(tarn_host_work(0, stream, NULL, 0, random >> 20));
            break;
        }
        hash = (hash ^ seen ^ time_now()) * 1099511628211u;
    }
    assert_ok(driver->device_synchronize(0));
    return (hash ^ ledger_of(0).waited_ns ^ ledger_of(0).time_b_ns) * 1099511628211u;
}

static void timed_work_is_deterministic(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 5; seed++)
        assert_int_equal(run_script(seed), run_script(seed));
    assert_int_not_equal(run_script(1), run_script(2));
}

static void times_beyond_the_clock_are_its_end(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    assert_ok(tarn_host_advance(1000));
    assert_ok(tarn_host_work(0, stream, NULL, 0, UINT64_MAX));
    assert_ok(tarn_host_advance(UINT64_MAX - 1));
    assert_status(driver->stream_query(0, stream), TARN_ERROR_NOT_READY);
    assert_ok(tarn_host_advance(UINT64_MAX));
    assert_ok(driver->stream_query(0, stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(work_of_a_default_stream_needs_no_other_stream),
        TEST(each_call_costs_what_the_tables_say),
        TEST(a_failed_call_is_counted_and_costs_nothing),
        TEST(a_query_that_says_not_yet_costs_as_much),
        TEST(waits_jump_as_far_as_is_needed),
        TEST(a_wait_follows_waits_of_streams),
        TEST(synchronize_of_a_device_leaves_the_others_alone),
        TEST(timed_work_is_deterministic),
        TEST(times_beyond_the_clock_are_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
