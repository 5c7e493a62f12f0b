/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The ends of a process: a fork after the first use, and tarn_shutdown(). Each is tried in a child of its own, as it ends
 * the use of tarn there. */
#include "base/pages.h"
#include "base/process.h"
#include "base/status.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

static tarn_stream stream, adopted;
static tarn_event *event;
static void *block;
static tarn_device_guard device_guard;
static tarn_stream_guard stream_guard;
static char native[1];

/* Every public call, with arguments that it would accept, demands `wanted`. */
static void every_call_gives(tarn_status wanted)
{
    int device = 0, number = 0;
    size_t size = 0;
    void *pointer = NULL;
    tarn_stream result = 0;
    tarn_event *fresh = NULL;
    tarn_tag tag = 0;
    tarn_device_properties properties = {.size = sizeof properties};
    tarn_stats stats = {.size = sizeof stats};
    tarn_block_info info = {.size = sizeof info};
    tarn_alloc_options options = {.size = sizeof options, .device = TARN_CURRENT_DEVICE};
    tarn_device_guard unset_device_guard = {0}, held_device_guard = device_guard;
    tarn_stream_guard unset_stream_guard = {0}, held_stream_guard = stream_guard;

    GIVES(tarn_device_count(&number), wanted);
    GIVES(tarn_device_properties_get(0, &properties), wanted);
    GIVES(tarn_device_get(&device), wanted);
    GIVES(tarn_device_set(0), wanted);
    GIVES(tarn_device_exchange(0, &device), wanted);
    GIVES(tarn_device_adopt(&device), wanted);
    GIVES(tarn_device_memory(0, &size, &size), wanted);
    GIVES(tarn_device_synchronize(0), wanted);
    GIVES(tarn_device_guard_set(&unset_device_guard, 0), wanted);
    if (held_device_guard.active)
        GIVES(tarn_device_guard_restore(&held_device_guard), wanted);

    GIVES(tarn_stream_get(0, &result), wanted);
    GIVES(tarn_stream_set(stream), wanted);
    GIVES(tarn_stream_adopt(0, native, &result), wanted);
    GIVES(tarn_stream_retire(adopted), wanted);
    GIVES(tarn_stream_from_pool(0, 0, &result), wanted);
    GIVES(tarn_stream_lease(0, 0, &result), wanted);
    GIVES(tarn_stream_return(stream), wanted);
    GIVES(tarn_stream_native(stream, &pointer), wanted);
    GIVES(tarn_stream_device(stream, &device), wanted);
    GIVES(tarn_stream_priority(stream, &number), wanted);
    GIVES(tarn_stream_query(stream), wanted);
    GIVES(tarn_stream_synchronize(stream), wanted);
    GIVES(tarn_stream_guard_set(&unset_stream_guard, stream), wanted);
    if (held_stream_guard.active)
        GIVES(tarn_stream_guard_restore(&held_stream_guard), wanted);
    GIVES(tarn_event_create(0, &fresh), wanted);
    if (event) {
        GIVES(tarn_event_record(event, stream), wanted);
        GIVES(tarn_event_query(event), wanted);
        GIVES(tarn_event_synchronize(event), wanted);
        GIVES(tarn_stream_wait(stream, event), wanted);
        GIVES(tarn_free_after(block, event), wanted);
        GIVES(tarn_event_destroy(event), wanted);
    }

    GIVES(tarn_tag_intern("a tag", &tag), wanted);
    CHECK(!tarn_malloc(100));
    GIVES(tarn_last_status(), wanted);
    GIVES(tarn_alloc_on(stream, 100, &pointer), wanted);
    GIVES(tarn_alloc(&options, 100, &pointer), wanted);
    GIVES(tarn_free(block), wanted);
    GIVES(tarn_free_on(block, stream), wanted);
    GIVES(tarn_record_stream(block, stream), wanted);
    GIVES(tarn_extend(block, 10), wanted);
    GIVES(tarn_usable_size(block, &size), wanted);
    GIVES(tarn_pointer_info(block, &info), wanted);
    GIVES(tarn_trim(0, 0), wanted);
    GIVES(tarn_limit_set(0, SIZE_MAX), wanted);
    GIVES(tarn_limit_get(0, &size), wanted);
    GIVES(tarn_limit_set_fraction(0, 1), wanted);
    GIVES(tarn_stats_get(0, &stats), wanted);
    GIVES(tarn_stats_reset_peak(0), wanted);
    GIVES(tarn_stats_reset_accumulated(0), wanted);

    CHECK(!pointer && !fresh && !result && !tag && size == 0); /* nothing was written */
    CHECK(*tarn_version() && *tarn_last_error());
    CHECK(strcmp(tarn_tag_text(0), "") == 0);
}

static void use_everything(void)
{
    stream = lease(0);
    OK(tarn_stream_adopt(0, native_of(lease(0)), &adopted));
    OK(tarn_event_create(0, &event));
    OK(tarn_event_record(event, stream));
    block = alloc_on(stream, 1000);
    OK(tarn_device_guard_set(&device_guard, 0));
    OK(tarn_stream_guard_set(&stream_guard, stream));
}

