/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipBLASLt. A handle may not serve several streams (aten/src/ATen/cuda/CublasHandlePool.cpp); a
 * create that fails inside the library ends the process (ROCm/rocm-libraries issue 11838), so it is
 * never tried while a capture is open. */
#include "handle/library.h"

static size_t workspace_size(int capability_major, int capability_minor)
{
    (void)capability_major;
    (void)capability_minor;
    return (size_t)76 << 20;
}

const struct library library_hipblaslt = {
    .name = "hipblaslt",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libhipblaslt.so.1", "libhipblaslt.so.0"},
    .releases = {LIBRARY_RELEASE(7), LIBRARY_RELEASE(5) | LIBRARY_RELEASE(6)},
    .create = "hipblasLtCreate",
    .destroy = "hipblasLtDestroy",
    .version = "hipblasLtGetVersion",
    .version_call = VERSION_BY_HANDLE,
    .by_stream = true,
    .workspace_by_call = true,
    .unchecked = true,
    .out_of_memory = {2},
    .workspace_size = workspace_size,
    .workspace_variables = {"HIPBLASLT_WORKSPACE_SIZE"},
};
