/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of the CUDA driver's binary interface that the shim uses in addition to
 * driver/cuda/cuda_abi.h: structures that it reads, and prototypes that it hooks or calls.
 * tests/abi/check_run.c compares every line with cuda.h and cudaTypedefs.h. */
#ifndef TARN_RUN_ABI_H
#define TARN_RUN_ABI_H

#include "driver/cuda/cuda_abi.h"

/* Names for code that serves CUDA and HIP alike. */
typedef cu_result run_result;
typedef cu_context run_context;
typedef cu_stream run_stream;
enum { RUN_OK = CU_OK, RUN_OUT_OF_MEMORY = CU_OUT_OF_MEMORY, RUN_NOT_FOUND = CU_NOT_FOUND };
#define RUN_DRIVER "cuda"
#define RUN_RUNTIMES                 \
    {                                \
        "libcudart.so", "libcuda.so" \
    } /* libraries that are passed over when a call site is sought */

typedef struct CUarray_st *cu_array;
typedef struct CUmipmappedArray_st *cu_mipmapped;

struct cu_ipc {
    char reserved[64];
};

struct cu_ipc_event {
    char reserved[64];
};

struct cu_array_descriptor {
    size_t width, height;
    unsigned format, channels;
};

struct cu_array3d_descriptor {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

struct cu_alloc_node {
    struct cu_pool_properties pool;
    const struct cu_access *access;
    size_t access_count, size;
    cu_address address;
};

#define RUN_ARRAY_LAYERED 0x01  /* CUDA_ARRAY3D_LAYERED */
#define RUN_ARRAY_CUBEMAP 0x04  /* CUDA_ARRAY3D_CUBEMAP */
#define RUN_ARRAY_SPARSE 0x40   /* CUDA_ARRAY3D_SPARSE */
#define RUN_ARRAY_DEFERRED 0x80 /* CUDA_ARRAY3D_DEFERRED_MAPPING */
#define RUN_MANAGED_POOL 2      /* CU_MEM_ALLOCATION_TYPE_MANAGED, since CUDA 13.0 */
/* CUDA 13.5, the newest version whose prototypes were compared with the list below. */
#define RUN_NEWEST 13050

#define RUN_LEGACY 1     /* CU_GET_PROC_ADDRESS_LEGACY_STREAM, which 0 means too */
#define RUN_PER_THREAD 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
#define RUN_ANY 3        /* both: the call has no stream */

/* X(name for cuGetProcAddress, version from which the name has this prototype, stream modes in
 * which it does, exported symbol, parameters, arguments). For a name and a mode, the row holds that
 * has the greatest version not above the one asked for. The exports, the table of the resolver and
 * the tests come from this list. */
#define RUN_PLAIN_HOOK_LIST(X)                                                                     \
    X(cuInit, 2000, RUN_ANY, cuInit, (unsigned flags), (flags))                                    \
    X(cuGetProcAddress, 11030, RUN_ANY, cuGetProcAddress,                                          \
      (const char *name, void **address, int version, uint64_t flags),                             \
      (name, address, version, flags))                                                             \
    X(cuGetProcAddress, 12000, RUN_ANY, cuGetProcAddress_v2,                                       \
      (const char *name, void **address, int version, uint64_t flags, cu_lookup_status *status),   \
      (name, address, version, flags, status))                                                     \
    X(cuDeviceTotalMem, 3020, RUN_ANY, cuDeviceTotalMem_v2, (size_t * bytes, cu_device device),    \
      (bytes, device))                                                                             \
    X(cuMemGetInfo, 3020, RUN_ANY, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes),   \
      (free_bytes, total_bytes))                                                                   \
    X(cuDevicePrimaryCtxRelease, 7000, RUN_ANY, cuDevicePrimaryCtxRelease, (cu_device device),     \
      (device))                                                                                    \
    X(cuDevicePrimaryCtxRelease, 11000, RUN_ANY, cuDevicePrimaryCtxRelease_v2, (cu_device device), \
      (device))                                                                                    \
    X(cuDevicePrimaryCtxReset, 7000, RUN_ANY, cuDevicePrimaryCtxReset, (cu_device device),         \
      (device))                                                                                    \
    X(cuDevicePrimaryCtxReset, 11000, RUN_ANY, cuDevicePrimaryCtxReset_v2, (cu_device device),     \
      (device))                                                                                    \
    X(cuCtxDestroy, 2000, RUN_ANY, cuCtxDestroy, (cu_context context), (context))                  \
    X(cuCtxDestroy, 4000, RUN_ANY, cuCtxDestroy_v2, (cu_context context), (context))               \
    X(cuMemAlloc, 3020, RUN_ANY, cuMemAlloc_v2, (cu_address * address, size_t size),               \
      (address, size))                                                                             \
    X(cuMemAllocPitch, 3020, RUN_ANY, cuMemAllocPitch_v2,                                          \
      (cu_address * address, size_t * pitch, size_t width, size_t height, unsigned element),       \
      (address, pitch, width, height, element))                                                    \
    X(cuMemAllocManaged, 6000, RUN_ANY, cuMemAllocManaged,                                         \
      (cu_address * address, size_t size, unsigned flags), (address, size, flags))                 \
    X(cuMemFree, 3020, RUN_ANY, cuMemFree_v2, (cu_address address), (address))                     \
    X(cuMemAllocAsync, 11020, RUN_LEGACY, cuMemAllocAsync,                                         \
      (cu_address * address, size_t size, cu_stream stream), (address, size, stream))              \
    X(cuMemAllocAsync, 11020, RUN_PER_THREAD, cuMemAllocAsync_ptsz,                                \
      (cu_address * address, size_t size, cu_stream stream), (address, size, stream))              \
    X(cuMemAllocFromPoolAsync, 11020, RUN_LEGACY, cuMemAllocFromPoolAsync,                         \
      (cu_address * address, size_t size, cu_pool pool, cu_stream stream),                         \
      (address, size, pool, stream))                                                               \
    X(cuMemAllocFromPoolAsync, 11020, RUN_PER_THREAD, cuMemAllocFromPoolAsync_ptsz,                \
      (cu_address * address, size_t size, cu_pool pool, cu_stream stream),                         \
      (address, size, pool, stream))                                                               \
    X(cuMemFreeAsync, 11020, RUN_LEGACY, cuMemFreeAsync, (cu_address address, cu_stream stream),   \
      (address, stream))                                                                           \
    X(cuMemFreeAsync, 11020, RUN_PER_THREAD, cuMemFreeAsync_ptsz,                                  \
      (cu_address address, cu_stream stream), (address, stream))                                   \
    X(cuMemPoolCreate, 11020, RUN_ANY, cuMemPoolCreate,                                            \
      (cu_pool * pool, const struct cu_pool_properties *properties), (pool, properties))           \
    X(cuMemPoolDestroy, 11020, RUN_ANY, cuMemPoolDestroy, (cu_pool pool), (pool))                  \
    X(cuDeviceGetDefaultMemPool, 11020, RUN_ANY, cuDeviceGetDefaultMemPool,                        \
      (cu_pool * pool, cu_device device), (pool, device))                                          \
    X(cuDeviceGetMemPool, 11020, RUN_ANY, cuDeviceGetMemPool, (cu_pool * pool, cu_device device),  \
      (pool, device))                                                                              \
    X(cuMemGetDefaultMemPool, 13000, RUN_ANY, cuMemGetDefaultMemPool,                              \
      (cu_pool * pool, struct cu_location * location, unsigned type), (pool, location, type))      \
    X(cuMemGetMemPool, 13000, RUN_ANY, cuMemGetMemPool,                                            \
      (cu_pool * pool, struct cu_location * location, unsigned type), (pool, location, type))      \
    X(cuMemCreate, 10020, RUN_ANY, cuMemCreate,                                                    \
      (cu_piece * piece, size_t size, const struct cu_allocation_properties *properties,           \
       unsigned long long flags),                                                                  \
      (piece, size, properties, flags))                                                            \
    X(cuMemRelease, 10020, RUN_ANY, cuMemRelease, (cu_piece piece), (piece))                       \
    X(cuMemRetainAllocationHandle, 11000, RUN_ANY, cuMemRetainAllocationHandle,                    \
      (cu_piece * piece, void *address), (piece, address))                                         \
    X(cuMemMap, 10020, RUN_ANY, cuMemMap,                                                          \
      (cu_address address, size_t size, size_t offset, cu_piece piece, unsigned long long flags),  \
      (address, size, offset, piece, flags))                                                       \
    X(cuMemUnmap, 10020, RUN_ANY, cuMemUnmap, (cu_address address, size_t size), (address, size))  \
    X(cuArrayCreate, 3020, RUN_ANY, cuArrayCreate_v2,                                              \
      (cu_array * array, const struct cu_array_descriptor *descriptor), (array, descriptor))       \
    X(cuArray3DCreate, 3020, RUN_ANY, cuArray3DCreate_v2,                                          \
      (cu_array * array, const struct cu_array3d_descriptor *descriptor), (array, descriptor))     \
    X(cuArrayDestroy, 2000, RUN_ANY, cuArrayDestroy, (cu_array array), (array))                    \
    X(cuMipmappedArrayCreate, 5000, RUN_ANY, cuMipmappedArrayCreate,                               \
      (cu_mipmapped * array, const struct cu_array3d_descriptor *descriptor, unsigned levels),     \
      (array, descriptor, levels))                                                                 \
    X(cuMipmappedArrayDestroy, 5000, RUN_ANY, cuMipmappedArrayDestroy, (cu_mipmapped array),       \
      (array))                                                                                     \
    X(cuIpcOpenMemHandle, 4010, RUN_ANY, cuIpcOpenMemHandle,                                       \
      (cu_address * address, struct cu_ipc handle, unsigned flags), (address, handle, flags))      \
    X(cuIpcOpenMemHandle, 11000, RUN_ANY, cuIpcOpenMemHandle_v2,                                   \
      (cu_address * address, struct cu_ipc handle, unsigned flags), (address, handle, flags))      \
    X(cuIpcCloseMemHandle, 4010, RUN_ANY, cuIpcCloseMemHandle, (cu_address address), (address))    \
    X(cuMemHostAlloc, 2020, RUN_ANY, cuMemHostAlloc, (void **memory, size_t size, unsigned flags), \
      (memory, size, flags))                                                                       \
    X(cuMemAllocHost, 3020, RUN_ANY, cuMemAllocHost_v2, (void **memory, size_t size),              \
      (memory, size))                                                                              \
    X(cuMemFreeHost, 2000, RUN_ANY, cuMemFreeHost, (void *memory), (memory))                       \
    X(cuMemHostRegister, 6050, RUN_ANY, cuMemHostRegister_v2,                                      \
      (void *memory, size_t size, unsigned flags), (memory, size, flags))                          \
    X(cuMemHostUnregister, 4000, RUN_ANY, cuMemHostUnregister, (void *memory), (memory))           \
    X(cuGraphAddMemAllocNode, 11040, RUN_ANY, cuGraphAddMemAllocNode,                              \
      (cu_graph_node * node, cu_graph graph, const cu_graph_node *before, size_t count,            \
       struct cu_alloc_node *wanted),                                                              \
      (node, graph, before, count, wanted))

