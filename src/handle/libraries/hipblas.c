/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipBLAS. The handle is a rocBLAS handle, with its rules; setting a workspace came with ROCm 7. */
#include "handle/library.h"

static size_t workspace_size(int capability_major, int capability_minor)
{
    return library_rocblas.workspace_size(capability_major, capability_minor);
}

const struct library library_hipblas = {
    .name = "hipblas",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libhipblas.so.3", "libhipblas.so.2", "libhipblas.so.1", "libhipblas.so.0"},
    .releases = {LIBRARY_RELEASE(7), LIBRARY_RELEASE(6), LIBRARY_RELEASE(5), LIBRARY_RELEASE(5)},
    .create = "hipblasCreate",
    .destroy = "hipblasDestroy",
    .set_stream = "hipblasSetStream",
    .get_stream = "hipblasGetStream",
    .set_workspace = "hipblasSetWorkspace",
    .status_text = "hipblasStatusToString",
    .modes =
        {
            [MODE_POINTER] = {.set = "hipblasSetPointerMode", .get = "hipblasGetPointerMode"},
            [MODE_MATH] = {.set = "hipblasSetMathMode", .get = "hipblasGetMathMode"},
            [MODE_ATOMICS] = {.set = "hipblasSetAtomicsMode", .get = "hipblasGetAtomicsMode"},
        },
    .by_stream = true,
    .frees_own_memory = true,
    .unset_workspace = true,
    .unchecked = true,
    .out_of_memory = {2},
    .workspace_size = workspace_size,
    .workspace_variables = {"HIPBLAS_WORKSPACE_CONFIG", "ROCBLAS_WORKSPACE_CONFIG"},
};
