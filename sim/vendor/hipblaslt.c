/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A create whose allocation the driver refuses ends the process. */
#include "vendor/common.h"

typedef int hipblasStatus_t;
typedef void *hipblasLtHandle_t;

const struct vendor_library vendor_library = {
    .knob = "HIPBLASLT",
    .device_bytes = (size_t)16 * 40960 * 4,
    .exits_on_failure = true,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .bad_handle = 8,
    .bad_argument = 3,
    .failed = 6,
};

VENDOR_CREATE(hipblasLtCreate, hipblasStatus_t, hipblasLtHandle_t)
VENDOR_DESTROY(hipblasLtDestroy, hipblasStatus_t, hipblasLtHandle_t)
VENDOR_VERSION_OF(hipblasLtGetVersion, hipblasStatus_t, hipblasLtHandle_t, 100000, 100)
