/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Idle memory that goes back by itself, on hardware: that the driver has it again, and when, blocks
 * and pages of ranges alike; that what late kernels still write or read is never unmapped, while
 * the thread works beside several streams; that captures are left alone; and that steps shorter
 * than the time make no driver call for memory and cost what they cost without it. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STREAMS 4
#define BLOCKS 48
#define STEPS 2000
#define LATE 40000 /* ns: the most that a kernel waits */
#define SIZE (256 * MIB)
#define ROUNDS 400
#define TIMES 7

static tarn_stream streams[STREAMS];

static void pause_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static size_t reserved(tarn_pool *pool)
{
    tarn_stats stats = {.size = sizeof stats};
    return tarn_pool_stats_get(pool, &stats) ? 0 : (size_t)stats.reserved_bytes[0].current;
}

static void goes_back(void)
{
    const char *name = "idle: goes back";
    char text[160];
    void *block = NULL;
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .idle_release = 100};
    size_t before = gpu_free_bytes();
    if (!OK(name, tarn_pool_create(&options, &pool)) ||
        !OK(name, tarn_pool_alloc(pool, streams[0], SIZE, &block)) ||
        !gpu_write(name, streams[0], block, SIZE, 5))
        return;
    size_t used = before - gpu_free_bytes();
    bool well = OK(name, tarn_free(block)) && OK(name, tarn_stream_synchronize(streams[0]));
    uint64_t start = gpu_ns();
    while (well && reserved(pool) && gpu_ns() - start < 5000000000u)
        pause_ms(5);
    double ms = (double)(gpu_ns() - start) / 1e6;
    size_t left = before > gpu_free_bytes() ? before - gpu_free_bytes() : 0;
    snprintf(text, sizeof text, "%zu MiB, %zu MiB of them still used %.0f ms after the free",
             used / MIB, left / MIB, ms);
    gpu_verdict(well && !reserved(pool) && ms >= 100 && left < SIZE / 8, name, text);
    (void)OK(name, tarn_pool_release(pool));
}

/* Pages of a range, which nothing but the thread gives back. */
static void pages_go_back(void)
{
    const char *name = "idle: pages of a range";
    char text[160];
    tarn_pool *pool = NULL;
    tarn_range *range = NULL;
    tarn_pool_options options = {.size = sizeof options, .idle_release = 100};
    tarn_range_options of_pool = {.size = sizeof of_pool};
    tarn_range_info info = {.size = sizeof info};
    size_t before = gpu_free_bytes();
    if (!OK(name, tarn_pool_create(&options, &pool)))
        return;
    of_pool.pool = pool;
    bool well = OK(name, tarn_range_create(&of_pool, SIZE, &range)) &&
                OK(name, tarn_range_commit(range, 0, SIZE, streams[0])) &&
                OK(name, tarn_range_info_get(range, &info)) &&
                gpu_write(name, streams[0], info.address, SIZE, 5);
    size_t used = before - gpu_free_bytes();
    uint64_t start = gpu_ns();
    well = well && OK(name, tarn_range_decommit(range, 0, SIZE, streams[0]));
    while (well && reserved(pool) && gpu_ns() - start < 5000000000u)
        pause_ms(5);
    double ms = (double)(gpu_ns() - start) / 1e6;
    size_t left = before > gpu_free_bytes() ? before - gpu_free_bytes() : 0;
    snprintf(text, sizeof text, "%zu MiB, %zu MiB of them still used %.0f ms after the decommit",
             used / MIB, left / MIB, ms);
    gpu_verdict(well && !reserved(pool) && ms >= 100 && left < SIZE / 8, name, text);
    (void)OK(name, tarn_range_destroy(range));
    (void)OK(name, tarn_pool_release(pool));
}

/* A capture of the strictest kind, longer than the time, beside memory that is due. */
static void captured(void)
{
    const char *name = "idle: a capture";
    char text[160];
    void *block = NULL, *inside = NULL, *graph = NULL;
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .idle_release = 20};
    if (!OK(name, tarn_pool_create(&options, &pool)))
        return;
    bool well = OK(name, tarn_pool_alloc(pool, streams[1], MIB, &inside)) &&
                OK(name, tarn_pool_alloc(pool, streams[0], SIZE, &block)) &&
                gpu_write(name, streams[0], block, SIZE, 5) &&
                OK(name, tarn_capture_begin(streams[1], TARN_CAPTURE_GLOBAL)) &&
                OK(name, tarn_free(block)) && gpu_fill(streams[1], inside, MIB, 8, 0);
    pause_ms(200);
    size_t during = reserved(pool);
    well = OK(name, tarn_capture_end(streams[1], &graph)) && well &&
           gpu_run_graph(graph, streams[1], 1, name) &&
           gpu_holds(name, streams[1], &inside, 1, MIB, 8);
    uint64_t start = gpu_ns();
    while (well && reserved(pool) >= SIZE / 8 && gpu_ns() - start < 5000000000u)
        pause_ms(5);
    double ms = (double)(gpu_ns() - start) / 1e6;
    snprintf(text, sizeof text, "%zu MiB reserved during it, %zu MiB %.0f ms after it",
             during / MIB, reserved(pool) / MIB, ms);
    gpu_verdict(well && during >= SIZE && reserved(pool) < SIZE / 8, name, text);
    well = (!graph || CU(name, gpu.cuGraphDestroy(graph))) && OK(name, tarn_free(inside));
    (void)(OK(name, tarn_pool_release(pool)) && well);
}

/* Contents ------------------------------------------------------------------------------------- */

struct block {
    void *words;
    size_t bytes;
    int stream;
    uint32_t seed;
};

