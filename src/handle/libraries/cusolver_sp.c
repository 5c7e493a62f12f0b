/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuSOLVER, sparse; its vendor prefers cuDSS now. A create that fails leaves a dangling pointer
 * behind. */
#include "handle/library.h"

const struct library library_cusolver_sp = {
    .name = "cusolver_sp",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcusolver.so.12", "libcusolver.so.11"},
    .releases = {LIBRARY_RELEASE(13), LIBRARY_RELEASE(11) | LIBRARY_RELEASE(12)},
    .create = "cusolverSpCreate",
    .destroy = "cusolverSpDestroy",
    .set_stream = "cusolverSpSetStream",
    .get_stream = "cusolverSpGetStream",
    .version = "cusolverGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .out_of_memory = {2},
    /* INTERNAL_ERROR (JuliaGPU/CUDA.jl#244, #1691), and NOT_INITIALIZED: a full H200 with CUDA
     * 13 */
    .may_be_full = {7, 1},
};
