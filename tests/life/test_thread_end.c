/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Threads that end in the middle of something: of a capture, a scope, a lease, with a cache full of
 * blocks that others free, and whose destructors use tarn after tarn's own has run. What was theirs
 * is given up without a driver call, others can end what they began, and nothing grows, however
 * many come and go. */
#include "support/clearing.h"
#include "support/every_call.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 60, REPETITIONS = 40 };

static void *blocks[BLOCKS];

static void take(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = tarn_malloc((i + 1) * (i % 7 ? 900 : 90000))));
}

static void give(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        OK(tarn_free(blocks[i]));
}

static void run(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static pthread_key_t early_key, late_key; /* before and behind tarn's own */
static void late(void *value);

static void begin(void)
{
    world_make();
    world_end();
    OK(tarn_pool_create(NULL, &world.pool));
    OK(tarn_pool_create(NULL, &world.suspended));
    const tarn_trace_options options = {.size = sizeof options, .records = 1000, .regions = true};
    OK(tarn_trace_start(&options));
    CHECK(pthread_key_create(&late_key, late) == 0);
}

static void all_is_given_back(void)
{
    OK(tarn_pool_trim(world.pool, 0));
    OK(tarn_pool_trim(world.suspended, 0));
    nothing_is_left(0);
    nothing_is_left(1);
}

/* Things to end in the middle of --------------------------------------------------------------- */

static void *take_and_end(void *argument)
{
    OK(tarn_stream_set(world.stream));
    take();
    return argument;
}

static void others_free_what_it_took(void)
{
    run(take_and_end);
    give();
}

static pthread_barrier_t meet;

static void *free_for_another(void *argument)
{
    pthread_barrier_wait(&meet);
    for (size_t i = 0; i < BLOCKS; i += 2)
        OK(tarn_free(blocks[i]));
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    for (size_t i = 1; i < BLOCKS; i += 2)
        OK(tarn_free(blocks[i]));
    return argument;
}

static void *take_while_freed(void *argument)
{
    OK(tarn_stream_set(world.stream));
    take();
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    return argument; /* what was freed meanwhile lies in its slabs, seen by nobody */
}

static void frees_were_on_their_way(void)
{
    pthread_t first, second;
    CHECK(pthread_barrier_init(&meet, NULL, 2) == 0);
    CHECK(pthread_create(&first, NULL, take_while_freed, NULL) == 0);
    CHECK(pthread_create(&second, NULL, free_for_another, NULL) == 0);
    CHECK(pthread_join(first, NULL) == 0);
    pthread_barrier_wait(&meet);
    CHECK(pthread_join(second, NULL) == 0);
    pthread_barrier_destroy(&meet);
}

static void *begin_capture(void *argument)
{
    OK(tarn_pool_capture_begin(world.pool, world.capturing, TARN_CAPTURE_THREAD_LOCAL));
    blocks[0] = alloc_on(world.capturing, 3 * MIB);
    blocks[1] = alloc_on(world.capturing, 1000);
    return argument;
}

/* The driver lets nobody else end a thread-local capture: it can only be given up. */
static void leave_a_capture(void)
{
    void *graph = NULL;
    begin();
    run(begin_capture);
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_CAPTURE);
    GIVES(tarn_shutdown(), TARN_ERROR_CAPTURE);
    GIVES(tarn_capture_end(world.capturing, &graph), TARN_ERROR_CAPTURE);
    GIVES(tarn_device_trim(0, 0), TARN_ERROR_CAPTURE);
    OK(tarn_capture_abort(world.capturing));
    GIVES(tarn_capture_abort(world.capturing), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_free(blocks[0]));
    OK(tarn_free(blocks[1]));
    take();
    give();
    OK(tarn_pool_release(world.pool));
    OK(tarn_pool_release(world.suspended));
    OK(tarn_device_trim(0, 0));
    OK(tarn_stream_return(world.capturing)); /* which destroys it, since it captures on */
    OK(tarn_shutdown());
}

