/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A kernel on memory of tarn, with the CUDA runtime:
 *   nvcc saxpy.cu -o saxpy $(pkg-config --cflags --libs tarn) */
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <tarn/tarn.h>

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

static void must(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
    exit(1);
}

__global__ void fill(float *x, float value, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = value;
}

__global__ void saxpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}

int main()
{
    const int n = 1 << 20, threads = 256, blocks = (n + threads - 1) / threads;
    cudaStream_t stream;
    tarn_stream queue;
    void *x, *y;
    float last;

    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    must(tarn_stream_adopt(0, stream, &queue)); /* once per stream that you created */

    must(tarn_alloc_on(queue, n * sizeof(float), &x));
    must(tarn_alloc_on(queue, n * sizeof(float), &y));
    fill<<<blocks, threads, 0, stream>>>((float *)x, 1, n);
    fill<<<blocks, threads, 0, stream>>>((float *)y, 2, n);
    saxpy<<<blocks, threads, 0, stream>>>(3, (float *)x, (float *)y, n);
    must(cudaGetLastError());
    must(tarn_free(x)); /* while the kernels may still run: the memory is reused behind them, on
                           this stream */
    must(cudaMemcpyAsync(&last, (float *)y + n - 1, sizeof last, cudaMemcpyDeviceToHost, stream));
    must(cudaStreamSynchronize(stream));
    must(tarn_free(y));
    printf("2 + 3 * 1 = %g\n", last);

    must(tarn_stream_retire(queue)); /* before the stream is destroyed */
    must(cudaStreamDestroy(stream));
    must(tarn_shutdown());
    return 0;
}
