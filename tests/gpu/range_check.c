/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Ranges on hardware: how many addresses one has; whether pages that go from stream to stream,
 * and to other addresses, are ever written by an earlier owner's late kernel; that memory which
 * is still in use is mapped a second time; that captures refuse and graphs hold pages; that a late
 * read faults in debug mode; and what a commit and a decommit cost, with memory that is still
 * mapped, by one thread and by eight, and with memory that is mapped for it and returned, beside
 * the same calls of the driver. */
#include "gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Captures ------------------------------------------------------------------------------------- */

/* A capturing stream refuses without harm to the capture, and a graph holds its pages until it and
 * its executable are gone. */
static void captured(void)
{
    const char *name = "range: captures and holds";
    char text[160], *start = NULL;
    tarn_range *range = range_of(name, 4 * PAGE, &start);
    tarn_stream own = streams[0];
    void *graph = NULL;
    cu_graph_exec exec = NULL;
    bool well = range && OK(name, tarn_range_commit(range, 0, PAGE, own)) &&
                OK(name, tarn_capture_begin(own, TARN_CAPTURE_GLOBAL)) &&
                gpu_fill(own, start, PAGE, 9, LATE);
    tarn_status commit = well ? tarn_range_commit(range, PAGE, PAGE, own) : TARN_OK;
    tarn_status decommit = well ? tarn_range_decommit(range, 0, PAGE, own) : TARN_OK;
    well = well && OK(name, tarn_capture_end(own, &graph)) &&
           OK(name, tarn_range_hold(range, 0, PAGE, graph)) &&
           CU(name, gpu.cuGraphInstantiateWithFlags(&exec, graph, 0)) &&
           CU(name, gpu.cuGraphDestroy(graph)) &&
           CU(name, gpu.cuGraphLaunch(exec, gpu_native(own)));
    tarn_status held = well ? tarn_range_decommit(range, 0, PAGE, own) : TARN_OK;
    void *page = start;
    well =
        well && gpu_holds(name, own, &page, 1, PAGE, 9) && CU(name, gpu.cuGraphExecDestroy(exec));
    tarn_status after = held;
    uint64_t ended = gpu_ns();
    while (well && (after = tarn_range_decommit(range, 0, PAGE, own)) == TARN_ERROR_BUSY &&
           gpu_ns() - ended < 5000000000u)
        (void)usleep(1000);
    double ms = (double)(gpu_ns() - ended) / 1e6;
    well = well && OK(name, after) && OK(name, tarn_range_destroy(range));
    snprintf(text, sizeof text, "refused in a capture, held by a graph until %.1f ms after its end",
             ms);
    gpu_verdict(well && commit == TARN_ERROR_CAPTURE && decommit == TARN_ERROR_CAPTURE &&
                    held == TARN_ERROR_BUSY,
                name, text);
}

/* Debug mode ----------------------------------------------------------------------------------- */

#define LATE_READ "late-read"

/* Runs in a process of its own, as the fault ends its context. 0 if a decommitted page cannot be
 * read. */
static int late_read(void)
{
    const char *name = "range: a late read";
    char *start = NULL;
    if (setenv("TARN_DEBUG", "all", 1) || gpu_start() ||
        !OK(name, tarn_stream_lease(0, 0, &streams[0])))
        return 1;
    tarn_range *range = range_of(name, 8 * PAGE, &start);
    bool well = range && OK(name, tarn_range_commit(range, 0, PAGE, streams[0])) &&
                gpu_write(name, streams[0], start, PAGE, 1) &&
                OK(name, tarn_range_decommit(range, 0, PAGE, streams[0])) &&
                OK(name, tarn_stream_synchronize(streams[0])) &&
                OK(name, tarn_range_commit(range, 4 * PAGE, PAGE, streams[0])) &&
                gpu_write(name, streams[0], start + 4 * PAGE, PAGE, 2) &&
                gpu_add(streams[0], start + 4 * PAGE, 1024, start);
    return well && gpu.cuStreamSynchronize(gpu_native(streams[0])) != CU_OK ? 0 : 1;
}

static void late_read_faults(void)
{
    const char *name = "range: a late read faults in debug mode";
    int status = 0;
    if (!gpu_has_kernels) {
        gpu_say(GPU_SKIP, name, "%s", "no kernels here");
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        (void)execl("/proc/self/exe", "gpu_range", LATE_READ, (char *)NULL);
        _exit(127);
    }
    bool well = child > 0 && waitpid(child, &status, 0) == child;
    gpu_verdict(well && WIFEXITED(status) && WEXITSTATUS(status) == 0, name,
                "a kernel that reads a decommitted page");
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
    snprintf(text, sizeof text,
             "%.0f ns on one thread (goal: 200); %d threads %.1f million pairs/s (goal: 5)", one,
             THREADS, THREADS * 1e3 / all);
    bool fast = one <= 200 && (THREADS * 1e3 / all >= 5 || sysconf(_SC_NPROCESSORS_ONLN) < THREADS);
    if (well)
        gpu_goal(gpu_is_simulated || fast, name, text);
}

