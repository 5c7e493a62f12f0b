/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The classic fault of CUDA graphs: a captured kernel reads an input that is freed after the
 * capture, and the launch reads whatever has the memory then. By CUDA's driver API; the kernel does
 * nothing, so that it runs on the simulated driver too:
 *   cc graph_check.c -I/usr/local/cuda/include -L/usr/local/cuda/lib64/stubs -lcuda $(pkg-config
 *   --cflags --libs tarn) -o graph_check
 *   tarn sim -- ./graph_check      (without a GPU; with one, ./graph_check) */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/tarn.h>

static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                          ".visible .entry scale(.param .u64 input, .param .u64 output)\n"
                          "{ ret; }\n";

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

static void print(const tarn_graph_reference *it, void *user)
{
    static const char *const how[] = {"", "perhaps", "likely", "certain"};
    static const char *const what[] = {
        "live", "held", "free", "another pool's", "another block's", "without memory"};
    (void)user;
    printf("  %s: node %zu, kernel %s, parameter %u: the block of %zu bytes, \"%s\"; its memory is "
           "%s\n",
           how[it->certainty], it->node, it->kernel, it->parameter, it->requested,
           tarn_tag_text(it->tag), what[it->state]);
}

static void check(const char *when, void *graph)
{
    static const char *const verdicts[] = {"clean", "unknown", "suspicious"};
    tarn_graph_summary summary = {.size = sizeof summary};
    printf("%s\n", when);
    must(tarn_graph_check(graph, NULL, print, NULL, &summary));
    printf("  %s: %zu addresses in %zu nodes, %zu unproven, %zu not seen\n",
           verdicts[summary.verdict], summary.references, summary.nodes, summary.unproven,
           summary.unseen);
}

int main(void)
{
    const size_t size = (size_t)8 << 20;
    tarn_stream stream;
    tarn_tag tag;
    tarn_pool *pool;
    void *native, *input, *output, *other, *graph;
    CUmodule module;
    CUfunction kernel;

    must(tarn_device_set(0)); /* makes the device's primary context current */
    must(tarn_stream_lease(0, 0, &stream));
    must(tarn_stream_native_get(stream, &native)); /* a CUstream, which is a cudaStream_t */
    cuda(cuModuleLoadData(&module, ptx));
    cuda(cuModuleGetFunction(&kernel, module, "scale"));

    must(tarn_tag_intern("input", &tag));
    must(tarn_alloc(
        &(tarn_alloc_options){.size = sizeof(tarn_alloc_options), .stream = stream, .tag = tag},
        size, &input));
    must(tarn_pool_create(NULL, &pool));
    must(tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_THREAD_LOCAL));
    must(tarn_alloc_on(stream, size, &output)); /* of the graph's pool */
    cuda(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, native, (void *[]){&input, &output}, NULL));
    must(tarn_capture_end(stream, &graph));
    must(tarn_graph_remember(graph, NULL));
    check("captured:", graph);

    must(tarn_free(input));
    check("the input is freed:", graph);

    must(tarn_alloc_on(stream, size, &other));
    check("another block is allocated:", graph);

    must(tarn_free(other));
    must(tarn_free(output));
    cuda(cuGraphDestroy(graph));
    must(tarn_pool_release(pool));
    must(tarn_stream_return(stream));
    must(tarn_shutdown());
    return 0;
}
