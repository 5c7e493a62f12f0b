/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn uses of HIP's binary interface on AMD, in declarations of our own: types, values, and
 * one list of entry points. Names are prefixed so that hip_runtime_api.h can be included beside it,
 * which tests/abi/check_hip.c does to compare with it all that HIP 5.2 knows. What came later
 * stands in lists of its own and is shown as unchecked. The tags of the vendor's opaque types are
 * theirs, and enums are `unsigned`, with which C enums without negative values are compatible. */
#ifndef TARN_DRIVER_HIP_ABI_H
#define TARN_DRIVER_HIP_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned hip_result;
typedef unsigned hip_device_attribute;
typedef unsigned hip_granularity_kind;
typedef unsigned hip_stream_capture_mode;
typedef unsigned hip_stream_capture_status;
typedef unsigned hip_copy_kind;
typedef unsigned hip_handle_kind;
typedef unsigned hip_node_type;
typedef struct ihipStream_t *hip_stream;
typedef struct ihipEvent_t *hip_event;
typedef struct ihipGraph *hip_graph;
typedef struct hipGraphNode *hip_graph_node;
typedef struct hipGraphExec *hip_graph_exec;
typedef struct hipUserObject *hip_user_object;
typedef struct ihipModuleSymbol_t *hip_function;
typedef struct ihipKernel_t *hip_kernel;
typedef struct ihipMemGenericAllocationHandle *hip_piece;
typedef void (*hip_host_function)(void *);
typedef void (*hip_stream_callback)(hip_stream, hip_result, void *);

struct hip_uuid {
    char bytes[16];
};

struct hip_location {
    unsigned type; /* HIP_LOCATION_DEVICE */
    int id;
};

struct hip_access {
    struct hip_location location;
    unsigned flags; /* HIP_ACCESS_READ_WRITE */
};

/* As in HIP since 6.0, which has CUDA's layout. HIP 5.2 has the same name, size and fields in
 * another order; virtual memory does not work there. */
struct hip_allocation_properties {
    unsigned type;         /* HIP_ALLOCATION_PINNED */
    unsigned handle_types; /* HIP_HANDLE_* */
    struct hip_location location;
    void *win32;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
    } flags;
};

struct hip_pointer_attributes {
    unsigned type; /* hip_memory_kind() reads it */
    int device;
    void *device_pointer, *host_pointer;
    int managed;
    unsigned flags;
};

struct hip_dimensions {
    uint32_t x, y, z;
};

struct hip_kernel_node {
    struct hip_dimensions block;
    void **extra;
    void *function; /* the host's symbol of a kernel, or a module's function */
    struct hip_dimensions grid;
    void **parameters;
    unsigned shared; /* bytes */
};

struct hip_place {
    size_t x, y, z;
};

struct hip_pitched {
    void *address;
    size_t pitch, width, height; /* bytes of a row; the row's used part; rows of a layer */
};

struct hip_extent {
    size_t width, height, depth;
};

/* Each side has an array or an address. */
struct hip_copy_node {
    void *from_array;
    struct hip_place from_at;
    struct hip_pitched from;
    void *to_array;
    struct hip_place to_at;
    struct hip_pitched to;
    struct hip_extent extent;
    hip_copy_kind kind;
};

struct hip_set_node {
    void *to;
    unsigned element; /* bytes */
    size_t height, pitch;
    unsigned value;
    size_t width; /* elements */
};

