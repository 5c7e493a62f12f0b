/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Captures of the host device: what is recorded runs at each launch and not before, in the order of
 * its edges; what CUDA forbids is refused and invalidates the capture, and nothing else does. */
#include "graph_test.h"

#include "base/pages.h"
#include "driver/host/host.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static driver_stream begun(int device, enum driver_capture_mode mode)
{
    driver_stream stream = new_stream(device, false);
    assert_ok(driver->capture_begin(device, stream, mode));
    return stream;
}

static driver_graph ended(int device, driver_stream stream)
{
    driver_graph graph = NULL;
    assert_ok(driver->capture_end(device, stream, &graph));
    assert_non_null(graph);
    return graph;
}

static int state_of(int device, driver_stream stream)
{
    struct driver_capture capture;
    assert_ok(driver->capture_status(device, stream, &capture));
    return (int)capture.state;
}

static uint64_t id_of(driver_stream stream)
{
    struct driver_capture capture;
    assert_ok(driver->capture_status(0, stream, &capture));
    assert_int_equal(capture.state, DRIVER_CAPTURE_ACTIVE);
    return capture.id;
}

/* Mapped and accessible memory of the device. */
static unsigned char *memory_of(int device, size_t size)
{
    uintptr_t range = new_range(device, size);
    map_at(device, range, size, new_piece(device, size));
    return (unsigned char *)range;
}

static void set(driver_stream stream, void *address, unsigned char value, size_t size)
{
    assert_ok(driver->set(0, (uintptr_t)address, value, size, stream));
}

static void copy(driver_stream stream, void *to, const void *from, size_t size)
{
    assert_ok(driver->copy(0, (uintptr_t)to, (uintptr_t)from, size, stream));
}

static atomic_int called;

static void count(void *argument)
{
    atomic_fetch_add(&called, *(int *)argument);
}

/* ---- Graphs ---- */

static void what_is_captured_runs_at_each_launch(void **state)
{
    (void)state;
    unsigned char *memory = memory_of(0, GRANULE);
    int one = 1;
    atomic_store(&called, 0);
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL), other = new_stream(0, false);
    set(stream, memory, 7, 64);
    copy(stream, memory + 64, memory, 64);
    assert_ok(driver->call(0, stream, count, &one));
    driver_graph graph = ended(0, stream);
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(memory[0], 0);
    assert_int_equal(atomic_load(&called), 0);

    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(memory[127], 7);
    memset(memory, 0, 128);
    assert_ok(driver->graph_launch(0, graph, other));
    assert_ok(driver->graph_launch(0, graph, NULL));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(memory[127], 7);
    assert_int_equal(atomic_load(&called), 3);
    assert_status(driver->graph_launch(0, graph, stream), TARN_ERROR_INVALID_ARGUMENT);
    assert_int_equal(ledger_of(0).graphs, 0);
}

static void timed_work_takes_its_time_at_each_launch(void **state)
{
    (void)state;
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL);
    assert_ok(tarn_host_work(0, stream, NULL, 0, 1000));
    assert_ok(tarn_host_advance(5000));
    driver_graph graph = ended(0, stream);
    for (int i = 1; i <= 3; i++) {
        uint64_t start = time_now();
        assert_ok(driver->graph_launch(0, graph, stream));
        assert_ok(tarn_host_advance(start + 999));
        assert_status(driver->stream_query(0, stream), TARN_ERROR_NOT_READY);
        assert_ok(tarn_host_advance(start + 1000));
        assert_ok(driver->stream_query(0, stream));
    }
}

/* a and b are branches: b is joined by an event of a, and a waits for b in the end. */
static driver_graph fork_and_join(driver_stream a, driver_stream b, void (*on_a)(driver_stream),
                                  void (*on_b)(driver_stream), void (*after)(driver_stream))
{
    assert_ok(driver->capture_begin(0, a, DRIVER_CAPTURE_GLOBAL));
    driver_event fork = recorded(0, a);
    assert_ok(driver->stream_wait_event(0, b, fork));
    assert_int_equal(id_of(b), id_of(a));
    on_a(a);
    on_b(b);
    driver_event join = recorded(0, b);
    assert_ok(driver->stream_wait_event(0, a, join));
    after(a);
    assert_ok(driver->event_destroy(0, fork));
    assert_ok(driver->event_destroy(0, join));
    return ended(0, a);
}

static void work_300(driver_stream stream)
{
    assert_ok(tarn_host_work(0, stream, NULL, 0, 300));
}

static void work_500(driver_stream stream)
{
    assert_ok(tarn_host_work(0, stream, NULL, 0, 500));
}

