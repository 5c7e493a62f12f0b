/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares what src/driver/hip/hip_abi.h declares with the headers of HIP, and what the rows of
 * hipSPARSE and rocSPARSE name with theirs. Compiling it is the test: every value, every layout and
 * every prototype that HIP 5.2 has. */
#include "abi/handle_symbols.h"
#include "driver/hip/hip_abi.h"
#ifdef TARN_HAVE_SIM
#include "hip/calls.h"
#endif

#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <tarn/hipsparse.h>
#include <tarn/rocsparse.h>

#define SAME_VALUE(name, value, theirs) _Static_assert((unsigned)(theirs) == (value), #theirs);
HIP_VALUE_LIST(SAME_VALUE)

#define SAME_TYPE(ours, theirs) \
    _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours " is not " #theirs)
SAME_TYPE(hip_result, hipError_t);
SAME_TYPE(hip_device_attribute, hipDeviceAttribute_t);
SAME_TYPE(hip_granularity_kind, hipMemAllocationGranularity_flags);
SAME_TYPE(hip_stream_capture_mode, hipStreamCaptureMode);
SAME_TYPE(hip_stream_capture_status, hipStreamCaptureStatus);
SAME_TYPE(hip_copy_kind, hipMemcpyKind);
SAME_TYPE(hip_handle_kind, hipMemAllocationHandleType);
SAME_TYPE(hip_node_type, hipGraphNodeType);
SAME_TYPE(hip_function, hipFunction_t);
SAME_TYPE(int, hipDevice_t);
SAME_TYPE(hip_stream, hipStream_t);
SAME_TYPE(hip_event, hipEvent_t);
SAME_TYPE(hip_graph, hipGraph_t);
SAME_TYPE(hip_graph_node, hipGraphNode_t);
SAME_TYPE(hip_graph_exec, hipGraphExec_t);
SAME_TYPE(hip_piece, hipMemGenericAllocationHandle_t);
SAME_TYPE(hip_host_function, hipHostFn_t);
SAME_TYPE(hip_stream_callback, hipStreamCallback_t);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_SIZE(struct hip_uuid, hipUUID);
SAME_SIZE(struct hip_location, hipMemLocation);
SAME_FIELD(struct hip_location, type, hipMemLocation, type);
SAME_FIELD(struct hip_location, id, hipMemLocation, id);
SAME_SIZE(struct hip_access, hipMemAccessDesc);
SAME_FIELD(struct hip_access, location, hipMemAccessDesc, location);
SAME_FIELD(struct hip_access, flags, hipMemAccessDesc, flags);
SAME_SIZE(struct hip_allocation_properties, hipMemAllocationProp);
SAME_SIZE(struct hip_pointer_attributes, hipPointerAttribute_t);
#if HIP_VERSION_MAJOR < 6
#define type_of_pointer memoryType
#else
#define type_of_pointer type
#endif
SAME_FIELD(struct hip_pointer_attributes, type, hipPointerAttribute_t, type_of_pointer);
SAME_FIELD(struct hip_pointer_attributes, device, hipPointerAttribute_t, device);
SAME_FIELD(struct hip_pointer_attributes, device_pointer, hipPointerAttribute_t, devicePointer);
SAME_FIELD(struct hip_pointer_attributes, host_pointer, hipPointerAttribute_t, hostPointer);
SAME_FIELD(struct hip_pointer_attributes, managed, hipPointerAttribute_t, isManaged);
SAME_FIELD(struct hip_pointer_attributes, flags, hipPointerAttribute_t, allocationFlags);

/* The kinds of memory, numbered anew with 6.0. */
enum {
#define X(kind, old, now) number_of_##kind = HIP_VERSION_MAJOR < 6 ? (int)(old) : (int)(now),
    HIP_MEMORY_KIND_LIST(X)
#undef X
};
_Static_assert(number_of_HIP_MEMORY_HOST == (int)hipMemoryTypeHost, "hipMemoryTypeHost");
_Static_assert(number_of_HIP_MEMORY_DEVICE == (int)hipMemoryTypeDevice, "hipMemoryTypeDevice");
_Static_assert(number_of_HIP_MEMORY_ARRAY == (int)hipMemoryTypeArray, "hipMemoryTypeArray");
_Static_assert(number_of_HIP_MEMORY_UNIFIED == (int)hipMemoryTypeUnified, "hipMemoryTypeUnified");

#if HIP_VERSION_MAJOR >= 6
SAME_FIELD(struct hip_allocation_properties, type, hipMemAllocationProp, type);
SAME_FIELD(struct hip_allocation_properties, handle_types, hipMemAllocationProp,
           requestedHandleType);
