/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the checks on a GPU use of CUDA's driver beyond what tarn does. Columns as in
 * driver/cuda/cuda_abi.h; tests/abi/check_gpu.c compares each with cuda.h. */
#ifndef TESTS_GPU_GPU_ABI_H
#define TESTS_GPU_GPU_ABI_H

#include "driver/cuda/cuda_abi.h"

typedef struct CUmod_st *cu_module;
typedef struct CUfunc_st *cu_function;

/* The types of the header where it is included, for the comparison */
#ifndef GPU_NODE
#define GPU_NODE struct gpu_node
#define GPU_EDGE void
#endif

/* CUgraphNodeParams of a conditional node */
#define GPU_NODE_CONDITIONAL 13
#define GPU_CONDITIONAL_IF 0
struct gpu_node {
    unsigned type;
    int reserved[3];
    union {
        struct {
            uint64_t handle;
            unsigned type, size;
            cu_graph *bodies;
            cu_context context;
        } conditional;
        uint64_t room[29];
    };
    uint64_t more;
};

#define GPU_CALL_LIST(X)                                                                          \
    X(cuModuleLoadData, 2000, cuModuleLoadData, false, (cu_module * module, const void *image))   \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction, false,                                      \
      (cu_function * function, cu_module module, const char *name))                               \
    X(cuLaunchKernel, 4000, cuLaunchKernel, false,                                                \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream,               \
       void **parameters, void **extra))                                                          \
    X(cuLaunchCooperativeKernel, 9000, cuLaunchCooperativeKernel, false,                          \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream,               \
       void **parameters))                                                                        \
    X(cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode, false,                           \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *after, size_t count,            \
       cu_graph child))                                                                           \
    X(cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate, false,               \
      (uint64_t * handle, cu_graph graph, cu_context context, unsigned value, unsigned flags))    \
    X(cuGraphAddNode, 12030, cuGraphAddNode_v2, false,                                            \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *after, const GPU_EDGE *edges,   \
       size_t count, GPU_NODE *parameters))                                                       \
    X(cuStreamBeginCaptureToGraph, 12030, cuStreamBeginCaptureToGraph, false,                     \
      (cu_stream stream, cu_graph graph, const cu_graph_node *after, const GPU_EDGE *edges,       \
       size_t count, unsigned mode))

#endif
