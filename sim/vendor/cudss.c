/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A handle has no device memory. The data of a system has some, from the memory handler that the
 * program has set. A cudssData_t here is that memory; the real library allocates it later, in its
 * analysis. */
#include "vendor/common.h"

#include <string.h>
#ifdef SIM_HAVE_CUDSS_HEADER
#include <cudss.h>
#else
typedef int cudssStatus_t, libraryPropertyType;
typedef void *cudssHandle_t, *cudssData_t, *cudaStream_t;
typedef struct {
    void *ctx;
    int (*device_alloc)(void *ctx, void **ptr, size_t size, cudaStream_t stream);
    int (*device_free)(void *ctx, void *ptr, size_t size, cudaStream_t stream);
    char name[64];
} cudssDeviceMemHandler_t;
#endif

const struct vendor_library vendor_library = {
    .knob = "CUDSS",
    .leavings = VENDOR_LEAVES_REAL,
    .no_device = 1,
    .old_driver = 1,
    .out_of_memory = 2,
    .bad_handle = 1,
    .bad_argument = 3,
    .failed = 5,
};

enum { DATA_BYTES = 3 << 20 };

VENDOR_CREATE(cudssCreate, cudssStatus_t, cudssHandle_t)
VENDOR_DESTROY(cudssDestroy, cudssStatus_t, cudssHandle_t)
VENDOR_SET_STREAM(cudssSetStream, cudssStatus_t, cudssHandle_t, cudaStream_t)
VENDOR_PROPERTY(cudssGetProperty, cudssStatus_t, libraryPropertyType)

static void *take(const struct vendor_memory *memory, size_t size, void *stream)
{
    int (*theirs)(void *, void **, size_t, cudaStream_t);
    void *pointer = NULL;
    memcpy(&theirs, &memory->theirs[0], sizeof theirs);
    return theirs(memory->context, &pointer, size, stream) ? NULL : pointer;
}

static void put_back(const struct vendor_memory *memory, void *pointer, size_t size, void *stream)
{
    int (*theirs)(void *, void *, size_t, cudaStream_t);
    memcpy(&theirs, &memory->theirs[1], sizeof theirs);
    if (theirs(memory->context, pointer, size, stream))
        vendor_count("device_free failed");
}

VENDOR_ENTRY(cudssStatus_t, cudssSetDeviceMemHandler, cudssHandle_t handle,
             const cudssDeviceMemHandler_t *handler)
{
    if (!handler)
        return (cudssStatus_t)vendor_give_memory(__func__, handle, NULL);
    struct vendor_memory memory = {.context = handler->ctx, .alloc = take, .free = put_back};
    memcpy(&memory.theirs[0], &handler->device_alloc, sizeof memory.theirs[0]);
    memcpy(&memory.theirs[1], &handler->device_free, sizeof memory.theirs[1]);
    return (cudssStatus_t)vendor_give_memory(__func__, handle, &memory);
}

VENDOR_ENTRY(cudssStatus_t, cudssDataCreate, cudssHandle_t handle, cudssData_t *data)
{
    void *block = NULL;
    int code = vendor_take(__func__, handle, DATA_BYTES, &block);
    if (!code)
        memcpy(data, &block, sizeof block);
    return (cudssStatus_t)code;
}

VENDOR_ENTRY(cudssStatus_t, cudssDataDestroy, cudssHandle_t handle, cudssData_t data)
{
    return (cudssStatus_t)vendor_put_back(__func__, handle, data, DATA_BYTES);
}
