/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A capture that is not relaxed must go on beside calls of tarn that fail at each of their driver
 * calls. */
#include "driver/driver.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void fail_at(unsigned nth)
{
    if (machine->fail)
        (machine->fail)(nth, false, 304);
    else
        OK(tarn_host_fail_set(-1, nth, false, nth ? TARN_ERROR_DRIVER : TARN_OK));
}

static void make_calls(tarn_stream stream, unsigned nth)
{
    void *block = NULL;
    tarn_event *event = NULL;
    fail_at(nth);
    if (tarn_alloc_on(stream, (4 + nth) * MIB, &block) == TARN_OK)
        OK(tarn_free(block));
    fail_at(nth);
    if (tarn_event_create(0, &event) == TARN_OK) {
        fail_at(nth);
        (void)tarn_event_query(event);
        (void)tarn_event_destroy(event);
    }
    fail_at(nth);
    (void)tarn_pinned_trim(0);
    fail_at(0);
}

static void it_goes_on_in(tarn_capture_mode mode)
{
    tarn_capture_state state = TARN_CAPTURE_NONE;
    void *graph = NULL;
    host_start_with(1, 512 * MIB);
    tarn_stream captures = lease(0), other = lease(0);
    OK(tarn_free(alloc_on(other, 100)));
    OK(tarn_capture_begin(captures, mode));
    for (unsigned nth = 1; nth <= 16; nth++) {
        make_calls(other, nth);
        OK(tarn_capture_state_get(captures, &state, NULL, NULL));
        CHECK(state == TARN_CAPTURE_ACTIVE);
    }
    OK(tarn_capture_end(captures, &graph));
    OK(driver->graph_destroy(0, graph));
}

static void in_global(void)
{
    it_goes_on_in(TARN_CAPTURE_GLOBAL);
}

static void in_thread_local(void)
{
    it_goes_on_in(TARN_CAPTURE_THREAD_LOCAL);
}

static void captures_go_on_beside_failures(void **state)
{
    (void)state;
    in_child(in_global);
    in_child(in_thread_local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(captures_go_on_beside_failures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
