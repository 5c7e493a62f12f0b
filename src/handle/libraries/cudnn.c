/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuDNN. Neither workspace nor math mode is in the handle: they are arguments of each execution. */
#include "handle/library.h"

const struct library library_cudnn = {
    .name = "cudnn",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcudnn.so.9", "libcudnn.so.8"},
    .create = "cudnnCreate",
    .destroy = "cudnnDestroy",
    .set_stream = "cudnnSetStream",
    .get_stream = "cudnnGetStream",
    .status_text = "cudnnGetErrorString",
    .version = "cudnnGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    /* 9: INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED; 8: ALLOC_FAILED. */
    .out_of_memory = {4004, 2},
    /* INTERNAL_ERROR, NOT_INITIALIZED of 9 and of 8 (JuliaGPU/CUDA.jl#244, #1691). */
    .may_be_full = {4000, 1001, 4, 1},
};
