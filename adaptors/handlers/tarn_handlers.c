/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Callbacks for libraries that ask for memory in the order of streams. Nothing is kept here: the context is the pool. */
#include "tarn_handlers.h"

#include <tarn/memory.h>
#include <tarn/pinned.h>

/* The stream that a library names, on the device of its pool. Good for one call. */
static tarn_status find_stream(tarn_pool *pool, struct CUstream_st *native, tarn_stream *stream)
{
    int device = 0;
    tarn_status status = tarn_pool_device_get(pool, &device);
    return status ? status : tarn_stream_find(device, native, stream);
}

int tarn_handler_alloc(void *context, void **pointer, size_t size, struct CUstream_st *native)
{
    tarn_stream stream = 0;
    tarn_status status = find_stream(context, native, &stream);
    return (int)(status ? status : tarn_pool_alloc(context, stream, size, pointer));
}

int tarn_handler_free(void *context, void *pointer, size_t size, struct CUstream_st *native)
{
    (void)size;
    tarn_stream stream = 0;
    tarn_status status = pointer ? find_stream(context, native, &stream) : TARN_OK;
    return (int)(status ? status : tarn_free_on(pointer, stream));
}

int tarn_handler_pinned_alloc(void *context, void **pointer, size_t size, struct CUstream_st *native)
{
    tarn_stream stream = 0;
    tarn_status status = find_stream(context, native, &stream);
    return (int)(status ? status : tarn_pinned_alloc_on(stream, size, pointer));
}

int tarn_handler_pinned_free(void *context, void *pointer, size_t size, struct CUstream_st *native)
{
    (void)size;
    if (!pointer)
        return TARN_OK;
    tarn_stream stream = 0;
    tarn_status status = find_stream(context, native, &stream);
    if (!status)
        status = tarn_pinned_record_stream(pointer, stream);
    return (int)(status ? status : tarn_pinned_free(pointer));
}
