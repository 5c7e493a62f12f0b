/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "vendor/common.h"
#ifdef SIM_HAVE_CUDA_HEADERS
#include <cusparse.h>
#else
typedef int cusparseStatus_t, cusparsePointerMode_t, libraryPropertyType;
typedef void *cusparseHandle_t, *cudaStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CUSPARSE",
    .device_bytes = (size_t)1 << 20,
    .prints_without_device = true,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .bad_handle = 3,
    .bad_argument = 3,
    .failed = 6,
    .texts = {{0, "CUSPARSE_STATUS_SUCCESS"},
              {1, "CUSPARSE_STATUS_NOT_INITIALIZED"},
              {2, "CUSPARSE_STATUS_ALLOC_FAILED"},
              {3, "CUSPARSE_STATUS_INVALID_VALUE"},
              {6, "CUSPARSE_STATUS_EXECUTION_FAILED"}},
};

VENDOR_CREATE(cusparseCreate, cusparseStatus_t, cusparseHandle_t)
VENDOR_DESTROY(cusparseDestroy, cusparseStatus_t, cusparseHandle_t)
VENDOR_SET_STREAM(cusparseSetStream, cusparseStatus_t, cusparseHandle_t, cudaStream_t)
VENDOR_GET_STREAM(cusparseGetStream, cusparseStatus_t, cusparseHandle_t, cudaStream_t)
VENDOR_SET_MODE(cusparseSetPointerMode, cusparseStatus_t, cusparseHandle_t, cusparsePointerMode_t,
                POINTER_MODE)
VENDOR_GET_MODE(cusparseGetPointerMode, cusparseStatus_t, cusparseHandle_t, cusparsePointerMode_t,
                POINTER_MODE)
VENDOR_PROPERTY(cusparseGetProperty, cusparseStatus_t, libraryPropertyType)
VENDOR_VERSION_OF(cusparseGetVersion, cusparseStatus_t, cusparseHandle_t, 1000, 100)
VENDOR_TEXT(cusparseGetErrorName, cusparseStatus_t)
