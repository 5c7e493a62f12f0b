/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the rows in src/handle/libraries/ name, with the vendors' prototypes: X(symbol, result,
 * parameters). check_handles.c compares them with the toolkit's headers;
 * tests/handle/test_registry.c holds that no checked row names another symbol. */
#ifndef TARN_TESTS_ABI_HANDLE_SYMBOLS_H
#define TARN_TESTS_ABI_HANDLE_SYMBOLS_H

#define HANDLE_SYMBOL_LIST(X)                                                                    \
    X(cudnnCreate, cudnnStatus_t, (cudnnHandle_t *))                                             \
    X(cudnnDestroy, cudnnStatus_t, (cudnnHandle_t))                                              \
    X(cudnnSetStream, cudnnStatus_t, (cudnnHandle_t, cudaStream_t))                              \
    X(cudnnGetStream, cudnnStatus_t, (cudnnHandle_t, cudaStream_t *))                            \
    X(cudnnGetErrorString, const char *, (cudnnStatus_t))                                        \
    X(cudnnGetProperty, cudnnStatus_t, (libraryPropertyType, int *))                             \
    X(cublasCreate_v2, cublasStatus_t, (cublasHandle_t *))                                       \
    X(cublasDestroy_v2, cublasStatus_t, (cublasHandle_t))                                        \
    X(cublasSetStream_v2, cublasStatus_t, (cublasHandle_t, cudaStream_t))                        \
    X(cublasGetStream_v2, cublasStatus_t, (cublasHandle_t, cudaStream_t *))                      \
    X(cublasSetWorkspace_v2, cublasStatus_t, (cublasHandle_t, void *, size_t))                   \
    X(cublasSetPointerMode_v2, cublasStatus_t, (cublasHandle_t, cublasPointerMode_t))            \
    X(cublasGetPointerMode_v2, cublasStatus_t, (cublasHandle_t, cublasPointerMode_t *))          \
    X(cublasSetMathMode, cublasStatus_t, (cublasHandle_t, cublasMath_t))                         \
    X(cublasGetMathMode, cublasStatus_t, (cublasHandle_t, cublasMath_t *))                       \
    X(cublasSetAtomicsMode, cublasStatus_t, (cublasHandle_t, cublasAtomicsMode_t))               \
    X(cublasGetAtomicsMode, cublasStatus_t, (cublasHandle_t, cublasAtomicsMode_t *))             \
    X(cublasSetSmCountTarget, cublasStatus_t, (cublasHandle_t, int))                             \
    X(cublasGetSmCountTarget, cublasStatus_t, (cublasHandle_t, int *))                           \
    X(cublasGetStatusName, const char *, (cublasStatus_t))                                       \
    X(cublasGetProperty, cublasStatus_t, (libraryPropertyType, int *))                           \
    X(cublasLtCreate, cublasStatus_t, (cublasLtHandle_t *))                                      \
    X(cublasLtDestroy, cublasStatus_t, (cublasLtHandle_t))                                       \
    X(cublasLtGetStatusName, const char *, (cublasStatus_t))                                     \
    X(cublasLtGetProperty, cublasStatus_t, (libraryPropertyType, int *))                         \
    X(cusparseCreate, cusparseStatus_t, (cusparseHandle_t *))                                    \
    X(cusparseDestroy, cusparseStatus_t, (cusparseHandle_t))                                     \
    X(cusparseSetStream, cusparseStatus_t, (cusparseHandle_t, cudaStream_t))                     \
    X(cusparseGetStream, cusparseStatus_t, (cusparseHandle_t, cudaStream_t *))                   \
    X(cusparseSetPointerMode, cusparseStatus_t, (cusparseHandle_t, cusparsePointerMode_t))       \
    X(cusparseGetPointerMode, cusparseStatus_t, (cusparseHandle_t, cusparsePointerMode_t *))     \
    X(cusparseGetErrorName, const char *, (cusparseStatus_t))                                    \
    X(cusparseGetProperty, cusparseStatus_t, (libraryPropertyType, int *))                       \
    X(cusolverDnCreate, cusolverStatus_t, (cusolverDnHandle_t *))                                \
    X(cusolverDnDestroy, cusolverStatus_t, (cusolverDnHandle_t))                                 \
    X(cusolverDnSetStream, cusolverStatus_t, (cusolverDnHandle_t, cudaStream_t))                 \
    X(cusolverDnGetStream, cusolverStatus_t, (cusolverDnHandle_t, cudaStream_t *))               \
    X(cusolverDnSetMathMode, cusolverStatus_t, (cusolverDnHandle_t, cusolverMathMode_t))         \
    X(cusolverDnGetMathMode, cusolverStatus_t, (cusolverDnHandle_t, cusolverMathMode_t *))       \
    X(cusolverDnSetDeterministicMode, cusolverStatus_t,                                          \
      (cusolverDnHandle_t, cusolverDeterministicMode_t))                                         \
    X(cusolverDnGetDeterministicMode, cusolverStatus_t,                                          \
      (cusolverDnHandle_t, cusolverDeterministicMode_t *))                                       \
    X(cusolverDnSetEmulationStrategy, cusolverStatus_t,                                          \
      (cusolverDnHandle_t, cudaEmulationStrategy_t))                                             \
    X(cusolverDnGetEmulationStrategy, cusolverStatus_t,                                          \
      (cusolverDnHandle_t, cudaEmulationStrategy_t *))                                           \
    X(cublasSetEmulationStrategy, cublasStatus_t, (cublasHandle_t, cublasEmulationStrategy_t))   \
    X(cublasGetEmulationStrategy, cublasStatus_t, (cublasHandle_t, cublasEmulationStrategy_t *)) \
    X(cublasSetEmulationSpecialValuesSupport, cublasStatus_t,                                    \
      (cublasHandle_t, cudaEmulationSpecialValuesSupport))                                       \
    X(cublasGetEmulationSpecialValuesSupport, cublasStatus_t,                                    \
      (cublasHandle_t, cudaEmulationSpecialValuesSupport *))                                     \
    X(cublasSetFixedPointEmulationMantissaControl, cublasStatus_t,                               \
      (cublasHandle_t, cudaEmulationMantissaControl))                                            \
    X(cublasGetFixedPointEmulationMantissaControl, cublasStatus_t,                               \
      (cublasHandle_t, cudaEmulationMantissaControl *))                                          \
    X(cublasSetFixedPointEmulationMaxMantissaBitCount, cublasStatus_t, (cublasHandle_t, int))    \
    X(cublasGetFixedPointEmulationMaxMantissaBitCount, cublasStatus_t, (cublasHandle_t, int *))  \
    X(cublasSetFixedPointEmulationMantissaBitOffset, cublasStatus_t, (cublasHandle_t, int))      \
    X(cublasGetFixedPointEmulationMantissaBitOffset, cublasStatus_t, (cublasHandle_t, int *))    \
    X(cublasSetFixedPointEmulationMantissaBitCountPointer, cublasStatus_t,                       \
      (cublasHandle_t, int *))                                                                   \
    X(cublasGetFixedPointEmulationMantissaBitCountPointer, cublasStatus_t,                       \
      (cublasHandle_t, int **))                                                                  \
    X(cusolverGetProperty, cusolverStatus_t, (libraryPropertyType, int *))                       \
    X(cusolverSpCreate, cusolverStatus_t, (cusolverSpHandle_t *))                                \
    X(cusolverSpDestroy, cusolverStatus_t, (cusolverSpHandle_t))                                 \
    X(cusolverSpSetStream, cusolverStatus_t, (cusolverSpHandle_t, cudaStream_t))                 \
    X(cusolverSpGetStream, cusolverStatus_t, (cusolverSpHandle_t, cudaStream_t *))               \
    X(curandCreateGenerator, curandStatus_t, (curandGenerator_t *, curandRngType_t))             \
    X(curandDestroyGenerator, curandStatus_t, (curandGenerator_t))                               \
    X(curandSetStream, curandStatus_t, (curandGenerator_t, cudaStream_t))                        \
    X(curandGetProperty, curandStatus_t, (libraryPropertyType, int *))

