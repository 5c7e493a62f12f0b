/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the checks on a GPU use of CUDA's driver beyond what tarn does. Columns as in
 * driver/cuda/cuda_abi.h; tests/abi/check_gpu.c compares each with cuda.h. */
#ifndef TESTS_GPU_GPU_ABI_H
#define TESTS_GPU_GPU_ABI_H

#include "driver/cuda/cuda_abi.h"

typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

#define GPU_CALL_LIST(X)                                                                          \
    X(cuModuleLoadData, 2000, cuModuleLoadData, false, (cu_module * module, const void *image))   \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction, false,                                      \
      (cu_function * function, cu_module module, const char *name))                               \
    X(cuLaunchKernel, 4000, cuLaunchKernel, false,                                                \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream,               \
       void **parameters, void **extra))

#endif
