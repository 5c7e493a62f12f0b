/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static tarn_event *event_on(int device)
{
    tarn_event *event = NULL;
    OK(tarn_event_create(device, &event));
    return event;
}

static void an_event_that_was_never_recorded_counts_as_finished(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_event *event = event_on(0);
    uint64_t calls = all_calls(0);
    OK(tarn_event_query(event));
    OK(tarn_event_synchronize(event));
    OK(tarn_stream_wait(stream, event));
    OK(tarn_event_destroy(event));
    CHECK(all_calls(0) == calls);
    OK(tarn_event_destroy(NULL));
    OK(tarn_stream_return(stream));
}

static void an_event_ends_with_the_work_before_it_and_not_with_later_work(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_event *event = event_on(0);
    work_on(stream, NULL, 0, 1000);
    OK(tarn_event_record(event, stream));
    work_on(stream, NULL, 0, 9000);
    GIVES(tarn_event_query(event), TARN_ERROR_NOT_READY);
    time_pass(999);
    GIVES(tarn_event_query(event), TARN_ERROR_NOT_READY);
    time_pass(1);
    OK(tarn_event_query(event));
    GIVES(tarn_stream_query(stream), TARN_ERROR_NOT_READY);
    uint64_t queries = calls_of(0, "event_query");
    OK(tarn_event_query(event)); /* finished is finished: nobody is asked again */
    OK(tarn_event_synchronize(event));
    CHECK(calls_of(0, "event_query") == queries);
    OK(tarn_event_destroy(event));
    OK(tarn_stream_synchronize(stream));
    OK(tarn_stream_return(stream));
}

static void recording_anew_takes_the_place_of_the_earlier_recording(void **state)
{
    (void)state;
    tarn_stream first = lease(0), second = lease(0), waiting = lease(0);
    tarn_event *event = event_on(0);
    work_on(first, NULL, 0, 5000);
    OK(tarn_event_record(event, first));
    OK(tarn_stream_wait(waiting, event)); /* of the recording that there is now */
    OK(tarn_event_record(event, second)); /* nothing is queued there */
    OK(tarn_event_query(event));
    GIVES(tarn_stream_query(waiting), TARN_ERROR_NOT_READY);
    work_on(second, NULL, 0, 1000);
    OK(tarn_event_record(event, second));
    uint64_t before = time_now();
    OK(tarn_event_synchronize(event));
    CHECK(time_now() == before + 1000);
    OK(tarn_stream_synchronize(waiting));
    CHECK(time_now() == before + 5000);
    OK(tarn_event_destroy(event));
    OK(tarn_stream_return(first));
    OK(tarn_stream_return(second));
    OK(tarn_stream_return(waiting));
}

static void a_stream_waits_for_an_event_of_another_stream_or_device(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        tarn_stream from = lease(0), to = lease(device);
        tarn_event *event = event_on(0);
        uint64_t start = time_now();
        work_on(from, NULL, 0, 4000);
        OK(tarn_event_record(event, from));
        OK(tarn_stream_wait(to, event));
        OK(tarn_event_destroy(event)); /* at once: the wait stays */
        work_on(to, NULL, 0, 1);
        OK(tarn_stream_synchronize(to));
        CHECK(time_now() >= start + 4000);
        OK(tarn_stream_query(from));
        OK(tarn_stream_return(from));
        OK(tarn_stream_return(to));
    }
}

static void an_event_is_recorded_on_streams_of_its_own_device_alone(void **state)
{
    (void)state;
    tarn_event *event = event_on(1);
    GIVES(tarn_event_record(event, lease(0)), TARN_ERROR_INVALID_STREAM);
    OK(tarn_event_query(event));
    OK(tarn_event_record(event, TARN_STREAM_LEGACY)); /* of the event's device, whatever is
                                                         current */
    OK(tarn_event_record(event, TARN_STREAM_PER_THREAD));
    OK(tarn_event_record(event, lease(1)));
    OK(tarn_event_synchronize(event));
    OK(tarn_event_destroy(event));
    GIVES(tarn_event_create(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_event_record(NULL, 0), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_event_query(NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_event_synchronize(NULL), TARN_ERROR_INVALID_ARGUMENT);
    GIVES(tarn_stream_wait(0, NULL), TARN_ERROR_INVALID_ARGUMENT);
}

static void a_recording_that_failed_leaves_the_earlier_one(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    tarn_event *event = event_on(0);
    work_on(stream, NULL, 0, 1000);
    OK(tarn_event_record(event, stream));
    OK(tarn_host_fail_set(kind_of("event_record"), 1, false, TARN_ERROR_DRIVER));
    GIVES(tarn_event_record(event, lease(0)), TARN_ERROR_DRIVER);
    GIVES(tarn_event_query(event), TARN_ERROR_NOT_READY);
    time_pass(1000);
    OK(tarn_event_query(event));
    OK(tarn_event_destroy(event));
    OK(tarn_stream_return(stream));
}

static void an_event_destroyed_while_a_freed_block_waits_for_it_still_holds_the_block(void **state)
{
    (void)state;
    tarn_stream own = lease(0), other = lease(0);
    tarn_event *event = event_on(0);
    void *block = alloc_on(own, 3 * MIB);
    work_on(other, block, MIB, 5000);
    OK(tarn_event_record(event, other));
    OK(tarn_free_after(block, event));
    OK(tarn_event_destroy(event));
    event = event_on(0); /* perhaps with the same driver event */
    OK(tarn_event_record(event, own));
    OK(tarn_event_query(event));
    void *second = alloc_on(own, 3 * MIB);
    CHECK(second != block);
    time_pass(5000);
    OK(tarn_free(second));
    OK(tarn_event_destroy(event));
    nothing_is_left(0);
    OK(tarn_stream_return(own));
    OK(tarn_stream_return(other));
}

static void driver_events_are_used_again(void **state)
{
    (void)state;
    tarn_stream stream = lease(0);
    uint64_t made = 0;
    for (int i = 0; i < 1000; i++) {
        tarn_event *event = event_on(0);
        OK(tarn_event_record(event, stream));
        OK(tarn_event_record(event, stream));
        OK(tarn_event_destroy(event));
        if (i == 0)
            made = calls_of(0, "event_create");
    }
    CHECK(calls_of(0, "event_create") == made);
    OK(tarn_stream_return(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_that_was_never_recorded_counts_as_finished),
        cmocka_unit_test(an_event_ends_with_the_work_before_it_and_not_with_later_work),
        cmocka_unit_test(recording_anew_takes_the_place_of_the_earlier_recording),
        cmocka_unit_test(a_stream_waits_for_an_event_of_another_stream_or_device),
        cmocka_unit_test(an_event_is_recorded_on_streams_of_its_own_device_alone),
        cmocka_unit_test(a_recording_that_failed_leaves_the_earlier_one),
        cmocka_unit_test(an_event_destroyed_while_a_freed_block_waits_for_it_still_holds_the_block),
        cmocka_unit_test(driver_events_are_used_again),
    };
    host_start_with(2, 256 * MIB);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
