/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* From one placement to lower ones. Each search is for a height between what is proved and what is reached: half and three quarters of the
 * way up in turn, since a low height prunes more and a high one has more placements. Each is short; those without success begin anew in
 * another order, and get longer by Luby's sequence (Luby, Sinclair and Zuckerman, 1993). */
#include "replay/packing_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SEARCH_STEPS UINT64_C(5000000) /* of the shortest search: about 10 ms */
#define ORDERS 9                       /* searches of one length */
#define LONGEST 32                     /* times the shortest */

struct improvement {
    struct packing_block *blocks;
    size_t count;
    const struct packing_limits *limits;
    struct packing_result *result;
    struct packing_search *search;
    uint64_t *offsets;
    uint64_t unit; /* bytes: every height is a multiple */
    uint64_t low;  /* bytes: a multiple of it that cannot, or need not, be undercut */
    double begun, shown;
};

/* s, of the processor: another program's work does not count. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* 1, 1, 2, 1, 1, 2, 4, ...: the number `place` of the sequence, from 1 on. */
static uint64_t luby(uint64_t place)
{
    for (;;) {
        uint64_t power = 1;
        while (power - 1 < place)
            power *= 2;
        if (power - 1 == place)
            return power / 2 < LONGEST ? power / 2 : LONGEST;
        place -= power / 2 - 1;
    }
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return bytes / unit * unit + (bytes % unit ? unit : 0);
}

static void show(struct improvement *improvement, double now, bool last)
{
    const struct packing_result *result = improvement->result;
    if (!improvement->limits->show || (!last && now - improvement->shown < 0.25))
        return;
    improvement->shown = now;
    fprintf(stderr, "\r  %.1f s: %.4f of the lower bound%s", now - improvement->begun,
            (double)result->height / (double)(result->proved ? result->proved : 1), last ? "\r\x1b[K" : " ");
    fflush(stderr);
}

static void take(struct improvement *improvement)
{
    uint64_t height = 0;
    for (size_t i = 0; i < improvement->count; i++) {
        struct packing_block *block = &improvement->blocks[i];
        block->offset = improvement->offsets[i];
        height = block->offset + block->size > height ? block->offset + block->size : height;
    }
    improvement->result->height = height;
}

/* The height to look for. */
static uint64_t target_of(const struct improvement *improvement, uint64_t attempt)
{
    uint64_t gap = improvement->result->height - improvement->low;
    uint64_t up = attempt % 2 ? gap - gap / 4 : gap / 2;
    return improvement->low + (up < gap ? up : gap - 1) / improvement->unit * improvement->unit;
}

static void improve(struct improvement *improvement)
{
    struct packing_result *result = improvement->result;
    const struct packing_limits *limits = improvement->limits;
    double now = improvement->begun = seconds();
    for (uint64_t attempt = 0; result->height > improvement->low && result->steps < limits->steps &&
                               now - improvement->begun < limits->seconds;) {
        uint64_t target = target_of(improvement, attempt), left = limits->steps - result->steps;
        uint64_t steps = SEARCH_STEPS * luby(attempt / ORDERS + 1);
        enum packing_answer answer = packing_search_run(
            improvement->search, target, attempt, steps < left ? steps : left, &result->steps, improvement->offsets);
        result->tries++;
        attempt++;
        if (answer == PACKING_FITS) {
            take(improvement);
            attempt = 0;
        } else if (answer == PACKING_NEVER) {
            result->proved = improvement->low = target + improvement->unit;
        }
        now = seconds();
        show(improvement, now, false);
    }
    show(improvement, now, true);
}

bool packing_improve(struct packing_block *blocks, size_t count, const struct packing_limits *limits,
                     struct packing_result *result)
{
    if (count == 0 || count > PACKING_SEARCH_MOST || result->height <= limits->goal || result->height <= result->proved)
        return true;
    struct improvement improvement = {.blocks = blocks, .count = count, .limits = limits, .result = result};
    for (size_t i = 0; i < count; i++)
        improvement.unit = common_divisor(improvement.unit, blocks[i].size);
    if (improvement.unit == 0)
        return true; /* blocks of no bytes alone */
    result->proved = round_up(result->proved, improvement.unit);
    improvement.low = round_up(limits->goal > result->proved ? limits->goal : result->proved, improvement.unit);
    if (limits->goal > result->proved && limits->goal % improvement.unit)
        improvement.low -= improvement.unit; /* of the heights that do, the highest */
    improvement.search = packing_search_create(blocks, count);
    improvement.offsets = calloc(count, sizeof *improvement.offsets);
    bool done = improvement.search && improvement.offsets;
    if (done)
        improve(&improvement);
    packing_search_destroy(improvement.search);
    free(improvement.offsets);
    return done;
}
