/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares what run/abi.h declares with the toolkit's cuda.h and cudaTypedefs.h. Compiling it is
 * the test. */
#include "run/abi.h"

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>

#define SAME_TYPE(ours, theirs) \
    _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours " is not " #theirs)
SAME_TYPE(cu_array, CUarray);
SAME_TYPE(cu_mipmapped, CUmipmappedArray);
SAME_TYPE(cu_pool, CUmemoryPool);

_Static_assert(RUN_ARRAY_LAYERED == CUDA_ARRAY3D_LAYERED, "CUDA_ARRAY3D_LAYERED");
_Static_assert(RUN_ARRAY_CUBEMAP == CUDA_ARRAY3D_CUBEMAP, "CUDA_ARRAY3D_CUBEMAP");
#if CUDA_VERSION >= 13000
_Static_assert(RUN_MANAGED_POOL == CU_MEM_ALLOCATION_TYPE_MANAGED,
               "CU_MEM_ALLOCATION_TYPE_MANAGED");
#endif
_Static_assert(RUN_ARRAY_SPARSE == CUDA_ARRAY3D_SPARSE, "CUDA_ARRAY3D_SPARSE");
_Static_assert(RUN_ARRAY_DEFERRED == CUDA_ARRAY3D_DEFERRED_MAPPING,
               "CUDA_ARRAY3D_DEFERRED_MAPPING");
_Static_assert(RUN_LEGACY == CU_GET_PROC_ADDRESS_LEGACY_STREAM,
               "CU_GET_PROC_ADDRESS_LEGACY_STREAM");
_Static_assert(RUN_PER_THREAD == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
               "CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM");

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_SIZE(struct cu_uuid, CUuuid);
SAME_SIZE(struct cu_ipc, CUipcMemHandle_v1);
SAME_SIZE(struct cu_ipc_event, CUipcEventHandle_v1);
SAME_SIZE(struct cu_edge, CUgraphEdgeData);
SAME_SIZE(struct cu_array_descriptor, CUDA_ARRAY_DESCRIPTOR_v2);
SAME_FIELD(struct cu_array_descriptor, width, CUDA_ARRAY_DESCRIPTOR_v2, Width);
SAME_FIELD(struct cu_array_descriptor, height, CUDA_ARRAY_DESCRIPTOR_v2, Height);
SAME_FIELD(struct cu_array_descriptor, format, CUDA_ARRAY_DESCRIPTOR_v2, Format);
SAME_FIELD(struct cu_array_descriptor, channels, CUDA_ARRAY_DESCRIPTOR_v2, NumChannels);
SAME_SIZE(struct cu_array3d_descriptor, CUDA_ARRAY3D_DESCRIPTOR_v2);
SAME_FIELD(struct cu_array3d_descriptor, depth, CUDA_ARRAY3D_DESCRIPTOR_v2, Depth);
SAME_FIELD(struct cu_array3d_descriptor, format, CUDA_ARRAY3D_DESCRIPTOR_v2, Format);
SAME_FIELD(struct cu_array3d_descriptor, channels, CUDA_ARRAY3D_DESCRIPTOR_v2, NumChannels);
SAME_FIELD(struct cu_array3d_descriptor, flags, CUDA_ARRAY3D_DESCRIPTOR_v2, Flags);
SAME_SIZE(struct cu_pool_properties, CUmemPoolProps_v1);
SAME_FIELD(struct cu_pool_properties, type, CUmemPoolProps_v1, allocType);
SAME_FIELD(struct cu_pool_properties, location, CUmemPoolProps_v1, location);
SAME_FIELD(struct cu_pool_properties, most, CUmemPoolProps_v1, maxSize);
SAME_SIZE(struct cu_alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS_v1);
SAME_FIELD(struct cu_alloc_node, pool, CUDA_MEM_ALLOC_NODE_PARAMS_v1, poolProps);
SAME_FIELD(struct cu_alloc_node, size, CUDA_MEM_ALLOC_NODE_PARAMS_v1, bytesize);
SAME_FIELD(struct cu_alloc_node, address, CUDA_MEM_ALLOC_NODE_PARAMS_v1, dptr);

/* The layouts are the same: from here on our names mean their structs, for whose sake alone the
 * prototypes differ. */
#define cu_location CUmemLocation_st
#define cu_allocation_properties CUmemAllocationProp_st
#define cu_access CUmemAccessDesc_st
#define cu_uuid CUuuid_st
#define cu_ipc CUipcMemHandle_st
#define cu_ipc_event CUipcEventHandle_st
#define cu_edge CUgraphEdgeData_st
#define cu_array_descriptor CUDA_ARRAY_DESCRIPTOR_st
#define cu_array3d_descriptor CUDA_ARRAY3D_DESCRIPTOR_st
#define cu_pool_properties CUmemPoolProps_st
#define cu_alloc_node CUDA_MEM_ALLOC_NODE_PARAMS_v1_st

#define TYPE_RUN_ANY(name, version) PFN_##name##_v##version
#define TYPE_RUN_LEGACY(name, version) PFN_##name##_v##version
#define TYPE_RUN_PER_THREAD(name, version) PFN_##name##_v##version##_ptsz
#define SAME_PROTOTYPE(name, version, mode, symbol, parameters, arguments)                     \
    _Static_assert(                                                                            \
        __builtin_types_compatible_p(cu_result(*) parameters, TYPE_##mode(name, version)),     \
        #name " at version " #version);                                                        \
    _Static_assert(__builtin_types_compatible_p(cu_result(*) parameters, __typeof__(&symbol)), \
                   #symbol);
RUN_HOOK_LIST(SAME_PROTOTYPE)
RUN_ASK_LIST(SAME_PROTOTYPE)