/* What --pool hooks and calls in addition. */
#define RUN_POOL_HOOK_LIST(X)                                                                      \
    X(cuMemGetAddressRange, 3020, RUN_ANY, cuMemGetAddressRange_v2,                                \
      (cu_address * base, size_t * size, cu_address address), (base, size, address))               \
    X(cuPointerGetAttribute, 4000, RUN_ANY, cuPointerGetAttribute,                                 \
      (void *data, unsigned attribute, cu_address address), (data, attribute, address))            \
    X(cuPointerGetAttributes, 7000, RUN_ANY, cuPointerGetAttributes,                               \
      (unsigned count, unsigned *attributes, void **data, cu_address address),                     \
      (count, attributes, data, address))                                                          \
    X(cuPointerSetAttribute, 6000, RUN_ANY, cuPointerSetAttribute,                                 \
      (const void *value, unsigned attribute, cu_address address), (value, attribute, address))    \
    X(cuIpcGetMemHandle, 4010, RUN_ANY, cuIpcGetMemHandle,                                         \
      (struct cu_ipc * handle, cu_address address), (handle, address))                             \
    X(cuIpcGetEventHandle, 4010, RUN_ANY, cuIpcGetEventHandle,                                     \
      (struct cu_ipc_event * handle, cu_event event), (handle, event))                             \
    X(cuIpcOpenEventHandle, 4010, RUN_ANY, cuIpcOpenEventHandle,                                   \
      (cu_event * event, struct cu_ipc_event handle), (event, handle))                             \
    X(cuMemGetHandleForAddressRange, 11070, RUN_ANY, cuMemGetHandleForAddressRange,                \
      (void *handle, cu_address address, size_t size, unsigned kind, unsigned long long flags),    \
      (handle, address, size, kind, flags))                                                        \
    X(cuMemExportToShareableHandle, 10020, RUN_ANY, cuMemExportToShareableHandle,                  \
      (void *handle, cu_piece piece, cu_handle_kind kind, unsigned long long flags),               \
      (handle, piece, kind, flags))                                                                \
    X(cuMemImportFromShareableHandle, 10020, RUN_ANY, cuMemImportFromShareableHandle,              \
      (cu_piece * piece, void *handle, cu_handle_kind kind), (piece, handle, kind))                \
    X(cuMemPoolExportToShareableHandle, 11020, RUN_ANY, cuMemPoolExportToShareableHandle,          \
      (void *handle, cu_pool pool, cu_handle_kind kind, unsigned long long flags),                 \
      (handle, pool, kind, flags))                                                                 \
    X(cuMemPoolImportFromShareableHandle, 11020, RUN_ANY, cuMemPoolImportFromShareableHandle,      \
      (cu_pool * pool, void *handle, cu_handle_kind kind, unsigned long long flags),               \
      (pool, handle, kind, flags))                                                                 \
    X(cuDeviceSetMemPool, 11020, RUN_ANY, cuDeviceSetMemPool, (cu_device device, cu_pool pool),    \
      (device, pool))                                                                              \
    X(cuMemSetMemPool, 13000, RUN_ANY, cuMemSetMemPool,                                            \
      (struct cu_location * location, unsigned type, cu_pool pool), (location, type, pool))        \
    X(cuMemPoolTrimTo, 11020, RUN_ANY, cuMemPoolTrimTo, (cu_pool pool, size_t keep), (pool, keep)) \
    X(cuMemPoolGetAttribute, 11020, RUN_ANY, cuMemPoolGetAttribute,                                \
      (cu_pool pool, unsigned attribute, void *value), (pool, attribute, value))                   \
    X(cuMemPoolSetAttribute, 11020, RUN_ANY, cuMemPoolSetAttribute,                                \
      (cu_pool pool, unsigned attribute, void *value), (pool, attribute, value))                   \
    X(cuStreamDestroy, 2000, RUN_ANY, cuStreamDestroy, (cu_stream stream), (stream))               \
    X(cuStreamDestroy, 4000, RUN_ANY, cuStreamDestroy_v2, (cu_stream stream), (stream))            \
    X(cuStreamSynchronize, 2000, RUN_LEGACY, cuStreamSynchronize, (cu_stream stream), (stream))    \
    X(cuStreamSynchronize, 7000, RUN_PER_THREAD, cuStreamSynchronize_ptsz, (cu_stream stream),     \
      (stream))                                                                                    \
    X(cuEventSynchronize, 2000, RUN_ANY, cuEventSynchronize, (cu_event event), (event))            \
    X(cuCtxSynchronize, 2000, RUN_ANY, cuCtxSynchronize, (void), ())                               \
    X(cuCtxSynchronize, 13000, RUN_ANY, cuCtxSynchronize_v2, (cu_context context), (context))      \
    X(cuStreamBeginCapture, 10000, RUN_LEGACY, cuStreamBeginCapture, (cu_stream stream), (stream)) \
    X(cuStreamBeginCapture, 10000, RUN_PER_THREAD, cuStreamBeginCapture_ptsz, (cu_stream stream),  \
      (stream))                                                                                    \
    X(cuStreamBeginCapture, 10010, RUN_LEGACY, cuStreamBeginCapture_v2,                            \
      (cu_stream stream, cu_capture_mode capture), (stream, capture))                              \
    X(cuStreamBeginCapture, 10010, RUN_PER_THREAD, cuStreamBeginCapture_v2_ptsz,                   \
      (cu_stream stream, cu_capture_mode capture), (stream, capture))                              \
    X(cuStreamBeginCaptureToGraph, 12030, RUN_LEGACY, cuStreamBeginCaptureToGraph,                 \
      (cu_stream stream, cu_graph graph, const cu_graph_node *before, const struct cu_edge *edges, \
       size_t count, cu_capture_mode capture),                                                     \
      (stream, graph, before, edges, count, capture))                                              \
    X(cuStreamBeginCaptureToGraph, 12030, RUN_PER_THREAD, cuStreamBeginCaptureToGraph_ptsz,        \
      (cu_stream stream, cu_graph graph, const cu_graph_node *before, const struct cu_edge *edges, \
       size_t count, cu_capture_mode capture),                                                     \
      (stream, graph, before, edges, count, capture))                                              \
    X(cuStreamEndCapture, 10000, RUN_LEGACY, cuStreamEndCapture,                                   \
      (cu_stream stream, cu_graph * graph), (stream, graph))                                       \
    X(cuStreamEndCapture, 10000, RUN_PER_THREAD, cuStreamEndCapture_ptsz,                          \
      (cu_stream stream, cu_graph * graph), (stream, graph))

