/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* rocBLAS. A handle's workspace is not safe over a change of stream without a wait (ROCm/rocBLAS issue 1253), so there
 * is one handle a stream. Its atomics are allowed where nothing else is said, the opposite of cuBLAS. */
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
            [MODE_POINTER] = {"rocblas_set_pointer_mode", 0, true},
            [MODE_MATH] = {"rocblas_set_math_mode", 0, true},
            [MODE_ATOMICS] = {"rocblas_set_atomics_mode", 1, true},
        },
    .by_stream = true,
    .unset_workspace = true,
    .unchecked = true,
    .out_of_memory = {5},
    .workspace_size = workspace_size,
    .workspace_variables = {"HIPBLAS_WORKSPACE_CONFIG", "ROCBLAS_WORKSPACE_CONFIG"},
};
