/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The headers as a test: every public call in each state that a program can be in, on each driver.
 * A call must return a status that the comment above it names (tests/mixed/model/promise.h). A
 * function without a comment is red. A capture that tarn knows, or that shows, must go on whatever
 * is called. Each state is one process, which makes all calls one after the other
 * (tests/support/every_call.c). If a call ends the state, it is entered again before the next
 * call. */
#include "driver/driver.h"
#include "mixed/model/promise.h"
#include "mixed/states/callbacks.h"
#include "support/every_call.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tarn/debug.h>
#include <tarn/metrics.h>
#include <unistd.h>

#include <cmocka.h>

static const struct state {
    const char *name;
    tarn_status refuses; /* the status that all calls may return in this state, by tarn.h */
    void (*enter)(void);
    void (*again)(void); /* enters the state again before each call; NULL: it lasts */
    bool captures;       /* `shown`, or `known` if that is NULL, captures and must go on */
} * now;

static tarn_stream known, other; /* of device 0 */
static void *shown;              /* a stream of device `shown_on` */
static int shown_on;
static tarn_scope scope;
static unsigned complaints, made;
static bool captured;

/* ---- What is held to the headers ---- */

static bool is_active(void)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    struct driver_capture capture = {.state = DRIVER_CAPTURE_NONE};
    if (shown)
        return driver->capture_status(shown_on, shown, &capture) == TARN_OK &&
               capture.state == DRIVER_CAPTURE_ACTIVE;
    return tarn_capture_state_get(known, &state, NULL, NULL) == TARN_OK &&
           state == TARN_CAPTURE_ACTIVE;
}

static void before(void)
{
    if (now->again)
        now->again();
    captured = now->captures && is_active();
}

/* True for calls whose purpose is to end captures, and for the host device's own work on the legacy
 * stream, which ends them as a vendor's work would. */
static bool ends_captures(const char *name)
{
    static const char *const names[] = {"tarn_capture_end",   "tarn_capture_end_announced",
                                        "tarn_capture_abort", "tarn_stream_return",
                                        "tarn_stream_retire", "tarn_capture_begin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return (world.stream == TARN_STREAM_LEGACY || shown) && strncmp(name, "tarn_host_", 10) == 0;
}

/* True if the function's comment says that it writes results although it fails. */
static bool writes_on_failure(const char *name)
{
    static const char *const names[] = {"tarn_compact", "tarn_handle_trim"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* A failure must have a text of its own, which says nothing of earlier failures. "Not ready" is an
 * answer, not a failure. */
static void look_at_text(const char *name, tarn_status status)
{
    const char *text = tarn_last_error();
    made++;
    if (!status || status == TARN_ERROR_NOT_READY || (*text && !strstr(text, EARLIER_ERROR)))
        return;
    fprintf(stderr, "%s: %s() gave %s with the text: %s\n", now->name, name,
            tarn_status_name(status), text);
    complaints++;
}

static void after(const char *name, tarn_status status)
{
    uint64_t promised = 0;
    char text[512];
    look_at_text(name, status);
    snprintf(text, sizeof text, "%s", tarn_last_error());
    if (!promised_statuses(name, &promised) && status) {
        fprintf(stderr, "%s: %s() has no comment in a header\n", now->name, name);
        complaints++;
    } else if (status && status != now->refuses && !(promised & BIT(status))) {
        fprintf(stderr, "%s: %s() gave %s, which its header does not name: %s\n", now->name, name,
                tarn_status_name(status), text);
        complaints++;
    }
    if (every_call_wrote && !writes_on_failure(name)) {
        fprintf(stderr, "%s: %s() gave %s, and wrote a result\n", now->name, name,
                tarn_status_name(status));
        complaints++;
    }
    if (captured && !is_active() && !ends_captures(name)) {
        fprintf(stderr, "%s: %s() ended a capture\n", now->name, name);
        complaints++;
    }
}

/* ---- States ---- */

static void nothing(void) {}

static void capture_again_in(tarn_stream stream, tarn_capture_mode mode)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    known = stream;
    if (tarn_capture_state_get(stream, &state, NULL, NULL) || state != TARN_CAPTURE_NONE)
        (void)0;
    else
        (void)tarn_capture_begin(stream, mode); /* refused while it is announced */
}

static void capture_relaxed(void)
{
    capture_again_in(world.stream, TARN_CAPTURE_RELAXED);
}

static void capture_of_thread(void)
{
    capture_again_in(world.stream, TARN_CAPTURE_THREAD_LOCAL);
}

static void capture_global(void)
{
    capture_again_in(world.stream, TARN_CAPTURE_GLOBAL);
}

static void capture_elsewhere(void)
{
    capture_again_in(other, TARN_CAPTURE_RELAXED);
}

static void capture_elsewhere_global(void)
{
    capture_again_in(other, TARN_CAPTURE_GLOBAL);
}

static void capture_in(tarn_pool *pool)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    known = world.stream;
    if (!tarn_capture_state_get(known, &state, NULL, NULL) && state == TARN_CAPTURE_NONE)
        (void)tarn_pool_capture_begin(pool, known, TARN_CAPTURE_RELAXED);
}

static void capture_with_pool(void)
{
    capture_in(NULL);
}

static void capture_with_callers_pool(void)
{
    capture_in(world.pool);
}

static void capture_with_suspended_pool(void)
{
    capture_in(world.suspended);
}

/* Begins a capture that only this thread could end, and goes on living. */
static void *capture_and_stay(void *begun)
{
    (void)tarn_capture_begin(other, TARN_CAPTURE_THREAD_LOCAL);
    sem_post(begun);
    for (;;)
        pause();
    return NULL;
}

static void capture_of_another_thread(void)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    pthread_t thread;
    sem_t begun;
    known = other;
    if (tarn_capture_state_get(other, &state, NULL, NULL) || state != TARN_CAPTURE_NONE)
        return;
    sem_init(&begun, 0, 0);
    CHECK(pthread_create(&thread, NULL, capture_and_stay, &begun) == 0);
    sem_wait(&begun);
}

