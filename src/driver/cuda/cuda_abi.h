/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What tarn uses of the CUDA driver's binary interface, in declarations of our own: types, values,
 * and one list of entry points. Names are prefixed so that cuda.h can be included beside it, which
 * tests/abi/check_cuda.c does to compare every line of this file with it. Opaque types have the
 * vendor's tags, and enums are `unsigned`, with which C enums without negative values are
 * compatible. */
#ifndef TARN_DRIVER_CUDA_ABI_H
#define TARN_DRIVER_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned cu_result;
typedef int cu_device;
typedef unsigned long long cu_address;
typedef unsigned long long cu_piece;
typedef unsigned cu_device_attribute;
typedef unsigned cu_granularity_kind;
typedef unsigned cu_handle_kind;
typedef unsigned cu_capture_mode;
typedef unsigned cu_capture_status;
typedef unsigned cu_lookup_status;
typedef unsigned cu_node_type;
typedef unsigned cu_node_attribute;
typedef struct CUctx_st *cu_context;
typedef struct CUgreenCtx_st *cu_green_context;
typedef struct CUstream_st *cu_stream;
typedef struct CUevent_st *cu_event;
typedef struct CUgraph_st *cu_graph;
typedef struct CUgraphNode_st *cu_graph_node;
typedef struct CUgraphExec_st *cu_graph_exec;
typedef struct CUuserObject_st *cu_user_object;
typedef struct CUmemPoolHandle_st *cu_pool;
typedef struct CUfunc_st *cu_function;
typedef struct CUkern_st *cu_kernel;
typedef struct CUarray_st *cu_array;
typedef void (*cu_host_function)(void *);

struct cu_uuid {
    unsigned char bytes[16];
};

struct cu_location {
    unsigned type; /* CU_LOCATION_* */
    int id;
};