SAME_FIELD(struct hip_allocation_properties, location, hipMemAllocationProp, location);
SAME_FIELD(struct hip_allocation_properties, win32, hipMemAllocationProp, win32HandleMetaData);
SAME_FIELD(struct hip_allocation_properties, flags, hipMemAllocationProp, allocFlags);
#endif

SAME_SIZE(struct hip_dimensions, dim3);
SAME_FIELD(struct hip_dimensions, y, dim3, y);
SAME_FIELD(struct hip_dimensions, z, dim3, z);
SAME_SIZE(struct hip_kernel_node, hipKernelNodeParams);
SAME_FIELD(struct hip_kernel_node, block, hipKernelNodeParams, blockDim);
SAME_FIELD(struct hip_kernel_node, extra, hipKernelNodeParams, extra);
SAME_FIELD(struct hip_kernel_node, function, hipKernelNodeParams, func);
SAME_FIELD(struct hip_kernel_node, grid, hipKernelNodeParams, gridDim);
SAME_FIELD(struct hip_kernel_node, parameters, hipKernelNodeParams, kernelParams);
SAME_FIELD(struct hip_kernel_node, shared, hipKernelNodeParams, sharedMemBytes);
SAME_SIZE(struct hip_place, struct hipPos);
SAME_FIELD(struct hip_place, y, struct hipPos, y);
SAME_FIELD(struct hip_place, z, struct hipPos, z);
SAME_SIZE(struct hip_extent, hipExtent);
SAME_SIZE(struct hip_pitched, hipPitchedPtr);
SAME_FIELD(struct hip_pitched, address, hipPitchedPtr, ptr);
SAME_FIELD(struct hip_pitched, pitch, hipPitchedPtr, pitch);
SAME_FIELD(struct hip_pitched, width, hipPitchedPtr, xsize);
SAME_FIELD(struct hip_pitched, height, hipPitchedPtr, ysize);
SAME_SIZE(struct hip_copy_node, hipMemcpy3DParms);
SAME_FIELD(struct hip_copy_node, from_array, hipMemcpy3DParms, srcArray);
SAME_FIELD(struct hip_copy_node, from_at, hipMemcpy3DParms, srcPos);
SAME_FIELD(struct hip_copy_node, from, hipMemcpy3DParms, srcPtr);
SAME_FIELD(struct hip_copy_node, to_array, hipMemcpy3DParms, dstArray);
SAME_FIELD(struct hip_copy_node, to_at, hipMemcpy3DParms, dstPos);
SAME_FIELD(struct hip_copy_node, to, hipMemcpy3DParms, dstPtr);
SAME_FIELD(struct hip_copy_node, extent, hipMemcpy3DParms, extent);
SAME_FIELD(struct hip_copy_node, extent.width, hipMemcpy3DParms, extent.width);
SAME_FIELD(struct hip_copy_node, extent.height, hipMemcpy3DParms, extent.height);
SAME_FIELD(struct hip_copy_node, extent.depth, hipMemcpy3DParms, extent.depth);
SAME_FIELD(struct hip_copy_node, kind, hipMemcpy3DParms, kind);
SAME_SIZE(struct hip_set_node, hipMemsetParams);
SAME_FIELD(struct hip_set_node, to, hipMemsetParams, dst);
SAME_FIELD(struct hip_set_node, element, hipMemsetParams, elementSize);
SAME_FIELD(struct hip_set_node, height, hipMemsetParams, height);
SAME_FIELD(struct hip_set_node, pitch, hipMemsetParams, pitch);
SAME_FIELD(struct hip_set_node, value, hipMemsetParams, value);
SAME_FIELD(struct hip_set_node, width, hipMemsetParams, width);

#ifdef TARN_HAVE_SIM
SAME_SIZE(struct hip_host_node, hipHostNodeParams);
SAME_FIELD(struct hip_host_node, function, hipHostNodeParams, fn);
SAME_FIELD(struct hip_host_node, argument, hipHostNodeParams, userData);
#if HIP_VERSION_MAJOR < 6
SAME_SIZE(struct hip_properties, hipDeviceProp_t);
SAME_FIELD(struct hip_properties, name, hipDeviceProp_t, name);
SAME_FIELD(struct hip_properties, memory, hipDeviceProp_t, totalGlobalMem);
SAME_FIELD(struct hip_properties, warp_size, hipDeviceProp_t, warpSize);
SAME_FIELD(struct hip_properties, threads_per_block, hipDeviceProp_t, maxThreadsPerBlock);
SAME_FIELD(struct hip_properties, block_size, hipDeviceProp_t, maxThreadsDim);
SAME_FIELD(struct hip_properties, grid_size, hipDeviceProp_t, maxGridSize);
SAME_FIELD(struct hip_properties, constant_memory, hipDeviceProp_t, totalConstMem);
SAME_FIELD(struct hip_properties, major, hipDeviceProp_t, major);
SAME_FIELD(struct hip_properties, processors, hipDeviceProp_t, multiProcessorCount);
SAME_FIELD(struct hip_properties, threads_per_processor, hipDeviceProp_t,
           maxThreadsPerMultiProcessor);
