/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Failures on request: each kind of driver call, the n-th, once or always, and host allocations; a
 * call that fails has had no effect, and the next one works. */
#include "host_test.h"

#include "base/pages.h"
#include "driver/host/host.h"

#include <unistd.h>

/* What a call works on. */
static struct {
    uintptr_t range, mapped, plain, pinned, made;
    driver_piece piece, other, shared, made_piece;
    driver_stream stream, made_stream, capturing;
    driver_graph graph, made_graph;
    driver_event event, made_event;
} on;

static _Alignas(4096) char pages[2 * 4096];

static void do_nothing(void *unused)
{
    (void)unused;
}

static void prepare_capture(int kind)
{
    on.capturing = new_stream(0, false);
    if (kind == DRIVER_CALL_capture_begin)
        return;
    assert_ok(driver->capture_begin(0, on.capturing, DRIVER_CAPTURE_GLOBAL));
    assert_ok(driver->call(0, on.capturing, do_nothing, NULL));
    if (kind >= DRIVER_CALL_graph_launch && kind <= DRIVER_CALL_graph_hold)
        assert_ok(driver->capture_end(0, on.capturing, &on.graph));
}

/* A fresh device on which one call of the kind succeeds. */
static void prepare(int kind)
{
    start_with(1, 64 * MIB, 0);
    memset(&on, 0, sizeof on);
    on.range = new_range(0, 16 * MIB);
    on.mapped = on.range + 4 * MIB;
    on.piece = new_piece(0, GRANULE);
    on.other = new_piece(0, GRANULE);
    assert_ok(driver->create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &on.shared));
    map_at(0, on.mapped, GRANULE, on.piece);
    assert_ok(driver->alloc(0, GRANULE, &on.plain));
    assert_ok(driver->host_alloc(0, GRANULE, &on.pinned));
    assert_ok(driver->host_register(0, (uintptr_t)pages + 4096, 4096));
    on.stream = new_stream(0, true);
    on.event = recorded(0, on.stream);
    assert_ok(driver->call(0, on.stream, do_nothing, NULL));
    assert_ok(driver->device_synchronize(0));
    if (kind == DRIVER_CALL_unreserve)
        assert_ok(driver->unmap(0, on.mapped, GRANULE));
    if (kind >= DRIVER_CALL_capture_begin && kind <= DRIVER_CALL_graph_hold)
        prepare_capture(kind);
}

/* One call of each kind that succeeds after prepare(kind). */
static tarn_status call_device_count(void)
{
    int count = 0;
    return driver->device_count(&count);
}

static tarn_status call_device_properties(void)
{
    struct driver_properties properties;
    return driver->device_properties(0, &properties);
}

static tarn_status call_activate(void)
{
    return driver->activate(0);
}

static tarn_status call_current(void)
{
    int device;
    return driver->current(&device);
}

static tarn_status call_context_get(void)
{
    driver_context context;
    return driver->context_get(&context);
}

static tarn_status call_context_set(void)
{
    return driver->context_set(NULL);
}

static tarn_status call_memory_info(void)
{
    size_t free_bytes, total;
    return driver->memory_info(0, &free_bytes, &total);
}

static tarn_status call_device_synchronize(void)
{
    return driver->device_synchronize(0);
}

static tarn_status call_alloc(void)
{
    return driver->alloc(0, GRANULE, &on.made);
}

static tarn_status call_free(void)
{
    return driver->free(0, on.plain);
}

static tarn_status call_alloc_async(void)
{
    return driver->alloc_async(0, GRANULE, on.stream, &on.made);
}

static tarn_status call_free_async(void)
{
    return driver->free_async(0, on.plain, on.stream);
}

static tarn_status call_host_alloc(void)
{
    return driver->host_alloc(0, GRANULE, &on.made);
}

static tarn_status call_host_free(void)
{
    return driver->host_free(0, on.pinned);
}

static tarn_status call_host_register(void)
{
    return driver->host_register(0, (uintptr_t)pages, 4096);
}

static tarn_status call_host_unregister(void)
{
    return driver->host_unregister(0, (uintptr_t)pages + 4096);
}

static tarn_status call_is_active(void)
{
    bool active;
    return driver->is_active(0, &active);
}

static tarn_status call_reserve(void)
{
    return driver->reserve(0, GRANULE, 0, &on.made);
}

static tarn_status call_unreserve(void)
{
    return driver->unreserve(0, on.range, 16 * MIB);
}

static tarn_status call_create(void)
{
    return driver->create(0, GRANULE, 0, &on.made_piece);
}

static tarn_status call_release(void)
{
    return driver->release(0, on.other);
}

static tarn_status call_map(void)
{
    return driver->map(0, on.range, GRANULE, on.other);
}

static tarn_status call_unmap(void)
{
    return driver->unmap(0, on.mapped, GRANULE);
}

