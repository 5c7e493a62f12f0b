/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory: the driver allocates and registers it, copies from and to it run beside the
 * host and carry what they should, a block that a stream uses is not given out before, captures
 * keep theirs, and everything goes back. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (64 * MIB)
#define SPIN_NS 200000000u
#define QUEUE_NS 50000000u /* that queueing a copy may take while the stream spins */

static tarn_pinned_stats statistics(void)
{
    tarn_pinned_stats stats = {.size = sizeof stats};
    (void)OK("pinned", tarn_pinned_stats_get(&stats));
    return stats;
}

static bool copy(tarn_stream stream, const void *to, const void *from, size_t size)
{
    return CU("pinned", gpu.cuMemcpyAsync((cu_address)(uintptr_t)to, (cu_address)(uintptr_t)from,
                                          size, gpu_native(stream)));
}

static bool is_all(const unsigned char *bytes, unsigned char value, size_t size)
{
    return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static double gib_per_second(size_t size, uint64_t ns)
{
    return (double)size / 1073741824.0 / ((double)ns / 1e9);
}

/* Down and up through pinned memory, and what an allocation and a copy take. */
static void both_ways(tarn_stream stream, bool registered)
{
    const char *name = registered ? "pinned: registered" : "pinned: allocated";
    void *pinned = NULL, *device = NULL;
    char text[200];
    uint64_t start = gpu_ns();
    if (!OK(name,
            tarn_configuration_set(
                registered ? "pinned_use_cuda_host_register:True,pinned_num_register_threads:4"
                           : "pinned_use_cuda_host_register:False")) ||
        !OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &pinned)) ||
        !OK(name, tarn_alloc_on(stream, BLOCK, &device)))
        return;
    uint64_t made = gpu_ns() - start;
    unsigned char *bytes = pinned;
    memset(bytes, 0x5a, BLOCK);
    bool well = copy(stream, device, pinned, BLOCK) && OK(name, tarn_stream_synchronize(stream));
    memset(bytes, 0, BLOCK);
    start = gpu_ns();
    well = well && copy(stream, pinned, device, BLOCK) && OK(name, tarn_stream_synchronize(stream));
    uint64_t copied = gpu_ns() - start;
    well = well && is_all(bytes, 0x5a, BLOCK) && tarn_pinned_contains(bytes + BLOCK - 1);
    snprintf(text, sizeof text, "%zu MiB made in %.1f ms; copied at %.1f GiB/s", BLOCK / MIB,
             (double)made / 1e6, gib_per_second(BLOCK, copied));
    gpu_verdict(well, name, text);
    (void)OK(name, tarn_free(pinned));
    (void)OK(name, tarn_free(device));
    (void)OK(name, tarn_pinned_trim(0));
    (void)OK(name, tarn_configuration_set(
                       "pinned_use_cuda_host_register:False,pinned_num_register_threads:1"));
}

/* The host queues a copy behind work that runs for long, and goes on; the block is free meanwhile,
 * and not available. */
static void beside_the_host(tarn_stream stream)
{
    const char *name = "pinned: in use";
    void *pinned = NULL, *again = NULL, *third = NULL, *device = NULL;
    char text[160];
    if (!gpu_has_kernels) {
        gpu_say(GPU_SKIP, name, "no kernels");
        return;
    }
    if (!OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &pinned)) ||
        !OK(name, tarn_alloc_on(stream, BLOCK, &device)))
        return;
    memset(pinned, 7, BLOCK);
    bool well = gpu_spin(stream, SPIN_NS);
    uint64_t start = gpu_ns();
    well = well && copy(stream, device, pinned, BLOCK) &&
           OK(name, tarn_record_stream(pinned, stream)) && OK(name, tarn_free(pinned)) &&
           OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &again));
    uint64_t queued = gpu_ns() - start;
    well = well && again != pinned && statistics().pending_bytes == (int64_t)BLOCK;
    if (again)
        memset(again, 9, BLOCK); /* would be seen in what is copied */
    well = OK(name, tarn_stream_synchronize(stream)) && well && statistics().pending_bytes == 0;
    well =
        well && OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &third)) && third == pinned;
    if (third) {
        memset(third, 0, BLOCK);
        well = copy(stream, third, device, BLOCK) && OK(name, tarn_stream_synchronize(stream)) &&
               well && is_all(third, 7, BLOCK);
    }
    snprintf(text, sizeof text,
             "copy queued behind %.0f ms of work, freed and another block got in %.1f ms",
             SPIN_NS / 1e6, (double)queued / 1e6);
    gpu_verdict(well && queued < SPIN_NS - QUEUE_NS, name, text);
    (void)OK(name, tarn_free(again));
    (void)OK(name, tarn_free(third));
    (void)OK(name, tarn_free(device));
}

