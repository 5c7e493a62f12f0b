/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "latency.h"

static double ns_a_tick;
static uint64_t overhead; /* ticks between two readings, the median of many */

double clock_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void latency_add(struct latency *sum, const struct latency *latency)
{
    for (size_t i = 0; i < LATENCY_BUCKETS; i++)
        sum->counts[i] += latency->counts[i];
    if (latency->most > sum->most)
        sum->most = latency->most;
}

uint64_t latency_count(const struct latency *latency)
{
    uint64_t count = 0;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++)
        count += latency->counts[i];
    return count;
}

/* The least value of a bucket. */
static uint64_t least(size_t bucket)
{
    if (bucket < 2 * LATENCY_STEPS)
        return bucket;
    size_t shift = bucket / LATENCY_STEPS - 1;
    return (uint64_t)(bucket % LATENCY_STEPS + LATENCY_STEPS) << shift;
}

static uint64_t value_at(const struct latency *latency, double part)
{
    uint64_t wanted = (uint64_t)(part * (double)latency_count(latency)), seen = 0;
    if (part >= 1)
        return latency->most;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        seen += latency->counts[i];
        if (seen > wanted)
            return least(i);
    }
    return latency->most;
}

double latency_ns(const struct latency *latency, double part)
{
    uint64_t value = value_at(latency, part);
    return value > overhead ? (double)(value - overhead) * ns_a_tick : 0;
}

double latency_overhead(void)
{
    return (double)overhead * ns_a_tick;
}

void latency_start(void)
{
    static struct latency empty;
    double start = clock_seconds(), end = start;
    uint64_t first = ticks();
    while (end - start < 0.05)
        end = clock_seconds();
    ns_a_tick = (end - start) * 1e9 / (double)(ticks() - first);
    for (int i = 0; i < 100000; i++) {
        uint64_t before = ticks();
        latency_note(&empty, ticks() - before);
    }
    overhead = value_at(&empty, 0.5);
}
