/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuDSS. Its device memory comes from tarn, in the order of the stream that it names
 * (cudssSetDeviceMemHandler, 0.2 and later). Its documentation of 1.0 wants a handle destroyed that
 * a failed create has written. */
#include "handle/cudss_abi.h"
#include "handle/library.h"

#include <string.h>

static int device_alloc(void *context, void **pointer, size_t size, void *stream)
{
    *pointer = handle_memory_alloc(context, size, stream);
    return *pointer || size == 0 ? 0 : CUDSS_ALLOC_FAILED;
}

static int device_free(void *context, void *pointer, size_t size, void *stream)
{
    (void)size;
    return handle_memory_free(context, pointer, stream) ? 0 : CUDSS_INVALID_VALUE;
}

static int give_memory(struct handle *handle, void *symbol)
{
    struct cudss_memory_handler handler = {handle, device_alloc, device_free, "tarn"};
    int (*set)(void *, const struct cudss_memory_handler *);
    memcpy(&set, &symbol, sizeof set);
    return set(handle_vendor(handle), &handler);
}

const struct library library_cudss = {
    .name = "cudss",
    .platform = TARN_PLATFORM_CUDA,
    .sonames = {"libcudss.so.1", "libcudss.so.0"},
    .create = "cudssCreate",
    .destroy = "cudssDestroy",
    .set_stream = "cudssSetStream",
    .version = "cudssGetProperty",
    .version_call = VERSION_BY_PROPERTY,
    .memory = "cudssSetDeviceMemHandler",
    .give_memory = give_memory,
    .failed_handle_is_real = true,
    .out_of_memory = {CUDSS_ALLOC_FAILED},
};
