/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuBLASLt. Stream and workspace are arguments of cublasLtMatmul(). */
#include "handle/library.h"

static size_t workspace_size(int capability_major, int capability_minor)
{
    (void)capability_major;
    (void)capability_minor;
    return (size_t)1 << 20;
}

const struct library library_cublaslt = {
    .name = "cublaslt",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
    .releases = {LIBRARY_RELEASE(13), LIBRARY_RELEASE(12), LIBRARY_RELEASE(11)},
    .create = "cublasLtCreate",
    .destroy = "cublasLtDestroy",
    .status_text = "cublasLtGetStatusName",
    .version = "cublasLtGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .out_of_memory = {3},
    .workspace_by_call = true,
    .workspace_size = workspace_size,
    .workspace_variables = {"CUBLASLT_WORKSPACE_SIZE"},
    .workspace_lender = TARN_LIBRARY_CUBLAS,
};
