/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ends of a process: tarn_shutdown(), and the first error after a fork; all else of fork() is
 * in life.fork. Each is tried in a child of its own, as it ends the use of tarn there. */
#include "base/pages.h"
#include "base/status.h"
#include "base/thread/process.h"
#include "support/every_call.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

static void *block;
static atomic_bool storm_ends;

/* Keeps the lock busy behind which the texts of errors are made. */
static void *text_storm(void *argument)
{
    (void)argument;
    while (!atomic_load(&storm_ends))
        pages_free(pages_alloc(ERROR_TEXT_BYTES), ERROR_TEXT_BYTES);
    return NULL;
}

static void the_first_error_is_refused_as_forked(void)
{
    tarn_tag tag = 0;
    GIVES(tarn_tag_intern("a tag", &tag), TARN_ERROR_FORKED);
    CHECK(strstr(tarn_last_error(), "forked"));
}

/* In a thread that has had no error yet. */
static void *fork_once(void *argument)
{
    (void)argument;
    in_child(the_first_error_is_refused_as_forked);
    return NULL;
}

static void fork_before_an_error(void)
{
    pthread_t fresh;
    pthread_t threads[3];
    block = alloc_on(lease(0), 1000);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, text_storm, NULL) == 0);
    for (int i = 0; i < 50; i++)
        CHECK(pthread_create(&fresh, NULL, fork_once, NULL) == 0 && pthread_join(fresh, NULL) == 0);
    atomic_store(&storm_ends, true);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(tarn_free(block));
}

static void a_first_error_in_a_child_takes_no_lock(void **state)
{
    (void)state;
    in_child(fork_before_an_error);
}

static void every_call_is_refused(void)
{
    every_call_gives(TARN_ERROR_SHUTDOWN, TARN_OK);
}

static void shut_down_with_work_and_memory(void)
{
    world_make();
    block = alloc_on(world.stream, 1000);
    void *freed = alloc_on(world.stream, 50 * MIB), *pending = alloc_on(world.stream, 50 * MIB);
    work_on(world.stream, freed, MIB, 1000);
    work_on(world.adopted, pending, MIB, 2000);
    OK(tarn_record_stream(pending, world.adopted));
    OK(tarn_free(freed));
    OK(tarn_free(pending));
    memset(block, 77, 1000);
    OK(tarn_shutdown());
    for (int i = 0; i < 1000; i++)
        CHECK(((char *)block)[i] == 77); /* a live block keeps its memory */
    every_call_is_refused();
}

static void after_a_shutdown_calls_are_refused_and_live_blocks_keep_their_memory(void **state)
{
    (void)state;
    in_child(shut_down_with_work_and_memory);
}

static void shut_down_unused(void)
{
    OK(tarn_shutdown());
    every_call_is_refused();
}

static void a_shutdown_before_the_first_use_is_one_too(void **state)
{
    (void)state;
    in_child(shut_down_unused);
}

static void shut_down_clean(void)
{
    tarn_stream unused;
    OK(tarn_stream_shared_get(1, 0, &unused)); /* the second device was used, but not its memory */
    uint64_t reserves = calls_of(1, "reserve");
    OK(tarn_free(alloc_on(lease(0), 1000)));
    nothing_is_left(0);
    CHECK(calls_of(1, "reserve") == reserves);
    OK(tarn_shutdown());
    every_call_is_refused();
}

static void a_shutdown_with_nothing_live_ends_the_driver_too(void **state)
{
    (void)state;
    in_child(shut_down_clean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_error_in_a_child_takes_no_lock),
        cmocka_unit_test(after_a_shutdown_calls_are_refused_and_live_blocks_keep_their_memory),
        cmocka_unit_test(a_shutdown_before_the_first_use_is_one_too),
        cmocka_unit_test(a_shutdown_with_nothing_live_ends_the_driver_too),
    };
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