/* In a capture of the strictest kind: growth, a block that is used and one that is not. */
static void in_a_capture(tarn_stream stream)
{
    const char *name = "pinned: in a capture";
    void *used = NULL, *unused = NULL, *same = NULL, *other = NULL, *device = NULL, *graph = NULL;
    if (!OK(name, tarn_alloc_on(stream, BLOCK, &device)) || !OK(name, tarn_pinned_trim(0)) ||
        !OK(name, tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL)))
        return;
    bool well = OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &unused)) &&
                OK(name, tarn_free(unused)) &&
                OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &same)) && same == unused;
    well = well && OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &used));
    if (used) {
        memset(used, 3, BLOCK);
        well =
            copy(stream, device, used, BLOCK) && OK(name, tarn_record_stream(used, stream)) && well;
        well = OK(name, tarn_free(used)) &&
               OK(name, tarn_pinned_alloc(TARN_STREAM_CURRENT, BLOCK, &other)) && other != used &&
               well;
    }
    well = OK(name, tarn_capture_end(stream, &graph)) && well;
    if (other)
        memset(other, 4, BLOCK);
    for (int i = 0; well && i < 2; i++) {
        memset(same, 0, BLOCK);
        well = gpu_run_graph(graph, stream, 1, name) && copy(stream, same, device, BLOCK) &&
               OK(name, tarn_stream_synchronize(stream)) && is_all(same, 3, BLOCK);
    }
    if (graph)
        (void)CU(name, gpu.cuGraphDestroy(graph));
    (void)OK(name, tarn_pinned_forget_captures());
    gpu_verdict(well && statistics().graph_bytes == 0, name,
                "grown, kept what was used, used again what was not");
    (void)OK(name, tarn_free(same));
    (void)OK(name, tarn_free(other));
    (void)OK(name, tarn_free(device));
}

static void too_much(void)
{
    const char *name = "pinned: more than there is";
    void *block = NULL;
    if (gpu_is_simulated) {
        gpu_say(GPU_SKIP, name, "the simulated driver promises what it does not have");
    } else {
        tarn_status status = tarn_pinned_alloc(TARN_STREAM_CURRENT, (size_t)1 << 44, &block);
        gpu_verdict(status == TARN_ERROR_OUT_OF_MEMORY && !block, name, tarn_last_error());
    }
    name = "pinned: a limit";
    if (!OK(name, tarn_pinned_limit_set(BLOCK)))
        return;
    tarn_status status = tarn_pinned_alloc(TARN_STREAM_CURRENT, 2 * BLOCK, &block);
    gpu_verdict(status == TARN_ERROR_OUT_OF_MEMORY && !block, name, tarn_last_error());
    (void)OK(name, tarn_pinned_limit_set(TARN_NO_LIMIT));
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream stream = 0;
    char text[160];
    if (!OK("pinned", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    both_ways(stream, false);
    both_ways(stream, true);
    beside_the_host(stream);
    in_a_capture(stream);
    too_much();
    (void)OK("pinned", tarn_pinned_trim(0));
    tarn_pinned_stats stats = statistics();
    snprintf(
        text, sizeof text,
        "allocated %lld bytes; %lld allocations of %.2f ms on average, %lld returns of %.2f ms",
        (long long)stats.allocated_bytes.current, (long long)stats.num_host_alloc,
        (double)stats.host_alloc_time.avg / 1e6, (long long)stats.num_host_free,
        (double)stats.host_free_time.avg / 1e6);
    gpu_verdict(stats.allocated_bytes.current == 0 && stats.active_bytes.current == 0,
                "pinned: all goes back", text);
    (void)OK("pinned", tarn_stream_return(stream));
    (void)OK("pinned", tarn_shutdown());
    return gpu_end();
}
