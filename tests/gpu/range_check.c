/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges on hardware: how many addresses one has; whether pages that go from stream to stream,
 * and to other addresses, are ever written by an earlier owner's late kernel; that memory which
 * is still in use is mapped a second time; and what a commit and a decommit cost, with memory
 * that is still mapped, by one thread and by eight, and with memory that is mapped for it,
 * beside the same calls of the driver. */
#include "gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE (2 * MIB)
#define TIB ((size_t)1 << 40)
#define PAGES 64
#define STREAMS 4
#define STEPS 1500
#define LATE 40000 /* ns: the most that a kernel waits */
#define THREADS 8
#define PAIRS 200000
#define ROW 64 /* pages that are mapped one by one */

static tarn_stream streams[STREAMS];

static tarn_range *range_of(const char *name, size_t bytes, char **start)
{
    tarn_range *range = NULL;
    tarn_range_info info = {.size = sizeof info};
    if (!OK(name, tarn_range_create(NULL, bytes, &range)) ||
        !OK(name, tarn_range_info_get(range, &info)))
        return NULL;
    *start = info.address;
    return range;
}

/* Addresses ------------------------------------------------------------------------------------ */

static void addresses(void)
{
    const char *name = "range: addresses";
    char text[120], *start = NULL;
    size_t bytes = 16 * TIB;
    tarn_range *range = NULL;
    while (bytes >= PAGE && tarn_range_create(NULL, bytes, &range))
        bytes /= 2;
    if (!range) {
        gpu_say(GPU_FAIL, name, "%s", tarn_last_error());
        return;
    }
    tarn_range_info info = {.size = sizeof info};
    bool well = OK(name, tarn_range_info_get(range, &info));
    start = info.address;
    well = well && OK(name, tarn_range_commit(range, bytes - PAGE, PAGE, streams[0])) &&
           gpu_write(name, streams[0], start + bytes - PAGE, PAGE, 3) &&
           OK(name, tarn_range_decommit(range, bytes - PAGE, PAGE, streams[0])) &&
           OK(name, tarn_range_destroy(range));
    snprintf(text, sizeof text, "%zu GiB in one range, the last page written", bytes >> 30);
    gpu_verdict(well && (gpu_is_simulated || bytes == 16 * TIB), name, text);
}

/* Order ---------------------------------------------------------------------------------------- */

struct page {
    bool committed;
    int stream;
    uint32_t seed;
};

/* Random pages come and go; each is written late and checked by its stream. */
static void order(void)
{
    const char *name = "range: order of streams";
    char text[160], *start = NULL;
    static struct page pages[PAGES];
    struct gpu_slots slots = {.count = 0};
    uint64_t seed = 11;
    size_t slot = 0, wrong = 0, moved = 0;
    bool well = true;
    tarn_pool *pool = NULL;
    tarn_range *range = NULL;
    tarn_range_options options = {.size = sizeof options};
    tarn_range_info info = {.size = sizeof info};
    if (!OK(name, tarn_pool_create(NULL, &pool)) ||
        !OK(name, tarn_pool_limit_set(pool, PAGES / 3 * PAGE)))
        return;
    options.pool = pool;
    if (!OK(name, tarn_range_create(&options, PAGES * PAGE, &range)) ||
        !OK(name, tarn_range_info_get(range, &info)) ||
        !gpu_slots_create(&slots, streams[0], STEPS))
        return;
    start = info.address;
    for (int step = 0; step < STEPS && well; step++) {
        size_t at = gpu_random(&seed) % PAGES;
        struct page *page = &pages[at];
        char *words = start + at * PAGE;
        if (page->committed) {
            tarn_stream own = streams[page->stream];
            well =
                gpu_check(own, words, PAGE, page->seed, gpu_random(&seed) % LATE, &slots, slot++) &&
                OK(name, tarn_range_decommit(range, at * PAGE, PAGE, own));
            page->committed = false;
            continue;
        }
        page->stream = (int)(gpu_random(&seed) % STREAMS);
        tarn_status status = tarn_range_commit(range, at * PAGE, PAGE, streams[page->stream]);
        if (status == TARN_ERROR_OUT_OF_MEMORY)
            continue;
        page->committed = true;
        page->seed = (uint32_t)step + 1;
        moved++;
        well = OK(name, status) &&
               gpu_fill(streams[page->stream], words, PAGE, page->seed, gpu_random(&seed) % LATE);
    }
    well = well && OK(name, tarn_device_synchronize(0)) && gpu_slots_read(&slots, streams[0]);
    for (size_t i = 0; well && i < slot; i++)
        wrong += slots.host[i].wrong != 0;
    gpu_slots_destroy(&slots);
    well = OK(name, tarn_range_destroy(range)) && OK(name, tarn_pool_release(pool)) && well;
    snprintf(text, sizeof text, "%zu commits, %zu pages checked, %zu wrong", moved, slot, wrong);
    gpu_verdict(well && !wrong && slot > STEPS / 4, name, text);
}

