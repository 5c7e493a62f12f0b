/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a program observes of stream-ordered allocations (cuMemAllocAsync): their order, ranges and
 * attributes, the counters, thresholds and trims of the driver's pool, captures, streams that end;
 * and what a pair costs. The checks are the same with and without `tarn run --pool`. Where the
 * driver does not say what it does, a block that is too large to be pooled tells it, or a note
 * prints it. */
#include "run_calls.h"

#include <pthread.h>

#define LARGE (3 * MIB + 1) /* never pooled */
#define PER_THREAD ((cu_stream)(uintptr_t)2)
enum { STREAMS = 4 };
enum { THRESHOLD = 4, RESERVED, RESERVED_HIGH, USED, USED_HIGH };

static cu_pool first; /* the default pool */
static tarn_stream streams[STREAMS];

static bool open_calls(void)
{
    return run_open() && run.cuMemAllocAsync && run.cuMemFreeAsync && run.cuMemAllocFromPoolAsync &&
           run.cuMemPoolGetAttribute && run.cuMemPoolSetAttribute && run.cuMemPoolTrimTo &&
           run.cuMemAllocAsync_ptsz && run.cuDeviceGetDefaultMemPool &&
           run.cuDeviceGetDefaultMemPool(&first, 0) == CU_OK;
}

static cu_address take(const char *name, size_t size, cu_stream stream)
{
    cu_address address = 0;
    return CU(name, run.cuMemAllocAsync(&address, size, stream)) ? address : 0;
}

static bool give(const char *name, cu_address address, cu_stream stream)
{
    return CU(name, run.cuMemFreeAsync(address, stream));
}

static uint64_t get(const char *name, unsigned attribute)
{
    uint64_t value = 0;
    (void)CU(name, run.cuMemPoolGetAttribute(first, attribute, &value));
    return value;
}

static bool set(const char *name, unsigned attribute, uint64_t value)
{
    return CU(name, run.cuMemPoolSetAttribute(first, attribute, &value));
}

/* ---- Order ---- */

/* A free returns at once, and no other stream gets the bytes before the work in front of the free
 * has ended. */
static void order(void)
{
    const char *name = "ordered: no other stream before the end";
    enum { OTHERS = 256 };
    cu_stream own = gpu_native(streams[0]), other = gpu_native(streams[1]);
    cu_address block = take(name, BLOCK, own), others[OTHERS] = {0};
    char text[120];
    if (!block || !gpu_spin(streams[0], SPIN_NS))
        return;
    uint64_t start = gpu_ns();
    bool well = give(name, block, own), early = false;
    uint64_t took = gpu_ns() - start;
    for (int i = 0; i < OTHERS; i++)
        early = (others[i] = take(name, BLOCK, other)) == block || early;
    bool still = gpu.cuStreamQuery(own) == CU_NOT_READY;
    well = (!early || !still) && took < SMALL_NS && well;
    for (int i = 0; i < OTHERS; i++)
        well = give(name, others[i], other) && well;
    well =
        CU(name, run.cuStreamSynchronize(own)) && CU(name, run.cuStreamSynchronize(other)) && well;
    snprintf(text, sizeof text, "%.2f ms; 256 blocks %s the kernel", (double)took / 1e6,
             still ? "were allocated beside" : "waited for");
    verdict(well, name, text);
}

/* Whether cuMemFree of such a block waits is not said by a document: the header says that it does
 * not. */
static void free_of_the_other_kind(void)
{
    const char *name = "ordered: cuMemFree";
    char text[120];
    for (int large = 0; large < 2; large++) {
        cu_address block = take(name, large ? LARGE : BLOCK, gpu_native(streams[0]));
        if (!block || !CU(name, run.cuStreamSynchronize(gpu_native(streams[0]))) ||
            !gpu_spin(streams[1], SPIN_NS))
            return;
        uint64_t start = gpu_ns();
        bool well = CU(name, run.cuMemFree_v2(block));
        uint64_t took = gpu_ns() - start;
        bool still = gpu.cuStreamQuery(gpu_native(streams[1])) == CU_NOT_READY;
        well = run.cuMemFree_v2(block) == CU_INVALID_VALUE && well;
        snprintf(text, sizeof text,
                 "%s: %.2f ms, %s another stream's kernel of %.0f ms; a second one is refused",
                 large ? "3 MiB" : "4 KiB", (double)took / 1e6, still ? "beside" : "behind",
                 SPIN_NS / 1e6);
        verdict(CU(name, run.cuStreamSynchronize(gpu_native(streams[1]))) && well, name, text);
    }
}

