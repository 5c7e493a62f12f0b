/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Private pools on hardware: what they take and give back by the driver's own count; a graph whose
 * memory is a pool's, which outlives everything except the graph; contents and graphs over a
 * suspend and a resume; two captures into one pool, which a checkpoint gives to the second as the
 * first found it. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

#define BLOCKS 8
#define BLOCK (32 * MIB)
#define SLACK (4 * MIB) /* what the driver itself may take meanwhile */

static size_t reserved_by(tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    return OK("pool", tarn_pool_stats_get(pool, &stats))
               ? (size_t)stats.reserved_bytes[TARN_STAT_ALL].current
               : 0;
}

static unsigned count_of(tarn_pool *pool)
{
    tarn_pool_info info = {.size = sizeof info};
    return OK("pool", tarn_pool_info_get(pool, &info)) ? info.use_count : 0;
}

static void life(tarn_stream stream, size_t before)
{
    const char *name = "pool: its memory is its own";
    tarn_pool *pool = NULL;
    tarn_scope scope = 0;
    void *blocks[BLOCKS] = {NULL};
    char text[160];
    bool well = OK(name, tarn_pool_create(NULL, &pool)) &&
                OK(name, tarn_scope_begin(pool, TARN_SCOPE_STREAM, stream, &scope));
    for (size_t i = 0; well && i < BLOCKS; i++)
        well = OK(name, tarn_alloc_on(stream, BLOCK, &blocks[i])) &&
               gpu_fill(stream, blocks[i], BLOCK, (uint32_t)i + 1, 0);
    well = well && OK(name, tarn_scope_end(scope)) && reserved_by(pool) >= BLOCKS * BLOCK &&
           gpu_holds(name, stream, blocks, BLOCKS, BLOCK, 1);
    size_t grown = before - gpu_free_bytes();
    well = well && OK(name, tarn_pool_release(pool)) &&
           gpu_holds(name, stream, blocks, BLOCKS, BLOCK, 1);
    for (size_t i = 0; i < BLOCKS; i++)
        well = well && OK(name, tarn_free(blocks[i]));
    well = well && OK(name, tarn_device_trim(0, 0));
    size_t after = gpu_free_bytes();
    snprintf(
        text, sizeof text,
        "%d blocks of 32 MiB live on after its release; the driver gave %zu MiB and has %zu back",
        BLOCKS, grown >> 20, (after - (before - grown)) >> 20);
    gpu_verdict(well && grown >= BLOCKS * BLOCK && after + SLACK >= before, name, text);
}

