/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Calls that wait, beside captures that the wait would end: those that tarn was not told about, on
 * each kind of stream that shows them, and on HIP those of every device. The capture goes on, and
 * the call is refused, or does without the wait. */
#include "driver/driver.h"
#include "support/host.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tarn/debug.h>
#include <tarn/sleep.h>
#include <unistd.h>

#include <cmocka.h>

#define MS ((uint64_t)1000000)

static bool is_hip(void)
{
    return strcmp(driver->name, "hip") == 0;
}

/* ---- What there is ---- */

static tarn_stream ours, found; /* of device 0; the work of `found` has not ended, and nothing
                                   proves when it has */
static tarn_pool *pool;
static void *live, *pinned;

static tarn_stream find(int device)
{
    tarn_stream stream = 0;
    OK(tarn_stream_find(device, native_made(device), &stream));
    return stream;
}

static void make(void)
{
    static const tarn_pool_options options = {.size = sizeof options};
    host_start_with(2, 256 * MIB);
    OK(tarn_device_set(0));
    ours = lease(0);
    found = find(0);
    pool = pool_with(options);
    live = alloc_in(pool, ours, MIB);
    void *freed[] = {alloc_in(pool, found, 2 * MIB), alloc_on(found, 4 * MIB),
                     alloc_on(ours, 3 * MIB)};
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 1000, &pinned));
    for (int i = 0; i < 3; i++)
        work_on(i < 2 ? found : ours, freed[i], 4096, MS);
    OK(tarn_record_stream(pinned, found));
    OK(tarn_free(pinned));
    for (int i = 0; i < 3; i++)
        OK(tarn_free(freed[i]));
}

/* ---- The calls ---- */

static tarn_status synchronize(void)
{
    return tarn_device_synchronize(0);
}

static tarn_status trim_device(void)
{
    return tarn_device_trim(0, 0);
}

static tarn_status trim_pool(void)
{
    return tarn_pool_trim(pool, 0);
}

static tarn_status trim_pinned(void)
{
    return tarn_pinned_trim(0);
}

static tarn_status suspend(void)
{
    return tarn_pool_suspend(pool, true);
}

static tarn_status suspend_held(void)
{
    OK(tarn_pool_hold(pool, NULL));
    tarn_status status = tarn_pool_suspend(pool, false);
    OK(tarn_pool_unhold(pool));
    return status;
}

static tarn_status prepare(void)
{
    return tarn_sleep_prepare(NULL, NULL);
}

static tarn_status fall_asleep(void)
{
    return tarn_sleep(NULL, NULL);
}

static tarn_status compact(void)
{
    size_t gained = 0;
    return tarn_compact(0, SIZE_MAX, &gained);
}

static tarn_status check(void)
{
    return tarn_debug_check(0);
}

static size_t request = 220 * MIB; /* more than the device has beside what waits */

static tarn_status allocate(void)
{
    void *block = NULL;
    tarn_status status = tarn_alloc_on(ours, request, &block);
    return status == TARN_ERROR_OUT_OF_MEMORY ? TARN_ERROR_CAPTURE : status;
}

/* `waits`: for work of the whole device, so that it cannot do without. */
static const struct call {
    const char *name;
    tarn_status (*make)(void);
    bool waits, suspends;
} calls[] = {
    {"tarn_device_synchronize", synchronize, true, false},
    {"tarn_device_trim", trim_device, true, false},
    {"tarn_pool_trim", trim_pool, true, false},
    {"tarn_pinned_trim", trim_pinned, true, false},
    {"tarn_pool_suspend", suspend, true, true},
    {"tarn_pool_suspend of a held pool", suspend_held, true, true},
    {"tarn_sleep_prepare", prepare, true, false},
    {"tarn_sleep", fall_asleep, true, false},
    {"tarn_compact", compact, true, true},
    {"tarn_debug_check", check, false, false},
    {"tarn_alloc_on", allocate, true, false},
};

/* ---- The captures ---- */

