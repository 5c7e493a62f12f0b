/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "vendor/common.h"
#ifdef SIM_HAVE_CUDA_HEADERS
#include <cublas_v2.h>
#else
typedef int cublasStatus_t, cublasPointerMode_t, cublasMath_t, cublasAtomicsMode_t,
    libraryPropertyType, cublasEmulationStrategy_t, cudaEmulationSpecialValuesSupport,
    cudaEmulationMantissaControl;
typedef void *cublasHandle_t, *cudaStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CUBLAS",
    .device_bytes = (size_t)4 << 20,
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

VENDOR_CREATE(cublasCreate_v2, cublasStatus_t, cublasHandle_t)
VENDOR_DESTROY(cublasDestroy_v2, cublasStatus_t, cublasHandle_t)
VENDOR_SET_STREAM(cublasSetStream_v2, cublasStatus_t, cublasHandle_t, cudaStream_t)
VENDOR_GET_STREAM(cublasGetStream_v2, cublasStatus_t, cublasHandle_t, cudaStream_t)
VENDOR_SET_WORKSPACE(cublasSetWorkspace_v2, cublasStatus_t, cublasHandle_t)
VENDOR_SET_MODE(cublasSetPointerMode_v2, cublasStatus_t, cublasHandle_t, cublasPointerMode_t,
                POINTER_MODE)
VENDOR_GET_MODE(cublasGetPointerMode_v2, cublasStatus_t, cublasHandle_t, cublasPointerMode_t,
                POINTER_MODE)
VENDOR_SET_MODE(cublasSetMathMode, cublasStatus_t, cublasHandle_t, cublasMath_t, MATH_MODE)
VENDOR_GET_MODE(cublasGetMathMode, cublasStatus_t, cublasHandle_t, cublasMath_t, MATH_MODE)
VENDOR_SET_MODE(cublasSetAtomicsMode, cublasStatus_t, cublasHandle_t, cublasAtomicsMode_t,
                ATOMICS_MODE)
VENDOR_GET_MODE(cublasGetAtomicsMode, cublasStatus_t, cublasHandle_t, cublasAtomicsMode_t,
                ATOMICS_MODE)
VENDOR_SET_MODE(cublasSetSmCountTarget, cublasStatus_t, cublasHandle_t, int, SM_COUNT)
VENDOR_GET_MODE(cublasGetSmCountTarget, cublasStatus_t, cublasHandle_t, int, SM_COUNT)
#if SIM_MAJOR >= 13
VENDOR_SET_MODE(cublasSetEmulationStrategy, cublasStatus_t, cublasHandle_t,
                cublasEmulationStrategy_t, EMULATION_STRATEGY)
VENDOR_GET_MODE(cublasGetEmulationStrategy, cublasStatus_t, cublasHandle_t,
                cublasEmulationStrategy_t, EMULATION_STRATEGY)
VENDOR_SET_MODE(cublasSetEmulationSpecialValuesSupport, cublasStatus_t, cublasHandle_t,
                cudaEmulationSpecialValuesSupport, SPECIAL_VALUES)
VENDOR_GET_MODE(cublasGetEmulationSpecialValuesSupport, cublasStatus_t, cublasHandle_t,
                cudaEmulationSpecialValuesSupport, SPECIAL_VALUES)
VENDOR_SET_MODE(cublasSetFixedPointEmulationMantissaControl, cublasStatus_t, cublasHandle_t,
                cudaEmulationMantissaControl, MANTISSA_CONTROL)
VENDOR_GET_MODE(cublasGetFixedPointEmulationMantissaControl, cublasStatus_t, cublasHandle_t,
                cudaEmulationMantissaControl, MANTISSA_CONTROL)
VENDOR_SET_MODE(cublasSetFixedPointEmulationMaxMantissaBitCount, cublasStatus_t, cublasHandle_t,
                int, MANTISSA_MOST)
VENDOR_GET_MODE(cublasGetFixedPointEmulationMaxMantissaBitCount, cublasStatus_t, cublasHandle_t,
                int, MANTISSA_MOST)
VENDOR_SET_MODE(cublasSetFixedPointEmulationMantissaBitOffset, cublasStatus_t, cublasHandle_t, int,
                MANTISSA_OFFSET)
VENDOR_GET_MODE(cublasGetFixedPointEmulationMantissaBitOffset, cublasStatus_t, cublasHandle_t, int,
                MANTISSA_OFFSET)
VENDOR_ENTRY(cublasStatus_t, cublasSetFixedPointEmulationMantissaBitCountPointer,
             cublasHandle_t handle, int *count)
{
    return (cublasStatus_t)vendor_set_pointer(__func__, handle, count);
}
VENDOR_ENTRY(cublasStatus_t, cublasGetFixedPointEmulationMantissaBitCountPointer,
             cublasHandle_t handle, int **count)
{
    void *value = NULL;
    int code = vendor_get_pointer(__func__, handle, count ? &value : NULL);
    if (!code)
        *count = value;
    return (cublasStatus_t)code;
}
#endif
VENDOR_PROPERTY(cublasGetProperty, cublasStatus_t, libraryPropertyType)
VENDOR_TEXT(cublasGetStatusName, cublasStatus_t)

/* This call needs no handle. */
VENDOR_ENTRY(cublasStatus_t, cublasGetVersion_v2, cublasHandle_t handle, int *version)
{
    (void)handle;
    *version = vendor_version_number(__func__, 10000, 100);
    return (cublasStatus_t)0;
}
