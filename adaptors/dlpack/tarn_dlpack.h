/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Tensors by DLPack: an allocator of the type DLPackManagedTensorAllocator (DLPack 1.2), which TVM-FFI takes for the tensors that its
 * kernels ask for. With it a C program, or a Python program without PyTorch, gives FlashInfer, TileLang and TVM memory from tarn:
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

/* Which native stream is current on a device, of DLPack's type and number; TVMFFIEnvGetStream is one. NULL, the initial value: tarn's
 * current stream of the thread. For the whole process; call it before tensors are allocated. */
typedef void *(*tarn_dlpack_stream_source)(int32_t device_type, int32_t device_id);
TARN_API void tarn_dlpack_stream_source_set(tarn_dlpack_stream_source source);

/* Makes a compact tensor of the shape, type and device of `prototype`, a DLTensor, and stores a DLManagedTensorVersioned at `managed`. Its
 * deleter frees the block in the order of its stream. Thread-safe. On failure it returns -1, after a call of `set_error` with "MemoryError",
 * "ValueError" or "RuntimeError", and a text. tarn_dlpack_allocator() is the same with DLPack's types. */
TARN_API int tarn_dlpack_allocate(const void *prototype, void **managed, void *error_context,
                                  void (*set_error)(void *error_context, const char *kind, const char *message));

#ifdef __cplusplus
}
#endif

#if defined __has_include
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
static inline int tarn_dlpack_allocator(DLTensor *prototype, DLManagedTensorVersioned **managed, void *error_context,
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
