/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How long single calls take: each is timed by itself, with the processor's counter where there is
 * one. What reading the clock takes is subtracted; the machine's own interruptions are not. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

#define LATENCY_ROUNDS 25

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

static void print(const char *name, const char *call, double *values, size_t count, double cost)
{
    static const double parts[] = {0.5, 0.99, 0.999};
    sort(values, count);
    printf("%-10s %-6s", name, call);
    for (size_t i = 0; i < 3; i++) {
        double value = percentile(values, count, parts[i]) - cost;
        printf("  %9.0f", value > 0 ? value : 0);
    }
    putchar('\n');
}

void bench_latencies(const struct sequence *sequence)
{
    double scale = ns_a_tick(), cost = clock_cost(scale);
    size_t most = LATENCY_ROUNDS * sequence->count;
    printf("\nLatencies, %s: ns a call\n%-17s  %9s  %9s  %9s\n", sequence->name, "", "p50", "p99",
           "p99.9");
    for (size_t i = 0; i < peer_count; i++) {
        struct latencies latencies = {malloc(most * sizeof(double)), malloc(most * sizeof(double)),
                                      0, 0};
        void **slots = slots_make(sequence);
        if (!latencies.allocs || !latencies.frees)
            die("malloc", "no memory for latencies");
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
