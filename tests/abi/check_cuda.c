/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares what src/driver/cuda/cuda_abi.h declares with the toolkit's cuda.h and cudaTypedefs.h.
 * Compiling it is the test: every value, every layout, and every prototype, as cuGetProcAddress()
 * gives it at its version and as the library exports it. */
#include "driver/cuda/cuda_abi.h"
#ifdef TARN_HAVE_SIM
#include "cuda/calls.h"
#endif

/* With this cuda.h keeps the exported names, of old and new prototypes alike, instead of making
 * macros of them. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION < 13020 /* as the header of 13.2 has it */
typedef CUresult(CUDAAPI *PFN_cuGraphNodeGetParams_v13020)(CUgraphNode, CUgraphNodeParams *);
CUresult CUDAAPI cuGraphNodeGetParams(CUgraphNode, CUgraphNodeParams *);
#endif

#define SAME_VALUE(name, value, theirs) _Static_assert((unsigned)(theirs) == (value), #theirs);
CUDA_VALUE_LIST(SAME_VALUE)
#ifndef __clang__ /* to which a pointer that is cast to a number is not a constant */
_Static_assert((size_t)CU_STREAM_LEGACY == (size_t)CU_LEGACY_STREAM, "CU_STREAM_LEGACY");
_Static_assert((size_t)CU_STREAM_PER_THREAD == (size_t)CU_THREADS_STREAM, "CU_STREAM_PER_THREAD");
#endif

#define SAME_TYPE(ours, theirs) \
    _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours " is not " #theirs)
SAME_TYPE(cu_result, CUresult);
SAME_TYPE(cu_device, CUdevice_v1);
SAME_TYPE(cu_address, CUdeviceptr_v2);
SAME_TYPE(cu_piece, CUmemGenericAllocationHandle_v1);
SAME_TYPE(cu_device_attribute, CUdevice_attribute);
SAME_TYPE(cu_granularity_kind, CUmemAllocationGranularity_flags);
SAME_TYPE(cu_handle_kind, CUmemAllocationHandleType);
SAME_TYPE(cu_capture_mode, CUstreamCaptureMode);
SAME_TYPE(cu_capture_status, CUstreamCaptureStatus);
SAME_TYPE(cu_node_type, CUgraphNodeType);
SAME_TYPE(cu_node_attribute, CUkernelNodeAttrID);
SAME_TYPE(cu_function, CUfunction);
SAME_TYPE(cu_kernel, CUkernel);
SAME_TYPE(cu_array, CUarray);
#ifdef TARN_HAVE_SIM
SAME_TYPE(cu_module, CUmodule);
#endif
SAME_TYPE(cu_lookup_status, CUdriverProcAddressQueryResult);
SAME_TYPE(cu_context, CUcontext);
SAME_TYPE(cu_green_context, CUgreenCtx);
SAME_TYPE(cu_stream, CUstream);
SAME_TYPE(cu_event, CUevent);
SAME_TYPE(cu_graph, CUgraph);
SAME_TYPE(cu_graph_node, CUgraphNode);
SAME_TYPE(cu_graph_exec, CUgraphExec);
SAME_TYPE(cu_user_object, CUuserObject);
SAME_TYPE(cu_host_function, CUhostFn);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_SIZE(struct cu_uuid, CUuuid);
SAME_FIELD(struct cu_uuid, bytes, CUuuid, bytes);
SAME_SIZE(struct cu_location, CUmemLocation_v1);
SAME_FIELD(struct cu_location, type, CUmemLocation_v1, type);
SAME_FIELD(struct cu_location, id, CUmemLocation_v1, id);
SAME_SIZE(struct cu_allocation_properties, CUmemAllocationProp_v1);
SAME_FIELD(struct cu_allocation_properties, type, CUmemAllocationProp_v1, type);
SAME_FIELD(struct cu_allocation_properties, handle_types, CUmemAllocationProp_v1,
           requestedHandleTypes);
SAME_FIELD(struct cu_allocation_properties, location, CUmemAllocationProp_v1, location);
SAME_FIELD(struct cu_allocation_properties, win32, CUmemAllocationProp_v1, win32HandleMetaData);
SAME_FIELD(struct cu_allocation_properties, flags, CUmemAllocationProp_v1, allocFlags);
SAME_FIELD(struct cu_allocation_properties, flags.compression, CUmemAllocationProp_v1,
           allocFlags.compressionType);
SAME_FIELD(struct cu_allocation_properties, flags.rdma, CUmemAllocationProp_v1,
           allocFlags.gpuDirectRDMACapable);
