/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How long single calls take: each is timed by itself, with the processor's counter where there is
 * one. What reading the clock takes is subtracted; the machine's own interruptions are not. On one
 * thread, and on 1 to 16 threads that each have a stream of their own, with tarn's trace off and
 * on. */
#include "measure.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATENCY_ROUNDS 25
#define WARM_ROUNDS 10 /* until a thread's heap has the memory that it needs */
#define MOST_THREADS 16

#if defined(__x86_64__)
#include <x86intrin.h>

static inline uint64_t ticks(void)
{
    unsigned processor;
    return __rdtscp(&processor); /* waits for what is before it */
}
#else
static inline uint64_t ticks(void)
{
    return (uint64_t)clock_ns(CLOCK_MONOTONIC);
}
#endif

static double ns_a_tick(void)
{
    double start = clock_ns(CLOCK_MONOTONIC), end = start;
    uint64_t first = ticks();
    while (end - start < 20e6)
        end = clock_ns(CLOCK_MONOTONIC);
    return (end - start) / (double)(ticks() - first);
}

static double clock_cost(double scale)
{
    enum { TIMES = 10001 };
    static double costs[TIMES];
    for (int i = 0; i < TIMES; i++) {
        uint64_t before = ticks();
        costs[i] = (double)(ticks() - before) * scale;
    }
    return median(costs, TIMES);
}

struct latencies {
    double *allocs, *frees;
    size_t alloc_count, free_count;
};

static void run(const struct peer *peer, const struct sequence *sequence, void **slots,
                double scale, struct latencies *latencies)
{
    for (size_t i = 0; i < sequence->count; i++) {
        const struct step *step = &sequence->steps[i];
        void **slot = &slots[step->slot], *block = *slot;
        uint64_t before, after;
        if (block) {
            before = ticks();
            peer_free(peer, block);
            after = ticks();
            *slot = NULL;
            latencies->frees[latencies->free_count++] = (double)(after - before) * scale;
            continue;
        }
        before = ticks();
        *slot = peer->alloc(step->size);
        after = ticks();
        if (!*slot)
            die(peer->name, "no memory");
        latencies->allocs[latencies->alloc_count++] = (double)(after - before) * scale;
    }
    for (size_t i = 0; i < sequence->slots; i++) {
        if (slots[i])
            peer_free(peer, slots[i]);
        slots[i] = NULL;
    }
}

static void print_parts(double *values, size_t count, double cost)
{
    static const double parts[] = {0.5, 0.99, 0.999};
    sort(values, count);
    for (size_t i = 0; i < 3; i++) {
        double value = percentile(values, count, parts[i]) - cost;
        printf("  %9.0f", value > 0 ? value : 0);
    }
}

static void print(const char *name, const char *call, double *values, size_t count, double cost)
{
    printf("%-10s %-6s", name, call);
    print_parts(values, count, cost);
    putchar('\n');
}

static struct latencies latencies_make(size_t most)
{
    struct latencies latencies = {malloc(most * sizeof(double)), malloc(most * sizeof(double)), 0,
                                  0};
    if (!latencies.allocs || !latencies.frees)
        die("malloc", "no memory for latencies");
    return latencies;
}

void bench_latencies(const struct sequence *sequence)
{
    double scale = ns_a_tick(), cost = clock_cost(scale);
    size_t most = LATENCY_ROUNDS * sequence->count;
    printf("\nLatencies, %s: ns a call\n%-17s  %9s  %9s  %9s\n", sequence->name, "", "p50", "p99",
           "p99.9");
    for (size_t i = 0; i < peer_count; i++) {
        struct latencies latencies = latencies_make(most);
        void **slots = slots_make(sequence);
        (void)sequence_run(&peers[i], sequence, slots, false, CLOCK_MONOTONIC); /* warm */
        for (int round = 0; round < LATENCY_ROUNDS; round++)
            run(&peers[i], sequence, slots, scale, &latencies);
        print(peers[i].name, "alloc", latencies.allocs, latencies.alloc_count, cost);
        print(peers[i].name, "free", latencies.frees, latencies.free_count, cost);
        free(slots);
        free(latencies.allocs);
        free(latencies.frees);
    }
}

