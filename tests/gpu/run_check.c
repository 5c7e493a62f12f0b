/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a program observes of plain allocations (cuMemAlloc): when a free returns, address ranges,
 * pointer attributes, contents, memory that captures and other processes want. The checks are the
 * same with and without `tarn run --pool`, so what they expect is what the driver does; the last
 * ones, for pooled blocks alone, say what differs. */
#include "run_calls.h"

#include <pthread.h>

enum { NEIGHBOURS = 8 };

static cu_address make(const char *name, size_t size)
{
    cu_address address = 0;
    return CU(name, run.cuMemAlloc_v2(&address, size)) ? address : 0;
}

static bool end(const char *name, cu_address address)
{
    return CU(name, run.cuMemFree_v2(address));
}

/* ---- Frees ---- */

/* Work of another stream, of which the free is not told, has ended when it returns. Beside live
 * blocks of its size the driver only marks a place in memory that it keeps; alone, the memory goes
 * back. */
static void free_waits(tarn_stream stream, size_t bytes, bool beside)
{
    const char *name = "plain: free waits";
    cu_address others[NEIGHBOURS] = {0};
    char text[120];
    bool well = true;
    for (int i = 0; beside && i < NEIGHBOURS; i++)
        well = (others[i] = make(name, bytes)) && well;
    cu_address block = make(name, bytes);
    if (!block || !gpu_spin(stream, SPIN_NS))
        return;
    bool busy = gpu.cuStreamQuery(gpu_native(stream)) == CU_NOT_READY;
    uint64_t start = gpu_ns();
    well = end(name, block) && well;
    uint64_t took = gpu_ns() - start;
    well = gpu.cuStreamQuery(gpu_native(stream)) == CU_OK && busy && well;
    snprintf(text, sizeof text, "%zu KiB, %s: %.1f ms beside a kernel of %.0f ms", bytes / KIB,
             beside ? "among others" : "alone", (double)took / 1e6, SPIN_NS / 1e6);
    verdict(well, name, text);
    (void)OK(name, tarn_stream_synchronize(stream));
    for (int i = 0; i < NEIGHBOURS; i++)
        (void)end(name, others[i]);
}

static void *free_of_thread(void *block)
{
    return (void *)(uintptr_t)run.cuMemFree_v2((cu_address)(uintptr_t)block);
}

/* In a thread without a context the driver finds the block's, or refuses; a free that it refuses
 * leaves the block. */
static void free_without_a_context(void)
{
    const char *name = "plain: free without a context";
    pthread_t thread;
    void *code = NULL;
    char text[80];
    cu_address block = make(name, BLOCK);
    if (!block || pthread_create(&thread, NULL, free_of_thread, (void *)(uintptr_t)block) ||
        pthread_join(thread, &code))
        return;
    bool well = code ? end(name, block) : run.cuMemFree_v2(block) != CU_OK;
    snprintf(text, sizeof text, "CUDA error %u", (unsigned)(uintptr_t)code);
    verdict(well, name, text);
}

/* It returns at once, and nobody gets the bytes before the stream has come to it. */
static void free_in_order(tarn_stream stream)
{
    const char *name = "plain: free in stream order";
    enum { OTHERS = 256 };
    cu_address block = make(name, BLOCK), others[OTHERS] = {0};
    char text[100];
    if (!block || !run.cuMemFreeAsync || !gpu_spin(stream, SPIN_NS))
        return;
    uint64_t start = gpu_ns();
    bool well = CU(name, run.cuMemFreeAsync(block, gpu_native(stream)));
    uint64_t took = gpu_ns() - start;
    bool early = false;
    for (int i = 0; i < OTHERS; i++)
        early = (others[i] = make(name, BLOCK)) == block || early;
    bool still = gpu.cuStreamQuery(gpu_native(stream)) == CU_NOT_READY;
    well =
        OK(name, tarn_stream_synchronize(stream)) && (!early || !still) && took < SMALL_NS && well;
    for (int i = 0; i < OTHERS; i++)
        well = end(name, others[i]) && well;
    snprintf(text, sizeof text, "%.2f ms; 256 blocks %s the kernel", (double)took / 1e6,
             still ? "were allocated beside" : "waited for");
    verdict(well, name, text);
}

static void wrong_frees(void)
{
    const char *name = "plain: wrong frees";
    cu_address block = make(name, BLOCK);
    bool well = block && run.cuMemFree_v2(block + 512) == CU_INVALID_VALUE && end(name, block);
    well = well && run.cuMemFree_v2(block) == CU_INVALID_VALUE && run.cuMemFree_v2(0) == CU_OK;
    verdict(well, name, "within a block, twice, and of 0");
}

/* ---- Questions ---- */

