/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares what run/hip/abi.h declares with the headers of HIP 5.2. Compiling it is the test. */
#include "run/hip/abi.h"

#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>

#define SAME_TYPE(ours, theirs) \
    _Static_assert(__builtin_types_compatible_p(ours, theirs), #ours " is not " #theirs)
SAME_TYPE(hip_pool, hipMemPool_t);
SAME_TYPE(hip_array, hipArray *);

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                     \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&             \
                       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
                   #theirs "." #their_field)
SAME_SIZE(struct hip_ipc, hipIpcMemHandle_t);
SAME_SIZE(struct hip_channels, hipChannelFormatDesc);
SAME_FIELD(struct hip_channels, kind, hipChannelFormatDesc, f);
SAME_SIZE(struct hip_array_descriptor, HIP_ARRAY_DESCRIPTOR);
SAME_FIELD(struct hip_array_descriptor, format, HIP_ARRAY_DESCRIPTOR, Format);
SAME_FIELD(struct hip_array_descriptor, channels, HIP_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(struct hip_array3d_descriptor, HIP_ARRAY3D_DESCRIPTOR);
SAME_FIELD(struct hip_array3d_descriptor, depth, HIP_ARRAY3D_DESCRIPTOR, Depth);
SAME_FIELD(struct hip_array3d_descriptor, flags, HIP_ARRAY3D_DESCRIPTOR, Flags);
SAME_SIZE(struct hip_pool_properties, hipMemPoolProps);
SAME_FIELD(struct hip_pool_properties, location, hipMemPoolProps, location);
#if HIP_VERSION_MAJOR < 6
_Static_assert(offsetof(hipDeviceProp_t, totalGlobalMem) == RUN_PROPERTIES_BYTES, "totalGlobalMem");
#else
_Static_assert(offsetof(hipDeviceProp_t, totalGlobalMem) == RUN_PROPERTIES_R0600_BYTES,
               "totalGlobalMem");
#endif

/* The layouts are the same: from here on our names mean their structs, for whose sake alone the
 * prototypes differ. */
#define hip_ipc hipIpcMemHandle_st
#define hip_extent hipExtent
#define hip_pitched hipPitchedPtr
#define hip_channels hipChannelFormatDesc
#define hip_array_descriptor HIP_ARRAY_DESCRIPTOR
#define hip_array3d_descriptor HIP_ARRAY3D_DESCRIPTOR
#define hip_pool_properties hipMemPoolProps
#define hip_allocation_properties hipMemAllocationProp
#define hip_location hipMemLocation
#define hip_uuid hipUUID_t

/* What came after the headers' version cannot be compared, and the struct of properties is another
 * in each version. */
hip_result unchecked_properties(void *properties, int device);
#define hipGetDeviceProperties unchecked_properties
#define hipGetDevicePropertiesR0600 unchecked_properties
#if HIP_VERSION < 60100000
hip_result hipGetProcAddress(const char *name, void **address, int version, uint64_t flags,
                             unsigned *status);
#endif

#define SAME_PROTOTYPE(name, since, mode, symbol, parameters, arguments)                        \
    _Static_assert(__builtin_types_compatible_p(hip_result(*) parameters, __typeof__(&symbol)), \
                   #symbol);
RUN_HOOK_LIST(SAME_PROTOTYPE)
RUN_ASK_LIST(SAME_PROTOTYPE)
