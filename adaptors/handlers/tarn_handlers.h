/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Device and pinned memory for vendor libraries that take callbacks: cuDSS, cuTensorNet,
 * cuStateVec; nvJPEG, nvJPEG2000, nvImageCodec.
 *
 * The functions have the types that these libraries' headers declare, so that a handler is an
 * initialiser:
 *
 *     tarn_pool *pool;
 *     tarn_pool_default(device, &pool);
 *     custatevecDeviceMemHandler_t handler = {pool, tarn_handler_alloc, tarn_handler_free, "tarn"};
 *
 *     nvjpegDevAllocatorV2_t on_device = {tarn_handler_alloc, tarn_handler_free, pool};
 *     nvjpegPinnedAllocatorV2_t on_host = {tarn_handler_pinned_alloc, tarn_handler_pinned_free,
 *     pool};
 *
 * The context is a pool, which must outlive every object that the handler is passed to. Memory
 * always comes from that pool, whatever scopes are open. The cuDSS handles that tarn creates have
 * such a handler already.
 *
 * Each returns 0 or a tarn_status; tarn_last_error() of the thread has the detail. They are
 * thread-safe, and may be called during a capture. docs/adaptors/handlers.md is the manual. Link
 * with libtarn_adaptors. */
#ifndef TARN_HANDLERS_H
#define TARN_HANDLERS_H

#include <tarn/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* what cudaStream_t and CUstream point to */

/* Allocates `size` bytes of the pool `context` for work on `stream`. */
TARN_API int tarn_handler_alloc(void *context, void **pointer, size_t size,
                                struct CUstream_st *stream);

/* Frees a block. It is reused only after the work that is queued now on two streams: `stream`, and
 * the stream of its allocation. If tarn cannot find `stream`, the call waits for the device, or the
 * block stays allocated until a later call can wait (tarn_late_free.h). NULL is allowed. */
TARN_API int tarn_handler_free(void *context, void *pointer, size_t size,
                               struct CUstream_st *stream);

/* The same for page-locked host memory. `stream` must belong to the pool's device. */
TARN_API int tarn_handler_pinned_alloc(void *context, void **pointer, size_t size,
                                       struct CUstream_st *stream);
TARN_API int tarn_handler_pinned_free(void *context, void *pointer, size_t size,
                                      struct CUstream_st *stream);

#ifdef __cplusplus
}
#endif
#endif