static tarn_stream adopted(int device, bool blocking)
{
    tarn_stream stream = 0;
    void *native = NULL;
    OK(driver->stream_create(device, 0, blocking, &native));
    OK(tarn_stream_adopt(device, native, &stream));
    return stream;
}

static void *of_lease(int device)
{
    return native_of(lease(device));
}

static void *of_shared(int device)
{
    tarn_stream stream = 0;
    OK(tarn_stream_shared_get(device, 0, &stream));
    return native_of(stream);
}

static void *of_adopted(int device)
{
    return native_of(adopted(device, false));
}

static void *of_blocking(int device)
{
    void *native = NULL;
    OK(driver->stream_create(device, 0, true, &native));
    return native;
}

static void *announced(int device)
{
    tarn_stream stream = adopted(device, false);
    OK(tarn_capture_announce(stream));
    return native_of(stream);
}

static const struct capture {
    const char *name;
    void *(*stream)(int device); /* that captures from then on, begun by the driver */
    bool known;
} captures[] = {
    {"a leased stream", of_lease, false},
    {"a shared stream", of_shared, false},
    {"an adopted stream", of_adopted, false},
    {"a blocking stream that tarn has never seen", of_blocking, false},
    {"an announced one", announced, true},
};

static const struct call *call_now;
static const struct capture *capture_now;
static int device_now;

static bool is_active(void *native)
{
    struct driver_capture capture = {0};
    return driver->capture_status(device_now, native, &capture) == TARN_OK &&
           capture.state == DRIVER_CAPTURE_ACTIVE;
}

static void expect(tarn_status status, bool refused)
{
    bool unable = status == TARN_ERROR_NOT_SUPPORTED && call_now->suspends;
    tarn_status wanted =
        refused && (call_now->waits || capture_now->known) ? TARN_ERROR_CAPTURE : TARN_OK;
    if (unable || status == wanted)
        return;
    fprintf(stderr, "%s beside %s of device %d: %s, not %s\n", call_now->name, capture_now->name,
            device_now, tarn_status_name(status), tarn_status_name(wanted));
    CHECK(false);
}

static void one_beside_another(void)
{
    driver_graph graph = NULL;
    make();
    void *native = capture_now->stream(device_now);
    OK(driver->capture_begin(device_now, native, DRIVER_CAPTURE_RELAXED));
    bool everywhere = device_now == 0 || is_hip() || call_now->make == compact ||
                      call_now->make == prepare || call_now->make == fall_asleep ||
                      (call_now->make == trim_pinned && capture_now->known);
    expect(call_now->make(), everywhere);
    CHECK(is_active(native));
    OK(driver->capture_end(device_now, native, &graph));
    OK(driver->graph_destroy(device_now, graph));
}

static void no_call_ends_a_capture_that_shows(void **state)
{
    unsigned wrong = 0;
    (void)state;
    for (device_now = 0; device_now < 2; device_now++)
        for (size_t i = 0; i < sizeof captures / sizeof *captures; i++)
            for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
                capture_now = &captures[i];
                call_now = &calls[k];
                if (child_status(one_beside_another) == 0)
                    continue;
                fprintf(stderr, "not so: %s beside %s of device %d\n", call_now->name,
                        capture_now->name, device_now);
                wrong++;
            }
    CHECK(wrong == 0);
}

/* ---- Ended by others ---- */

/* What the program ends by the driver's call alone, as PyTorch does where that fails. The pool's
 * memory stays for a graph that may follow. */
enum end { BEGUN_BY_TARN, ANNOUNCED_WITHIN, ANNOUNCED_BEFORE, FAILED, END_COUNT };
static const char *const end_names[] = {"begun by tarn", "announced within", "announced before",
                                        "failed"};
static enum end end_now;
static void *captured; /* an address of the graph's memory */