static void do_nothing(driver_stream stream)
{
    (void)stream;
}

static unsigned char *shared;

static void fill_first(driver_stream stream)
{
    set(stream, shared, 1, 64);
}

static void fill_second(driver_stream stream)
{
    work_500(stream);
    set(stream, shared + 64, 2, 64);
}

static void copy_both(driver_stream stream)
{
    copy(stream, shared + 128, shared, 128);
}

static void branches_run_side_by_side_and_join(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false), c = new_stream(0, false);
    driver_graph graph = fork_and_join(a, b, work_300, work_500, work_300);
    assert_int_equal(state_of(0, b), DRIVER_CAPTURE_NONE);
    assert_ok(driver->graph_launch(0, graph, c));
    assert_ok(tarn_host_advance(499));
    assert_status(driver->stream_query(0, c), TARN_ERROR_NOT_READY);
    assert_ok(tarn_host_advance(500));
    assert_ok(driver->stream_query(0, c));
    assert_int_equal(ledger_of(0).streams, 3);

    graph = fork_and_join(a, b, work_300, work_500, do_nothing);
    uint64_t start = time_now();
    assert_ok(driver->graph_launch(0, graph, c));
    assert_ok(tarn_host_advance(start + 499));
    /* The join alone holds the stream up */
    assert_status(driver->stream_query(0, c), TARN_ERROR_NOT_READY);
    assert_ok(tarn_host_advance(start + 500));
    assert_ok(driver->stream_query(0, c));

    shared = memory_of(0, GRANULE);
    graph = fork_and_join(a, b, fill_first, fill_second, copy_both);
    for (int i = 0; i < 3; i++) {
        memset(shared, 0, 256);
        assert_ok(driver->graph_launch(0, graph, c));
        assert_ok(driver->stream_synchronize(0, c));
        assert_int_equal(shared[128], 1);
        assert_int_equal(shared[128 + 64], 2);
    }
}

static void launches_follow_their_stream_and_each_other(void **state)
{
    (void)state;
    driver_stream a = begun(0, DRIVER_CAPTURE_GLOBAL), b = new_stream(0, false);
    unsigned char *memory = memory_of(0, GRANULE);
    copy(a, memory + 1, memory, 1);
    driver_graph graph = ended(0, a);
    assert_ok(tarn_host_work(0, a, NULL, 0, 1000));
    assert_ok(driver->graph_launch(0, graph, a));
    assert_ok(driver->graph_launch(0, graph, b));
    assert_status(driver->stream_query(0, b), TARN_ERROR_NOT_READY);
    memory[0] = 9;
    assert_ok(driver->stream_synchronize(0, b));
    assert_int_equal(time_now(), 1000);
    assert_int_equal(memory[1], 9);
}

/* A branch without edges starts behind what the launching stream has queued, as all of the graph
 * does. */
static void a_branch_from_the_start_follows_the_stream(void **state)
{
    (void)state;
    driver_stream a = new_stream(0, false), b = new_stream(0, false), c = new_stream(0, false);
    shared = memory_of(0, GRANULE);
    driver_graph graph = fork_and_join(a, b, do_nothing, fill_first, do_nothing);
    assert_ok(tarn_host_work(0, c, NULL, 0, 1000));
    assert_ok(driver->graph_launch(0, graph, c));
    const struct timespec moment = {.tv_nsec = 20000000};
    nanosleep(&moment, NULL);
    assert_int_equal(shared[0], 0);
    assert_ok(driver->stream_synchronize(0, c));
    assert_int_equal(shared[0], 1);
}

/* As on hardware (CUDA 13.0): CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the capture is lost. */
static void the_launch_of_a_graph_ends_a_capture(void **state)
{
    (void)state;
    unsigned char *memory = memory_of(0, GRANULE);
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL);
    set(stream, memory, 1, 1);
    driver_graph inner = ended(0, stream), outer = NULL;
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_refused(driver->graph_launch(0, inner, stream), TARN_ERROR_CAPTURE, "900");
    assert_refused(driver->capture_end(0, stream, &outer), TARN_ERROR_CAPTURE, "invalid");
    assert_ok(driver->graph_launch(0, inner, stream));
    assert_ok(driver->stream_synchronize(0, stream));
    assert_int_equal(memory[0], 1);
}

