/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuBLAS. Setting the stream puts the handle back on the library's own workspace, so the workspace
 * follows it, every time (aten/src/ATen/cuda/CublasHandlePool.cpp). The symbols are the _v2 ones;
 * the plain names are macros. */
#include "handle/library.h"

/* aten/src/ATen/cuda/CublasHandlePool.cpp, and NVIDIA's advice for Hopper and later */
static size_t workspace_size(int capability_major, int capability_minor)
{
    (void)capability_minor;
    if (capability_major >= 9 && capability_major <= 12)
        return (size_t)32 << 20;
    return (size_t)(4096 * 2 + 16 * 8) << 10;
}

const struct library library_cublas = {
    .name = "cublas",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"},
    .releases = {LIBRARY_RELEASE(13), LIBRARY_RELEASE(12), LIBRARY_RELEASE(11)},
    .create = "cublasCreate_v2",
    .destroy = "cublasDestroy_v2",
    .set_stream = "cublasSetStream_v2",
    .get_stream = "cublasGetStream_v2",
    .set_workspace = "cublasSetWorkspace_v2",
    .status_text = "cublasGetStatusName",
    .version = "cublasGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .modes =
        {
            [MODE_POINTER] = {.set = "cublasSetPointerMode_v2", .get = "cublasGetPointerMode_v2"},
            [MODE_MATH] = {.set = "cublasSetMathMode", .get = "cublasGetMathMode"},
            [MODE_ATOMICS] = {.set = "cublasSetAtomicsMode", .get = "cublasGetAtomicsMode"},
            [MODE_FURTHER] = {.set = "cublasSetSmCountTarget", .get = "cublasGetSmCountTarget"},
            {.set = "cublasSetEmulationStrategy",
             .get = "cublasGetEmulationStrategy"}, /* this and what follows: CUDA 13 */
            {.set = "cublasSetEmulationSpecialValuesSupport",
             .get = "cublasGetEmulationSpecialValuesSupport"},
            {.set = "cublasSetFixedPointEmulationMantissaControl",
             .get = "cublasGetFixedPointEmulationMantissaControl"},
            {.set = "cublasSetFixedPointEmulationMaxMantissaBitCount",
             .get = "cublasGetFixedPointEmulationMaxMantissaBitCount"},
            {.set = "cublasSetFixedPointEmulationMantissaBitOffset",
             .get = "cublasGetFixedPointEmulationMantissaBitOffset"},
            {.set = "cublasSetFixedPointEmulationMantissaBitCountPointer",
             .get = "cublasGetFixedPointEmulationMantissaBitCountPointer",
             .is_pointer = true},
        },
    .out_of_memory = {3},
    .workspace_size = workspace_size,
    .workspace_variables = {"CUBLAS_WORKSPACE_CONFIG"},
};
