/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory of the host device: what it refuses, its ledger and its costs, captures, and what
 * the checker says. */
#include "driver/host/host.h"
#include "host_test.h"

#include <stdio.h>

#define PAGE 4096u

static _Alignas(4096) char own[4 * PAGE];

#define REFUSED(call, part) assert_refused((call), TARN_ERROR_INVALID_ARGUMENT, (part))

static void what_is_not_right_is_refused(void **state)
{
    (void)state;
    uintptr_t pinned = 7, start = (uintptr_t)own;
    REFUSED(driver->host_alloc(0, 0, &pinned), "0 bytes");
    assert_status(driver->host_alloc(0, SIZE_MAX, &pinned), TARN_ERROR_OUT_OF_MEMORY);
    assert_status(driver->host_alloc(2, 1, &pinned), TARN_ERROR_INVALID_DEVICE);
    assert_int_equal(pinned, 7);
    assert_ok(driver->host_alloc(0, 1, &pinned));
    assert_int_equal(pinned % PAGE, 0);
    REFUSED(driver->host_free(0, pinned + PAGE), "not the start of what was allocated");
    REFUSED(driver->host_unregister(0, pinned), "not the start of what was registered");
    REFUSED(driver->host_register(0, pinned, PAGE), "pinned already");
    assert_ok(driver->host_free(1, pinned)); /* whichever device */
    REFUSED(driver->host_free(0, pinned), "not the start");
    REFUSED(driver->host_register(0, pinned, PAGE), "Cannot allocate memory"); /* it is gone */

    REFUSED(driver->host_register(0, start, 0), "whole pages");
    REFUSED(driver->host_register(0, start + 1, PAGE), "whole pages");
    REFUSED(driver->host_register(0, start, PAGE + 1), "whole pages");
    REFUSED(driver->host_register(0, start, SIZE_MAX - PAGE + 1), "whole pages");
    assert_ok(driver->host_register(0, start + PAGE, PAGE));
    REFUSED(driver->host_register(0, start, 2 * PAGE), "pinned already");
    REFUSED(driver->host_register(0, start + PAGE, PAGE), "pinned already");
    assert_ok(driver->host_register(0, start, PAGE));
    assert_ok(driver->host_register(1, start + 2 * PAGE, PAGE));
    REFUSED(driver->host_free(0, start), "not the start of what was allocated");
    for (unsigned i = 0; i < 3; i++)
        assert_ok(driver->host_unregister(0, start + i * PAGE));
    REFUSED(driver->host_unregister(0, start), "not the start");
}

static void the_ledger_adds_up(void **state)
{
    (void)state;
    uintptr_t a = 0, b = 0;
    uint64_t cost[2];
    bool active = false;
    assert_ok(tarn_host_cost_get('A', DRIVER_CALL_host_alloc, MIB, 1, &cost[0]));
    assert_ok(tarn_host_cost_get('A', DRIVER_CALL_host_register, PAGE, 1, &cost[1]));
    assert_true(cost[0] > cost[1] && cost[1] > 0);
    assert_ok(driver->host_alloc(0, MIB, &a));
    assert_int_equal(ledger_of(0).time_a_ns, cost[0]);
    assert_ok(driver->host_alloc(1, 100, &b));
    assert_ok(driver->host_register(0, (uintptr_t)own, PAGE));
    assert_int_equal(ledger_of(0).time_a_ns, cost[0] + cost[1]);
    assert_int_equal(ledger_of(0).pinned, 2);
    assert_int_equal(ledger_of(0).pinned_bytes, MIB + PAGE);
    assert_int_equal(ledger_of(1).pinned_bytes, PAGE);
    assert_int_equal(ledger_of(0).created, 0); /* it is not the device's memory */
    assert_ok(driver->host_free(0, a));
    assert_ok(driver->host_unregister(0, (uintptr_t)own));
    assert_int_equal(ledger_of(0).pinned + ledger_of(0).pinned_bytes, 0);
    assert_int_equal(ledger_of(0).pinned_peak, MIB + PAGE);
    assert_ok(tarn_host_ledger_reset(0));
    assert_int_equal(ledger_of(0).pinned_peak, 0);
    assert_int_equal(ledger_of(1).pinned, 1); /* and goes with the device */
    assert_ok(driver->is_active(1, &active));
    assert_true(active);

    assert_ok(tarn_host_fail_set(DRIVER_CALL_host_alloc, 1, false, TARN_ERROR_DRIVER));
    assert_status(driver->host_alloc(0, MIB, &a), TARN_ERROR_DRIVER);
    assert_ok(driver->host_alloc(0, MIB, &a));
    assert_ok(driver->host_free(0, a));
}

