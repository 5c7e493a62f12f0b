/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the driver's own calls cost on this machine: with the device idle, with kernels running all
 * the time, from four threads at once, and where there is a second device, with its access to each
 * mapping. Medians and 99th percentiles; and from the idle medians cost table C of the host device.
 * There a copy's cost is all of it, to its end, and a wait's that of one with nothing to wait
 * for. */
#include "gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ROW 16 /* pieces of 2 MiB that one call takes */
#define SAMPLES 4096
#define SMALL_CALLS 1000
#define RANGE ((size_t)8 << 30) /* bytes of a reserved range */

#define HOST_MIB 64 /* the largest copy to and from the host: pinned memory is slow to come by */

/* X(call, sized, kind, what): `sized` ones are measured at each size; those with a `kind` are rows
 * of table C, by that name. */
#define OP_LIST(X)                                                                           \
    X(alloc, true, true, "cuMemAlloc")                                                       \
    X(free, true, true, "cuMemFree")                                                         \
    X(create, true, true, "cuMemCreate")                                                     \
    X(map, true, true, "cuMemMap")                                                           \
    X(set_access, true, true, "cuMemSetAccess")                                              \
    X(unmap, true, true, "cuMemUnmap")                                                       \
    X(release, true, true, "cuMemRelease")                                                   \
    X(set_access_row, false, false, "cuMemSetAccess, 16 x 2 MiB")                            \
    X(unmap_row, false, false, "cuMemUnmap, 16 x 2 MiB")                                     \
    X(copy, true, true, "cuMemcpyAsync on the device, to its end")                           \
    X(copy_to_host, true, false, "cuMemcpyAsync to pinned memory, to its end")               \
    X(copy_from_host, true, false, "cuMemcpyAsync from pinned memory, to its end")           \
    X(set, true, true, "cuMemsetD8Async, to its end")                                        \
    X(reserve, false, true, "cuMemAddressReserve 8 GiB")                                     \
    X(unreserve, false, true, "cuMemAddressFree")                                            \
    X(memory_info, false, true, "cuMemGetInfo")                                              \
    X(event_create, false, true, "cuEventCreate")                                            \
    X(event_record, false, true, "cuEventRecord")                                            \
    X(event_query, false, true, "cuEventQuery")                                              \
    X(event_synchronize, false, true, "cuEventSynchronize of work that has ended")           \
    X(stream_wait_event, false, true, "cuStreamWaitEvent")                                   \
    X(stream_synchronize, false, true, "cuStreamSynchronize of a stream without work")       \
    X(device_synchronize, false, true, "cuCtxSynchronize, with no work of the stream's own") \
    X(event_destroy, false, true, "cuEventDestroy")                                          \
    X(capture_status, false, true, "cuStreamGetCaptureInfo")                                 \
    X(capture_mode, false, true, "cuThreadExchangeStreamCaptureMode")

enum op {
#define X(call, sized, kind, what) OP_##call,
    OP_LIST(X)
#undef X
        OPS
};
static const struct {
    const char *call, *what;
    bool sized, kind;
} ops[OPS] = {
#define X(call, sized, kind, what) {#call, what, sized, kind},
    OP_LIST(X)
#undef X
};

static const struct {
    size_t mib;
    int repeat;
} sizes[] = {{2, 200}, {20, 100}, {64, 60}, {256, 24}, {1024, 10}};

enum condition { IDLE, LOADED, THREADED, PEER, CONDITIONS };
static const char *const conditions[CONDITIONS] = {"idle", "loaded", "threads", "peer"};

static struct series {
    atomic_uint count;
    uint32_t ns[SAMPLES];
} series[CONDITIONS][OPS][COUNT(sizes)];

static size_t size_count = COUNT(sizes); /* those that the device has room for */
static enum condition condition;
static const char *const name = "costs";