static cu_address take_content(const char *name, size_t size, int on)
{
    return take(name, size, gpu_native(streams[on]));
}

/* A stream that is another than the block's waits for that first. */
static bool give_content(const char *name, cu_address address, int on, int of)
{
    static cu_event event;
    bool well = on == of || event || CU(name, gpu.cuEventCreate(&event, CU_EVENT_WITHOUT_TIMING));
    if (on != of)
        well = well && CU(name, gpu.cuEventRecord(event, gpu_native(streams[of]))) &&
               CU(name, gpu.cuStreamWaitEvent(gpu_native(streams[on]), event, 0));
    return well && give(name, address, gpu_native(streams[on]));
}

static bool wait_for_content(const char *name, int on)
{
    return CU(name, run.cuStreamSynchronize(gpu_native(streams[on])));
}

/* Blocks of four streams, written and checked by kernels; freed on their stream, or on another one
 * that waits for it. */
static void contents(void)
{
    contents_check(&(struct contents){.name = "ordered: contents",
                                      .streams = streams,
                                      .stream_count = STREAMS,
                                      .seed = 21,
                                      .write_ns = 20000,
                                      .take = take_content,
                                      .give = give_content,
                                      .wait = wait_for_content});
}

/* A stream is destroyed with a kernel on it: its blocks live on, and what it freed is nobody's
 * before the end. */
static void destroyed(void)
{
    const char *name = "ordered: a stream is destroyed";
    enum { OTHERS = 256 };
    cu_stream own = NULL, other = gpu_native(streams[1]);
    cu_address others[OTHERS];
    tarn_stream adopted;
    if (!CU(name, gpu.cuStreamCreateWithPriority(&own, CU_STREAM_NOT_BLOCKING, 0)) ||
        !OK(name, tarn_stream_adopt(0, own, &adopted)))
        return;
    cu_address kept = take(name, BLOCK, own), freed = take(name, BLOCK, own);
    bool well = kept && freed && gpu_spin(adopted, SPIN_NS), early = false;
    cu_event event = NULL;
    well = CU(name, gpu.cuEventCreate(&event, CU_EVENT_WITHOUT_TIMING)) &&
           CU(name, gpu.cuEventRecord(event, own)) && well;
    well = OK(name, tarn_stream_retire(adopted)) && give(name, freed, own) &&
           CU(name, run.cuStreamDestroy_v2(own)) && well;
    for (int i = 0; i < OTHERS; i++)
        early = (others[i] = take(name, BLOCK, other)) == freed || early;
    bool still = gpu.cuEventQuery(event) == CU_NOT_READY;
    well = (!early || !still) && CU(name, gpu.cuCtxSynchronize()) && well;
    for (int i = 0; i < OTHERS; i++)
        well = give(name, others[i], other) && well;
    well = ask(name, SIZE, kept) >= BLOCK && give(name, kept, other) &&
           CU(name, gpu.cuEventDestroy_v2(event)) && well;
    verdict(well, name,
            still ? "256 blocks were allocated beside its kernel"
                  : "256 blocks waited for its kernel");
}

static void *pair_of_thread(void *result)
{
    cu_address block = 0;
    cu_context context = *(cu_context *)result;
    bool well = gpu.cuCtxSetCurrent(context) == CU_OK &&
                run.cuMemAllocAsync_ptsz(&block, BLOCK, NULL) == CU_OK &&
                run.cuMemFreeAsync_ptsz(block, NULL) == CU_OK &&
                run.cuMemAllocAsync(&block, BLOCK, PER_THREAD) == CU_OK &&
                run.cuMemFreeAsync(block, NULL) == CU_OK; /* on the legacy stream */
    return (void *)(uintptr_t)well;
}