/* By the number of threads --------------------------------------------------------------------- */

struct caller {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const struct peer *peer;
    const struct sequence *sequence;
    int stream;
    double scale; /* ns per tick */
    struct latencies latencies;
};

static void *call(void *argument)
{
    struct caller *caller = argument;
    void **slots = slots_make(caller->sequence);
    if (caller->peer->stream_use)
        caller->peer->stream_use(caller->stream);
    for (int round = 0; round < WARM_ROUNDS; round++)
        (void)sequence_run(caller->peer, caller->sequence, slots, false, CLOCK_MONOTONIC);
    pthread_barrier_wait(caller->barrier);
    for (int round = 0; round < LATENCY_ROUNDS; round++)
        run(caller->peer, caller->sequence, slots, caller->scale, &caller->latencies);
    pthread_barrier_wait(caller->barrier); /* nobody is alone before all have ended */
    free(slots);
    return NULL;
}

/* Adds one thread's latencies behind those of the others. */
static void gather(struct latencies *all, struct latencies *one)
{
    memcpy(all->allocs + all->alloc_count, one->allocs, one->alloc_count * sizeof(double));
    memcpy(all->frees + all->free_count, one->frees, one->free_count * sizeof(double));
    all->alloc_count += one->alloc_count;
    all->free_count += one->free_count;
    free(one->allocs);
    free(one->frees);
}

static struct latencies call_all(const struct peer *peer, const struct sequence *sequence,
                                 int threads, double scale)
{
    static struct caller callers[MOST_THREADS];
    size_t most = LATENCY_ROUNDS * sequence->count;
    struct latencies all = latencies_make((size_t)threads * most);
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        callers[i] = (struct caller){.barrier = &barrier,
                                     .peer = peer,
                                     .sequence = sequence,
                                     .stream = i,
                                     .scale = scale,
                                     .latencies = latencies_make(most)};
        if (pthread_create(&callers[i].thread, NULL, call, &callers[i]))
            die("pthread_create", "failed");
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(callers[i].thread, NULL);
        gather(&all, &callers[i].latencies);
    }
    pthread_barrier_destroy(&barrier);
    return all;
}

static void spread(const char *name, struct sequence sequence, int most, double scale, double cost)
{
    printf("\nLatencies by the number of threads, %s: ns a call\n%-21s %7s", name, "", "threads");
    for (int i = 0; i < 2; i++)
        printf("  %9s  %9s  %9s", i ? "free p50" : "alloc p50", "p99", "p99.9");
    putchar('\n');
    for (size_t i = 0; i < peer_count; i++)
        for (int traced = 0; traced < (peers[i].trace_set ? 2 : 1); traced++)
            for (int threads = 1; threads <= most; threads *= 2) {
                if (peers[i].trace_set)
                    peers[i].trace_set(traced);
                struct latencies all = call_all(&peers[i], &sequence, threads, scale);
                printf("%-10s %-10s %7d", peers[i].name,
                       !peers[i].trace_set ? ""
                       : traced            ? "trace on"
                                           : "trace off",
                       threads);
                print_parts(all.allocs, all.alloc_count, cost);
                print_parts(all.frees, all.free_count, cost);
                putchar('\n');
                free(all.allocs);
                free(all.frees);
                if (peers[i].trace_set)
                    peers[i].trace_set(false);
            }
    sequence_finish(&sequence);
}

void bench_spread(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores < 2 ? 2 : cores > MOST_THREADS ? MOST_THREADS : (int)cores;
    double scale = ns_a_tick(), cost = clock_cost(scale);
    spread("256 random slots", sequence_random(), most, scale, cost);
    spread("slots, 256 KiB to 32 MiB", sequence_random_large(), most, scale, cost);
}
