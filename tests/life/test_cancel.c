/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* pthread_cancel(): no call of tarn is a cancellation point. A thread that is to be cancelled makes
 * every public call, and everything that waits, writes and calls back, and is there still; threads
 * that are cancelled anywhere leave nothing locked and nothing lost. */
#include "life/cancel_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/debug.h>
#include <tarn/live.h>
#include <tarn/metrics.h>
#include <unistd.h>

#include <cmocka.h>

/* What waits, writes, or calls back ------------------------------------------------------------ */

static char folder[64];

static bool take(const void *data, size_t size, void *user)
{
    (void)user;
    pthread_testcancel();
    return data && size;
}

static void hear(const tarn_mapping *range, void *user)
{
    (void)user;
    (void)range;
    pthread_testcancel();
}

static bool hear_shortage(const tarn_shortage *shortage, void *user)
{
    (void)user;
    (void)shortage;
    pthread_testcancel();
    return false;
}

static bool give_nothing(int device, size_t bytes, void *user)
{
    (void)user;
    (void)device;
    (void)bytes;
    pthread_testcancel();
    return false;
}

static void *allocate_own(size_t size, int device, void *stream, void *user)
{
    (void)device;
    (void)stream;
    (void)user;
    pthread_testcancel();
    return aligned_alloc(4096, (size + 4095) / 4096 * 4096);
}

static void free_own(void *pointer, size_t size, int device, void *stream, void *user)
{
    (void)size;
    (void)device;
    (void)stream;
    (void)user;
    pthread_testcancel();
    free(pointer);
}

static void gone(void *user)
{
    (void)user;
    pthread_testcancel();
}

static void hear_kind(const tarn_metadata_kind *kind, void *user)
{
    (void)user;
    (void)kind;
    pthread_testcancel();
}

static int make(void **handle)
{
    static int one;
    *handle = &one;
    return 0;
}

static int end(void *handle)
{
    return !handle;
}

static int refuse_stream(void *handle, void *stream)
{
    (void)stream;
    return handle ? 1 : 2;
}

static const char *text_of(int status)
{
    pthread_testcancel();
    return status == 1 ? "REFUSED" : "WRONG";
}

/* As much as there is, while work holds it: the next request waits for that, with and without a
 * limit. */
static void wait_on_the_ladder(void)
{
    tarn_stream first = lease(0), second = lease(0);
    const tarn_alloc_options limited = {
        .size = sizeof limited, .stream = second, .wait = 1000000000};
    void *block = alloc_on(first, 150 * MIB), *more = NULL;
    work_on(first, block, MIB, 1000000);
    OK(tarn_free(block));
    OK(tarn_alloc_on(second, 150 * MIB, &more));
    OK(tarn_free(more));
    OK(tarn_device_trim(0, 0));
    block = alloc_on(first, 150 * MIB);
    work_on(first, block, MIB, 1000000);
    OK(tarn_free(block));
    OK(tarn_alloc(&limited, 150 * MIB, &more));
    OK(tarn_free(more));
    GIVES(tarn_alloc_on(second, 1000 * MIB, &more), TARN_ERROR_OUT_OF_MEMORY);
    OK(tarn_device_trim(0, 0));
    OK(tarn_stream_return(first));
    OK(tarn_stream_return(second));
}

static void sleep_a_little(void *argument)
{
    (void)argument;
    usleep(2000);
}

static void wait_for_work(void)
{
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    OK(tarn_host_call(0, native_of(world.stream), sleep_a_little, NULL));
    OK(tarn_event_record(event, world.stream));
    OK(tarn_event_synchronize(event));
    OK(tarn_host_call(0, native_of(world.stream), sleep_a_little, NULL));
    OK(tarn_stream_synchronize(world.stream));
    OK(tarn_host_call(0, native_of(world.stream), sleep_a_little, NULL));
    OK(tarn_device_synchronize(0));
    OK(tarn_event_destroy(event));
}