static void default_streams(void)
{
    const char *name = "ordered: default streams";
    cu_context context = NULL;
    pthread_t threads[3];
    bool well = CU(name, gpu.cuCtxGetCurrent(&context));
    cu_address block = take(name, BLOCK, NULL);
    well = block && give(name, block, (cu_stream)(uintptr_t)1) && well;
    for (int i = 0; i < 3; i++)
        well = pthread_create(&threads[i], NULL, pair_of_thread, &context) == 0 && well;
    for (int i = 0; well && i < 3; i++) {
        void *result = NULL;
        well = pthread_join(threads[i], &result) == 0 && result;
    }
    verdict(CU(name, gpu.cuCtxSynchronize()) && well, name,
            "the legacy one by two names, and those of three threads");
}

/* ---- Questions ---- */

static void ranges(void)
{
    static const size_t sizes[] = {LARGE, 1, 100, 513, 1000, 4097, 65000, 300000, 1048575};
    const char *name = "ordered: ranges and attributes";
    cu_stream stream = gpu_native(streams[0]);
    bool well = true, exact = false;
    char text[300];
    size_t used = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        cu_address block = take(name, sizes[i], stream), base = 0;
        size_t size = 0;
        well = block && CU(name, run.cuMemGetAddressRange_v2(&base, &size, block + sizes[i] - 1)) &&
               base == block && well;
        exact = i ? exact : size == sizes[0];
        well = (exact ? size == sizes[i] : size >= sizes[i]) && well;
        well = ask(name, START, block) == block && ask(name, SIZE, block) == size && well;
        well = ask(name, MEMPOOL, block) == (uintptr_t)first && ask(name, LEGACY_IPC, block) == 0 &&
               well;
        uint64_t id = ask(name, ID, block);
        well = id != last && block % 256 == 0 && give(name, block, stream) && well;
        last = id;
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%zu of %zu", i ? ", " : "",
                                     size, sizes[i]);
    }
    verdict(well, name,
            exact ? "as asked for, of nine sizes; the pool is the default one" : "not exact");
    gpu_say(GPU_NOTE, name, "bytes: %s", text);
}

/* ---- Pools of the driver ---- */

/* `used` counts what the program has, and `reserved` is never less. */
static void counters(void)
{
    static const size_t sizes[] = {1, 513, 5000, 100000, 1048576, LARGE};
    const char *name = "ordered: counters";
    cu_stream stream = gpu_native(streams[0]);
    cu_address blocks[COUNT(sizes)];
    bool well = CU(name, gpu.cuCtxSynchronize());
    uint64_t before = get(name, USED), last = before;
    char text[300];
    size_t filled = 0;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        blocks[i] = take(name, sizes[i], stream);
        uint64_t now = get(name, USED);
        well = blocks[i] && now - last >= sizes[i] && now - last <= sizes[i] + 2 * MIB && well;
        well = get(name, USED_HIGH) >= now && get(name, RESERVED) >= now &&
               get(name, RESERVED_HIGH) >= now && well;
        filled += (size_t)snprintf(text + filled, sizeof text - filled, "%s%llu for %zu",
                                   i ? ", " : "", (unsigned long long)(now - last), sizes[i]);
        last = now;
    }
    well = set(name, USED_HIGH, 0) && well;
    uint64_t reset = get(name, USED_HIGH), reserved = get(name, RESERVED),
             reserved_high = get(name, RESERVED_HIGH);
    well = reset == last && well;
    for (size_t i = 0; i < COUNT(sizes); i++)
        well = give(name, blocks[i], stream) && well;
    uint64_t queued = get(name, USED);
    well = CU(name, run.cuStreamSynchronize(stream)) && well;
    uint64_t after = get(name, USED);
    well = after == before && well;
    verdict(well, name,
            "used grows by each block, and all of it comes back; the high-water mark can be reset");
    gpu_say(GPU_NOTE, name,
            "used grew by: %s, from %llu; then %llu more with a high-water mark of %llu, reserved "
            "%llu and at most "
            "%llu; %llu more after the "
            "frees were queued, and %lld after the wait",
            text, (unsigned long long)before, (unsigned long long)(last - before),
            (unsigned long long)reset, (unsigned long long)reserved,
            (unsigned long long)reserved_high, (unsigned long long)(queued - before),
            (long long)(after - before));
}