struct costs {
    double map, unmap; /* us of a page; 0 on failure */
};

static double us_since(uint64_t start)
{
    return (double)(gpu_ns() - start) / 1000 / ROW;
}

/* A row of pages by the driver alone: created and mapped one by one, unmapped by one call. */
static struct costs by_driver(const char *name)
{
    const struct cu_allocation_properties properties = {.type = CU_ALLOCATION_PINNED,
                                                        .location = {.type = CU_LOCATION_DEVICE}};
    const struct cu_access access = {.location = {.type = CU_LOCATION_DEVICE},
                                     .flags = CU_ACCESS_READ_WRITE};
    cu_piece pieces[ROW];
    cu_address range = 0;
    struct costs us = {0};
    bool well = CU(name, gpu.cuMemAddressReserve(&range, ROW * PAGE, 0, 0, 0));
    uint64_t start = gpu_ns();
    for (size_t i = 0; i < ROW && well; i++)
        well = CU(name, gpu.cuMemCreate(&pieces[i], PAGE, &properties, 0)) &&
               CU(name, gpu.cuMemMap(range + i * PAGE, PAGE, 0, pieces[i], 0)) &&
               CU(name, gpu.cuMemSetAccess(range + i * PAGE, PAGE, &access, 1));
    us.map = us_since(start);
    start = gpu_ns();
    well = well && CU(name, gpu.cuMemUnmap(range, ROW * PAGE));
    for (size_t i = 0; i < ROW && well; i++)
        well = CU(name, gpu.cuMemRelease(pieces[i]));
    us.unmap = us_since(start);
    return well && CU(name, gpu.cuMemAddressFree(range, ROW * PAGE)) ? us : (struct costs){0};
}

/* The same by commits of one page, and by a trim of what was decommitted. */
static struct costs by_range(const char *name)
{
    char *begin = NULL;
    struct costs us = {0};
    tarn_range *range = range_of(name, ROW * PAGE, &begin);
    uint64_t start = gpu_ns();
    bool well = range;
    for (size_t i = 0; i < ROW && well; i++)
        well = OK(name, tarn_range_commit(range, i * PAGE, PAGE, streams[0]));
    us.map = us_since(start);
    well = well && OK(name, tarn_stream_synchronize(streams[0])) &&
           OK(name, tarn_range_decommit(range, 0, ROW * PAGE, streams[0]));
    start = gpu_ns();
    well = well && OK(name, tarn_device_trim(0, 0));
    us.unmap = us_since(start);
    return range && OK(name, tarn_range_destroy(range)) && well ? us : (struct costs){0};
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

#define TIMES 7

static double median(double *values)
{
    qsort(values, TIMES, sizeof *values, by_value);
    return values[TIMES / 2];
}

static void mapping(void)
{
    const char *name = "range: a page that is mapped";
    double driver_map[TIMES], driver_unmap[TIMES], map[TIMES], unmap[TIMES];
    char text[160];
    bool well = OK(name, tarn_device_trim(0, 0));
    for (int i = -1; i < TIMES && well; i++) { /* the first time is not counted */
        struct costs driver = by_driver(name), range = by_range(name);
        int at = i < 0 ? 0 : i;
        well = driver.map > 0 && range.map > 0;
        driver_map[at] = driver.map;
        driver_unmap[at] = driver.unmap;
        map[at] = range.map;
        unmap[at] = range.unmap;
    }
    if (!well)
        return;
    double ratio = median(map) / median(driver_map);
    snprintf(text, sizeof text, "%.1f us, the driver's calls alone %.1f us: %.2f x (goal: 1.1)",
             median(map), median(driver_map), ratio);
    gpu_goal(gpu_is_simulated || ratio <= 1.1, name, text);
    gpu_say(GPU_NOTE, "range: a page that is returned",
            "%.1f us by a trim, by the driver's calls alone %.1f us", median(unmap),
            median(driver_unmap));
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], LATE_READ) == 0)
        return late_read();
    int code = gpu_start();
    if (code)
        return code;
    for (int i = 0; i < STREAMS; i++)
        if (!OK("range", tarn_stream_lease(0, 0, &streams[i])))
            return gpu_end();
    addresses();
    order();
    second_mapping();
    captured();
    late_read_faults();
    mapped_pairs();
    mapping();
    (void)OK("range", tarn_shutdown());
    return gpu_end();
}
