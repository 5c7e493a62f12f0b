/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What an allocation and its free cost from one to 16 threads, each with a stream of its own or all
 * with one: tarn, the driver's own pools (cudaMallocAsync) and, where GPU_TORCH names the library
 * that scripts/gpu-check compiles, PyTorch's caching allocator. It checks that nothing fails and
 * that tarn's statistics are exact at rest; speed is printed and written to threads.csv. It
 * also times single calls with slots. Their quantiles, with tarn's trace off and on, are printed
 * and written to threads-tails.csv; they include what reading the clock takes. */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 16
#define COUNTS 5 /* 1, 2, 4, 8, 16 */
#define ROUNDS 3
#define RUN_NS 10000000 /* of each thread, at the least */
#define PAIR_STEPS 4000 /* before that */
/* Before the slots have the memory that they need, memory is mapped all the time. */
#define SLOT_STEPS 50000
#define SLOT_NS 150000000
#define SLOT_MOST_NS 500000000u
#define SLOTS 256
#define STEPS 64 /* between two looks at the clock */
#define TAILS_NS 100000000
#define SAMPLES 100000 /* at most, of calls of one kind and thread */

static const char *const name = "threads";

struct allocator {
    const char *name;
    void *(*alloc)(size_t size, tarn_stream stream, cu_stream native);
    bool (*free)(void *block, cu_stream native);
    void (*thread)(void); /* or NULL: what a thread does first */
    void (*trim)(void);
    bool traces;
};

/* How long single calls took; those after the first SAMPLES are left out. */
struct tails {
    uint32_t count, ns[SAMPLES];
};

enum call { ALLOC, FREE, CALLS };

static tarn_stream streams[MOST_THREADS];
static cu_stream natives[MOST_THREADS];
static _Thread_local bool timed;  /* this thread is being timed, */
static atomic_ulong mapped_timed; /* and so often tarn mapped memory then: the heaps had not come to
                                     rest */
static void *(*torch_alloc)(size_t size, void *stream);
static void (*torch_free)(void *block), (*torch_thread)(void), (*torch_trim)(void);

static void count_mapped(const tarn_mapping *range, void *user)
{
    (void)range;
    (void)user;
    if (timed)
        atomic_fetch_add(&mapped_timed, 1);
}

/* ---- The allocators ---- */

static void *of_tarn(size_t size, tarn_stream stream, cu_stream native)
{
    void *block = NULL;
    (void)native;
    return tarn_alloc_on(stream, size, &block) ? NULL : block;
}

static bool to_tarn(void *block, cu_stream native)
{
    (void)native;
    return tarn_free(block) == TARN_OK;
}

static void trim_tarn(void)
{
    (void)OK(name, tarn_device_synchronize(0));
    (void)OK(name, tarn_device_trim(0, 0));
}

static void *of_driver(size_t size, tarn_stream stream, cu_stream native)
{
    cu_address address = 0;
    (void)stream;
    return gpu.cuMemAllocAsync(&address, size, native) ? NULL : (void *)(uintptr_t)address;
}

static bool to_driver(void *block, cu_stream native)
{
    return gpu.cuMemFreeAsync((uintptr_t)block, native) == CU_OK;
}

/* Calls of the driver that need a current context: tarn's, the primary one. */
static void thread_of_driver(void)
{
    (void)OK(name, tarn_device_set(0));
}

static void *pool_of_driver;
static int (*pool_attribute_set)(void *pool, int attribute, void *value);
static int (*pool_trim_to)(void *pool, size_t keep);

static void trim_driver(void)
{
    (void)OK(name, tarn_device_synchronize(0));
    if (pool_of_driver && pool_trim_to)
        (void)pool_trim_to(pool_of_driver, 0);
}

/* Has the driver's pool keep what is freed, as the others do: as it comes it gives all back at each
 * wait. */
static void keep_in_driver(void)
{
    enum { RELEASE_THRESHOLD = 4 };
    int (*pool_get)(void **pool, int device) = NULL;
    uint64_t all = UINT64_MAX;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "cuDeviceGetDefaultMemPool") : NULL;
    memcpy(&pool_get, &found, sizeof found);
    found = library ? dlsym(library, "cuMemPoolSetAttribute") : NULL;
    memcpy(&pool_attribute_set, &found, sizeof found);
    found = library ? dlsym(library, "cuMemPoolTrimTo") : NULL;
    memcpy(&pool_trim_to, &found, sizeof found);
    if (!pool_get || !pool_attribute_set || pool_get(&pool_of_driver, 0) ||
        pool_attribute_set(pool_of_driver, RELEASE_THRESHOLD, &all))
        gpu_say(GPU_NOTE, name, "the driver's pool does not keep what is freed");
}