static bool end_block(struct block *block, struct gpu_slots *slots, size_t slot, uint64_t wait)
{
    tarn_stream own = streams[block->stream];
    bool well = gpu_check(own, block->words, block->bytes, block->seed, wait, slots, slot) &&
                OK("idle: contents", tarn_free(block->words));
    *block = (struct block){.words = NULL};
    return well;
}

/* Blocks come and go on several streams, with pauses in which memory goes back; each is written
 * late and checked by its stream before its free. */
static void contents(void)
{
    const char *name = "idle: contents";
    static struct block blocks[BLOCKS];
    struct gpu_slots slots = {.count = 0};
    char text[160];
    uint64_t seed = 3;
    size_t slot = 0, wrong = 0, least = SIZE_MAX, most = 0;
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .idle_release = 2};
    if (!OK(name, tarn_pool_create(&options, &pool)) ||
        !gpu_slots_create(&slots, streams[0], STEPS))
        return;
    bool well = true;
    for (int step = 0; step < STEPS && well; step++) {
        struct block *block = &blocks[gpu_random(&seed) % BLOCKS];
        uint64_t wait = gpu_random(&seed) % LATE;
        if (block->words) {
            well = end_block(block, &slots, slot++, wait);
            continue;
        }
        if (step % 100 == 0) {
            pause_ms(10);
            size_t now = reserved(pool);
            least = now < least ? now : least;
            most = now > most ? now : most;
        }
        *block = (struct block){.bytes = (1 + gpu_random(&seed) % 8) * MIB,
                                .stream = (int)(gpu_random(&seed) % STREAMS),
                                .seed = (uint32_t)step + 1};
        tarn_stream own = streams[block->stream];
        well = OK(name, tarn_pool_alloc(pool, own, block->bytes, &block->words)) &&
               gpu_fill(own, block->words, block->bytes, block->seed, wait);
    }
    for (int i = 0; i < BLOCKS && well; i++)
        if (blocks[i].words)
            well = gpu_check(streams[blocks[i].stream], blocks[i].words, blocks[i].bytes,
                             blocks[i].seed, 0, &slots, slot++ % STEPS) &&
                   OK(name, tarn_free(blocks[i].words));
    well = well && OK(name, tarn_device_synchronize(0)) && gpu_slots_read(&slots, streams[0]);
    for (size_t i = 0; well && i < slot && i < STEPS; i++)
        wrong += slots.host[i].wrong != 0;
    gpu_slots_destroy(&slots);
    well = OK(name, tarn_pool_release(pool)) && well;
    snprintf(text, sizeof text, "%zu blocks checked, %zu wrong; %zu to %zu MiB reserved", slot,
             wrong, least / MIB, most / MIB);
    gpu_verdict(well && !wrong && slot > STEPS / 4, name, text);
}

/* Cost ----------------------------------------------------------------------------------------- */

/* Pieces and segments that the driver made and took back. */
static int64_t driver_calls(void)
{
    tarn_stats stats = {.size = sizeof stats};
    return tarn_device_stats_get(0, &stats) ? -1 : stats.num_device_alloc + stats.num_device_free;
}

/* us of a step of a few blocks, with a time or without; negative if it fails. */
static double step_us(const char *name, unsigned ms, int64_t *calls)
{
    int64_t first = 0;
    tarn_pool *pool = NULL;
    tarn_pool_options options = {.size = sizeof options, .idle_release = ms};
    bool well = OK(name, tarn_pool_create(&options, &pool));
    uint64_t start = 0;
    for (int i = -20; i < ROUNDS && well; i++) { /* the first ones map */
        void *blocks[6] = {NULL};
        first = i == 0 ? driver_calls() : first;
        start = i == 0 ? gpu_ns() : start;
        for (size_t at = 0; at < COUNT(blocks) && well; at++)
            well = OK(name, tarn_pool_alloc(pool, streams[0], (at + 1) * 3 * MIB, &blocks[at])) &&
                   gpu_fill(streams[0], blocks[at], MIB, 1, 0);
        for (size_t at = 0; at < COUNT(blocks); at++)
            well = OK(name, tarn_free(blocks[at])) && well;
        well = well && OK(name, tarn_stream_synchronize(streams[0]));
    }
    double us = (double)(gpu_ns() - start) / 1e3 / ROUNDS;
    *calls += driver_calls() - first;
    well = OK(name, tarn_pool_release(pool)) && well;
    return well ? us : -1;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static void cost(void)
{
    const char *name = "idle: a step costs";
    double with[TIMES], without[TIMES];
    char text[160];
    int64_t unwatched = 0, calls = 0;
    for (int i = 0; i < TIMES; i++) {
        without[i] = step_us(name, TARN_NO_IDLE_RELEASE, &unwatched);
        with[i] = step_us(name, 50, &calls);
        if (with[i] < 0 || without[i] < 0)
            return;
    }
    qsort(with, TIMES, sizeof *with, by_value);
    qsort(without, TIMES, sizeof *without, by_value);
    double ratio = with[TIMES / 2] / without[TIMES / 2];
    snprintf(text, sizeof text,
             "%.1f us, without it %.1f us: %.3f x (goal: 1.05); memory mapped or unmapped %lld "
             "times (goal: 0)",
             with[TIMES / 2], without[TIMES / 2], ratio, (long long)calls);
    if (calls && !gpu_is_simulated)
        gpu_verdict(false, name, text);
    else
        gpu_goal(gpu_is_simulated || ratio <= 1.05, name, text);
}

int main(void)
{
    int code = gpu_start();
    if (code)
        return code;
    for (int i = 0; i < STREAMS; i++)
        if (!OK("idle", tarn_stream_lease(0, 0, &streams[i])))
            return gpu_end();
    goes_back();
    pages_go_back();
    captured();
    contents();
    cost();
    (void)OK("idle", tarn_shutdown());
    return gpu_end();
}
