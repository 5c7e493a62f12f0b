/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipSOLVER. The handle is a rocBLAS handle: one a stream. */
#include "handle/library.h"

const struct library library_hipsolver = {
    .name = "hipsolver",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libhipsolver.so.1", "libhipsolver.so.0"},
    .create = "hipsolverCreate",
    .destroy = "hipsolverDestroy",
    .set_stream = "hipsolverSetStream",
    .get_stream = "hipsolverGetStream",
    .by_stream = true,
    .unchecked = true,
    .out_of_memory = {2},
};