static void memory_that_is_gone_fails_the_launch(void **state)
{
    (void)state;
    unsigned char *memory = memory_of(0, GRANULE);
    uintptr_t alone = 0;
    assert_ok(driver->alloc(0, GRANULE, &alone));
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL);
    copy(stream, memory, (void *)(alone + 5), 1);
    driver_graph graph = ended(0, stream);
    assert_ok(driver->graph_launch(0, graph, stream));
    assert_ok(driver->free(0, alone));
    assert_refused(driver->graph_launch(0, graph, stream), TARN_ERROR_INVALID_ARGUMENT, "memory");
    assert_ok(driver->unmap(0, (uintptr_t)memory, GRANULE));
    assert_refused(driver->graph_launch(0, graph, stream), TARN_ERROR_INVALID_ARGUMENT,
                   "nothing is mapped");
    assert_ok(driver->stream_query(0, stream));
}

static void the_checker_sees_what_a_launch_uses(void **state)
{
    (void)state;
    unsigned char *memory = memory_of(0, GRANULE);
    driver_stream a = new_stream(0, false), b = new_stream(0, false);
    assert_ok(tarn_host_check_set(true, NULL, NULL));
    driver->owner_set(0, (uintptr_t)memory, 64, a);
    assert_ok(driver->capture_begin(0, a, DRIVER_CAPTURE_GLOBAL));
    assert_ok(tarn_host_work(0, a, memory, 64, 100));
    driver_graph graph = ended(0, a);
    driver->owner_set(0, (uintptr_t)memory, 64, b);
    assert_ok(driver->graph_launch(0, graph, a));
    assert_int_equal(ledger_of(0).reports, 0);
    assert_ok(tarn_host_work(0, b, memory, 64, 100));
    assert_int_equal(ledger_of(0).reports, 1);
}

/* ---- Status and edges ---- */

static void status_gives_id_and_last_nodes(void **state)
{
    (void)state;
    struct driver_capture capture;
    driver_stream a = begun(0, DRIVER_CAPTURE_GLOBAL), b = begun(0, DRIVER_CAPTURE_RELAXED);
    assert_int_not_equal(id_of(a), id_of(b));
    assert_int_equal(state_of(0, new_stream(0, true)), DRIVER_CAPTURE_NONE);
    assert_ok(driver->capture_status(0, a, &capture));
    assert_int_equal(capture.node_count, 0);
    work_300(a);
    assert_ok(driver->capture_status(0, a, &capture));
    assert_int_equal(capture.node_count, 1);
    driver_node first = capture.nodes[0];
    work_300(a);
    assert_ok(driver->capture_status(0, a, &capture));
    assert_int_equal(capture.node_count, 1);
    assert_ptr_not_equal(capture.nodes[0], first);
    const driver_node both[] = {first, capture.nodes[0]};
    assert_ok(driver->capture_depend(0, a, both, 2));
    assert_ok(driver->capture_status(0, a, &capture));
    assert_int_equal(capture.node_count, 2);
    assert_refused(driver->capture_depend(0, b, both, 1), TARN_ERROR_INVALID_ARGUMENT,
                   "is not a node");
    assert_ok(driver->capture_depend(0, a, NULL, 0));
    assert_ok(driver->capture_status(0, a, &capture));
    assert_int_equal(capture.node_count, 0);
    assert_ok(driver->graph_destroy(0, ended(0, a)));
    assert_ok(driver->graph_destroy(0, ended(0, b)));
    assert_refused(driver->capture_depend(0, a, NULL, 0), TARN_ERROR_CAPTURE, "(401)");
}

static void an_edge_that_is_set_counts_as_a_join(void **state)
{
    (void)state;
    struct driver_capture capture;
    driver_stream a = begun(0, DRIVER_CAPTURE_GLOBAL), b = new_stream(0, false);
    assert_ok(driver->stream_wait_event(0, b, recorded(0, a)));
    work_300(b);
    assert_ok(driver->capture_status(0, b, &capture));
    driver_node node = capture.nodes[0];
    assert_ok(driver->capture_depend(0, a, &node, 1));
    assert_ok(driver->graph_destroy(0, ended(0, a)));
}

/* ---- What invalidates ---- */

/* The call fails with the code and leaves the capture of the stream invalid: it can only be ended,
 * and gives nothing. */
static void check_invalidates(tarn_status status, const char *code, int device,
                              driver_stream origin, const char *call, int line)
{
    driver_graph graph = NULL;
    check_refused(status, TARN_ERROR_CAPTURE, code, call, __FILE__, line);
    _assert_int_equal((unsigned long)state_of(device, origin), DRIVER_CAPTURE_INVALIDATED, __FILE__,
                      line);
    check_refused(tarn_host_work(device, origin, NULL, 0, 1), TARN_ERROR_CAPTURE, "(901)", call,
                  __FILE__, line);
    check_refused(driver->capture_end(device, origin, &graph), TARN_ERROR_CAPTURE, "(901)", call,
                  __FILE__, line);
    _assert_true(graph == NULL, "no graph", __FILE__, line);
    _assert_int_equal((unsigned long)state_of(device, origin), DRIVER_CAPTURE_NONE, __FILE__, line);
    check_status(tarn_host_work(device, origin, NULL, 0, 0), TARN_OK, call, __FILE__, line);
    _assert_int_equal(ledger_of(0).graphs, 0, __FILE__, line);
}