static void announced(void)
{
    (void)tarn_capture_announce(world.stream); /* refused if it is announced already */
}

static void announced_with_pool(void)
{
    (void)tarn_pool_capture_announce(world.pool, world.stream);
}

/* Begins a capture by the driver's own call, in place of one that a call has ended. */
static void begin_by_driver_on(int device, void *native)
{
    struct driver_capture capture = {0};
    driver_graph none = NULL;
    if (!driver->capture_status(device, native, &capture) &&
        capture.state == DRIVER_CAPTURE_INVALIDATED)
        (void)driver->capture_end(device, native, &none);
    if (!driver->capture_status(device, native, &capture) && capture.state == DRIVER_CAPTURE_NONE)
        (void)driver->capture_begin(device, native, DRIVER_CAPTURE_RELAXED);
}

static void begin_by_driver(void)
{
    begin_by_driver_on(0, native_of(world.stream));
}

/* Leaves memory of a stream that tarn has only found. No event shows when its work ends, so some
 * calls would wait for the device. */
static void leave_work_of_found(void)
{
    static void *native;
    tarn_stream stream = 0;
    void *blocks[3] = {0};
    native = native ? native : native_made(0);
    if (tarn_stream_find(0, native, &stream))
        return;
    (void)tarn_alloc_on(stream, 3 * MIB, &blocks[0]);
    (void)tarn_pool_alloc(world.pool, stream, 3 * MIB, &blocks[1]);
    for (int i = 0; i < 2; i++)
        if (blocks[i])
            (void)driver->set(0, (uintptr_t)blocks[i], 1, 64, native);
    if (tarn_pinned_alloc(TARN_STREAM_CURRENT, 1000, &blocks[2]) == TARN_OK) {
        (void)tarn_record_stream(blocks[2], stream);
        (void)tarn_free(blocks[2]);
    }
    for (int i = 0; i < 2; i++)
        (void)tarn_free(blocks[i]);
}