static void write_files(void)
{
    char path[100];
    const tarn_trace_options trace = {.size = sizeof trace, .stacks = TARN_TRACE_STACKS_ALL};
    const tarn_snapshot_options chrome = {
        .size = sizeof chrome, .format = TARN_SNAPSHOT_CHROME, .max_bytes = TARN_NO_LIMIT};
    OK(tarn_trace_start(&trace));
    for (int i = 0; i < 100; i++)
        OK(tarn_free(alloc_on(world.stream, (size_t)i * 10000 + 1)));
    snprintf(path, sizeof path, "%s/file", folder);
    OK(tarn_snapshot_write(path, NULL));
    OK(tarn_snapshot_write(path, &chrome));
    OK(tarn_snapshot_print(take, NULL, NULL));
    OK(tarn_metrics_print(take, NULL));
    OK(tarn_trace_stop());
    const tarn_live_options live = {.size = sizeof live, .directory = folder, .interval_ms = 10};
    OK(tarn_live_start(&live));
    OK(tarn_live_stop());
    (void)remove(path);
}

static void call_back(void)
{
    const tarn_library_row row = {.size = sizeof row,
                                  .name = "refuses",
                                  .create = make,
                                  .destroy = end,
                                  .set_stream = refuse_stream,
                                  .status_text = text_of};
    tarn_library library = 0;
    void *handle = NULL;
    const tarn_observer_options options = {.size = sizeof options,
                                           .mapped = hear,
                                           .unmapping = hear,
                                           .out_of_memory = hear_shortage,
                                           .before_growth = give_nothing};
    const tarn_pool_allocator own = {
        .size = sizeof own, .alloc = allocate_own, .free = free_own, .gone = gone};
    const tarn_pool_options pool_options = {.size = sizeof pool_options, .allocator = &own};
    tarn_observer observer = 0;
    tarn_pool *pool = NULL;
    void *block = NULL;
    OK(tarn_observer_add(&options, &observer));
    wait_on_the_ladder();
    OK(tarn_pool_create(&pool_options, &pool));
    OK(tarn_pool_alloc(pool, world.stream, 3 * MIB, &block));
    OK(tarn_free(block));
    OK(tarn_pool_release(pool));
    OK(tarn_device_trim(0, 0));
    OK(tarn_observer_remove(observer));
    OK(tarn_metadata_list(hear_kind, NULL));
    OK(tarn_library_register(&row, &library));
    GIVES(tarn_handle_get(library, TARN_STREAM_CURRENT, &handle), TARN_ERROR_LIBRARY);
    OK(tarn_handle_trim(library, 0, NULL));
}

