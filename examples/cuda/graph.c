/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A CUDA graph whose memory is a pool of its own, from capture to destroy, by CUDA's driver API. It
 * needs no kernel, so that it runs on the simulated driver too:
 *   cc graph.c -I/usr/local/cuda/include -L/usr/local/cuda/lib64/stubs -lcuda $(pkg-config --cflags
 *   --libs tarn) -o graph
 *   tarn sim -- ./graph      (without a GPU; with one, ./graph) */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

static void cuda(CUresult result)
{
    const char *name = "an unknown error";
    if (result == CUDA_SUCCESS)
        return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s\n", name);
    exit(1);
}

static void print(const char *when, tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    tarn_pool_info info = {.size = sizeof info};
    must(tarn_pool_stats_get(pool, &stats));
    must(tarn_pool_info_get(pool, &info));
    printf("%-18s %2lld MiB live, %2lld MiB reserved, %u references\n", when,
           (long long)(stats.allocated_bytes[TARN_STAT_ALL].current >> 20),
           (long long)(stats.reserved_bytes[TARN_STAT_ALL].current >> 20), info.use_count);
}

int main(void)
{
    const size_t size = (size_t)8 << 20;
    tarn_stream stream;
    tarn_pool *pool;
    void *native, *input, *scratch, *output, *graph;
    CUgraphExec executable;
    unsigned char last;

    must(tarn_device_set(0)); /* makes the device's primary context current */
    must(tarn_stream_lease(0, 0, &stream));
    must(tarn_stream_native_get(stream, &native)); /* a CUstream, which is a cudaStream_t */
    must(tarn_pool_create(NULL, &pool));

    /* What the graph reads must be allocated before the capture, and stay allocated while the graph
     * is launched. */
    must(tarn_pool_alloc(pool, stream, size, &input));
    cuda(cuMemsetD8Async((CUdeviceptr)input, 7, size, native));

    /* 1. Capture. Allocations for the stream come from the pool; what is freed is reused inside the
     *    graph. */
    must(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_THREAD_LOCAL));
    must(tarn_alloc_on(stream, size, &scratch));
    cuda(cuMemcpyDtoDAsync((CUdeviceptr)scratch, (CUdeviceptr)input, size, native));
    must(tarn_alloc_on(stream, size, &output));
    cuda(cuMemcpyDtoDAsync((CUdeviceptr)output, (CUdeviceptr)scratch, size, native));
    must(tarn_free(scratch)); /* not live any more, but mapped for as long as the graph exists */
    must(tarn_capture_end(stream, &graph));
    print("captured:", pool);

    /* 2. Instantiate and launch, by CUDA's own calls. */
    cuda(cuGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; i++)
        cuda(cuGraphLaunch(executable, native));
    must(tarn_stream_synchronize(stream));
    cuda(cuMemcpyDtoH(&last, (CUdeviceptr)output + size - 1, 1));
    printf("%-18s the last byte of the output is %d\n", "launched:", last);

    /* 3. Free what is live and drop the reference. The graph still has one, so the memory stays
     *    mapped. */
    must(tarn_free(input));
    must(tarn_free(output));
    print("freed:", pool);
    must(tarn_pool_release(pool));

    /* 4. Destroy the graph and its executable. That drops the last reference: no call of tarn is
     *    needed. */
    cuda(cuGraphExecDestroy(executable));
    cuda(cuGraphDestroy(graph));
    must(tarn_stream_synchronize(stream));
    must(tarn_device_trim(0, 0));
    tarn_stats stats = {.size = sizeof stats};
    must(tarn_device_stats_get(0, &stats));
    printf("%-18s %lld bytes reserved on the device\n",
           "destroyed:", (long long)stats.reserved_bytes[TARN_STAT_ALL].current);
    must(tarn_stream_return(stream));
    must(tarn_shutdown());
    return 0;
}
