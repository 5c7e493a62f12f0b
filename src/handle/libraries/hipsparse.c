/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipSPARSE. A create without a device succeeds and leaves the handle as it was: so it begins as
 * NULL, and NULL is a failure. The handle is a rocSPARSE handle: one per stream. */
#include "handle/library.h"

const struct library library_hipsparse = {
    .name = "hipsparse",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libhipsparse.so.4", "libhipsparse.so.1", "libhipsparse.so.0"},
    .releases = {LIBRARY_RELEASE(7), LIBRARY_RELEASE(6), LIBRARY_RELEASE(5)},
    .create = "hipsparseCreate",
    .destroy = "hipsparseDestroy",
    .set_stream = "hipsparseSetStream",
    .get_stream = "hipsparseGetStream",
    .status_text = "hipsparseGetErrorName",
    .version = "hipsparseGetVersion",
    .version_call = VERSION_BY_HANDLE,
    .modes = {[MODE_POINTER] = {.set = "hipsparseSetPointerMode",
                                .get = "hipsparseGetPointerMode"}},
    .by_stream = true,
    .out_of_memory = {2},
};