/* What is free goes at a wait where it is above the threshold, and stays below; cuMemPoolTrimTo()
 * releases it. */
static void thresholds(void)
{
    const char *name = "ordered: threshold and trim";
    enum { BLOCKS = 64 };
    cu_stream stream = gpu_native(streams[0]);
    cu_address blocks[BLOCKS];
    uint64_t reserved[4];
    bool well = CU(name, run.cuMemPoolTrimTo(first, 0)) && CU(name, gpu.cuCtxSynchronize());
    uint64_t before = get(name, RESERVED), normal = get(name, THRESHOLD);
    for (int kept = 0; kept < 2; kept++) {
        well = set(name, THRESHOLD, kept ? UINT64_MAX : 0) && well;
        for (int i = 0; i < BLOCKS; i++)
            well = (blocks[i] = take(name, MIB, stream)) && well;
        reserved[2 * kept] = get(name, RESERVED);
        for (int i = 0; i < BLOCKS; i++)
            well = give(name, blocks[i], stream) && well;
        well = CU(name, run.cuStreamSynchronize(stream)) && well;
        reserved[2 * kept + 1] = get(name, RESERVED);
    }
    well = reserved[0] >= before + BLOCKS * MIB && reserved[1] <= before &&
           reserved[3] >= BLOCKS * MIB && well;
    well = CU(name, run.cuMemPoolTrimTo(first, 0)) && get(name, RESERVED) <= before && well;
    well = set(name, THRESHOLD, normal) && well;
    verdict(well, name,
            "64 MiB go at a wait with threshold 0, stay with the largest, and go at a trim");
    gpu_say(GPU_NOTE, name,
            "reserved: %llu MiB before; with blocks %llu, after the wait %llu; with a threshold "
            "%llu, %llu",
            (unsigned long long)before >> 20, (unsigned long long)reserved[0] >> 20,
            (unsigned long long)reserved[1] >> 20, (unsigned long long)reserved[2] >> 20,
            (unsigned long long)reserved[3] >> 20);
}

/* A pool of the program's own, destroyed with a block in it. */
static void own_pool(void)
{
    const char *name = "ordered: a pool of the program";
    const struct cu_pool_properties properties = {.type = CU_ALLOCATION_PINNED,
                                                  .location = {CU_LOCATION_DEVICE, 0}};
    cu_stream stream = gpu_native(streams[0]);
    cu_pool pool = NULL;
    cu_address block = 0;
    size_t size = 0;
    if (!CU(name, run.cuMemPoolCreate(&pool, &properties)))
        return;
    bool well = CU(name, run.cuMemAllocFromPoolAsync(&block, BLOCK, pool, stream)) &&
                ask(name, MEMPOOL, block) == (uintptr_t)pool &&
                CU(name, run.cuMemPoolDestroy(pool)) &&
                CU(name, run.cuMemGetAddressRange_v2(NULL, &size, block)) && size >= BLOCK &&
                give(name, block, stream) && CU(name, run.cuStreamSynchronize(stream));
    verdict(well, name, "its block outlives it");
}