static void show_capture(int device, void *native)
{
    shown_on = device;
    shown = native;
    leave_work_of_found();
    begin_by_driver_on(device, native);
}

static void shows_on_the_stream(void)
{
    show_capture(0, native_of(world.stream));
}

static void shows_on_another_stream(void)
{
    show_capture(0, native_of(other));
}

static void shows_on_a_blocking_stream(void)
{
    if (!shown)
        OK(driver->stream_create(0, 0, true, &shown));
    show_capture(0, shown);
}

static void shows_on_another_device(void)
{
    static tarn_stream stream;
    stream = stream ? stream : lease(1);
    show_capture(1, native_of(stream));
}

/* A capture on another device that tarn knows. */
static void announced_on_another_device(void)
{
    static tarn_stream stream;
    stream = stream ? stream : lease(1);
    (void)tarn_capture_announce(stream); /* refused if it is announced already */
    show_capture(1, native_of(stream));
}

static void announced_and_begun(void)
{
    announced();
    begin_by_driver();
}

static void announced_with_pool_and_begun(void)
{
    announced_with_pool();
    begin_by_driver();
}

/* A capture with work that did not join, so that its end fails. */
static void capture_invalidated(void)
{
    capture_again_in(world.stream, TARN_CAPTURE_RELAXED);
    (void)driver->stream_query(0, native_of(world.stream));
}

static void in_scope(tarn_scope_kind kind)
{
    /* refused if it is open already */
    (void)tarn_scope_begin(world.pool, kind, world.stream, &scope);
}

static void scope_of_thread(void)
{
    in_scope(TARN_SCOPE_THREAD);
}

static void scope_of_stream(void)
{
    in_scope(TARN_SCOPE_STREAM);
}

static void scope_of_all(void)
{
    in_scope(TARN_SCOPE_ALWAYS);
}

static void scope_of_suspended(void)
{
    (void)tarn_scope_begin(world.suspended, TARN_SCOPE_ALWAYS, 0, &scope);
}

static void pool_suspended(void)
{
    (void)tarn_pool_suspend(world.pool, true);
}

static void pool_discarded(void)
{
    (void)tarn_pool_suspend(world.pool, false);
}

static void stream_retired(void)
{
    tarn_stream stream = 0;
    OK(tarn_stream_adopt(0, native_made(0), &stream));
    OK(tarn_stream_retire(stream));
    world.stream = stream;
}

static void stream_returned(void)
{
    tarn_stream stream = lease(0);
    OK(tarn_stream_return(stream));
    world.stream = stream;
}

static void stream_of_another_device(void)
{
    world.stream = lease(1);
}

static void current_device_is_another(void)
{
    OK(tarn_device_set(1));
}

static void stream_legacy(void)
{
    world.stream = TARN_STREAM_LEGACY;
}

static void stream_per_thread(void)
{
    world.stream = TARN_STREAM_PER_THREAD;
}

static void stream_is_2(void)
{
    world.stream = 2;
}

static void stream_is_none(void)
{
    world.stream = 0x1234567800000003u;
}

static void adopt(uintptr_t native)
{
    tarn_stream stream = 0;
    if (tarn_stream_adopt(0, (void *)native, &stream) == TARN_OK)
        world.stream = stream;
}

/* Makes this thread's own default stream the one of the calls. Another thread may allocate and free
 * for it, and nothing else. */
static void *take_own(void *argument)
{
    (void)argument;
    OK(tarn_stream_set(TARN_STREAM_PER_THREAD));
    OK(tarn_stream_get(0, &world.stream));
    return NULL;
}

static void stream_of_a_thread_that_ended(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_own, NULL) == 0);
    pthread_join(thread, NULL);
}

static void native_is_0(void)
{
    adopt(0);
}

static void native_is_1(void)
{
    if (driver->legacy)
        adopt(1);
}

static void native_is_2(void)
{
    if (driver->per_thread)
        adopt(2);
}

