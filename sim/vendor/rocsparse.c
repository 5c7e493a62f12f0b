/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "vendor/common.h"
#ifdef SIM_HAVE_HIP_HEADERS
#include <rocsparse/rocsparse.h>
#else
typedef int rocsparse_status, rocsparse_pointer_mode;
typedef void *rocsparse_handle, *hipStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "ROCSPARSE",
    .device_bytes = (size_t)1 << 20,
    .leavings = VENDOR_LEAVES_NULL,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 5,
    .bad_handle = 1,
    .bad_argument = 3,
    .failed = 6,
    .texts = {{0, "rocsparse_status_success"},
              {1, "rocsparse_status_invalid_handle"},
              {3, "rocsparse_status_invalid_pointer"},
              {5, "rocsparse_status_memory_error"},
              {6, "rocsparse_status_internal_error"}},
};

VENDOR_CREATE(rocsparse_create_handle, rocsparse_status, rocsparse_handle)
VENDOR_DESTROY(rocsparse_destroy_handle, rocsparse_status, rocsparse_handle)
VENDOR_SET_STREAM(rocsparse_set_stream, rocsparse_status, rocsparse_handle, hipStream_t)
VENDOR_GET_STREAM(rocsparse_get_stream, rocsparse_status, rocsparse_handle, hipStream_t)
VENDOR_SET_MODE(rocsparse_set_pointer_mode, rocsparse_status, rocsparse_handle,
                rocsparse_pointer_mode, POINTER_MODE)
VENDOR_GET_MODE(rocsparse_get_pointer_mode, rocsparse_status, rocsparse_handle,
                rocsparse_pointer_mode, POINTER_MODE)
VENDOR_VERSION_OF(rocsparse_get_version, rocsparse_status, rocsparse_handle, 100000, 100)
VENDOR_TEXT(rocsparse_get_status_name, rocsparse_status)
