/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "vendor/common.h"

typedef int cusparseStatus_t, libraryPropertyType;
/* A structure of the program's. Here it begins with a pointer to what is a handle in the other
 * libraries. */
typedef struct {
    _Alignas(16) uint8_t data[512];
} cusparseLtHandle_t;

const struct vendor_library vendor_library = {
    .knob = "CUSPARSELT",
    .device_bytes = (size_t)1 << 20,
    .fills_a_structure = true,
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

VENDOR_ENTRY(cusparseStatus_t, cusparseLtInit, cusparseLtHandle_t *handle)
{
    return vendor_create(__func__, handle->data);
}

VENDOR_ENTRY(cusparseStatus_t, cusparseLtDestroy, const cusparseLtHandle_t *handle)
{
    return vendor_destroy(__func__, *(void *const *)(const void *)handle->data);
}

VENDOR_PROPERTY(cusparseLtGetProperty, cusparseStatus_t, libraryPropertyType)
VENDOR_TEXT(cusparseLtGetErrorName, cusparseStatus_t)