static void legacy_beside_a_capture(void)
{
    void *native = NULL;
    OK(driver->stream_create(0, 0, true, &native));
    OK(tarn_stream_adopt(0, native, &known));
    OK(tarn_capture_begin(known, TARN_CAPTURE_RELAXED));
    world.stream = TARN_STREAM_LEGACY;
}

static void device_full(void)
{
    void *block = NULL;
    for (size_t size = 128 * MIB; size >= 4096; size /= 2)
        while (tarn_alloc_on(world.stream, size, &block) == TARN_OK)
            ;
}

static void shut_down(void)
{
    (void)tarn_shutdown();
}

/* A sticky error, which costs the context. */
static void device_lost(void)
{
    void *block = NULL;
    if (machine->fail)
        (machine->fail)(1, true, strcmp(getenv("TARN_DRIVER"), "hip") == 0 ? 719 : 700);
    else
        OK(tarn_host_fail_set(-1, 1, true, TARN_ERROR_DEVICE_LOST));
    (void)tarn_alloc_on(world.stream, 60 * MIB, &block);
}

static void driver_fails(void)
{
    if (machine->fail)
        (machine->fail)(1, true, 304);
    else
        OK(tarn_host_fail_set(-1, 1, true, TARN_ERROR_DRIVER));
}

/* The state after main(), when destructors of the driver's library have run: every driver call
 * returns "deinitialized". */
static void driver_has_ended(void)
{
    if (machine->fail)
        (machine->fail)(1, true, 4);
    else
        OK(tarn_host_fail_set(-1, 1, true, TARN_ERROR_SHUTDOWN));
}

static void caching_off(void)
{
    (void)tarn_caching_set(false, NULL);
}

static void sleep_prepared(void)
{
    (void)tarn_sleep_prepare(NULL, NULL); /* refused if it is prepared already */
}

static void asleep(void)
{
    (void)tarn_sleep(NULL, NULL);
}

static void nothing_captures(void)
{
    (void)tarn_capture_abort(world.stream);
}

