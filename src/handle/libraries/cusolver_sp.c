/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuSOLVER, sparse; its vendor prefers cuDSS now. A create that fails leaves a dangling pointer behind. */
#include "handle/library.h"

const struct library library_cusolver_sp = {
    .name = "cusolver_sp",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcusolver.so.12", "libcusolver.so.11"},
    .create = "cusolverSpCreate",
    .destroy = "cusolverSpDestroy",
    .set_stream = "cusolverSpSetStream",
    .get_stream = "cusolverSpGetStream",
    .version = "cusolverGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .out_of_memory = {2},
};
