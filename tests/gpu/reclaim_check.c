/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What gives way before a request fails, and requests that do not wait, on hardware: that a spilled
 * block's contents are whole, read by kernels that are still queued when its memory goes to another
 * stream; that the device's own shortage is answered, and not only a limit; that a request with a
 * bound comes back in time beside kernels that take longer, and maps beside them; that a request
 * waits for the first of several streams; that ranges, idle memory and spilled blocks keep their
 * contents when one limit is for all; and what the answers cost. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LIMIT (64 * MIB)
#define SIZE (8 * MIB)
#define BLOCKS 8
#define STEPS 400
#define LATE UINT64_C(200000) /* ns: what a kernel waits before it reads or writes */
#define LONG UINT64_C(200000000)
#define ROUNDS 2000

static tarn_stream own, other, third;

/* A cache of blocks with contents, which gives its oldest one up when memory is short. */
struct cache {
    void *blocks[BLOCKS];
    uint32_t seeds[BLOCKS];
    struct gpu_slots slots;
    size_t spilled, asked;
    bool shares; /* its memory with others, so that there may be none for a further block */
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
    tarn_status status = tarn_pool_alloc(pool, own, SIZE, &block);
    if (cache->shares && status == TARN_ERROR_OUT_OF_MEMORY)
        return true;
    if (!OK("reclaim: contents", status))
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

/* A request that waits for nothing has new memory mapped while a kernel runs. */
static void maps_without_waiting(void)
{
    const char *name = "reclaim: no wait, and it maps";
    char text[160];
    void *block = NULL;
    tarn_pool *pool = NULL;
    tarn_alloc_options request = {.size = sizeof request, .stream = own, .wait = TARN_NO_WAIT};
    if (!OK(name, tarn_pool_create(NULL, &pool)))
        return;
    request.pool = pool;
    (void)gpu_spin(other, LONG);
    uint64_t start = gpu_ns();
    bool well = OK(name, tarn_alloc(&request, SIZE, &block));
    double ms = (double)(gpu_ns() - start) / 1e6;
    bool runs = tarn_stream_query(other) == TARN_ERROR_NOT_READY;
    well = well && gpu_write(name, own, block, SIZE, 3) &&
           gpu_holds(name, own, &block, 1, SIZE, 3) && OK(name, tarn_free(block)) &&
           OK(name, tarn_stream_synchronize(other)) && OK(name, tarn_pool_release(pool));
    snprintf(text, sizeof text, "%zu MiB after %.3f ms, %s", SIZE / MIB, ms,
             runs              ? "while a kernel ran"
             : gpu_has_kernels ? "when the kernel had ended"
                               : "without kernels here");
    gpu_verdict(well && (runs || !gpu_has_kernels), name, text);
}

/* Two streams hold memory back, and any of it would do: the request waits for the shorter one. */
static void first_of_several(void)
{
    const char *name = "reclaim: the first of several";
    char text[160];
    void *blocks[2] = {NULL}, *block = NULL;
    tarn_pool *pool = NULL;
    if (!gpu_has_kernels) {
        gpu_say(GPU_SKIP, name, "%s", "no kernels here");
        return;
    }
    if (!limited(name, 2 * SIZE, &pool))
        return;
    bool well = OK(name, tarn_pool_alloc(pool, other, SIZE, &blocks[0])) &&
                OK(name, tarn_pool_alloc(pool, third, SIZE, &blocks[1])) && gpu_spin(other, LONG) &&
                gpu_spin(third, LONG / 10) && OK(name, tarn_free(blocks[0])) &&
                OK(name, tarn_free(blocks[1]));
    uint64_t start = gpu_ns();
    well = well && OK(name, tarn_pool_alloc(pool, own, SIZE, &block));
    double ms = (double)(gpu_ns() - start) / 1e6;
    well = well && OK(name, tarn_free(block)) && OK(name, tarn_device_synchronize(0)) &&
           OK(name, tarn_pool_release(pool));
    snprintf(text, sizeof text, "after %.1f ms, beside kernels of %.0f and %.0f ms", ms,
             (double)LONG / 1e6, (double)LONG / 1e7);
    gpu_verdict(well && ms < (double)LONG / 4e6, name, text);
}

/* Together ------------------------------------------------------------------------------------- */

#define PAGE (2 * MIB)
#define PAGES 24
#define TOGETHER 2000

/* One limit for a range, blocks of three streams and the cache, with idle memory that goes back. */
struct together {
    struct cache cache;
    struct page {
        char *words;
        int stream; /* of `streams` */
        uint32_t seed;
        bool live;
    } pages[PAGES], blocks[PAGES];
    tarn_stream streams[3];
    tarn_range *range;
    tarn_pool *pool;
    struct gpu_slots slots;
    size_t checked;
    uint64_t seed;
};

static size_t page_bytes(const struct together *all, const struct page *page)
{
    return page >= all->pages && page < all->pages + PAGES ? PAGE : 3 * MIB;
}

/* Checks a page or a block by its stream, late, and gives it back before the check has run. */
static bool give_back(struct together *all, struct page *page)
{
    const char *name = "reclaim: together";
    tarn_stream stream = all->streams[page->stream];
    bool of_range = page_bytes(all, page) == PAGE;
    page->live = false;
    return gpu_check(stream, page->words, page_bytes(all, page), page->seed,
                     gpu_random(&all->seed) % LATE / 4, &all->slots, all->checked++) &&
           (of_range ? OK(name, tarn_range_decommit(all->range, (size_t)(page - all->pages) * PAGE,
                                                    PAGE, stream))
                     : OK(name, tarn_free(page->words)));
}

/* True if it has memory; *well is false on any other failure than a shortage. */
static bool take(struct together *all, struct page *page, bool *well)
{
    page->stream = (int)(gpu_random(&all->seed) % COUNT(all->streams));
    tarn_stream stream = all->streams[page->stream];
    void *words = page->words;
    tarn_status status =
        page_bytes(all, page) == PAGE
            ? tarn_range_commit(all->range, (size_t)(page - all->pages) * PAGE, PAGE, stream)
            : tarn_pool_alloc(all->pool, stream, 3 * MIB, &words);
    if (status == TARN_ERROR_OUT_OF_MEMORY)
        return false;
    page->words = words;
    page->live = OK("reclaim: together", status);
    *well = *well && page->live;
    return page->live;
}

static bool together_step(struct together *all, uint32_t step)
{
    bool well = true;
    size_t at = gpu_random(&all->seed) % (2 * PAGES);
    struct page *page = at < PAGES ? &all->pages[at] : &all->blocks[at - PAGES];
    if (step % 150 == 0) /* longer than idle memory stays */
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (step % 16 == 0)
        return put(&all->cache, all->pool, 2 * step + 1);
    if (page->live)
        return give_back(all, page);
    if (take(all, page, &well)) {
        page->seed = 2 * step;
        well = gpu_fill(all->streams[page->stream], page->words, page_bytes(all, page), page->seed,
                        gpu_random(&all->seed) % LATE / 4);
    }
    return well;
}

static void together(void)
{
    const char *name = "reclaim: together";
    static struct together all;
    char text[160];
    size_t wrong = 0;
    tarn_observer observer = 0;
    tarn_pool_options options = {.size = sizeof options, .idle_release = 3};
    tarn_range_options of_pool = {.size = sizeof of_pool};
    tarn_range_info info = {.size = sizeof info};
    all = (struct together){
        .cache = {.shares = true, .well = true}, .streams = {own, other, third}, .seed = 5};
    bool well = OK(name, tarn_pool_create(&options, &all.pool)) &&
                OK(name, tarn_pool_limit_set(all.pool, LIMIT + SIZE));
    of_pool.pool = all.pool;
    well = well && OK(name, tarn_range_create(&of_pool, PAGES * PAGE, &all.range)) &&
           OK(name, tarn_range_info_get(all.range, &info)) &&
           gpu_slots_create(&all.slots, own, TOGETHER) &&
           gpu_slots_create(&all.cache.slots, own, STEPS) && watch(name, &all.cache, &observer);
    for (size_t i = 0; i < PAGES; i++)
        all.pages[i].words = (char *)info.address + i * PAGE;
    for (uint32_t step = 1; step <= TOGETHER && well; step++)
        well = together_step(&all, step);
    for (size_t i = 0; i < PAGES && well; i++)
        well = (!all.pages[i].live || give_back(&all, &all.pages[i])) &&
               (!all.blocks[i].live || give_back(&all, &all.blocks[i]));
    for (size_t i = 0; i < BLOCKS && well; i++)
        well = !all.cache.blocks[i] || give_up(&all.cache, i);
    well = (!observer || OK(name, tarn_observer_remove(observer))) && well;
    well = well && all.cache.well && OK(name, tarn_device_synchronize(0)) &&
           gpu_slots_read(&all.slots, own) && gpu_slots_read(&all.cache.slots, own);
    for (size_t i = 0; well && i < all.checked; i++)
        wrong += all.slots.host[i].wrong != 0;
    for (size_t i = 0; well && i < all.cache.spilled && i < STEPS; i++)
        wrong += all.cache.slots.host[i].wrong != 0;
    gpu_slots_destroy(&all.cache.slots);
    gpu_slots_destroy(&all.slots);
    well = OK(name, tarn_range_destroy(all.range)) && OK(name, tarn_pool_release(all.pool)) && well;
    snprintf(text, sizeof text, "%zu pages and blocks checked, %zu blocks given up, %zu wrong",
             all.checked, all.cache.spilled, wrong);
    gpu_verdict(well && !wrong && all.checked > TOGETHER / 8 && all.cache.spilled > 8, name, text);
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
        !OK("reclaim", tarn_stream_lease(0, 0, &other)) ||
        !OK("reclaim", tarn_stream_lease(0, 0, &third)))
        return gpu_end();
    contents();
    device_is_short();
    bounded();
    maps_without_waiting();
    first_of_several();
    together();
    cost();
    (void)OK("reclaim", tarn_shutdown());
    return gpu_end();
}