static const struct state states[] = {
    {"nothing in particular", TARN_OK, nothing, nothing_captures, false},
    {"a relaxed capture", TARN_OK, nothing, capture_relaxed, true},
    {"a capture of the thread's", TARN_OK, nothing, capture_of_thread, true},
    {"a global capture", TARN_OK, nothing, capture_global, true},
    {"a capture of another stream", TARN_OK, nothing, capture_elsewhere, true},
    {"a global capture of another stream", TARN_OK, nothing, capture_elsewhere_global, true},
    {"a capture with a pool", TARN_OK, nothing, capture_with_pool, true},
    {"a capture with a pool of the caller's", TARN_OK, nothing, capture_with_callers_pool, true},
    {"a capture with a suspended pool", TARN_OK, nothing, capture_with_suspended_pool, true},
    {"a capture of another thread's", TARN_OK, nothing, capture_of_another_thread, true},
    {"an announced capture", TARN_OK, nothing, announced, false},
    {"an announced capture with a pool", TARN_OK, nothing, announced_with_pool, false},
    {"an announced capture with a pool that has begun", TARN_OK, nothing,
     announced_with_pool_and_begun, false},
    {"an announced capture that has begun", TARN_OK, nothing, announced_and_begun, false},
    {"a capture that tarn does not know", TARN_OK, nothing, shows_on_the_stream, true},
    {"a capture of another stream that tarn does not know", TARN_OK, nothing,
     shows_on_another_stream, true},
    {"a capture of a blocking stream that tarn has never seen", TARN_OK, nothing,
     shows_on_a_blocking_stream, true},
    {"a capture of another device that tarn does not know", TARN_OK, nothing,
     shows_on_another_device, true},
    {"an announced capture of another device", TARN_OK, nothing, announced_on_another_device, true},
    {"an invalidated capture", TARN_OK, nothing, capture_invalidated, false},
    {"a scope of the thread", TARN_OK, nothing, scope_of_thread, false},
    {"a scope of the stream", TARN_OK, nothing, scope_of_stream, false},
    {"a scope of all", TARN_OK, nothing, scope_of_all, false},
    {"a scope of a suspended pool", TARN_OK, nothing, scope_of_suspended, false},
    {"a suspended pool", TARN_OK, nothing, pool_suspended, false},
    {"a pool suspended without its contents", TARN_OK, nothing, pool_discarded, false},
    {"a retired stream", TARN_OK, stream_retired, NULL, false},
    {"a returned stream", TARN_OK, stream_returned, NULL, false},
    {"a stream of another device", TARN_OK, stream_of_another_device, NULL, false},
    {"another current device", TARN_OK, nothing, current_device_is_another, false},
    {"TARN_STREAM_LEGACY", TARN_OK, stream_legacy, nothing_captures, false},
    {"TARN_STREAM_PER_THREAD", TARN_OK, stream_per_thread, nothing_captures, false},
    {"the stream value 2", TARN_OK, stream_is_2, NULL, false},
    {"a stream value that was never given", TARN_OK, stream_is_none, NULL, false},
    {"the stream of a thread that has ended", TARN_OK, stream_of_a_thread_that_ended,
     nothing_captures, false},
    {"the vendor's stream 0", TARN_OK, native_is_0, nothing_captures, false},
    {"the vendor's stream 1", TARN_OK, native_is_1, nothing_captures, false},
    {"the vendor's stream 2", TARN_OK, native_is_2, nothing_captures, false},
    {"the legacy stream beside a capture", TARN_OK, legacy_beside_a_capture, NULL, true},
    {"a full device", TARN_OK, device_full, NULL, false},
    {"a driver that fails", TARN_OK, driver_fails, NULL, false},
    {"after the driver's end", TARN_ERROR_SHUTDOWN, driver_has_ended, NULL, false},
    {"without caching", TARN_OK, caching_off, caching_off, false},
    {"a sleep that is prepared", TARN_OK, nothing, sleep_prepared, false},
    {"asleep", TARN_OK, nothing, asleep, false},
    {"a lost device", TARN_OK, device_lost, NULL, false},
    {"after a shutdown", TARN_ERROR_SHUTDOWN, shut_down, NULL, false},
};

static void all_calls_in_it(void)
{
    world_make();
    other = lease(0);
    now->enter();
    every_call_between(before, after);
    CHECK(made > 150);
    CHECK(complaints == 0);
}

/* The program destroyed a stream without retiring it, which is not allowed: the driver refuses the
 * stream, and the error's text says so. */
static void all_calls_on_a_destroyed_stream(void)
{
    world_make();
    void *native = native_made(0);
    OK(tarn_stream_adopt(0, native, &world.stream));
    OK(driver->stream_destroy(0, native));
    every_call_between(nothing, look_at_text);
    CHECK(complaints == 0);
}

/* In the child of a process that has used everything, nothing may be used, and every call says
 * so. */
static void all_calls_in_a_child(void)
{
    int status = 0;
    world_make();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        every_call_between(nothing, after);
        _exit(complaints ? 1 : 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
          WEXITSTATUS(status) == 0);
}

/* ---- Callbacks ---- */

static size_t callback_now;

/* Ends the process soon if a call hangs. */
static void watch(void)
{
    alarm(10);
}

static void every_call_here(void)
{
    every_call_between(watch, after);
}

static void all_calls_in_a_callback(void)
{
    if (callback_is_debug(callback_now))
        CHECK(setenv("TARN_DEBUG", "redzone,quiet", 1) == 0);
    world_make();
    callback_cause(callback_now, every_call_here);
    CHECK(made > 150);
    CHECK(complaints == 0);
}

/* What earlier calls leave behind would have many of the later calls refused. So each call,
 * tarn_shutdown() too, is made once more in a process of its own. The call must return, and so must
 * the call in whose callback it is made. */
static size_t call_now;

static void one_call_here(void)
{
    const char *name = every_call_name(call_now);
    tarn_status status = every_call_make(call_now);
    after(name, status);
    if (strcmp(name, "tarn_shutdown") == 0)
        GIVES(status, TARN_ERROR_BUSY);
}

