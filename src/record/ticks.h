/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A clock for time stamps: the processor's counter if it runs at one rate on all cores, otherwise
 * the system's monotonic clock. */
#ifndef TARN_RECORD_TICKS_H
#define TARN_RECORD_TICKS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

extern bool ticks_are_cycles; /* set by ticks_init() */

static inline uint64_t ticks_of_system(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t ticks_now(void)
{
#if defined __x86_64__
    if (__builtin_expect(ticks_are_cycles, true))
        return __builtin_ia32_rdtsc();
#elif defined __aarch64__
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
    return ticks_of_system();
}

/* Call before a stamp that must not be older than what this thread has seen: a processor may read
 * its counter ahead of earlier loads. */
static inline void ticks_fence(void)
{
#if defined __x86_64__
    __builtin_ia32_lfence();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* Call before the first stamp, while there is one thread. Begins measuring the rate. */
void ticks_init(void);

/* How to convert stamps to times. Measured from ticks_init() to now, so later scales are more
 * exact. */
struct ticks_scale {
    uint64_t ticks; /* a moment in ticks */
    int64_t ns;     /* the same moment in ns since 1970 */
    double rate;    /* ns per tick */
};
struct ticks_scale ticks_scale_now(void);
int64_t ticks_to_ns(const struct ticks_scale *scale, uint64_t ticks);

#endif
