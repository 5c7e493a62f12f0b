/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "device/stream.h"
#include "support/host.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static tarn_stream current(int device)
{
    tarn_stream stream = 0;
    OK(tarn_stream_get(device, &stream));
    return stream;
}

static tarn_stream_info stream_info(tarn_stream stream)
{
    tarn_stream_info info = {.size = sizeof info, .device = -1, .priority = 77};
    OK(tarn_stream_info_get(stream, &info));
    return info;
}

static int priority_of(tarn_stream stream)
{
    return stream_info(stream).priority;
}

static int device_of(tarn_stream stream)
{
    return stream_info(stream).device;
}

static tarn_stream from_pool(int device, int priority)
{
    tarn_stream stream = 0;
    OK(tarn_stream_shared_get(device, priority, &stream));
    return stream;
}

static void *run(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, function, argument), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return result;
}

static void pool_hands_out_32_streams_a_priority_and_device_in_turn(void **state)
{
    (void)state;
    tarn_stream all[2][4][TARN_STREAM_SHARED_COUNT];
    for (int i = 0; i < TARN_STREAM_SHARED_COUNT; i++)
        for (int device = 0; device < 2; device++)
            for (int level = 0; level < 4; level++)
                all[device][level][i] = from_pool(device, -level);
    tarn_stream *flat = &all[0][0][0];
    for (int i = 0; i < 2 * 4 * TARN_STREAM_SHARED_COUNT; i++)
        for (int k = 0; k < i; k++)
            CHECK(flat[i] != flat[k] && native_of(flat[i]) != native_of(flat[k]));
    for (int device = 0; device < 2; device++) {
        for (int level = 0; level < 4; level++) {
            for (int i = 0; i < TARN_STREAM_SHARED_COUNT; i++) {
                CHECK(device_of(all[device][level][i]) == device &&
                      priority_of(all[device][level][i]) == -level);
                /* The 33rd is the first again */
                CHECK(from_pool(device, -level) == all[device][level][i]);
            }
        }
    }
}

