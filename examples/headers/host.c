/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A test of what a program does when memory is short, on a device without a GPU. */
#include <stdio.h>
#include <string.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

int main(void)
{
    const tarn_host_configuration device = {.size = sizeof device, .memory = (size_t)1 << 30};
    tarn_host_ledger ledger = {.size = sizeof ledger};
    void *block;
    if (tarn_host_configuration_set(&device)) /* before anything else of tarn */
        return 1;
    /* Work takes 1 ms of the device's own clock, and needs no kernel. */
    if (tarn_alloc_on(TARN_STREAM_CURRENT, (size_t)600 << 20, &block) ||
        tarn_host_work(0, NULL, block, 4096, 1000000) || tarn_free(block))
        return 1;
    tarn_status status = tarn_alloc_on(TARN_STREAM_CURRENT, (size_t)2 << 30, &block);
    if (tarn_host_ledger_get(0, &ledger))
        return 1;
    printf("%s; at most %llu MiB were created\n", tarn_status_name(status),
           (unsigned long long)ledger.created_peak >> 20);
    return tarn_shutdown();
}
