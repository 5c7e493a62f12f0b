/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The monotonic clock, and how long a call may wait: until a time of that clock, until what it
 * waits for has ended, or not at all. */
#ifndef TARN_BASE_CLOCK_H
#define TARN_BASE_CLOCK_H

#include "base/thread/cancel.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define UNTIL_ENDED UINT64_C(0) /* no bound; no time of the clock */
#define UNTIL_NOW UINT64_C(1)   /* no wait; a time that is always past */
#define PAUSE_LEAST_NS UINT64_C(10000)
#define PAUSE_MOST_NS UINT64_C(1000000)

static inline uint64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static inline uint64_t clock_after(uint64_t ns)
{
    uint64_t now = clock_ns();
    return ns < UINT64_MAX - now ? now + ns : UINT64_MAX;
}

/* Whether a wait until then is over. */
static inline bool clock_is_past(uint64_t until)
{
    return until != UNTIL_ENDED && clock_ns() >= until;
}

/* Sleeps between two questions. */
static inline void clock_pause(uint64_t ns)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* The length of the next pause: twice as long, up to the longest. */
static inline uint64_t pause_after(uint64_t ns)
{
    return 2 * ns < PAUSE_MOST_NS ? 2 * ns : PAUSE_MOST_NS;
}

#endif
