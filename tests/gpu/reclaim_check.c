/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What gives way before a request fails, and requests that do not wait, on hardware: that a spilled
 * block's contents are whole, read by kernels that are still queued when its memory goes to another
 * stream; that the device's own shortage is answered, and not only a limit; that a request with a
 * bound comes back in time beside kernels that take longer; and what the answers cost. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

#define LIMIT (64 * MIB)
#define SIZE (8 * MIB)
#define BLOCKS 8
#define STEPS 400
#define LATE UINT64_C(200000) /* ns: what a kernel waits before it reads or writes */
#define LONG UINT64_C(200000000)
#define ROUNDS 2000

static tarn_stream own, other;

/* A cache of blocks with contents, which gives its oldest one up when memory is short. */
struct cache {
    void *blocks[BLOCKS];
    uint32_t seeds[BLOCKS];
    struct gpu_slots slots;
    size_t spilled, asked;
    bool well;
};

/* Checks a block late, by its stream, and frees it before the check has run. */
static bool give_up(struct cache *cache, size_t at)
{
    bool well = gpu_check(own, cache->blocks[at], SIZE, cache->seeds[at], LATE, &cache->slots,
                          cache->spilled % STEPS) &&
                OK("reclaim: contents", tarn_free(cache->blocks[at]));
    cache->blocks[at] = NULL;
    cache->spilled++;
    return well;
}

static bool spill(const tarn_shortage *shortage, void *user)
{
    struct cache *cache = user;
    (void)shortage;
    cache->asked++;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (!cache->blocks[i])
            continue;
        cache->well = give_up(cache, i) && cache->well;
        return cache->well;
    }
    return false;
}

static bool limited(const char *name, size_t limit, tarn_pool **pool)
{
    return OK(name, tarn_pool_create(NULL, pool)) && OK(name, tarn_pool_limit_set(*pool, limit));
}

static bool watch(const char *name, void *user, tarn_observer *observer)
{
    tarn_observer_options options = {
        .size = sizeof options, .device = 0, .user = user, .out_of_memory = spill};
    return OK(name, tarn_observer_add(&options, observer));
}

/* Fills the cache's first empty place, at the cost of others when memory is short. */
static bool put(struct cache *cache, tarn_pool *pool, uint32_t seed)
{
    void *block = NULL;
    size_t at = 0;
    if (!OK("reclaim: contents", tarn_pool_alloc(pool, own, SIZE, &block)))
        return false;
    while (at < BLOCKS && cache->blocks[at])
        at++;
    if (at == BLOCKS)
        return OK("reclaim: contents", tarn_free(block));
    cache->blocks[at] = block;
    cache->seeds[at] = seed;
    return gpu_fill(own, block, SIZE, seed, 0);
}

/* Blocks that are spilled while their contents are still to be read give their memory to another
 * stream, which writes at once. */
static void contents(void)
{
    const char *name = "reclaim: contents";
    static struct cache cache;
    char text[160];
    size_t wrong = 0;
    tarn_pool *pool = NULL;
    tarn_observer observer = 0;
    cache.well = true;
    if (!limited(name, LIMIT, &pool) || !gpu_slots_create(&cache.slots, own, STEPS) ||
        !watch(name, &cache, &observer))
        return;
    bool well = true;
    for (uint32_t step = 1; step <= STEPS / 4 && well; step++) {
        void *block = NULL;
        well = put(&cache, pool, 2 * step) &&
               OK(name, tarn_pool_alloc(pool, other, 3 * SIZE, &block)) &&
               gpu_fill(other, block, 3 * SIZE, 2 * step + 1, 0) && OK(name, tarn_free(block));
    }
    for (size_t i = 0; i < BLOCKS; i++)
        if (cache.blocks[i])
            well = give_up(&cache, i) && well;
    well = OK(name, tarn_observer_remove(observer)) && well;
    well = well && cache.well && OK(name, tarn_device_synchronize(0)) &&
           gpu_slots_read(&cache.slots, own);
    for (size_t i = 0; well && i < cache.spilled && i < STEPS; i++)
        wrong += cache.slots.host[i].wrong != 0;
    gpu_slots_destroy(&cache.slots);
    well = OK(name, tarn_pool_release(pool)) && well;
    snprintf(text, sizeof text, "%zu blocks given up, %zu wrong", cache.spilled, wrong);
    gpu_verdict(well && !wrong && cache.asked > STEPS / 16, name, text);
}

/* Fills the device by a driver call, except about `spare` bytes. The driver needs some for itself,
 * so it may have to leave more. */
static bool fill_device(size_t spare, cu_address *ballast)
{
    for (; gpu_free_bytes() > spare; spare += 64 * MIB)
        if (!gpu.cuMemAlloc_v2(ballast, gpu_free_bytes() - spare))
            return true;
    return false;
}

/* What tarn has of the device beside the blocks. */
static size_t idle_bytes(void)
{
    tarn_stats stats = {.size = sizeof stats};
    if (tarn_device_stats_get(0, &stats))
        return 0;
    return (size_t)(stats.reserved_bytes[0].current - stats.allocated_bytes[0].current);
}