static tarn_status call_set_access(void)
{
    return driver->set_access(0, on.mapped, GRANULE, (int[]){0}, 1);
}

static tarn_status call_stream_create(void)
{
    return driver->stream_create(0, 0, true, &on.made_stream);
}

static tarn_status call_stream_destroy(void)
{
    return driver->stream_destroy(0, on.stream);
}

static tarn_status call_stream_number(void)
{
    uint64_t number;
    return driver->stream_number(0, on.stream, &number);
}

static tarn_status call_stream_check(void)
{
    return driver->stream_check(0, on.stream);
}

static tarn_status call_stream_query(void)
{
    return driver->stream_query(0, on.stream);
}

static tarn_status call_stream_synchronize(void)
{
    return driver->stream_synchronize(0, on.stream);
}

static tarn_status call_stream_wait_event(void)
{
    return driver->stream_wait_event(0, on.stream, on.event);
}

static tarn_status call_event_create(void)
{
    return driver->event_create(0, &on.made_event);
}

static tarn_status call_event_destroy(void)
{
    return driver->event_destroy(0, on.event);
}

static tarn_status call_event_record(void)
{
    return driver->event_record(0, on.event, on.stream);
}

static tarn_status call_event_query(void)
{
    return driver->event_query(0, on.event);
}

static tarn_status call_event_synchronize(void)
{
    return driver->event_synchronize(0, on.event);
}

static tarn_status call_copy(void)
{
    return driver->copy(0, on.mapped, on.plain, 64, on.stream);
}

static tarn_status call_set(void)
{
    return driver->set(0, on.mapped, 1, 64, on.stream);
}

static tarn_status call_call(void)
{
    return driver->call(0, on.stream, do_nothing, NULL);
}

static tarn_status call_capture_begin(void)
{
    return driver->capture_begin(0, on.capturing, DRIVER_CAPTURE_RELAXED);
}

static tarn_status call_capture_end(void)
{
    return driver->capture_end(0, on.capturing, &on.made_graph);
}

static tarn_status call_capture_status(void)
{
    struct driver_capture capture;
    return driver->capture_status(0, on.capturing, &capture);
}

static tarn_status call_capture_mode(void)
{
    enum driver_capture_mode mode = DRIVER_CAPTURE_GLOBAL;
    return driver->capture_mode(&mode);
}

static tarn_status call_capture_depend(void)
{
    return driver->capture_depend(0, on.capturing, NULL, 0);
}

static tarn_status call_node_before(void)
{
    struct driver_capture capture;
    size_t count;
    tarn_status status = driver->capture_status(0, on.capturing, &capture);
    return status ? status : driver->node_before(0, capture.nodes[0], NULL, 0, &count);
}

static tarn_status call_graph_launch(void)
{
    return driver->graph_launch(0, on.graph, on.stream);
}

static tarn_status call_exec_launch(void)
{
    return driver->exec_launch(0, on.graph, on.stream);
}

static void nothing_to_say(void *argument)
{
    (void)argument;
}

static tarn_status call_graph_hold(void)
{
    return driver->graph_hold(0, on.graph, nothing_to_say, NULL);
}

static tarn_status call_graph_destroy(void)
{
    return driver->graph_destroy(0, on.graph);
}

static tarn_status call_export(void)
{
    int file = -1;
    tarn_status status = driver->export(0, on.shared, &file);
    assert_int_equal(file >= 0, status == TARN_OK);
    close(file);
    return status;
}

static tarn_status call_import(void)
{
    int file = -1;
    driver_piece piece = 0;
    assert_ok(driver->export(0, on.shared, &file));
    tarn_status status = driver->import(0, file, GRANULE, &piece);
    assert_int_equal(piece != 0, status == TARN_OK);
    close(file);
    return status;
}

static tarn_status call_peer_possible(void)
{
    bool possible;
    return driver->peer_possible(0, 0, &possible);
}

static tarn_status call_peer_enable(void)
{
    return driver->peer_enable(0, 0);
}

static tarn_status (*const calls[DRIVER_CALLS])(void) = {
#define X(call, parameters) [DRIVER_CALL_##call] = call_##call,
    DRIVER_CALL_LIST(X)
#undef X
};

/* Asserts that nothing of what is created differs. */
static void assert_same(tarn_host_ledger a, tarn_host_ledger b)
{
    assert_int_equal(a.created, b.created);
    assert_int_equal(a.mapped, b.mapped);
    assert_int_equal(a.pieces, b.pieces);
    assert_int_equal(a.mappings, b.mappings);
    assert_int_equal(a.plain, b.plain);
    assert_int_equal(a.pinned, b.pinned);
    assert_int_equal(a.pinned_bytes, b.pinned_bytes);
    assert_int_equal(a.reserved_addresses, b.reserved_addresses);
    assert_int_equal(a.streams, b.streams);
    assert_int_equal(a.events, b.events);
}

