/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the checks call of NVIDIA's libraries, declared here so that no toolkit is needed where they
 * run; tests/abi/check_gpu.c compares each with the vendor's headers. Enums are `unsigned`, with
 * which C enums without negative values are compatible; tags are the vendor's. */
#ifndef TESTS_GPU_LIBRARY_ABI_H
#define TESTS_GPU_LIBRARY_ABI_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct cublasContext;
struct cublasLtContext;
struct cudnnContext;
struct cudnnTensorStruct;
struct cudnnActivationStruct;
struct cusparseContext;
struct cusparseSpMatDescr;
struct cusparseDnVecDescr;
struct cusolverDnContext;
struct curandGenerator_st;
struct cudssContext;
struct cudssMatrix;
struct cudssData;
struct cudssConfig;

/* Pointers to structures without a tag, which only the vendor's header can name. */
#ifndef LT_MATMUL
#define LT_MATMUL void *
#define LT_LAYOUT void *
#define LT_ALGORITHM void
#endif

#define TYPE_R_32F 0u
#define TYPE_R_64F 1u
#define TYPE_R_32I 10u
#define LT_COMPUTE_32F 68u
#define DNN_RELU 1u
#define SPARSE_INDEX_32I 2u
#define DSS_PHASE_ANALYSIS 3
#define DSS_PHASE_FACTORIZATION 4
#define DSS_PHASE_SOLVE 1008

/* X(tarn's name of the library, symbol, parameters); each returns its library's status. */
#define BLAS_CALL_LIST(X)                                                                         \
    X(CUBLAS, cublasSgemm_v2,                                                                     \
      (struct cublasContext * handle, unsigned transa, unsigned transb, int m, int n, int k,      \
       const float *alpha, const float *a, int lda, const float *b, int ldb, const float *beta,   \
       float *c, int ldc))                                                                        \
    X(CUBLASLT, cublasLtMatmulDescCreate, (LT_MATMUL * matmul, unsigned compute, unsigned scale)) \
    X(CUBLASLT, cublasLtMatmulDescDestroy, (LT_MATMUL matmul))                                    \
    X(CUBLASLT, cublasLtMatrixLayoutCreate,                                                       \
      (LT_LAYOUT * layout, unsigned type, uint64_t rows, uint64_t columns, int64_t ld))           \
    X(CUBLASLT, cublasLtMatrixLayoutDestroy, (LT_LAYOUT layout))                                  \
    X(CUBLASLT, cublasLtMatmul,                                                                   \
      (struct cublasLtContext * handle, LT_MATMUL matmul, const void *alpha, const void *a,       \
       LT_LAYOUT layout_a, const void *b, LT_LAYOUT layout_b, const void *beta, const void *c,    \
       LT_LAYOUT layout_c, void *d, LT_LAYOUT layout_d, const LT_ALGORITHM *algorithm,            \
       void *workspace, size_t size, struct CUstream_st *stream))                                 \
    X(CURAND, curandSetPseudoRandomGeneratorSeed,                                                 \
      (struct curandGenerator_st * generator, unsigned long long seed))                           \
    X(CURAND, curandGenerateSeeds, (struct curandGenerator_st * generator))                       \
    X(CURAND, curandGenerateUniform,                                                              \
      (struct curandGenerator_st * generator, float *to, size_t count))

#define DNN_CALL_LIST(X)                                                                           \
    X(CUDNN, cudnnCreateTensorDescriptor, (struct cudnnTensorStruct * *tensor))                    \
    X(CUDNN, cudnnDestroyTensorDescriptor, (struct cudnnTensorStruct * tensor))                    \
    X(CUDNN, cudnnSetTensor4dDescriptor,                                                           \
      (struct cudnnTensorStruct * tensor, unsigned format, unsigned type, int n, int c, int h,     \
       int w))                                                                                     \
    X(CUDNN, cudnnCreateActivationDescriptor, (struct cudnnActivationStruct * *activation))        \
    X(CUDNN, cudnnDestroyActivationDescriptor, (struct cudnnActivationStruct * activation))        \
    X(CUDNN, cudnnSetActivationDescriptor,                                                         \
      (struct cudnnActivationStruct * activation, unsigned mode, unsigned nan,                     \
       double coefficient))                                                                        \
    X(CUDNN, cudnnActivationForward,                                                               \
      (struct cudnnContext * handle, struct cudnnActivationStruct * activation, const void *alpha, \
       struct cudnnTensorStruct *const layout_x, const void *x, const void *beta,                  \
       struct cudnnTensorStruct *const layout_y, void *y))