static void priorities_below_the_greatest_are_the_greatest_and_above_0_refused(void **state)
{
    (void)state;
    tarn_stream stream = 77;
    CHECK(priority_of(from_pool(0, -4)) == -3);
    CHECK(priority_of(from_pool(0, -1000000)) == -3);
    OK(tarn_stream_lease(0, -2147483647 - 1, &stream));
    CHECK(priority_of(stream) == -3);
    OK(tarn_stream_return(stream));
    stream = 77;
    GIVES(tarn_stream_shared_get(0, 1, &stream), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_lease(0, 1, &stream), TARN_ERROR_INVALID_ARGUMENT);
    CHECK(stream == 77);
    GIVES(tarn_stream_shared_get(0, 0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_lease(0, 0, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void a_leased_stream_is_nobody_elses_until_it_is_returned(void **state)
{
    (void)state;
    tarn_stream leased[100];
    for (int i = 0; i < 100; i++) {
        leased[i] = lease(0);
        for (int k = 0; k < i; k++)
            CHECK(leased[i] != leased[k]);
    }
    for (int i = 0; i < 2 * TARN_STREAM_SHARED_COUNT; i++) {
        tarn_stream pooled = from_pool(0, 0);
        for (int k = 0; k < 100; k++)
            CHECK(pooled != leased[k]);
    }
    uint64_t made = calls_of(0, "stream_create");
    work_on(leased[7], NULL, 0, 1000);
    const void *native = native_of(leased[7]);
    OK(tarn_stream_return(leased[7])); /* does not wait */
    leased[7] = lease(0);
    CHECK(native_of(leased[7]) == native);
    GIVES(tarn_stream_query(leased[7]), TARN_ERROR_NOT_READY);
    CHECK(calls_of(0, "stream_create") == made);
    for (int i = 0; i < 100; i++)
        OK(tarn_stream_return(leased[i]));
    time_pass(1000);
}

static void a_lease_has_the_priority_that_was_asked_for(void **state)
{
    (void)state;
    tarn_stream low = lease(1), high = 0, again = 0;
    OK(tarn_stream_lease(1, -2, &high));
    CHECK(priority_of(high) == -2 && priority_of(low) == 0);
    const void *native = native_of(high);
    OK(tarn_stream_return(high));
    CHECK(native_of(lease(1)) != native);
    OK(tarn_stream_lease(1, -2, &again));
    CHECK(native_of(again) == native);
}

static void what_is_not_on_lease_cannot_be_returned(void **state)
{
    (void)state;
    tarn_stream leased = lease(0), adopted = 0;
    void *native = native_of(leased);
    OK(tarn_stream_return(leased));
    GIVES(tarn_stream_return(leased), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_return(from_pool(0, 0)), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_return(TARN_STREAM_LEGACY), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_return(TARN_STREAM_PER_THREAD), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    GIVES(tarn_stream_return(adopted), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_stream_retire(adopted));
    CHECK(native_of(lease(0)) == native); /* refused returns put nothing into the list */
    CHECK(native_of(lease(0)) != native);
}

/* The stream goes on, with its memory; the value of an earlier lease names nothing, whatever a
 * thread remembers of it. */
static void a_value_ends_with_its_lease(void **state)
{
    (void)state;
    tarn_stream first = lease(0), second = 0, current = 0;
    void *native = native_of(first), *small = NULL, *large = NULL, *again = NULL;
    tarn_block_info info = {.size = sizeof info};
    OK(tarn_stream_set(first));
    for (int i = 0; i < 3; i++) {
        OK(tarn_free(small)); /* so that the thread knows the way */
        OK(tarn_free(large));
        OK(tarn_alloc_on(first, 1000, &small));
        CHECK((large = tarn_malloc(4 << 20)));
    }
    work_on(first, NULL, 0, 1000);
    OK(tarn_stream_return(first));
    for (int i = 0; i < 2; i++) { /* returned, and on lease again */
        GIVES(tarn_alloc_on(first, 1000, &again), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_alloc_on(first, 4 << 20, &again), TARN_ERROR_INVALID_STREAM);
        CHECK(!tarn_malloc(1000) && !tarn_malloc(4 << 20));
        CHECK(strstr(tarn_last_error(), "was returned"));
        GIVES(tarn_free_on(small, first), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_stream_query(first), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_stream_return(first), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_stream_set(first), TARN_ERROR_INVALID_STREAM);
        GIVES(tarn_stream_get(0, &current), TARN_ERROR_INVALID_STREAM);
        if (i == 0)
            second = lease(0);
    }
    CHECK(second != first && native_of(second) == native);
    GIVES(tarn_stream_query(second), TARN_ERROR_NOT_READY);
    OK(tarn_pointer_info_get(large, &info));
    CHECK(info.stream == second);
    OK(tarn_free(large));
    OK(tarn_alloc_on(second, 4 << 20, &again));
    CHECK(again == large); /* behind the work of the lease before */
    OK(tarn_free(again));
    OK(tarn_free(small));
    OK(tarn_stream_set(TARN_STREAM_LEGACY));
    OK(tarn_stream_return(second));
    time_pass(1000);
}

/* Of two threads that return one lease, the second returns no lease of a third's. */
static void only_its_own_lease_is_returned(void **state)
{
    (void)state;
    tarn_stream first = lease(0);
    OK(tarn_stream_return(first));
    tarn_stream second = lease(0);
    GIVES(tarn_stream_return(first), TARN_ERROR_INVALID_STREAM);
    OK(tarn_stream_query(second));
    OK(tarn_stream_return(second));
}

static void a_stream_adopted_twice_is_one_and_is_retired_as_often(void **state)
{
    (void)state;
    void *native = native_made(0);
    tarn_stream first = 0, second = 0, other = 0;
    OK(tarn_stream_adopt(0, native, &first));
    OK(tarn_stream_adopt(0, native, &second));
    /* It is none of another device's */
    GIVES(tarn_stream_adopt(1, native, &other), TARN_ERROR_INVALID_STREAM);
    CHECK(first == second && !other && native_of(first) == native);
    OK(tarn_stream_retire(first));
    CHECK(native_of(second) == native);
    OK(tarn_stream_retire(first));
    GIVES(tarn_stream_retire(first), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_adopt(0, native, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void a_retired_value_is_never_valid_again(void **state)
{
    (void)state;
    void *native = native_made(0), *pointer = NULL;
    tarn_stream values[50];
    for (int i = 0; i < 50; i++) {
        OK(tarn_stream_adopt(0, native, &values[i]));
        for (int k = 0; k < i; k++) {
            CHECK(values[i] != values[k]);
            GIVES(tarn_stream_native_get(values[k], &pointer), TARN_ERROR_INVALID_STREAM);
        }
        OK(tarn_stream_retire(values[i]));
    }
    tarn_stream stale = values[0];
    tarn_stream_info info = {.size = sizeof info};
    tarn_guard guard = {0};
    tarn_event *event = NULL;
    OK(tarn_event_create(0, &event));
    GIVES(tarn_stream_set(stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_retire(stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_return(stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_info_get(stale, &info), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_query(stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_synchronize(stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_guard_set(&guard, stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_event_record(event, stale), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_wait(stale, event), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_alloc_on(stale, 10, &pointer), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_alloc_on((tarn_stream)0xfffffff0, 10, &pointer), TARN_ERROR_INVALID_STREAM);
    CHECK(!pointer && !guard.active);
    OK(tarn_event_destroy(event));
}

static void streams_of_tarns_own_cannot_be_retired_and_null_is_the_legacy_stream(void **state)
{
    (void)state;
    tarn_stream legacy = 77;
    GIVES(tarn_stream_retire(from_pool(0, 0)), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_retire(lease(0)), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_retire(TARN_STREAM_LEGACY), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_retire(TARN_STREAM_PER_THREAD), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_stream_adopt(1, NULL, &legacy));
    CHECK(device_of(legacy) == 1 && !native_of(legacy) && legacy == current(1));
    OK(tarn_stream_retire(legacy)); /* nothing was entered, so nothing leaves */
    CHECK(device_of(legacy) == 1);
}

static void a_slot_is_used_again_only_when_the_work_of_its_stream_has_finished(void **state)
{
    (void)state;
    tarn_stream busy = 0, fresh = 0;
    void *native = native_made(0);
    OK(tarn_stream_adopt(0, native, &busy));
    work_on(busy, NULL, 0, 5000);
    OK(tarn_stream_retire(busy));
    for (int i = 0; i < 2000; i++) { /* more than there are slots to look at */
        OK(tarn_stream_adopt(0, native, &fresh));
        CHECK((fresh & 0xffffffff) != (busy & 0xffffffff));
        OK(tarn_stream_retire(fresh));
    }
    time_pass(5000);
    bool reused = false;
    for (int i = 0; i < 2000 && !reused; i++) {
        OK(tarn_stream_adopt(0, native, &fresh));
        reused = (fresh & 0xffffffff) == (busy & 0xffffffff);
        OK(tarn_stream_retire(fresh));
    }
    CHECK(reused && fresh != busy);
}

static void retiring_that_fails_leaves_the_stream_as_it_was(void **state)
{
    (void)state;
    tarn_stream adopted = 0, again = 0;
    OK(tarn_stream_adopt(0, native_made(0), &adopted));
    void *block = alloc_on(adopted, 1000);
    OK(tarn_host_fail_set(kind_of("event_record"), 1, true, TARN_ERROR_DRIVER));
    GIVES(tarn_stream_retire(adopted), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(kind_of("event_record"), 2, true, TARN_ERROR_DRIVER)); /* the heap's */
    GIVES(tarn_stream_retire(adopted), TARN_ERROR_DRIVER);
    OK(tarn_host_fail_set(-1, 0, false, TARN_OK));
    OK(tarn_stream_adopt(0, native_of(adopted), &again));
    CHECK(again == adopted);
    OK(tarn_free(block));
    OK(tarn_stream_retire(adopted));
    OK(tarn_stream_retire(adopted));
    GIVES(tarn_stream_query(adopted), TARN_ERROR_INVALID_STREAM);
    nothing_is_left(0);
}

static void the_current_stream_is_one_a_thread_and_device(void **state)
{
    (void)state;
    tarn_stream first = from_pool(0, 0), second = from_pool(1, 0),
                legacy[2] = {current(0), current(1)};
    CHECK(!native_of(legacy[0]) && device_of(legacy[0]) == 0 && device_of(legacy[1]) == 1);
    OK(tarn_stream_set(second));
    CHECK(current(0) == legacy[0] && current(1) == second);
    int device = -1;
    OK(tarn_device_get(&device));
    CHECK(device == 0); /* setting a stream of another device leaves the current one */
    OK(tarn_stream_set(first));
    CHECK(current(0) == first && current(1) == second);

    tarn_block_info info = {.size = sizeof info};
    void *block = tarn_malloc(10);
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.stream == first && info.device == 0);
    OK(tarn_free(block));
    OK(tarn_device_set(1));
    block = tarn_malloc(10);
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.stream == second && info.device == 1);
    OK(tarn_free(block));
    OK(tarn_stream_set(TARN_STREAM_LEGACY)); /* of the current device */
    CHECK(current(0) == first && current(1) == legacy[1]);
    OK(tarn_device_set(0));
    OK(tarn_stream_set(TARN_STREAM_LEGACY));
    CHECK(current(0) == legacy[0]);
    GIVES(tarn_stream_get(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_set((tarn_stream)0xfffffff0), TARN_ERROR_INVALID_STREAM);
}

/* Wherever a call takes a stream; with no stream in particular, nowhere here. */
static void the_current_stream_has_a_constant(void **state)
{
    (void)state;
    tarn_block_info info = {.size = sizeof info};
    tarn_stream leased = 0, adopted = 0;
    void *block = NULL;
    OK(tarn_stream_lease(1, 0, &leased));
    OK(tarn_device_set(1));
    OK(tarn_stream_set(leased));
    CHECK(device_of(TARN_STREAM_CURRENT) == 1 &&
          native_of(TARN_STREAM_CURRENT) == native_of(leased));
    OK(tarn_alloc_on(TARN_STREAM_CURRENT, 10, &block));
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.stream == leased);
    OK(tarn_free_on(block, TARN_STREAM_CURRENT));
    tarn_alloc_options options = {
        .size = sizeof options, .device = 0, .stream = TARN_STREAM_CURRENT};
    OK(tarn_alloc(&options, 10, &block)); /* the current one of that device */
    OK(tarn_pointer_info_get(block, &info));
    CHECK(info.device == 0 && info.stream == current(0));
    OK(tarn_free(block));
    GIVES(tarn_stream_retire(TARN_STREAM_CURRENT), TARN_ERROR_INVALID_ARGUMENT);
    OK(tarn_stream_return(TARN_STREAM_CURRENT));
    GIVES(tarn_stream_query(leased), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_stream_query(TARN_STREAM_CURRENT), TARN_ERROR_INVALID_STREAM);
    OK(tarn_stream_adopt(1, native_made(1), &adopted));
    OK(tarn_stream_set(adopted));
    OK(tarn_stream_retire(TARN_STREAM_CURRENT));
    GIVES(tarn_stream_query(adopted), TARN_ERROR_INVALID_STREAM);
    OK(tarn_stream_set(TARN_STREAM_LEGACY));
    GIVES(tarn_stream_query(TARN_STREAM_NONE), TARN_ERROR_INVALID_STREAM);
    GIVES(tarn_alloc_on(TARN_STREAM_NONE, 10, &block), TARN_ERROR_INVALID_STREAM);
    OK(tarn_device_set(0));
}

static void stream_guards_restore_stream_and_device_like_brackets(void **state)
{
    (void)state;
    tarn_stream first = from_pool(1, 0), second = from_pool(1, 0), third = from_pool(0, 0);
    tarn_stream legacy[2] = {current(0), current(1)};
    tarn_guard a, b, c;
    int device = -1;
    OK(tarn_stream_guard_set(&a, first));
    OK(tarn_stream_guard_set(&b, third));
    OK(tarn_stream_guard_set(&c, second));
    OK(tarn_device_get(&device));
    CHECK(device == 1 && current(0) == third && current(1) == second);
    OK(tarn_guard_restore(&c));
    OK(tarn_device_get(&device));
    CHECK(device == 0 && current(0) == third && current(1) == first);
    OK(tarn_guard_restore(&b));
    OK(tarn_device_get(&device));
    CHECK(device == 1 && current(0) == legacy[0] && current(1) == first);
    OK(tarn_guard_restore(&a));
    OK(tarn_guard_restore(&a)); /* a second time: nothing */
    OK(tarn_device_get(&device));
    CHECK(device == 0 && current(1) == legacy[1]);
    GIVES(tarn_stream_guard_set(NULL, first), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_guard_restore(NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void *own_default_stream(void *argument)
{
    tarn_stream *result = argument, legacy = current(0);
    OK(tarn_stream_set(TARN_STREAM_PER_THREAD));
    *result = current(0);
    CHECK(*result != legacy && native_of(*result));
    OK(tarn_stream_set(TARN_STREAM_LEGACY));
    CHECK(native_of(TARN_STREAM_PER_THREAD) == native_of(*result));
    work_on(*result, NULL, 0, 1000);
    return NULL;
}

static void a_per_thread_stream_belongs_to_its_thread_until_that_ends(void **state)
{
    (void)state;
    tarn_stream ours = 0, theirs = 0, later = 0;
    own_default_stream(&ours);
    run(own_default_stream, &theirs);
    CHECK(ours != theirs);
    GIVES(tarn_stream_query(theirs), TARN_ERROR_NOT_READY); /* a value that any thread can use */
    uint64_t made = calls_of(0, "stream_create");
    for (int i = 0; i < 20; i++) {
        run(own_default_stream, &later);
        CHECK(later == theirs);
    }
    CHECK(calls_of(0, "stream_create") == made);
    OK(tarn_device_synchronize(0));
}

static void *end_without_calls(void *argument)
{
    tarn_stream stream = 0;
    own_default_stream(&stream);
    OK(tarn_free(alloc_on(TARN_STREAM_PER_THREAD, 100)));
    *(uint64_t *)argument = all_calls(0);
    return NULL;
}

static void the_end_of_a_thread_makes_no_driver_call(void **state)
{
    (void)state;
    uint64_t before = 0;
    run(end_without_calls, &before);
    CHECK(all_calls(0) == before);
}

static void streams_are_asked_and_waited_for(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    OK(tarn_stream_query(stream));
    work_on(stream, NULL, 0, 3000);
    GIVES(tarn_stream_query(stream), TARN_ERROR_NOT_READY);
    uint64_t before = time_now(), waited = ledger_of(0).waited_ns;
    OK(tarn_stream_synchronize(stream));
    CHECK(time_now() == before + 3000 && ledger_of(0).waited_ns == waited + 3000);
    OK(tarn_stream_query(stream));
    GIVES(tarn_stream_native_get(stream, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_info_get(stream, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

#define ROUNDS 3000
static void *shared_native;

static void *adopt_and_retire(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        tarn_stream stream = 0;
        OK(tarn_stream_adopt(0, shared_native, &stream));
        CHECK(device_of(stream) == 0);
        CHECK(native_of(stream) == shared_native);
        OK(tarn_stream_retire(stream));
    }
    return argument;
}

static void an_adoption_holds_while_other_threads_retire_theirs(void **state)
{
    (void)state;
    pthread_t threads[4];
    shared_native = native_made(0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, adopt_and_retire, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static pthread_barrier_t barrier;

static void *take_a_third(void *argument)
{
    tarn_stream *result = argument;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < TARN_STREAM_SHARED_COUNT; i++)
        result[i] = from_pool(1, -1);
    return NULL;
}

/* Before the pool of this device and priority is full; runs in a child, as the others fill it. */
static void fill_the_pool_from_three_threads(void)
{
    tarn_stream all[3][TARN_STREAM_SHARED_COUNT], pool[TARN_STREAM_SHARED_COUNT];
    pthread_t threads[3];
    CHECK(pthread_barrier_init(&barrier, NULL, 3) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, take_a_third, all[i]) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < TARN_STREAM_SHARED_COUNT; i++)
        pool[i] = from_pool(1, -1);
    for (int i = 0; i < 3 * TARN_STREAM_SHARED_COUNT; i++) {
        bool found = false;
        for (int k = 0; k < TARN_STREAM_SHARED_COUNT; k++)
            found =
                found || pool[k] == all[i / TARN_STREAM_SHARED_COUNT][i % TARN_STREAM_SHARED_COUNT];
        CHECK(found);
    }
}

static void threads_that_fill_the_pool_at_once_share_32_streams(void **state)
{
    (void)state;
    in_child(fill_the_pool_from_three_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_fill_the_pool_at_once_share_32_streams),
        cmocka_unit_test(pool_hands_out_32_streams_a_priority_and_device_in_turn),
        cmocka_unit_test(priorities_below_the_greatest_are_the_greatest_and_above_0_refused),
        cmocka_unit_test(a_leased_stream_is_nobody_elses_until_it_is_returned),
        cmocka_unit_test(a_lease_has_the_priority_that_was_asked_for),
        cmocka_unit_test(what_is_not_on_lease_cannot_be_returned),
        cmocka_unit_test(a_value_ends_with_its_lease),
        cmocka_unit_test(only_its_own_lease_is_returned),
        cmocka_unit_test(a_stream_adopted_twice_is_one_and_is_retired_as_often),
        cmocka_unit_test(a_retired_value_is_never_valid_again),
        cmocka_unit_test(streams_of_tarns_own_cannot_be_retired_and_null_is_the_legacy_stream),
        cmocka_unit_test(a_slot_is_used_again_only_when_the_work_of_its_stream_has_finished),
        cmocka_unit_test(retiring_that_fails_leaves_the_stream_as_it_was),
        cmocka_unit_test(the_current_stream_is_one_a_thread_and_device),
        cmocka_unit_test(the_current_stream_has_a_constant),
        cmocka_unit_test(stream_guards_restore_stream_and_device_like_brackets),
        cmocka_unit_test(a_per_thread_stream_belongs_to_its_thread_until_that_ends),
        cmocka_unit_test(the_end_of_a_thread_makes_no_driver_call),
        cmocka_unit_test(streams_are_asked_and_waited_for),
        cmocka_unit_test(an_adoption_holds_while_other_threads_retire_theirs),
    };
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
