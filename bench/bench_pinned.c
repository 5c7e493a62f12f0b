/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory, on the host device: what an allocation and its free cost on one thread where
 * free memory serves, and how much memory a sequence of requests takes, beside what rounding each
 * block up to a power of two takes, with whole blocks that are used again (PyTorch's
 * CachingHostAllocator.h). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <tarn/host.h>
#include <tarn/tarn.h>
#include <time.h>

#define ROUNDS 15
#define PAIRS 40000
#define SLOTS 64
#define STEPS 20000

static void die(const char *what)
{
    fprintf(stderr, "bench_pinned: %s: %s\n", what, tarn_last_error());
    exit(1);
}

static void *take(size_t size)
{
    void *block = NULL;
    if (tarn_pinned_alloc(TARN_STREAM_CURRENT, size, &block))
        die("tarn_pinned_alloc");
    return block;
}

static void give(void *block)
{
    if (tarn_free(block))
        die("tarn_free");
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static void pairs(const char *name, size_t size)
{
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < PAIRS; i++)
            give(take(size));
        times[round] = (now() - start) / PAIRS;
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    printf("%-24s  %9.1f\n", name, times[ROUNDS / 2]);
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Sizes as batches have them: three quarters of one of a few shapes that vary by the batch, the
 * rest small. */
static size_t random_size(uint64_t *state)
{
    uint64_t kind = random_next(state) % 4, value = random_next(state);
    return kind == 0 ? 256 + value % (64 << 10) : (size_t)(kind * 3 << 20) + value % (4 << 20);
}

/* The other policy: free blocks by the logarithm of their size, none ever given back. */
struct powers {
    size_t allocated;
    unsigned free[64];
};

static unsigned power_of(size_t size)
{
    return size > 1 ? 64u - (unsigned)__builtin_clzll(size - 1) : 0;
}

static void waste(void)
{
    static void *blocks[SLOTS];
    static size_t sizes[SLOTS];
    struct powers powers = {0};
    uint64_t state = 88172645463325252u;
    size_t live = 0, live_peak = 0;
    for (int i = 0; i < STEPS; i++) {
        size_t slot = random_next(&state) % SLOTS;
        if (blocks[slot]) {
            give(blocks[slot]);
            powers.free[power_of(sizes[slot])]++;
            live -= sizes[slot];
            blocks[slot] = NULL;
            continue;
        }
        size_t size = sizes[slot] = random_size(&state);
        blocks[slot] = take(size);
        live += size;
        if (live > live_peak)
            live_peak = live;
        if (powers.free[power_of(size)])
            powers.free[power_of(size)]--;
        else
            powers.allocated += (size_t)1 << power_of(size);
    }
    tarn_pinned_stats stats = {.size = sizeof stats};
    if (tarn_pinned_stats_get(&stats))
        die("tarn_pinned_stats_get");
    printf("\n%d random requests, %d at a time at most: peak of what is asked for %.1f MiB\n%-24s  "
           "%9s  %9s  %9s\n",
           STEPS, SLOTS, (double)live_peak / 1048576, "", "MiB", "of asked", "calls");
    printf("%-24s  %9.1f  %9.2f  %9lld\n", "tarn", (double)stats.allocated_bytes.peak / 1048576,
           (double)stats.allocated_bytes.peak / (double)live_peak, (long long)stats.num_host_alloc);
    printf("%-24s  %9.1f  %9.2f\n", "powers of two", (double)powers.allocated / 1048576,
           (double)powers.allocated / (double)live_peak);
    for (size_t i = 0; i < SLOTS; i++)
        give(blocks[i]);
}

int main(void)
{
    tarn_host_configuration config = {.size = sizeof config};
    if (tarn_host_configuration_set(&config))
        die("tarn_host_configuration_set");
    printf("tarn %s, pinned host memory, one thread of the host device\n\nns for an allocation and "
           "its free, median of %d "
           "rounds\n",
           tarn_version(), ROUNDS);
    pairs("pair, 512 B", 512);
    pairs("pair, 64 KiB", 65536);
    pairs("pair, 1 MiB", 1 << 20);
    void *held[256];
    for (size_t i = 0; i < 256; i++)
        held[i] = take(1000 * i + 1);
    for (size_t i = 0; i < 256; i += 2)
        give(held[i]);
    pairs("pair, 64 KiB, 128 held", 65536);
    for (size_t i = 1; i < 256; i += 2)
        give(held[i]);
    if (tarn_pinned_trim(0) || tarn_pinned_stats_reset(TARN_STATS_PEAK) ||
        tarn_pinned_stats_reset(TARN_STATS_ACCUMULATED))
        die("tarn_pinned_trim");
    waste();
    return 0;
}
