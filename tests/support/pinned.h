/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Helpers for tests of pinned memory. Each test runs in a child, so that it begins with a process
 * that never used tarn. */
#ifndef TESTS_SUPPORT_PINNED_H
#define TESTS_SUPPORT_PINNED_H

#include "memory/pinned/heap.h"
#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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

/* pinned_settings(): the settings in use. pinned_settings_set() changes them through the
 * configuration, which has whole MiB. */
static inline struct pinned_settings pinned_settings(void)
{
    OK(pinned_ready());
    mutex_lock(&pinned.lock);
    struct pinned_settings settings = pinned.settings;
    mutex_unlock(&pinned.lock);
    return settings;
}

static inline void pinned_mib(char *text, size_t room, const char *key, size_t bytes, size_t none)
{
    size_t length = strlen(text);
    if (bytes != none)
        snprintf(text + length, room - length, ",%s:%zu", key, bytes >> 20);
}

static inline void pinned_settings_set(const struct pinned_settings *settings)
{
    char text[400];
    snprintf(text, sizeof text,
             "all:default,pinned_use_cuda_host_register:%s,pinned_num_register_threads:%u,"
             "pinned_use_background_threads:%s",
             settings->use_register ? "True" : "False", settings->register_threads,
             settings->background_threads ? "True" : "False");
    pinned_mib(text, sizeof text, "pinned_reserve_segment_size_mb", settings->reserve_segment, 0);
    pinned_mib(text, sizeof text, "pinned_max_round_threshold_mb", settings->max_round_threshold,
               SIZE_MAX);
    pinned_mib(text, sizeof text, "pinned_max_cached_size_mb", settings->max_cached_size, SIZE_MAX);
    const size_t limit = pinned_limit(); /* which "all:default" takes away */
    OK(tarn_configuration_set(text));
    OK(tarn_pinned_limit_set(limit));
}

/* Checks the invariants, and the counters against the driver's ledger. */
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
    CHECK(stats.pending_bytes == 0 && stats.graph_bytes == 0);
}

#endif