SAME_FIELD(struct hip_properties, features, hipDeviceProp_t, arch);
SAME_FIELD(struct hip_properties, pci_bus, hipDeviceProp_t, pciBusID);
SAME_FIELD(struct hip_properties, shared_per_processor, hipDeviceProp_t,
           maxSharedMemoryPerMultiProcessor);
SAME_FIELD(struct hip_properties, architecture, hipDeviceProp_t, gcnArch);
SAME_FIELD(struct hip_properties, architecture_name, hipDeviceProp_t, gcnArchName);
SAME_FIELD(struct hip_properties, texture_3d, hipDeviceProp_t, maxTexture3D);
SAME_FIELD(struct hip_properties, flush_registers, hipDeviceProp_t, hdpRegFlushCntl);
SAME_FIELD(struct hip_properties, texture_pitch, hipDeviceProp_t, texturePitchAlignment);
SAME_FIELD(struct hip_properties, large_bar, hipDeviceProp_t, isLargeBar);
SAME_FIELD(struct hip_properties, pageable_tables, hipDeviceProp_t,
           pageableMemoryAccessUsesHostPageTables);
#endif
#endif

/* From here on our names mean their structs, for whose sake alone the prototypes differ. */
#define hip_access hipMemAccessDesc
#define hip_allocation_properties hipMemAllocationProp
#define hip_pointer_attributes hipPointerAttribute_t
#define hip_dimensions dim3
#define hip_properties hipDeviceProp_t
#define hip_uuid hipUUID_t
#define hip_kernel_node hipKernelNodeParams
#define hip_copy_node hipMemcpy3DParms
#define hip_set_node hipMemsetParams
#define hip_host_node hipHostNodeParams

#define SAME_PROTOTYPE(symbol, since, needed, parameters)                                       \
    _Static_assert(__builtin_types_compatible_p(hip_result(*) parameters, __typeof__(&symbol)), \
                   #symbol);
HIP_CALL_LIST(SAME_PROTOTYPE)
#ifdef TARN_HAVE_SIM
SIM_HIP_CALL_LIST(SAME_PROTOTYPE)
#endif
#if HIP_VERSION >= 70200000
SAME_TYPE(hip_kernel, hipKernel_t);
HIP_LATER_CALL_LIST(SAME_PROTOTYPE)
#endif
#if HIP_VERSION >= 60100000
SAME_TYPE(hip_user_object, hipUserObject_t);
#define SAME_LATER_VALUE(name, value, theirs, since) \
    _Static_assert((unsigned)(theirs) == (value), #theirs);
HIP_LATER_VALUE_LIST(SAME_LATER_VALUE)
#endif

#define SAME_TEXT(symbol, since, parameters)                                                     \
    _Static_assert(__builtin_types_compatible_p(const char *(*)parameters, __typeof__(&symbol)), \
                   #symbol);
HIP_TEXT_LIST(SAME_TEXT)

/* The exact prototypes that rows of libraries name; tarn passes every argument as a pointer, an int
 * or a size_t. */
#define SAME_LIBRARY_CALL(symbol, result, parameters) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), result parameters), #symbol);
HIP_HANDLE_SYMBOL_LIST(SAME_LIBRARY_CALL)

#define IS_POINTER(type)                                                                          \
    _Static_assert(sizeof(type) == sizeof(void *) && !__builtin_types_compatible_p(type, size_t), \
                   #type)
IS_POINTER(hipsparseHandle_t);
IS_POINTER(rocsparse_handle);

#define IS_INT(type) _Static_assert(sizeof(type) == sizeof(int), #type)
IS_INT(hipsparseStatus_t);
IS_INT(hipsparsePointerMode_t);
IS_INT(rocsparse_status);
IS_INT(rocsparse_pointer_mode);

#define IS(name, value) _Static_assert((int)(name) == (value), #name)
IS(HIPSPARSE_STATUS_SUCCESS, 0);
IS(HIPSPARSE_STATUS_ALLOC_FAILED, 2);
IS(HIPSPARSE_POINTER_MODE_HOST, 0);
IS(rocsparse_status_success, 0);
IS(rocsparse_status_memory_error, 5);
IS(rocsparse_pointer_mode_host, 0);

/* The typed getters, used. */
tarn_status use_typed_headers(void);
tarn_status use_typed_headers(void)
{
    hipsparseHandle_t hipsparse;
    rocsparse_handle rocsparse;
    tarn_status status = tarn_hipsparse_handle(TARN_STREAM_CURRENT, &hipsparse);
    return status ? status : tarn_rocsparse_handle(TARN_STREAM_CURRENT, &rocsparse);
}
