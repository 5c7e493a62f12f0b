/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Dense and sparse handles, which one library has. Both are counted together. */
#include "vendor/common.h"
#ifdef SIM_HAVE_CUDA_HEADERS
#include <cusolverDn.h>
#include <cusolverSp.h>
#else
typedef int cusolverStatus_t, cusolverMathMode_t, cusolverDeterministicMode_t,
    cudaEmulationStrategy_t, libraryPropertyType;
typedef void *cusolverDnHandle_t, *cusolverSpHandle_t, *cudaStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CUSOLVER",
    .device_bytes = (size_t)5 << 20, /* it contains a cuBLAS and a cuSPARSE handle */
    .leavings = VENDOR_LEAVES_DANGLING,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .full = 7,
    .bad_handle = 1,
    .bad_argument = 3,
    .failed = 6,
    .modes = {[VENDOR_MATH_MODE] = 1, [VENDOR_DETERMINISTIC_MODE] = 1},
};

VENDOR_CREATE(cusolverDnCreate, cusolverStatus_t, cusolverDnHandle_t)
VENDOR_DESTROY(cusolverDnDestroy, cusolverStatus_t, cusolverDnHandle_t)
VENDOR_SET_STREAM(cusolverDnSetStream, cusolverStatus_t, cusolverDnHandle_t, cudaStream_t)
VENDOR_GET_STREAM(cusolverDnGetStream, cusolverStatus_t, cusolverDnHandle_t, cudaStream_t)
#if SIM_MAJOR >= 12
VENDOR_SET_MODE(cusolverDnSetMathMode, cusolverStatus_t, cusolverDnHandle_t, cusolverMathMode_t,
                MATH_MODE)
VENDOR_GET_MODE(cusolverDnGetMathMode, cusolverStatus_t, cusolverDnHandle_t, cusolverMathMode_t,
                MATH_MODE)
VENDOR_SET_MODE(cusolverDnSetDeterministicMode, cusolverStatus_t, cusolverDnHandle_t,
                cusolverDeterministicMode_t, DETERMINISTIC_MODE)
VENDOR_GET_MODE(cusolverDnGetDeterministicMode, cusolverStatus_t, cusolverDnHandle_t,
                cusolverDeterministicMode_t, DETERMINISTIC_MODE)
VENDOR_SET_MODE(cusolverDnSetEmulationStrategy, cusolverStatus_t, cusolverDnHandle_t,
                cudaEmulationStrategy_t, EMULATION_STRATEGY)
VENDOR_GET_MODE(cusolverDnGetEmulationStrategy, cusolverStatus_t, cusolverDnHandle_t,
                cudaEmulationStrategy_t, EMULATION_STRATEGY)
#endif
VENDOR_CREATE(cusolverSpCreate, cusolverStatus_t, cusolverSpHandle_t)
VENDOR_DESTROY(cusolverSpDestroy, cusolverStatus_t, cusolverSpHandle_t)
VENDOR_SET_STREAM(cusolverSpSetStream, cusolverStatus_t, cusolverSpHandle_t, cudaStream_t)
VENDOR_GET_STREAM(cusolverSpGetStream, cusolverStatus_t, cusolverSpHandle_t, cudaStream_t)
VENDOR_PROPERTY(cusolverGetProperty, cusolverStatus_t, libraryPropertyType)

VENDOR_ENTRY(cusolverStatus_t, cusolverGetVersion, int *version)
{
    *version = vendor_version_number(__func__, 1000, 100);
    return (cusolverStatus_t)0;
}