struct cu_allocation_properties {
    unsigned type;         /* CU_ALLOCATION_* */
    unsigned handle_types; /* CU_HANDLE_* */
    struct cu_location location;
    void *win32;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct cu_access {
    struct cu_location location;
    unsigned flags; /* CU_ACCESS_* */
};

struct cu_pool_properties {
    unsigned type, handle_types;
    struct cu_location location;
    void *win32;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
};

/* How one node of a graph depends on another. All zero: on the whole of it. */
struct cu_edge {
    unsigned char from_port, to_port, type;
    unsigned char reserved[5];
};

/* A kernel node. It has either `parameters`, a pointer to each, or `extra`, a list that ends with
 * CU_PARAM_END and names one buffer with all of them. */
struct cu_kernel_node {
    cu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    void **parameters, **extra;
    cu_kernel kernel; /* if there is no function */
    cu_context context;
};

struct cu_set_node {
    cu_address to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
};

/* One side of a copy node. */
struct cu_copy_side {
    size_t x, y, z, level;
    unsigned type; /* CU_MEMORY_* */
    void *host;
    cu_address device;
    cu_array array;
    void *reserved;
    size_t pitch, height;
};

struct cu_copy_node {
    struct cu_copy_side from, to;
    size_t width, height, depth;
};

/* An operation of a batch. Waits for a value, and writes of one, have an address. */
union cu_memory_operation {
    unsigned operation; /* CU_OPERATION_* */
    struct {
        unsigned operation;
        cu_address address;
        uint64_t value;
        unsigned flags;
        cu_address alias;
    } value;
    uint64_t pad[6];
};

struct cu_batch_node {
    cu_context context;
    unsigned count;
    union cu_memory_operation *operations;
    unsigned flags;
};

/* A node of any kind. */
struct cu_any_node {
    unsigned type; /* CU_NODE_* */
    int reserved[3];
    union {
        struct {
            uint64_t handle;
            unsigned type, size; /* an if, while or switch; of `bodies` */
            cu_graph *bodies;    /* the driver's, as long as the node exists */
            cu_context context;
        } conditional;
        uint64_t room[29];
    };
    uint64_t more;
};

union cu_attribute_value {
    char pad[64];
    struct {
        int is;
        void *node;
    } updatable;
};

/* X(name, value, name in cuda.h) */
#define CUDA_RESULT_LIST(X)                                                 \
    X(CU_OK, 0, CUDA_SUCCESS)                                               \
    X(CU_INVALID_VALUE, 1, CUDA_ERROR_INVALID_VALUE)                        \
    X(CU_OUT_OF_MEMORY, 2, CUDA_ERROR_OUT_OF_MEMORY)                        \
    X(CU_NOT_INITIALIZED, 3, CUDA_ERROR_NOT_INITIALIZED)                    \
    X(CU_DEINITIALIZED, 4, CUDA_ERROR_DEINITIALIZED)                        \
    X(CU_STUB_LIBRARY, 34, CUDA_ERROR_STUB_LIBRARY)                         \
    X(CU_NO_DEVICE, 100, CUDA_ERROR_NO_DEVICE)                              \
    X(CU_INVALID_DEVICE, 101, CUDA_ERROR_INVALID_DEVICE)                    \
    X(CU_INVALID_CONTEXT, 201, CUDA_ERROR_INVALID_CONTEXT)                  \
    X(CU_ALREADY_MAPPED, 208, CUDA_ERROR_ALREADY_MAPPED)                    \
    X(CU_ECC_UNCORRECTABLE, 214, CUDA_ERROR_ECC_UNCORRECTABLE)              \
    X(CU_NVLINK_UNCORRECTABLE, 220, CUDA_ERROR_NVLINK_UNCORRECTABLE)        \
    X(CU_CONTAINED, 226, CUDA_ERROR_CONTAINED)                              \
    X(CU_INVALID_HANDLE, 400, CUDA_ERROR_INVALID_HANDLE)                    \
    X(CU_ILLEGAL_STATE, 401, CUDA_ERROR_ILLEGAL_STATE)                      \
    X(CU_LOSSY_QUERY, 402, CUDA_ERROR_LOSSY_QUERY)                          \
    X(CU_NOT_FOUND, 500, CUDA_ERROR_NOT_FOUND)                              \
    X(CU_NOT_READY, 600, CUDA_ERROR_NOT_READY)                              \
    X(CU_ILLEGAL_ADDRESS, 700, CUDA_ERROR_ILLEGAL_ADDRESS)                  \
    X(CU_LAUNCH_TIMEOUT, 702, CUDA_ERROR_LAUNCH_TIMEOUT)                    \
    X(CU_PEER_ALREADY_ENABLED, 704, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) \
    X(CU_CONTEXT_IS_DESTROYED, 709, CUDA_ERROR_CONTEXT_IS_DESTROYED)        \
    X(CU_ASSERT, 710, CUDA_ERROR_ASSERT)                                    \
    X(CU_HOST_REGISTERED, 712, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)   \
    X(CU_HOST_NOT_REGISTERED, 713, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)   \
    X(CU_HARDWARE_STACK, 714, CUDA_ERROR_HARDWARE_STACK_ERROR)              \
    X(CU_LAUNCH_FAILED, 719, CUDA_ERROR_LAUNCH_FAILED)                      \
    X(CU_TENSOR_MEMORY_LEAK, 721, CUDA_ERROR_TENSOR_MEMORY_LEAK)            \
    X(CU_NOT_PERMITTED, 800, CUDA_ERROR_NOT_PERMITTED)                      \
    X(CU_NOT_SUPPORTED, 801, CUDA_ERROR_NOT_SUPPORTED)                      \
    X(CU_CAPTURE_UNSUPPORTED, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)   \
    X(CU_CAPTURE_INVALIDATED, 901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)   \
    X(CU_CAPTURE_MERGE, 902, CUDA_ERROR_STREAM_CAPTURE_MERGE)               \
    X(CU_CAPTURE_UNMATCHED, 903, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)       \
    X(CU_CAPTURE_UNJOINED, 904, CUDA_ERROR_STREAM_CAPTURE_UNJOINED)         \
    X(CU_CAPTURE_ISOLATION, 905, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)       \
    X(CU_CAPTURE_IMPLICIT, 906, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)         \
    X(CU_CAPTURED_EVENT, 907, CUDA_ERROR_CAPTURED_EVENT)                    \
    X(CU_CAPTURE_WRONG_THREAD, 908, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) \
    X(CU_UNKNOWN, 999, CUDA_ERROR_UNKNOWN)                                  \
    X(CU_HAS_RDMA, 110, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)

#define CUDA_CONSTANT_LIST(X)                                                                     \
    X(CU_ALLOCATION_PINNED, 1, CU_MEM_ALLOCATION_TYPE_PINNED)                                     \
    X(CU_LOCATION_DEVICE, 1, CU_MEM_LOCATION_TYPE_DEVICE)                                         \
    X(CU_LOCATION_HOST_NUMA, 3, CU_MEM_LOCATION_TYPE_HOST_NUMA)                                   \
    X(CU_HANDLE_NONE, 0, CU_MEM_HANDLE_TYPE_NONE)                                                 \
    X(CU_HANDLE_POSIX_FD, 1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)                            \
    X(CU_ACCESS_READ, 1, CU_MEM_ACCESS_FLAGS_PROT_READ)                                           \
    X(CU_ACCESS_READ_WRITE, 3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)                                \
    X(CU_HOST_PORTABLE, 1, CU_MEMHOSTALLOC_PORTABLE)                                              \
    X(CU_REGISTER_PORTABLE, 1, CU_MEMHOSTREGISTER_PORTABLE)                                       \
    X(CU_GRANULARITY_MINIMUM, 0, CU_MEM_ALLOC_GRANULARITY_MINIMUM)                                \
    X(CU_GRANULARITY_RECOMMENDED, 1, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)                        \
    X(CU_STREAM_BLOCKING, 0, CU_STREAM_DEFAULT)                                                   \
    X(CU_STREAM_NOT_BLOCKING, 1, CU_STREAM_NON_BLOCKING)                                          \
    X(CU_EVENT_WITHOUT_TIMING, 2, CU_EVENT_DISABLE_TIMING)                                        \
    X(CU_MODE_GLOBAL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL)                                           \
    X(CU_MODE_THREAD_LOCAL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)                               \
    X(CU_MODE_RELAXED, 2, CU_STREAM_CAPTURE_MODE_RELAXED)                                         \
    X(CU_CAPTURE_IS_NONE, 0, CU_STREAM_CAPTURE_STATUS_NONE)                                       \
    X(CU_CAPTURE_IS_ACTIVE, 1, CU_STREAM_CAPTURE_STATUS_ACTIVE)                                   \
    X(CU_CAPTURE_IS_INVALIDATED, 2, CU_STREAM_CAPTURE_STATUS_INVALIDATED)                         \
    X(CU_DEPENDENCIES_ADD, 0, CU_STREAM_ADD_CAPTURE_DEPENDENCIES)                                 \
    X(CU_DEPENDENCIES_SET, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES)                                 \
    X(CU_USER_OBJECT_NOT_SYNCHRONIZED, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)                      \
    X(CU_USER_OBJECT_IS_MOVED, 1, CU_GRAPH_USER_OBJECT_MOVE)                                      \
    X(CU_IS_INTEGRATED, 18, CU_DEVICE_ATTRIBUTE_INTEGRATED)                                       \
    X(CU_IS_COHERENT, 100, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES)      \
    X(CU_CAPABILITY_MAJOR, 75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)                      \
    X(CU_CAPABILITY_MINOR, 76, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)                      \
    X(CU_HAS_PRIORITIES, 78, CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED)                     \
    X(CU_HAS_VIRTUAL_MEMORY, 102, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)        \
    X(CU_HAS_POSIX_FD, 103, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)      \
    X(CU_IS_SHARED, 133, CU_DEVICE_ATTRIBUTE_MPS_ENABLED)                                         \
    X(CU_HOST_NUMA_NODE, 134, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID)                                   \
    X(CU_HAS_HOST_PIECES, 141, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) \
    X(CU_NODE_KERNEL, 0, CU_GRAPH_NODE_TYPE_KERNEL)                                               \
    X(CU_NODE_COPY, 1, CU_GRAPH_NODE_TYPE_MEMCPY)                                                 \
    X(CU_NODE_SET, 2, CU_GRAPH_NODE_TYPE_MEMSET)                                                  \
    X(CU_NODE_HOST, 3, CU_GRAPH_NODE_TYPE_HOST)                                                   \
    X(CU_NODE_GRAPH, 4, CU_GRAPH_NODE_TYPE_GRAPH)                                                 \
    X(CU_NODE_EMPTY, 5, CU_GRAPH_NODE_TYPE_EMPTY)                                                 \
    X(CU_NODE_WAIT_EVENT, 6, CU_GRAPH_NODE_TYPE_WAIT_EVENT)                                       \
    X(CU_NODE_RECORD_EVENT, 7, CU_GRAPH_NODE_TYPE_EVENT_RECORD)                                   \
    X(CU_NODE_ALLOC, 10, CU_GRAPH_NODE_TYPE_MEM_ALLOC)                                            \
    X(CU_NODE_FREE, 11, CU_GRAPH_NODE_TYPE_MEM_FREE)                                              \
    X(CU_NODE_BATCH, 12, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)                                         \
    X(CU_NODE_CONDITIONAL, 13, CU_GRAPH_NODE_TYPE_CONDITIONAL)                                    \
    X(CU_NODE_UPDATABLE, 13, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)                    \
    X(CU_MEMORY_HOST, 1, CU_MEMORYTYPE_HOST)                                                      \
    X(CU_MEMORY_DEVICE, 2, CU_MEMORYTYPE_DEVICE)                                                  \
    X(CU_MEMORY_ARRAY, 3, CU_MEMORYTYPE_ARRAY)                                                    \
    X(CU_MEMORY_UNIFIED, 4, CU_MEMORYTYPE_UNIFIED)                                                \
    X(CU_OPERATION_WAIT_32, 1, CU_STREAM_MEM_OP_WAIT_VALUE_32)                                    \
    X(CU_OPERATION_WRITE_32, 2, CU_STREAM_MEM_OP_WRITE_VALUE_32)                                  \
    X(CU_OPERATION_FLUSH, 3, CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES)                                \
    X(CU_OPERATION_WAIT_64, 4, CU_STREAM_MEM_OP_WAIT_VALUE_64)                                    \
    X(CU_OPERATION_WRITE_64, 5, CU_STREAM_MEM_OP_WRITE_VALUE_64)                                  \
    X(CU_OPERATION_BARRIER, 6, CU_STREAM_MEM_OP_BARRIER)                                          \
    X(CU_PARAM_END, 0, CU_LAUNCH_PARAM_END_AS_INT)                                                \
    X(CU_PARAM_BUFFER, 1, CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)                                  \
    X(CU_PARAM_SIZE, 2, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)                                       \
    X(CU_LOOKUP_FOUND, 0, CU_GET_PROC_ADDRESS_SUCCESS)                                            \
    X(CU_LOOKUP_NO_SYMBOL, 1, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)                               \
    X(CU_LOOKUP_TOO_OLD, 2, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)

#define CUDA_VALUE_LIST(X) \
    CUDA_RESULT_LIST(X)    \
    CUDA_CONSTANT_LIST(X)

/* The constants for the legacy stream, which NULL means too, and the calling thread's default
 * stream. */
#define CU_LEGACY_STREAM ((cu_stream)1)
#define CU_THREADS_STREAM ((cu_stream)2)

enum cu_value {
#define X(name, value, theirs) name = value,
    CUDA_VALUE_LIST(X)
#undef X
};

/* X(name for cuGetProcAddress, version of the prototype, exported symbol, whether tarn needs it,
 * parameters). A name may have several prototypes: the version asked for is that of the prototype
 * declared here, never the driver's (cuCtxGetDevice of 13.0 takes two arguments). Entries are named
 * by exported symbol, which is unique. */
#define CUDA_CALL_LIST(X)                                                                         \
    X(cuDriverGetVersion, 2020, cuDriverGetVersion, true, (int *version))                         \
    X(cuGetErrorName, 6000, cuGetErrorName, false, (cu_result code, const char **text))           \
    X(cuGetErrorString, 6000, cuGetErrorString, false, (cu_result code, const char **text))       \
    X(cuDeviceGetCount, 2000, cuDeviceGetCount, true, (int *count))                               \
    X(cuDeviceGet, 2000, cuDeviceGet, true, (cu_device * device, int ordinal))                    \
    X(cuDeviceGetName, 2000, cuDeviceGetName, true, (char *name, int size, cu_device device))     \
    X(cuDeviceGetUuid, 9020, cuDeviceGetUuid, false, (struct cu_uuid * uuid, cu_device device))   \
    X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2, false,                                          \
      (struct cu_uuid * uuid, cu_device device))                                                  \
    X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId, false,                                      \
      (char *address, int size, cu_device device))                                                \
    X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute, true,                                     \
      (int *value, cu_device_attribute attribute, cu_device device))                              \
    X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2, true, (size_t * bytes, cu_device device))      \
    X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain, true,                             \
      (cu_context * context, cu_device device))                                                   \
    X(cuDevicePrimaryCtxGetState, 7000, cuDevicePrimaryCtxGetState, true,                         \
      (cu_device device, unsigned *flags, int *active))                                           \
    X(cuCtxGetCurrent, 4000, cuCtxGetCurrent, true, (cu_context * context))                       \
    X(cuCtxSetCurrent, 4000, cuCtxSetCurrent, true, (cu_context context))                         \
    X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2, true, (cu_context context))                    \
    X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2, true, (cu_context * context))                    \
    X(cuCtxGetDevice, 2000, cuCtxGetDevice, true, (cu_device * device))                           \
    X(cuCtxSynchronize, 2000, cuCtxSynchronize, true, (void))                                     \
    X(cuCtxGetStreamPriorityRange, 5050, cuCtxGetStreamPriorityRange, false,                      \
      (int *least, int *greatest))                                                                \
    X(cuMemGetInfo, 3020, cuMemGetInfo_v2, true, (size_t * free_bytes, size_t * total_bytes))     \
    X(cuMemAlloc, 3020, cuMemAlloc_v2, true, (cu_address * address, size_t size))                 \
    X(cuMemFree, 3020, cuMemFree_v2, true, (cu_address address))                                  \
    X(cuMemAllocAsync, 11020, cuMemAllocAsync, false,                                             \
      (cu_address * address, size_t size, cu_stream stream))                                      \
    X(cuMemFreeAsync, 11020, cuMemFreeAsync, false, (cu_address address, cu_stream stream))       \
    X(cuMemHostAlloc, 2020, cuMemHostAlloc, false, (void **memory, size_t size, unsigned flags))  \
    X(cuMemFreeHost, 2000, cuMemFreeHost, false, (void *memory))                                  \
    X(cuMemHostRegister, 6050, cuMemHostRegister_v2, false,                                       \
      (void *memory, size_t size, unsigned flags))                                                \
    X(cuMemHostUnregister, 4000, cuMemHostUnregister, false, (void *memory))                      \
    X(cuMemAddressReserve, 10020, cuMemAddressReserve, false,                                     \
      (cu_address * address, size_t size, size_t alignment, cu_address hint,                      \
       unsigned long long flags))                                                                 \
    X(cuMemAddressFree, 10020, cuMemAddressFree, false, (cu_address address, size_t size))        \
    X(cuMemCreate, 10020, cuMemCreate, false,                                                     \
      (cu_piece * piece, size_t size, const struct cu_allocation_properties *properties,          \
       unsigned long long flags))                                                                 \
    X(cuMemRelease, 10020, cuMemRelease, false, (cu_piece piece))                                 \
    X(cuMemMap, 10020, cuMemMap, false,                                                           \
      (cu_address address, size_t size, size_t offset, cu_piece piece, unsigned long long flags)) \
    X(cuMemUnmap, 10020, cuMemUnmap, false, (cu_address address, size_t size))                    \
    X(cuMemSetAccess, 10020, cuMemSetAccess, false,                                               \
      (cu_address address, size_t size, const struct cu_access *access, size_t count))            \
    X(cuMemGetAllocationGranularity, 10020, cuMemGetAllocationGranularity, false,                 \
      (size_t * size, const struct cu_allocation_properties *properties,                          \
       cu_granularity_kind kind))                                                                 \
    X(cuMemExportToShareableHandle, 10020, cuMemExportToShareableHandle, false,                   \
      (void *handle, cu_piece piece, cu_handle_kind kind, unsigned long long flags))              \
    X(cuMemImportFromShareableHandle, 10020, cuMemImportFromShareableHandle, false,               \
      (cu_piece * piece, void *handle, cu_handle_kind kind))                                      \
    X(cuStreamCreateWithPriority, 5050, cuStreamCreateWithPriority, true,                         \
      (cu_stream * stream, unsigned flags, int priority))                                         \
    X(cuStreamDestroy, 4000, cuStreamDestroy_v2, true, (cu_stream stream))                        \
    X(cuStreamGetCtx, 9020, cuStreamGetCtx, false, (cu_stream stream, cu_context * context))      \
    X(cuStreamGetCtx, 12050, cuStreamGetCtx_v2, false,                                            \
      (cu_stream stream, cu_context * context, cu_green_context * green))                         \
    X(cuStreamGetId, 12000, cuStreamGetId, false, (cu_stream stream, unsigned long long *id))     \
    X(cuStreamQuery, 2000, cuStreamQuery, true, (cu_stream stream))                               \
    X(cuStreamSynchronize, 2000, cuStreamSynchronize, true, (cu_stream stream))                   \
    X(cuStreamWaitEvent, 3020, cuStreamWaitEvent, true,                                           \
      (cu_stream stream, cu_event event, unsigned flags))                                         \
    X(cuEventCreate, 2000, cuEventCreate, true, (cu_event * event, unsigned flags))               \
    X(cuEventDestroy, 4000, cuEventDestroy_v2, true, (cu_event event))                            \
    X(cuEventRecord, 2000, cuEventRecord, true, (cu_event event, cu_stream stream))               \
    X(cuEventQuery, 2000, cuEventQuery, true, (cu_event event))                                   \
    X(cuEventSynchronize, 2000, cuEventSynchronize, true, (cu_event event))                       \
    X(cuMemcpyAsync, 4000, cuMemcpyAsync, true,                                                   \
      (cu_address to, cu_address from, size_t size, cu_stream stream))                            \
    X(cuMemsetD8Async, 3020, cuMemsetD8Async, true,                                               \
      (cu_address address, unsigned char value, size_t count, cu_stream stream))                  \
    X(cuLaunchHostFunc, 10000, cuLaunchHostFunc, false,                                           \
      (cu_stream stream, cu_host_function function, void *argument))                              \
    X(cuThreadExchangeStreamCaptureMode, 10010, cuThreadExchangeStreamCaptureMode, false,         \
      (cu_capture_mode * mode))                                                                   \
    X(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2, false,                                \
      (cu_stream stream, cu_capture_mode mode))                                                   \
    X(cuStreamEndCapture, 10000, cuStreamEndCapture, false, (cu_stream stream, cu_graph * graph)) \
    X(cuStreamGetCaptureInfo, 10010, cuStreamGetCaptureInfo, false,                               \
      (cu_stream stream, cu_capture_status * status, uint64_t * id))                              \
    X(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2, false,                            \
      (cu_stream stream, cu_capture_status * status, uint64_t * id, cu_graph * graph,             \
       const cu_graph_node **nodes, size_t *count))                                               \
    X(cuStreamGetCaptureInfo, 12030, cuStreamGetCaptureInfo_v3, false,                            \
      (cu_stream stream, cu_capture_status * status, uint64_t * id, cu_graph * graph,             \
       const cu_graph_node **nodes, const struct cu_edge **edges, size_t *count))                 \
    X(cuStreamUpdateCaptureDependencies, 11030, cuStreamUpdateCaptureDependencies, false,         \
      (cu_stream stream, cu_graph_node * nodes, size_t count, unsigned flags))                    \
    X(cuGraphNodeGetDependencies, 10000, cuGraphNodeGetDependencies, false,                       \
      (cu_graph_node node, cu_graph_node * nodes, size_t * count))                                \
    X(cuGraphGetNodes, 10000, cuGraphGetNodes, false,                                             \
      (cu_graph graph, cu_graph_node * nodes, size_t * count))                                    \
    X(cuGraphNodeGetType, 10000, cuGraphNodeGetType, false,                                       \
      (cu_graph_node node, cu_node_type * type))                                                  \
    X(cuGraphNodeGetParams, 13020, cuGraphNodeGetParams, false,                                   \
      (cu_graph_node node, struct cu_any_node * parameters))                                      \
    X(cuGraphKernelNodeGetParams, 12000, cuGraphKernelNodeGetParams_v2, false,                    \
      (cu_graph_node node, struct cu_kernel_node * parameters))                                   \
    X(cuGraphKernelNodeGetAttribute, 11000, cuGraphKernelNodeGetAttribute, false,                 \
      (cu_graph_node node, cu_node_attribute attribute, union cu_attribute_value * value))        \
    X(cuGraphMemcpyNodeGetParams, 10000, cuGraphMemcpyNodeGetParams, false,                       \
      (cu_graph_node node, struct cu_copy_node * parameters))                                     \
    X(cuGraphMemsetNodeGetParams, 10000, cuGraphMemsetNodeGetParams, false,                       \
      (cu_graph_node node, struct cu_set_node * parameters))                                      \
    X(cuGraphBatchMemOpNodeGetParams, 11070, cuGraphBatchMemOpNodeGetParams, false,               \
      (cu_graph_node node, struct cu_batch_node * parameters))                                    \
    X(cuGraphMemFreeNodeGetParams, 11040, cuGraphMemFreeNodeGetParams, false,                     \
      (cu_graph_node node, cu_address * address))                                                 \
    X(cuGraphChildGraphNodeGetGraph, 10000, cuGraphChildGraphNodeGetGraph, false,                 \
      (cu_graph_node node, cu_graph * graph))                                                     \
    X(cuFuncGetParamInfo, 12040, cuFuncGetParamInfo, false,                                       \
      (cu_function function, size_t index, size_t * offset, size_t * size))                       \
    X(cuKernelGetParamInfo, 12040, cuKernelGetParamInfo, false,                                   \
      (cu_kernel kernel, size_t index, size_t * offset, size_t * size))                           \
    X(cuFuncGetName, 12030, cuFuncGetName, false, (const char **name, cu_function function))      \
    X(cuKernelGetName, 12030, cuKernelGetName, false, (const char **name, cu_kernel kernel))      \
    X(cuGraphInstantiate, 11000, cuGraphInstantiate_v2, false,                                    \
      (cu_graph_exec * exec, cu_graph graph, cu_graph_node * failed, char *text, size_t size))    \
    X(cuGraphInstantiateWithFlags, 11040, cuGraphInstantiateWithFlags, false,                     \
      (cu_graph_exec * exec, cu_graph graph, unsigned long long flags))                           \
    X(cuGraphLaunch, 10000, cuGraphLaunch, false, (cu_graph_exec exec, cu_stream stream))         \
    X(cuGraphExecDestroy, 10000, cuGraphExecDestroy, false, (cu_graph_exec exec))                 \
    X(cuGraphDestroy, 10000, cuGraphDestroy, false, (cu_graph graph))                             \
    X(cuUserObjectCreate, 11030, cuUserObjectCreate, false,                                       \
      (cu_user_object * object, void *argument, cu_host_function destroy, unsigned count,         \
       unsigned flags))                                                                           \
    X(cuUserObjectRelease, 11030, cuUserObjectRelease, false,                                     \
      (cu_user_object object, unsigned count))                                                    \
    X(cuGraphRetainUserObject, 11030, cuGraphRetainUserObject, false,                             \
      (cu_graph graph, cu_user_object object, unsigned count, unsigned flags))                    \
    X(cuDeviceCanAccessPeer, 4000, cuDeviceCanAccessPeer, true,                                   \
      (int *can, cu_device device, cu_device peer))                                               \
    X(cuCtxEnablePeerAccess, 4000, cuCtxEnablePeerAccess, true, (cu_context peer, unsigned flags))

/* The calls that find the others; dlsym() finds these. The same columns. */
#define CUDA_LOADER_LIST(X)                                            \
    X(cuInit, 2000, cuInit, true, (unsigned flags))                    \
    X(cuGetProcAddress, 11030, cuGetProcAddress, false,                \
      (const char *name, void **address, int version, uint64_t flags)) \
    X(cuGetProcAddress, 12000, cuGetProcAddress_v2, false,             \
      (const char *name, void **address, int version, uint64_t flags, cu_lookup_status *status))

#endif