static void the_budget_of_mappings_holds_for_it(void **state)
{
    (void)state;
    uintptr_t pinned[21];
    start_with(1, 64 * MIB, 20);
    for (int i = 0; i < 20; i++)
        assert_ok(driver->host_alloc(0, PAGE, &pinned[i]));
    assert_status(driver->host_alloc(0, PAGE, &pinned[20]), TARN_ERROR_MAPPING_LIMIT);
    assert_ok(driver->host_free(0, pinned[3]));
    assert_ok(driver->host_alloc(0, PAGE, &pinned[3]));
    for (int i = 0; i < 20; i++)
        assert_ok(driver->host_free(0, pinned[i]));
}

static int reports;
static char report_text[640];

static void count_report(const char *text, void *user)
{
    (void)user;
    reports++;
    snprintf(report_text, sizeof report_text, "%s", text);
}

static void a_free_of_what_work_uses_is_reported(void **state)
{
    (void)state;
    uintptr_t pinned = 0;
    driver_stream stream = new_stream(0, false);
    assert_ok(tarn_host_check_set(true, count_report, NULL));
    assert_ok(driver->host_alloc(0, MIB, &pinned));
    assert_ok(tarn_host_work(0, stream, (void *)(pinned + 100), 8, 1000));
    assert_ok(driver->host_free(0, pinned)); /* waits for it */
    assert_int_equal(reports, 1);
    assert_non_null(strstr(report_text, "host_free"));
    assert_int_equal(time_now(), 1000);
    assert_ok(tarn_host_check_set(false, NULL, NULL));
    assert_ok(driver->stream_destroy(0, stream));
}

/* The unsafe entries are barred, the table's are not. */
static void captures_refuse_calls_that_are_not_relaxed(void **state)
{
    (void)state;
    uintptr_t pinned = 0;
    driver_graph graph = NULL;
    driver_stream stream = new_stream(0, false);
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_ok(driver->host_alloc(0, PAGE, &pinned));
    assert_ok(driver->host_register(0, (uintptr_t)own, PAGE));
    assert_ok(driver->host_unregister(0, (uintptr_t)own));
    assert_ok(driver->host_free(0, pinned));
    assert_ok(driver->capture_end(0, stream, &graph));
    assert_ok(driver->graph_destroy(0, graph));

    assert_ok(driver->host_alloc(0, PAGE, &pinned));
    assert_ok(driver->host_register(0, (uintptr_t)own + PAGE, PAGE));
    for (int i = 0; i < 4; i++) {
        uintptr_t other = 0;
        assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
        tarn_status status = i == 0   ? host_host_alloc(0, PAGE, &other)
                             : i == 1 ? host_host_free(0, pinned)
                             : i == 2 ? host_host_register(0, (uintptr_t)own, PAGE)
                                      : host_host_unregister(0, (uintptr_t)own + PAGE);
        assert_status(status, TARN_ERROR_CAPTURE);
        assert_status(driver->capture_end(0, stream, &graph), TARN_ERROR_CAPTURE);
    }
    assert_ok(driver->host_free(0, pinned));
    assert_ok(driver->host_unregister(0, (uintptr_t)own + PAGE));
    assert_ok(driver->stream_destroy(0, stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_right_is_refused),
        TEST(the_ledger_adds_up),
        TEST(the_budget_of_mappings_holds_for_it),
        TEST(a_free_of_what_work_uses_is_reported),
        TEST(captures_refuse_calls_that_are_not_relaxed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
