/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the questions about moments: sums, holes, live blocks.
 *
 * Several moments are answered in one sweep. One bit per block and one per range, in order of
 * address, say what exists at the moment. Between two moments only the bits of what began or ended
 * change. So a moment costs a pass over the bits and over what they say exists. */
#include "analysis/analysis.h"

#include <stdlib.h>
#include <string.h>

/* A begin or an end, in the order of moments. `place` is an index of by_address or
 * range_by_address. */
struct change {
    uint32_t moment, place;
    uint8_t kind;
};

enum { BLOCK_CHANGES, RANGE_CHANGES };

static size_t lowest_bit(uint64_t bits)
{
    return (size_t)__builtin_ctzll(bits);
}

static int compare_changes(const void *left, const void *right)
{
    const struct change *a = left, *b = right;
    return (a->moment > b->moment) - (a->moment < b->moment);
}

/* Lists every begin and end after moment 0, and sets the bits of what exists at moment 0. The
 * caller frees the list. */
static struct change *list_changes(const struct analysis *analysis, uint64_t *blocks,
                                   uint64_t *ranges, size_t *count)
{
    struct change *changes =
        malloc((2 * (analysis->block_count + analysis->range_count) + 1) * sizeof *changes);
    *count = 0;
    if (!changes)
        return NULL;
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[analysis->by_address[i]];
        if (block->begin == 0 && block->end > 0)
            blocks[i / 64] |= UINT64_C(1) << i % 64;
        else if (block->begin < block->end)
            changes[(*count)++] = (struct change){block->begin, (uint32_t)i, BLOCK_CHANGES};
        if (block->end != ANALYSIS_NEVER && block->begin < block->end)
            changes[(*count)++] = (struct change){block->end, (uint32_t)i, BLOCK_CHANGES};
    }
    for (size_t i = 0; i < analysis->range_count; i++) {
        const struct analysis_range *range = &analysis->ranges[analysis->range_by_address[i]];
        if (range->begin == 0 && range->end > 0)
            ranges[i / 64] |= UINT64_C(1) << i % 64;
        else if (range->begin < range->end)
            changes[(*count)++] = (struct change){range->begin, (uint32_t)i, RANGE_CHANGES};
        if (range->end != ANALYSIS_NEVER && range->begin < range->end)
            changes[(*count)++] = (struct change){range->end, (uint32_t)i, RANGE_CHANGES};
    }
    qsort(changes, *count, sizeof *changes, compare_changes);
    return changes;
}

/* A walk over the bits that are set. */
struct walk {
    const uint64_t *bits;
    size_t words, word;
    uint64_t rest;
};

static bool walk_next(struct walk *walk, size_t *place)
{
    while (!walk->rest) {
        if (++walk->word >= walk->words)
            return false;
        walk->rest = walk->bits[walk->word];
    }
    *place = walk->word * 64 + lowest_bit(walk->rest);
    walk->rest &= walk->rest - 1;
    return true;
}

static struct walk walk_begin(const uint64_t *bits, size_t words)
{
    return (struct walk){bits, words, 0, bits[0]};
}

/* A stretch of free memory. `torn`: a block lies in one of its ranges. */
struct hole {
    uint64_t size;
    bool torn;
};

static void add_hole(struct analysis_state *state, struct hole *hole)
{
    if (hole->size) {
        state->unused += hole->size;
        state->holes++;
        state->idle_holes += !hole->torn;
        if (hole->size > state->largest_free)
            state->largest_free = hole->size;
        if (hole->torn && hole->size > state->largest_hole)
            state->largest_hole = hole->size;
    }
    *hole = (struct hole){0};
}

/* Goes through ranges and blocks together, by address. A hole ends where a block begins. It also
 * ends at the end of a range, unless the next range touches it and both may join. */
static void sum_up(const struct analysis *analysis, uint32_t moment, const uint64_t *blocks,
                   const uint64_t *ranges, size_t block_words, size_t range_words,
                   struct analysis_state *state)
{
    struct walk block_walk = walk_begin(blocks, block_words),
                range_walk = walk_begin(ranges, range_words);
    const struct analysis_range *before = NULL;
    size_t place;
    struct hole hole = {0};
    uint64_t at = 0; /* the address up to which memory is accounted for */
    bool more = walk_next(&block_walk, &place);
    const struct analysis_block *block =
        more ? &analysis->blocks[analysis->by_address[place]] : NULL;
    *state = (struct analysis_state){0};
    for (size_t range_place; walk_next(&range_walk, &range_place);) {
        const struct analysis_range *range =
            &analysis->ranges[analysis->range_by_address[range_place]];
        uint64_t end = range->address + range->size;
        state->reserved += range->size;
        if (!before || !before->joins || !range->joins ||
            before->address + before->size != range->address || before->pool != range->pool ||
            before->stream != range->stream)
            add_hole(state, &hole);
        bool idle = at <= range->address && (!block || block->address >= end);
        at = at > range->address ? at : range->address;
        if (idle) {
            state->idle += range->size;
            state->idle_ranges++;
        }
        while (block && block->address < end) {
            if (block->address > at) {
                hole.size += block->address - at;
                hole.torn = true;
                at = block->address;
            }
            add_hole(state, &hole);
            if (analysis_lives(block, moment)) {
                state->allocated += block->size;
                state->blocks++;
            } else {
                state->waiting += block->size;
                state->waiting_blocks++;
            }
            if (block->address + block->room > at)
                at = block->address + block->room;
            block = walk_next(&block_walk, &place) ? &analysis->blocks[analysis->by_address[place]]
                                                   : NULL;
        }
        if (at < end) {
            hole.size += end - at;
            hole.torn = hole.torn || !idle;
        }
        before = range;
    }
    add_hole(state, &hole);
    /* A file may have blocks outside of its segments. */
    for (; block; block = walk_next(&block_walk, &place)
                              ? &analysis->blocks[analysis->by_address[place]]
                              : NULL) {
        *(analysis_lives(block, moment) ? &state->allocated : &state->waiting) += block->size;
        (*(analysis_lives(block, moment) ? &state->blocks : &state->waiting_blocks))++;
    }
}