static void ranges(void)
{
    static const size_t sizes[] = {1, 100, 513, 1000, 4097, 65000, 300000, 1048575, 1048577};
    const char *name = "plain: ranges";
    bool well = true;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        cu_address block = make(name, sizes[i]), base = 0;
        size_t size = 0;
        const cu_address asked[] = {block, block + sizes[i] / 2, block + sizes[i] - 1};
        for (size_t k = 0; block && k < COUNT(asked); k++) {
            well = CU(name, run.cuMemGetAddressRange_v2(&base, &size, asked[k])) && base == block &&
                   size == sizes[i] && well;
            well = ask(name, START, asked[k]) == block && ask(name, SIZE, asked[k]) == sizes[i] &&
                   well;
        }
        well = block % 256 == 0 && block && end(name, block) && well;
        well = run.cuMemGetAddressRange_v2(&base, &size, block) == CU_NOT_FOUND && well;
    }
    verdict(well, name, "start and size as asked for, of nine sizes; none after the free");
}

static void attributes(void)
{
    const char *name = "plain: attributes";
    unsigned list[] = {CONTEXT, TYPE,  POINTER, SYNC,   ID,      MANAGED,
                       ORDINAL, START, SIZE,    MAPPED, BLOCK_ID};
    uint64_t values[COUNT(list)];
    void *places[COUNT(list)];
    cu_address block = make(name, 3000);
    cu_context context = NULL;
    if (!block)
        return;
    for (size_t i = 0; i < COUNT(list); i++) {
        values[i] = 0;
        places[i] = &values[i];
    }
    bool well = CU(name, gpu.cuCtxGetCurrent(&context)) &&
                CU(name, run.cuPointerGetAttributes(COUNT(list), list, places, block + 1000));
    for (size_t i = 0; i < COUNT(list); i++)
        well = ask(name, list[i], block + 1000) == values[i] && well;
    well = values[0] == (uintptr_t)context && values[1] == 2 && values[2] == block + 1000 &&
           !values[5] && well;
    uint64_t before = values[4];
    well = end(name, block) && well;
    block = make(name, 3000);
    well = block && ask(name, ID, block) != before && end(name, block) && well;
    verdict(well, name, "one question and many agree; the next lifetime has another id");
}

/* ---- Contents ---- */

static cu_address make_content(const char *name, size_t size, int on)
{
    (void)on;
    return make(name, size);
}

static bool end_content(const char *name, cu_address address, int on, int of)
{
    (void)on, (void)of;
    return end(name, address);
}

/* Blocks of all sizes come and go, with kernels that write and check them, and nothing but the
 * frees to order them. */
static void contents(tarn_stream stream)
{
    contents_check(&(struct contents){.name = "plain: contents",
                                      .streams = &stream,
                                      .stream_count = 1,
                                      .seed = 20,
                                      .write_ns = 4000,
                                      .take = make_content,
                                      .give = end_content});
}

/* A capture of the strictest kind refuses both calls, and is spoilt by them. */
static void captures(tarn_stream stream)
{
    const char *name = "plain: captures";
    cu_address block = make(name, BLOCK), other = 0;
    cu_graph graph = NULL;
    if (!block || !CU(name, run.cuStreamBeginCapture_v2(gpu_native(stream), 0)))
        return;
    cu_result made = run.cuMemAlloc_v2(&other, BLOCK);
    cu_result ended = run.cuStreamEndCapture(gpu_native(stream), &graph);
    bool well = made == CU_CAPTURE_UNSUPPORTED && ended == CU_CAPTURE_INVALIDATED && !other;
    well = CU(name, run.cuStreamBeginCapture_v2(gpu_native(stream), 0)) && well;
    cu_result freed = run.cuMemFree_v2(block);
    ended = run.cuStreamEndCapture(gpu_native(stream), &graph);
    well = freed == CU_CAPTURE_UNSUPPORTED && ended == CU_CAPTURE_INVALIDATED && well;
    well = ask(name, SIZE, block) == BLOCK && end(name, block) && well;
    verdict(well, name, "cuMemAlloc and cuMemFree are refused, and end the capture");
}

static double pair_us(size_t bytes, int pairs)
{
    cu_address block = 0;
    bool well = true;
    uint64_t start = gpu_ns();
    for (int i = 0; well && i < pairs; i++)
        well = run.cuMemAlloc_v2(&block, bytes) == CU_OK && run.cuMemFree_v2(block) == CU_OK;
    uint64_t took = gpu_ns() - start;
    if (!well)
        gpu_say(GPU_FAIL, "plain: cost", "an allocation of %zu KiB and its free", bytes / KIB);
    return (double)took / pairs / 1e3;
}

/* Of an allocation and its free on an idle device, by what else is live; and of the wait that a
 * free has in it. */
