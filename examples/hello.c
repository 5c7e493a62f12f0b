/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A block that two streams use. tarn_host_fill() stands where a GPU program launches a kernel. */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/host.h>
#include <tarn/tarn.h>

static void must(tarn_status status)
{
    if (status == TARN_OK)
        return;
    fprintf(stderr, "%s: %s\n", tarn_status_name(status), tarn_last_error());
    exit(1);
}

int main(void)
{
    const size_t size = (size_t)3 << 20;
    tarn_stats stats = {.size = sizeof stats};
    tarn_stream first, second;
    tarn_event *filled;
    void *block, *native;

    must(tarn_stream_lease(0, 0, &first)); /* device 0, priority 0 */
    must(tarn_stream_lease(0, 0, &second));
    must(tarn_event_create(0, &filled));

    must(tarn_alloc_on(first, size, &block));     /* work on `first` may use it from now on */
    must(tarn_stream_native_get(first, &native)); /* what the driver calls the stream */
    must(tarn_host_fill(0, native, block, 1, size));
    must(tarn_event_record(filled, first));

    must(tarn_stream_wait(second, filled));
    must(tarn_stream_native_get(second, &native));
    must(tarn_host_fill(0, native, block, 2, size));
    must(tarn_record_stream(block, second)); /* its memory waits for `second` too; */
    must(tarn_free(block));                  /* the free itself waits for nothing */

    must(tarn_device_stats_get(0, &stats));
    printf(
        "%lld bytes allocated, %lld active, %lld reserved\n", (long long)stats.allocated_bytes[TARN_STAT_ALL].current,
        (long long)stats.active_bytes[TARN_STAT_ALL].current, (long long)stats.reserved_bytes[TARN_STAT_ALL].current);
    must(tarn_shutdown());
    return 0;
}
