/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuSPARSE. A create that fails prints a line: so tarn does not call it where no CUDA driver is in
 * use. */
#include "handle/library.h"

const struct library library_cusparse = {
    .name = "cusparse",
    .platform = TARN_PLATFORM_CUDA,
    /* 12 is that of CUDA 12 and of CUDA 13 */
    .sonames = {"libcusparse.so.12", "libcusparse.so.11"},
    .releases = {LIBRARY_RELEASE(12) | LIBRARY_RELEASE(13), LIBRARY_RELEASE(11)},
    .create = "cusparseCreate",
    .destroy = "cusparseDestroy",
    .set_stream = "cusparseSetStream",
    .get_stream = "cusparseGetStream",
    .status_text = "cusparseGetErrorName",
    .version = "cusparseGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .modes = {[MODE_POINTER] = {.set = "cusparseSetPointerMode", .get = "cusparseGetPointerMode"}},
    .out_of_memory = {2},
};