/* Memory that a kernel still writes is at a new address at once. */
static void second_mapping(void)
{
    const char *name = "range: a second mapping";
    char text[160], *start = NULL;
    tarn_range *range = range_of(name, 16 * PAGE, &start);
    tarn_stats before = {.size = sizeof before}, after = {.size = sizeof after};
    tarn_stream own = streams[1];
    bool well = range && OK(name, tarn_range_commit(range, 0, 4 * PAGE, own)) &&
                gpu_write(name, own, start, 4 * PAGE, 5) &&
                gpu_fill(own, start, 4 * PAGE, 6, 20 * LATE) &&
                OK(name, tarn_range_decommit(range, 0, 4 * PAGE, own)) &&
                OK(name, tarn_device_stats_get(0, &before)) &&
                OK(name, tarn_range_commit(range, 8 * PAGE, 4 * PAGE, own));
    bool pending = tarn_stream_query(own) == TARN_ERROR_NOT_READY;
    void *there = start + 8 * PAGE;
    well = well && OK(name, tarn_device_stats_get(0, &after)) &&
           gpu_write(name, own, there, 4 * PAGE, 7) &&
           gpu_holds(name, own, &there, 1, 4 * PAGE, 7) &&
           OK(name, tarn_range_decommit(range, 8 * PAGE, 4 * PAGE, own)) &&
           OK(name, tarn_range_destroy(range));
    long long created =
        (long long)(after.reserved_bytes[0].current - before.reserved_bytes[0].current);
    snprintf(text, sizeof text, "%lld bytes created, the kernel %s when the commit returned",
             created, pending ? "ran still" : "had ended");
    gpu_verdict(well && created == 0, name, text);
}

/* Costs ---------------------------------------------------------------------------------------- */

static tarn_range *shared;
static pthread_barrier_t barrier;

static void *pairs(void *argument)
{
    size_t offset = (size_t)(uintptr_t)argument * PAGE;
    tarn_stream own = 0;
    bool well = OK("range: cost", tarn_stream_lease(0, 0, &own)) &&
                OK("range: cost", tarn_range_commit(shared, offset, PAGE, own)) &&
                OK("range: cost", tarn_range_decommit(shared, offset, PAGE, own));
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < PAIRS && well; i++)
        well = !tarn_range_commit(shared, offset, PAGE, own) &&
               !tarn_range_decommit(shared, offset, PAGE, own);
    pthread_barrier_wait(&barrier);
    (void)OK("range: cost", tarn_stream_return(own));
    return well ? argument : (void *)-1;
}

static double pairs_of(unsigned count, bool *well)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (uintptr_t i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, pairs, (void *)i))
            exit(1);
    pthread_barrier_wait(&barrier);
    uint64_t start = gpu_ns();
    pthread_barrier_wait(&barrier);
    double ns = (double)(gpu_ns() - start);
    for (unsigned i = 0; i < count; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        *well = *well && result != (void *)-1;
    }
    pthread_barrier_destroy(&barrier);
    return ns / PAIRS;
}

