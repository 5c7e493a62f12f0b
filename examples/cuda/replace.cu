/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cudaMallocAsync() and cudaFreeAsync() replaced by tarn in two functions; the program around them stays as it is. Without
 * -DUSE_TARN it is the program as it was. */
#include <cstdio>
#include <cuda_runtime.h>

#ifdef USE_TARN
#include <tarn/tarn.h>

static cudaError_t error_of(tarn_status status)
{
    if (status == TARN_OK)
        return cudaSuccess;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    return status == TARN_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

static cudaError_t allocate(void **pointer, size_t size, cudaStream_t stream)
{
    tarn_stream queue;
    int device;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess)
        return error;
    tarn_status status = tarn_stream_find(device, stream, &queue); /* no lock for a stream that tarn knows */
    return error_of(status == TARN_OK ? tarn_alloc_on(queue, size, pointer) : status);
}

static cudaError_t release(void *pointer, cudaStream_t stream)
{
    tarn_block_info info = {sizeof info};
    tarn_stream queue;
    tarn_status status = pointer ? tarn_pointer_info_get(pointer, &info) : TARN_OK;
    if (status == TARN_OK && pointer)
        status = tarn_stream_find(info.device, stream, &queue);
    return error_of(status == TARN_OK && pointer ? tarn_free_on(pointer, queue) : status);
}
#else
static cudaError_t allocate(void **pointer, size_t size, cudaStream_t stream)
{
    return cudaMallocAsync(pointer, size, stream);
}

static cudaError_t release(void *pointer, cudaStream_t stream)
{
    return cudaFreeAsync(pointer, stream);
}
#endif

int main()
{
    cudaStream_t stream;
    void *block;
    int failed = cudaStreamCreate(&stream) != cudaSuccess;
    for (int step = 0; !failed && step < 1000; step++) {
        failed = allocate(&block, 1 << 20, stream) != cudaSuccess ||
                 cudaMemsetAsync(block, step, 1 << 20, stream) != cudaSuccess || release(block, stream) != cudaSuccess;
    }
    failed = failed || cudaStreamSynchronize(stream) != cudaSuccess;
    puts(failed ? "failed" : "1000 steps");
    return failed;
}
