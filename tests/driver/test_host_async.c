/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Plain allocations of the host device in the order of a stream: when a free takes effect, and what
 * is refused. */
#include "driver/host/host.h"
#include "host_test.h"

#define REFUSED(call, part) assert_refused((call), TARN_ERROR_INVALID_ARGUMENT, (part))

static uintptr_t new_async(driver_stream stream, size_t size)
{
    uintptr_t address = 0;
    assert_ok(driver->alloc_async(0, size, stream, &address));
    return address;
}

static void work(driver_stream stream, uintptr_t address, uint64_t ns)
{
    assert_ok(tarn_host_work(0, stream, (void *)address, GRANULE, ns));
}

static void what_is_not_right_is_refused(void **state)
{
    (void)state;
    uintptr_t address = 7;
    driver_stream stream = new_stream(0, false), foreign = new_stream(1, false);
    REFUSED(driver->alloc_async(0, 0, stream, &address), "of 0 bytes");
    assert_refused(driver->alloc_async(0, SIZE_MAX, stream, &address), TARN_ERROR_OUT_OF_MEMORY,
                   "on device 0");
    assert_status(driver->alloc_async(2, 1, NULL, &address), TARN_ERROR_INVALID_DEVICE);
    assert_status(driver->alloc_async(0, 1, foreign, &address), TARN_ERROR_INVALID_STREAM);
    assert_int_equal(address, 7);
    address = new_async(stream, 1);
    REFUSED(driver->free_async(0, address + 4096, stream), "not a plain allocation");
    REFUSED(driver->free_async(1, address, foreign), "not a plain allocation");
    assert_status(driver->free_async(0, address, foreign), TARN_ERROR_INVALID_STREAM);
    work(stream, address, 10);
    assert_ok(driver->free_async(0, address, stream));
    /* Though it is there */
    REFUSED(driver->free_async(0, address, stream), "not a plain allocation");
    REFUSED(driver->free(0, address), "not a plain allocation");
    assert_int_equal(ledger_of(0).plain, 1);
}

static void a_free_takes_effect_in_the_streams_order(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false), other = new_stream(0, false);
    uintptr_t a = new_async(stream, GRANULE), b = new_async(stream, GRANULE);
    assert_int_equal(ledger_of(0).created, 2 * GRANULE);
    work(stream, a, 1000);
    work(other, 0, 9000);
    assert_ok(driver->free_async(0, a, stream));
    work(stream, b, 2000); /* behind the free: it does not hold it back */
    assert_ok(driver->free_async(0, b, stream));
    assert_int_equal(ledger_of(0).plain, 2);
    assert_ok(tarn_host_advance(999));
    assert_int_equal(ledger_of(0).plain, 2);
    assert_ok(tarn_host_advance(1000));
    assert_int_equal(ledger_of(0).plain, 1);
    assert_ok(tarn_host_advance(2000));
    assert_int_equal(ledger_of(0).plain + ledger_of(0).created, 0);
    a = new_async(other, GRANULE);
    assert_ok(driver->free_async(0, a, stream)); /* an idle stream: at once */
    assert_int_equal(ledger_of(0).plain, 0);
    assert_int_equal(ledger_of(0).waited_ns, 0);
}

static void the_legacy_stream_orders_behind_blocking_ones(void **state)
{
    (void)state;
    driver_stream blocking = new_stream(0, true);
    uintptr_t a = new_async(NULL, GRANULE);
    work(blocking, a, 1000);
    assert_ok(driver->free_async(0, a, NULL));
    assert_int_equal(ledger_of(0).plain, 1);
    assert_ok(tarn_host_advance(1000));
    assert_int_equal(ledger_of(0).plain, 0);
}

static void a_full_device_waits_for_what_was_freed(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false), other = new_stream(0, false);
    uintptr_t a = new_async(stream, 30 * MIB), b = new_async(stream, 30 * MIB), c = 7;
    assert_status(driver->alloc_async(0, 30 * MIB, stream, &c), TARN_ERROR_OUT_OF_MEMORY);
    work(stream, a, 1000);
    assert_ok(driver->free_async(0, a, stream));
    work(stream, b, 5000);
    assert_ok(driver->free_async(0, b, stream));
    assert_status(driver->alloc(0, 30 * MIB, &c), TARN_ERROR_OUT_OF_MEMORY);
    assert_int_equal(c, 7);
    c = new_async(other, 30 * MIB);
    assert_int_equal(ledger_of(0).waited_ns, 1000);
    assert_int_equal(ledger_of(0).plain, 2);
}

static void a_stream_that_captures_is_refused(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, true), beside = new_stream(0, false);
    driver_graph graph = NULL;
    uintptr_t a = new_async(stream, GRANULE), b = 7;
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_refused(driver->alloc_async(0, GRANULE, stream, &b), TARN_ERROR_CAPTURE, "captures");
    assert_refused(driver->free_async(0, a, stream), TARN_ERROR_CAPTURE, "captures");
    assert_refused(driver->alloc_async(0, GRANULE, NULL, &b), TARN_ERROR_CAPTURE, "captures");
    assert_int_equal(b, 7);
    b = new_async(beside, GRANULE);
    assert_ok(driver->free_async(0, b, beside));
    assert_ok(driver->capture_end(0, stream, &graph)); /* it went on */
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->free_async(0, a, stream));
}

/* The checker: work of a stream that the free is not ordered behind. */
static void work_beside_the_order_is_reported(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false), other = new_stream(0, false);
    assert_ok(tarn_host_check_set(true, NULL, NULL));
    uintptr_t a = new_async(stream, GRANULE), b = new_async(stream, GRANULE);
    work(stream, a, 1000);
    assert_ok(driver->free_async(0, a, stream));
    assert_ok(tarn_host_advance(1000));
    assert_int_equal(ledger_of(0).reports, 0);
    work(other, b, 1000);
    assert_ok(driver->free_async(0, b, stream));
    assert_int_equal(ledger_of(0).reports, 1);
    assert_int_equal(ledger_of(0).plain, 1); /* and it stays so long */
    assert_ok(tarn_host_advance(2000));
    assert_int_equal(ledger_of(0).plain, 0);
    assert_int_equal(ledger_of(0).reports, 1);
    assert_ok(tarn_host_check_set(false, NULL, NULL));
}

/* A device that ends with frees on it leaves none to the next. */
static void frees_end_with_the_device(void **state)
{
    (void)state;
    driver_stream stream = new_stream(0, false);
    uintptr_t a = new_async(stream, GRANULE);
    work(stream, a, 1000);
    assert_ok(driver->free_async(0, a, stream));
    start_with(1, 64 * MIB, 0);
    assert_int_equal(ledger_of(0).plain + ledger_of(0).created, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_right_is_refused),
        TEST(a_free_takes_effect_in_the_streams_order),
        TEST(the_legacy_stream_orders_behind_blocking_ones),
        TEST(a_full_device_waits_for_what_was_freed),
        TEST(a_stream_that_captures_is_refused),
        TEST(work_beside_the_order_is_reported),
        TEST(frees_end_with_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
