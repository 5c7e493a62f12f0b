/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A create without a device reports success and leaves the place for the handle unchanged. */
#include "vendor/common.h"
#ifdef SIM_HAVE_HIP_HEADERS
#include <hipsparse/hipsparse.h>
#else
typedef int hipsparseStatus_t, hipsparsePointerMode_t;
typedef void *hipsparseHandle_t, *hipStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "HIPSPARSE",
    .device_bytes = (size_t)1 << 20,
    .silent_without_device = true,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .bad_handle = 3,
    .bad_argument = 3,
    .failed = 6,
    .texts = {{0, "HIPSPARSE_STATUS_SUCCESS"},
              {1, "HIPSPARSE_STATUS_NOT_INITIALIZED"},
              {2, "HIPSPARSE_STATUS_ALLOC_FAILED"},
              {3, "HIPSPARSE_STATUS_INVALID_VALUE"},
              {6, "HIPSPARSE_STATUS_EXECUTION_FAILED"}},
};

VENDOR_CREATE(hipsparseCreate, hipsparseStatus_t, hipsparseHandle_t)
VENDOR_DESTROY(hipsparseDestroy, hipsparseStatus_t, hipsparseHandle_t)
VENDOR_SET_STREAM(hipsparseSetStream, hipsparseStatus_t, hipsparseHandle_t, hipStream_t)
VENDOR_GET_STREAM(hipsparseGetStream, hipsparseStatus_t, hipsparseHandle_t, hipStream_t)
VENDOR_SET_MODE(hipsparseSetPointerMode, hipsparseStatus_t, hipsparseHandle_t,
                hipsparsePointerMode_t, POINTER_MODE)
VENDOR_GET_MODE(hipsparseGetPointerMode, hipsparseStatus_t, hipsparseHandle_t,
                hipsparsePointerMode_t, POINTER_MODE)
VENDOR_VERSION_OF(hipsparseGetVersion, hipsparseStatus_t, hipsparseHandle_t, 100000, 100)
VENDOR_TEXT(hipsparseGetErrorName, hipsparseStatus_t)
