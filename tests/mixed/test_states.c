/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The headers as a test: every public call in each state that a program can be in, on each driver. A call gives a status that the comment
 * above it names (tests/mixed/model/promise.h), a function without a comment is red, and a capture that tarn knows goes on whatever is
 * called. Each state is one process, in which all calls are made one after the other (tests/support/every_call.c); what a call ends is
 * entered again before the next one. */
#include "driver/driver.h"
#include "mixed/model/promise.h"
#include "support/every_call.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
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
    tarn_status refuses; /* what all calls may give in it, as tarn.h says */
    void (*enter)(void);
    void (*again)(void); /* before each call; NULL: it stays entered */
    bool captures;       /* `known` does, and must go on */
} * now;

static tarn_stream known, other; /* of device 0 */
static tarn_scope scope;
static unsigned complaints, made;
static bool captured;

/* ---- What is held to the headers --------------------------------------------------------------------------------- */

static bool is_active(void)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    return tarn_capture_state_get(known, &state, NULL) == TARN_OK && state == TARN_CAPTURE_ACTIVE;
}

static void before(void)
{
    if (now->again)
        now->again();
    captured = now->captures && is_active();
}

/* What is there to end captures; and work of the host device's own on the legacy stream does, as a vendor's would. */
static bool ends_captures(const char *name)
{
    static const char *const names[] = {"tarn_capture_end",   "tarn_capture_end_announced", "tarn_capture_abort",
                                        "tarn_stream_return", "tarn_stream_retire",         "tarn_capture_begin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return world.stream == TARN_STREAM_LEGACY && strncmp(name, "tarn_host_", 10) == 0;
}

static void after(const char *name, tarn_status status)
{
    uint64_t promised = 0;
    char text[512];
    snprintf(text, sizeof text, "%s", tarn_last_error());
    made++;
    if (!promised_statuses(name, &promised) && status) {
        fprintf(stderr, "%s: %s() has no comment in a header\n", now->name, name);
        complaints++;
    } else if (status && status != now->refuses && !(promised & BIT(status))) {
        fprintf(stderr, "%s: %s() gave %s, which its header does not name: %s\n", now->name, name,
                tarn_status_name(status), text);
        complaints++;
    }
    if (captured && !is_active() && !ends_captures(name)) {
        fprintf(stderr, "%s: %s() ended a capture\n", now->name, name);
        complaints++;
    }
}

/* ---- States ------------------------------------------------------------------------------------------------------ */

static void nothing(void) {}

static void capture_again_in(tarn_stream stream, tarn_capture_mode mode)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    known = stream;
    if (tarn_capture_state_get(stream, &state, NULL) || state != TARN_CAPTURE_NONE)
        (void)0;
    else
        (void)tarn_capture_begin(stream, mode); /* refused while it is announced, with every other call */
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
    if (!tarn_capture_state_get(known, &state, NULL) && state == TARN_CAPTURE_NONE)
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

/* Begins a capture that it alone could end, and stays. */
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
    if (tarn_capture_state_get(other, &state, NULL) || state != TARN_CAPTURE_NONE)
        return;
    sem_init(&begun, 0, 0);
    CHECK(pthread_create(&thread, NULL, capture_and_stay, &begun) == 0);
    sem_wait(&begun);
}

static void announced(void)
{
    (void)tarn_capture_announce(world.stream); /* refused where it is */
}

static void announced_with_pool(void)
{
    (void)tarn_pool_capture_announce(world.pool, world.stream);
}

