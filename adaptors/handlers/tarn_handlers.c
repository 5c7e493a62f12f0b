/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Callbacks for libraries that ask for stream-ordered memory. Nothing is stored here: the context
 * is the pool. */
#include "tarn_handlers.h"

#include "tarn_late_free.h"

#include <tarn/memory.h>
#include <tarn/pinned.h>

/* Finds the stream that a library passes, on the device of its pool. The result is valid for one
 * call. */
static tarn_status find_stream(tarn_pool *pool, struct CUstream_st *native, tarn_stream *stream)
{
    tarn_pool_info info = {.size = sizeof info};
    tarn_status status = tarn_pool_info_get(pool, &info);
    return status ? status : tarn_stream_find(info.device, native, stream);
}

/* Frees a block whose stream-ordered free failed. The libraries free a block once, and most ignore
 * the result. */
static int free_late(tarn_pool *pool, void *pointer, tarn_status failed)
{
    tarn_pool_info info = {.size = sizeof info};
    return (int)(tarn_pool_info_get(pool, &info)
                     ? failed
                     : tarn_late_free_after(failed, info.device, pointer));
}

int tarn_handler_alloc(void *context, void **pointer, size_t size, struct CUstream_st *native)
{
    tarn_stream stream = 0;
    tarn_status status = find_stream(context, native, &stream);
    if (!status)
        status = tarn_pool_alloc(context, stream, size, pointer);
    if (status == TARN_ERROR_OUT_OF_MEMORY && tarn_late_flush())
        status = tarn_pool_alloc(context, stream, size, pointer);
    return (int)status;
}

int tarn_handler_free(void *context, void *pointer, size_t size, struct CUstream_st *native)
{
    (void)size;
    tarn_stream stream = 0;
    tarn_status status = pointer ? find_stream(context, native, &stream) : TARN_OK;
    if (!status)
        status = tarn_free_on(pointer, stream);
    return status ? free_late(context, pointer, status) : TARN_OK;
}

int tarn_handler_pinned_alloc(void *context, void **pointer, size_t size,
                              struct CUstream_st *native)
{
    tarn_stream stream = 0;
    tarn_status status = find_stream(context, native, &stream);
    return (int)(status ? status : tarn_pinned_alloc(stream, size, pointer));
}

int tarn_handler_pinned_free(void *context, void *pointer, size_t size, struct CUstream_st *native)
{
    (void)size;
    if (!pointer)
        return TARN_OK;
    tarn_stream stream = 0;
    tarn_status status = find_stream(context, native, &stream);
    if (!status)
        status = tarn_record_stream(pointer, stream);
    if (!status)
        status = tarn_free(pointer);
    return status ? free_late(context, pointer, status) : TARN_OK;
}
