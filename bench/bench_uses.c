/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks that other streams use, on the host device: what an allocation, its record on another
 * stream and its free cost while many blocks wait; and what a pair of a small size costs before its
 * slabs' blocks were ever recorded, while a few of them are, and once none is any more. */
#include <stdio.h>
#include <stdlib.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <time.h>

#define ROUNDS 9
#define PAIRS 200000
#define PENDING 40000
#define MORE 2000 /* measured with so many pending */
#define STREAMS 32
#define SMALL 1000 /* bytes */

static void must(tarn_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "bench_uses: %s: %s\n", what, tarn_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static tarn_stream lease(void)
{
    tarn_stream stream = 0;
    must(tarn_stream_lease(0, 0, &stream), "tarn_stream_lease");
    return stream;
}

/* Has a stream be busy until the clock is moved. */
static void keep_busy(tarn_stream stream)
{
    void *native = NULL;
    must(tarn_stream_native_get(stream, &native), "tarn_stream_native_get");
    must(tarn_host_work(0, native, NULL, 0, UINT64_C(1000000000)), "tarn_host_work");
}

static void leave(tarn_stream own, tarn_stream other, size_t size)
{
    void *block = NULL;
    must(tarn_alloc_on(own, size, &block), "tarn_alloc_on");
    must(tarn_record_stream(block, other), "tarn_record_stream");
    must(tarn_free(block), "tarn_free");
}

static void end_all(void)
{
    must(tarn_device_synchronize(0), "tarn_device_synchronize");
    must(tarn_device_trim(0, 0), "tarn_device_trim");
}

static void waiting(int streams, size_t size)
{
    tarn_stream own = lease(), others[STREAMS];
    for (int i = 0; i < streams; i++)
        keep_busy(others[i] = lease());
    double times[2] = {0, 0};
    int done = 0;
    for (int part = 0; part < 2; part++) {
        for (; part && done < PENDING; done++)
            leave(own, others[done % streams], size);
        double start = now();
        for (int i = 0; i < MORE; i++, done++)
            leave(own, others[done % streams], size);
        times[part] = (now() - start) / MORE;
    }
    printf("alloc, record, free of %6zu B, %2d streams   %7.0f ns at the start, %7.0f with %d "
           "pending\n",
           size, streams, times[0], times[1], PENDING);
    end_all();
    for (int i = 0; i < streams; i++)
        must(tarn_stream_return(others[i]), "tarn_stream_return");
    must(tarn_stream_return(own), "tarn_stream_return");
}

static double pair(void)
{
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < PAIRS; i++)
            (void)tarn_free(tarn_malloc(SMALL));
        double time = (now() - start) / PAIRS;
        best = time < best ? time : best;
    }
    return best;
}

static void small_pairs(void)
{
    enum { COUNT = 400 };
    void *blocks[COUNT];
    tarn_stream other = lease();
    double before = pair();
    for (int i = 0; i < COUNT; i++)
        blocks[i] = tarn_malloc(SMALL);
    for (int i = 0; i < COUNT; i += 4)
        must(tarn_record_stream(blocks[i], other), "tarn_record_stream");
    for (int i = 0; i < COUNT; i++)
        if (i % 4)
            must(tarn_free(blocks[i]), "tarn_free");
    double beside = pair();
    for (int i = 0; i < COUNT; i += 4)
        must(tarn_free(blocks[i]), "tarn_free");
    must(tarn_stream_synchronize(other), "tarn_stream_synchronize");
    printf("malloc, free of %d B   %.1f ns at the start, %.1f beside recorded blocks, %.1f when "
           "they are free\n",
           SMALL, before, beside, pair());
    must(tarn_stream_return(other), "tarn_stream_return");
}

int main(void)
{
    tarn_host_configuration config = {.size = sizeof config, .devices = 1};
    must(tarn_host_configuration_set(&config), "tarn_host_configuration_set");
    small_pairs();
    end_all();
    for (int streams = 1; streams <= STREAMS; streams *= STREAMS)
        for (size_t size = SMALL; size <= 100 * SMALL; size *= 100)
            waiting(streams, size);
    return 0;
}
