/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA runtime for libc10_cuda on the simulated driver: each call is the driver's of the same
 * meaning, on the primary context of the thread's device. What c10 needs for the calls of its own
 * allocator alone, driver pools and handles of other processes, is refused as not supported. Built
 * as libcudart.so.13 by scripts/torch-shim, for class.cc. */
#include "driver/cuda/cuda_abi.h"

#include <cuda_runtime_api.h>

#include <stdint.h>
#include <stdlib.h>

#define DECLARE(name, version, symbol, needed, parameters) extern cu_result symbol parameters;
CUDA_CALL_LIST(DECLARE)
CUDA_LOADER_LIST(DECLARE)
extern cu_result cuStreamIsCapturing(cu_stream stream, cu_capture_status *state);
extern cu_result cuStreamGetPriority(cu_stream stream, int *priority);
extern cu_result cuGraphNodeGetDependencies_v2(cu_graph_node node, cu_graph_node *nodes,
                                               struct cu_edge *edges, size_t *count);
#undef DECLARE

static _Thread_local cudaError_t last;
static _Thread_local int current; /* device */
static cu_context contexts[64];

/* The codes of both interfaces are the same numbers. */
static cudaError_t result(cu_result code)
{
    if (code && code != CU_NOT_READY)
        last = (cudaError_t)code;
    return (cudaError_t)code;
}

static cu_result enter(void)
{
    cu_context context = NULL;
    cu_result code = cuInit(0);
    if (code || (code = cuCtxGetCurrent(&context)) || context)
        return code;
    if (!contexts[current] && (code = cuDevicePrimaryCtxRetain(&contexts[current], current)))
        return code;
    return cuCtxSetCurrent(contexts[current]);
}

#define FORWARD(call)             \
    do {                          \
        cu_result code = enter(); \
        if (!code)                \
            code = (call);        \
        return result(code);      \
    } while (0)
#define REFUSE return result(CU_NOT_SUPPORTED)

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = "unknown";
    (void)cuGetErrorString((cu_result)error, &text);
    return text;
}

const char *cudaGetErrorName(cudaError_t error)
{
    const char *text = "unknown";
    (void)cuGetErrorName((cu_result)error, &text);
    return text;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    return result(cuDriverGetVersion(version));
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cu_result code = cuInit(0);
    return result(code ? code : cuDeviceGetCount(count));
}

cudaError_t cudaGetDevice(int *device)
{
    cu_context context = NULL;
    cu_result code = cuInit(0);
    if (!code && !(code = cuCtxGetCurrent(&context)) && context)
        code = cuCtxGetDevice(&current);
    *device = current;
    return result(code);
}

cudaError_t cudaSetDevice(int device)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) || device < 0 || device >= count)
        return result(CU_INVALID_DEVICE);
    current = device;
    cu_result code = cuCtxSetCurrent(NULL);
    return result(code ? code : enter());
}

cudaError_t cudaDeviceSynchronize(void)
{
    FORWARD(cuCtxSynchronize());
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    FORWARD(cuCtxGetStreamPriorityRange(least, greatest));
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    FORWARD(cuDeviceCanAccessPeer(can, device, peer));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    FORWARD(cuCtxEnablePeerAccess(contexts[peer], flags));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    FORWARD(cuMemGetInfo_v2(free_bytes, total));
}

/* How a cudaDeviceProp begins; c10 asks for the size of the memory, and the rest stays as it is. */
struct properties_head {
    char name[256], uuid[16], luid[8];
    unsigned luid_mask;
    size_t memory;
};

cudaError_t cudaGetDeviceProperties(struct properties_head *properties, int device)
{
    cu_result code = enter();
    if (!code && !(code = cuDeviceGetName(properties->name, sizeof properties->name, device)))
        code = cuDeviceTotalMem_v2(&properties->memory, device);
    return result(code);
}

cudaError_t cudaMalloc(void **pointer, size_t size)
{
    cu_address address = 0;
    cu_result code = enter();
    if (!code)
        code = cuMemAlloc_v2(&address, size);
    *pointer = (void *)(uintptr_t)address;
    return result(code);
}

cudaError_t cudaFree(void *pointer)
{
    FORWARD(pointer ? cuMemFree_v2((cu_address)(uintptr_t)pointer) : CU_OK);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    FORWARD(cuMemcpyAsync((cu_address)(uintptr_t)to, (cu_address)(uintptr_t)from, count, stream));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind)
{
    cudaError_t error = cudaMemcpyAsync(to, from, count, kind, NULL);
    return error ? error : cudaStreamSynchronize(NULL);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t count, cudaStream_t stream)
{
    (void)to_device;
    (void)from_device;
    return cudaMemcpyAsync(to, from, count, cudaMemcpyDeviceToDevice, stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    FORWARD(cuStreamCreateWithPriority(stream, flags, priority));
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    FORWARD(cuStreamGetPriority(stream, priority));
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    FORWARD(cuStreamQuery(stream));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    FORWARD(cuStreamSynchronize(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    FORWARD(cuStreamWaitEvent(stream, event, flags));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    FORWARD(cuStreamIsCapturing(stream, (cu_capture_status *)status));
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FORWARD(cuStreamBeginCapture_v2(stream, (cu_capture_mode)mode));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    FORWARD(cuStreamEndCapture(stream, graph));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FORWARD(cuGraphDestroy(graph));
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const struct cu_edge **edges,
                                     size_t *count)
{
    uint64_t number = 0;
    cu_result code = enter();
    if (!code)
        code = cuStreamGetCaptureInfo_v3(stream, (cu_capture_status *)status, &number, graph,
                                         (const cu_graph_node **)nodes, edges, count);
    if (id)
        *id = number;
    return result(code);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                         struct cu_edge *edges, size_t *count)
{
    FORWARD(cuGraphNodeGetDependencies_v2(node, nodes, edges, count));
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    FORWARD(cuThreadExchangeStreamCaptureMode((cu_capture_mode *)mode));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    FORWARD(cuEventCreate(event, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    FORWARD(cuEventDestroy_v2(event));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    FORWARD(cuEventQuery(event));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    FORWARD(cuEventRecord(event, stream));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    FORWARD(cuEventSynchronize(event));
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **address, unsigned version,
                                             unsigned long long flags, unsigned *status)
{
    cu_result code = cuInit(0); /* no context */
    return result(code ? code : cuGetProcAddress_v2(name, address, (int)version, flags, status));
}

/* ---- Refused ---- */

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device)
{
    (void)pool;
    (void)device;
    REFUSE;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    (void)milliseconds;
    (void)from;
    (void)to;
    REFUSE;
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream)
{
    (void)pointer;
    (void)stream;
    REFUSE;
}

cudaError_t cudaIpcCloseMemHandle(void *pointer)
{
    (void)pointer;
    REFUSE;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *pointer)
{
    (void)handle;
    (void)pointer;
    REFUSE;
}

cudaError_t cudaIpcOpenMemHandle(void **pointer, cudaIpcMemHandle_t handle, unsigned flags)
{
    (void)pointer;
    (void)handle;
    (void)flags;
    REFUSE;
}

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream)
{
    (void)pointer;
    (void)size;
    (void)stream;
    REFUSE;
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attribute, void *value)
{
    (void)pool;
    (void)attribute;
    (void)value;
    REFUSE;
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const void *access, size_t count)
{
    (void)pool;
    (void)access;
    (void)count;
    REFUSE;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void *value)
{
    (void)pool;
    (void)attribute;
    (void)value;
    REFUSE;
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
    (void)pool;
    (void)keep;
    REFUSE;
}
