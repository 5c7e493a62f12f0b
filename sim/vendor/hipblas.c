/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A handle is a rocBLAS handle. A workspace can be set from ROCm 7 on. */
#include "vendor/common.h"

typedef int hipblasStatus_t, hipblasPointerMode_t, hipblasMath_t, hipblasAtomicsMode_t;
typedef void *hipblasHandle_t, *hipStream_t;

const struct vendor_library vendor_library = {
    .knob = "HIPBLAS",
    .device_bytes = (size_t)32 << 20,
    .aborts_on_failure = true,
    .keeps_workspace = true,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .bad_handle = 8,
    .bad_argument = 3,
    .failed = 6,
    .frees_own_memory = true,
    .modes = {[VENDOR_ATOMICS_MODE] = SIM_MAJOR < 3}, /* as in rocBLAS */
    .atomics_variable = "ROCBLAS_DEFAULT_ATOMICS_MODE",
    .texts = {{0, "HIPBLAS_STATUS_SUCCESS"},
              {1, "HIPBLAS_STATUS_NOT_INITIALIZED"},
              {2, "HIPBLAS_STATUS_ALLOC_FAILED"},
              {3, "HIPBLAS_STATUS_INVALID_VALUE"},
              {6, "HIPBLAS_STATUS_INTERNAL_ERROR"},
              {8, "HIPBLAS_STATUS_HANDLE_IS_NULLPTR"}},
};

VENDOR_CREATE(hipblasCreate, hipblasStatus_t, hipblasHandle_t)
VENDOR_DESTROY(hipblasDestroy, hipblasStatus_t, hipblasHandle_t)
VENDOR_SET_STREAM(hipblasSetStream, hipblasStatus_t, hipblasHandle_t, hipStream_t)
VENDOR_GET_STREAM(hipblasGetStream, hipblasStatus_t, hipblasHandle_t, hipStream_t)
#if SIM_MAJOR >= 3
VENDOR_SET_WORKSPACE(hipblasSetWorkspace, hipblasStatus_t, hipblasHandle_t)
#endif
VENDOR_SET_MODE(hipblasSetPointerMode, hipblasStatus_t, hipblasHandle_t, hipblasPointerMode_t,
                POINTER_MODE)
VENDOR_GET_MODE(hipblasGetPointerMode, hipblasStatus_t, hipblasHandle_t, hipblasPointerMode_t,
                POINTER_MODE)
VENDOR_SET_MODE(hipblasSetMathMode, hipblasStatus_t, hipblasHandle_t, hipblasMath_t, MATH_MODE)
VENDOR_GET_MODE(hipblasGetMathMode, hipblasStatus_t, hipblasHandle_t, hipblasMath_t, MATH_MODE)
VENDOR_SET_MODE(hipblasSetAtomicsMode, hipblasStatus_t, hipblasHandle_t, hipblasAtomicsMode_t,
                ATOMICS_MODE)
VENDOR_GET_MODE(hipblasGetAtomicsMode, hipblasStatus_t, hipblasHandle_t, hipblasAtomicsMode_t,
                ATOMICS_MODE)
VENDOR_TEXT(hipblasStatusToString, hipblasStatus_t)