/* Who reaches the memory of a pool: its own device always; a peer from the call on. */
static void accesses(void)
{
    const char *name = "ordered: access of a pool";
    const struct cu_pool_properties properties = {.type = CU_ALLOCATION_PINNED,
                                                  .location = {CU_LOCATION_DEVICE, 0}};
    struct cu_access own = {{CU_LOCATION_DEVICE, 0}, CU_ACCESS_READ_WRITE};
    struct cu_access peer = {{CU_LOCATION_DEVICE, 1}, CU_ACCESS_READ_WRITE};
    cu_stream stream = gpu_native(streams[0]);
    unsigned flags = 9, of_peer = 9, after = 9;
    cu_address block = 0;
    cu_pool pool = NULL;
    if (!run.cuMemPoolGetAccess || !run.cuMemPoolSetAccess ||
        !CU(name, run.cuMemPoolCreate(&pool, &properties)))
        return;
    bool well = CU(name, run.cuMemAllocFromPoolAsync(&block, BLOCK, pool, stream)) &&
                CU(name, run.cuMemPoolGetAccess(&flags, pool, &own.location)) &&
                flags == CU_ACCESS_READ_WRITE;
    own.flags = 0;
    cu_result taken = run.cuMemPoolSetAccess(pool, &own, 1);
    cu_result asked = run.cuMemPoolGetAccess(&of_peer, pool, &peer.location);
    cu_result set = run.cuMemPoolSetAccess(pool, &peer, 1);
    if (!set)
        well = run.cuMemPoolGetAccess(&after, pool, &peer.location) == CU_OK &&
               after == CU_ACCESS_READ_WRITE && well;
    well = give(name, block, stream) && CU(name, run.cuStreamSynchronize(stream)) &&
           CU(name, run.cuMemPoolDestroy(pool)) && well;
    verdict(well && taken, name,
            set ? "the pool's own device; there is no peer" : "the pool's own device, and a peer");
    gpu_say(
        GPU_NOTE, name,
        "CUDA error %u for taking it from its own device; of device 1: error %u, flags %u, then %u",
        taken, asked, of_peer, set);
}

/* An allocation in a capture is a node, and a free of another block there is refused. What the
 * driver says of requests on another stream meanwhile is printed. */
static void captures(void)
{
    const char *name = "ordered: captures";
    cu_stream stream = gpu_native(streams[0]), beside = gpu_native(streams[1]);
    cu_address block = 0, outside = take(name, BLOCK, stream), other = 0;
    cu_graph graph = NULL;
    bool well = outside && CU(name, run.cuStreamBeginCapture_v2(stream, 0)) &&
                CU(name, run.cuMemAllocAsync(&block, BLOCK, stream)) && give(name, block, stream) &&
                CU(name, run.cuStreamEndCapture(stream, &graph)) && graph;
    well = well && gpu_run_graph(graph, streams[0], 2, name);
    well = CU(name, run.cuStreamBeginCapture_v2(stream, 0)) && well;
    cu_result made = run.cuMemAllocAsync(&other, BLOCK, beside);
    cu_result code = run.cuMemFreeAsync(outside, stream),
              ended = run.cuStreamEndCapture(stream, &graph);
    well = code && ask(name, SIZE, outside) >= BLOCK && give(name, outside, stream) && well;
    well = (made || give(name, other, beside)) && CU(name, run.cuStreamSynchronize(stream)) && well;
    verdict(well, name, "a graph with its own memory runs twice");
    gpu_say(GPU_NOTE, name,
            "in a capture: CUDA error %u for a request of another stream, %u for a free of a block "
            "from outside, %u at "
            "the end",
            made, code, ended);
}

/* ---- Cost ---- */

enum way { ALONE, FROM_POOL, FREED_BY_THE_OTHER, WAITED, WAYS };

static double pair_us(size_t bytes, enum way way, cu_stream stream, int pairs)
{
    cu_address block = 0;
    bool well = true;
    uint64_t start = gpu_ns();
    for (int i = 0; well && i < pairs; i++) {
        well = (way == FROM_POOL ? run.cuMemAllocFromPoolAsync(&block, bytes, first, stream)
                                 : run.cuMemAllocAsync(&block, bytes, stream)) == CU_OK;
        well = well && (way == FREED_BY_THE_OTHER ? run.cuMemFree_v2(block)
                                                  : run.cuMemFreeAsync(block, stream)) == CU_OK;
        well = well && (way != WAITED || run.cuStreamSynchronize(stream) == CU_OK);
    }
    double us = (double)(gpu_ns() - start) / pairs / 1e3;
    if (!CU("ordered: cost", run.cuStreamSynchronize(stream)) || !well)
        gpu_say(GPU_FAIL, "ordered: cost", "an allocation of %zu KiB and its free", bytes / KIB);
    return us;
}

