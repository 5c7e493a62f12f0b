/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a vendor's driver does with pinned host memory, and with memory in the order of a stream. */
#ifndef TARN_TESTS_DRIVER_MEMORY_TEST_H
#define TARN_TESTS_DRIVER_MEMORY_TEST_H

#include "host_test.h"

static void the_device_reaches(uintptr_t pinned, size_t size)
{
    uintptr_t plain = 0;
    assert_ok(driver->alloc(0, size, &plain));
    assert_ok(driver->set(0, plain, 9, size, NULL));
    assert_ok(driver->copy(0, pinned, plain, size, NULL));
    assert_ok(driver->stream_synchronize(0, NULL));
    assert_ok(driver->free(0, plain));
    assert_int_equal(((unsigned char *)pinned)[size - 1], 9);
}

/* Calls for pinned memory neither fail during a capture, of whatever thread, nor end it. The page
 * must not be registered. */
static void no_capture_bars_pinned_memory(uintptr_t page, size_t size)
{
    driver_stream stream = new_stream(0, false);
    driver_graph graph = NULL;
    uintptr_t more = 0;
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_ok(driver->host_alloc(0, size, &more));
    assert_ok(driver->host_free(0, more));
    assert_ok(driver->host_register(0, page, size));
    assert_ok(driver->host_unregister(0, page));
    assert_ok(driver->capture_end(0, stream, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->stream_destroy(0, stream));
}

static void memory_comes_and_goes_in_the_order_of_a_stream(void **state)
{
    (void)state;
    uintptr_t address = 7, other = 7;
    driver_stream stream = new_stream(0, false);
    assert_refused(driver->alloc_async(0, 0, stream, &address), TARN_ERROR_INVALID_ARGUMENT,
                   CALL("cuMemAllocAsync", "hipMallocAsync") " of 0 bytes");
    assert_refused(driver->alloc_async(0, 65 * MIB, stream, &address), TARN_ERROR_OUT_OF_MEMORY,
                   CALL("cuMemAllocAsync", "hipMallocAsync") " of 68157440 bytes on device 0");
    assert_int_equal(address, 7);
    assert_ok(driver->alloc_async(0, 40 * MIB, stream, &address));
    assert_ok(driver->set(0, address, 9, 5000, stream));
    assert_ok(driver->free_async(0, address, stream));
    /* The device has no room for both at a time */
    assert_ok(driver->alloc_async(0, 40 * MIB, stream, &other));
    assert_refused(driver->free_async(0, other + 4096, stream), TARN_ERROR_INVALID_ARGUMENT,
                   CALL("cuMemFreeAsync", "hipFreeAsync") " of");

    /* Refused on a stream that captures, whose capture goes on; served on another one. */
    driver_stream beside = new_stream(0, false);
    driver_graph graph = NULL;
    uintptr_t more = 7;
    assert_ok(driver->capture_begin(0, stream, DRIVER_CAPTURE_GLOBAL));
    assert_refused(driver->alloc_async(0, MIB, stream, &more), TARN_ERROR_CAPTURE,
                   CALL("cuMemAllocAsync", "hipMallocAsync") " on device 0");
    assert_refused(driver->free_async(0, other, stream), TARN_ERROR_CAPTURE,
                   CALL("cuMemFreeAsync", "hipFreeAsync") " on device 0");
    assert_int_equal(more, 7);
    assert_ok(driver->alloc_async(0, MIB, beside, &more));
    assert_ok(driver->free_async(0, more, beside));
    assert_ok(driver->capture_end(0, stream, &graph));
    assert_ok(driver->graph_destroy(0, graph));
    assert_ok(driver->free(0, other)); /* in no order */
    assert_ok(driver->stream_destroy(0, stream));
    assert_ok(driver->stream_destroy(0, beside));
}

#endif