/* By the driver's own call. */
static void begin_by_driver(void)
{
    struct driver_capture capture = {0};
    driver_stream native = native_of(world.stream);
    if (!driver->capture_status(0, native, &capture) && capture.state == DRIVER_CAPTURE_NONE)
        (void)driver->capture_begin(0, native, DRIVER_CAPTURE_RELAXED);
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

/* With work that did not join: its end fails. */
static void capture_invalidated(void)
{
    capture_again_in(world.stream, TARN_CAPTURE_RELAXED);
    (void)driver->stream_query(0, native_of(world.stream));
}

static void in_scope(tarn_scope_kind kind)
{
    (void)tarn_scope_begin(world.pool, kind, world.stream, &scope); /* refused where it is open */
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

/* Another thread's, which it may allocate and free for, and no more. */
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

/* The sticky error that costs the context. */
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

/* As after main(), where destructors of the driver's library have run: every call answers that it was deinitialized. */
static void driver_has_ended(void)
{
    if (machine->fail)
        (machine->fail)(1, true, 4);
    else
        OK(tarn_host_fail_set(-1, 1, true, TARN_ERROR_SHUTDOWN));
}

static void caching_off(void)
{
    (void)tarn_caching_set(false);
}

static void sleep_prepared(void)
{
    (void)tarn_sleep_prepare(NULL, NULL); /* refused where it is */
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
    {"an announced capture with a pool that has begun", TARN_OK, nothing, announced_with_pool_and_begun, false},
    {"an announced capture that has begun", TARN_OK, nothing, announced_and_begun, false},
    {"a capture that tarn does not know", TARN_OK, nothing, begin_by_driver, false},
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
    {"the stream of a thread that has ended", TARN_OK, stream_of_a_thread_that_ended, nothing_captures, false},
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

/* What is the same in the child of a process that has used everything: nothing is used there. */
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
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Callbacks --------------------------------------------------------------------------------------------------- */

static bool armed; /* the next callback makes the calls; those that they cause do not */

static void all_calls_here(void)
{
    if (!armed)
        return;
    armed = false;
    every_call_between(nothing, after);
}

static void hear_range(const tarn_range *range, void *user)
{
    (void)range;
    (void)user;
    all_calls_here();
}

static void hear_shortage(const tarn_shortage *shortage, void *user)
{
    (void)shortage;
    (void)user;
    all_calls_here();
}

static bool hear_request(int device, size_t bytes, void *user)
{
    (void)device;
    (void)bytes;
    (void)user;
    all_calls_here();
    return false;
}

static void observe(tarn_observer_options options)
{
    tarn_observer observer = 0;
    options.size = sizeof options;
    OK(tarn_observer_add(&options, &observer));
}

static void in_mapped(void)
{
    void *block = NULL;
    observe((tarn_observer_options){.mapped = hear_range});
    (void)tarn_alloc_on(world.stream, 60 * MIB, &block);
}

static void in_unmapping(void)
{
    void *block = alloc_on(world.stream, 60 * MIB);
    OK(tarn_free(block));
    observe((tarn_observer_options){.unmapping = hear_range});
    (void)tarn_device_trim(0, 0);
}

static void in_out_of_memory(void)
{
    void *block = NULL;
    observe((tarn_observer_options){.out_of_memory = hear_shortage});
    (void)tarn_alloc_on(world.stream, 900 * MIB, &block);
}

static void in_reclaim(void)
{
    void *block = NULL;
    observe((tarn_observer_options){.reclaim = hear_request});
    (void)tarn_alloc_on(world.stream, 60 * MIB, &block);
}

/* Which of an allocator's functions makes the calls. */
static enum { SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_GONE } in_allocator;

static void *segment_alloc(size_t size, int device, void *stream, void *user)
{
    uintptr_t address = 0;
    (void)stream;
    (void)user;
    if (in_allocator == SEGMENT_ALLOC)
        all_calls_here();
    return driver->alloc(device, size, &address) ? NULL : (void *)address;
}

static void segment_free(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)stream;
    (void)user;
    if (in_allocator == SEGMENT_FREE)
        all_calls_here();
    (void)driver->free(device, (uintptr_t)pointer);
}

static void segments_gone(void *user)
{
    (void)user;
    if (in_allocator == SEGMENT_GONE)
        all_calls_here();
}

static void use_an_allocator(void)
{
    const tarn_pool_allocator allocator = {
        .size = sizeof allocator, .alloc = segment_alloc, .free = segment_free, .gone = segments_gone};
    void *block = NULL;
    tarn_pool *pool = pool_with((tarn_pool_options){.device = 0, .allocator = &allocator});
    (void)tarn_pool_alloc(pool, world.stream, 3 * MIB, &block);
    (void)tarn_free(block);
    (void)tarn_pool_trim(pool, 0);
    (void)tarn_pool_release(pool);
}

static void in_segment_alloc(void)
{
    in_allocator = SEGMENT_ALLOC;
    use_an_allocator();
}

static void in_segment_free(void)
{
    in_allocator = SEGMENT_FREE;
    use_an_allocator();
}

static void in_segments_gone(void)
{
    in_allocator = SEGMENT_GONE;
    use_an_allocator();
}

static void hear_change(const tarn_pool_block *block, bool live, void *user)
{
    (void)block;
    (void)live;
    (void)user;
    all_calls_here();
}

static void in_restore(void)
{
    void *block = alloc_in(world.pool, world.stream, 1000);
    (void)block;
    OK(tarn_pool_restore(world.pool, world.checkpoint, hear_change, NULL));
}

static void hear_report(const tarn_debug_report *report, void *user)
{
    (void)report;
    (void)user;
    all_calls_here();
}

static void in_debug_report(void)
{
    void *block = alloc_on(world.stream, 1000);
    tarn_debug_callback_set(hear_report, NULL);
    (void)tarn_free(block);
    (void)tarn_free(block);
}

static void hear_segment(const tarn_memory_segment *segment, void *user)
{
    (void)segment;
    (void)user;
    all_calls_here();
}

static void in_memory_list(void)
{
    OK(tarn_memory_list(hear_segment, NULL));
}

static void hear_kind(const tarn_metadata_kind *kind, void *user)
{
    (void)kind;
    (void)user;
    all_calls_here();
}

static void in_metadata_list(void)
{
    OK(tarn_metadata_list(hear_kind, NULL));
}

static bool hear_text(const void *text, size_t length, void *user)
{
    (void)text;
    (void)length;
    (void)user;
    all_calls_here();
    return true;
}

static void in_snapshot(void)
{
    OK(tarn_snapshot_print(hear_text, NULL, NULL));
}

static void in_metrics(void)
{
    OK(tarn_metrics_print(hear_text, NULL));
}

/* Which of a library's functions makes the calls. The others must not: tarn holds the lock of the handle. */
static enum { CREATE, DESTROY, STATUS_TEXT } in_library;

static void library_calls(int which)
{
    if ((int)in_library == which)
        all_calls_here();
}

static int thing_create(void **handle)
{
    library_calls(CREATE);
    *handle = calloc(1, 1);
    return in_library == STATUS_TEXT ? 7 : 0;
}

static int thing_destroy(void *handle)
{
    library_calls(DESTROY);
    free(handle);
    return 0;
}

static void *thing_stream;

static int thing_set_stream(void *handle, void *stream)
{
    (void)handle;
    thing_stream = stream;
    return 0;
}

static int thing_get_stream(void *handle, void **stream)
{
    (void)handle;
    *stream = thing_stream;
    return 0;
}

static int thing_set_workspace(void *handle, void *pointer, size_t size)
{
    (void)handle;
    (void)pointer;
    (void)size;
    return 0;
}

static int thing_set_pointer_mode(void *handle, int mode)
{
    (void)handle;
    (void)mode;
    return 0;
}

static const char *thing_status_text(int status)
{
    (void)status;
    library_calls(STATUS_TEXT);
    return "seven";
}

static tarn_library thing_library;

static void *use_thing(void *argument)
{
    void *handle = NULL;
    (void)argument;
    (void)tarn_handle_get_on(thing_library, world.stream, &handle);
    (void)tarn_handle_get_on(thing_library, world.stream, &handle);
    return NULL;
}

/* Two threads, one after the other, so that a handle goes from one to the other. */
static void use_a_library(void)
{
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "calls back",
                                  .create = thing_create,
                                  .destroy = thing_destroy,
                                  .set_stream = thing_set_stream,
                                  .get_stream = thing_get_stream,
                                  .set_workspace = thing_set_workspace,
                                  .set_pointer_mode = thing_set_pointer_mode,
                                  .status_text = thing_status_text};
    OK(tarn_library_register(&row, &thing_library));
    OK(tarn_workspace_end(&world.workspace));
    OK(tarn_workspace_policy_set(TARN_WORKSPACE_CACHED));
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use_thing, NULL) == 0);
        pthread_join(thread, NULL);
    }
    (void)tarn_handle_trim(thing_library, 0, NULL);
}

