/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The parts of the HIP runtime's binary interface that the shim uses in addition to
 * driver/hip/hip_abi.h. HIP exports one prototype per name. tests/abi/check_run_hip.c compares
 * those that HIP 5.2 has with hip_runtime_api.h. */
#ifndef TARN_RUN_HIP_ABI_H
#define TARN_RUN_HIP_ABI_H

#include "driver/hip/hip_abi.h"

#include <stdbool.h>

typedef hip_result run_result;
/* stands for a context: N + 1 for device N. A reset of the device ends all that was made on it */
typedef struct run_hip_device *run_context;
typedef hip_stream run_stream;
enum { RUN_OK = HIP_OK, RUN_OUT_OF_MEMORY = HIP_OUT_OF_MEMORY, RUN_NOT_FOUND = HIP_NOT_SUPPORTED };
#define RUN_DRIVER "hip"
#define RUN_RUNTIMES     \
    {                    \
        "libamdhip64.so" \
    }

typedef struct hipArray *hip_array;
typedef struct ihipMemPoolHandle_t *hip_pool;

struct hip_ipc {
    char reserved[64];
};

struct hip_channels {
    int bits[4];
    unsigned kind;
};

struct hip_array_descriptor {
    size_t width, height;
    unsigned format, channels;
};

struct hip_array3d_descriptor {
    size_t width, height, depth;
    unsigned format, channels, flags;
};

struct hip_pool_properties {
    unsigned type, handle_types;
    struct hip_location location;
    void *win32;
    unsigned char reserved[64];
};

/* X(exported symbol, HIP version that introduced it as 10 * major + minor, -, exported symbol,
 * parameters, arguments). The list for CUDA has the same columns, so that one code looks up
 * both. */