#define INVALIDATES(call, code, device, origin) \
    check_invalidates((call), (code), (device), (origin), #call, __LINE__)

static void a_query_of_captured_work_invalidates_the_capture(void **state)
{
    (void)state;
    driver_stream stream;
    driver_event event;
    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    INVALIDATES(driver->stream_query(0, stream), "(900)", 0, stream);
    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    INVALIDATES(driver->stream_synchronize(0, stream), "(900)", 0, stream);
    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    event = recorded(0, stream);
    INVALIDATES(driver->event_query(0, event), "(907)", 0, stream);
    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    event = recorded(0, stream);
    INVALIDATES(driver->event_synchronize(0, event), "(907)", 0, stream);
    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    INVALIDATES(driver->device_synchronize(0), "(900)", 0, stream);
    stream = begun(1, DRIVER_CAPTURE_RELAXED);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(state_of(1, stream), DRIVER_CAPTURE_ACTIVE);
}

static void an_event_stays_captured_until_it_is_recorded_again(void **state)
{
    (void)state;
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL), other = new_stream(0, false);
    driver_event event = recorded(0, stream);
    assert_ok(driver->graph_destroy(0, ended(0, stream)));
    assert_refused(driver->event_query(0, event), TARN_ERROR_CAPTURE, "(1)");
    assert_refused(driver->stream_wait_event(0, other, event), TARN_ERROR_CAPTURE, "(1)");
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    INVALIDATES(driver->stream_wait_event(0, stream, event), "(1)", 0, stream);
    assert_ok(driver->event_record(0, event, other));
    assert_ok(driver->event_query(0, event));
    assert_ok(driver->stream_wait_event(0, stream, event));
}

static void waits_across_the_border_invalidate(void **state)
{
    (void)state;
    driver_stream outside = new_stream(0, false);
    driver_event event = recorded(0, outside);
    driver_stream stream = begun(0, DRIVER_CAPTURE_RELAXED);
    assert_ok(driver->stream_wait_event(0, stream, new_event(0))); /* never recorded */
    INVALIDATES(driver->stream_wait_event(0, stream, event), "(905)", 0, stream);

    driver_stream a = begun(0, DRIVER_CAPTURE_RELAXED), b = begun(0, DRIVER_CAPTURE_RELAXED);
    assert_refused(driver->stream_wait_event(0, a, recorded(0, b)), TARN_ERROR_CAPTURE, "(902)");
    assert_int_equal(state_of(0, a), DRIVER_CAPTURE_INVALIDATED);
    assert_int_equal(state_of(0, b), DRIVER_CAPTURE_INVALIDATED);
    driver_graph graph;
    assert_status(driver->capture_end(0, a, &graph), TARN_ERROR_CAPTURE);
    assert_status(driver->capture_end(0, b, &graph), TARN_ERROR_CAPTURE);

    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    event = recorded(0, stream);
    INVALIDATES(driver->stream_wait_event(0, NULL, event), "(906)", 0, stream);
}

static void the_legacy_stream_bars_blocking_captures_only(void **state)
{
    (void)state;
    driver_event event = new_event(0);
    tarn_status status;
    for (int i = 0; i < 5; i++) {
        driver_stream blocking = new_stream(0, true);
        assert_ok(driver->capture_begin(0, blocking, DRIVER_CAPTURE_RELAXED));
        assert_int_equal(state_of(0, NULL), DRIVER_CAPTURE_INVALIDATED);
        assert_int_equal(state_of(1, NULL), DRIVER_CAPTURE_NONE);
        assert_ok(tarn_host_work(1, NULL, NULL, 0, 0));
        assert_int_equal(state_of(0, blocking), DRIVER_CAPTURE_ACTIVE);
        status = i == 0   ? tarn_host_work(0, NULL, NULL, 0, 0)
                 : i == 1 ? driver->event_record(0, event, NULL)
                 : i == 2 ? driver->stream_query(0, NULL)
                 : i == 3 ? driver->stream_synchronize(0, NULL)
                          : driver->stream_wait_event(0, NULL, event);
        INVALIDATES(status, "(906)", 0, blocking);
    }
    driver_stream stream = begun(0, DRIVER_CAPTURE_RELAXED);
    assert_int_equal(state_of(0, NULL), DRIVER_CAPTURE_NONE);
    assert_ok(tarn_host_work(0, NULL, NULL, 0, 0));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_ok(driver->graph_destroy(0, ended(0, stream)));
    assert_refused(driver->capture_begin(0, NULL, DRIVER_CAPTURE_RELAXED), TARN_ERROR_CAPTURE,
                   "legacy");
}

