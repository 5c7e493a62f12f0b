/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "device/device.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define DEVICES 3

static int current(void)
{
    int device = -1;
    OK(tarn_device_get(&device));
    return device;
}

static int current_in_driver(void)
{
    int device = -1;
    OK(driver->current(&device));
    return device;
}

static void on_a_thread(void *(*function)(void *))
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void devices_are_counted_and_described(void **state)
{
    (void)state;
    int count = 0;
    OK(tarn_device_count_get(&count));
    CHECK(count == DEVICES);
    tarn_device_properties properties = {.size = sizeof properties};
    OK(tarn_device_properties_get(2, &properties));
    CHECK(strcmp(properties.driver, "host") == 0 && *properties.name);
    CHECK(properties.memory == 64 * MIB && properties.granule == 2 * MIB);
    CHECK(properties.least_priority == 0 && properties.greatest_priority < 0);
    CHECK(properties.virtual_memory);

    tarn_device_properties other = {.size = sizeof other - 1};
    GIVES(tarn_device_properties_get(0, &other), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(other.size == sizeof other - 1 && other.memory == 0);
    GIVES(tarn_device_properties_get(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_device_count_get(NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void the_current_device_is_set_and_exchanged(void **state)
{
    (void)state;
    tarn_guard guard;
    CHECK(current() == 0);
    OK(tarn_device_set(2));
    CHECK(current() == 2 && current_in_driver() == 2);
    OK(tarn_device_guard_set(&guard, 1));
    CHECK(guard.previous_device == 2 && current() == 1);
    OK(tarn_device_set(0));
    CHECK(current() == 0 && current_in_driver() == 0);
    GIVES(tarn_device_get(NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void wrong_numbers_are_refused_and_change_nothing(void **state)
{
    (void)state;
    static const int wrong[] = {-1, DEVICES, TARN_MAX_DEVICES, 1 << 30, -(1 << 30)};
    tarn_device_properties properties = {.size = sizeof properties};
    tarn_stats stats = {.size = sizeof stats};
    OK(tarn_device_set(1));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t free_bytes = 77, total_bytes = 77;
        tarn_stream stream = 77;
        tarn_event *event = NULL;
        tarn_guard guard = {.active = true};
        GIVES(tarn_device_set(wrong[i]), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_properties_get(wrong[i], &properties), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_memory_get(wrong[i], &free_bytes, &total_bytes),
              TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_synchronize(wrong[i]), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_guard_set(&guard, wrong[i]), TARN_ERROR_INVALID_DEVICE);
        OK(tarn_guard_restore(&guard)); /* its set failed: does nothing */
        GIVES(tarn_stream_get(wrong[i], &stream), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_stream_adopt(wrong[i], &guard, &stream), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_stream_shared_get(wrong[i], 0, &stream), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_stream_lease(wrong[i], 0, &stream), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_event_create(wrong[i], &event), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_trim(wrong[i], 0), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_limit_set(wrong[i], 0), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_limit_get(wrong[i], &free_bytes), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_stats_get(wrong[i], &stats), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_stats_reset(wrong[i], TARN_STATS_PEAK), TARN_ERROR_INVALID_DEVICE);
        GIVES(tarn_device_stats_reset(wrong[i], TARN_STATS_ACCUMULATED), TARN_ERROR_INVALID_DEVICE);
        CHECK(free_bytes == 77 && total_bytes == 77 && stream == 77 && !event);
        CHECK(properties.memory == 0 && current() == 1 && current_in_driver() == 1);
    }
    OK(tarn_device_set(0));
}

static void *starts_on_device_0(void *argument)
{
    CHECK(current() == 0);
    OK(tarn_device_set(1));
    CHECK(current() == 1);
    return argument;
}

static void every_thread_has_its_own_current_device(void **state)
{
    (void)state;
    OK(tarn_device_set(2));
    on_a_thread(starts_on_device_0);
    CHECK(current() == 2 && current_in_driver() == 2);
    OK(tarn_device_set(0));
}

static void a_device_switched_by_another_api_is_adopted(void **state)
{
    (void)state;
    int device = -1;
    OK(tarn_device_set(0));
    OK(driver->activate(2));
    CHECK(current() == 0); /* tarn's own value */
    OK(tarn_device_adopt(&device));
    CHECK(device == 2 && current() == 2);
    OK(tarn_device_set(0));
    GIVES(tarn_device_adopt(NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void guards_nest_like_brackets_and_restore_once(void **state)
{
    (void)state;
    tarn_guard outer, inner;
    OK(tarn_device_set(0));
    OK(tarn_device_guard_set(&outer, 1));
    OK(tarn_device_guard_set(&inner, 2));
    CHECK(current() == 2);
    OK(tarn_guard_restore(&inner));
    CHECK(current() == 1);
    OK(tarn_guard_restore(&outer));
    CHECK(current() == 0);
    OK(tarn_device_set(1));
    OK(tarn_guard_restore(&outer)); /* a second time: nothing */
    CHECK(current() == 1);
    OK(tarn_device_set(0));
    GIVES(tarn_device_guard_set(NULL, 0), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_guard_restore(NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void a_restore_that_failed_can_be_tried_again(void **state)
{
    (void)state;
    tarn_guard guard;
    tarn_guard stream_guard;
    tarn_stream before = 0, during = 0, leased = 0;
    OK(tarn_device_set(0));
    OK(tarn_stream_lease(1, 0, &leased));
    OK(tarn_device_guard_set(&guard, 1));
    OK(tarn_stream_get(1, &before));
    OK(tarn_stream_guard_set(&stream_guard, leased));

    OK(tarn_host_fail_set(kind_of("activate"), 1, true, TARN_ERROR_DRIVER));
    GIVES(tarn_guard_restore(&stream_guard), TARN_ERROR_DRIVER);
    GIVES(tarn_guard_restore(&guard), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_stream_get(1, &during));
    CHECK(during == leased && current() == 1);

    OK(tarn_guard_restore(&stream_guard));
    OK(tarn_stream_get(1, &during));
    CHECK(during == before && current() == 1);
    OK(tarn_guard_restore(&guard));
    CHECK(current() == 0);
    OK(tarn_stream_return(leased));
}

static void what_fails_to_become_current_leaves_the_device_as_it_was(void **state)
{
    (void)state;
    tarn_guard guard;
    OK(tarn_device_set(1));
    OK(tarn_host_fail_set(kind_of("activate"), 1, true, TARN_ERROR_DRIVER));
    GIVES(tarn_device_set(2), TARN_ERROR_DRIVER);
    GIVES(tarn_device_guard_set(&guard, 2), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_guard_restore(&guard));
    CHECK(current() == 1 && current_in_driver() == 1);
    OK(tarn_device_set(0));
}

static void asking_makes_no_context(void **state)
{
    (void)state;
    uint64_t activates = 0, after = 0;
    for (int i = 0; i < DEVICES; i++)
        activates += calls_of(i, "activate");
    for (int i = 0; i < DEVICES; i++) {
        tarn_stream stream = 0;
        tarn_device_properties properties = {.size = sizeof properties};
        OK(tarn_stream_get(i, &stream));
        OK(tarn_device_properties_get(i, &properties));
        tarn_guard guard = {0};
        OK(tarn_guard_restore(&guard));
    }
    for (int i = 0; i < DEVICES; i++)
        after += calls_of(i, "activate");
    CHECK(after == activates);
}

static void memory_in_reserve_counts_as_used(void **state)
{
    (void)state;
    size_t free_bytes = 0, total_bytes = 0;
    OK(tarn_device_memory_get(1, &free_bytes, &total_bytes));
    CHECK(free_bytes == 64 * MIB && total_bytes == 64 * MIB);
    OK(tarn_device_set(1));
    void *pointer = tarn_malloc(20 * MIB);
    CHECK(pointer);
    OK(tarn_free(pointer));
    OK(tarn_device_memory_get(1, &free_bytes, &total_bytes));
    CHECK(free_bytes == 44 * MIB && total_bytes == 64 * MIB);
    OK(tarn_device_trim(1, 0));
    OK(tarn_device_memory_get(1, &free_bytes, &total_bytes));
    CHECK(free_bytes == 64 * MIB);
    OK(tarn_device_set(0));
    GIVES(tarn_device_memory_get(1, NULL, &total_bytes), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_device_memory_get(1, &free_bytes, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void synchronizing_a_device_waits_for_it_alone(void **state)
{
    (void)state;
    tarn_stream first = lease(0), second = lease(1);
    work_on(first, NULL, 0, 1000);
    work_on(second, NULL, 0, 5000);
    OK(tarn_device_synchronize(0));
    OK(tarn_stream_query(first));
    GIVES(tarn_stream_query(second), TARN_ERROR_NOT_READY);
    OK(tarn_device_synchronize(1));
    OK(tarn_stream_query(second));
    OK(tarn_stream_return(first));
    OK(tarn_stream_return(second));
}

/* A lost device stays lost, so this happens in a child. */
static void lose_a_device(void)
{
    tarn_stream stream = lease(0), returned = lease(0);
    OK(tarn_stream_return(returned));
    void *kept = alloc_on(stream, 1000), *pointer = &stream;
    OK(tarn_host_fail_set(kind_of("create"), 1, false, TARN_ERROR_DEVICE_LOST));
    GIVES(tarn_alloc_on(stream, 30 * MIB, &pointer), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_alloc_on(stream, 30 * MIB, &pointer), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_alloc_on(stream, 10, &pointer), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_device_synchronize(0), TARN_ERROR_DEVICE_LOST);
    GIVES(tarn_stream_lease(0, 0, &returned), TARN_ERROR_DEVICE_LOST);
    CHECK(pointer == (void *)&stream);
    OK(tarn_free(kept)); /* book-keeping only */
    OK(tarn_free(alloc_on(lease(1), 30 * MIB)));
}

static void after_a_sticky_error_calls_on_that_device_are_refused_and_on_others_not(void **state)
{
    (void)state;
    in_child(lose_a_device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_sticky_error_calls_on_that_device_are_refused_and_on_others_not),
        cmocka_unit_test(devices_are_counted_and_described),
        cmocka_unit_test(the_current_device_is_set_and_exchanged),
        cmocka_unit_test(wrong_numbers_are_refused_and_change_nothing),
        cmocka_unit_test(every_thread_has_its_own_current_device),
        cmocka_unit_test(a_device_switched_by_another_api_is_adopted),
        cmocka_unit_test(guards_nest_like_brackets_and_restore_once),
        cmocka_unit_test(a_restore_that_failed_can_be_tried_again),
        cmocka_unit_test(what_fails_to_become_current_leaves_the_device_as_it_was),
        cmocka_unit_test(asking_makes_no_context),
        cmocka_unit_test(memory_in_reserve_counts_as_used),
        cmocka_unit_test(synchronizing_a_device_waits_for_it_alone),
    };
    host_start_with(DEVICES, 64 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
