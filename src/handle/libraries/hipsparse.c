/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipSPARSE. A create without a device succeeds and leaves the handle as it was: so it begins as NULL, and NULL is a
 * failure. */
#include "handle/library.h"

const struct library library_hipsparse = {
    .name = "hipsparse",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libhipsparse.so.4", "libhipsparse.so.1", "libhipsparse.so.0"},
    .create = "hipsparseCreate",
    .destroy = "hipsparseDestroy",
    .set_stream = "hipsparseSetStream",
    .get_stream = "hipsparseGetStream",
    .status_text = "hipsparseGetErrorName",
    .version = "hipsparseGetVersion",
    .version_call = VERSION_BY_HANDLE,
    .modes = {[MODE_POINTER] = {"hipsparseSetPointerMode", 0, true}},
    .out_of_memory = {2},
};
