/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compares the row of cuDSS, and what it passes to the library, with cudss.h. Compiling it is the
 * test. */
#include "abi/handle_symbols.h"
#include "handle/cudss_abi.h"

#include <tarn/cudss.h>

#define SAME_PROTOTYPE(symbol, result, parameters) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), result parameters), #symbol);
CUDSS_SYMBOL_LIST(SAME_PROTOTYPE)

#define SAME_FIELD(field, their_field)                                          \
    _Static_assert(offsetof(struct cudss_memory_handler, field) ==              \
                           offsetof(cudssDeviceMemHandler_t, their_field) &&    \
                       sizeof(((struct cudss_memory_handler *)0)->field) ==     \
                           sizeof(((cudssDeviceMemHandler_t *)0)->their_field), \
                   #their_field)
_Static_assert(sizeof(struct cudss_memory_handler) == sizeof(cudssDeviceMemHandler_t),
               "cudssDeviceMemHandler_t");
SAME_FIELD(context, ctx);
SAME_FIELD(device_alloc, device_alloc);
SAME_FIELD(device_free, device_free);
SAME_FIELD(name, name);

/* Its functions; tarn's take the stream as the pointer that it is. */
#define THEIRS(field) __typeof__(((cudssDeviceMemHandler_t *)0)->field)
_Static_assert(__builtin_types_compatible_p(THEIRS(device_alloc),
                                            int (*)(void *, void **, size_t, cudaStream_t)),
               "device_alloc");
_Static_assert(__builtin_types_compatible_p(THEIRS(device_free),
                                            int (*)(void *, void *, size_t, cudaStream_t)),
               "device_free");

_Static_assert(sizeof(cudssHandle_t) == sizeof(void *), "cudssHandle_t");
_Static_assert(sizeof(cudaStream_t) == sizeof(void *), "cudaStream_t");
_Static_assert(sizeof(cudssStatus_t) == sizeof(int), "cudssStatus_t");
_Static_assert(sizeof(libraryPropertyType) == sizeof(int), "libraryPropertyType");
_Static_assert(CUDSS_STATUS_SUCCESS == 0, "CUDSS_STATUS_SUCCESS");
_Static_assert((int)CUDSS_STATUS_ALLOC_FAILED == (int)CUDSS_ALLOC_FAILED,
               "CUDSS_STATUS_ALLOC_FAILED");
_Static_assert((int)CUDSS_STATUS_INVALID_VALUE == (int)CUDSS_INVALID_VALUE,
               "CUDSS_STATUS_INVALID_VALUE");

/* The typed getters, used. */
tarn_status use_typed_cudss(void);
tarn_status use_typed_cudss(void)
{
    cudssHandle_t handle;
    tarn_status status = tarn_cudss_handle(TARN_STREAM_CURRENT, &handle);
    return status ? status : tarn_cudss_handle(TARN_STREAM_LEGACY, &handle);
}
