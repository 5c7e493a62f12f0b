/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A handle is a rocBLAS handle. */
#include "vendor/common.h"

typedef int hipsolverStatus_t, hipsolverDeterministicMode_t;
typedef void *hipsolverHandle_t, *hipStream_t;

const struct vendor_library vendor_library = {
    .knob = "HIPSOLVER",
    .device_bytes = (size_t)32 << 20,
    .aborts_on_failure = true,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .bad_handle = 9,
    .bad_argument = 3,
    .failed = 6,
    .modes = {[VENDOR_DETERMINISTIC_MODE] = 1},
};

VENDOR_CREATE(hipsolverCreate, hipsolverStatus_t, hipsolverHandle_t)
VENDOR_DESTROY(hipsolverDestroy, hipsolverStatus_t, hipsolverHandle_t)
VENDOR_SET_STREAM(hipsolverSetStream, hipsolverStatus_t, hipsolverHandle_t, hipStream_t)
VENDOR_GET_STREAM(hipsolverGetStream, hipsolverStatus_t, hipsolverHandle_t, hipStream_t)
#if SIM_MAJOR >= 3
VENDOR_SET_MODE(hipsolverSetDeterministicMode, hipsolverStatus_t, hipsolverHandle_t,
                hipsolverDeterministicMode_t, DETERMINISTIC_MODE)
VENDOR_GET_MODE(hipsolverGetDeterministicMode, hipsolverStatus_t, hipsolverHandle_t,
                hipsolverDeterministicMode_t, DETERMINISTIC_MODE)
#endif
