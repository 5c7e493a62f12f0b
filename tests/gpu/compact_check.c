/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Compaction on hardware: contents and addresses of live blocks, the driver's own count, a graph
 * that was captured before and reads ordinary blocks, and the way through the host's memory where a
 * limit has no room for what is copied. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

#define PIECES 6
#define LARGE (48 * MIB)
#define SMALL (2 * MIB + 4096)
#define MOST ((PIECES + 1) * 6 * MIB) /* what live blocks can hold in place: three granules each */

static unsigned char bytes[SMALL], seen[SMALL];

static size_t reserved(void)
{
    tarn_stats stats = {.size = sizeof stats};
    return OK("compact", tarn_device_stats_get(0, &stats))
               ? (size_t)stats.reserved_bytes[TARN_STAT_ALL].current
               : 0;
}

/* Large free memory with a small live block in the middle of each stretch. */
static bool fragment(tarn_stream stream, void *live[PIECES])
{
    void *large[2 * PIECES] = {NULL};
    bool well = true;
    for (int i = 0; well && i < PIECES; i++) {
        well = OK("compact", tarn_alloc_on(stream, LARGE, &large[2 * i])) &&
               OK("compact", tarn_alloc_on(stream, SMALL, &live[i])) &&
               OK("compact", tarn_alloc_on(stream, LARGE, &large[2 * i + 1]));
        memset(bytes, 0x20 + i, sizeof bytes);
        well = well && gpu_upload(stream, live[i], bytes, SMALL);
    }
    for (int i = 0; i < 2 * PIECES; i++)
        well = OK("compact", tarn_free(large[i])) && well;
    return OK("compact", tarn_device_synchronize(0)) && OK("compact", tarn_device_trim(0, 0)) &&
           well;
}

static bool hold(tarn_stream stream, void *live[PIECES])
{
    bool well = true;
    for (int i = 0; well && i < PIECES; i++) {
        memset(bytes, 0x20 + i, sizeof bytes);
        well = gpu_download(stream, seen, live[i], SMALL) && memcmp(seen, bytes, SMALL) == 0;
    }
    return well;
}

static void round_of(tarn_stream stream, bool at_limit)
{
    const char *name = at_limit ? "compact: at a limit" : "compact: live blocks";
    char text[160];
    void *live[PIECES] = {NULL}, *result = NULL, *graph = NULL;
    bool well = fragment(stream, live) && OK(name, tarn_alloc_on(stream, SMALL, &result)) &&
                OK(name, tarn_capture_begin(stream, TARN_CAPTURE_GLOBAL));
    well = well &&
           CU(name, gpu.cuMemcpyAsync((cu_address)(uintptr_t)result, (cu_address)(uintptr_t)live[1],
                                      SMALL, gpu_native(stream)));
    well = OK(name, tarn_capture_end(stream, &graph)) && well;
    size_t before = reserved(), driver_before = gpu_free_bytes(), gained = 0;
    if (at_limit)
        (void)OK(name, tarn_device_limit_set(0, before));
    uint64_t start = gpu_ns();
    tarn_status status = well ? tarn_compact(0, SIZE_MAX, &gained) : TARN_ERROR_INTERNAL;
    uint64_t ns = gpu_ns() - start;
    (void)OK(name, tarn_device_limit_set(0, SIZE_MAX));
    size_t driver_gained = gpu_free_bytes() - driver_before;
    if (at_limit && status == TARN_ERROR_OUT_OF_MEMORY) {
        gpu_say(GPU_SKIP, name, "%s", tarn_last_error());
    } else if (OK(name, status)) {
        snprintf(text, sizeof text, "%zu of %zu MiB gained, the driver says %zu; %.2f ms",
                 gained / MIB, before / MIB, driver_gained / MIB, (double)ns / 1e6);
        bool right = hold(stream, live) && gained > 0 && before - gained <= MOST &&
                     reserved() == before - gained && driver_gained + 4 * MIB >= gained &&
                     driver_gained <= gained + 4 * MIB;
        gpu_say(right ? GPU_PASS : GPU_FAIL, name, "%s", text);
    }
    name = at_limit ? "compact: a graph, at a limit" : "compact: a graph";
    memset(bytes, 0x77, sizeof bytes);
    if (well && gpu_upload(stream, live[1], bytes, SMALL) &&
        gpu_run_graph(graph, stream, 2, name) && OK(name, tarn_device_synchronize(0)) &&
        gpu_download(stream, seen, result, SMALL))
        gpu_say(memcmp(seen, bytes, SMALL) == 0 ? GPU_PASS : GPU_FAIL, name,
                "captured before, launched after");
    if (graph)
        (void)CU(name, gpu.cuGraphDestroy(graph));
    for (int i = 0; i < PIECES; i++)
        (void)OK(name, tarn_free(live[i]));
    (void)OK(name, tarn_free(result));
    (void)OK(name, tarn_device_synchronize(0));
    (void)OK(name, tarn_device_trim(0, 0));
    gpu_say(reserved() == 0 ? GPU_PASS : GPU_FAIL, "compact: all goes back", "reserved %zu",
            reserved());
}

int main(void)
{
    tarn_stream stream = 0;
    int code = gpu_start();
    if (code)
        return code;
    if (!gpu_properties.virtual_memory)
        gpu_say(GPU_SKIP, "compact", "the device has no virtual memory");
    else if (OK("compact", tarn_stream_lease(0, 0, &stream))) {
        round_of(stream, false);
        round_of(stream, true);
        (void)OK("compact", tarn_stream_return(stream));
    }
    (void)OK("compact", tarn_shutdown());
    return gpu_end();
}
