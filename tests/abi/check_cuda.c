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

/* The layouts are the same: from here on our names mean their structs, for whose sake alone the
 * prototypes differ. */
#define cu_uuid CUuuid_st
#define cu_location CUmemLocation_st
#define cu_allocation_properties CUmemAllocationProp_st
#define cu_access CUmemAccessDesc_st
#define cu_edge CUgraphEdgeData_st
#define cu_pool_properties CUmemPoolProps_st

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