/* Results: X(name, value, name in hip_runtime_api.h) */
#define HIP_RESULT_LIST(X)                                             \
    X(HIP_OK, 0, hipSuccess)                                           \
    X(HIP_INVALID_VALUE, 1, hipErrorInvalidValue)                      \
    X(HIP_OUT_OF_MEMORY, 2, hipErrorOutOfMemory)                       \
    X(HIP_NOT_INITIALIZED, 3, hipErrorNotInitialized)                  \
    X(HIP_DEINITIALIZED, 4, hipErrorDeinitialized)                     \
    X(HIP_INVALID_DEVICE_POINTER, 17, hipErrorInvalidDevicePointer)    \
    X(HIP_INSUFFICIENT_DRIVER, 35, hipErrorInsufficientDriver)         \
    X(HIP_INVALID_FUNCTION, 98, hipErrorInvalidDeviceFunction)         \
    X(HIP_NO_DEVICE, 100, hipErrorNoDevice)                            \
    X(HIP_INVALID_DEVICE, 101, hipErrorInvalidDevice)                  \
    X(HIP_INVALID_CONTEXT, 201, hipErrorInvalidContext)                \
    X(HIP_ECC_NOT_CORRECTABLE, 214, hipErrorECCNotCorrectable)         \
    X(HIP_INVALID_HANDLE, 400, hipErrorInvalidHandle)                  \
    X(HIP_ILLEGAL_STATE, 401, hipErrorIllegalState)                    \
    X(HIP_NOT_READY, 600, hipErrorNotReady)                            \
    X(HIP_ILLEGAL_ADDRESS, 700, hipErrorIllegalAddress)                \
    X(HIP_LAUNCH_TIMEOUT, 702, hipErrorLaunchTimeOut)                  \
    X(HIP_PEER_ALREADY_ENABLED, 704, hipErrorPeerAccessAlreadyEnabled) \
    X(HIP_CONTEXT_IS_DESTROYED, 709, hipErrorContextIsDestroyed)       \
    X(HIP_ASSERT, 710, hipErrorAssert)                                 \
    X(HIP_HOST_REGISTERED, 712, hipErrorHostMemoryAlreadyRegistered)   \
    X(HIP_HOST_NOT_REGISTERED, 713, hipErrorHostMemoryNotRegistered)   \
    X(HIP_LAUNCH_FAILURE, 719, hipErrorLaunchFailure)                  \
    X(HIP_NOT_SUPPORTED, 801, hipErrorNotSupported)                    \
    X(HIP_CAPTURE_UNSUPPORTED, 900, hipErrorStreamCaptureUnsupported)  \
    X(HIP_CAPTURE_INVALIDATED, 901, hipErrorStreamCaptureInvalidated)  \
    X(HIP_CAPTURE_MERGE, 902, hipErrorStreamCaptureMerge)              \
    X(HIP_CAPTURE_UNMATCHED, 903, hipErrorStreamCaptureUnmatched)      \
    X(HIP_CAPTURE_UNJOINED, 904, hipErrorStreamCaptureUnjoined)        \
    X(HIP_CAPTURE_ISOLATION, 905, hipErrorStreamCaptureIsolation)      \
    X(HIP_CAPTURE_IMPLICIT, 906, hipErrorStreamCaptureImplicit)        \
    X(HIP_CAPTURED_EVENT, 907, hipErrorCapturedEvent)                  \
    X(HIP_CAPTURE_WRONG_THREAD, 908, hipErrorStreamCaptureWrongThread) \
    X(HIP_GRAPH_UPDATE_FAILURE, 910, hipErrorGraphExecUpdateFailure)   \
    X(HIP_UNKNOWN, 999, hipErrorUnknown)                               \
    X(HIP_RUNTIME_MEMORY, 1052, hipErrorRuntimeMemory)                 \
    X(HIP_RUNTIME_OTHER, 1053, hipErrorRuntimeOther)

