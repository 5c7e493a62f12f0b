/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipSOLVER. The handle is a rocBLAS handle: one per stream. */
#include "handle/library.h"

const struct library library_hipsolver = {
    .name = "hipsolver",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libhipsolver.so.1", "libhipsolver.so.0"},
    .releases = {LIBRARY_RELEASE(7), LIBRARY_RELEASE(5) | LIBRARY_RELEASE(6)},
    .create = "hipsolverCreate",
    .destroy = "hipsolverDestroy",
    .set_stream = "hipsolverSetStream",
    .get_stream = "hipsolverGetStream",
    .modes = {[MODE_FURTHER] = {.set = "hipsolverSetDeterministicMode",
                                .get = "hipsolverGetDeterministicMode"}},
    .by_stream = true,
    .unchecked = true,
    .out_of_memory = {2},
};
