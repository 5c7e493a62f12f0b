/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Two devices of one machine: a peer reaches memory that was mapped before it was enabled and
 * after, in the default pool, in a private one and in a range, and memory that was given back and
 * mapped again.
 * Copies that the peer makes itself, checked on the host. And library handles that are made on one
 * device while the other captures. Skipped where there is one device, or where the second cannot
 * reach the first. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (24 * MIB)

/* Fills a block of device 0 there, has device 1 copy it into its own, and looks at both ends of
 * that. */
static bool reaches(const char *name, tarn_stream owner, tarn_stream peer, void *block, void *copy,
                    unsigned char value)
{
    unsigned char ends[2] = {0};
    bool well =
        CU(name, gpu.cuMemsetD8Async((uintptr_t)block, value, BLOCK, gpu_native(owner))) &&
        OK(name, tarn_stream_synchronize(owner)) && OK(name, tarn_device_set(1)) &&
        CU(name, gpu.cuMemcpyAsync((uintptr_t)copy, (uintptr_t)block, BLOCK, gpu_native(peer)));
    for (int i = 0; well && i < 2; i++)
        well = gpu_download(peer, &ends[i], (char *)copy + (i ? BLOCK - 1 : 0), 1);
    well = well && OK(name, tarn_device_set(0)) && ends[0] == value && ends[1] == value;
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%zu MiB, copied by device 1: %d and %d, to be %d",
            BLOCK / MIB, ends[0], ends[1], value);
    return well;
}

/* A capture on device 0, in each mode, while this thread makes a handle of each library on device
 * 1: the handle is made, and the graph writes what was captured. */
static void captures_beside(tarn_stream owner, tarn_stream peer, void *block,
                            tarn_capture_mode mode)
{
    static const tarn_library libraries[] = {TARN_LIBRARY_CUBLAS,      TARN_LIBRARY_CUBLASLT,
                                             TARN_LIBRARY_CUDNN,       TARN_LIBRARY_CUSPARSE,
                                             TARN_LIBRARY_CURAND,      TARN_LIBRARY_CUSOLVER_DN,
                                             TARN_LIBRARY_CUSOLVER_SP, TARN_LIBRARY_CUDSS};
    static const char *const modes[] = {"global", "thread-local", "relaxed"};
    char name[64];
    void *graph = NULL;
    unsigned char seen = 0, value = (unsigned char)(100 + mode);
    int made = 0;
    snprintf(name, sizeof name, "peer: creates beside a %s capture", modes[mode]);
    if (!OK(name, tarn_capture_begin(owner, mode)))
        return;
    bool well = CU(name, gpu.cuMemsetD8Async((uintptr_t)block, value, BLOCK, gpu_native(owner)));
    for (size_t i = 0; well && i < COUNT(libraries); i++) {
        tarn_library_info info = {.size = sizeof info};
        tarn_lease lease = {0};
        if (!OK(name, tarn_library_info_get(libraries[i], &info)) || !info.usable)
            continue;
        well = OK(info.name, tarn_handle_lease(libraries[i], peer, &lease)) &&
               OK(name, tarn_handle_return(&lease));
        made += well;
    }
    well = OK(name, tarn_capture_end(owner, &graph)) && well &&
           gpu_run_graph(graph, owner, 1, name) &&
           gpu_download(owner, &seen, (char *)block + BLOCK - 1, 1);
    if (graph)
        well = CU(name, gpu.cuGraphDestroy(graph)) && well;
    for (size_t i = 0; i < COUNT(libraries); i++)
        well = OK(name, tarn_handle_trim(libraries[i], 1, NULL)) && well;
    gpu_say(well && seen == value ? GPU_PASS : GPU_FAIL, name,
            "%d handles made on device 1; the graph wrote %d, to be %d", made, seen, value);
}

/* Gives device 1 access to device 0. False, with a word about it, if the hardware cannot do it. */
static bool enabled(const char *name)
{
    tarn_status status = tarn_device_peer_enable(1, 0);
    if (status == TARN_ERROR_NOT_SUPPORTED)
        gpu_say(GPU_SKIP, name, "device 1 cannot reach device 0");
    return status != TARN_ERROR_NOT_SUPPORTED && OK(name, status);
}

int main(void)
{
    const char *name = "peer";
    int status = gpu_start(), count = 0;
    tarn_stream owner = 0, peer = 0;
    tarn_pool *pool = NULL;
    void *before = NULL, *after = NULL, *inside = NULL, *again = NULL, *copy = NULL;
    tarn_range *range = NULL;
    tarn_range_info pages = {.size = sizeof pages};
    if (status)
        return status;
    if (!OK(name, tarn_device_count_get(&count)) || count < 2) {
        gpu_say(GPU_SKIP, name, "%d devices", count);
        return gpu_end();
    }
    if (OK(name, tarn_stream_lease(0, 0, &owner)) && OK(name, tarn_stream_lease(1, 0, &peer)) &&
        OK(name, tarn_pool_create(NULL, &pool)) && OK(name, tarn_alloc_on(peer, BLOCK, &copy)) &&
        OK(name, tarn_alloc_on(owner, BLOCK, &before)) &&
        OK(name, tarn_range_create(NULL, 2 * BLOCK, &range)) &&
        OK(name, tarn_range_info_get(range, &pages)) &&
        OK(name, tarn_range_commit(range, 0, BLOCK, owner)) && enabled(name)) {
        reaches("peer: mapped before it was enabled", owner, peer, before, copy, 11);
        if (OK(name, tarn_alloc_on(owner, BLOCK, &after)))
            reaches("peer: mapped later", owner, peer, after, copy, 12);
        if (OK(name, tarn_pool_alloc(pool, owner, BLOCK, &inside)))
            reaches("peer: in a private pool", owner, peer, inside, copy, 13);
        if (OK(name, tarn_free(before)) && OK(name, tarn_free(after)) &&
            OK(name, tarn_device_trim(0, 0)) && OK(name, tarn_alloc_on(owner, BLOCK, &again)))
            reaches("peer: mapped again", owner, peer, again, copy, 14);
        if (OK(name, tarn_pool_suspend(pool, false)) && OK(name, tarn_pool_resume(pool)))
            reaches("peer: after a resume", owner, peer, inside, copy, 15);
        reaches("peer: a range's pages", owner, peer, pages.address, copy, 16);
        if (OK(name, tarn_range_commit(range, BLOCK, BLOCK, owner)))
            reaches("peer: a range's pages, committed later", owner, peer,
                    (char *)pages.address + BLOCK, copy, 17);
    }
    for (int mode = TARN_CAPTURE_GLOBAL; again && mode <= TARN_CAPTURE_RELAXED; mode++)
        captures_beside(owner, peer, again, (tarn_capture_mode)mode);
    (void)OK(name, tarn_range_destroy(range));
    (void)OK(name, tarn_free(again));
    (void)OK(name, tarn_free(inside));
    (void)OK(name, tarn_free(copy));
    (void)OK(name, tarn_pool_release(pool));
    (void)OK(name, tarn_shutdown());
    return gpu_end();
}