#define SPARSE_CALL_LIST(X)                                                                     \
    X(CUSPARSE, cusparseCreateCsr,                                                              \
      (struct cusparseSpMatDescr * *matrix, int64_t rows, int64_t columns, int64_t nonzeros,    \
       void *offsets, void *indices, void *values, unsigned offset_type, unsigned index_type,   \
       unsigned base, unsigned type))                                                           \
    X(CUSPARSE, cusparseDestroySpMat, (const struct cusparseSpMatDescr *matrix))                \
    X(CUSPARSE, cusparseCreateDnVec,                                                            \
      (struct cusparseDnVecDescr * *vector, int64_t size, void *values, unsigned type))         \
    X(CUSPARSE, cusparseDestroyDnVec, (const struct cusparseDnVecDescr *vector))                \
    X(CUSPARSE, cusparseSpMV_bufferSize,                                                        \
      (struct cusparseContext * handle, unsigned operation, const void *alpha,                  \
       const struct cusparseSpMatDescr *matrix, const struct cusparseDnVecDescr *x,             \
       const void *beta, struct cusparseDnVecDescr *y, unsigned type, unsigned algorithm,       \
       size_t *size))                                                                           \
    X(CUSPARSE, cusparseSpMV,                                                                   \
      (struct cusparseContext * handle, unsigned operation, const void *alpha,                  \
       const struct cusparseSpMatDescr *matrix, const struct cusparseDnVecDescr *x,             \
       const void *beta, struct cusparseDnVecDescr *y, unsigned type, unsigned algorithm,       \
       void *buffer))                                                                           \
    X(CUSOLVER_DN, cusolverDnDpotrf_bufferSize,                                                 \
      (struct cusolverDnContext * handle, unsigned part, int n, double *a, int lda, int *size)) \
    X(CUSOLVER_DN, cusolverDnDpotrf,                                                            \
      (struct cusolverDnContext * handle, unsigned part, int n, double *a, int lda,             \
       double *workspace, int size, int *info))

/* cuDSS of 1.0 and later: before, the numbers of the phases and cudssMatrixCreateCsr were
 * others. */
#define DSS_CALL_LIST(X)                                                                       \
    X(CUDSS, cudssConfigCreate, (struct cudssConfig * *config))                                \
    X(CUDSS, cudssConfigDestroy, (struct cudssConfig * config))                                \
    X(CUDSS, cudssDataCreate, (struct cudssContext *const handle, struct cudssData **data))    \
    X(CUDSS, cudssDataDestroy, (struct cudssContext * handle, struct cudssData * data))        \
    X(CUDSS, cudssMatrixDestroy, (struct cudssMatrix * matrix))                                \
    X(CUDSS, cudssMatrixCreateDn,                                                              \
      (struct cudssMatrix * *matrix, int64_t rows, int64_t columns, int64_t ld,                \
       const void *values, unsigned type, unsigned layout))                                    \
    X(CUDSS, cudssMatrixCreateCsr,                                                             \
      (struct cudssMatrix * *matrix, int64_t rows, int64_t columns, int64_t nonzeros,          \
       const void *starts, const void *ends, const void *indices, const void *values,          \
       unsigned offset_type, unsigned index_type, unsigned type, unsigned kind, unsigned view, \
       unsigned base))                                                                         \
    X(CUDSS, cudssExecute,                                                                     \
      (struct cudssContext * handle, int phase, struct cudssConfig *const config,              \
       struct cudssData *data, struct cudssMatrix *const matrix, struct cudssMatrix *solution, \
       struct cudssMatrix *const rhs))

#define LIBRARY_CALL_LIST(X) \
    BLAS_CALL_LIST(X)        \
    DNN_CALL_LIST(X)         \
    SPARSE_CALL_LIST(X)      \
    DSS_CALL_LIST(X)

#endif