static void one_call_in_a_callback(void)
{
    watch();
    if (callback_is_debug(callback_now))
        CHECK(setenv("TARN_DEBUG", "redzone,quiet", 1) == 0);
    world_make();
    callback_cause(callback_now, one_call_here);
    CHECK(made == 1);
    CHECK(complaints == 0);
}

/* ---- The whole ---- */

static void each_state(void **state)
{
    unsigned failed = 0;
    const char *only = getenv("TARN_STATE");
    (void)state;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        now = &states[i];
        if (only && strcmp(only, now->name) != 0)
            continue;
        if (child_status(all_calls_in_it) != 0) {
            fprintf(stderr, "not so: every call in the state: %s\n", now->name);
            failed++;
        }
    }
    CHECK(failed == 0);
}

static void a_child_of_fork(void **state)
{
    static const struct state child = {"a child of fork()", TARN_ERROR_FORKED, nothing, NULL,
                                       false};
    (void)state;
    now = &child;
    in_child(all_calls_in_a_child);
}

static void a_destroyed_stream(void **state)
{
    static const struct state destroyed = {"a destroyed stream", TARN_OK, nothing, NULL, false};
    (void)state;
    now = &destroyed;
    in_child(all_calls_on_a_destroyed_stream);
}

static void each_callback(void **state)
{
    static struct state callback = {"a callback", TARN_OK, nothing, NULL, false};
    const char *only = getenv("TARN_STATE");
    unsigned failed = 0;
    (void)state;
    now = &callback;
    for (size_t i = 0; callback_name(i); i++) {
        callback_now = i;
        callback.name = callback_name(i);
        if (only && strcmp(only, callback.name) != 0)
            continue;
        if (child_status(all_calls_in_a_callback) != 0) {
            fprintf(stderr, "not so: every call in the callback: %s, last %s\n", callback.name,
                    every_call_now);
            failed++;
        }
    }
    CHECK(failed == 0);
}

/* A sanitizer takes long to start. With one, each callback gets an eighth of the calls, and those
 * after which no other call is possible. */
static bool is_left_out(void)
{
    const char *sanitizer = getenv("TARN_SANITIZE");
    return sanitizer && *sanitizer && call_now % 8 != callback_now % 8 &&
           call_now + 3 < every_call_count();
}

static void each_callback_and_call(void **state)
{
    static struct state callback = {"a callback", TARN_OK, nothing, NULL, false};
    const char *only = getenv("TARN_STATE"), *name = NULL;
    unsigned failed = 0;
    (void)state;
    if (strcmp(getenv("TARN_DRIVER"), "host") != 0)
        return; /* this depends on the library, not on the driver */
    now = &callback;
    for (callback_now = 0; (name = callback_name(callback_now)); callback_now++) {
        callback.name = name;
        for (call_now = 0; call_now < every_call_count(); call_now++) {
            if (only ? strcmp(only, name) != 0 : is_left_out())
                continue;
            int status = child_status(one_call_in_a_callback);
            if (status == 0)
                continue;
            fprintf(stderr, "not so: %s in the callback: %s: %s\n", every_call_name(call_now), name,
                    WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "it hangs"
                                                                       : "it ends the process");
            failed++;
        }
    }
    CHECK(failed == 0);
}

static void every_function_has_a_row(void **state)
{
    (void)state;
    every_call_is_listed();
    callbacks_are_listed();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_has_a_row),
        cmocka_unit_test(each_state),
        cmocka_unit_test(a_child_of_fork),
        cmocka_unit_test(a_destroyed_stream),
        cmocka_unit_test(each_callback),
        cmocka_unit_test(each_callback_and_call),
    };
    CHECK(setenv("TARN_HOST_DEVICES", "2", 1) == 0 && setenv("TARN_HOST_MEMORY", "256M", 1) == 0);
    /* looking for another driver would take longer than everything that the process does */
    CHECK(setenv("TARN_DRIVER", "host", 0) == 0);
    promises_read();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