static void cost(void)
{
    static const size_t sizes[] = {BLOCK, 64 * KIB, 1 * MIB, 8 * MIB};
    const char *name = "ordered: cost";
    cu_stream stream = gpu_native(streams[0]);
    for (int kept = 0; kept < 2; kept++) {
        (void)set(name, THRESHOLD, kept ? UINT64_MAX : 0);
        for (size_t i = 0; i < COUNT(sizes); i++)
            gpu_say(GPU_NOTE, name,
                    "%zu KiB, %s threshold: %.2f us per pair, %.2f from a named pool, %.2f with "
                    "cuMemFree, %.2f with a "
                    "wait",
                    sizes[i] / KIB, kept ? "largest" : "no", pair_us(sizes[i], ALONE, stream, 2000),
                    pair_us(sizes[i], FROM_POOL, stream, 2000),
                    pair_us(sizes[i], FREED_BY_THE_OTHER, stream, 500),
                    pair_us(sizes[i], WAITED, stream, 200));
    }
}

static pthread_barrier_t all_there;
struct worker {
    cu_context context;
    cu_stream stream;
    double us;
};

static void *pairs_of_thread(void *argument)
{
    struct worker *worker = argument;
    (void)gpu.cuCtxSetCurrent(worker->context);
    (void)pair_us(BLOCK, ALONE, worker->stream, 10);
    pthread_barrier_wait(&all_there);
    worker->us = pair_us(BLOCK, ALONE, worker->stream, 5000);
    return NULL;
}

static void cost_of_threads(void)
{
    const char *name = "ordered: cost";
    enum { MOST = 8 };
    struct worker workers[MOST];
    pthread_t threads[MOST];
    cu_context context = NULL;
    if (!CU(name, gpu.cuCtxGetCurrent(&context)))
        return;
    for (int count = 2; count <= MOST; count *= 2) {
        double sum = 0;
        pthread_barrier_init(&all_there, NULL, (unsigned)count);
        for (int i = 0; i < count; i++) {
            workers[i] = (struct worker){.context = context};
            if (!CU(name, gpu.cuStreamCreateWithPriority(&workers[i].stream, CU_STREAM_NOT_BLOCKING,
                                                         0)) ||
                pthread_create(&threads[i], NULL, pairs_of_thread, &workers[i]))
                return;
        }
        for (int i = 0; i < count; i++) {
            pthread_join(threads[i], NULL);
            sum += workers[i].us;
            (void)CU(name, run.cuStreamDestroy_v2(workers[i].stream));
        }
        pthread_barrier_destroy(&all_there);
        gpu_say(GPU_NOTE, name, "4 KiB on %d threads with a stream each: %.2f us per pair", count,
                sum / count);
    }
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    if (!open_calls()) {
        gpu_say(gpu_is_simulated ? GPU_SKIP : GPU_FAIL, "ordered", "libcuda.so.1 lacks a call");
        return gpu_end();
    }
    for (int i = 0; i < STREAMS; i++)
        if (!OK("ordered", tarn_stream_lease(0, 0, &streams[i])))
            return gpu_end();
    if (gpu_has_kernels) {
        order();
        free_of_the_other_kind();
        contents();
        destroyed();
    } else {
        gpu_say(GPU_SKIP, "ordered: order and contents", "no kernels");
    }
    default_streams();
    ranges();
    counters();
    if (!gpu_is_simulated) /* which keeps nothing that is free, and serves no stream that
                              captures */
        thresholds();
    own_pool();
    accesses();
    if (!gpu_is_simulated)
        captures();
    cost();
    cost_of_threads();
    for (int i = 0; i < STREAMS; i++)
        (void)OK("ordered", tarn_stream_return(streams[i]));
    return gpu_end();
}
