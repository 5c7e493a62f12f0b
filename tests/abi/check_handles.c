/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares the symbols, numbers and types of the rows in src/handle/libraries/ with the headers of
 * the CUDA toolkit and cuDNN, and compiles the typed headers with them. Compiling it is the
 * test. */
#include "abi/handle_symbols.h"

#include <cusolver_common.h>
#include <tarn/cublas.h>
#include <tarn/cublaslt.h>
#include <tarn/cudnn.h>
#include <tarn/curand.h>
#include <tarn/cusolver.h>
#include <tarn/cusparse.h>

/* The exact prototype, and what tarn calls it by: every argument is passed as a pointer, an int or
 * a size_t. */
#define SAME_PROTOTYPE(symbol, result, parameters) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), result parameters), #symbol);
HANDLE_SYMBOL_LIST(SAME_PROTOTYPE)

#define IS_POINTER(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(void *) && !__builtin_types_compatible_p(type, size_t), \
                   #type)
IS_POINTER(cudnnHandle_t);
IS_POINTER(cublasHandle_t);
IS_POINTER(cublasLtHandle_t);
IS_POINTER(cusparseHandle_t);
IS_POINTER(cusolverDnHandle_t);
IS_POINTER(cusolverSpHandle_t);
IS_POINTER(curandGenerator_t);
IS_POINTER(cudaStream_t);

#define IS_INT(type) _Static_assert(sizeof(type) == sizeof(int), #type)
IS_INT(cudnnStatus_t);
IS_INT(cublasStatus_t);
IS_INT(cusparseStatus_t);
IS_INT(cusolverStatus_t);
IS_INT(curandStatus_t);
IS_INT(libraryPropertyType);
IS_INT(curandRngType_t);
IS_INT(cublasPointerMode_t);
IS_INT(cublasMath_t);
IS_INT(cublasAtomicsMode_t);
IS_INT(cusparsePointerMode_t);
IS_INT(cusolverMathMode_t);
IS_INT(cusolverDeterministicMode_t);
IS_INT(cublasEmulationStrategy_t);
IS_INT(cudaEmulationStrategy_t);
IS_INT(cudaEmulationSpecialValuesSupport);
IS_INT(cudaEmulationMantissaControl);

#define IS(name, value) _Static_assert((int)(name) == (value), #name)
IS(CUDNN_STATUS_SUCCESS, 0);
IS(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 4004);
IS(CUBLAS_STATUS_SUCCESS, 0);
IS(CUBLAS_STATUS_ALLOC_FAILED, 3);
IS(CUBLAS_POINTER_MODE_HOST, 0);
IS(CUBLAS_DEFAULT_MATH, 0);
IS(CUBLAS_ATOMICS_NOT_ALLOWED, 0);
IS(CUSPARSE_STATUS_SUCCESS, 0);
IS(CUSPARSE_STATUS_ALLOC_FAILED, 2);
IS(CUSPARSE_POINTER_MODE_HOST, 0);
IS(CUSOLVER_STATUS_SUCCESS, 0);
IS(CUSOLVER_STATUS_ALLOC_FAILED, 2);
IS(CUSOLVER_DEFAULT_MATH, 1);
IS(CURAND_STATUS_SUCCESS, 0);
IS(CURAND_STATUS_ALLOCATION_FAILED, 102);
IS(CURAND_RNG_PSEUDO_DEFAULT, 100);
IS(MAJOR_VERSION, 0);
IS(MINOR_VERSION, 1);
IS(PATCH_LEVEL, 2);

/* The typed getters, used. */
tarn_status use_typed_headers(void);
tarn_status use_typed_headers(void)
{
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    cublasLtHandle_t cublaslt;
    cusparseHandle_t cusparse;
    cusolverDnHandle_t dense;
    cusolverSpHandle_t sparse;
    curandGenerator_t curand;
    tarn_status status = tarn_cudnn_handle(TARN_STREAM_CURRENT, &cudnn);
    if (!status)
        status = tarn_cublas_handle(TARN_STREAM_CURRENT, &cublas);
    if (!status)
        status = tarn_cublaslt_handle(TARN_STREAM_CURRENT, &cublaslt);
    if (!status)
        status = tarn_cusparse_handle(TARN_STREAM_CURRENT, &cusparse);
    if (!status)
        status = tarn_cusolver_dn_handle(TARN_STREAM_CURRENT, &dense);
    if (!status)
        status = tarn_cusolver_sp_handle(TARN_STREAM_CURRENT, &sparse);
    return status ? status : tarn_curand_handle(TARN_STREAM_LEGACY, &curand);
}
