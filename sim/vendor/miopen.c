/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A search for solutions takes a buffer from the program's allocator, as the real one does, and
 * finds no solution. */
#include "vendor/common.h"

#include <string.h>

typedef int miopenStatus_t;
typedef void *miopenHandle_t, *hipStream_t, *miopenProblem_t, *miopenFindOptions_t,
    *miopenSolution_t;
typedef void *(*miopenAllocatorFunction)(void *context, size_t bytes);
typedef void (*miopenDeallocatorFunction)(void *context, void *memory);

const struct vendor_library vendor_library = {
    .knob = "MIOPEN",
    .device_bytes = (size_t)32 << 20, /* the size of the rocBLAS handle in it */
    .no_device = 7,
    .old_driver = 7,
    .out_of_memory = 4,
    .bad_handle = 3,
    .bad_argument = 3,
    .failed = 5,
    .texts = {{0, "miopenStatusSuccess"},
              {3, "miopenStatusBadParm"},
              {4, "miopenStatusAllocFailed"},
              {5, "miopenStatusInternalError"},
              {7, "miopenStatusUnknownError"}},
};

VENDOR_CREATE(miopenCreate, miopenStatus_t, miopenHandle_t)
VENDOR_DESTROY(miopenDestroy, miopenStatus_t, miopenHandle_t)
VENDOR_SET_STREAM(miopenSetStream, miopenStatus_t, miopenHandle_t, hipStream_t)
VENDOR_GET_STREAM(miopenGetStream, miopenStatus_t, miopenHandle_t, hipStream_t)
VENDOR_TEXT(miopenGetErrorString, miopenStatus_t)

VENDOR_ENTRY(miopenStatus_t, miopenGetVersion, size_t *major, size_t *minor, size_t *patch)
{
    int parts[3] = {0};
    vendor_count(__func__);
    vendor_version_parts(parts);
    *major = (size_t)parts[0];
    *minor = (size_t)parts[1];
    *patch = (size_t)parts[2];
    return 0;
}

static void *take(const struct vendor_memory *memory, size_t size, void *stream)
{
    miopenAllocatorFunction theirs;
    (void)stream;
    memcpy(&theirs, &memory->theirs[0], sizeof theirs);
    return theirs(memory->context, size);
}

static void put_back(const struct vendor_memory *memory, void *pointer, size_t size, void *stream)
{
    miopenDeallocatorFunction theirs;
    (void)size;
    (void)stream;
    memcpy(&theirs, &memory->theirs[1], sizeof theirs);
    theirs(memory->context, pointer);
}

VENDOR_ENTRY(miopenStatus_t, miopenSetAllocator, miopenHandle_t handle,
             miopenAllocatorFunction allocator, miopenDeallocatorFunction deallocator,
             void *context)
{
    struct vendor_memory memory = {.context = context, .alloc = take, .free = put_back};
    if (!allocator || !deallocator)
        return vendor_give_memory(__func__, handle, NULL);
    memcpy(&memory.theirs[0], &allocator, sizeof allocator);
    memcpy(&memory.theirs[1], &deallocator, sizeof deallocator);
    return vendor_give_memory(__func__, handle, &memory);
}

VENDOR_ENTRY(miopenStatus_t, miopenFindSolutions, miopenHandle_t handle, miopenProblem_t problem,
             miopenFindOptions_t options, miopenSolution_t *solutions, size_t *found, size_t most)
{
    void *buffer = NULL;
    size_t size = (size_t)3 << 20;
    (void)problem;
    (void)options;
    (void)solutions;
    (void)most;
    miopenStatus_t status = vendor_take(__func__, handle, size, &buffer);
    if (!status)
        status = vendor_put_back("the end of miopenFindSolutions", handle, buffer, size);
    if (found)
        *found = 0;
    return status;
}