static void take_and_give_back(void)
{
    void *handle = NULL, *pinned = NULL;
    size_t destroyed = 0;
    OK(tarn_handle_get(world.library, TARN_STREAM_CURRENT, &handle));
    OK(tarn_handle_prewarm(world.library, 0, TARN_STREAM_NONE, 3));
    OK(tarn_handle_trim(world.library, 0, &destroyed));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 10 * MIB, &pinned));
    OK(tarn_free(pinned));
    OK(tarn_pinned_trim(0));
    OK(tarn_configuration_set(
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:128"));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 100 * MIB, &pinned));
    OK(tarn_free(pinned));
    OK(tarn_pinned_trim(0));
    OK(tarn_configuration_set("pinned_use_cuda_host_register:False,pinned_num_register_threads:1"));
    OK(tarn_pool_suspend(world.pool, true));
    OK(tarn_pool_resume(world.pool));
    OK(tarn_device_trim(0, 0));
}

static void first_use(void)
{
    int count = 0;
    OK(tarn_device_count_get(&count));
    world_make();
}

static void all_at_once(void)
{
    outlives("the first use", first_use);
#define OUTLIVES(function) outlives(#function, function)
    OUTLIVES(wait_on_the_ladder);
    OUTLIVES(wait_for_work);
    OUTLIVES(write_files);
    OUTLIVES(call_back);
    OUTLIVES(take_and_give_back);
    world_end();
    nothing_is_left(0);
    world_make();
    OUTLIVES(every_call_returns);
#undef OUTLIVES
}

static void shut_down(void)
{
    OK(tarn_shutdown());
}

static void at_the_shutdown(void)
{
    world_make();
    outlives("the shutdown", shut_down);
}

/* At random ------------------------------------------------------------------------------------ */

enum { THREADS = 4, HELD = 16 };

struct victim {
    pthread_t thread;
    tarn_stream stream;
    void *_Atomic held[HELD];
};

static struct victim victims[THREADS];

/* Is cancelled between calls, if anywhere: then all that it has is in the table. */
static void *live_and_die(void *argument)
{
    struct victim *victim = argument;
    for (size_t i = 0;; i++) {
        void *_Atomic *place = &victim->held[i % HELD];
        void *block = atomic_load(place);
        if (block)
            OK(tarn_free(block));
        atomic_store(place, NULL);
        if (tarn_alloc_on(victim->stream, (i * 7919 % 4000 + 1) * (i % 11 ? 1 : 2000), &block) ==
            TARN_OK)
            atomic_store(place, block);
        if (i % 50 == 0)
            OK(tarn_device_trim(0, 0));
        if (i % 20 == 0)
            (void)tarn_snapshot_print(take, NULL, NULL);
        pthread_testcancel();
    }
    return NULL;
}

static void end_of(struct victim *victim)
{
    void *result = NULL;
    CHECK(pthread_cancel(victim->thread) == 0);
    CHECK(pthread_join(victim->thread, &result) == 0 && result == PTHREAD_CANCELED);
    for (int i = 0; i < HELD; i++)
        OK(tarn_free(atomic_exchange(&victim->held[i], NULL)));
}

static void cancel_at_random(void)
{
    for (int i = 0; i < THREADS; i++) {
        victims[i].stream = lease(0);
        CHECK(pthread_create(&victims[i].thread, NULL, live_and_die, &victims[i]) == 0);
    }
    for (int i = 0; i < 100; i++) {
        struct victim *victim = &victims[i % THREADS];
        usleep((unsigned)(i * 37 % 2000));
        end_of(victim);
        CHECK(pthread_create(&victim->thread, NULL, live_and_die, victim) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        end_of(&victims[i]);
    nothing_is_left(0);
}

static void find_none(void)
{
    tarn_library library;
    GIVES(tarn_library_find("none", &library), TARN_ERROR_INVALID_ARGUMENT);
}

/* The first text reads the level of the log, and writes that it is wrong. */
static void with_a_wrong_level_of_the_log(void)
{
    CHECK(setenv("TARN_LOG", "wrong", 1) == 0);
    outlives("the first error", find_none);
}

static void no_call_is_a_cancellation_point(void **state)
{
    (void)state;
    in_child(with_a_wrong_level_of_the_log);
    in_child(all_at_once);
    in_child(at_the_shutdown);
    in_child(cancel_at_random);
}

/* Stacks of calls are taken by a library that asks the system. */
static void take_and_free(void)
{
    for (size_t i = 1; i < 100; i++)
        OK(tarn_free(alloc_on(world.stream, i * 1000)));
    OK(tarn_debug_check(0));
}

static void first_debugged_use(void)
{
    int count = 0;
    OK(tarn_device_count_get(&count));
    world.stream = lease(0);
}

static void debug_and_trace(void)
{
    outlives("the first use with debug mode and a trace", first_debugged_use);
    outlives("what debug mode looks at", take_and_free);
}

static void debug_mode_and_traces_have_none(void **state)
{
    (void)state;
    CHECK(setenv("TARN_DEBUG", "all", 1) == 0 && setenv("TARN_TRACE", "on", 1) == 0);
    in_child(debug_and_trace);
    CHECK(unsetenv("TARN_DEBUG") == 0 && unsetenv("TARN_TRACE") == 0);
}

static void shown_an_owner(void)
{
    CHECK(close(STDIN_FILENO) == 0);
    outlives("the first use with the name of an owner", first_use);
}

/* The first use makes a pipe then. Its ends get other numbers than those of standard streams. */
static void the_pipe_of_kept_pools_has_none(void **state)
{
    (void)state;
    CHECK(setenv("TARN_KEEP", "/tmp/no-owner", 1) == 0);
    in_child(shown_an_owner);
    CHECK(unsetenv("TARN_KEEP") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_call_is_a_cancellation_point),
        cmocka_unit_test(debug_mode_and_traces_have_none),
        cmocka_unit_test(the_pipe_of_kept_pools_has_none),
    };
    snprintf(folder, sizeof folder, "/tmp/tarn-cancel-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    host_start_with(2, 256 * MIB);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)rmdir(folder);
    return failed;
}