/* The device itself is short: other memory fills it, and the driver refuses. */
static void device_is_short(void)
{
    const char *name = "reclaim: the driver refuses";
    static struct cache cache;
    char text[160];
    tarn_observer observer = 0;
    void *block = NULL;
    cu_address ballast = 0;
    cache = (struct cache){.well = true};
    (void)OK(name, tarn_device_trim(0, 0));
    bool well = gpu_slots_create(&cache.slots, own, STEPS);
    for (size_t i = 0; i < BLOCKS && well; i++)
        well = OK(name, tarn_alloc_on(own, SIZE, &cache.blocks[i])) &&
               gpu_fill(own, cache.blocks[i], SIZE, cache.seeds[i] = (uint32_t)i + 1, 0);
    well = well && fill_device(3 * SIZE, &ballast);
    well = well && watch(name, &cache, &observer);
    size_t wanted = gpu_free_bytes() + idle_bytes() + 2 * SIZE;
    well = well && OK(name, tarn_alloc_on(other, wanted, &block));
    size_t spilled = cache.spilled;
    well = OK(name, tarn_free(block)) && well;
    for (size_t i = 0; i < BLOCKS; i++)
        if (cache.blocks[i])
            well = give_up(&cache, i) && well;
    well = (!observer || OK(name, tarn_observer_remove(observer))) && well;
    well = (!ballast || CU(name, gpu.cuMemFree_v2(ballast))) && well;
    well = well && cache.well && OK(name, tarn_device_synchronize(0)) &&
           gpu_slots_read(&cache.slots, own);
    for (size_t i = 0; well && i < cache.spilled; i++)
        well = !cache.slots.host[i].wrong;
    gpu_slots_destroy(&cache.slots);
    (void)OK(name, tarn_device_trim(0, 0));
    snprintf(text, sizeof text, "%zu MiB beside %zu of %d blocks given up", wanted / MIB, spilled,
             BLOCKS);
    gpu_verdict(well && spilled > 0, name, text);
}

/* A request with a bound, beside a kernel on another stream that holds the only memory back. */
static void bounded(void)
{
    const char *name = "reclaim: a bound";
    char text[160];
    void *block = NULL, *none = NULL;
    tarn_pool *pool = NULL;
    tarn_alloc_options request = {.size = sizeof request, .stream = own, .wait = TARN_NO_WAIT};
    if (!gpu_has_kernels) {
        gpu_say(GPU_SKIP, name, "%s", "no kernels here");
        return;
    }
    if (!limited(name, SIZE, &pool))
        return;
    request.pool = pool;
    bool well = OK(name, tarn_pool_alloc(pool, other, SIZE, &block)) && gpu_spin(other, LONG) &&
                OK(name, tarn_free(block));
    uint64_t start = gpu_ns();
    tarn_status at_once = tarn_alloc(&request, SIZE, &none);
    uint64_t first = gpu_ns() - start;
    request.wait = 10000000;
    tarn_status later = tarn_alloc(&request, SIZE, &none);
    uint64_t second = gpu_ns() - start - first;
    request.wait = 4 * LONG;
    well = OK(name, tarn_alloc(&request, SIZE, &block)) && OK(name, tarn_free(block)) && well;
    well = OK(name, tarn_pool_release(pool)) && well;
    snprintf(text, sizeof text, "refused after %.3f ms; with 10 ms to wait, after %.3f ms",
             (double)first / 1e6, (double)second / 1e6);
    gpu_verdict(well && at_once == TARN_ERROR_NOT_READY && later == TARN_ERROR_NOT_READY &&
                    first < 5000000 && second >= 9000000 && second < 50000000,
                name, text);
}

/* What an observer that has nothing, and a bound, cost a request that memory at hand serves. */
static void cost(void)
{
    const char *name = "reclaim: a request costs";
    char text[160];
    double us[2];
    static struct cache nothing;
    tarn_observer observer = 0;
    for (int with = 0; with < 2; with++) {
        tarn_alloc_options request = {.size = sizeof request, .stream = own};
        request.wait = with ? TARN_NO_WAIT : 0;
        if (with && !watch(name, &nothing, &observer))
            return;
        uint64_t start = 0;
        for (int i = -100; i < ROUNDS; i++) {
            void *block = NULL;
            start = i == 0 ? gpu_ns() : start;
            if (!OK(name, tarn_alloc(&request, SIZE, &block)) || !OK(name, tarn_free(block)))
                return;
        }
        us[with] = (double)(gpu_ns() - start) / 1e3 / ROUNDS;
    }
    bool well = OK(name, tarn_observer_remove(observer));
    snprintf(text, sizeof text, "%.3f us, without an observer and a bound %.3f us", us[1], us[0]);
    gpu_verdict(well && !nothing.asked && (gpu_is_simulated || us[1] < 1.5 * us[0] + 0.1), name,
                text);
}

int main(void)
{
    int code = gpu_start();
    if (code)
        return code;
    if (!OK("reclaim", tarn_stream_lease(0, 0, &own)) ||
        !OK("reclaim", tarn_stream_lease(0, 0, &other)))
        return gpu_end();
    contents();
    device_is_short();
    bounded();
    cost();
    (void)OK("reclaim", tarn_shutdown());
    return gpu_end();
}