static void *of_torch(size_t size, tarn_stream stream, cu_stream native)
{
    (void)stream;
    return torch_alloc(size, native);
}

static bool to_torch(void *block, cu_stream native)
{
    (void)native;
    torch_free(block);
    return true;
}

static bool torch_open(void)
{
    const char *path = getenv("GPU_TORCH");
    bool (*start)(void) = NULL;
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const char *why = path && *path ? (library ? NULL : dlerror()) : "GPU_TORCH names no library";
    const struct {
        const char *symbol;
        void *to;
    } calls[] = {{"torch_start", &start},
                 {"torch_alloc", &torch_alloc},
                 {"torch_free", &torch_free},
                 {"torch_thread", &torch_thread},
                 {"torch_trim", &torch_trim}};
    for (size_t i = 0; library && i < COUNT(calls); i++) {
        void *found = dlsym(library, calls[i].symbol);
        if (!found)
            why = dlerror();
        memcpy(calls[i].to, &found, sizeof found);
    }
    if (!why && !start())
        why = "it does not start";
    if (why)
        gpu_say(GPU_SKIP, "threads, PyTorch", "%s", why);
    return !why;
}

/* ---- The runs ---- */

struct work {
    const char *name;
    size_t size; /* of a pair; 0: random slots of 256 KiB to 32 MiB */
};

struct runner {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const struct allocator *allocator;
    const struct work *work;
    int number, stream;
    uint64_t random;
    void *slots[SLOTS];
    double ns;
    struct tails *tails; /* for each kind of call; NULL while only the sum is timed */
    bool failed;
};

static void pairs(struct runner *runner)
{
    for (int i = 0; i < STEPS / 2; i++) {
        void *block = runner->allocator->alloc(runner->work->size, streams[runner->stream],
                                               natives[runner->stream]);
        if (!block || !runner->allocator->free(block, natives[runner->stream]))
            runner->failed = true;
    }
}

