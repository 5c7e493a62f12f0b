/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Slots of mixed sizes on several streams: how soon the heaps have the memory that they need, and
 * what a step costs then. Each stream has 256 slots. A step picks one at random: a full slot is
 * freed, an empty one is filled with 256 KiB to 32 MiB. How much a stream has live goes up and
 * down, and at different times in each stream, so idle memory of one stream is often what another
 * is short of.
 *
 * Usage: bench_slots [--turns] [--streams N] [--steps N]
 *
 *   --turns      one thread steps all streams in turn, so that the counts are the same in each run;
 *                otherwise each stream has a thread, and times are printed
 *   --streams N  only with N streams (1, 2, 4 and so on up to 16, or with threads to the number of
 *                processors)
 *   --steps N    of each stream (100,000; with --turns 20,000)
 *
 * Uses the GPU where there is one, otherwise the host device: then TARN_HOST_COSTS names the cost
 * table by which --turns prints the driver's time. Blocks are not touched. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tarn/host.h>
#include <tarn/observe.h>
#include <tarn/tarn.h>
#include <time.h>
#include <unistd.h>

#define MOST_STREAMS 16
#define SLOTS 256
#define WINDOW 1000 /* steps of a stream */
#define MOST_WINDOWS 1000
#define SHOWN 10 /* parts of a run in the table */

struct runner {
    pthread_t thread;
    pthread_barrier_t *barrier;
    tarn_stream stream;
    uint64_t random;
    size_t windows, live, most_live; /* bytes */
    void *slots[SLOTS];
    size_t sizes[SLOTS];
    double ns[MOST_WINDOWS]; /* of a pair: an allocation and its free */
};

/* Since the start of a run: what was mapped, by window of the stream that mapped it. */
static _Thread_local size_t window_here;
static struct {
    atomic_size_t calls, bytes;
} mapped[MOST_WINDOWS];
static uint64_t driver_ns[MOST_WINDOWS + 1]; /* in turns: the driver's time at the beginning of a
                                                window */

static void die(const char *what)
{
    fprintf(stderr, "bench_slots: %s: %s\n", what, tarn_last_error());
    exit(1);
}

static void must(tarn_status status, const char *what)
{
    if (status)
        die(what);
}

