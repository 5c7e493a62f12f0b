/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of the host device share: a fresh device for each test, and assertions on
 * statuses. */
#ifndef TARN_TESTS_DRIVER_HOST_TEST_H
#define TARN_TESTS_DRIVER_HOST_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "driver/driver.h"
#include "support/status.h"
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>

#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)

static inline void start_with(int devices, size_t memory, size_t maps)
{
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = devices, .memory = memory, .maps = maps};
    driver_finish();
    assert_ok(tarn_host_configuration_set(&config));
    assert_ok(driver_init());
}

static inline int start(void **state)
{
    (void)state;
    start_with(2, 64 * MIB, 0);
    return 0;
}

static inline int finish(void **state)
{
    (void)state;
    driver_finish();
    return 0;
}

static inline tarn_host_ledger ledger_of(int device)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    assert_ok(tarn_host_ledger_get(device, &ledger));
    return ledger;
}

static inline uint64_t time_now(void)
{
    uint64_t now = 0;
    assert_ok(tarn_host_time_get(&now));
    return now;
}

static inline driver_stream new_stream(int device, bool blocking)
{
    driver_stream stream = NULL;
    assert_ok(driver->stream_create(device, 0, blocking, &stream));
    return stream;
}

static inline driver_event new_event(int device)
{
    driver_event event = NULL;
    assert_ok(driver->event_create(device, &event));
    return event;
}

/* An event that has just been recorded on the stream. */
static inline driver_event recorded(int device, driver_stream stream)
{
    driver_event event = new_event(device);
    assert_ok(driver->event_record(device, event, stream));
    return event;
}

static inline uintptr_t new_range(int device, size_t size)
{
    uintptr_t address = 0;
    assert_ok(driver->reserve(device, size, 0, &address));
    return address;
}

static inline driver_piece new_piece(int device, size_t size)
{
    driver_piece piece = 0;
    assert_ok(driver->create(device, size, 0, &piece));
    return piece;
}

/* Gives the device itself access. */
static inline tarn_status own_access(int device, uintptr_t address, size_t size)
{
    return driver->set_access(device, address, size, &device, 1);
}

static inline void map_at(int device, uintptr_t address, size_t size, driver_piece piece)
{
    assert_ok(driver->map(device, address, size, piece));
    assert_ok(own_access(device, address, size));
}

/* The thread sanitizer maps memory of its own beside ours, and has address space for little of
 * it. */
#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif
#ifndef THREAD_SANITIZER
#define THREAD_SANITIZER 0
#endif

/* ... and any sanitizer needs mappings and address space of its own to go on. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZER 1
#endif
#endif
#ifndef SANITIZER
#define SANITIZER THREAD_SANITIZER
#endif

#define TEST(function) cmocka_unit_test_setup_teardown(function, start, finish)

#endif
