/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Version 9 has new numbers for the statuses, and composes its version with other factors. */
#include "vendor/common.h"
#ifdef SIM_HAVE_CUDA_HEADERS
#include <cudnn.h>
#else
typedef int cudnnStatus_t, libraryPropertyType;
typedef void *cudnnHandle_t, *cudaStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CUDNN",
    .device_bytes = (size_t)2 << 20,
    .leavings = VENDOR_LEAVES_NULL,
#if SIM_MAJOR >= 9
    .no_device = 1001,
    .old_driver = 3005,
    .out_of_memory = 4004,
    .full = 4000,
    .bad_handle = 2000,
    .bad_argument = 2002,
    .failed = 5003,
    .texts = {{0, "CUDNN_STATUS_SUCCESS"},
              {1001, "CUDNN_STATUS_NOT_INITIALIZED"},
              {2000, "CUDNN_STATUS_BAD_PARAM"},
              {2002, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
              {3005, "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER"},
              {4000, "CUDNN_STATUS_INTERNAL_ERROR"},
              {4004, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
              {5003, "CUDNN_STATUS_EXECUTION_FAILED_CUDART"}},
#else
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .full = 4,
    .bad_handle = 3,
    .bad_argument = 3,
    .failed = 8,
    .texts = {{0, "CUDNN_STATUS_SUCCESS"},
              {1, "CUDNN_STATUS_NOT_INITIALIZED"},
              {2, "CUDNN_STATUS_ALLOC_FAILED"},
              {3, "CUDNN_STATUS_BAD_PARAM"},
              {4, "CUDNN_STATUS_INTERNAL_ERROR"},
              {8, "CUDNN_STATUS_EXECUTION_FAILED"}},
#endif
};

VENDOR_CREATE(cudnnCreate, cudnnStatus_t, cudnnHandle_t)
VENDOR_DESTROY(cudnnDestroy, cudnnStatus_t, cudnnHandle_t)
VENDOR_SET_STREAM(cudnnSetStream, cudnnStatus_t, cudnnHandle_t, cudaStream_t)
VENDOR_GET_STREAM(cudnnGetStream, cudnnStatus_t, cudnnHandle_t, cudaStream_t)
VENDOR_PROPERTY(cudnnGetProperty, cudnnStatus_t, libraryPropertyType)
VENDOR_TEXT(cudnnGetErrorString, cudnnStatus_t)

VENDOR_ENTRY(size_t, cudnnGetVersion, void)
{
    return (size_t)vendor_version_number(__func__, SIM_MAJOR >= 9 ? 10000 : 1000, 100);
}