static void note_call(struct tails *tails, uint64_t ns)
{
    if (tails->count < SAMPLES)
        tails->ns[tails->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static void slots(struct runner *runner)
{
    for (int i = 0; i < STEPS; i++) {
        uint64_t random = gpu_random(&runner->random), start = runner->tails ? gpu_ns() : 0;
        void **slot = &runner->slots[(random >> 16) % SLOTS];
        enum call call = *slot ? FREE : ALLOC;
        if (call == FREE) {
            if (!runner->allocator->free(*slot, natives[runner->stream]))
                runner->failed = true;
            *slot = NULL;
        } else {
            size_t size = (size_t)(256 << 10) << (random >> 40) % 8;
            *slot =
                runner->allocator->alloc(size, streams[runner->stream], natives[runner->stream]);
            if (!*slot)
                runner->failed = true;
        }
        if (runner->tails)
            note_call(&runner->tails[call], gpu_ns() - start);
    }
}

/* ns a pair, of at least so many steps unless they take too long. */
static double run_for(struct runner *runner, uint64_t ns, size_t least)
{
    uint64_t start = gpu_ns(), now = start;
    size_t steps = 0;
    for (; (now - start < ns || (steps < least && now - start < SLOT_MOST_NS)) && !runner->failed;
         now = gpu_ns(), steps += STEPS)
        if (runner->work->size)
            pairs(runner);
        else
            slots(runner);
    return 2 * (double)(now - start) / (double)(steps ? steps : 1);
}

/* The tails of each thread; NULL while only sums are timed. */
static struct tails (*tails_of)[CALLS];

static void *run(void *argument)
{
    struct runner *runner = argument;
    if (runner->allocator->thread)
        runner->allocator->thread();
    (void)(runner->work->size ? run_for(runner, RUN_NS, PAIR_STEPS)
                              : run_for(runner, SLOT_NS, SLOT_STEPS));
    pthread_barrier_wait(runner->barrier);
    timed = true;
    runner->ns = run_for(runner, RUN_NS, 0);
    timed = false;
    pthread_barrier_wait(runner->barrier);
    if (tails_of) {
        runner->tails = tails_of[runner->number];
        (void)run_for(runner, TAILS_NS, 0);
        pthread_barrier_wait(runner->barrier);
    }
    for (int i = 0; i < SLOTS; i++)
        if (runner->slots[i] && !runner->allocator->free(runner->slots[i], natives[runner->stream]))
            runner->failed = true;
    return NULL;
}

/* The mean over the threads; 0 where something failed. */
static double run_all(const struct allocator *allocator, const struct work *work, int threads,
                      bool own)
{
    static struct runner runners[MOST_THREADS];
    pthread_barrier_t barrier;
    double sum = 0;
    bool failed = false;
    int started = 0;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (; started < threads; started++) {
        runners[started] = (struct runner){.barrier = &barrier,
                                           .allocator = allocator,
                                           .work = work,
                                           .number = started,
                                           .stream = own ? started : 0,
                                           .random = 0x9e3779b97f4a7c15u + (uint64_t)started};
        if (pthread_create(&runners[started].thread, NULL, run, &runners[started])) {
            gpu_say(GPU_FAIL, name, "no thread");
            exit(GPU_FAILED); /* those before wait for it */
        }
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(runners[i].thread, NULL);
        sum += runners[i].ns;
        failed = failed || runners[i].failed;
    }
    pthread_barrier_destroy(&barrier);
    return failed ? 0 : sum / threads;
}

static int order(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static int order_ns(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* Prints quantiles of all threads' calls. */
static void print_tails(const struct allocator *allocator, bool own, int threads, void *results)
{
    static const double quantiles[] = {0.5, 0.99, 0.999};
    static uint32_t all[MOST_THREADS * SAMPLES];
    printf("        %-16s %s  %2d", allocator->name, own ? "own stream" : "one stream", threads);
    fprintf(results, "%s,%s,%d", allocator->name, own ? "own" : "one", threads);
    for (enum call call = ALLOC; call < CALLS; call++) {
        size_t count = 0;
        for (int i = 0; i < threads; i++) {
            const struct tails *tails = &tails_of[i][call];
            memcpy(all + count, tails->ns, tails->count * sizeof *all);
            count += tails->count;
        }
        qsort(all, count, sizeof *all, order_ns);
        for (size_t i = 0; i < COUNT(quantiles); i++) {
            uint32_t ns = count ? all[(size_t)((double)(count - 1) * quantiles[i])] : 0;
            printf("  %9u", ns);
            fprintf(results, ",%u", ns);
        }
    }
    putchar('\n');
    fputc('\n', results);
    fflush(stdout);
}

static void measure_tails(const struct allocator *allocator, const struct work *work, bool own,
                          int most, void *results)
{
    static struct tails tails[MOST_THREADS][CALLS];
    if (allocator->traces && !OK(name, tarn_trace_start(NULL)))
        return;
    for (int threads = 1; threads <= most; threads *= 2) {
        for (int i = 0; i < threads; i++)
            tails[i][ALLOC].count = tails[i][FREE].count = 0;
        tails_of = tails;
        if (run_all(allocator, work, threads, own) == 0)
            gpu_say(GPU_FAIL, name, "%s, %d threads: a call failed", allocator->name, threads);
        print_tails(allocator, own, threads, results);
    }
    tails_of = NULL;
    if (allocator->traces)
        (void)OK(name, tarn_trace_stop());
    allocator->trim();
}

static void measure(const struct allocator *allocator, const struct work *work, bool own, int most,
                    void *results)
{
    char line[256];
    int length = snprintf(line, sizeof line, "%-26s %-16s %s", work->name, allocator->name,
                          own ? "own stream" : "one stream");
    for (int threads = 1; threads <= most; threads *= 2) {
        double times[ROUNDS];
        unsigned long mapped = atomic_load(&mapped_timed);
        for (int round = 0; round < ROUNDS; round++)
            times[round] = run_all(allocator, work, threads, own);
        qsort(times, ROUNDS, sizeof *times, order);
        mapped = atomic_load(&mapped_timed) - mapped;
        if (mapped)
            gpu_say(GPU_NOTE, name,
                    "%s, %d threads: memory was mapped %lu times while it was timed", work->name,
                    threads, mapped);
        if (times[0] == 0)
            gpu_say(GPU_FAIL, name, "%s, %s, %d threads: a call failed", allocator->name,
                    work->name, threads);
        length +=
            snprintf(line + length, sizeof line - (size_t)length, "  %9.1f", times[ROUNDS / 2]);
        fprintf(results, "%s,%s,%s,%d,%.1f,%.1f,%.1f\n", work->name, allocator->name,
                own ? "own" : "one", threads, times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
    }
    allocator->trim();
    printf("        %s\n", line);
    fflush(stdout);
}

/* Nothing is live now, and all that was taken was freed. */
static void check_statistics(void)
{
    tarn_stats stats = {.size = sizeof stats};
    if (!OK(name, tarn_device_stats_get(0, &stats)))
        return;
    bool exact = true;
    for (int class = 0; class < TARN_STAT_CLASSES; class ++)
        exact = exact && !stats.allocation[class].current &&
                !stats.allocated_bytes[class].current && !stats.requested_bytes[class].current &&
                stats.allocation[class].allocated == stats.allocation[class].freed;
    gpu_say(exact ? GPU_PASS : GPU_FAIL, "threads, statistics at rest",
            "%lld blocks were allocated", (long long)stats.allocation[TARN_STAT_ALL].allocated);
}

int main(void)
{
    static const struct work works[] = {
        {"pair, 4 KiB", 4096},      {"pair, 256 KiB", 256 << 10},    {"pair, 2 MiB", 2 << 20},
        {"pair, 32 MiB", 32 << 20}, {"slots, 256 KiB to 32 MiB", 0},
    };
    struct allocator allocators[4] = {{"tarn", of_tarn, to_tarn, NULL, trim_tarn, false}};
    size_t count = 1;
    int status = gpu_start();
    if (status)
        return status;
    tarn_observer_options counting = {
        .size = sizeof counting, .device = TARN_ALL_DEVICES, .mapped = count_mapped};
    tarn_observer observer;
    if (!OK(name, tarn_observer_add(&counting, &observer)))
        return gpu_end();
    for (int i = 0; i < MOST_THREADS; i++) {
        if (!OK(name, tarn_stream_shared_get(0, 0, &streams[i])))
            return gpu_end();
        natives[i] = gpu_native(streams[i]);
    }
    if (gpu.cuMemAllocAsync && gpu.cuMemFreeAsync && !gpu_is_simulated) {
        keep_in_driver();
        allocators[count++] = (struct allocator){"cudaMallocAsync", of_driver,   to_driver,
                                                 thread_of_driver,  trim_driver, false};
    }
    if (!gpu_is_simulated && torch_open())
        allocators[count++] =
            (struct allocator){"PyTorch", of_torch, to_torch, torch_thread, torch_trim, false};

    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores > MOST_THREADS ? MOST_THREADS : (int)(cores < 2 ? 2 : cores);
    FILE *results = gpu_results_open("threads.csv");
    if (!results)
        return gpu_end();
    fprintf(results, "work,allocator,streams,threads,lowest_ns,median_ns,highest_ns\n");
    printf("        ns for an allocation and its free, by the number of threads, median of %d "
           "rounds\n        %-54s",
           ROUNDS, "");
    for (int threads = 1; threads <= most; threads *= 2)
        printf("  %9d", threads);
    putchar('\n');
    for (size_t work = 0; work < COUNT(works); work++)
        for (int own = 1; own >= 0; own--)
            for (size_t i = 0; i < count; i++)
                measure(&allocators[i], &works[work], own, most, results);
    fclose(results);

    results = gpu_results_open("threads-tails.csv");
    if (!results)
        return gpu_end();
    fprintf(results, "allocator,streams,threads,alloc_p50,alloc_p99,alloc_p999,free_p50,free_p99,"
                     "free_p999\n");
    printf("        ns of single calls, slots of 256 KiB to 32 MiB\n        %-27s threads"
           "  alloc p50        p99      p99.9   free p50        p99      p99.9\n",
           "");
    allocators[count++] =
        (struct allocator){"tarn with trace", of_tarn, to_tarn, NULL, trim_tarn, true};
    for (int own = 1; own >= 0; own--)
        for (size_t i = 0; i < count; i++)
            measure_tails(&allocators[i], &works[COUNT(works) - 1], own, most, results);
    fclose(results);
    check_statistics();
    (void)OK(name, tarn_observer_remove(observer));
    return gpu_end();
}
