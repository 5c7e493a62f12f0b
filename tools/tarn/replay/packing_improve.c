/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* From one placement to lower ones. Each search is for a height. One in four is for the least that is not refuted: nothing prunes as well,
 * and what fits there is often found sooner than anything above. The others are for heights that are spread over the upper part of the gap
 * to what is reached. Each is short; those without success begin anew in another order, and get longer by Luby's sequence (Luby, Sinclair
 * and Zuckerman, 1993). Where many have failed, beams take part. */
#include "replay/packing_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SEARCH_STEPS UINT64_C(5000000) /* of the shortest search: about 10 ms */
#define ORDERS 9                       /* searches of one length */
#define LONGEST 32                     /* times the shortest */
#define LEAST_UP 100                   /* 256ths of the gap: the heights to look for, from this one on */
#define MOST_UP 250
#define STEP_UP 97            /* from one height to the next: coprime to how many there are */
#define FIRST_BEAM 18         /* searches before the first beam */
#define BEAM_EACH 6           /* searches, of which one is a beam */
#define BEAM_WIDTH 30         /* nodes of a level, of the narrowest beam */
#define BEAM_WIDEST 2         /* times the narrowest */
#define BEAM_SECONDS 2        /* at most */
#define BEAM_WAYS 4, 5, 6, 17 /* orders that led beams far */

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

/* The height to look for. `up` is how far it is above what is proved, in 256ths of the gap. */
static uint64_t target_of(const struct improvement *improvement, uint64_t up)
{
    uint64_t gap = improvement->result->height - improvement->low, unit = improvement->unit;
    uint64_t above = gap / 256 * up + gap % 256 * up / 256;
    return improvement->low + (above < gap ? above : gap - 1) / unit * unit;
}

static bool search_beam(struct improvement *improvement, uint64_t number, uint64_t height)
{
    static const uint64_t ways[] = {BEAM_WAYS};
    struct packing_result *result = improvement->result;
    uint64_t times = luby(number + 1);
    return packing_search_beam(improvement->search, height, ways[number % (sizeof ways / sizeof *ways)],
                               BEAM_WIDTH * (uint32_t)(times < BEAM_WIDEST ? times : BEAM_WIDEST),
                               improvement->limits->steps - result->steps, &result->steps, improvement->offsets);
}

/* The search of a number, for the height that it gives. `late`: there is no time left for a beam. */
static enum packing_answer search(struct improvement *improvement, uint64_t attempt, bool late, uint64_t *height)
{
    struct packing_result *result = improvement->result;
    uint64_t left = improvement->limits->steps - result->steps, steps = SEARCH_STEPS * luby(attempt / ORDERS + 1);
    bool beam = !late && attempt >= FIRST_BEAM && attempt % BEAM_EACH == 0, lowest = attempt % 4 == 1;
    *height = target_of(improvement, lowest ? 0 : LEAST_UP + attempt * STEP_UP % (MOST_UP - LEAST_UP));
    if (beam)
        return search_beam(improvement, attempt / BEAM_EACH, *height) ? PACKING_FITS : PACKING_CUT;
    steps *= lowest ? 2 : 1;
    return packing_search_run(improvement->search, *height, attempt, steps < left ? steps : left, &result->steps,
                              improvement->offsets);
}

static void improve(struct improvement *improvement)
{
    struct packing_result *result = improvement->result;
    const struct packing_limits *limits = improvement->limits;
    double now = improvement->begun = seconds();
    for (uint64_t attempt = 0; result->height > improvement->low && result->steps < limits->steps &&
                               now - improvement->begun < limits->seconds;) {
        uint64_t target;
        bool late = now - improvement->begun > limits->seconds - BEAM_SECONDS;
        enum packing_answer answer = search(improvement, attempt++, late, &target);
        result->tries++;
        if (answer == PACKING_FITS)
            take(improvement);
        else if (answer == PACKING_NEVER)
            result->proved = improvement->low = target + improvement->unit;
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