#define RUN_POOL_ASK_LIST(X)                                                                       \
    X(cuDriverGetVersion, 2020, RUN_ANY, cuDriverGetVersion, (int *version), (version))            \
    X(cuStreamQuery, 2000, RUN_LEGACY, cuStreamQuery, (cu_stream stream), (stream))                \
    X(cuStreamCreate, 2000, RUN_ANY, cuStreamCreate, (cu_stream * stream, unsigned flags),         \
      (stream, flags))                                                                             \
    X(cuStreamGetCtx, 9020, RUN_ANY, cuStreamGetCtx, (cu_stream stream, cu_context * context),     \
      (stream, context))                                                                           \
    X(cuThreadExchangeStreamCaptureMode, 10010, RUN_ANY, cuThreadExchangeStreamCaptureMode,        \
      (cu_capture_mode * capture), (capture))                                                      \
    X(cuCtxPushCurrent, 4000, RUN_ANY, cuCtxPushCurrent_v2, (cu_context context), (context))       \
    X(cuCtxPopCurrent, 4000, RUN_ANY, cuCtxPopCurrent_v2, (cu_context * context), (context))       \
    X(cuEventCreate, 2000, RUN_ANY, cuEventCreate, (cu_event * event, unsigned flags),             \
      (event, flags))                                                                              \
    X(cuEventRecord, 2000, RUN_LEGACY, cuEventRecord, (cu_event event, cu_stream stream),          \
      (event, stream))                                                                             \
    X(cuEventRecord, 7000, RUN_PER_THREAD, cuEventRecord_ptsz, (cu_event event, cu_stream stream), \
      (event, stream))                                                                             \
    X(cuEventQuery, 2000, RUN_ANY, cuEventQuery, (cu_event event), (event))                        \
    X(cuEventDestroy, 4000, RUN_ANY, cuEventDestroy_v2, (cu_event event), (event))