static void cost(bool pooled)
{
    static const size_t sizes[] = {BLOCK, 64 * KIB, 1 * MIB, 8 * MIB};
    const char *name = "plain: cost";
    for (size_t i = 0; i < COUNT(sizes); i++) {
        cu_address others[NEIGHBOURS];
        double alone = pair_us(sizes[i], 1000);
        for (int k = 0; k < NEIGHBOURS; k++)
            others[k] = make(name, sizes[i]);
        gpu_say(GPU_NOTE, name,
                "%zu KiB: %.2f us per allocation and free, %.2f us among live blocks of its size%s",
                sizes[i] / KIB, alone, pair_us(sizes[i], 1000),
                pooled && sizes[i] <= MIB ? ", pooled" : "");
        for (int k = 0; k < NEIGHBOURS; k++)
            (void)end(name, others[k]);
    }
    uint64_t start = gpu_ns();
    bool well = true;
    for (int i = 0; well && i < 1000; i++)
        well = CU(name, gpu.cuCtxSynchronize());
    gpu_say(GPU_NOTE, name, "%.2f us per cuCtxSynchronize on the idle device",
            (double)(gpu_ns() - start) / 1000 / 1e3);
}

/* With work before each free, as programs without a pool have it: a kernel of 5 us, on each of some
 * streams. */
static void cost_of_work(tarn_stream stream)
{
    const char *name = "plain: cost";
    enum { STREAMS = 32, PAIRS = 500 };
    tarn_stream streams[STREAMS] = {stream};
    cu_address others[NEIGHBOURS], block = 0;
    int held = 1;
    while (held < STREAMS && OK(name, tarn_stream_lease(0, 0, &streams[held])))
        held++;
    for (int k = 0; k < NEIGHBOURS; k++)
        others[k] = make(name, BLOCK);
    for (int count = 1; count <= held; count *= count < 8 ? 8 : 4) {
        bool well = true;
        uint64_t start = gpu_ns();
        for (int i = 0; well && i < PAIRS; i++) {
            well = run.cuMemAlloc_v2(&block, BLOCK) == CU_OK;
            for (int k = 0; well && k < count; k++)
                well = gpu_spin(streams[k], 5000);
            well = well && run.cuMemFree_v2(block) == CU_OK;
        }
        if (well)
            gpu_say(GPU_NOTE, name,
                    "4 KiB, with a kernel of 5 us on %d streams before each free: %.2f us", count,
                    (double)(gpu_ns() - start) / PAIRS / 1e3);
        else
            gpu_say(GPU_FAIL, name, "with work on %d streams", count);
    }
    for (int k = 0; k < NEIGHBOURS; k++)
        (void)end(name, others[k]);
    while (held > 1)
        (void)OK(name, tarn_stream_return(streams[--held]));
}

/* ---- Sharing ---- */

/* The driver shares any of them. A pooled one is refused by its code, and from then on nothing more
 * is pooled. */
static void shared(bool pooled)
{
    const char *name = "plain: sharing";
    struct cu_ipc handle;
    cu_address block = make(name, BLOCK);
    if (!block)
        return;
    cu_result code = run.cuIpcGetMemHandle(&handle, block);
    cu_address later = make(name, BLOCK);
    bool well =
        later && (code == CU_OK) == !pooled && run.cuIpcGetMemHandle(&handle, later) == CU_OK;
    well = end(name, block) && end(name, later) && well;
    verdict(well, name,
            pooled ? "a pooled block is refused, the next one is not pooled" : "any block");
}

int main(void)
{
    int status = gpu_start();
    tarn_stream stream;
    if (status)
        return status;
    if (!run_open()) {
        gpu_say(gpu_is_simulated ? GPU_SKIP : GPU_FAIL, "plain", "libcuda.so.1 lacks a call");
        return gpu_end();
    }
    if (!OK("plain", tarn_stream_lease(0, 0, &stream)))
        return gpu_end();
    cu_address block = make("plain", BLOCK);
    bool pooled = block && ask("plain", LEGACY_IPC, block) == 0;
    gpu_say(GPU_NOTE, "plain", "small blocks are %s", pooled ? "pooled" : "the driver's own");
    (void)end("plain", block);
    if (gpu_has_kernels) {
        for (int i = 0; i < 4; i++)
            free_waits(stream, i < 2 ? BLOCK : 8 * MIB, i % 2);
        free_in_order(stream);
        contents(stream);
    } else {
        gpu_say(GPU_SKIP, "plain: order and contents", "no kernels");
    }
    free_without_a_context();
    wrong_frees();
    ranges();
    attributes();
    captures(stream);
    cost(pooled);
    if (gpu_has_kernels)
        cost_of_work(stream);
    shared(pooled);
    (void)OK("plain", tarn_stream_return(stream));
    return gpu_end();
}
