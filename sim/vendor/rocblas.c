/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "vendor/common.h"

#include <stdio.h>

typedef int rocblas_status, rocblas_pointer_mode, rocblas_math_mode, rocblas_atomics_mode,
    rocblas_performance_metric;
typedef void *rocblas_handle, *hipStream_t;

const struct vendor_library vendor_library = {
    .knob = "ROCBLAS",
    .device_bytes = (size_t)32 << 20,
    .aborts_on_failure = true,
    .keeps_workspace = true,
    .no_device = 6,
    .old_driver = 6,
    .out_of_memory = 5,
    .bad_handle = 1,
    .bad_argument = 3,
    .failed = 6,
    .frees_own_memory = true,
    .modes = {[VENDOR_ATOMICS_MODE] = SIM_MAJOR < 5}, /* see rocBLAS's CHANGELOG, 5.0.0 */
    .atomics_variable = "ROCBLAS_DEFAULT_ATOMICS_MODE",
    .texts = {{0, "rocblas_status_success"},
              {1, "rocblas_status_invalid_handle"},
              {3, "rocblas_status_invalid_pointer"},
              {5, "rocblas_status_memory_error"},
              {6, "rocblas_status_internal_error"}},
};

VENDOR_CREATE(rocblas_create_handle, rocblas_status, rocblas_handle)
VENDOR_DESTROY(rocblas_destroy_handle, rocblas_status, rocblas_handle)
VENDOR_SET_STREAM(rocblas_set_stream, rocblas_status, rocblas_handle, hipStream_t)
VENDOR_GET_STREAM(rocblas_get_stream, rocblas_status, rocblas_handle, hipStream_t)
VENDOR_SET_WORKSPACE(rocblas_set_workspace, rocblas_status, rocblas_handle)
VENDOR_SET_MODE(rocblas_set_pointer_mode, rocblas_status, rocblas_handle, rocblas_pointer_mode,
                POINTER_MODE)
VENDOR_GET_MODE(rocblas_get_pointer_mode, rocblas_status, rocblas_handle, rocblas_pointer_mode,
                POINTER_MODE)
VENDOR_SET_MODE(rocblas_set_math_mode, rocblas_status, rocblas_handle, rocblas_math_mode, MATH_MODE)
VENDOR_GET_MODE(rocblas_get_math_mode, rocblas_status, rocblas_handle, rocblas_math_mode, MATH_MODE)
VENDOR_SET_MODE(rocblas_set_atomics_mode, rocblas_status, rocblas_handle, rocblas_atomics_mode,
                ATOMICS_MODE)
VENDOR_GET_MODE(rocblas_get_atomics_mode, rocblas_status, rocblas_handle, rocblas_atomics_mode,
                ATOMICS_MODE)
VENDOR_SET_MODE(rocblas_set_performance_metric, rocblas_status, rocblas_handle,
                rocblas_performance_metric, METRIC)
VENDOR_GET_MODE(rocblas_get_performance_metric, rocblas_status, rocblas_handle,
                rocblas_performance_metric, METRIC)
VENDOR_TEXT(rocblas_status_to_string, rocblas_status)

VENDOR_ENTRY(bool, rocblas_is_managing_device_memory, rocblas_handle handle)
{
    bool has = false;
    return vendor_has_workspace(__func__, handle, &has) == 0 && !has;
}

VENDOR_ENTRY(rocblas_status, rocblas_get_version_string, char *text, size_t size)
{
    int parts[3] = {0};
    vendor_count(__func__);
    vendor_version_parts(parts);
    int length = snprintf(text, size, "%d.%d.%d.0-simulated", parts[0], parts[1], parts[2]);
    return length < 0 || (size_t)length >= size ? 4 : 0; /* rocblas_status_invalid_size */
}