/* As on an H100 with driver 580.159.04, and by hipStreamDestroy() of ROCm's clr. */
static void a_capture_ends_with_the_stream_on_which_it_began(void **state)
{
    (void)state;
    unsigned char *memory = memory_of(0, GRANULE);
    for (int mode = DRIVER_CAPTURE_GLOBAL; mode <= DRIVER_CAPTURE_RELAXED; mode++) {
        driver_stream a = new_stream(0, true), b = new_stream(0, false);
        set(a, memory, (unsigned char)(7 + mode), 64);
        assert_ok(driver->capture_begin(0, a, (enum driver_capture_mode)mode));
        assert_ok(driver->stream_wait_event(0, b, recorded(0, a)));
        set(b, memory, 1, 64);
        assert_ok(driver->stream_destroy(0, a));
        assert_int_equal(state_of(0, b), DRIVER_CAPTURE_NONE);
        assert_int_equal(state_of(0, NULL), DRIVER_CAPTURE_NONE);
        assert_ok(driver->device_synchronize(0));
        assert_int_equal(memory[0], 7 + mode); /* queued before, and not captured */
    }
}

static void a_capture_ends_where_it_began_with_all_joined(void **state)
{
    (void)state;
    driver_graph graph = NULL;
    driver_stream a = begun(0, DRIVER_CAPTURE_RELAXED), b = new_stream(0, false);
    assert_refused(driver->capture_begin(0, a, DRIVER_CAPTURE_RELAXED), TARN_ERROR_CAPTURE,
                   "(401)");
    assert_int_equal(state_of(0, a), DRIVER_CAPTURE_ACTIVE);
    assert_ok(driver->stream_wait_event(0, b, recorded(0, a)));
    INVALIDATES(driver->capture_end(0, b, &graph), "(903)", 0, a);
    assert_int_equal(state_of(0, b), DRIVER_CAPTURE_NONE);

    assert_ok(driver->capture_begin(0, a, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->stream_wait_event(0, b, recorded(0, a)));
    assert_ok(driver->graph_destroy(0, ended(0, a))); /* nothing was recorded on b */

    assert_ok(driver->capture_begin(0, a, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->stream_wait_event(0, b, recorded(0, a)));
    work_300(b);
    assert_refused(driver->capture_end(0, a, &graph), TARN_ERROR_CAPTURE, "(904)");
    assert_null(graph);
    assert_int_equal(state_of(0, a), DRIVER_CAPTURE_NONE);
    assert_int_equal(state_of(0, b), DRIVER_CAPTURE_NONE);
    assert_int_equal(ledger_of(0).graphs, 0);
    assert_refused(driver->capture_end(0, a, &graph), TARN_ERROR_CAPTURE, "(401)");
}

/* ---- Modes ---- */

static uintptr_t plain, at;
static driver_piece piece, brought;
static int piece_file;
static driver_stream quiet;
static driver_event happened;

static tarn_status unsafe_alloc(void)
{
    return host_alloc(0, GRANULE, &plain);
}
static tarn_status unsafe_free(void)
{
    return host_free(0, plain);
}
static tarn_status unsafe_reserve(void)
{
    return host_reserve(0, GRANULE, 0, &at);
}
static tarn_status unsafe_create(void)
{
    return host_create(0, GRANULE, DRIVER_PIECE_EXPORTABLE, &piece);
}
static tarn_status unsafe_export(void)
{
    return host_export(0, piece, &piece_file);
}
static tarn_status unsafe_import(void)
{
    tarn_status status = host_import(0, piece_file, GRANULE, &brought);
    if (!status)
        close(piece_file);
    return status;
}
static tarn_status unsafe_release_import(void)
{
    return host_release(0, brought);
}
static tarn_status unsafe_map(void)
{
    return host_map(0, at, GRANULE, piece);
}
static tarn_status unsafe_set_access(void)
{
    return host_set_access(0, at, GRANULE, (int[]){0}, 1);
}
static tarn_status unsafe_unmap(void)
{
    return host_unmap(0, at, GRANULE);
}
static tarn_status unsafe_release(void)
{
    return host_release(0, piece);
}
static tarn_status unsafe_unreserve(void)
{
    return host_unreserve(0, at, GRANULE);
}
static tarn_status unsafe_stream_query(void)
{
    return host_stream_query(0, quiet);
}
static tarn_status unsafe_stream_synchronize(void)
{
    return host_stream_synchronize(0, quiet);
}
static tarn_status unsafe_event_query(void)
{
    return host_event_query(0, happened);
}
static tarn_status unsafe_event_synchronize(void)
{
    return host_event_synchronize(0, happened);
}
static tarn_status unsafe_device_synchronize(void)
{
    return host_device_synchronize(0);
}
static tarn_status unsafe_peer_enable(void)
{
    return host_peer_enable(0, 1);
}

/* In an order in which all succeed, the quiet stream and its event given. */
static tarn_status (*const unsafe[])(void) = {
    unsafe_alloc,
    unsafe_free,
    unsafe_reserve,
    unsafe_create,
    unsafe_export,
    unsafe_import,
    unsafe_release_import,
    unsafe_map,
    unsafe_set_access,
    unsafe_unmap,
    unsafe_release,
    unsafe_unreserve,
    unsafe_stream_query,
    unsafe_event_query,
    unsafe_stream_synchronize,
    unsafe_event_synchronize,
    unsafe_device_synchronize,
    unsafe_peer_enable,
};
#define UNSAFE_CALLS (sizeof unsafe / sizeof *unsafe)

/* Makes every unsafe call; those that were not barred take effect. Gives how many were. */
static int unsafe_barred(void)
{
    int barred = 0;
    for (size_t i = 0; i < UNSAFE_CALLS; i++)
        barred += unsafe[i]() == TARN_ERROR_CAPTURE;
    return barred;
}

struct visit {
    enum driver_capture_mode mode;
    int barred;
};

/* The calls by a thread in a mode. */
static void *visit_run(void *argument)
{
    struct visit *visit = argument;
    enum driver_capture_mode mode = visit->mode;
    driver->capture_mode(&mode);
    visit->barred = unsafe_barred();
    return NULL;
}

static int barred_elsewhere(enum driver_capture_mode mode)
{
    struct visit visit = {.mode = mode};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, visit_run, &visit), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return visit.barred;
}

static int barred_here(enum driver_capture_mode mode)
{
    assert_ok(driver->capture_mode(&mode));
    int barred = unsafe_barred();
    assert_ok(driver->capture_mode(&mode));
    return barred;
}

/* A capture on the second device, that device_synchronize of the first does not conflict with. */
static driver_stream begun_far(enum driver_capture_mode mode)
{
    quiet = new_stream(0, false);
    happened = recorded(0, quiet);
    return begun(1, mode);
}

static void who_is_barred_follows_the_modes(void **state)
{
    (void)state;
    /* [of the capture][of the thread][0: the capturing thread, 1: another] */
    static const bool bars[3][3][2] = {
        [DRIVER_CAPTURE_GLOBAL] =
            {[DRIVER_CAPTURE_GLOBAL] = {true, true}, [DRIVER_CAPTURE_THREAD_LOCAL] = {true, false}},
        [DRIVER_CAPTURE_THREAD_LOCAL] = {[DRIVER_CAPTURE_GLOBAL] = {true, false},
                                         [DRIVER_CAPTURE_THREAD_LOCAL] = {true, false}},
    };
    for (int mode = 0; mode < 3; mode++)
        for (int thread = 0; thread < 3; thread++)
            for (int other = 0; other < 2; other++) {
                start_with(2, 64 * MIB, 0);
                driver_stream stream = begun_far((enum driver_capture_mode)mode);
                int barred = other ? barred_elsewhere((enum driver_capture_mode)thread)
                                   : barred_here((enum driver_capture_mode)thread);
                /* The first refusal invalidates the capture, which bars nobody any more. */
                assert_int_equal(barred, bars[mode][thread][other]);
                assert_int_equal(state_of(1, stream),
                                 barred ? DRIVER_CAPTURE_INVALIDATED : DRIVER_CAPTURE_ACTIVE);
            }
}

static void each_unsafe_call_is_barred_and_has_no_effect(void **state)
{
    (void)state;
    for (size_t i = 0; i < UNSAFE_CALLS; i++) {
        start_with(2, 64 * MIB, 0);
        quiet = new_stream(0, false);
        happened = recorded(0, quiet);
        for (size_t before = 0; before < i; before++)
            assert_ok(unsafe[before]());
        driver_stream stream = begun(1, DRIVER_CAPTURE_GLOBAL);
        tarn_host_ledger ledger = ledger_of(0);
        INVALIDATES(unsafe[i](), "(900)", 1, stream);
        assert_int_equal(ledger_of(0).created, ledger.created);
        assert_int_equal(ledger_of(0).mappings, ledger.mappings);
        assert_int_equal(ledger_of(0).reserved_addresses, ledger.reserved_addresses);
        assert_ok(unsafe[i]());
    }
}

static void the_table_is_barred_by_nothing(void **state)
{
    (void)state;
    driver_stream stream = begun_far(DRIVER_CAPTURE_GLOBAL);
    assert_ok(driver->alloc(0, GRANULE, &plain));
    assert_ok(driver->free(0, plain));
    uintptr_t range = new_range(0, GRANULE);
    piece = new_piece(0, GRANULE);
    map_at(0, range, GRANULE, piece);
    assert_ok(driver->unmap(0, range, GRANULE));
    assert_ok(driver->release(0, piece));
    assert_ok(driver->unreserve(0, range, GRANULE));
    assert_ok(driver->stream_query(0, quiet));
    assert_ok(driver->stream_synchronize(0, quiet));
    assert_ok(driver->event_query(0, happened));
    assert_ok(driver->event_synchronize(0, happened));
    assert_ok(driver->device_synchronize(0));
    assert_ok(driver->peer_enable(0, 1));
    enum driver_capture_mode mode = DRIVER_CAPTURE_GLOBAL;
    assert_ok(driver->capture_mode(&mode));
    assert_int_equal(mode, DRIVER_CAPTURE_GLOBAL); /* and the thread's mode is what it was */
    assert_ok(driver->graph_destroy(1, ended(1, stream)));
}

static void *end_run(void *stream)
{
    driver_graph graph = NULL;
    tarn_status status = driver->capture_end(0, stream, &graph);
    if (graph)
        driver->graph_destroy(0, graph);
    return (void *)(uintptr_t)status;
}

static tarn_status ended_elsewhere(driver_stream stream)
{
    pthread_t thread;
    void *status;
    assert_int_equal(pthread_create(&thread, NULL, end_run, stream), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    return (tarn_status)(uintptr_t)status;
}

static void another_thread_ends_relaxed_captures_only(void **state)
{
    (void)state;
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL);
    assert_status(ended_elsewhere(stream), TARN_ERROR_CAPTURE);
    assert_ok(driver->graph_destroy(0, ended(0, stream)));
    stream = begun(0, DRIVER_CAPTURE_RELAXED);
    assert_ok(ended_elsewhere(stream));
}

static void modes_are_exchanged(void **state)
{
    (void)state;
    enum driver_capture_mode mode = DRIVER_CAPTURE_RELAXED;
    assert_ok(driver->capture_mode(&mode));
    assert_int_equal(mode, DRIVER_CAPTURE_GLOBAL);
    mode = DRIVER_CAPTURE_GLOBAL;
    assert_ok(driver->capture_mode(&mode));
    assert_int_equal(mode, DRIVER_CAPTURE_RELAXED);
    mode = (enum driver_capture_mode)3;
    assert_status(driver->capture_mode(&mode), TARN_ERROR_INVALID_ARGUMENT);
}

/* A device that ends with captures and graphs on it leaves none to the next. */
static void a_device_takes_its_captures_with_it(void **state)
{
    (void)state;
    driver_stream stream = begun(0, DRIVER_CAPTURE_GLOBAL);
    work_300(stream);
    begun(0, DRIVER_CAPTURE_GLOBAL);
    driver_stream third = begun(1, DRIVER_CAPTURE_GLOBAL);
    ended(1, third);
    start_with(1, 64 * MIB, 0);
    assert_int_equal(ledger_of(0).graphs, 0);
    assert_ok(host_alloc(0, GRANULE, &plain));
    assert_ok(driver->device_synchronize(0));
}

/* ---- The end of a graph ---- */

static void timed_work_puts_the_end_off(void **state)
{
    (void)state;
    int one = 1;
    hold_starts();
    driver_stream a = new_stream(0, false), b = new_stream(0, false), c = new_stream(0, false);
    driver_graph graph = fork_and_join(a, b, work_300, work_500, do_nothing);
    assert_ok(driver->graph_hold(0, graph, hold_ended, &one));
    uint64_t start = time_now();
    assert_ok(driver->graph_launch(0, graph, c));
    assert_ok(tarn_host_work(0, c, NULL, 0, 9000)); /* not the graph's */
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->stream_destroy(0, c));
    assert_ok(tarn_host_advance(start + 499));
    assert_int_equal(atomic_load(&hold_ends), 0);
    assert_ok(tarn_host_advance(start + 500));
    assert_int_equal(atomic_load(&hold_ends), 1);
    assert_ok(driver->device_synchronize(0));
    assert_int_equal(atomic_load(&hold_ends), 1);
}