/* Functions that the shim calls and does not hook. The same columns. */
#define RUN_PLAIN_ASK_LIST(X)                                                                     \
    X(cuCtxGetCurrent, 4000, RUN_ANY, cuCtxGetCurrent, (cu_context * context), (context))         \
    X(cuCtxGetDevice, 2000, RUN_ANY, cuCtxGetDevice, (cu_device * device), (device))              \
    X(cuDeviceGetCount, 2000, RUN_ANY, cuDeviceGetCount, (int *count), (count))                   \
    X(cuDeviceGetName, 2000, RUN_ANY, cuDeviceGetName, (char *name, int size, cu_device device),  \
      (name, size, device))                                                                       \
    X(cuDeviceGetUuid, 9020, RUN_ANY, cuDeviceGetUuid, (struct cu_uuid * uuid, cu_device device), \
      (uuid, device))                                                                             \
    X(cuDeviceGetUuid, 11040, RUN_ANY, cuDeviceGetUuid_v2,                                        \
      (struct cu_uuid * uuid, cu_device device), (uuid, device))                                  \
    X(cuDeviceGetPCIBusId, 4010, RUN_ANY, cuDeviceGetPCIBusId,                                    \
      (char *address, int size, cu_device device), (address, size, device))                       \
    X(cuDevicePrimaryCtxRetain, 7000, RUN_ANY, cuDevicePrimaryCtxRetain,                          \
      (cu_context * context, cu_device device), (context, device))                                \
    X(cuDevicePrimaryCtxGetState, 7000, RUN_ANY, cuDevicePrimaryCtxGetState,                      \
      (cu_device device, unsigned *flags, int *active), (device, flags, active))                  \
    X(cuStreamIsCapturing, 10000, RUN_LEGACY, cuStreamIsCapturing,                                \
      (cu_stream stream, cu_capture_status * now), (stream, now))                                 \
    X(cuStreamIsCapturing, 10000, RUN_PER_THREAD, cuStreamIsCapturing_ptsz,                       \
      (cu_stream stream, cu_capture_status * now), (stream, now))

#define RUN_RANGE_ASK_LIST(X)                                       \
    X(cuMemGetAddressRange, 3020, RUN_ANY, cuMemGetAddressRange_v2, \
      (cu_address * base, size_t * size, cu_address address), (base, size, address))

#ifdef TARN_RUN_POOL
#define RUN_HOOK_LIST(X) RUN_PLAIN_HOOK_LIST(X) RUN_POOL_HOOK_LIST(X)
#define RUN_ASK_LIST(X) RUN_PLAIN_ASK_LIST(X) RUN_POOL_ASK_LIST(X)
#else
#define RUN_HOOK_LIST(X) RUN_PLAIN_HOOK_LIST(X)
#define RUN_ASK_LIST(X) RUN_PLAIN_ASK_LIST(X) RUN_RANGE_ASK_LIST(X)
#endif

#endif
