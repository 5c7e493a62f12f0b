/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* DLPack tensors: an allocator of the type DLPackManagedTensorAllocator (DLPack 1.2). TVM-FFI calls
 * it for the tensors that its kernels ask for, so FlashInfer, TileLang and TVM allocate from tarn,
 * in a C program or in a Python program without PyTorch:
 *
 *     tarn_dlpack_stream_source_set(TVMFFIEnvGetStream);
 *     TVMFFIEnvSetDLPackManagedTensorAllocator(tarn_dlpack_allocator, 1, NULL);
 *
 * docs/adaptors/dlpack.md is the manual. Link with libtarn_adaptors. */
#ifndef TARN_DLPACK_H
#define TARN_DLPACK_H

#include <tarn/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the function that returns the current native stream of a device, for example
 * TVMFFIEnvGetStream. The device is given by DLPack's type and number. NULL, the initial value,
 * means the thread's current stream in tarn. Applies to the whole process; call it before tensors
 * are allocated. */
typedef void *(*tarn_dlpack_stream_source)(int32_t device_type, int32_t device_id);
TARN_API void tarn_dlpack_stream_source_set(tarn_dlpack_stream_source source);

/* Creates a compact tensor with the shape, type and device of `prototype` (a DLTensor), and stores
 * a DLManagedTensorVersioned at `managed`. Its deleter frees the block, ordered on its stream. The
 * data of a tensor without elements is NULL. Thread-safe. On failure it calls `set_error` with
 * "MemoryError", "ValueError" or "RuntimeError" and a text, and returns -1.
 * tarn_dlpack_allocator() is the same function with DLPack's types. */
TARN_API int tarn_dlpack_allocate(const void *prototype, void **managed, void *error_context,
                                  void (*set_error)(void *error_context, const char *kind,
                                                    const char *message));

#ifdef __cplusplus
}
#endif

#if defined __has_include
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
static inline int
tarn_dlpack_allocator(DLTensor *prototype, DLManagedTensorVersioned **managed, void *error_context,
                      void (*set_error)(void *error_context, const char *kind, const char *message))
{
    void *made = NULL;
    int failed = tarn_dlpack_allocate(prototype, &made, error_context, set_error);
    if (!failed)
        *managed = (DLManagedTensorVersioned *)made;
    return failed;
}
#endif
#endif
#endif
