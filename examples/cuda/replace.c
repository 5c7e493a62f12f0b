/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* cuMemAllocAsync() and cuMemFreeAsync() replaced by tarn in two functions; the program around them
 * stays as it is. Without -DUSE_TARN it is the program as it was. It uses CUDA's driver API and no
 * kernel, so that it runs on the simulated driver too. */
#include <cuda.h>
#include <stdio.h>

#ifdef USE_TARN
#include <tarn/tarn.h>

static CUresult error_of(tarn_status status)
{
    if (status == TARN_OK)
        return CUDA_SUCCESS;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    return status == TARN_ERROR_OUT_OF_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
}

static CUresult allocate(CUdeviceptr *pointer, size_t size, CUstream stream)
{
    CUdevice device;
    tarn_stream queue;
    void *block;
    CUresult error = cuCtxGetDevice(&device);
    if (error != CUDA_SUCCESS)
        return error;
    /* No lock for a stream that tarn knows */
    tarn_status status = tarn_stream_find(device, stream, &queue);
    if (status == TARN_OK)
        status = tarn_alloc_on(queue, size, &block);
    if (status == TARN_OK)
        *pointer = (CUdeviceptr)block;
    return error_of(status);
}

static CUresult release(CUdeviceptr pointer, CUstream stream)
{
    tarn_block_info info = {.size = sizeof info};
    tarn_stream queue;
    tarn_status status = tarn_pointer_info_get((void *)pointer, &info);
    if (status == TARN_OK)
        status = tarn_stream_find(info.device, stream, &queue);
    if (status == TARN_OK)
        status = tarn_free_on((void *)pointer, queue);
    return error_of(status);
}
#else
static CUresult allocate(CUdeviceptr *pointer, size_t size, CUstream stream)
{
    return cuMemAllocAsync(pointer, size, stream);
}

static CUresult release(CUdeviceptr pointer, CUstream stream)
{
    return cuMemFreeAsync(pointer, stream);
}
#endif

/* Whether the call failed; says which. */
static int failed(const char *call, CUresult result)
{
    const char *name = "an unknown error";
    if (result == CUDA_SUCCESS)
        return 0;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", call, name);
    return 1;
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUstream stream;
    CUdeviceptr block;

    if (failed("cuInit", cuInit(0)) || failed("cuDeviceGet", cuDeviceGet(&device, 0)) ||
        failed("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device)) ||
        failed("cuCtxSetCurrent", cuCtxSetCurrent(context)) ||
        failed("cuStreamCreate", cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)))
        return 1;
    for (int step = 0; step < 1000; step++)
        if (failed("allocate", allocate(&block, 1 << 20, stream)) ||
            failed("cuMemsetD8Async",
                   cuMemsetD8Async(block, (unsigned char)step, 1 << 20, stream)) ||
            failed("release", release(block, stream)))
            return 1;
    if (failed("cuStreamSynchronize", cuStreamSynchronize(stream)))
        return 1;
    puts("1000 steps");
    return 0;
}