static void count(const tarn_mapping *range, void *user)
{
    (void)user;
    atomic_fetch_add_explicit(&mapped[window_here].calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&mapped[window_here].bytes, range->bytes, memory_order_relaxed);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void empty(struct runner *runner, size_t slot)
{
    must(tarn_free(runner->slots[slot]), "tarn_free");
    runner->slots[slot] = NULL;
    runner->live -= runner->sizes[slot];
}

static void step(struct runner *runner)
{
    uint64_t random = random_next(&runner->random);
    size_t slot = (random >> 16) % SLOTS;
    if (runner->slots[slot]) {
        empty(runner, slot);
        return;
    }
    runner->sizes[slot] = (size_t)(256 << 10) << (random >> 40) % 8;
    must(tarn_alloc_on(runner->stream, runner->sizes[slot], &runner->slots[slot]), "tarn_alloc_on");
    runner->live += runner->sizes[slot];
    if (runner->live > runner->most_live)
        runner->most_live = runner->live;
}

static void *run_alone(void *argument)
{
    struct runner *runner = argument;
    pthread_barrier_wait(runner->barrier);
    for (size_t window = 0; window < runner->windows; window++) {
        double start = now();
        window_here = window;
        for (int i = 0; i < WINDOW; i++)
            step(runner);
        runner->ns[window] = 2 * (now() - start) / WINDOW;
    }
    pthread_barrier_wait(runner->barrier);
    return NULL;
}

/* The driver's time by cost table C so far; 0 without a table, and on a GPU. */
static uint64_t driver_time(void)
{
    tarn_host_ledger ledger = {.size = sizeof ledger};
    return tarn_host_ledger_get(0, &ledger) ? 0 : ledger.time_c_ns;
}

static void run_in_turns(struct runner *runners, size_t streams, size_t windows)
{
    driver_ns[0] = driver_time();
    for (size_t window = 0; window < windows; window++) {
        window_here = window;
        for (int i = 0; i < WINDOW; i++)
            for (size_t k = 0; k < streams; k++)
                step(&runners[k]);
        driver_ns[window + 1] = driver_time();
    }
}

static void run_threads(struct runner *runners, size_t streams)
{
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)streams);
    for (size_t k = 0; k < streams; k++) {
        runners[k].barrier = &barrier;
        if (pthread_create(&runners[k].thread, NULL, run_alone, &runners[k]))
            die("no thread");
    }
    for (size_t k = 0; k < streams; k++)
        pthread_join(runners[k].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

static int order(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* A pair's ns in part of a run: the median over the windows of all streams, and the mean. */
static void times(const struct runner *runners, size_t streams, size_t from, size_t to,
                  double *median, double *mean)
{
    static double all[MOST_STREAMS * MOST_WINDOWS];
    size_t known = 0;
    *mean = 0;
    for (size_t k = 0; k < streams; k++)
        for (size_t window = from; window < to; window++) {
            all[known++] = runners[k].ns[window];
            *mean += runners[k].ns[window];
        }
    qsort(all, known, sizeof *all, order);
    *median = all[known / 2];
    *mean /= (double)known;
}

static void show(const struct runner *runners, size_t streams, size_t windows, bool turns)
{
    tarn_stats stats = {.size = sizeof stats};
    size_t most_live = 0, settled = 0;
    for (size_t k = 0; k < streams; k++)
        most_live += runners[k].most_live;
    for (size_t window = 0; window < windows; window++)
        settled = atomic_load(&mapped[window].calls) ? window + 1 : settled;
    must(tarn_device_stats_get(0, &stats), "tarn_device_stats_get");
    double reserved = (double)stats.reserved_bytes[TARN_STAT_ALL].peak;
    printf("%zu streams: reserved %.2f GiB, %.3f of the most that was live, %.3f of the sum of "
           "each stream's most; ",
           streams, reserved / (1 << 30), reserved / (double)stats.active_bytes[TARN_STAT_ALL].peak,
           reserved / (double)most_live);
    printf("last mapped in step %zu\n", settled * WINDOW);
    printf("%16s %20s%s%s\n", "up to step", "MiB mapped in 1,000",
           driver_ns[windows] ? "  driver's us in 1,000" : "",
           turns ? "" : "  ns per pair: median, mean");
    for (size_t part = 0; part < SHOWN; part++) {
        size_t from = windows * part / SHOWN, to = windows * (part + 1) / SHOWN, bytes = 0;
        double median, mean, all = (double)(to - from) * (double)streams; /* windows */
        if (from == to)
            continue;
        for (size_t window = from; window < to; window++)
            bytes += atomic_load(&mapped[window].bytes);
        printf("%16zu %20.1f", to * WINDOW, (double)bytes / (1 << 20) / all);
        if (driver_ns[windows])
            printf(" %21.1f", (double)(driver_ns[to] - driver_ns[from]) / 1e3 / all);
        times(runners, streams, from, to, &median, &mean);
        if (!turns)
            printf(" %17.1f %8.1f", median, mean);
        putchar('\n');
    }
    fflush(stdout);
}

static void measure(size_t streams, size_t windows, bool turns)
{
    static struct runner runners[MOST_STREAMS];
    memset(runners, 0, sizeof runners);
    memset(mapped, 0, sizeof mapped);
    must(tarn_device_stats_reset(0, TARN_STATS_PEAK), "tarn_device_stats_reset");
    for (size_t k = 0; k < streams; k++) {
        runners[k].random = 0x9e3779b97f4a7c15u * (k + 1);
        runners[k].windows = windows;
        must(tarn_stream_shared_get(0, 0, &runners[k].stream), "tarn_stream_shared_get");
    }
    if (turns)
        run_in_turns(runners, streams, windows);
    else
        run_threads(runners, streams);
    show(runners, streams, windows, turns);
    for (size_t k = 0; k < streams; k++)
        for (size_t slot = 0; slot < SLOTS; slot++)
            if (runners[k].slots[slot])
                empty(&runners[k], slot);
    must(tarn_device_synchronize(0), "tarn_device_synchronize");
    must(tarn_device_trim(0, 0), "tarn_device_trim");
}

static size_t number(const char *text, size_t most)
{
    char *end = NULL;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    if (!value || *end || value > most) {
        fprintf(stderr, "bench_slots: a number from 1 to %zu is expected\n", most);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    size_t only = 0, steps = 0;
    bool turns = false;
    tarn_observer observer;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--turns")) {
            turns = true;
        } else if (!strcmp(argv[i], "--streams")) {
            only = number(argv[++i], MOST_STREAMS);
        } else if (!strcmp(argv[i], "--steps")) {
            steps = number(argv[++i], (size_t)MOST_WINDOWS * WINDOW);
        } else {
            fprintf(stderr, "usage: bench_slots [--turns] [--streams N] [--steps N]\n");
            return 2;
        }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t most = turns || cores > MOST_STREAMS ? MOST_STREAMS : (size_t)(cores < 1 ? 1 : cores);
    size_t windows = ((steps ? steps : turns ? 20000 : 100000) + WINDOW - 1) / WINDOW;
    must(tarn_device_set(0), "tarn_device_set");
    must(tarn_observer_add(
             &(tarn_observer_options){.size = sizeof(tarn_observer_options), .mapped = count},
             &observer),
         "tarn_observer_add");
    printf("256 slots per stream, 256 KiB to 32 MiB; a step is an allocation or a free\n");
    for (size_t streams = only ? only : 1; streams <= (only ? only : most); streams *= 2)
        measure(streams, windows, turns);
    must(tarn_observer_remove(observer), "tarn_observer_remove");
    return 0;
}
