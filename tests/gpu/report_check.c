/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What is said of memory on hardware: what a record of the trace costs there, a snapshot of a run
 * with streams, a pool and a capture, and an out-of-memory error whose figures are the driver's.
 * The snapshot stays in the folder of results, for PyTorch's own readers. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 200000
#define EVENTS 100000
#define SLOTS 1000

/* ns for an allocation and its free, the best of some rounds. */
static double pair(size_t size)
{
    double best = 1e9;
    for (int round = 0; round < 10; round++) {
        uint64_t started = gpu_ns();
        for (int i = 0; i < PAIRS; i++)
            (void)tarn_free(tarn_malloc(size));
        double ns = (double)(gpu_ns() - started) / PAIRS;
        best = ns < best ? ns : best;
    }
    return best;
}

static void cost(void)
{
    const char *name = "report: what a record costs";
    static const size_t sizes[] = {512, 65536, 20 * MIB};
    char text[200] = "";
    for (size_t i = 0; i < COUNT(sizes); i++) {
        (void)pair(sizes[i]);
        double off = pair(sizes[i]);
        if (!OK(name, tarn_trace_start(NULL)))
            return;
        double on = pair(sizes[i]);
        (void)OK(name, tarn_trace_stop());
        (void)OK(name, tarn_trace_clear());
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "%s%zu B %.1f ns a pair, %.1f with the trace: %.1f a record", i ? "; " : "",
                 sizes[i], off, on, (on - off) / 2);
    }
    gpu_say(GPU_NOTE, name, "%s", text);
}

/* A run with something of everything, and a snapshot of it. */
static void snapshot(tarn_stream stream, tarn_stream other)
{
    const char *name = "report: a snapshot";
    char path[512], text[200];
    void *slots[SLOTS] = {NULL};
    uint64_t seed = 1, kept = 0, lost = 0;
    tarn_pool *pool = NULL;
    void *block = NULL;
    tarn_trace_options options = {.size = sizeof options, .records = 1 << 18, .regions = true};
    bool well = OK(name, tarn_trace_start(&options)) && OK(name, tarn_pool_create(NULL, &pool)) &&
                OK(name, tarn_pool_alloc(pool, stream, 64 * MIB, &block));
    for (int i = 0; well && i < EVENTS; i++) {
        size_t slot = gpu_random(&seed) % SLOTS;
        char region[32];
        snprintf(region, sizeof region, "step %d", i / 1000);
        if (i % 1000 == 0)
            well = (i == 0 || OK(name, tarn_region_pop())) && OK(name, tarn_region_push(region));
        if (slots[slot]) {
            if (slot % 16 == 0)
                well = well && OK(name, tarn_record_stream(slots[slot], other));
            well = well && OK(name, tarn_free(slots[slot]));
            slots[slot] = NULL;
        } else {
            well = well &&
                   OK(name,
                      tarn_alloc_on(stream, gpu_random(&seed) % (slot % 64 ? 65536 : 8 * MIB) + 1,
                                    &slots[slot]));
        }
    }
    well = well && OK(name, tarn_region_pop()) && OK(name, tarn_trace_count_get(&kept, &lost));
    const char *folder = getenv("GPU_RESULTS");
    snprintf(path, sizeof path, "%.400s/snapshot.pickle", folder ? folder : ".");
    uint64_t started = gpu_ns();
    well = well && OK(name, tarn_snapshot_write(path, NULL));
    double ms = (double)(gpu_ns() - started) / 1e6;
    if (well) {
        snprintf(text, sizeof text, "%llu records, %llu lost, written in %.1f ms",
                 (unsigned long long)kept, (unsigned long long)lost, ms);
        gpu_verdict(lost == 0 && kept > EVENTS, name, text);
    }
    for (size_t i = 0; i < SLOTS; i++)
        (void)OK(name, tarn_free(slots[i]));
    (void)OK(name, tarn_free(block));
    (void)OK(name, tarn_pool_release(pool));
    (void)OK(name, tarn_trace_stop());
}

static void out_of_memory(tarn_stream stream)
{
    const char *name = "report: out of memory names the driver's figures";
    size_t available = 0, total = 0;
    void *refused = NULL;
    cu_address address = 0;
    if (!OK(name, tarn_device_trim(0, 0)) ||
        !OK(name, tarn_device_memory_get(0, &available, &total)) ||
        !CU(name, gpu.cuMemAlloc_v2(&address, available / 2)))
        return;
    tarn_status status = tarn_alloc_on(stream, available / 4 * 3, &refused);
    const char *text = tarn_last_error();
    bool well =
        status == TARN_ERROR_OUT_OF_MEMORY &&
        (gpu_properties.integrated ? strstr(text, "the limit is the machine's memory") != NULL
                                   : strstr(text, "Not tarn's: ") && strstr(text, "What helps: "));
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%s", status ? text : "it succeeded");
    (void)OK(name, tarn_free(refused));
    (void)CU(name, gpu.cuMemFree_v2(address));
}

int main(void)
{
    tarn_stream stream = 0, other = 0;
    int status = gpu_start();
    if (status)
        return status;
    cost();
    if (OK("report: streams", tarn_stream_lease(0, 0, &stream)) &&
        OK("report: streams", tarn_stream_lease(0, 0, &other))) {
        snapshot(stream, other);
        out_of_memory(stream);
    }
    return gpu_end();
}
