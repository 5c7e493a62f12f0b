/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuSPARSELt. Its handle is the caller's structure: 512 bytes from 0.8 on, 11,024 before, so tarn
 * keeps the larger one for each. The stream and the workspace are arguments of cusparseLtMatmul().
 * The texts came with 0.8. */
#include "handle/library.h"

const struct library library_cusparselt = {
    .name = "cusparselt",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcusparseLt.so.0"},
    .create = "cusparseLtInit",
    .destroy = "cusparseLtDestroy",
    .status_text = "cusparseLtGetErrorName",
    .version = "cusparseLtGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .handle_bytes = 11024,
    .unchecked = true,
    .out_of_memory = {2},
};