static void add(enum op op, size_t size, uint64_t from)
{
    uint64_t ns = gpu_ns() - from;
    struct series *to = &series[condition][op][size];
    unsigned at = atomic_fetch_add(&to->count, 1);
    if (at < SAMPLES)
        to->ns[at] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

/* Times one call of the driver; ends the function when it fails. */
#define TIME(op, size, call)           \
    do {                               \
        uint64_t from_time = gpu_ns(); \
        cu_result code_of = (call);    \
        if (!CU(name, code_of))        \
            return false;              \
        add(op, size, from_time);      \
    } while (0)

/* ---- Calls ---- */

static const struct cu_allocation_properties piece_properties = {
    .type = CU_ALLOCATION_PINNED,
    .location = {.type = CU_LOCATION_DEVICE, .id = 0},
};
/* Device 0, and where pieces are measured with a peer, device 1. */
static const struct cu_access access_of[2] = {
    {.location = {.type = CU_LOCATION_DEVICE, .id = 0}, .flags = CU_ACCESS_READ_WRITE},
    {.location = {.type = CU_LOCATION_DEVICE, .id = 1}, .flags = CU_ACCESS_READ_WRITE},
};
static cu_result set_access(cu_address range, size_t size)
{
    return gpu.cuMemSetAccess(range, size, access_of, condition == PEER ? 2 : 1);
}

static bool plain(size_t i, int repeat)
{
    cu_address address = 0;
    for (int n = 0; n < repeat; n++) {
        TIME(OP_alloc, i, gpu.cuMemAlloc_v2(&address, sizes[i].mib * MIB));
        TIME(OP_free, i, gpu.cuMemFree_v2(address));
    }
    return true;
}

static bool pieces(cu_address range, size_t i, int repeat)
{
    const size_t size = sizes[i].mib * MIB;
    cu_piece piece = 0;
    for (int n = 0; n < repeat; n++) {
        TIME(OP_create, i, gpu.cuMemCreate(&piece, size, &piece_properties, 0));
        TIME(OP_map, i, gpu.cuMemMap(range, size, 0, piece, 0));
        TIME(OP_set_access, i, set_access(range, size));
        TIME(OP_unmap, i, gpu.cuMemUnmap(range, size));
        TIME(OP_release, i, gpu.cuMemRelease(piece));
    }
    return true;
}

static bool rows(cu_address range, int repeat)
{
    cu_piece row[ROW];
    for (int i = 0; i < ROW; i++)
        if (!CU(name, gpu.cuMemCreate(&row[i], 2 * MIB, &piece_properties, 0)))
            return false;
    for (int n = 0; n < repeat; n++) {
        for (size_t i = 0; i < ROW; i++)
            if (!CU(name, gpu.cuMemMap(range + i * 2 * MIB, 2 * MIB, 0, row[i], 0)))
                return false;
        TIME(OP_set_access_row, 0, set_access(range, ROW * 2 * MIB));
        TIME(OP_unmap_row, 0, gpu.cuMemUnmap(range, ROW * 2 * MIB));
    }
    for (int i = 0; i < ROW; i++)
        if (!CU(name, gpu.cuMemRelease(row[i])))
            return false;
    return true;
}

static cu_result copy_to_end(cu_address to, cu_address from, size_t size, cu_stream stream)
{
    cu_result code = gpu.cuMemcpyAsync(to, from, size, stream);
    return code ? code : gpu.cuStreamSynchronize(stream);
}

static cu_result set_to_end(cu_address address, size_t size, cu_stream stream)
{
    cu_result code = gpu.cuMemsetD8Async(address, 7, size, stream);
    return code ? code : gpu.cuStreamSynchronize(stream);
}

/* Between two stretches of device memory, and between one of them and `host`. */
static bool copies(cu_address first, cu_address second, cu_address host, cu_stream stream, size_t i,
                   int repeat)
{
    const size_t size = sizes[i].mib * MIB;
    for (int n = 0; n < repeat; n++) {
        TIME(OP_set, i, set_to_end(first, size, stream));
        TIME(OP_copy, i, copy_to_end(second, first, size, stream));
        if (sizes[i].mib > HOST_MIB)
            continue;
        TIME(OP_copy_to_host, i, copy_to_end(host, second, size, stream));
        TIME(OP_copy_from_host, i, copy_to_end(first, host, size, stream));
    }
    return true;
}

static bool all_copies(cu_stream stream, int share)
{
    const size_t most = sizes[size_count - 1].mib * MIB;
    cu_address first = 0, second = 0;
    void *host = NULL;
    bool well = CU(name, gpu.cuMemAlloc_v2(&first, most)) &&
                CU(name, gpu.cuMemAlloc_v2(&second, most)) &&
                CU(name, gpu.cuMemHostAlloc(&host, HOST_MIB * MIB, 0));
    for (size_t i = 0; well && i < size_count; i++)
        well = copies(first, second, (uintptr_t)host, stream, i, sizes[i].repeat / share + 1);
    if (host)
        well = CU(name, gpu.cuMemFreeHost(host)) && well;
    if (second)
        well = CU(name, gpu.cuMemFree_v2(second)) && well;
    return (!first || CU(name, gpu.cuMemFree_v2(first))) && well;
}

static cu_result capture_status(cu_stream stream)
{
    cu_capture_status status = 0;
    uint64_t id = 0;
    size_t count = 0;
    if (gpu.cuStreamGetCaptureInfo_v3)
        return gpu.cuStreamGetCaptureInfo_v3(stream, &status, &id, NULL, NULL, NULL, &count);
    if (gpu.cuStreamGetCaptureInfo_v2)
        return gpu.cuStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, &count);
    return gpu.cuStreamGetCaptureInfo(stream, &status, &id);
}

