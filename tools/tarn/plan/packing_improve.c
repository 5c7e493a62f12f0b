/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* From one placement to lower ones. Each search is for a height. Three in four are for the least
 * height that is not refuted: it prunes most, and a placement that fits there is often found sooner
 * than a higher one. The others are for heights between that and the best placement so far, in the
 * upper part of this gap. A search that does not succeed soon rarely succeeds later, so each is
 * short. After a failure the next search takes another order, and the lengths follow Luby's
 * sequence (Luby, Sinclair and Zuckerman, 1993). After many failures, beams take half of the steps.
 * They look for heights lower in the gap. Each beam has its own order and random choices, because a
 * beam that goes wrong in one order may get far in another. */
#include "plain_output.h"
#include "plan/packing_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SEARCH_STEPS UINT64_C(1000000) /* of the shortest search: about 1 ms */
#define ORDERS 9                       /* searches of one length */
#define LONGEST 128                    /* times the shortest */
#define LEAST_UP 100 /* 256ths of the gap: depth-first searches look for heights from here on */
#define MOST_UP 250
#define STEP_UP 97       /* step to the next height; coprime to the number of heights */
#define FIRST_BEAM 36    /* searches before the first beam */
#define BEAM_WIDTH 12    /* nodes of a level */
#define BEAM_PART 128    /* 256ths of all steps that are for beams */
#define BEAM_LEAST_UP 85 /* 256ths of the gap: in each order, beams look for heights from here on */
#define BEAM_UP 43       /* step to the next height */

struct improvement {
    struct packing_block *blocks;
    size_t count;
    const struct packing_limits *limits;
    struct packing_result *result;
    struct packing_search *search;
    uint64_t *offsets;
    uint64_t unit; /* bytes: all heights are multiples */
    uint64_t low;  /* bytes, a multiple of `unit`: no lower height is possible, or needed */
    struct {
        uint64_t way, up; /* of the next beam */
        uint64_t steps;   /* taken so far in all */
    } beams;
    double begun, shown;
};

/* Processor time in seconds, so that other programs' work does not count. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The element `place`, from 1, of Luby's sequence 1, 1, 2, 1, 1, 2, 4, ... */
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
    plain_output_move("\r");
    fprintf(stderr, "  %.1f s: %.4f of the lower bound ", now - improvement->begun,
            (double)result->height / (double)(result->proved ? result->proved : 1));
    if (last)
        plain_output_move("\r\033[K");
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

/* The height that is `up` 256ths of the gap above the proved one. */
static uint64_t target_of(const struct improvement *improvement, uint64_t up)
{
    uint64_t gap = improvement->result->height - improvement->low, unit = improvement->unit;
    uint64_t above = gap / 256 * up + gap % 256 * up / 256;
    return improvement->low + (above < gap ? above : gap - 1) / unit * unit;
}

/* How many steps a beam may take: those that are left, or as many as fit into the time that is left
 * at the speed so far. */
static uint64_t steps_left(const struct improvement *improvement)
{
    const struct packing_limits *limits = improvement->limits;
    uint64_t left = limits->steps - improvement->result->steps;
    double spent = seconds() - improvement->begun;
    double in_time =
        (double)improvement->result->steps / (spent + 1e-3) * (limits->seconds - spent);
    return in_time < (double)left ? (uint64_t)(in_time > 0 ? in_time : 0) : left;
}

/* Tries each order with rising heights, until one fits. */
static enum packing_answer search_beam(struct improvement *improvement, uint64_t *height)
{
    struct packing_result *result = improvement->result;
    uint64_t steps = 0;
    *height = target_of(improvement, improvement->beams.up);
    bool fits =
        packing_search_beam(improvement->search, *height, improvement->beams.way, BEAM_WIDTH,
                            steps_left(improvement), &steps, improvement->offsets);
    result->steps += steps;
    improvement->beams.steps += steps;
    improvement->beams.up += BEAM_UP;
    if (fits || improvement->beams.up >= 256) {
        improvement->beams.up = BEAM_LEAST_UP;
        improvement->beams.way++;
    }
    return fits ? PACKING_FITS : PACKING_CUT;
}

/* Runs the depth-first search of a number. Returns its height too. */
static enum packing_answer search_depth(struct improvement *improvement, uint64_t attempt,
                                        uint64_t *height)
{
    struct packing_result *result = improvement->result;
    uint64_t left = improvement->limits->steps - result->steps,
             steps = SEARCH_STEPS * luby(attempt / ORDERS + 1);
    bool lowest = attempt % 4 != 0;
    *height =
        target_of(improvement, lowest ? 0 : LEAST_UP + attempt * STEP_UP % (MOST_UP - LEAST_UP));
    steps *= lowest ? 2 : 1;
    return packing_search_run(improvement->search, *height, attempt, steps < left ? steps : left,
                              &result->steps, improvement->offsets);
}

static void improve(struct improvement *improvement)
{
    struct packing_result *result = improvement->result;
    const struct packing_limits *limits = improvement->limits;
    double now = improvement->begun = seconds();
    improvement->beams.up = BEAM_LEAST_UP;
    for (uint64_t attempt = 0; result->height > improvement->low && result->steps < limits->steps &&
                               now - improvement->begun < limits->seconds;) {
        uint64_t target;
        bool beam =
            attempt >= FIRST_BEAM && improvement->beams.steps / BEAM_PART <= result->steps / 256;
        enum packing_answer answer = beam ? search_beam(improvement, &target)
                                          : search_depth(improvement, attempt++, &target);
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

bool packing_improve(struct packing_block *blocks, size_t count,
                     const struct packing_limits *limits, struct packing_result *result)
{
    if (count == 0 || count > PACKING_SEARCH_MOST || result->height <= limits->goal ||
        result->height <= result->proved)
        return true;
    struct improvement improvement = {
        .blocks = blocks, .count = count, .limits = limits, .result = result};
    improvement.search = packing_search_create(blocks, count, result->height);
    improvement.offsets = calloc(count, sizeof *improvement.offsets);
    bool done = improvement.search && improvement.offsets;
    if (done) {
        improvement.unit = packing_search_unit(improvement.search);
        improvement.low = round_up(limits->goal > result->proved ? limits->goal : result->proved,
                                   improvement.unit);
        if (limits->goal > result->proved && limits->goal % improvement.unit)
            improvement.low -= improvement.unit; /* of the heights that do, the highest */
        improve(&improvement);
    }
    packing_search_destroy(improvement.search);
    free(improvement.offsets);
    return done;
}