/* A graph that nobody destroyed, one whose work has not ended, and an open capture. */
static void the_end_of_the_device_ends_all_graphs(void **state)
{
    (void)state;
    int one = 1;
    hold_starts();
    driver_stream a = begun(0, DRIVER_CAPTURE_RELAXED), b = new_stream(0, false);
    work_300(a);
    driver_graph kept = ended(0, a), left = hold_graph(a, false);
    assert_ok(driver->graph_hold(0, kept, hold_ended, &one));
    assert_ok(driver->graph_hold(0, left, hold_ended, &one));
    assert_ok(driver->graph_launch(0, kept, a));
    assert_ok(driver->graph_launch(0, left, a));
    assert_ok(driver->capture_begin(0, b, DRIVER_CAPTURE_RELAXED));
    assert_ok(driver->graph_destroy(0, left));
    assert_int_equal(atomic_load(&hold_ends), 0);
    driver_finish();
    assert_int_equal(atomic_load(&hold_ends), 2);
}

/* Each own allocation of a hold fails once. */
static void a_failed_hold_holds_nothing(void **state)
{
    (void)state;
    int one = 1;
    hold_starts();
    driver_stream stream = new_stream(0, false);
    driver_graph graph = hold_graph(stream, false);
    tarn_status status = TARN_ERROR_OUT_OF_HOST_MEMORY;
    unsigned failures = 0;
    for (unsigned nth = 1; status; nth++, failures++) {
        pages_fail(nth, false);
        status = driver->graph_hold(0, graph, hold_ended, &one);
        pages_fail(0, false);
        assert_true(!status || status == TARN_ERROR_OUT_OF_HOST_MEMORY);
    }
    assert_ok(driver->graph_destroy(0, graph));
    assert_int_equal(atomic_load(&hold_ends), 1);
    assert_true(failures > 0);
}

