/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* MIOpen. Its buffers come from tarn, in the order of the handle's stream; left alone it would fall
 * back to pinned host memory when the device is full. The rocBLAS and hipBLASLt handles inside it
 * allocate for themselves, and only learn of a change of stream (MIOpen, src/hip/handlehip.cpp): so
 * there is one handle per stream, as for these. */
#include "handle/library.h"

#include <string.h>

static void *allocate(void *context, size_t size)
{
    return handle_memory_alloc(context, size, handle_native_stream(context));
}

static void deallocate(void *context, void *pointer)
{
    (void)handle_memory_free(context, pointer, handle_native_stream(context));
}

static int give_memory(struct handle *handle, void *symbol)
{
    int (*set)(void *, void *(*)(void *, size_t), void (*)(void *, void *), void *);
    memcpy(&set, &symbol, sizeof set);
    return set(handle_vendor(handle), allocate, deallocate, handle);
}

const struct library library_miopen = {
    .name = "miopen",
    .platform = TARN_PLATFORM_HIP,
    .sonames = {"libMIOpen.so.1"},
    .create = "miopenCreate",
    .destroy = "miopenDestroy",
    .set_stream = "miopenSetStream",
    .get_stream = "miopenGetStream",
    .status_text = "miopenGetErrorString",
    .version = "miopenGetVersion",
    .version_call = VERSION_BY_PARTS,
    .memory = "miopenSetAllocator",
    .give_memory = give_memory,
    .by_stream = true,
    .unchecked = true,
    .out_of_memory = {4},
};
