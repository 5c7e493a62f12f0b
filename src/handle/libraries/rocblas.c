/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* rocBLAS. A handle's workspace is not safe over a change of stream without a wait (ROCm/rocBLAS
 * issue 1253), so there is one handle per stream. The first rocblas_set_workspace() frees the
 * memory that the handle came with (library/src/rocblas_auxiliary.cpp). Whether atomics are allowed
 * depends on the version: from 5.0 (ROCm 7) on not, unless ROCBLAS_DEFAULT_ATOMICS_MODE says so. */
#include "handle/library.h"

/* aten/src/ATen/cuda/CublasHandlePool.cpp: gfx942, gfx950 and gfx1250 */
static size_t workspace_size(int capability_major, int capability_minor)
{
    bool large = (capability_major == 9 && (capability_minor == 4 || capability_minor == 5)) ||
                 (capability_major == 12 && capability_minor == 5);
    return (size_t)(large ? 128 : 32) << 20;
}

const struct library library_rocblas = {
    .name = "rocblas",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0"},
    .releases = {LIBRARY_RELEASE(7), LIBRARY_RELEASE(6), LIBRARY_RELEASE(5), LIBRARY_RELEASE(5)},
    .create = "rocblas_create_handle",
    .destroy = "rocblas_destroy_handle",
    .set_stream = "rocblas_set_stream",
    .get_stream = "rocblas_get_stream",
    .set_workspace = "rocblas_set_workspace",
    .status_text = "rocblas_status_to_string",
    .version = "rocblas_get_version_string",
    .version_call = VERSION_BY_TEXT,
    .modes =
        {
            [MODE_POINTER] = {.set = "rocblas_set_pointer_mode", .get = "rocblas_get_pointer_mode"},
            [MODE_MATH] = {.set = "rocblas_set_math_mode", .get = "rocblas_get_math_mode"},
            [MODE_ATOMICS] = {.set = "rocblas_set_atomics_mode", .get = "rocblas_get_atomics_mode"},
            [MODE_FURTHER] = {.set = "rocblas_set_performance_metric",
                              .get = "rocblas_get_performance_metric"},
        },
    .by_stream = true,
    .frees_own_memory = true,
    .unset_workspace = true,
    .unchecked = true,
    .out_of_memory = {5},
    .workspace_size = workspace_size,
    .workspace_variables = {"HIPBLAS_WORKSPACE_CONFIG", "ROCBLAS_WORKSPACE_CONFIG"},
};