static void mapped_pairs(void)
{
    const char *name = "range: a pair of a mapped page";
    char text[160], *start = NULL;
    bool well = true;
    shared = range_of(name, THREADS * PAGE, &start);
    if (!shared)
        return;
    double one = pairs_of(1, &well), all = pairs_of(THREADS, &well);
    well = OK(name, tarn_range_destroy(shared)) && well;
    snprintf(text, sizeof text, "%.0f ns on one thread; %d threads %.1f million pairs/s", one,
             THREADS, THREADS * 1e3 / all);
    gpu_verdict(well && (gpu_is_simulated || one <= 200), name, text);
}

/* What a row of pages costs the driver alone, created and mapped one by one; 0 on failure. */
static double by_driver(const char *name)
{
    const struct cu_allocation_properties properties = {.type = CU_ALLOCATION_PINNED,
                                                        .location = {.type = CU_LOCATION_DEVICE}};
    const struct cu_access access = {.location = {.type = CU_LOCATION_DEVICE},
                                     .flags = CU_ACCESS_READ_WRITE};
    cu_piece pieces[ROW];
    cu_address range = 0;
    bool well = CU(name, gpu.cuMemAddressReserve(&range, ROW * PAGE, 0, 0, 0));
    uint64_t start = gpu_ns();
    for (size_t i = 0; i < ROW && well; i++)
        well = CU(name, gpu.cuMemCreate(&pieces[i], PAGE, &properties, 0)) &&
               CU(name, gpu.cuMemMap(range + i * PAGE, PAGE, 0, pieces[i], 0)) &&
               CU(name, gpu.cuMemSetAccess(range + i * PAGE, PAGE, &access, 1));
    double us = (double)(gpu_ns() - start) / 1000 / ROW;
    well = well && CU(name, gpu.cuMemUnmap(range, ROW * PAGE));
    for (size_t i = 0; i < ROW && well; i++)
        well = CU(name, gpu.cuMemRelease(pieces[i]));
    return well && CU(name, gpu.cuMemAddressFree(range, ROW * PAGE)) ? us : 0;
}

static double by_range(const char *name)
{
    char *start = NULL;
    tarn_range *range = range_of(name, ROW * PAGE, &start);
    uint64_t began = gpu_ns();
    bool well = range;
    for (size_t i = 0; i < ROW && well; i++)
        well = OK(name, tarn_range_commit(range, i * PAGE, PAGE, streams[0]));
    double us = (double)(gpu_ns() - began) / 1000 / ROW;
    return range && OK(name, tarn_range_destroy(range)) && OK(name, tarn_device_trim(0, 0)) && well
               ? us
               : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void mapping(void)
{
    const char *name = "range: a page that is mapped";
    enum { TIMES = 5 };
    double driver[TIMES], range[TIMES];
    char text[160];
    bool well = OK(name, tarn_device_trim(0, 0));
    for (int i = 0; i < TIMES && well; i++) {
        driver[i] = by_driver(name);
        range[i] = by_range(name);
        well = driver[i] > 0 && range[i] > 0;
    }
    if (!well)
        return;
    qsort(driver, TIMES, sizeof *driver, by_value);
    qsort(range, TIMES, sizeof *range, by_value);
    double ratio = range[TIMES / 2] / driver[TIMES / 2];
    snprintf(text, sizeof text, "%.1f us, the driver's calls alone %.1f us: %.2f x",
             range[TIMES / 2], driver[TIMES / 2], ratio);
    gpu_verdict(gpu_is_simulated || ratio <= 1.2, name, text);
}

int main(void)
{
    int code = gpu_start();
    if (code)
        return code;
    for (int i = 0; i < STREAMS; i++)
        if (!OK("range", tarn_stream_lease(0, 0, &streams[i])))
            return gpu_end();
    addresses();
    order();
    second_mapping();
    mapped_pairs();
    mapping();
    (void)OK("range", tarn_shutdown());
    return gpu_end();
}
