/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of pinned memory share. Each runs in a child, so that it begins with a process that never used tarn. */
#ifndef TESTS_SUPPORT_PINNED_H
#define TESTS_SUPPORT_PINNED_H

#include "memory/pinned/pinned.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)

static inline void *pinned_take(size_t size)
{
    void *pointer = NULL;
    OK(tarn_pinned_alloc(TARN_STREAM_CURRENT, size, &pointer));
    CHECK(pointer && (uintptr_t)pointer % 256 == 0);
    return pointer;
}

static inline tarn_pinned_stats pinned_stats(void)
{
    tarn_pinned_stats stats = {.size = sizeof stats};
    OK(tarn_pinned_stats_get(&stats));
    return stats;
}

static inline size_t pinned_limit(void)
{
    return pinned_stats().limit;
}

static inline tarn_pinned_settings pinned_settings(void)
{
    tarn_pinned_settings settings = {.size = sizeof settings};
    OK(tarn_pinned_settings_get(&settings));
    return settings;
}

/* The invariants, and the counters against the driver's ledger. */
static inline void pinned_check(int devices)
{
    uint64_t count = 0, bytes = 0, reports = 0;
    tarn_pinned_stats stats = pinned_stats();
    OK(pinned_verify());
    for (int i = 0; i < devices; i++) {
        tarn_host_ledger ledger = ledger_of(i);
        count += ledger.pinned;
        bytes += ledger.pinned_bytes;
        reports += ledger.reports;
    }
    CHECK((uint64_t)stats.allocations.current == count);
    CHECK((uint64_t)stats.allocated_bytes.current == bytes);
    CHECK(reports == 0);
}

static inline void pinned_nothing_is_left(int devices)
{
    OK(tarn_pinned_trim(0));
    pinned_check(devices);
    tarn_pinned_stats stats = pinned_stats();
    CHECK(stats.active_requests.current == 0 && stats.active_bytes.current == 0);
    CHECK(stats.requested_bytes.current == 0);
    CHECK(stats.allocations.current == 0 && stats.allocated_bytes.current == 0);
    CHECK(stats.pending_bytes == 0 && stats.kept_bytes == 0);
}

#endif
