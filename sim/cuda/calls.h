/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated libcuda exports and tarn does not use: entry points that programs are likely
 * to want, and newer prototypes of names that tarn uses, as cuGetProcAddress() returns them at the
 * driver's version. The columns are those of CUDA_CALL_LIST. tests/abi/check_cuda.c compares these
 * rows too. */
#ifndef SIM_CUDA_CALLS_H
#define SIM_CUDA_CALLS_H

#include "driver/cuda/cuda_abi.h"

typedef struct CUmod_st *cu_module;

struct cu_host_node {
    cu_host_function function;
    void *argument;
};

#define SIM_CUDA_CALL_LIST(X)                                                                     \
    X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2, false, (cu_device device))  \
    X(cuCtxGetDevice, 13000, cuCtxGetDevice_v2, false, (cu_device * device, cu_context context))  \
    X(cuCtxSynchronize, 13000, cuCtxSynchronize_v2, false, (cu_context context))                  \
    X(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2, false,                                 \
      (cu_address * base, size_t * size, cu_address address))                                     \
    X(cuMemAllocFromPoolAsync, 11020, cuMemAllocFromPoolAsync, false,                             \
      (cu_address * address, size_t size, cu_pool pool, cu_stream stream))                        \
    X(cuDeviceGetDefaultMemPool, 11020, cuDeviceGetDefaultMemPool, false,                         \
      (cu_pool * pool, cu_device device))                                                         \
    X(cuDeviceGetMemPool, 11020, cuDeviceGetMemPool, false, (cu_pool * pool, cu_device device))   \
    X(cuDeviceSetMemPool, 11020, cuDeviceSetMemPool, false, (cu_device device, cu_pool pool))     \
    X(cuMemPoolCreate, 11020, cuMemPoolCreate, false,                                             \
      (cu_pool * pool, const struct cu_pool_properties *properties))                              \
    X(cuMemPoolDestroy, 11020, cuMemPoolDestroy, false, (cu_pool pool))                           \
    X(cuMemPoolSetAccess, 11020, cuMemPoolSetAccess, false,                                       \
      (cu_pool pool, const struct cu_access *access, size_t count))                               \
    X(cuMemPoolGetAccess, 11020, cuMemPoolGetAccess, false,                                       \
      (unsigned *flags, cu_pool pool, struct cu_location *location))                              \
    X(cuMemPoolTrimTo, 11020, cuMemPoolTrimTo, false, (cu_pool pool, size_t keep))                \
    X(cuMemPoolGetAttribute, 11020, cuMemPoolGetAttribute, false,                                 \
      (cu_pool pool, unsigned attribute, void *value))                                            \
    X(cuMemPoolSetAttribute, 11020, cuMemPoolSetAttribute, false,                                 \
      (cu_pool pool, unsigned attribute, void *value))                                            \
    X(cuPointerGetAttribute, 4000, cuPointerGetAttribute, false,                                  \
      (void *data, unsigned attribute, cu_address address))                                       \
    X(cuPointerGetAttributes, 7000, cuPointerGetAttributes, false,                                \
      (unsigned count, unsigned *attributes, void **data, cu_address address))                    \
    X(cuMemAllocHost, 3020, cuMemAllocHost_v2, false, (void **memory, size_t size))               \
    X(cuMemcpy, 4000, cuMemcpy, false, (cu_address to, cu_address from, size_t size))             \
    X(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2, false, (cu_address to, const void *from, size_t size)) \
    X(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2, false, (void *to, cu_address from, size_t size))       \
    X(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2, false, (cu_address to, cu_address from, size_t size))  \
    X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2, false,                                       \
      (cu_address to, const void *from, size_t size, cu_stream stream))                           \
    X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2, false,                                       \
      (void *to, cu_address from, size_t size, cu_stream stream))                                 \
    X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2, false,                                       \
      (cu_address to, cu_address from, size_t size, cu_stream stream))                            \
    X(cuMemsetD8, 3020, cuMemsetD8_v2, false,                                                     \
      (cu_address address, unsigned char value, size_t count))                                    \
    X(cuStreamCreate, 2000, cuStreamCreate, false, (cu_stream * stream, unsigned flags))          \
    X(cuStreamGetFlags, 5050, cuStreamGetFlags, false, (cu_stream stream, unsigned *flags))       \
    X(cuStreamGetPriority, 5050, cuStreamGetPriority, false, (cu_stream stream, int *priority))   \
    X(cuStreamIsCapturing, 10000, cuStreamIsCapturing, false,                                     \
      (cu_stream stream, cu_capture_status * state))                                              \
    X(cuGraphNodeGetDependencies, 12030, cuGraphNodeGetDependencies_v2, false,                    \
      (cu_graph_node node, cu_graph_node * nodes, struct cu_edge * edges, size_t * count))        \
    X(cuModuleLoadData, 2000, cuModuleLoadData, false, (cu_module * module, const void *image))   \
    X(cuModuleGetFunction, 2000, cuModuleGetFunction, false,                                      \
      (cu_function * function, cu_module module, const char *name))                               \
    X(cuModuleUnload, 2000, cuModuleUnload, false, (cu_module module))                            \
    X(cuLaunchKernel, 4000, cuLaunchKernel, false,                                                \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
       unsigned block_y, unsigned block_z, unsigned shared, cu_stream stream, void **parameters,  \
       void **extra))                                                                             \
    X(cuGraphCreate, 10000, cuGraphCreate, false, (cu_graph * graph, unsigned flags))             \
    X(cuGraphAddKernelNode, 12000, cuGraphAddKernelNode_v2, false,                                \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       const struct cu_kernel_node *parameters))                                                  \
    X(cuGraphAddMemcpyNode, 10000, cuGraphAddMemcpyNode, false,                                   \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       const struct cu_copy_node *parameters, cu_context context))                                \
    X(cuGraphAddMemsetNode, 10000, cuGraphAddMemsetNode, false,                                   \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       const struct cu_set_node *parameters, cu_context context))                                 \
    X(cuGraphAddHostNode, 10000, cuGraphAddHostNode, false,                                       \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       const struct cu_host_node *parameters))                                                    \
    X(cuGraphAddChildGraphNode, 10000, cuGraphAddChildGraphNode, false,                           \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       cu_graph child))                                                                           \
    X(cuGraphConditionalHandleCreate, 12030, cuGraphConditionalHandleCreate, false,               \
      (uint64_t * handle, cu_graph graph, cu_context context, unsigned value, unsigned flags))    \
    X(cuGraphAddNode, 12030, cuGraphAddNode_v2, false,                                            \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before,                         \
       const struct cu_edge *edges, size_t count, struct cu_any_node *parameters))                \
    X(cuGraphAddEmptyNode, 10000, cuGraphAddEmptyNode, false,                                     \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count))          \
    X(cuGraphAddBatchMemOpNode, 11070, cuGraphAddBatchMemOpNode, false,                           \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       const struct cu_batch_node *parameters))                                                   \
    X(cuGraphAddMemFreeNode, 11040, cuGraphAddMemFreeNode, false,                                 \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,           \
       cu_address address))                                                                       \
    X(cuGraphKernelNodeSetAttribute, 11000, cuGraphKernelNodeSetAttribute, false,                 \
      (cu_graph_node node, cu_node_attribute attribute, const union cu_attribute_value *value))   \
    X(cuStreamUpdateCaptureDependencies, 12030, cuStreamUpdateCaptureDependencies_v2, false,      \
      (cu_stream stream, cu_graph_node * nodes, const struct cu_edge *edges, size_t count,        \
       unsigned flags))

#endif