/* Captures a graph that fills a block of the pool, by way of one that is freed inside. */
static bool capture(const char *name, tarn_pool *pool, tarn_stream stream, void *target,
                    void **graph)
{
    void *inside = NULL;
    bool well = OK(name, tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
    well = well && OK(name, tarn_alloc_on(stream, BLOCK, &inside));
    well = well && gpu_fill(stream, inside, BLOCK, 1, 0) &&
           CU(name,
              gpu.cuMemcpyAsync((uintptr_t)target, (uintptr_t)inside, BLOCK, gpu_native(stream)));
    well = well && OK(name, tarn_free(inside));
    return OK(name, tarn_capture_end(stream, graph)) && well;
}

static void graph_and_suspend(tarn_stream stream, tarn_stream other)
{
    const char *name = "pool: a graph holds it";
    tarn_pool *pool = NULL;
    void *graph = NULL, *target = NULL, *kept[2] = {NULL};
    char text[160];
    bool well = OK(name, tarn_pool_create(NULL, &pool)) &&
                OK(name, tarn_pool_alloc(pool, stream, BLOCK, &target));
    well = well && capture(name, pool, stream, target, &graph) && count_of(pool) == 2;
    size_t held = reserved_by(pool);
    well = well && OK(name, tarn_pool_trim(pool, 0)) && reserved_by(pool) == held; /* live or not */
    void *targets[] = {target};
    well = well && gpu_run_graph(graph, other, 3, name) && OK(name, tarn_device_synchronize(0)) &&
           gpu_holds(name, other, targets, 1, BLOCK, 1);
    snprintf(text, sizeof text, "%zu MiB stay through a trim; three launches on another stream",
             held >> 20);
    gpu_verdict(well, name, text);

    name = "pool: suspend and resume";
    for (size_t i = 0; well && i < 2; i++)
        well = OK(name, tarn_pool_alloc(pool, stream, BLOCK, &kept[i])) &&
               gpu_fill(stream, kept[i], BLOCK, (uint32_t)i + 1, 0);
    size_t full = gpu_free_bytes();
    uint64_t begin = gpu_ns();
    well = well && OK(name, tarn_pool_suspend(pool, true));
    uint64_t suspended = gpu_ns();
    size_t empty = gpu_free_bytes();
    well = well && reserved_by(pool) == 0 && empty >= full + 3 * BLOCK;
    uint64_t middle = gpu_ns();
    well = well && OK(name, tarn_pool_resume(pool));
    uint64_t end = gpu_ns();
    well = well && gpu_holds(name, stream, kept, 2, BLOCK, 1) &&
           gpu_holds(name, stream, targets, 1, BLOCK, 1);
    well = well && gpu_fill(stream, target, BLOCK, 77, 0) && OK(name, tarn_device_synchronize(0)) &&
           gpu_run_graph(graph, stream, 1, name) && OK(name, tarn_device_synchronize(0)) &&
           gpu_holds(name, stream, targets, 1, BLOCK, 1);
    snprintf(text, sizeof text,
             "%zu MiB given back in %.1f ms, contents kept; back in %.1f ms, and the graph runs",
             (empty - full) >> 20, (double)(suspended - begin) / 1e6, (double)(end - middle) / 1e6);
    gpu_verdict(well, name, text);

    name = "pool: the graph's end lets go";
    for (size_t i = 0; i < 2; i++)
        well = well && OK(name, tarn_free(kept[i]));
    well = well && OK(name, tarn_free(target)) && CU(name, gpu.cuGraphDestroy(graph));
    for (uint64_t since = gpu_ns(); count_of(pool) > 1 && gpu_ns() - since < 1000000000u;)
        ; /* told by a driver's thread */
    well =
        well && count_of(pool) == 1 && OK(name, tarn_pool_trim(pool, 0)) && reserved_by(pool) == 0;
    gpu_verdict(well, name, "counted once again, and trimmed to nothing");
    (void)OK(name, tarn_pool_release(pool));
}

static size_t became_live, became_free;

static void count_change(const tarn_pool_block *block, bool live, void *user)
{
    (void)block;
    (void)user;
    live ? became_live++ : became_free++;
}

/* What the first capture allocates is free again for the second, at its address. A block that was
 * live before both and freed between them lives again, with its contents. Both graphs run in turns,
 * and each leaves what it wrote. */
static void checkpoint(tarn_stream stream)
{
    const char *name = "pool: a checkpoint";
    tarn_pool *pool = NULL;
    tarn_checkpoint *before = NULL;
    void *graphs[2] = {NULL}, *outputs[2] = {NULL}, *kept = NULL, *target = NULL, *later = NULL;
    bool well = OK(name, tarn_pool_create(NULL, &pool)) &&
                OK(name, tarn_pool_alloc(pool, stream, BLOCK, &kept)) &&
                OK(name, tarn_pool_alloc(pool, stream, BLOCK, &target)) &&
                gpu_fill(stream, kept, BLOCK, 1, 0) &&
                OK(name, tarn_pool_checkpoint(pool, &before));
    for (size_t i = 0; well && i < COUNT(graphs); i++) {
        well = OK(name, tarn_pool_capture_begin(pool, stream, TARN_CAPTURE_RELAXED));
        well = well && OK(name, tarn_alloc_on(stream, BLOCK, &outputs[i])) &&
               gpu_fill(stream, outputs[i], BLOCK, (uint32_t)i + 1, 0) &&
               CU(name, gpu.cuMemcpyAsync((uintptr_t)target, (uintptr_t)outputs[i], BLOCK,
                                          gpu_native(stream)));
        well = OK(name, tarn_capture_end(stream, &graphs[i])) && well;
        if (i == 0)
            well = well && OK(name, tarn_free(kept)) &&
                   OK(name, tarn_pool_alloc(pool, stream, MIB, &later)) &&
                   OK(name, tarn_device_synchronize(0)) &&
                   OK(name, tarn_pool_restore(pool, before, count_change, NULL)) &&
                   became_live == 1 && became_free == 2;
    }
    well = well && outputs[0] == outputs[1] && gpu_holds(name, stream, &kept, 1, BLOCK, 1);
    void *second[] = {outputs[1], target};
    for (int round = 0; well && round < 2; round++) {
        struct gpu_slots slots;
        for (size_t i = 0; well && i < COUNT(graphs); i++) {
            well = gpu_run_graph(graphs[i], stream, 1, name) &&
                   gpu_slots_create(&slots, stream, COUNT(second));
            for (size_t k = 0; well && k < COUNT(second); k++)
                well = gpu_check(stream, second[k], BLOCK, (uint32_t)i + 1, 0, &slots, k);
            well = well && OK(name, tarn_stream_synchronize(stream)) &&
                   gpu_slots_read(&slots, stream) && !slots.host[0].wrong && !slots.host[1].wrong;
            gpu_slots_destroy(&slots);
        }
    }
    well = well && gpu_holds(name, stream, &kept, 1, BLOCK, 1);
    for (size_t i = 0; i < COUNT(graphs); i++)
        well = CU(name, gpu.cuGraphDestroy(graphs[i])) && well;
    well = well && OK(name, tarn_free(kept)) && OK(name, tarn_free(target)) &&
           OK(name, tarn_free(outputs[1])) && OK(name, tarn_checkpoint_destroy(before));
    gpu_verdict(OK(name, tarn_pool_release(pool)) && well, name,
                "two captures at one address, both graphs run in turns; a block lives again with "
                "its contents");
}

static void aborted(tarn_stream stream)
{
    const char *name = "pool: an aborted capture leaves nothing";
    size_t before = gpu_free_bytes();
    void *block = NULL;
    bool well = OK(name, tarn_pool_capture_begin(NULL, stream, TARN_CAPTURE_RELAXED)) &&
                OK(name, tarn_alloc_on(stream, BLOCK, &block)) && OK(name, tarn_free(block)) &&
                OK(name, tarn_capture_abort(stream));
    void *next = NULL; /* looks what pools have ended */
    well = well && OK(name, tarn_alloc_on(stream, BLOCK, &next)) && OK(name, tarn_free(next)) &&
           OK(name, tarn_device_trim(0, 0));
    gpu_verdict(well && gpu_free_bytes() + SLACK >= before, name, "of 32 MiB");
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    tarn_stream stream = 0, other = 0;
    void *first = NULL;
    /* The driver's own first-time costs are not ours. */
    if (!OK("pool", tarn_stream_lease(0, 0, &stream)) ||
        !OK("pool", tarn_stream_lease(0, 0, &other)) ||
        !OK("pool", tarn_alloc_on(stream, BLOCK, &first)) ||
        !gpu_fill(stream, first, BLOCK, 1, 0) || !gpu_holds("pool", stream, &first, 1, BLOCK, 1) ||
        !OK("pool", tarn_free(first)) || !OK("pool", tarn_device_trim(0, 0)))
        return gpu_end();
    life(stream, gpu_free_bytes());
    graph_and_suspend(stream, other);
    checkpoint(stream);
    aborted(stream);
    (void)OK("pool", tarn_stream_return(stream));
    (void)OK("pool", tarn_stream_return(other));
    (void)OK("pool", tarn_shutdown());
    return gpu_end();
}
