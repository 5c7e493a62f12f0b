/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuRAND: generators of the default pseudo-random kind. The next thread goes on with a generator's
 * sequence where the last one left it; who needs a seed sets it. State is allocated by the first
 * generate: call curandGenerateSeeds() before a capture. */
#include "handle/library.h"

const struct library library_curand = {
    .name = "curand",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcurand.so.10"},
    .create = "curandCreateGenerator",
    .create_takes_number = true,
    .create_number = 100, /* CURAND_RNG_PSEUDO_DEFAULT */
    .destroy = "curandDestroyGenerator",
    .set_stream = "curandSetStream",
    .version = "curandGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .out_of_memory = {102},
};
