/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Two devices of one machine: a peer reaches memory that was mapped before it was enabled and after, in the default pool and in a
 * private one, and memory that was given back and mapped anew. Copies that the peer makes itself, checked on the host. Skipped where
 * there is one device, or where the second cannot reach the first. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK (24 * MIB)

/* Fills a block of device 0 there, has device 1 copy it into its own, and looks at both ends of that. */
static bool reaches(const char *name, tarn_stream owner, tarn_stream peer, void *block, void *copy, unsigned char value)
{
    unsigned char ends[2] = {0};
    bool well = CU(name, gpu.cuMemsetD8Async((uintptr_t)block, value, BLOCK, gpu_native(owner))) &&
                OK(name, tarn_stream_synchronize(owner)) && OK(name, tarn_device_set(1)) &&
                CU(name, gpu.cuMemcpyAsync((uintptr_t)copy, (uintptr_t)block, BLOCK, gpu_native(peer)));
    for (int i = 0; well && i < 2; i++)
        well = gpu_download(peer, &ends[i], (char *)copy + (i ? BLOCK - 1 : 0), 1);
    well = well && OK(name, tarn_device_set(0)) && ends[0] == value && ends[1] == value;
    gpu_say(well ? GPU_PASS : GPU_FAIL, name, "%zu MiB, copied by device 1: %d and %d, to be %d", BLOCK / MIB, ends[0],
            ends[1], value);
    return well;
}

int main(void)
{
    const char *name = "peer";
    int status = gpu_start(), count = 0;
    bool possible = false;
    tarn_stream owner = 0, peer = 0;
    tarn_pool *pool = NULL;
    void *before = NULL, *after = NULL, *inside = NULL, *again = NULL, *copy = NULL;
    if (status)
        return status;
    if (!OK(name, tarn_device_count(&count)) || count < 2 || !OK(name, tarn_device_peer_possible(1, 0, &possible)) ||
        !possible) {
        gpu_say(GPU_SKIP, name, "%d devices; device 1 can%s reach device 0", count, possible ? "" : "not");
        return gpu_end();
    }
    if (OK(name, tarn_stream_lease(0, 0, &owner)) && OK(name, tarn_stream_lease(1, 0, &peer)) &&
        OK(name, tarn_pool_create(NULL, &pool)) && OK(name, tarn_alloc_on(peer, BLOCK, &copy)) &&
        OK(name, tarn_alloc_on(owner, BLOCK, &before)) && OK(name, tarn_device_peer_enable(1, 0))) {
        reaches("peer: mapped before it was enabled", owner, peer, before, copy, 11);
        if (OK(name, tarn_alloc_on(owner, BLOCK, &after)))
            reaches("peer: mapped later", owner, peer, after, copy, 12);
        if (OK(name, tarn_pool_alloc(pool, owner, BLOCK, &inside)))
            reaches("peer: in a private pool", owner, peer, inside, copy, 13);
        if (OK(name, tarn_free(before)) && OK(name, tarn_free(after)) && OK(name, tarn_trim(0, 0)) &&
            OK(name, tarn_alloc_on(owner, BLOCK, &again)))
            reaches("peer: mapped anew", owner, peer, again, copy, 14);
        if (OK(name, tarn_pool_suspend(pool, false)) && OK(name, tarn_pool_resume(pool)))
            reaches("peer: after a resume", owner, peer, inside, copy, 15);
    }
    (void)OK(name, tarn_free(again));
    (void)OK(name, tarn_free(inside));
    (void)OK(name, tarn_free(copy));
    (void)OK(name, tarn_pool_release(pool));
    (void)OK(name, tarn_shutdown());
    return gpu_end();
}
