/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares what the checks in tests/gpu/ declare of CUDA's driver and of NVIDIA's libraries with
 * the vendor's headers. Compiling it is the test. cuDSS comes apart from the toolkit and is
 * compared where its header is found. */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cudaTypedefs.h>
#include <cudnn.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusparse.h>
#ifdef TARN_HAVE_CUDSS
#include <cudss.h>
#endif

#define GPU_NODE CUgraphNodeParams
#define GPU_EDGE CUgraphEdgeData
#define LT_MATMUL cublasLtMatmulDesc_t
#define LT_LAYOUT cublasLtMatrixLayout_t
#define LT_ALGORITHM cublasLtMatmulAlgo_t
#include "gpu/gpu_abi.h"
#include "gpu/library_abi.h"

#define SAME_CALL(name, version, symbol, needed, parameters)                                       \
    _Static_assert(__builtin_types_compatible_p(cu_result(*) parameters, PFN_##name##_v##version), \
                   #name " at version " #version);                                                 \
    _Static_assert(__builtin_types_compatible_p(cu_result(*) parameters, __typeof__(&symbol)),     \
                   #symbol);
GPU_CALL_LIST(SAME_CALL)

#define SAME_FIELD(ours, theirs)                                                                   \
    _Static_assert(offsetof(struct gpu_node, ours) == offsetof(CUgraphNodeParams, theirs) &&       \
                       sizeof((struct gpu_node){0}.ours) == sizeof((CUgraphNodeParams){0}.theirs), \
                   #theirs)
_Static_assert(sizeof(struct gpu_node) == sizeof(CUgraphNodeParams), "CUgraphNodeParams");
SAME_FIELD(type, type);
SAME_FIELD(conditional.handle, conditional.handle);
SAME_FIELD(conditional.type, conditional.type);
SAME_FIELD(conditional.size, conditional.size);
SAME_FIELD(conditional.bodies, conditional.phGraph_out);
SAME_FIELD(conditional.context, conditional.ctx);
_Static_assert(CU_GRAPH_NODE_TYPE_CONDITIONAL == GPU_NODE_CONDITIONAL, "conditional node");
_Static_assert(CU_GRAPH_COND_TYPE_IF == GPU_CONDITIONAL_IF, "conditional node");

#define SAME_PROTOTYPE(library, symbol, parameters)                                           \
    _Static_assert(__builtin_types_compatible_p(unsigned(*) parameters, __typeof__(&symbol)), \
                   #symbol);
BLAS_CALL_LIST(SAME_PROTOTYPE)
DNN_CALL_LIST(SAME_PROTOTYPE)
SPARSE_CALL_LIST(SAME_PROTOTYPE)

#define IS(name, value) _Static_assert((unsigned)(name) == (value), #name)
IS(CUDA_R_32F, TYPE_R_32F);
IS(CUDA_R_64F, TYPE_R_64F);
IS(CUDA_R_32I, TYPE_R_32I);
IS(CUBLAS_OP_N, 0);
IS(CUBLAS_COMPUTE_32F, LT_COMPUTE_32F);
IS(CUBLAS_FILL_MODE_LOWER, 0);
IS(CUDNN_TENSOR_NCHW, 0);
IS(CUDNN_DATA_FLOAT, 0);
IS(CUDNN_ACTIVATION_RELU, DNN_RELU);
IS(CUDNN_NOT_PROPAGATE_NAN, 0);
IS(CUSPARSE_INDEX_32I, SPARSE_INDEX_32I);
IS(CUSPARSE_INDEX_BASE_ZERO, 0);
IS(CUSPARSE_OPERATION_NON_TRANSPOSE, 0);
IS(CUSPARSE_SPMV_ALG_DEFAULT, 0);

#ifdef TARN_HAVE_CUDSS
DSS_CALL_LIST(SAME_PROTOTYPE)
IS(CUDSS_PHASE_ANALYSIS, DSS_PHASE_ANALYSIS);
IS(CUDSS_PHASE_FACTORIZATION, DSS_PHASE_FACTORIZATION);
IS(CUDSS_PHASE_SOLVE, DSS_PHASE_SOLVE);
IS(CUDSS_MTYPE_SPD, 3);
IS(CUDSS_MVIEW_FULL, 0);
IS(CUDSS_BASE_ZERO, 0);
IS(CUDSS_LAYOUT_COL_MAJOR, 0);
#endif
