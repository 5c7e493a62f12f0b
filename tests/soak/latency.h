/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Latencies: how often a call took how long, in ticks of the processor's counter, to 3 %. A
 * histogram has one writer. */
#ifndef SOAK_LATENCY_H
#define SOAK_LATENCY_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

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
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
#endif

#define LATENCY_STEPS 32 /* of each power of two */
#define LATENCY_BUCKETS (60 * LATENCY_STEPS)

struct latency {
    uint64_t counts[LATENCY_BUCKETS];
    uint64_t most; /* ticks */
};

/* Below 64 ticks each has a bucket of its own; above, the bucket is the power of two and the five
 * bits that follow. */
static inline void latency_note(struct latency *latency, uint64_t value)
{
    int power = 63 - __builtin_clzll(value | 1);
    size_t bucket = value < 2 * LATENCY_STEPS
                        ? value
                        : (size_t)(power - 5) * LATENCY_STEPS + (value >> (power - 5));
    latency->counts[bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1]++;
    if (value > latency->most)
        latency->most = value;
}

/* Adds one to another. */
void latency_add(struct latency *sum, const struct latency *latency);
uint64_t latency_count(const struct latency *latency);
/* The ticks below which `part` of the calls took, in ns, less what reading the counter takes; of 1:
 * the longest. */
double latency_ns(const struct latency *latency, double part);

/* Measures the counter. */
void latency_start(void);
/* What reading the counter takes, in ns. */
double latency_overhead(void);

double clock_seconds(void);

#endif