static void *destroy_graph(void *graph)
{
    return driver->graph_destroy(0, graph) ? graph : NULL;
}

/* One thread destroys a graph while the work of its launch ends. */
static void an_end_in_another_thread_is_reported_once(void **state)
{
    (void)state;
    int one = 1;
    hold_starts();
    atomic_store(&hold_gate, 1);
    driver_stream stream = new_stream(0, false);
    for (int i = 1; i <= 300; i++) {
        pthread_t thread;
        void *wrong = NULL;
        driver_graph graph = hold_graph(stream, true);
        assert_ok(driver->graph_hold(0, graph, hold_ended, &one));
        assert_ok(driver->graph_launch(0, graph, stream));
        assert_int_equal(pthread_create(&thread, NULL, destroy_graph, graph), 0);
        assert_ok(driver->stream_synchronize(0, stream));
        pthread_join(thread, &wrong);
        assert_null(wrong);
        assert_int_equal(atomic_load(&hold_ends), i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_captured_runs_at_each_launch),
        TEST(timed_work_takes_its_time_at_each_launch),
        TEST(branches_run_side_by_side_and_join),
        TEST(launches_follow_their_stream_and_each_other),
        TEST(a_branch_from_the_start_follows_the_stream),
        TEST(the_launch_of_a_graph_ends_a_capture),
        TEST(memory_that_is_gone_fails_the_launch),
        TEST(the_checker_sees_what_a_launch_uses),
        TEST(status_gives_id_and_last_nodes),
        TEST(an_edge_that_is_set_counts_as_a_join),
        TEST(a_query_of_captured_work_invalidates_the_capture),
        TEST(an_event_stays_captured_until_it_is_recorded_again),
        TEST(waits_across_the_border_invalidate),
        TEST(the_legacy_stream_bars_blocking_captures_only),
        TEST(a_capture_ends_with_the_stream_on_which_it_began),
        TEST(a_capture_ends_where_it_began_with_all_joined),
        TEST(who_is_barred_follows_the_modes),
        TEST(each_unsafe_call_is_barred_and_has_no_effect),
        TEST(the_table_is_barred_by_nothing),
        TEST(another_thread_ends_relaxed_captures_only),
        TEST(modes_are_exchanged),
        TEST(a_device_takes_its_captures_with_it),
        TEST(a_node_names_those_before_it),
        TEST(the_end_of_a_graph_is_told_once),
        TEST(the_end_of_a_graph_waits_for_its_work),
        TEST(timed_work_puts_the_end_off),
        TEST(the_end_of_the_device_ends_all_graphs),
        TEST(a_failed_hold_holds_nothing),
        TEST(an_end_in_another_thread_is_reported_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