/* A capture with a pool, whose block is freed in it. */
static tarn_stream end_past_tarn(tarn_pool *held, driver_graph *graph)
{
    tarn_stream stream = lease(0);
    void *native = native_of(stream);
    if (end_now == ANNOUNCED_BEFORE)
        OK(tarn_pool_capture_announce(held, stream));
    if (end_now != BEGUN_BY_TARN)
        OK(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));
    if (end_now == ANNOUNCED_WITHIN || end_now == FAILED)
        OK(tarn_pool_capture_announce(held, stream));
    if (end_now == BEGUN_BY_TARN)
        OK(tarn_pool_capture_begin(held, stream, TARN_CAPTURE_RELAXED));
    OK(tarn_alloc_on(stream, 8 * MIB, &captured));
    GIVES(tarn_device_synchronize(0), TARN_ERROR_CAPTURE);
    OK(tarn_free(captured));
    CHECK(is_active(native));
    if (end_now == FAILED)
        GIVES(driver->stream_synchronize(0, native), TARN_ERROR_CAPTURE);
    CHECK((driver->capture_end(0, native, graph) == TARN_OK) == (end_now != FAILED));
    return stream;
}

static void one_after_another(void)
{
    driver_graph graph = NULL;
    make();
    if (end_now == FAILED && is_hip())
        return; /* it ends only with its stream, and a wait would fail until then */
    device_now = 0;
    tarn_pool *held = pool_with((tarn_pool_options){.size = sizeof(tarn_pool_options)});
    tarn_stream stream = end_past_tarn(held, &graph);
    request = 192 * MIB; /* beside what the capture's pool holds */
    if (call_now->make == compact)
        time_pass(10 * MS); /* it only asks whether work has ended */
    expect(call_now->make(), false);
    if (call_now->make == fall_asleep)
        OK(tarn_wake());
    /* The stream is not given to others, and the memory to nobody, until tarn has been told. */
    GIVES(tarn_pool_capture_announce(held, stream), TARN_ERROR_CAPTURE);
    GIVES(tarn_stream_return(stream), TARN_ERROR_CAPTURE);
    if (end_now == BEGUN_BY_TARN || end_now == FAILED) {
        CHECK(tarn_capture_abort(stream) != TARN_ERROR_CAPTURE);
    } else {
        OK(tarn_capture_end_announced(stream, graph));
        GIVES(tarn_capture_end_announced(stream, graph), TARN_ERROR_INVALID_ARGUMENT);
    }
    OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    GIVES(tarn_device_synchronize(0), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(stream));
    OK(tarn_stream_return(stream));
    OK(tarn_device_synchronize(0));
    if (graph)
        OK(driver->graph_destroy(0, graph));
}

static void what_the_driver_has_ended_bars_nothing(void **state)
{
    unsigned wrong = 0;
    (void)state;
    capture_now = &captures[4];
    for (end_now = 0; end_now < END_COUNT; end_now++)
        for (size_t k = 0; k < sizeof calls / sizeof *calls; k++) {
            call_now = &calls[k];
            if (child_status(one_after_another) == 0)
                continue;
            fprintf(stderr, "not so: %s after a capture that was %s\n", call_now->name,
                    end_names[end_now]);
            wrong++;
        }
    CHECK(wrong == 0);
}

/* Between the vendor's end and the word of it, the memory is nobody's, whatever the calls between
 * give back. */
static void memory_of_an_ended_capture_stays(void)
{
    driver_graph graph = NULL;
    host_start_with(1, 256 * MIB);
    device_now = 0;
    end_now = ANNOUNCED_BEFORE;
    tarn_pool *held = pool_with((tarn_pool_options){.size = sizeof(tarn_pool_options)});
    tarn_stream stream = end_past_tarn(held, &graph);
    size_t gained = 0;
    OK(tarn_device_synchronize(0));
    OK(tarn_pool_trim(held, 0));
    OK(tarn_device_trim(0, 0));
    CHECK(tarn_compact(0, SIZE_MAX, &gained) != TARN_ERROR_CAPTURE);
    CHECK(stats_of(0).reserved_bytes[0].current >= (int64_t)(8 * MIB));
    OK(tarn_capture_end_announced(stream, graph));
    OK(tarn_pool_release(held));
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).reserved_bytes[0].current >= (int64_t)(8 * MIB));
    OK(driver->graph_destroy(0, graph));
    OK(tarn_device_trim(0, 0));
    CHECK(stats_of(0).reserved_bytes[0].current == 0);
}