/* Results and all others. The same columns. */
#define HIP_VALUE_LIST(X)                                                            \
    HIP_RESULT_LIST(X)                                                               \
    X(HIP_ALLOCATION_PINNED, 1, hipMemAllocationTypePinned)                          \
    X(HIP_LOCATION_DEVICE, 1, hipMemLocationTypeDevice)                              \
    X(HIP_HANDLE_NONE, 0, hipMemHandleTypeNone)                                      \
    X(HIP_HANDLE_POSIX_FD, 1, hipMemHandleTypePosixFileDescriptor)                   \
    X(HIP_ACCESS_READ_WRITE, 3, hipMemAccessFlagsProtReadWrite)                      \
    X(HIP_GRANULARITY_MINIMUM, 0, hipMemAllocationGranularityMinimum)                \
    X(HIP_HOST_PORTABLE, 1, hipHostMallocPortable)                                   \
    X(HIP_REGISTER_PORTABLE, 1, hipHostRegisterPortable)                             \
    X(HIP_STREAM_BLOCKING, 0, hipStreamDefault)                                      \
    X(HIP_STREAM_NOT_BLOCKING, 1, hipStreamNonBlocking)                              \
    X(HIP_EVENT_WITHOUT_TIMING, 2, hipEventDisableTiming)                            \
    X(HIP_MODE_GLOBAL, 0, hipStreamCaptureModeGlobal)                                \
    X(HIP_MODE_THREAD_LOCAL, 1, hipStreamCaptureModeThreadLocal)                     \
    X(HIP_MODE_RELAXED, 2, hipStreamCaptureModeRelaxed)                              \
    X(HIP_CAPTURE_IS_NONE, 0, hipStreamCaptureStatusNone)                            \
    X(HIP_CAPTURE_IS_ACTIVE, 1, hipStreamCaptureStatusActive)                        \
    X(HIP_CAPTURE_IS_INVALIDATED, 2, hipStreamCaptureStatusInvalidated)              \
    X(HIP_DEPENDENCIES_SET, 1, hipStreamSetCaptureDependencies)                      \
    X(HIP_COPY_ON_HOST, 0, hipMemcpyHostToHost)                                      \
    X(HIP_COPY_ON_DEVICE, 3, hipMemcpyDeviceToDevice)                                \
    X(HIP_COPY_DEFAULT, 4, hipMemcpyDefault)                                         \
    X(HIP_IS_INTEGRATED, 16, hipDeviceAttributeIntegrated)                           \
    X(HIP_IS_COHERENT, 66, hipDeviceAttributePageableMemoryAccessUsesHostPageTables) \
    X(HIP_CAPABILITY_MAJOR, 23, hipDeviceAttributeComputeCapabilityMajor)            \
    X(HIP_CAPABILITY_MINOR, 61, hipDeviceAttributeComputeCapabilityMinor)            \
    X(HIP_HAS_MEMORY_POOLS, 88, hipDeviceAttributeMemoryPoolsSupported)

/* The same for values that HIP 5.2's headers lack: X(name, value, name, HIP version that has
 * it). */
#define HIP_LATER_VALUE_LIST(X)                                                              \
    X(HIP_HAS_VIRTUAL_MEMORY, 89, hipDeviceAttributeVirtualMemoryManagementSupported, "6.1") \
    X(HIP_USER_OBJECT_NOT_SYNCHRONIZED, 1, hipUserObjectNoDestructorSync, "5.3")             \
    X(HIP_USER_OBJECT_IS_MOVED, 1, hipGraphUserObjectMove, "5.3")                            \
    X(HIP_COPY_ON_DEVICE_BY_ENGINE, 1024, hipMemcpyDeviceToDeviceNoCU, "6.1")                \
    X(HIP_NODE_KERNEL, 0, hipGraphNodeTypeKernel, "6.0")                                     \
    X(HIP_NODE_COPY, 1, hipGraphNodeTypeMemcpy, "6.0")                                       \
    X(HIP_NODE_SET, 2, hipGraphNodeTypeMemset, "6.0")                                        \
    X(HIP_NODE_HOST, 3, hipGraphNodeTypeHost, "6.0")                                         \
    X(HIP_NODE_GRAPH, 4, hipGraphNodeTypeGraph, "6.0")                                       \
    X(HIP_NODE_EMPTY, 5, hipGraphNodeTypeEmpty, "6.0")                                       \
    X(HIP_NODE_WAIT_EVENT, 6, hipGraphNodeTypeWaitEvent, "6.0")                              \
    X(HIP_NODE_RECORD_EVENT, 7, hipGraphNodeTypeEventRecord, "6.0")                          \
    X(HIP_NODE_ALLOC, 10, hipGraphNodeTypeMemAlloc, "6.0")

/* The constants for the legacy stream, which NULL means too (named since 6.3; tarn accepts the
 * value and passes NULL to HIP), and the calling thread's default stream. */
