/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the tests of shares have in common. */
#ifndef TESTS_MEMORY_SHARE_TEST_H
#define TESTS_MEMORY_SHARE_TEST_H

#include "support/host.h"

#define PIECE (20 * MIB)
#define DEVICE (512 * MIB)

static inline tarn_share *export_of(const void *block)
{
    tarn_share *share = NULL;
    OK(tarn_export(block, &share));
    CHECK(share != NULL);
    return share;
}

static inline tarn_share_info info_of(const tarn_share *share)
{
    tarn_share_info info = {.size = sizeof info};
    OK(tarn_share_info_get(share, &info));
    return info;
}

static inline void *import_of(const tarn_share *share, int device)
{
    void *pointer = NULL;
    OK(tarn_import(share, device, &pointer));
    CHECK(pointer != NULL);
    return pointer;
}

static inline bool reaches(int device, const void *address)
{
    tarn_host_extent extent;
    return tarn_host_extent_get(device, address, 1, &extent) == TARN_OK && extent.accessible;
}

#endif