static int thing_create_numbered(void **handle, int number)
{
    CHECK(number == 7);
    return thing_create(handle);
}

static void use_a_numbered_library(void)
{
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "calls back by number",
                                  .flags = TARN_LIBRARY_CREATE_TAKES_NUMBER,
                                  .create_number = 7,
                                  .create_with_number = thing_create_numbered,
                                  .destroy = thing_destroy};
    OK(tarn_library_register(&row, &thing_library));
    use_thing(NULL);
}

/* All that the headers have, except what they say must not call tarn: a row's set_stream, get_stream, set_workspace and set_pointer_mode,
 * and what tarn_host_call() and tarn_host_check_set() take. */
static const struct callback {
    const char *name;
    void (*cause)(void);
    int which; /* of a library's functions; -1: of none */
} callbacks[] = {
    {"an observer's mapped", in_mapped, -1},
    {"an observer's unmapping", in_unmapping, -1},
    {"an observer's out_of_memory", in_out_of_memory, -1},
    {"an observer's reclaim", in_reclaim, -1},
    {"a pool allocator's alloc", in_segment_alloc, -1},
    {"a pool allocator's free", in_segment_free, -1},
    {"a pool allocator's gone", in_segments_gone, -1},
    {"a restore's changed", in_restore, -1},
    {"a debug report", in_debug_report, -1},
    {"a list of memory", in_memory_list, -1},
    {"a list of metadata", in_metadata_list, -1},
    {"a snapshot's write", in_snapshot, -1},
    {"the metrics' take", in_metrics, -1},
    {"a library's create", use_a_library, CREATE},
    {"a library's create_with_number", use_a_numbered_library, CREATE},
    {"a library's destroy", use_a_library, DESTROY},
    {"a library's status_text", use_a_library, STATUS_TEXT},
};
static const struct callback *callback_now;

