/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the simulated libcuda exports beside what tarn uses of it: entry points that programs are
 * likely to want, and the newer prototypes that go by the same name, which are what asking at the
 * driver's version would give. The columns are those of CUDA_CALL_LIST; tests/abi/check_cuda.c
 * compares these too. */
#ifndef SIM_CUDA_CALLS_H
#define SIM_CUDA_CALLS_H

#include "driver/cuda/cuda_abi.h"

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
    X(cuStreamUpdateCaptureDependencies, 12030, cuStreamUpdateCaptureDependencies_v2, false,      \
      (cu_stream stream, cu_graph_node * nodes, const struct cu_edge *edges, size_t count,        \
       unsigned flags))

#endif
