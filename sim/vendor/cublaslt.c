/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "vendor/common.h"
#ifdef SIM_HAVE_CUDA_HEADERS
#include <cublasLt.h>
#else
typedef int cublasStatus_t, libraryPropertyType;
typedef void *cublasLtHandle_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CUBLASLT",
    .device_bytes = (size_t)1 << 20,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 3,
    .bad_handle = 1,
    .bad_argument = 7,
    .failed = 13,
    .texts = {{0, "CUBLAS_STATUS_SUCCESS"},
              {1, "CUBLAS_STATUS_NOT_INITIALIZED"},
              {3, "CUBLAS_STATUS_ALLOC_FAILED"},
              {7, "CUBLAS_STATUS_INVALID_VALUE"},
              {13, "CUBLAS_STATUS_EXECUTION_FAILED"}},
};

VENDOR_CREATE(cublasLtCreate, cublasStatus_t, cublasLtHandle_t)
VENDOR_DESTROY(cublasLtDestroy, cublasStatus_t, cublasLtHandle_t)
VENDOR_PROPERTY(cublasLtGetProperty, cublasStatus_t, libraryPropertyType)
VENDOR_TEXT(cublasLtGetStatusName, cublasStatus_t)

VENDOR_ENTRY(size_t, cublasLtGetVersion, void)
{
    return (size_t)vendor_version_number(__func__, 10000, 100);
}