static bool small_calls(cu_stream stream)
{
    cu_event event = NULL;
    for (int n = 0; n < SMALL_CALLS; n++) {
        size_t available = 0, total = 0;
        cu_capture_mode mode = CU_MODE_RELAXED;
        TIME(OP_event_create, 0, gpu.cuEventCreate(&event, CU_EVENT_WITHOUT_TIMING));
        TIME(OP_event_record, 0, gpu.cuEventRecord(event, stream));
        uint64_t from = gpu_ns();
        cu_result code = gpu.cuEventQuery(event);
        if (code != CU_OK && code != CU_NOT_READY && !CU(name, code))
            return false;
        add(OP_event_query, 0, from);
        TIME(OP_stream_wait_event, 0, gpu.cuStreamWaitEvent(stream, event, 0));
        if (n % 20 == 0) {
            if (!CU(name, gpu.cuStreamSynchronize(stream)))
                return false;
            TIME(OP_event_synchronize, 0, gpu.cuEventSynchronize(event));
            TIME(OP_stream_synchronize, 0, gpu.cuStreamSynchronize(stream));
            TIME(OP_device_synchronize, 0, gpu.cuCtxSynchronize());
        }
        TIME(OP_event_destroy, 0, gpu.cuEventDestroy_v2(event));
        TIME(OP_capture_status, 0, capture_status(stream));
        TIME(OP_capture_mode, 0, gpu.cuThreadExchangeStreamCaptureMode(&mode));
        TIME(OP_capture_mode, 0, gpu.cuThreadExchangeStreamCaptureMode(&mode));
        if (n % 20 == 0)
            TIME(OP_memory_info, 0, gpu.cuMemGetInfo_v2(&available, &total));
    }
    return CU(name, gpu.cuStreamSynchronize(stream));
}

/* What a piece and its mapping cost. */
static bool virtual_calls(int share)
{
    cu_address range = 0, other = 0;
    bool well = true;
    for (int n = 0; n < 100 / share; n++) {
        TIME(OP_reserve, 0, gpu.cuMemAddressReserve(&other, RANGE, 0, 0, 0));
        TIME(OP_unreserve, 0, gpu.cuMemAddressFree(other, RANGE));
    }
    if (!CU(name, gpu.cuMemAddressReserve(&range, sizes[size_count - 1].mib * MIB, 0, 0, 0)))
        return false;
    for (size_t i = 0; well && i < size_count; i++)
        well = pieces(range, i, sizes[i].repeat / share + 1);
    well = well && (sizes[size_count - 1].mib < 2 * ROW || rows(range, 100 / share));
    return CU(name, gpu.cuMemAddressFree(range, sizes[size_count - 1].mib * MIB)) && well;
}

static bool all_calls(cu_stream stream, int share)
{
    bool well = true;
    if (condition != PEER) {
        for (size_t i = 0; well && i < size_count; i++)
            well = plain(i, sizes[i].repeat / share + 1);
        well = well && small_calls(stream) && all_copies(stream, share);
    }
    return well && (!gpu_properties.virtual_memory || virtual_calls(share));
}

/* ---- Conditions ---- */

static void *measure(void *argument)
{
    tarn_stream stream = 0;
    (void)argument;
    if (!OK(name, tarn_device_set(0)) || !OK(name, tarn_stream_lease(0, 0, &stream)))
        return NULL;
    (void)all_calls(gpu_native(stream), condition == THREADED ? THREADS
                                        : condition == LOADED ? 2
                                                              : 1);
    (void)OK(name, tarn_stream_return(stream));
    return NULL;
}

/* Keeps kernels of a millisecond running, two of them queued at a time: a free that waits for the
 * device waits for those. */
