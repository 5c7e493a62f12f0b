/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What it costs to come from a native stream to tarn's, for code that is given a native one with
 * each call: found, and adopted for the call, with few streams and with 1,000. The streams are made
 * by libcuda: the machine's, or under `tarn sim --driver cuda` the simulated one, whose answers
 * cost what the host device's do. Each stream has a heap, as it would. Median of 9 runs, ns a
 * call. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/tarn.h>
#include <time.h>

#define RUNS 9
#define MOST 1000

static void *natives[MOST];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void must(tarn_status status)
{
    if (status) {
        fprintf(stderr, "bench_streams: %s\n", tarn_last_error());
        exit(1);
    }
}

static void find(void *native)
{
    tarn_stream stream;
    must(tarn_stream_find(0, native, &stream));
}

static void adopt_and_retire(void *native)
{
    tarn_stream stream;
    must(tarn_stream_adopt(0, native, &stream));
    must(tarn_stream_retire(stream));
}

static int order(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double measure(void (*call)(void *native), int streams, int count)
{
    double runs[RUNS];
    for (int run = 0; run < RUNS; run++) {
        double start = now();
        for (int i = 0; i < count; i++)
            call(natives[(unsigned)i * 7919u % (unsigned)streams]);
        runs[run] = (now() - start) / count;
    }
    qsort(runs, RUNS, sizeof *runs, order);
    return runs[RUNS / 2];
}

/* Makes streams by the vendor's call, and has each used once. */
static void make(int from, int to)
{
    int (*create)(void **stream, unsigned flags) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = library ? dlsym(library, "cuStreamCreate") : NULL;
    if (!symbol) {
        fprintf(stderr, "bench_streams: there is no libcuda.so.1\n");
        exit(1);
    }
    memcpy(&create, &symbol, sizeof create);
    for (int i = from; i < to; i++) {
        tarn_stream stream;
        void *block = NULL;
        if (create(&natives[i], 1)) {
            fprintf(stderr, "bench_streams: cuStreamCreate failed\n");
            exit(1);
        }
        must(tarn_stream_find(0, natives[i], &stream));
        must(tarn_alloc_on(stream, 1000, &block));
        must(tarn_free(block));
    }
}

int main(void)
{
    must(tarn_device_set(0)); /* whose context cuStreamCreate() needs */
    for (int streams = 4; streams <= MOST; streams = streams == 4 ? MOST : MOST + 1) {
        make(streams == 4 ? 0 : 4, streams);
        printf("find, %d streams: %.1f ns\n", streams, measure(find, streams, 1000000));
        printf("adopt and retire, %d streams: %.1f ns\n", streams,
               measure(adopt_and_retire, streams, 10000));
    }
    return 0;
}