/* One that was only announced may begin at any moment. */
static void an_announcement_bars_until_it_ends(void)
{
    host_start_with(1, 256 * MIB);
    tarn_stream stream = lease(0);
    OK(tarn_capture_announce(stream));
    for (int i = 0; i < 2; i++)
        GIVES(tarn_device_synchronize(0), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(stream));
    OK(tarn_device_synchronize(0));
}

/* ---- Without the wait ---- */

/* Memory of a stream that can be waited for by an event serves, though the thread's own heap would
 * need a wait for the device. */
static void a_request_waits_by_events_first(void)
{
    void *block = NULL;
    driver_graph graph = NULL;
    host_start_with(1, 256 * MIB);
    tarn_stream other = lease(0), captures_on = lease(0);
    found = find(0);
    void *first = alloc_on(found, 40 * MIB), *second = alloc_on(other, 160 * MIB);
    work_on(found, first, 4096, MS);
    work_on(other, second, 4096, MS);
    OK(tarn_free(first));
    OK(tarn_free(second));
    OK(driver->capture_begin(0, native_of(captures_on), DRIVER_CAPTURE_RELAXED));
    OK(tarn_alloc_on(found, 150 * MIB, &block));
    device_now = 0;
    CHECK(is_active(native_of(captures_on)));
    OK(driver->capture_end(0, native_of(captures_on), &graph));
}

/* ---- While it waits ---- */

static sem_t gate;

static void pass_gate(void *argument)
{
    (void)argument;
    sem_wait(&gate);
}

static void *synchronize_beside(void *status)
{
    *(tarn_status *)status = tarn_device_synchronize(0);
    return NULL;
}

/* Streams that tarn knows are waited for by events first, during which captures may begin, and are
 * seen. */
static void a_capture_that_begins_during_a_wait(bool known)
{
    driver_graph graph = NULL;
    tarn_status status = TARN_ERROR_DRIVER;
    pthread_t thread;
    host_start_with(1, 256 * MIB);
    tarn_stream busy = lease(0), stream = lease(0);
    void *native = native_of(stream);
    CHECK(sem_init(&gate, 0, 0) == 0);
    OK(driver->call(0, native_of(busy), pass_gate, NULL));
    uint64_t records = calls_of(0, "event_record");
    CHECK(pthread_create(&thread, NULL, synchronize_beside, &status) == 0);
    for (int i = 0; i < 5000 && calls_of(0, "event_record") == records; i++)
        usleep(1000);
    if (known)
        OK(tarn_capture_begin(stream, TARN_CAPTURE_RELAXED));
    else
        OK(driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED));
    CHECK(sem_post(&gate) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(status == TARN_ERROR_CAPTURE);
    device_now = 0;
    CHECK(is_active(native));
    if (known)
        OK(tarn_capture_abort(stream));
    else
        OK(driver->capture_end(0, native, &graph));
    OK(tarn_device_synchronize(0));
}

static void a_known_capture_begins_during_a_wait(void)
{
    a_capture_that_begins_during_a_wait(true);
}

static void an_unknown_capture_begins_during_a_wait(void)
{
    a_capture_that_begins_during_a_wait(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_ends_a_capture_that_shows),
        cmocka_unit_test(what_the_driver_has_ended_bars_nothing),
        CHILD_TEST(memory_of_an_ended_capture_stays),
        CHILD_TEST(an_announcement_bars_until_it_ends),
        CHILD_TEST(a_request_waits_by_events_first),
        CHILD_TEST(a_known_capture_begins_during_a_wait),
        CHILD_TEST(an_unknown_capture_begins_during_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
