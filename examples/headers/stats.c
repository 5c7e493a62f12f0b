/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How much of what a device has reserved is in use, now and at the peak of one phase. */
#include <stdio.h>
#include <tarn/tarn.h>

int main(void)
{
    tarn_stats stats = {.size = sizeof stats};
    void *block;
    if (tarn_device_stats_reset(0, TARN_STATS_PEAK) ||
        tarn_alloc_on(TARN_STREAM_CURRENT, 3 << 20, &block) || tarn_free(block) ||
        tarn_device_stats_get(0, &stats)) {
        fprintf(stderr, "%s\n", tarn_last_error());
        return 1;
    }
    const tarn_stat *used = &stats.allocated_bytes[TARN_STAT_ALL];
    const tarn_stat *reserved = &stats.reserved_bytes[TARN_STAT_ALL];
    printf("in use %lld bytes, at most %lld; reserved %lld, at most %lld\n",
           (long long)used->current, (long long)used->peak, (long long)reserved->current,
           (long long)reserved->peak);
    return tarn_shutdown();
}