static void assert_nothing_made(void)
{
    assert_int_equal(on.made, 0);
    assert_int_equal(on.made_piece, 0);
    assert_null(on.made_stream);
    assert_null(on.made_event);
    assert_null(on.made_graph);
}

static void each_kind_fails_once_without_effect(void **state)
{
    (void)state;
    for (int kind = 0; kind < DRIVER_CALLS; kind++) {
        prepare(kind);
        tarn_host_ledger before = ledger_of(0);
        assert_ok(tarn_host_fail_set(kind, 1, false, TARN_ERROR_DRIVER));
        assert_refused(calls[kind](), TARN_ERROR_DRIVER, "injected failure of call 1 of kind ");
        assert_non_null(strstr(tarn_last_error(), driver_call_name(kind)));
        assert_int_equal(host_fail_hits(), 1);
        tarn_host_ledger after = ledger_of(0);
        assert_same(before, after);
        assert_nothing_made();
        assert_int_equal(after.time_a_ns, before.time_a_ns);
        assert_int_equal(after.calls[kind], before.calls[kind] + 1);
        assert_ok(calls[kind]());
        assert_int_equal(host_fail_hits(), 1);
    }
}

static void any_status_can_be_asked_for(void **state)
{
    (void)state;
    prepare(-1);
#define X(name, value, text)                                               \
    if ((value) != 0) {                                                    \
        assert_ok(tarn_host_fail_set(DRIVER_CALL_create, 1, false, name)); \
        assert_status(call_create(), name);                                \
    }
    TARN_STATUS_LIST(X)
#undef X
}

static void the_nth_call_fails_once_or_always(void **state)
{
    (void)state;
    prepare(-1);
    assert_ok(tarn_host_fail_set(DRIVER_CALL_event_query, 3, false, TARN_ERROR_DEVICE_LOST));
    assert_ok(call_event_query());
    assert_ok(call_event_record()); /* another kind does not count */
    assert_ok(call_event_query());
    assert_refused(call_event_query(), TARN_ERROR_DEVICE_LOST, "call 3 of kind event_query");
    assert_ok(call_event_query());

    assert_ok(tarn_host_fail_set(-1, 2, true, TARN_ERROR_DRIVER));
    assert_ok(call_event_query());
    for (int i = 0; i < 3; i++)
        assert_refused(call_event_record(), TARN_ERROR_DRIVER, "of kind any");
    assert_status(call_memory_info(), TARN_ERROR_DRIVER);
    assert_int_equal(ledger_of(0).failed, 4);
    assert_ok(tarn_host_fail_set(-1, 0, false, TARN_OK));
    assert_ok(call_event_record());
    assert_int_equal(ledger_of(0).failed, 0);

    assert_status(tarn_host_fail_set(DRIVER_CALLS, 1, false, TARN_ERROR_DRIVER),
                  TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_host_fail_set(-2, 1, false, TARN_ERROR_DRIVER), TARN_ERROR_INVALID_ARGUMENT);
    assert_status(tarn_host_fail_set(0, 1, false, TARN_OK), TARN_ERROR_INVALID_ARGUMENT);
}

/* Every host allocation behind a call fails in turn: the call says so, has had no effect, and works
 * afterwards. */
static void a_shortage_of_host_memory_has_no_effect(void **state)
{
    (void)state;
    for (int kind = 0; kind < DRIVER_CALLS; kind++)
        for (uint64_t nth = 1;; nth++) {
            prepare(kind);
            tarn_host_ledger before = ledger_of(0);
            pages_fail(nth, false);
            tarn_status status = calls[kind]();
            uint64_t hits = pages_fail_hits();
            pages_fail(0, false);
            if (hits == 0) {
                assert_int_equal(status, TARN_OK);
                break;
            }
            if (status == TARN_OK) /* an allocation that the call can do without: another worker */
                continue;
            assert_int_equal(status, TARN_ERROR_OUT_OF_HOST_MEMORY);
            assert_same(before, ledger_of(0));
            assert_nothing_made();
            assert_ok(calls[kind]());
        }
}

static void the_first_worker_is_needed(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    pages_fail(1, true);
    tarn_status status = driver->call(0, stream, do_nothing, NULL);
    pages_fail(0, false);
    assert_int_equal(status, TARN_ERROR_OUT_OF_HOST_MEMORY);
    assert_ok(driver->stream_query(0, stream));
    assert_ok(driver->call(0, stream, do_nothing, NULL));
    assert_ok(driver->stream_synchronize(0, stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_kind_fails_once_without_effect), TEST(any_status_can_be_asked_for),
        TEST(the_nth_call_fails_once_or_always),   TEST(a_shortage_of_host_memory_has_no_effect),
        TEST(the_first_worker_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