SAME_FIELD(struct cu_allocation_properties, flags.usage, CUmemAllocationProp_v1, allocFlags.usage);
SAME_SIZE(struct cu_access, CUmemAccessDesc_v1);
SAME_FIELD(struct cu_access, location, CUmemAccessDesc_v1, location);
SAME_FIELD(struct cu_access, flags, CUmemAccessDesc_v1, flags);
SAME_SIZE(struct cu_pool_properties, CUmemPoolProps_v1);
SAME_FIELD(struct cu_pool_properties, handle_types, CUmemPoolProps_v1, handleTypes);
SAME_FIELD(struct cu_pool_properties, location, CUmemPoolProps_v1, location);
SAME_FIELD(struct cu_pool_properties, most, CUmemPoolProps_v1, maxSize);
SAME_FIELD(struct cu_pool_properties, usage, CUmemPoolProps_v1, usage);
SAME_SIZE(struct cu_edge, CUgraphEdgeData);
SAME_FIELD(struct cu_edge, from_port, CUgraphEdgeData, from_port);
SAME_FIELD(struct cu_edge, to_port, CUgraphEdgeData, to_port);
SAME_FIELD(struct cu_edge, type, CUgraphEdgeData, type);
SAME_SIZE(struct cu_kernel_node, CUDA_KERNEL_NODE_PARAMS_v2);
SAME_FIELD(struct cu_kernel_node, function, CUDA_KERNEL_NODE_PARAMS_v2, func);
SAME_FIELD(struct cu_kernel_node, grid_x, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
SAME_FIELD(struct cu_kernel_node, block_z, CUDA_KERNEL_NODE_PARAMS_v2, blockDimZ);
SAME_FIELD(struct cu_kernel_node, shared, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
SAME_FIELD(struct cu_kernel_node, parameters, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
SAME_FIELD(struct cu_kernel_node, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra);
SAME_FIELD(struct cu_kernel_node, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
SAME_FIELD(struct cu_kernel_node, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);
SAME_SIZE(struct cu_set_node, CUDA_MEMSET_NODE_PARAMS_v1);
SAME_FIELD(struct cu_set_node, to, CUDA_MEMSET_NODE_PARAMS_v1, dst);
SAME_FIELD(struct cu_set_node, pitch, CUDA_MEMSET_NODE_PARAMS_v1, pitch);
SAME_FIELD(struct cu_set_node, value, CUDA_MEMSET_NODE_PARAMS_v1, value);
SAME_FIELD(struct cu_set_node, element, CUDA_MEMSET_NODE_PARAMS_v1, elementSize);
SAME_FIELD(struct cu_set_node, width, CUDA_MEMSET_NODE_PARAMS_v1, width);
SAME_FIELD(struct cu_set_node, height, CUDA_MEMSET_NODE_PARAMS_v1, height);
SAME_SIZE(struct cu_copy_node, CUDA_MEMCPY3D_v2);
SAME_FIELD(struct cu_copy_node, from.x, CUDA_MEMCPY3D_v2, srcXInBytes);
SAME_FIELD(struct cu_copy_node, from.y, CUDA_MEMCPY3D_v2, srcY);
SAME_FIELD(struct cu_copy_node, from.z, CUDA_MEMCPY3D_v2, srcZ);
SAME_FIELD(struct cu_copy_node, from.type, CUDA_MEMCPY3D_v2, srcMemoryType);
SAME_FIELD(struct cu_copy_node, from.host, CUDA_MEMCPY3D_v2, srcHost);
SAME_FIELD(struct cu_copy_node, from.device, CUDA_MEMCPY3D_v2, srcDevice);
SAME_FIELD(struct cu_copy_node, from.array, CUDA_MEMCPY3D_v2, srcArray);
SAME_FIELD(struct cu_copy_node, from.pitch, CUDA_MEMCPY3D_v2, srcPitch);
SAME_FIELD(struct cu_copy_node, from.height, CUDA_MEMCPY3D_v2, srcHeight);
SAME_FIELD(struct cu_copy_node, to.x, CUDA_MEMCPY3D_v2, dstXInBytes);
SAME_FIELD(struct cu_copy_node, to.y, CUDA_MEMCPY3D_v2, dstY);
SAME_FIELD(struct cu_copy_node, to.z, CUDA_MEMCPY3D_v2, dstZ);
SAME_FIELD(struct cu_copy_node, to.type, CUDA_MEMCPY3D_v2, dstMemoryType);
SAME_FIELD(struct cu_copy_node, to.host, CUDA_MEMCPY3D_v2, dstHost);
SAME_FIELD(struct cu_copy_node, to.device, CUDA_MEMCPY3D_v2, dstDevice);
SAME_FIELD(struct cu_copy_node, to.array, CUDA_MEMCPY3D_v2, dstArray);
SAME_FIELD(struct cu_copy_node, to.pitch, CUDA_MEMCPY3D_v2, dstPitch);
SAME_FIELD(struct cu_copy_node, to.height, CUDA_MEMCPY3D_v2, dstHeight);
SAME_FIELD(struct cu_copy_node, width, CUDA_MEMCPY3D_v2, WidthInBytes);
SAME_FIELD(struct cu_copy_node, height, CUDA_MEMCPY3D_v2, Height);
SAME_FIELD(struct cu_copy_node, depth, CUDA_MEMCPY3D_v2, Depth);
SAME_SIZE(union cu_memory_operation, CUstreamBatchMemOpParams_v1);
SAME_FIELD(union cu_memory_operation, operation, CUstreamBatchMemOpParams_v1, operation);
SAME_FIELD(union cu_memory_operation, value.address, CUstreamBatchMemOpParams_v1,
           waitValue.address);
SAME_FIELD(union cu_memory_operation, value.address, CUstreamBatchMemOpParams_v1,
           writeValue.address);
SAME_FIELD(union cu_memory_operation, value.value, CUstreamBatchMemOpParams_v1, waitValue.value64);
SAME_FIELD(union cu_memory_operation, value.flags, CUstreamBatchMemOpParams_v1, writeValue.flags);
SAME_SIZE(struct cu_any_node, CUgraphNodeParams);
SAME_FIELD(struct cu_any_node, type, CUgraphNodeParams, type);
SAME_FIELD(struct cu_any_node, conditional.handle, CUgraphNodeParams, conditional.handle);
SAME_FIELD(struct cu_any_node, conditional.type, CUgraphNodeParams, conditional.type);
SAME_FIELD(struct cu_any_node, conditional.size, CUgraphNodeParams, conditional.size);
SAME_FIELD(struct cu_any_node, conditional.bodies, CUgraphNodeParams, conditional.phGraph_out);
SAME_FIELD(struct cu_any_node, conditional.context, CUgraphNodeParams, conditional.ctx);
SAME_FIELD(struct cu_any_node, more, CUgraphNodeParams, reserved2);
SAME_SIZE(struct cu_batch_node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1);
SAME_FIELD(struct cu_batch_node, context, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, ctx);
SAME_FIELD(struct cu_batch_node, count, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, count);
SAME_FIELD(struct cu_batch_node, operations, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, paramArray);
SAME_FIELD(struct cu_batch_node, flags, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, flags);
SAME_SIZE(union cu_attribute_value, CUkernelNodeAttrValue_v1);
SAME_FIELD(union cu_attribute_value, updatable.is, CUkernelNodeAttrValue_v1,
           deviceUpdatableKernelNode.deviceUpdatable);
SAME_FIELD(union cu_attribute_value, updatable.node, CUkernelNodeAttrValue_v1,
           deviceUpdatableKernelNode.devNode);
#ifdef TARN_HAVE_SIM
SAME_SIZE(struct cu_host_node, CUDA_HOST_NODE_PARAMS_v1);
SAME_FIELD(struct cu_host_node, function, CUDA_HOST_NODE_PARAMS_v1, fn);
SAME_FIELD(struct cu_host_node, argument, CUDA_HOST_NODE_PARAMS_v1, userData);
#endif

/* The layouts are the same: from here on our names mean their structs, for whose sake alone the
 * prototypes differ. */
#define cu_uuid CUuuid_st
#define cu_location CUmemLocation_st
#define cu_allocation_properties CUmemAllocationProp_st
#define cu_access CUmemAccessDesc_st
#define cu_edge CUgraphEdgeData_st
#define cu_pool_properties CUmemPoolProps_st
#define cu_kernel_node CUDA_KERNEL_NODE_PARAMS_v2_st
#define cu_set_node CUDA_MEMSET_NODE_PARAMS_st
#define cu_copy_node CUDA_MEMCPY3D_st
#define cu_memory_operation CUstreamBatchMemOpParams_union
#define cu_any_node CUgraphNodeParams_st
#define cu_batch_node CUDA_BATCH_MEM_OP_NODE_PARAMS_v1_st
#define cu_attribute_value CUlaunchAttributeValue_union
#define cu_host_node CUDA_HOST_NODE_PARAMS_st

#define SAME_PROTOTYPE(name, version, symbol, needed, parameters)                                  \
    _Static_assert(__builtin_types_compatible_p(cu_result(*) parameters, PFN_##name##_v##version), \
                   #name " at version " #version);                                                 \
    _Static_assert(__builtin_types_compatible_p(cu_result(*) parameters, __typeof__(&symbol)),     \
                   #symbol);
CUDA_CALL_LIST(SAME_PROTOTYPE)
CUDA_LOADER_LIST(SAME_PROTOTYPE)
#ifdef TARN_HAVE_SIM
SIM_CUDA_CALL_LIST(SAME_PROTOTYPE)
#endif
