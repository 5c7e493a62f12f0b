/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what the rate of the clock is computed from: the time of ticks_init(), by both clocks. */
#include "record/ticks.h"

#if defined __x86_64__
#include <cpuid.h>
#endif

#define LEAST_MEASURE 2000000 /* ns: the shortest time over which the rate is measured */

bool ticks_are_cycles;

static uint64_t first_ticks, first_system;

#if defined __x86_64__
/* Intel's and AMD's manuals: CPUID 80000007h, EDX bit 8. */
static bool cycles_are_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && d >> 8 & 1;
}
#endif

void ticks_init(void)
{
#if defined __x86_64__
    ticks_are_cycles = cycles_are_invariant();
#elif defined __aarch64__
    ticks_are_cycles = true;
#endif
    first_ticks = ticks_now();
    first_system = ticks_of_system();
}

struct ticks_scale ticks_scale_now(void)
{
    struct timespec wall;
    uint64_t system = ticks_of_system(), ticks = ticks_now();
    while (ticks_are_cycles && system - first_system < LEAST_MEASURE) {
        system = ticks_of_system();
        ticks = ticks_now();
    }
    clock_gettime(CLOCK_REALTIME, &wall);
    bool measured = ticks_are_cycles && ticks > first_ticks;
    return (struct ticks_scale){
        .ticks = ticks,
        .ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec,
        .rate = measured ? (double)(system - first_system) / (double)(ticks - first_ticks) : 1,
    };
}

int64_t ticks_to_ns(const struct ticks_scale *scale, uint64_t ticks)
{
    return scale->ns - (int64_t)((double)(int64_t)(scale->ticks - ticks) * scale->rate);
}