static void a_capture_that_nobody_can_end_is_given_up(void **state)
{
    (void)state;
    in_child(leave_a_capture);
}

static void *begin_relaxed_capture(void *argument)
{
    OK(tarn_pool_capture_begin(world.pool, world.capturing, TARN_CAPTURE_RELAXED));
    blocks[0] = alloc_on(world.capturing, 3 * MIB);
    return argument;
}

static void in_a_capture_that_another_ends(void)
{
    void *graph = NULL;
    run(begin_relaxed_capture);
    OK(tarn_free(blocks[0]));
    OK(tarn_capture_end(world.capturing, &graph));
    OK(tarn_host_graph_destroy(graph));
}

static void *announce(void *argument)
{
    OK(tarn_pool_capture_announce(world.pool, world.capturing));
    return argument;
}

static void having_announced_a_capture(void)
{
    run(announce);
    OK(tarn_capture_abort(world.capturing));
}

static tarn_scope left;

static void *begin_scopes(void *argument)
{
    OK(tarn_scope_begin(world.pool, TARN_SCOPE_THREAD, 0, &left));
    OK(tarn_scope_begin(world.suspended, TARN_SCOPE_THREAD, 0, &left));
    blocks[0] = tarn_malloc(10000);
    return argument;
}

static void in_scopes(void)
{
    run(begin_scopes);
    void *here = tarn_malloc(1000);
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_pointer_info_get(here, &info));
    CHECK(!info.pool.first && !info.pool.second); /* nobody else's request goes there */
    CHECK(pool_info_of(world.suspended).use_count == 1);
    GIVES(tarn_scope_end(left), TARN_ERROR_SCOPE);
    OK(tarn_free(here));
    OK(tarn_free(blocks[0]));
}

static tarn_lease lease_left;

static void *hold_handles(void *argument)
{
    void *handle = NULL;
    OK(tarn_handle_get(world.library, TARN_STREAM_CURRENT, &handle));
    OK(tarn_handle_lease(world.library, world.stream, &lease_left));
    return argument;
}

static void with_handles(void)
{
    size_t destroyed = 0;
    run(hold_handles);
    OK(tarn_handle_return(&lease_left));
    OK(tarn_handle_trim(world.library, 0, &destroyed));
    CHECK(destroyed > 0);
    OK(workspaces_clear_all(&(tarn_workspace_cleared){0}));
}

static tarn_stream stream_left;
static tarn_event *event_left;

static void *set_and_push(void *argument)
{
    tarn_guard device_guard = {0};
    tarn_guard stream_guard = {0};
    OK(tarn_device_guard_set(&device_guard, 1));
    OK(tarn_stream_lease(0, 0, &stream_left));
    OK(tarn_stream_guard_set(&stream_guard, stream_left));
    OK(tarn_event_create(0, &event_left));
    OK(tarn_event_record(event_left, TARN_STREAM_PER_THREAD));
    OK(tarn_region_push("outer"));
    OK(tarn_region_push("inner"));
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, 5000, &blocks[0]));
    return argument;
}

static void with_settings_and_regions(void)
{
    run(set_and_push);
    OK(tarn_event_synchronize(event_left));
    OK(tarn_event_destroy(event_left));
    OK(tarn_stream_return(stream_left));
    OK(tarn_free(blocks[0]));
    OK(tarn_pinned_trim(0));
}

/* Destructors that use tarn -------------------------------------------------------------------- */

static int last_round;

static void use_again(void)
{
    void *graph = NULL, *handle = NULL;
    take();
    give();
    CHECK(tarn_free(&graph) == TARN_ERROR_INVALID_POINTER && *tarn_last_error());
    OK(tarn_stream_set(world.stream));
    if (last_round < PTHREAD_DESTRUCTOR_ITERATIONS)
        OK(tarn_handle_get(world.library, TARN_STREAM_CURRENT, &handle));
    OK(tarn_region_push("at the end"));
    OK(tarn_pool_capture_begin(world.pool, world.capturing, TARN_CAPTURE_RELAXED));
    OK(tarn_capture_end(world.capturing, &graph));
    OK(tarn_host_graph_destroy(graph));
}

