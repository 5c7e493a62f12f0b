/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Clocks, medians, and the run of a sequence. */
#ifndef BENCH_ALLOC_MEASURE_H
#define BENCH_ALLOC_MEASURE_H

#include "peers.h"
#include "sequence.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define ROUNDS 15
#define TOUCHED 64 /* bytes of each block that are written after the allocation */

static inline double clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Runs a sequence once and gives back what is left. Gives ns a pair of allocation and free, by a
 * clock. `slots` are empty. */
double sequence_run(const struct peer *peer, const struct sequence *sequence, void **slots,
                    bool touch, clockid_t clock);

/* Of `count` values, which are sorted. */
double median(double *values, size_t count);
/* The value below which `part` of them lie. */
double percentile(const double *sorted, size_t count, double part);
void sort(double *values, size_t count);

/* Empty slots for a sequence. */
void **slots_make(const struct sequence *sequence);

/* The parts of bench_alloc that are not a table of medians. */
void bench_latencies(const struct sequence *sequence);
void bench_spread(void);
void bench_threads(void);
void bench_scaling(void);

#endif