static atomic_bool loading;
static void *load(void *argument)
{
    tarn_stream streams[2] = {0};
    (void)argument;
    if (!OK(name, tarn_device_set(0)) || !OK(name, tarn_stream_lease(0, 0, &streams[0])) ||
        !OK(name, tarn_stream_lease(0, 0, &streams[1])))
        return NULL;
    for (int turn = 0; atomic_load(&loading); turn ^= 1) {
        if (!OK(name, tarn_stream_synchronize(streams[turn])) || !gpu_spin(streams[turn], 1000000))
            break;
    }
    for (int i = 0; i < 2; i++)
        if (OK(name, tarn_stream_synchronize(streams[i])))
            (void)OK(name, tarn_stream_return(streams[i]));
    return NULL;
}

static void run(enum condition which, int count)
{
    pthread_t threads[THREADS];
    int started = 0;
    condition = which;
    uint64_t from = gpu_ns();
    for (; started < count; started++)
        if (pthread_create(&threads[started], NULL, measure, NULL))
            break;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    gpu_say(GPU_PASS, name, "measured: %s (%.1f s)", conditions[which],
            (double)(gpu_ns() - from) / 1e9);
}

/* ---- What came out ---- */

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A quantile of a sorted series; 0 without samples. */
static double at(const struct series *from, double quantile)
{
    unsigned count = from->count < SAMPLES ? from->count : SAMPLES;
    return count ? (double)from->ns[(size_t)((count - 1) * quantile)] : 0;
}

static double median(enum op op, size_t size)
{
    return at(&series[IDLE][op][size], 0.5);
}

struct cost {
    double base, mib, piece; /* ns */
};

/* A line through the smallest and the largest size; what a further piece costs, from a row of
 * them. */
static struct cost cost_of(enum op op, int row)
{
    struct cost cost = {0};
    size_t last = size_count - 1;
    if (!ops[op].sized) {
        cost.base = median(op, 0);
        return cost;
    }
    double low = median(op, 0), span = (double)(sizes[last].mib - sizes[0].mib);
    cost.mib = last ? (median(op, last) - low) / span : 0;
    cost.mib = cost.mib < 0 ? 0 : cost.mib;
    double mean = low - cost.mib * (double)sizes[0].mib;
    if (row >= 0 && series[IDLE][row][0].count) {
        double more = median((enum op)row, 0) - low - cost.mib * 2 * (ROW - 1);
        cost.piece = more < 0 ? 0 : more / (ROW - 1);
        cost.piece = cost.piece > mean ? mean : cost.piece;
    }
    cost.base = mean - cost.piece < 0 ? 0 : mean - cost.piece;
    return cost;
}

static void write_table(FILE *file)
{
    fprintf(file, "# Cost table C: %s\n# kind base_ns ns_per_mib ns_per_piece\n",
            gpu_properties.name);
    for (int op = 0; op < OPS; op++) {
        int row = op == OP_set_access ? OP_set_access_row : op == OP_unmap ? OP_unmap_row : -1;
        if (!ops[op].kind || !series[IDLE][op][0].count)
            continue;
        struct cost cost = cost_of((enum op)op, row);
        fprintf(file, "%s %.0f %.0f %.0f\n", ops[op].call, cost.base, cost.mib, cost.piece);
    }
}

static void write_json(FILE *file, int version)
{
    fprintf(
        file,
        "{\"gpu\": \"%s\", \"driver\": \"%d.%d\", \"memory\": %zu, \"granule\": %zu, \"costs\": [",
        gpu_properties.name, version / 1000, version % 1000 / 10, gpu_properties.memory,
        gpu_properties.granule);
    const char *between = "";
    for (int c = 0; c < CONDITIONS; c++) {
        for (int op = 0; op < OPS; op++) {
            for (size_t i = 0; i < (ops[op].sized ? size_count : 1); i++) {
                const struct series *from = &series[c][op][i];
                if (!from->count)
                    continue;
                fprintf(file, "%s\n  {\"condition\": \"%s\", \"call\": \"%s\", ", between,
                        conditions[c], ops[op].call);
                if (ops[op].sized)
                    fprintf(file, "\"mib\": %zu, ", sizes[i].mib);
                fprintf(file,
                        "\"count\": %u, \"median_ns\": %.0f, \"p99_ns\": %.0f, \"max_ns\": %.0f}",
                        from->count, at(from, 0.5), at(from, 0.99), at(from, 1));
                between = ",";
            }
        }
    }
    fprintf(file, "\n], \"C\": {");
    between = "";
    for (int op = 0; op < OPS; op++) {
        int row = op == OP_set_access ? OP_set_access_row : op == OP_unmap ? OP_unmap_row : -1;
        struct cost cost = cost_of((enum op)op, row);
        if (!ops[op].kind || !series[IDLE][op][0].count)
            continue;
        fprintf(file,
                "%s\n  \"%s\": {\"base_ns\": %.0f, \"ns_per_mib\": %.0f, \"ns_per_piece\": %.0f}",
                between, ops[op].call, cost.base, cost.mib, cost.piece);
        between = ",";
    }
    fprintf(file, "\n}}\n");
}