/* The thread sanitizer ends what it has of a thread in the last rounds, after which a lock is a
 * crash. */
static bool sanitizer_ends_threads(void)
{
    const char *sanitizer = getenv("TARN_SANITIZE");
    return sanitizer && strcmp(sanitizer, "thread") == 0;
}

/* Runs once a round, up to PTHREAD_DESTRUCTOR_ITERATIONS: a value that is set again is destroyed
 * again. */
static void destructor(pthread_key_t key, void *value)
{
    uintptr_t round = (uintptr_t)value;
    use_again();
    if (round < (uintptr_t)last_round)
        CHECK(pthread_setspecific(key, (void *)(round + 1)) == 0);
}

static void early(void *value)
{
    destructor(early_key, value);
}

static void late(void *value)
{
    destructor(late_key, value);
}

static void *end_with_destructors(void *argument)
{
    CHECK(pthread_setspecific(early_key, (void *)1) == 0 &&
          pthread_setspecific(late_key, (void *)1) == 0);
    take();
    give();
    return argument;
}

static void destructors_use_tarn(void)
{
    size_t destroyed = 0;
    last_round = sanitizer_ends_threads() ? 1 : PTHREAD_DESTRUCTOR_ITERATIONS - 1;
    run(end_with_destructors);
    OK(tarn_handle_trim(world.library, 0, &destroyed));
    OK(workspaces_clear_all(&(tarn_workspace_cleared){0}));
}

/* As often as the system runs them: the thread that tarn begins in the last one, nobody ends. Its
 * memory is available all the same; a handle would stay its own. */
static void destructors_use_tarn_to_the_last(void **state)
{
    (void)state;
    if (sanitizer_ends_threads())
        return;
    last_round = PTHREAD_DESTRUCTOR_ITERATIONS + 10;
    for (int i = 0; i < 10; i++)
        run(end_with_destructors);
    all_is_given_back();
}

/* All of them ---------------------------------------------------------------------------------- */

static void each_leaves_nothing(void **state)
{
    static void (*const ends[])(void) = {
        others_free_what_it_took,
        frees_were_on_their_way,
        in_a_capture_that_another_ends,
        having_announced_a_capture,
        in_scopes,
        with_handles,
        with_settings_and_regions,
        destructors_use_tarn,
    };
    (void)state;
    begin();
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        uint64_t bytes = 0;
        for (int repetition = 0; repetition < REPETITIONS; repetition++) {
            ends[i]();
            if (repetition == REPETITIONS / 4)
                bytes = metadata_bytes();
        }
        CHECK(metadata_bytes() <= bytes + (64 << 10));
        all_is_given_back();
    }
}

static void *make_no_call(void *argument)
{
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    return argument;
}

static void *take_and_wait(void *argument)
{
    take_and_end(NULL);
    give();
    return make_no_call(argument);
}

/* Its caches are full, its stream has work, and not one call of the driver is made by its end. */
static void the_end_makes_no_driver_call(void **state)
{
    pthread_t thread;
    (void)state;
    CHECK(pthread_barrier_init(&meet, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, take_and_wait, NULL) == 0);
    pthread_barrier_wait(&meet);
    uint64_t calls = all_calls(0);
    pthread_barrier_wait(&meet);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(all_calls(0) == calls);
    pthread_barrier_destroy(&meet);
    all_is_given_back();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_that_nobody_can_end_is_given_up),
        cmocka_unit_test(each_leaves_nothing),
        cmocka_unit_test(the_end_makes_no_driver_call),
        cmocka_unit_test(destructors_use_tarn_to_the_last),
    };
    CHECK(pthread_key_create(&early_key, early) == 0);
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
