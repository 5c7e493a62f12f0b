/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Steps in sorted chunks: a directory of first positions, and chunks of up to CHUNK steps. A step
 * ends where the next one begins, which may be in the next chunk. No chunk is empty, and the first
 * step begins at 0, so every position has a step. */
#include "replay/oracle/steps.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK 128

struct steps_chunk {
    size_t count;
    uint64_t starts[CHUNK];
    uint32_t values[CHUNK];
};

struct place {
    size_t chunk, index;
};

/* How many of `count` ascending positions are at most `position`. */
static size_t count_up_to(const uint64_t *positions, size_t count, uint64_t position)
{
    const uint64_t *base = positions;
    while (count > 1) {
        size_t half = count / 2;
        base = base[half - 1] <= position ? base + half : base;
        count -= half;
    }
    return (size_t)(base - positions) + (count == 1 && *base <= position);
}

/* Where the step after a place begins; UINT64_MAX for the last step. */
static uint64_t next_start(const struct steps *steps, struct place place)
{
    const struct steps_chunk *chunk = steps->chunks[place.chunk];
    if (place.index + 1 < chunk->count)
        return chunk->starts[place.index + 1];
    return place.chunk + 1 < steps->chunk_count ? steps->firsts[place.chunk + 1] : UINT64_MAX;
}

/* The step that contains `position`. */
static struct place find(struct steps *steps, uint64_t position)
{
    struct place place = {steps->last_chunk, steps->last_index};
    if (place.chunk < steps->chunk_count && place.index < steps->chunks[place.chunk]->count &&
        steps->chunks[place.chunk]->starts[place.index] <= position &&
        position < next_start(steps, place))
        return place;
    place.chunk = count_up_to(steps->firsts, steps->chunk_count, position) - 1;
    const struct steps_chunk *chunk = steps->chunks[place.chunk];
    place.index = count_up_to(chunk->starts, chunk->count, position) - 1;
    steps->last_chunk = place.chunk;
    steps->last_index = place.index;
    return place;
}

bool steps_init(struct steps *steps)
{
    *steps = (struct steps){.chunk_capacity = 64};
    steps->firsts = calloc(steps->chunk_capacity, sizeof *steps->firsts);
    steps->chunks = calloc(steps->chunk_capacity, sizeof(struct steps_chunk *));
    struct steps_chunk *chunk = calloc(1, sizeof *chunk);
    if (!steps->firsts || !steps->chunks || !chunk) {
        free(chunk);
        steps_finish(steps);
        return false;
    }
    chunk->count = 1;
    steps->chunks[0] = chunk;
    steps->chunk_count = 1;
    return true;
}

void steps_finish(struct steps *steps)
{
    for (size_t i = 0; steps->chunks && i < steps->chunk_count; i++)
        free(steps->chunks[i]);
    free(steps->chunks);
    free(steps->firsts);
    *steps = (struct steps){0};
}

static bool directory_grow(struct steps *steps)
{
    size_t capacity = steps->chunk_capacity * 2;
    uint64_t *firsts = reallocarray(steps->firsts, capacity, sizeof *firsts);
    if (!firsts)
        return false;
    steps->firsts = firsts;
    struct steps_chunk **chunks =
        reallocarray(steps->chunks, capacity, sizeof(struct steps_chunk *));
    if (!chunks)
        return false;
    steps->chunks = chunks;
    steps->chunk_capacity = capacity;
    return true;
}

/* Divides a full chunk in two. */
static bool chunk_divide(struct steps *steps, size_t at)
{
    if (steps->chunk_count == steps->chunk_capacity && !directory_grow(steps))
        return false;
    struct steps_chunk *chunk = steps->chunks[at], *second = malloc(sizeof *second);
    if (!second)
        return false;
    size_t half = chunk->count / 2;
    second->count = chunk->count - half;
    memcpy(second->starts, chunk->starts + half, second->count * sizeof *second->starts);
    memcpy(second->values, chunk->values + half, second->count * sizeof *second->values);
    chunk->count = half;
    size_t after = steps->chunk_count - at - 1;
    memmove(&steps->chunks[at + 2], &steps->chunks[at + 1], after * sizeof(struct steps_chunk *));
    memmove(&steps->firsts[at + 2], &steps->firsts[at + 1], after * sizeof *steps->firsts);
    steps->chunks[at + 1] = second;
    steps->firsts[at + 1] = second->starts[0];
    steps->chunk_count++;
    return true;
}

/* Divides the step that contains `position` into two, of which the second begins at `position`.
 * Does nothing if a step begins there. */
static bool divide(struct steps *steps, uint64_t position)
{
    struct place place = find(steps, position);
    struct steps_chunk *chunk = steps->chunks[place.chunk];
    if (chunk->starts[place.index] == position)
        return true;
    if (chunk->count == CHUNK) {
        if (!chunk_divide(steps, place.chunk))
            return false;
        place = find(steps, position);
        chunk = steps->chunks[place.chunk];
    }
    size_t at = place.index + 1, after = chunk->count - at;
    memmove(&chunk->starts[at + 1], &chunk->starts[at], after * sizeof *chunk->starts);
    memmove(&chunk->values[at + 1], &chunk->values[at], after * sizeof *chunk->values);
    chunk->starts[at] = position;
    chunk->values[at] = chunk->values[place.index];
    chunk->count++;
    return true;
}

