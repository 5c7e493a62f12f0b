/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What the shim of `tarn run` adds to a call, in ns: calls by way of it less the same calls of the
 * driver behind it, which is the one of the tests, does next to nothing, and gives each thread
 * addresses of its own. Charged calls are an allocation and a free; passed ones a query, a free of
 * nothing and, for what is not hooked, nothing at all. Then the charged calls again under --pool:
 * one that a pool serves beside one that is too large for it. The driver's wait for its context,
 * which a pooled free makes as a passed one does, takes no time here. On 1 and on 2 threads, whose
 * own stack of blocks is 64 deep. Median of 9 interleaved runs; processor time.
 *
 * Runs itself under `tarn run`: the program is found beside the benchmark's folder. */
#include "run/abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RUNS = 9, PAIRS = 100000, DEEP = 64, THREADS_MOST = 2 };

struct calls {
    cu_result (*init)(unsigned);
    cu_result (*retain)(cu_context *, cu_device);
    cu_result (*set)(cu_context);
    cu_result (*alloc)(cu_address *, size_t);
    cu_result (*alloc_ordered)(cu_address *, size_t, cu_stream);
    cu_result (*free)(cu_address);
    cu_result (*info)(size_t *, size_t *);
};

static void find(void *library, void *function, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "bench_run: no %s\n", name);
        exit(1);
    }
    memcpy(function, &found, sizeof found);
}

static struct calls calls_of(void *library)
{
    struct calls calls;
    find(library, &calls.init, "cuInit");
    find(library, &calls.retain, "cuDevicePrimaryCtxRetain");
    find(library, &calls.set, "cuCtxSetCurrent");
    find(library, &calls.alloc, "cuMemAlloc_v2");
    find(library, &calls.alloc_ordered, "cuMemAllocAsync");
    find(library, &calls.free, "cuMemFree_v2");
    find(library, &calls.info, "cuMemGetInfo_v2");
    return calls;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

enum kind { ALLOC, LARGE, ORDERED, INFO, FREE_NOTHING, KINDS };
static const char *const names[KINDS] = {"cuMemAlloc or cuMemFree", "the same of 2 MiB",
                                         "cuMemAllocAsync or cuMemFree", "cuMemGetInfo",
                                         "cuMemFree(0)"};
static bool is_charged(enum kind kind)
{
    return kind == ALLOC || kind == LARGE || kind == ORDERED;
}

/* With pools what they change, and without what is not for comparison with that. */
static bool is_pooled;
static bool is_measured(int kind)
{
    return is_pooled ? is_charged((enum kind)kind) : kind != LARGE;
}

/* ns per call. */
static double measure(const struct calls *calls, enum kind kind)
{
    cu_address held[DEEP];
    size_t free_bytes;
    double start = now();
    for (int i = 0; i < PAIRS / DEEP; i++) {
        for (int j = 0; j < DEEP; j++)
            if (kind == ALLOC || kind == LARGE)
                (void)calls->alloc(&held[j], kind == ALLOC ? 4096 : 2 << 20);
            else if (kind == ORDERED)
                (void)calls->alloc_ordered(&held[j], 4096, NULL);
            else if (kind == INFO)
                (void)calls->info(&free_bytes, NULL);
            else
                (void)calls->free(0);
        for (int j = DEEP; j-- > 0 && is_charged(kind);)
            (void)calls->free(held[j]);
    }
    return (now() - start) / (PAIRS / DEEP * DEEP) / (is_charged(kind) ? 2 : 1);
}

static struct {
    struct calls calls[2]; /* the driver's and the shim's */
    cu_context context;
    double results[THREADS_MOST][2][KINDS][RUNS];
} bench;

static void *work(void *argument)
{
    double(*results)[KINDS][RUNS] = argument;
    (void)bench.calls[0].set(bench.context);
    for (int run = 0; run < RUNS; run++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int way = 0; way < 2 && is_measured(kind); way++)
                results[way][kind][run] = measure(&bench.calls[way], kind);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median(double *values)
{
    qsort(values, RUNS, sizeof *values, by_value);
    return values[RUNS / 2];
}

static void report(int threads)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < threads && is_measured(kind); i++) {
            double driver = median(bench.results[i][0][kind]),
                   shim = median(bench.results[i][1][kind]);
            printf("%d thread%s  %-32s driver %6.1f  with %s %6.1f  adds %6.1f ns\n", threads,
                   threads > 1 ? "s" : " ", names[kind], driver,
                   is_pooled ? "--pool  " : "the shim", shim, shim - driver);
        }
}

static void measure_on(int threads)
{
    pthread_t thread[THREADS_MOST];
    for (int i = 0; i < threads; i++)
        pthread_create(&thread[i], NULL, work, bench.results[i]);
    for (int i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    report(threads);
}

/* Again under `tarn run`, on the driver of the tests, without pools and with them. */
static int run_again(void)
{
    char self[4096] = "";
    int status = 0;
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    setenv("LD_LIBRARY_PATH", TARN_FAKE_DRIVER, 1);
    setenv("FAKE_DRIVER_APART", "1", 1);
    for (int with_pools = 0; with_pools < 2 && !status; with_pools++) {
        pid_t child = fork();
        if (child == 0) {
            execl(TARN_PROGRAM_FILE, "tarn", "run", "--quiet", with_pools ? "--pool" : "--",
                  with_pools ? "--" : self, with_pools ? self : NULL, (char *)NULL);
            perror(TARN_PROGRAM_FILE);
            _exit(1);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
            status = 1;
    }
    return status ? 1 : 0;
}

int main(void)
{
    if (!getenv("TARN_RUN_FOLDER"))
        return run_again();
    void *shim = dlopen("libcuda.so.1", RTLD_NOW);
    const char *(*path)(void);
    if (!shim) {
        fprintf(stderr, "bench_run: %s\n", dlerror());
        return 1;
    }
    find(shim, &path, "tarn_run_driver");
    is_pooled = getenv("TARN_RUN_POOL");
    bench.calls[0] = calls_of(dlopen(path(), RTLD_NOW | RTLD_NOLOAD));
    bench.calls[1] = calls_of(shim);
    (void)bench.calls[1].init(0);
    (void)bench.calls[0].retain(&bench.context, 0);
    for (int threads = 1; threads <= THREADS_MOST; threads++)
        measure_on(threads);
    return 0;
}