#define HIP_LEGACY_STREAM ((hip_stream)1)
#define HIP_THREADS_STREAM ((hip_stream)2)

enum hip_value {
#define X(name, value, ...) name = value,
    HIP_VALUE_LIST(X) HIP_LATER_VALUE_LIST(X)
#undef X
};

/* X(exported symbol, HIP version that has it as 10 * major + minor, whether tarn needs it,
 * parameters). HIP exports one prototype per name, so dlsym() finds them all; hipGetProcAddress()
 * came only with 6.1 and is not used. */
#define HIP_CALL_LIST(X)                                                                          \
    X(hipInit, 42, true, (unsigned flags))                                                        \
    X(hipRuntimeGetVersion, 42, true, (int *version))                                             \
    X(hipGetDeviceCount, 42, true, (int *count))                                                  \
    X(hipGetLastError, 42, true, (void))                                                          \
    X(hipSetDevice, 42, true, (int device))                                                       \
    X(hipGetDevice, 42, true, (int *device))                                                      \
    X(hipDeviceGetName, 42, true, (char *name, int size, int device))                             \
    X(hipDeviceGetUuid, 51, false, (struct hip_uuid * uuid, int device))                          \
    X(hipDeviceGetPCIBusId, 42, false, (char *address, int size, int device))                     \
    X(hipDeviceGetAttribute, 42, true, (int *value, hip_device_attribute attribute, int device))  \
    X(hipDeviceTotalMem, 42, true, (size_t * bytes, int device))                                  \
    X(hipDeviceGetStreamPriorityRange, 42, true, (int *least, int *greatest))                     \
    X(hipDeviceSynchronize, 42, true, (void))                                                     \
    X(hipMemGetInfo, 42, true, (size_t * free_bytes, size_t * total_bytes))                       \
    X(hipMalloc, 42, true, (void **address, size_t size))                                         \
    X(hipFree, 42, true, (void *address))                                                         \
    X(hipMallocAsync, 51, false, (void **address, size_t size, hip_stream stream))                \
    X(hipFreeAsync, 51, false, (void *address, hip_stream stream))                                \
    X(hipHostMalloc, 42, true, (void **memory, size_t size, unsigned flags))                      \
    X(hipHostFree, 42, true, (void *memory))                                                      \
    X(hipHostRegister, 42, true, (void *memory, size_t size, unsigned flags))                     \
    X(hipHostUnregister, 42, true, (void *memory))                                                \
    X(hipPointerGetAttributes, 42, false,                                                         \
      (struct hip_pointer_attributes * attributes, const void *address))                          \
    X(hipMemAddressReserve, 51, false,                                                            \
      (void **address, size_t size, size_t alignment, void *hint, unsigned long long flags))      \
    X(hipMemAddressFree, 51, false, (void *address, size_t size))                                 \
    X(hipMemCreate, 51, false,                                                                    \
      (hip_piece * piece, size_t size, const struct hip_allocation_properties *properties,        \
       unsigned long long flags))                                                                 \
    X(hipMemRelease, 51, false, (hip_piece piece))                                                \
    X(hipMemMap, 51, false,                                                                       \
      (void *address, size_t size, size_t offset, hip_piece piece, unsigned long long flags))     \
    X(hipMemUnmap, 51, false, (void *address, size_t size))                                       \
    X(hipMemSetAccess, 51, false,                                                                 \
      (void *address, size_t size, const struct hip_access *access, size_t count))                \
    X(hipMemGetAllocationGranularity, 51, false,                                                  \
      (size_t * size, const struct hip_allocation_properties *properties,                         \
       hip_granularity_kind kind))                                                                \
    X(hipMemExportToShareableHandle, 51, false,                                                   \
      (void *handle, hip_piece piece, hip_handle_kind kind, unsigned long long flags))            \
    X(hipMemImportFromShareableHandle, 51, false,                                                 \
      (hip_piece * piece, void *handle, hip_handle_kind kind))                                    \
    X(hipStreamCreateWithPriority, 42, true, (hip_stream * stream, unsigned flags, int priority)) \
    X(hipStreamDestroy, 42, true, (hip_stream stream))                                            \
    X(hipStreamQuery, 42, true, (hip_stream stream))                                              \
    X(hipStreamSynchronize, 42, true, (hip_stream stream))                                        \
    X(hipStreamWaitEvent, 42, true, (hip_stream stream, hip_event event, unsigned flags))         \
    X(hipEventCreateWithFlags, 42, true, (hip_event * event, unsigned flags))                     \
    X(hipEventDestroy, 42, true, (hip_event event))                                               \
    X(hipEventRecord, 42, true, (hip_event event, hip_stream stream))                             \
    X(hipEventQuery, 42, true, (hip_event event))                                                 \
    X(hipEventSynchronize, 42, true, (hip_event event))                                           \
    X(hipMemcpyAsync, 42, true,                                                                   \
      (void *to, const void *from, size_t size, hip_copy_kind kind, hip_stream stream))           \
    X(hipMemsetAsync, 42, true, (void *address, int value, size_t size, hip_stream stream))       \
    X(hipStreamAddCallback, 42, true,                                                             \
      (hip_stream stream, hip_stream_callback callback, void *argument, unsigned flags))          \
    X(hipThreadExchangeStreamCaptureMode, 50, true, (hip_stream_capture_mode * mode))             \
    X(hipStreamBeginCapture, 43, true, (hip_stream stream, hip_stream_capture_mode mode))         \
    X(hipStreamEndCapture, 43, true, (hip_stream stream, hip_graph * graph))                      \
    X(hipStreamIsCapturing, 43, true, (hip_stream stream, hip_stream_capture_status * status))    \
    X(hipStreamGetCaptureInfo_v2, 45, true,                                                       \
      (hip_stream stream, hip_stream_capture_status * status, unsigned long long *id,             \
       hip_graph *graph, const hip_graph_node **nodes, size_t *count))                            \
    X(hipStreamUpdateCaptureDependencies, 45, true,                                               \
      (hip_stream stream, hip_graph_node * nodes, size_t count, unsigned flags))                  \
    X(hipGraphNodeGetDependencies, 45, false,                                                     \
      (hip_graph_node node, hip_graph_node * nodes, size_t * count))                              \
    X(hipGraphCreate, 43, false, (hip_graph * graph, unsigned flags))                             \
    X(hipGraphAddMemcpyNode1D, 43, false,                                                         \
      (hip_graph_node * node, hip_graph graph, const hip_graph_node *before, size_t count,        \
       void *to, const void *from, size_t size, hip_copy_kind kind))                              \
    X(hipGraphGetNodes, 44, false, (hip_graph graph, hip_graph_node * nodes, size_t * count))     \
    X(hipGraphNodeGetType, 45, false, (hip_graph_node node, hip_node_type * type))                \
    X(hipGraphKernelNodeGetParams, 44, false,                                                     \
      (hip_graph_node node, struct hip_kernel_node * parameters))                                 \
    X(hipGraphMemcpyNodeGetParams, 44, false,                                                     \
      (hip_graph_node node, struct hip_copy_node * parameters))                                   \
    X(hipGraphMemsetNodeGetParams, 44, false,                                                     \
      (hip_graph_node node, struct hip_set_node * parameters))                                    \
    X(hipGraphChildGraphNodeGetGraph, 45, false, (hip_graph_node node, hip_graph * graph))        \
    X(hipGraphInstantiateWithFlags, 45, true,                                                     \
      (hip_graph_exec * exec, hip_graph graph, unsigned long long flags))                         \
    X(hipGraphLaunch, 43, true, (hip_graph_exec exec, hip_stream stream))                         \
    X(hipGraphExecDestroy, 43, true, (hip_graph_exec exec))                                       \
    X(hipGraphDestroy, 43, true, (hip_graph graph))                                               \
    X(hipDeviceCanAccessPeer, 42, true, (int *can, int device, int peer))                         \
    X(hipDeviceEnablePeerAccess, 42, true, (int peer, unsigned flags))