#define RUN_HOOK_LIST(X)                                                                          \
    X(hipInit, 42, 0, hipInit, (unsigned flags), (flags))                                         \
    X(hipGetProcAddress, 61, 0, hipGetProcAddress,                                                \
      (const char *name, void **address, int version, uint64_t flags, unsigned *status),          \
      (name, address, version, flags, status))                                                    \
    X(hipDeviceTotalMem, 42, 0, hipDeviceTotalMem, (size_t * bytes, int device), (bytes, device)) \
    X(hipGetDeviceProperties, 42, 0, hipGetDeviceProperties, (void *properties, int device),      \
      (properties, device))                                                                       \
    X(hipGetDevicePropertiesR0600, 60, 0, hipGetDevicePropertiesR0600,                            \
      (void *properties, int device), (properties, device))                                       \
    X(hipMemGetInfo, 42, 0, hipMemGetInfo, (size_t * free_bytes, size_t * total_bytes),           \
      (free_bytes, total_bytes))                                                                  \
    X(hipDeviceReset, 42, 0, hipDeviceReset, (void), ())                                          \
    X(hipMalloc, 42, 0, hipMalloc, (void **address, size_t size), (address, size))                \
    X(hipExtMallocWithFlags, 42, 0, hipExtMallocWithFlags,                                        \
      (void **address, size_t size, unsigned flags), (address, size, flags))                      \
    X(hipMallocPitch, 42, 0, hipMallocPitch,                                                      \
      (void **address, size_t *pitch, size_t width, size_t height),                               \
      (address, pitch, width, height))                                                            \
    X(hipMemAllocPitch, 42, 0, hipMemAllocPitch,                                                  \
      (void **address, size_t *pitch, size_t width, size_t height, unsigned element),             \
      (address, pitch, width, height, element))                                                   \
    X(hipMalloc3D, 42, 0, hipMalloc3D, (struct hip_pitched * pitched, struct hip_extent extent),  \
      (pitched, extent))                                                                          \
    X(hipMallocManaged, 42, 0, hipMallocManaged, (void **address, size_t size, unsigned flags),   \
      (address, size, flags))                                                                     \
    X(hipFree, 42, 0, hipFree, (void *address), (address))                                        \
    X(hipMallocAsync, 51, 0, hipMallocAsync, (void **address, size_t size, hip_stream stream),    \
      (address, size, stream))                                                                    \
    X(hipMallocFromPoolAsync, 51, 0, hipMallocFromPoolAsync,                                      \
      (void **address, size_t size, hip_pool pool, hip_stream stream),                            \
      (address, size, pool, stream))                                                              \
    X(hipFreeAsync, 51, 0, hipFreeAsync, (void *address, hip_stream stream), (address, stream))   \
    X(hipMemPoolCreate, 51, 0, hipMemPoolCreate,                                                  \
      (hip_pool * pool, const struct hip_pool_properties *properties), (pool, properties))        \
    X(hipMemPoolDestroy, 51, 0, hipMemPoolDestroy, (hip_pool pool), (pool))                       \
    X(hipDeviceGetDefaultMemPool, 51, 0, hipDeviceGetDefaultMemPool,                              \
      (hip_pool * pool, int device), (pool, device))                                              \
    X(hipMemCreate, 51, 0, hipMemCreate,                                                          \
      (hip_piece * piece, size_t size, const struct hip_allocation_properties *properties,        \
       unsigned long long flags),                                                                 \
      (piece, size, properties, flags))                                                           \
    X(hipMemRelease, 51, 0, hipMemRelease, (hip_piece piece), (piece))                            \
    X(hipMemRetainAllocationHandle, 51, 0, hipMemRetainAllocationHandle,                          \
      (hip_piece * piece, void *address), (piece, address))                                       \
    X(hipMemMap, 51, 0, hipMemMap,                                                                \
      (void *address, size_t size, size_t offset, hip_piece piece, unsigned long long flags),     \
      (address, size, offset, piece, flags))                                                      \
    X(hipMemUnmap, 51, 0, hipMemUnmap, (void *address, size_t size), (address, size))             \
    X(hipMallocArray, 42, 0, hipMallocArray,                                                      \
      (hip_array * array, const struct hip_channels *channels, size_t width, size_t height,       \
       unsigned flags),                                                                           \
      (array, channels, width, height, flags))                                                    \
    X(hipMalloc3DArray, 42, 0, hipMalloc3DArray,                                                  \
      (hip_array * array, const struct hip_channels *channels, struct hip_extent extent,          \
       unsigned flags),                                                                           \
      (array, channels, extent, flags))                                                           \
    X(hipArrayCreate, 42, 0, hipArrayCreate,                                                      \
      (hip_array * array, const struct hip_array_descriptor *descriptor), (array, descriptor))    \
    X(hipArray3DCreate, 42, 0, hipArray3DCreate,                                                  \
      (hip_array * array, const struct hip_array3d_descriptor *descriptor), (array, descriptor))  \
    X(hipFreeArray, 42, 0, hipFreeArray, (hip_array array), (array))                              \
    X(hipArrayDestroy, 42, 0, hipArrayDestroy, (hip_array array), (array))                        \
    X(hipIpcOpenMemHandle, 42, 0, hipIpcOpenMemHandle,                                            \
      (void **address, struct hip_ipc handle, unsigned flags), (address, handle, flags))          \
    X(hipIpcCloseMemHandle, 42, 0, hipIpcCloseMemHandle, (void *address), (address))              \
    X(hipHostMalloc, 42, 0, hipHostMalloc, (void **memory, size_t size, unsigned flags),          \
      (memory, size, flags))                                                                      \
    X(hipHostAlloc, 42, 0, hipHostAlloc, (void **memory, size_t size, unsigned flags),            \
      (memory, size, flags))                                                                      \
    X(hipMallocHost, 42, 0, hipMallocHost, (void **memory, size_t size), (memory, size))          \
    X(hipMemAllocHost, 42, 0, hipMemAllocHost, (void **memory, size_t size), (memory, size))      \
    X(hipHostFree, 42, 0, hipHostFree, (void *memory), (memory))                                  \
    X(hipFreeHost, 42, 0, hipFreeHost, (void *memory), (memory))                                  \
    X(hipHostRegister, 42, 0, hipHostRegister, (void *memory, size_t size, unsigned flags),       \
      (memory, size, flags))                                                                      \
    X(hipHostUnregister, 42, 0, hipHostUnregister, (void *memory), (memory))

/* Functions that the shim calls and does not hook. The same columns. */
#define RUN_ASK_LIST(X)                                                                         \
    X(hipGetDeviceCount, 42, 0, hipGetDeviceCount, (int *count), (count))                       \
    X(hipGetDevice, 42, 0, hipGetDevice, (int *device), (device))                               \
    X(hipDeviceGetName, 42, 0, hipDeviceGetName, (char *name, int size, int device),            \
      (name, size, device))                                                                     \
    X(hipDeviceGetUuid, 51, 0, hipDeviceGetUuid, (struct hip_uuid * uuid, int device),          \
      (uuid, device))                                                                           \
    X(hipDeviceGetPCIBusId, 42, 0, hipDeviceGetPCIBusId, (char *address, int size, int device), \
      (address, size, device))                                                                  \
    X(hipMemGetAddressRange, 42, 0, hipMemGetAddressRange,                                      \
      (void **base, size_t *size, void *address), (base, size, address))                        \
    X(hipStreamIsCapturing, 43, 0, hipStreamIsCapturing,                                        \
      (hip_stream stream, hip_stream_capture_status * now), (stream, now))

/* Offsets of the device's total bytes in the structures of hipGetDeviceProperties() and
 * hipGetDevicePropertiesR0600(). */
enum { RUN_PROPERTIES_BYTES = 256, RUN_PROPERTIES_R0600_BYTES = 288 };

#endif
