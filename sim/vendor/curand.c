/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Generators of pseudo-random kinds. As in the real library, the first use makes seeds on the
 * device. No numbers are generated. */
#include "vendor/common.h"
#ifdef SIM_HAVE_CUDA_HEADERS
#include <curand.h>
#else
typedef int curandStatus_t, curandRngType_t, libraryPropertyType;
typedef void *curandGenerator_t, *cudaStream_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CURAND",
    .device_bytes = (size_t)64 << 10,
    .no_device = 203,
    .old_driver = 203,
    .out_of_memory = 102,
    .bad_handle = 101,
    .bad_argument = 103,
    .failed = 999,
};

VENDOR_ENTRY(curandStatus_t, curandCreateGenerator, curandGenerator_t *generator,
             curandRngType_t kind)
{
    if ((int)kind >= 100 && (int)kind < 200)
        return (curandStatus_t)vendor_create(__func__, generator);
    vendor_count(__func__);
    return (curandStatus_t)103; /* CURAND_STATUS_TYPE_ERROR */
}

VENDOR_DESTROY(curandDestroyGenerator, curandStatus_t, curandGenerator_t)
VENDOR_SET_STREAM(curandSetStream, curandStatus_t, curandGenerator_t, cudaStream_t)
VENDOR_PROPERTY(curandGetProperty, curandStatus_t, libraryPropertyType)

VENDOR_ENTRY(curandStatus_t, curandGetVersion, int *version)
{
    *version = vendor_version_number(__func__, 1000, 100);
    return (curandStatus_t)0;
}
