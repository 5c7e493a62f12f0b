/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* rocSPARSE. A create allocates and runs a kernel. The handle has a buffer on the device, which
 * kernels use and a change of stream does not order (library/src/include/handle.h): so there is one
 * handle per stream. */
#include "handle/library.h"

const struct library library_rocsparse = {
    .name = "rocsparse",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"librocsparse.so.1", "librocsparse.so.0"},
    .releases = {LIBRARY_RELEASE(6) | LIBRARY_RELEASE(7), LIBRARY_RELEASE(5)},
    .create = "rocsparse_create_handle",
    .destroy = "rocsparse_destroy_handle",
    .set_stream = "rocsparse_set_stream",
    .get_stream = "rocsparse_get_stream",
    .status_text = "rocsparse_get_status_name",
    .version = "rocsparse_get_version",
    .version_call = VERSION_BY_HANDLE,
    .modes = {[MODE_POINTER] = {.set = "rocsparse_set_pointer_mode",
                                .get = "rocsparse_get_pointer_mode"}},
    .by_stream = true,
    .out_of_memory = {5},
};
