/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuSOLVER, dense. A create that fails leaves a dangling pointer behind. The handle has cuBLAS and
 * cuSPARSE handles in it. */
#include "handle/library.h"

const struct library library_cusolver_dn = {
    .name = "cusolver_dn",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcusolver.so.12", "libcusolver.so.11"}, /* 12: CUDA 13; 11: CUDA 11 and 12 */
    .releases = {LIBRARY_RELEASE(13), LIBRARY_RELEASE(11) | LIBRARY_RELEASE(12)},
    .create = "cusolverDnCreate",
    .destroy = "cusolverDnDestroy",
    .set_stream = "cusolverDnSetStream",
    .get_stream = "cusolverDnGetStream",
    .version = "cusolverGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .modes =
        {
            /* CUDA 13 */
            [MODE_MATH] = {.set = "cusolverDnSetMathMode", .get = "cusolverDnGetMathMode"},
            [MODE_FURTHER] = {.set = "cusolverDnSetDeterministicMode",
                              /* CUDA 12.2 */
                              .get = "cusolverDnGetDeterministicMode"},
            /* CUDA 13 */
            {.set = "cusolverDnSetEmulationStrategy", .get = "cusolverDnGetEmulationStrategy"},
        },
    .out_of_memory = {2},
    .may_be_full = {7}, /* INTERNAL_ERROR (JuliaGPU/CUDA.jl#244, #1691) */
};