/* The same columns, for calls that HIP 5.2 lacks: no header on the test machines can check them. */
#define HIP_LATER_CALL_LIST(X)                                                              \
    X(hipStreamGetDevice, 56, false, (hip_stream stream, int *device))                      \
    X(hipStreamGetId, 71, false, (hip_stream stream, unsigned long long *id))               \
    X(hipLaunchHostFunc, 53, false,                                                         \
      (hip_stream stream, hip_host_function function, void *argument))                      \
    X(hipUserObjectCreate, 53, false,                                                       \
      (hip_user_object * object, void *argument, hip_host_function destroy, unsigned count, \
       unsigned flags))                                                                     \
    X(hipUserObjectRelease, 53, false, (hip_user_object object, unsigned count))            \
    X(hipGraphRetainUserObject, 53, false,                                                  \
      (hip_graph graph, hip_user_object object, unsigned count, unsigned flags))            \
    X(hipGetFuncBySymbol, 62, false, (hip_function * function, const void *symbol))         \
    X(hipKernelGetParamInfo, 72, false,                                                     \
      (hip_kernel kernel, size_t index, size_t * offset, size_t * size))

/* Functions that return a text: X(exported symbol, HIP version that has it, parameters). */
#define HIP_TEXT_LIST(X)                        \
    X(hipGetErrorName, 42, (hip_result code))   \
    X(hipGetErrorString, 42, (hip_result code)) \
    X(hipKernelNameRefByPtr, 42, (const void *symbol, hip_stream stream))