static void all_calls_in_a_callback(void)
{
    if (callback_now->cause == in_debug_report)
        CHECK(setenv("TARN_DEBUG", "redzone,quiet", 1) == 0);
    world_make();
    if (callback_now->which >= 0)
        in_library = (unsigned)callback_now->which;
    armed = true;
    callback_now->cause();
    CHECK(made > 150);
    CHECK(complaints == 0);
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

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
    static const struct state child = {"a child of fork()", TARN_ERROR_FORKED, nothing, NULL, false};
    (void)state;
    now = &child;
    in_child(all_calls_in_a_child);
}

static void each_callback(void **state)
{
    static struct state callback = {"a callback", TARN_OK, nothing, NULL, false};
    const char *only = getenv("TARN_STATE");
    unsigned failed = 0;
    (void)state;
    now = &callback;
    for (size_t i = 0; i < sizeof callbacks / sizeof *callbacks; i++) {
        callback_now = &callbacks[i];
        callback.name = callback_now->name;
        if (only && strcmp(only, callback_now->name) != 0)
            continue;
        if (child_status(all_calls_in_a_callback) != 0) {
            fprintf(stderr, "not so: every call in the callback: %s, last %s\n", callback_now->name, every_call_now);
            failed++;
        }
    }
    CHECK(failed == 0);
}

static void every_function_has_a_row(void **state)
{
    (void)state;
    every_call_is_listed();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_has_a_row),
        cmocka_unit_test(each_state),
        cmocka_unit_test(a_child_of_fork),
        cmocka_unit_test(each_callback),
    };
    CHECK(setenv("TARN_HOST_DEVICES", "2", 1) == 0 && setenv("TARN_HOST_MEMORY", "256M", 1) == 0);
    promises_read();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