static void write_cell(FILE *file, const struct series *from)
{
    if (from->count)
        fprintf(file, " %.1f / %.1f |", at(from, 0.5) / 1000, at(from, 0.99) / 1000);
    else
        fprintf(file, " |");
}

static void write_markdown(FILE *file, int version)
{
    fprintf(file,
            "%s, driver %d.%d. Microseconds, median / 99th percentile: device idle; kernels "
            "running; four threads; one "
            "peer that has access.\n\n"
            "| call | MiB | idle | loaded | 4 threads | 1 peer |\n|---|---:|---:|---:|---:|---:|\n",
            gpu_properties.name, version / 1000, version % 1000 / 10);
    for (int op = 0; op < OPS; op++) {
        for (size_t i = 0; i < (ops[op].sized ? size_count : 1); i++) {
            if (!series[IDLE][op][i].count)
                continue;
            if (ops[op].sized)
                fprintf(file, "| `%s` | %zu |", ops[op].what, sizes[i].mib);
            else
                fprintf(file, "| `%s` | |", ops[op].what);
            for (int c = 0; c < CONDITIONS; c++)
                write_cell(file, &series[c][op][i]);
            fprintf(file, "\n");
        }
    }
}

/* After each condition, so that what was measured is there whatever comes after. */
static void write_results(bool print)
{
    int version = 0;
    (void)CU(name, gpu.cuDriverGetVersion(&version));
    for (int c = 0; c < CONDITIONS; c++) {
        for (int op = 0; op < OPS; op++) {
            for (size_t i = 0; i < COUNT(sizes); i++) {
                struct series *one = &series[c][op][i];
                if (one->count > SAMPLES)
                    one->count = SAMPLES;
                qsort(one->ns, one->count, sizeof *one->ns, compare);
            }
        }
    }
    FILE *json = gpu_results_open("cost-table-c.json"),
         *table = gpu_results_open("cost-table-c.txt"), *markdown = gpu_results_open("costs.md");
    if (json)
        write_json(json, version);
    if (table)
        write_table(table);
    if (markdown)
        write_markdown(markdown, version);
    FILE *const files[] = {json, table, markdown};
    for (size_t i = 0; i < COUNT(files); i++)
        if (files[i] && fclose(files[i]))
            gpu_say(GPU_FAIL, name, "the results could not be written");
    if (print) {
        write_markdown(stdout, version);
        write_table(stdout);
    }
}

static bool has_peer(void)
{
    int devices = 0;
    return gpu_properties.virtual_memory && OK(name, tarn_device_count_get(&devices)) &&
           devices > 1 && tarn_device_peer_enable(1, 0) == TARN_OK;
}

int main(void)
{
    int status = gpu_start();
    if (status)
        return status;
    size_t available = 0, total = 0;
    (void)OK(name, tarn_device_memory_get(0, &available, &total));
    while (size_count > 1 && sizes[size_count - 1].mib * MIB > available / (2 * THREADS + 1))
        size_count--;
    pthread_t loader;
    run(IDLE, 1);
    write_results(false);
    atomic_store(&loading, true);
    if (!gpu_has_kernels) {
        gpu_say(GPU_SKIP, "costs: loaded", "no kernels");
    } else if (!pthread_create(&loader, NULL, load, NULL)) {
        run(LOADED, 1);
        atomic_store(&loading, false);
        pthread_join(loader, NULL);
        write_results(false);
    }
    run(THREADED, THREADS);
    if (has_peer())
        run(PEER, 1);
    else
        gpu_say(GPU_SKIP, "costs: peer", "no second device that reaches the first one's memory");
    write_results(true);
    (void)OK(name, tarn_shutdown());
    return gpu_end();
}