/* Removes the steps that begin after the one at `place` and before `end`. */
static void absorb(struct steps *steps, struct place place, uint64_t end)
{
    struct steps_chunk *chunk = steps->chunks[place.chunk];
    size_t keep = place.index + 1;
    size_t gone = count_up_to(chunk->starts + keep, chunk->count - keep, end - 1);
    size_t after = chunk->count - keep - gone;
    memmove(&chunk->starts[keep], &chunk->starts[keep + gone], after * sizeof *chunk->starts);
    memmove(&chunk->values[keep], &chunk->values[keep + gone], after * sizeof *chunk->values);
    chunk->count -= gone;
    if (after)
        return;

    size_t first = place.chunk + 1, last = first;
    /* Chunks that go as a whole, and the one that goes in part */
    for (; last < steps->chunk_count; last++) {
        chunk = steps->chunks[last];
        gone = count_up_to(chunk->starts, chunk->count, end - 1);
        if (gone < chunk->count) {
            chunk->count -= gone;
            memmove(chunk->starts, chunk->starts + gone, chunk->count * sizeof *chunk->starts);
            memmove(chunk->values, chunk->values + gone, chunk->count * sizeof *chunk->values);
            steps->firsts[last] = chunk->starts[0];
            break;
        }
        free(chunk);
    }
    if (last > first) {
        memmove(&steps->chunks[first], &steps->chunks[last],
                (steps->chunk_count - last) * sizeof(struct steps_chunk *));
        memmove(&steps->firsts[first], &steps->firsts[last],
                (steps->chunk_count - last) * sizeof *steps->firsts);
        steps->chunk_count -= last - first;
    }
}

/* Assigns within one chunk. `place` is the step that contains `start`. False, with nothing done, if
 * the range goes beyond the chunk or the chunk has no room. */
static bool assign_inside(struct steps *steps, struct place place, uint64_t start, uint64_t end,
                          uint32_t value)
{
    struct steps_chunk *chunk = steps->chunks[place.chunk];
    size_t first = place.index, last = first; /* the steps that hold `start` and `end` */
    while (last + 1 < chunk->count && chunk->starts[last + 1] <= end)
        last++;
    if (last + 1 == chunk->count && place.chunk + 1 < steps->chunk_count &&
        steps->firsts[place.chunk + 1] <= end)
        return false;
    uint32_t rest = chunk->values[last];
    /* index of the new step; the rest of the last one follows it */
    size_t at = first + (chunk->starts[first] < start);
    size_t after = chunk->count - last - 1, count = at + 2 + after;
    if (count > CHUNK)
        return false;
    memmove(&chunk->starts[at + 2], &chunk->starts[last + 1], after * sizeof *chunk->starts);
    memmove(&chunk->values[at + 2], &chunk->values[last + 1], after * sizeof *chunk->values);
    chunk->starts[at] = start;
    chunk->values[at] = value;
    chunk->starts[at + 1] = end;
    chunk->values[at + 1] = rest;
    chunk->count = count;
    steps->last_index = at;
    return true;
}

bool steps_assign(struct steps *steps, uint64_t start, uint64_t end, uint32_t value)
{
    struct place place = find(steps, start);
    struct steps_chunk *chunk = steps->chunks[place.chunk];
    if (chunk->starts[place.index] == start && next_start(steps, place) == end) {
        chunk->values[place.index] = value;
        return true;
    }
    if (assign_inside(steps, place, start, end, value))
        return true;
    if (!divide(steps, end) || !divide(steps, start))
        return false;
    place = find(steps, start);
    absorb(steps, place, end);
    steps->chunks[place.chunk]->values[place.index] = value;
    return true;
}

/* Sets what is reported of the step at the walk's place, which begins before the walk's end. */
static void walk_show(struct steps_walk *walk)
{
    const struct place place = {walk->chunk, walk->index};
    uint64_t next = next_start(walk->steps, place);
    walk->value = walk->steps->chunks[walk->chunk]->values[walk->index];
    walk->to = next < walk->end ? next : walk->end;
}

bool steps_walk_first(struct steps *steps, uint64_t start, uint64_t end, struct steps_walk *walk)
{
    if (start >= end)
        return false;
    struct place place = find(steps, start);
    *walk = (struct steps_walk){
        .steps = steps, .chunk = place.chunk, .index = place.index, .end = end, .from = start};
    walk_show(walk);
    return true;
}

bool steps_walk_next(struct steps_walk *walk)
{
    if (walk->to == walk->end)
        return false;
    walk->from = walk->to;
    if (++walk->index == walk->steps->chunks[walk->chunk]->count) {
        walk->chunk++;
        walk->index = 0;
    }
    walk_show(walk);
    return true;
}