bool analysis_states(const struct analysis *analysis, const uint32_t *moments, size_t count,
                     struct analysis_state *states)
{
    size_t block_words = analysis->block_count / 64 + 1,
           range_words = analysis->range_count / 64 + 1, change_count;
    uint64_t *blocks = calloc(block_words, sizeof *blocks),
             *ranges = calloc(range_words, sizeof *ranges);
    struct change *changes =
        blocks && ranges ? list_changes(analysis, blocks, ranges, &change_count) : NULL;
    size_t done = 0;
    for (size_t i = 0; changes && i < count; i++) {
        for (; done < change_count && changes[done].moment <= moments[i]; done++) {
            uint64_t *bits = changes[done].kind == BLOCK_CHANGES ? blocks : ranges;
            bits[changes[done].place / 64] ^= UINT64_C(1) << changes[done].place % 64;
        }
        sum_up(analysis, moments[i], blocks, ranges, block_words, range_words, &states[i]);
    }
    bool made = changes != NULL;
    free(changes);
    free(blocks);
    free(ranges);
    return made;
}

struct analysis_state *analysis_oom_states(const struct analysis *analysis)
{
    struct analysis_state *states = calloc(analysis->oom_count + 1, sizeof *states);
    uint32_t *moments = calloc(analysis->oom_count + 1, sizeof *moments);
    for (size_t i = 0; moments && i < analysis->oom_count; i++)
        moments[i] = analysis_oom_moment(analysis, i);
    if (!states || !moments || !analysis_states(analysis, moments, analysis->oom_count, states)) {
        free(states);
        states = NULL;
    }
    free(moments);
    return states;
}

/* --- spans --- */

static size_t span_of(const struct analysis *analysis, uint32_t moment, size_t count)
{
    uint64_t last =
        analysis->has_times ? analysis->times[analysis->event_count] : analysis->event_count;
    uint64_t here = analysis->has_times ? analysis->times[moment] : moment;
    size_t span = last ? (size_t)((double)here / (double)last * (double)count) : 0;
    return span < count ? span : count - 1;
}

bool analysis_spans(const struct analysis *analysis, struct analysis_span *spans, size_t count)
{
    uint64_t *allocated = calloc((size_t)analysis->event_count + 1, sizeof *allocated);
    uint64_t *reserved = calloc((size_t)analysis->event_count + 1, sizeof *reserved);
    bool made = allocated && reserved;
    for (size_t i = 0; made && i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        if (block->freed <= block->begin && block->freed != ANALYSIS_NEVER)
            continue;
        allocated[block->begin] += block->size;
        if (block->freed != ANALYSIS_NEVER)
            allocated[block->freed] -= block->size;
    }
    for (size_t i = 0; made && i < analysis->range_count; i++) {
        const struct analysis_range *range = &analysis->ranges[i];
        reserved[range->begin] += range->size;
        if (range->end != ANALYSIS_NEVER)
            reserved[range->end] -= range->size;
    }
    uint64_t now_allocated = 0, now_reserved = 0;
    size_t span = 0;
    for (uint32_t moment = 0; made && moment <= analysis->event_count; moment++) {
        size_t here = span_of(analysis, moment, count);
        for (; span <= here; span++) /* a span begins with the state from before it */
            spans[span] =
                (struct analysis_span){now_allocated, now_reserved, moment ? moment - 1 : 0};
        now_allocated += allocated[moment];
        now_reserved += reserved[moment];
        struct analysis_span *at = &spans[here];
        if (now_allocated > at->allocated) {
            at->allocated = now_allocated;
            at->highest = moment;
        }
        at->reserved = now_reserved > at->reserved ? now_reserved : at->reserved;
    }
    for (; made && span < count; span++)
        spans[span] = (struct analysis_span){now_allocated, now_reserved, analysis->event_count};
    free(allocated);
    free(reserved);
    return made;
}

/* --- who lives --- */

static const struct analysis *sorting; /* qsort() passes no context */

static int compare_alive(const void *left, const void *right)
{
    const struct analysis_block *a = &sorting->blocks[*(const uint32_t *)left];
    const struct analysis_block *b = &sorting->blocks[*(const uint32_t *)right];
    return a->size != b->size ? (a->size < b->size) - (a->size > b->size)
                              : (a->address > b->address) - (a->address < b->address);
}

uint32_t *analysis_alive(const struct analysis *analysis, uint32_t moment, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < analysis->block_count; i++)
        *count += analysis_lives(&analysis->blocks[i], moment);
    uint32_t *alive = malloc((*count + 1) * sizeof *alive);
    size_t at = 0;
    for (size_t i = 0; alive && i < analysis->block_count; i++)
        if (analysis_lives(&analysis->blocks[i], moment))
            alive[at++] = (uint32_t)i;
    sorting = analysis;
    if (alive && at)
        qsort(alive, at, sizeof *alive, compare_alive);
    return alive;
}