/* ---- What depends on the version ---- */

/* As hipRuntimeGetVersion() counts: 10,000,000 * major + 100,000 * minor + patch. */
#define HIP_VERSION_NUMBER(major, minor) ((major)*10000000 + (minor)*100000)
#define HIP_MAJOR(version) ((version) / 10000000)

/* Virtual memory is on hsa_amd_vmem_* from 6.1. Before, the entry points are exported, take other
 * structs and do not work, and the attribute that would say so does not exist. */
#define HIP_FIRST_VIRTUAL_MEMORY HIP_VERSION_NUMBER(6, 1)
/* Before, the types of nodes have other numbers: HIP 5.2 counts from 1. */
#define HIP_FIRST_NODE_TYPES HIP_VERSION_NUMBER(6, 0)
/* From 7.1 on hipMemImportFromShareableHandle() takes a file descriptor's value, before it took its
 * address. */
#define HIP_FIRST_IMPORT_BY_VALUE HIP_VERSION_NUMBER(7, 1)

enum hip_memory_kind {
    HIP_MEMORY_UNKNOWN, /* pageable memory, or an invalid address */
    HIP_MEMORY_HOST,
    HIP_MEMORY_DEVICE,
    HIP_MEMORY_MANAGED,
    HIP_MEMORY_ARRAY,
    HIP_MEMORY_UNIFIED
};

/* X(kind, number before 6.0, number since). */
#define HIP_MEMORY_KIND_LIST(X)    \
    X(HIP_MEMORY_HOST, 0u, 1u)     \
    X(HIP_MEMORY_DEVICE, 1u, 2u)   \
    X(HIP_MEMORY_MANAGED, ~0u, 3u) \
    X(HIP_MEMORY_ARRAY, 2u, 10u)   \
    X(HIP_MEMORY_UNIFIED, 3u, 11u)

/* The kind of memory that a number means to a runtime of this version. */
static inline enum hip_memory_kind hip_memory_kind(int version, unsigned number)
{
#define X(kind, old, now)                                   \
    if (number == (HIP_MAJOR(version) < 6 ? (old) : (now))) \
        return kind;
    HIP_MEMORY_KIND_LIST(X)
#undef X
    return HIP_MEMORY_UNKNOWN;
}

/* What to pass as the handle when a file descriptor is imported; `fd` must stay valid for the
 * call. */
static inline void *hip_import_handle(int version, int *fd)
{
    return version >= HIP_FIRST_IMPORT_BY_VALUE ? (void *)(intptr_t)*fd : (void *)fd;
}

#endif
