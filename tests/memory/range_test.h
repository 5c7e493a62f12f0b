/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of ranges share. */
#ifndef TESTS_MEMORY_RANGE_TEST_H
#define TESTS_MEMORY_RANGE_TEST_H

#include "support/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#define PAGE (2 * MIB)
#define MEMORY (64 * MIB)

static tarn_stream stream;

static inline void start(void)
{
    host_start_with(1, MEMORY);
    stream = lease(0);
}

static inline tarn_range *range_with(tarn_range_options options, size_t bytes)
{
    tarn_range *range = NULL;
    options.size = sizeof options;
    OK(tarn_range_create(&options, bytes, &range));
    return range;
}

static inline tarn_range *range_of(tarn_pool *pool, size_t bytes)
{
    return range_with((tarn_range_options){.pool = pool}, bytes);
}

static inline tarn_range_info info_of(tarn_range *range)
{
    tarn_range_info info = {.size = sizeof info};
    OK(tarn_range_info_get(range, &info));
    return info;
}

static inline char *address_of(tarn_range *range, size_t page)
{
    tarn_range_info info = info_of(range);
    return (char *)info.address + page * info.page;
}

/* Whether the driver maps memory a second time, and how many calls unmap runs of pages: HIP takes
 * one page at a time. */
static inline bool aliases(void)
{
    tarn_device_properties properties = {.size = sizeof properties};
    OK(tarn_device_properties_get(0, &properties));
    return properties.alias;
}

static inline uint64_t unmaps_of(unsigned pages, unsigned runs)
{
    tarn_device_properties properties = {.size = sizeof properties};
    OK(tarn_device_properties_get(0, &properties));
    return strcmp(properties.driver, "hip") == 0 ? pages : runs;
}

/* Writes a byte's worth of each page, by its number; and looks at it. */
static inline void fill(tarn_range *range, size_t page, size_t count, int value)
{
    for (size_t i = page; i < page + count; i++)
        memset(address_of(range, i), value + (int)(i & 63), 4096);
}

static inline void is_filled(tarn_range *range, size_t page, size_t count, int value)
{
    for (size_t i = page; i < page + count; i++)
        for (size_t at = 0; at < 4096; at++)
            CHECK(address_of(range, i)[at] == (char)(value + (int)(i & 63)));
}

static inline void end(tarn_range *range)
{
    verify(0);
    OK(tarn_range_destroy(range));
    nothing_is_left(0);
}

#endif
