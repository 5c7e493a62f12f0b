/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a get costs: stream unchanged, changed at every get, the same with a workspace; on 1 and on
 * 2 threads. The library is opened at run time, as by a program that was not linked with it, and
 * its vendor is a set of empty functions: so what is measured is tarn. Nothing in it waits, so the
 * clock is the thread's processor time, which other programs disturb less. Median of 9 runs, ns a
 * get; for threads the slower one, beside a loop of pure computation on as many, to tell how much
 * of the time is the machine. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <time.h>

#define RUNS 9
#define THREADS 2

static struct {
    tarn_status (*library_register)(const tarn_library_row *, tarn_library *);
    tarn_status (*handle_get)(tarn_library, tarn_stream, void **);
    tarn_status (*stream_shared_get)(int, int, tarn_stream *);
    tarn_status (*stream_set)(tarn_stream);
    tarn_status (*host_configuration_set)(const tarn_host_configuration *);
    const char *(*last_error)(void);
} tarn;

/* The vendor ----------------------------------------------------------------------------------- */

static int create(void **handle)
{
    return (*handle = malloc(16)) ? 0 : 1;
}

static int destroy(void *handle)
{
    free(handle);
    return 0;
}

static int set_stream(void *handle, void *stream)
{
    memcpy(handle, &stream, sizeof stream);
    return 0;
}

static int set_workspace(void *handle, void *pointer, size_t size)
{
    (void)size;
    memcpy((char *)handle + 8, &pointer, sizeof pointer);
    return 0;
}

/* Measuring ------------------------------------------------------------------------------------ */

enum kind { UNCHANGED, UNCHANGED_ON, CHANGED, CHANGED_ON, SET_ALONE, COMPUTE, KINDS };
static const char *const names[KINDS] = {
    [UNCHANGED] = "get, stream unchanged",
    [UNCHANGED_ON] = "get_on, stream unchanged",
    [CHANGED] = "stream_set and get, stream changed",
    [CHANGED_ON] = "get_on, stream changed",
    [SET_ALONE] = "stream_set alone",
    [COMPUTE] = "computation, control",
};

static tarn_library plain, with_workspace;
static tarn_stream streams[2];
static volatile uintptr_t sink;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void must(tarn_status status)
{
    if (status) {
        fprintf(stderr, "bench_handle: %s\n", tarn.last_error());
        exit(1);
    }
}

struct work {
    enum kind kind;
    tarn_library library;
    pthread_barrier_t *barrier;
    double ns; /* a get */
};

static void loop(enum kind kind, tarn_library library, int count)
{
    void *handle = NULL;
    uintptr_t sum = 0;
    for (int i = 0; i < count; i++) {
        switch (kind) {
        case UNCHANGED:
            tarn.handle_get(library, TARN_STREAM_CURRENT, &handle);
            break;
        case UNCHANGED_ON:
            tarn.handle_get(library, streams[0], &handle);
            break;
        case CHANGED:
            tarn.stream_set(streams[i & 1]);
            tarn.handle_get(library, TARN_STREAM_CURRENT, &handle);
            break;
        case CHANGED_ON:
            tarn.handle_get(library, streams[i & 1], &handle);
            break;
        case SET_ALONE:
            tarn.stream_set(streams[i & 1]);
            break;
        default:
            for (int j = 0; j < 8; j++)
                sum = sum * 31 + (uintptr_t)j + sink;
        }
        sum += (uintptr_t)handle;
    }
    sink = sum;
}

static void *run(void *argument)
{
    struct work *work = argument;
    const int count = work->kind == CHANGED || work->kind == CHANGED_ON ? 1000000 : 10000000;
    void *handle;
    must(tarn.stream_set(streams[0]));
    must(tarn.handle_get(work->library, TARN_STREAM_CURRENT, &handle));
    must(tarn.handle_get(work->library, streams[1], &handle));
    must(tarn.handle_get(work->library, streams[0], &handle));
    pthread_barrier_wait(work->barrier);
    double start = now();
    loop(work->kind, work->library, count);
    work->ns = (now() - start) / count;
    return NULL;
}

static int order(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The median over runs of the slowest thread. */
static double measure(enum kind kind, tarn_library library, int threads)
{
    double runs[RUNS];
    for (int i = 0; i < RUNS; i++) {
        pthread_barrier_t barrier;
        pthread_t thread[THREADS];
        struct work work[THREADS];
        pthread_barrier_init(&barrier, NULL, (unsigned)threads);
        for (int t = 0; t < threads; t++) {
            work[t] = (struct work){.kind = kind, .library = library, .barrier = &barrier};
            if (pthread_create(&thread[t], NULL, run, &work[t]))
                exit(1);
        }
        runs[i] = 0;
        for (int t = 0; t < threads; t++) {
            pthread_join(thread[t], NULL);
            if (work[t].ns > runs[i])
                runs[i] = work[t].ns;
        }
        pthread_barrier_destroy(&barrier);
    }
    qsort(runs, RUNS, sizeof *runs, order);
    return runs[RUNS / 2];
}

static void load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "bench_handle: %s\n", dlerror());
        exit(1);
    }
#define LOAD(name)                                                 \
    if (!(*(void **)&tarn.name = dlsym(library, "tarn_" #name))) { \
        fprintf(stderr, "bench_handle: %s\n", dlerror());          \
        exit(1);                                                   \
    }
    LOAD(library_register)
    LOAD(handle_get)
    LOAD(stream_shared_get)
    LOAD(stream_set)
    LOAD(host_configuration_set)
    LOAD(last_error)
}

int main(int argc, char **argv)
{
    tarn_library_row row = {.size = sizeof row,
                            .name = "bench",
                            .create = create,
                            .destroy = destroy,
                            .set_stream = set_stream};
    const tarn_host_configuration config = {
        .size = sizeof config, .devices = 1, .memory = (size_t)1 << 30};
    load(argc > 1 ? argv[1] : TARN_LIBRARY);
    must(tarn.host_configuration_set(&config));
    must(tarn.library_register(&row, &plain));
    row.name = "bench_workspace";
    row.set_workspace = set_workspace;
    must(tarn.library_register(&row, &with_workspace));
    must(tarn.stream_shared_get(0, 0, &streams[0]));
    must(tarn.stream_shared_get(0, 0, &streams[1]));

    printf("%-46s %10s %10s\n", "ns", "1 thread", "2 threads");
    for (int kind = 0; kind < KINDS; kind++)
        printf("%-46s %10.2f %10.2f\n", names[kind], measure((enum kind)kind, plain, 1),
               measure((enum kind)kind, plain, 2));
    printf("%-46s %10.2f %10.2f\n", "get, stream unchanged, with a workspace",
           measure(UNCHANGED, with_workspace, 1), measure(UNCHANGED, with_workspace, 2));
    printf("%-46s %10.2f %10.2f\n", "get_on, stream changed, with a workspace",
           measure(CHANGED_ON, with_workspace, 1), measure(CHANGED_ON, with_workspace, 2));
    return 0;
}