static void every_call_is_refused_as_forked(void)
{
    every_call_gives(TARN_ERROR_FORKED);
    GIVES(tarn_shutdown(), TARN_ERROR_FORKED);
}

static atomic_bool storm_ends;

/* Keeps every lock of tarn busy. */
static void *storm(void *argument)
{
    tarn_stream own = lease(0);
    (void)argument;
    while (!atomic_load(&storm_ends)) {
        tarn_tag tag;
        tarn_stream pooled;
        void *pointer = NULL;
        OK(tarn_tag_intern("busy", &tag));
        if (tarn_alloc_on(own, MIB, &pointer) == TARN_OK) {
            OK(tarn_record_stream(pointer, stream));
            OK(tarn_free(pointer));
        }
        OK(tarn_stream_from_pool(0, 0, &pooled));
        (void)stats_of(0);
        OK(tarn_trim(0, 0));
    }
    return NULL;
}

static void fork_after_use(void)
{
    pthread_t threads[3];
    use_everything();
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, storm, NULL) == 0);
    for (int i = 0; i < 20; i++)
        in_child(every_call_is_refused_as_forked);
    atomic_store(&storm_ends, true);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);

    /* the parent goes on */
    memset(block, 1, 1000);
    OK(tarn_free(block));
    OK(tarn_event_synchronize(event));
    OK(tarn_event_destroy(event));
    nothing_is_left(0);
}

static void a_child_of_a_process_that_used_tarn_is_refused_and_never_hangs(void **state)
{
    (void)state;
    in_child(fork_after_use);
}

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

static void use_and_free(void)
{
    use_everything();
    OK(tarn_free(block));
    nothing_is_left(0);
}

static void a_fork_before_the_first_use_is_fine(void **state)
{
    (void)state;
    in_child(use_and_free);
    in_child(use_and_free);
}

static void shut_down_with_work_and_memory(void)
{
    use_everything();
    OK(tarn_stream_guard_restore(&stream_guard));
    stream_guard = (tarn_stream_guard){.active = true};
    void *freed = alloc_on(stream, 50 * MIB), *pending = alloc_on(stream, 50 * MIB);
    work_on(stream, freed, MIB, 1000);
    work_on(adopted, pending, MIB, 2000);
    OK(tarn_record_stream(pending, adopted));
    OK(tarn_free(freed));
    OK(tarn_free(pending));
    memset(block, 77, 1000);
    OK(tarn_shutdown());
    for (int i = 0; i < 1000; i++)
        CHECK(((char *)block)[i] == 77); /* a live block keeps its memory */
    every_call_gives(TARN_ERROR_SHUTDOWN);
    OK(tarn_shutdown());
    every_call_gives(TARN_ERROR_SHUTDOWN);
}

static void after_a_shutdown_calls_are_refused_and_live_blocks_keep_their_memory(void **state)
{
    (void)state;
    in_child(shut_down_with_work_and_memory);
}

static void shut_down_unused(void)
{
    OK(tarn_shutdown());
    OK(tarn_shutdown());
    every_call_gives(TARN_ERROR_SHUTDOWN);
}

static void a_shutdown_before_the_first_use_is_one_too(void **state)
{
    (void)state;
    in_child(shut_down_unused);
}

static void shut_down_clean(void)
{
    tarn_stream unused;
    OK(tarn_stream_from_pool(1, 0, &unused)); /* the second device was used, but not its memory */
    uint64_t reserves = calls_of(1, "reserve");
    use_and_free();
    device_guard.active = stream_guard.active = false;
    CHECK(calls_of(1, "reserve") == reserves);
    OK(tarn_shutdown());
    event = NULL;
    every_call_gives(TARN_ERROR_SHUTDOWN);
}

static void a_shutdown_with_nothing_live_ends_the_driver_too(void **state)
{
    (void)state;
    in_child(shut_down_clean);
}

static void fork_after_shutdown(void)
{
    use_and_free();
    OK(tarn_shutdown());
    in_child(every_call_is_refused_as_forked);
}

static void a_child_of_a_process_that_shut_down_is_refused(void **state)
{
    (void)state;
    in_child(fork_after_shutdown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_before_the_first_use_is_fine),
        cmocka_unit_test(a_child_of_a_process_that_used_tarn_is_refused_and_never_hangs),
        cmocka_unit_test(a_first_error_in_a_child_takes_no_lock),
        cmocka_unit_test(after_a_shutdown_calls_are_refused_and_live_blocks_keep_their_memory),
        cmocka_unit_test(a_shutdown_before_the_first_use_is_one_too),
        cmocka_unit_test(a_shutdown_with_nothing_live_ends_the_driver_too),
        cmocka_unit_test(a_child_of_a_process_that_shut_down_is_refused),
    };
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