/* The same for what check_cudss.c compares with cuDSS's header. */
#define CUDSS_SYMBOL_LIST(X)                                         \
    X(cudssCreate, cudssStatus_t, (cudssHandle_t *))                 \
    X(cudssDestroy, cudssStatus_t, (cudssHandle_t))                  \
    X(cudssSetStream, cudssStatus_t, (cudssHandle_t, cudaStream_t))  \
    X(cudssGetProperty, cudssStatus_t, (libraryPropertyType, int *)) \
    X(cudssSetDeviceMemHandler, cudssStatus_t, (cudssHandle_t, const cudssDeviceMemHandler_t *))

/* The same for what check_hip.c compares with the headers of hipSPARSE and rocSPARSE. */
#define HIP_HANDLE_SYMBOL_LIST(X)                                                                 \
    X(hipsparseCreate, hipsparseStatus_t, (hipsparseHandle_t *))                                  \
    X(hipsparseDestroy, hipsparseStatus_t, (hipsparseHandle_t))                                   \
    X(hipsparseSetStream, hipsparseStatus_t, (hipsparseHandle_t, hipStream_t))                    \
    X(hipsparseGetStream, hipsparseStatus_t, (hipsparseHandle_t, hipStream_t *))                  \
    X(hipsparseSetPointerMode, hipsparseStatus_t, (hipsparseHandle_t, hipsparsePointerMode_t))    \
    X(hipsparseGetPointerMode, hipsparseStatus_t, (hipsparseHandle_t, hipsparsePointerMode_t *))  \
    X(hipsparseGetVersion, hipsparseStatus_t, (hipsparseHandle_t, int *))                         \
    X(rocsparse_create_handle, rocsparse_status, (rocsparse_handle *))                            \
    X(rocsparse_destroy_handle, rocsparse_status, (rocsparse_handle))                             \
    X(rocsparse_set_stream, rocsparse_status, (rocsparse_handle, hipStream_t))                    \
    X(rocsparse_get_stream, rocsparse_status, (rocsparse_handle, hipStream_t *))                  \
    X(rocsparse_set_pointer_mode, rocsparse_status, (rocsparse_handle, rocsparse_pointer_mode))   \
    X(rocsparse_get_pointer_mode, rocsparse_status, (rocsparse_handle, rocsparse_pointer_mode *)) \
    X(rocsparse_get_version, rocsparse_status, (rocsparse_handle, int *))

/* Texts for a status that came later than the headers on the machines where this is tested, 5.3:
 * const char *(status). */
#define HIP_HANDLE_LATER_LIST(X)                                \
    X(hipsparseGetErrorName, const char *, (hipsparseStatus_t)) \
    X(rocsparse_get_status_name, const char *, (rocsparse_status))

#endif
