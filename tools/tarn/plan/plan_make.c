/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes plans. Time in an arena is counted in its requests, as the library counts it when it
 * follows the plan. A block lives from its own request to the first request of the same stream and
 * pool after the completion of its free. */
#include "plan/plan_make.h"
#include "replay/least.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t rounded(uint64_t size)
{
    return (size + TARN_BLOCK_UNIT - 1) / TARN_BLOCK_UNIT * TARN_BLOCK_UNIT;
}

/* Whether a block can be planned: slabs serve no block of its size, and its pool follows plans. */
static bool is_planned(const struct workload_block *block)
{
    return rounded(block->size) > PLAN_LEAST_REQUEST && !block->unplanned;
}

/* A stream of a pool, and what it requests. */
struct asking {
    uint32_t pool, stream;
    uint64_t bytes; /* of the requests that can be planned */
};

static int by_stream(const void *left, const void *right)
{
    const struct asking *a = left, *b = right;
    if (a->pool != b->pool)
        return a->pool < b->pool ? -1 : 1;
    return a->stream < b->stream ? -1 : a->stream > b->stream;
}

static int by_bytes(const void *left, const void *right)
{
    const struct asking *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return by_stream(left, right);
}

/* The streams of the pools, those that request most first. NULL if memory is short. */
static struct asking *find_streams(const struct workload *workload, size_t *count)
{
    struct asking *streams = calloc(workload->block_count + 1, sizeof *streams);
    size_t blocks = 0;
    *count = 0;
    for (size_t i = 0; streams && i < workload->block_count; i++) {
        const struct workload_block *block = &workload->blocks[i];
        if (is_planned(block))
            streams[blocks++] = (struct asking){block->pool, block->stream, block->size};
    }
    if (streams)
        qsort(streams, blocks, sizeof *streams, by_stream);
    for (size_t i = 0; i < blocks; i++) {
        struct asking *last = *count ? &streams[*count - 1] : NULL;
        if (!last || by_stream(last, &streams[i]) != 0)
            streams[(*count)++] = streams[i];
        else if (__builtin_add_overflow(last->bytes, streams[i].bytes, &last->bytes))
            last->bytes = UINT64_MAX;
    }
    if (streams)
        qsort(streams, *count, sizeof *streams, by_bytes);
    return streams;
}

/* The blocks that are planned, in the order of their requests. */
struct selection {
    const struct workload *workload;
    uint32_t stream, pool, count;
    /* blocks of the workload before the first planned one, and seen so far */
    uint32_t first, seen;
    uint32_t *numbers;            /* by block of the workload: its request, or WORKLOAD_NO_BLOCK */
    struct packing_block *blocks; /* by request */
};

static bool is_rest(const struct selection *selection, uint32_t number)
{
    const struct workload_block *block = &selection->workload->blocks[number];
    return block->stream == selection->stream && block->pool == selection->pool &&
           rounded(block->size) <= PLAN_LEAST_REQUEST;
}

static void select_block(struct selection *selection, uint32_t number)
{
    const struct workload_block *block = &selection->workload->blocks[number];
    selection->seen++;
    if (block->stream != selection->stream || block->pool != selection->pool || !is_planned(block))
        return;
    if (selection->count == 0)
        selection->first = selection->seen;
    selection->numbers[number] = selection->count;
    selection->blocks[selection->count] = (struct packing_block){
        .size = rounded(block->size), .start = selection->count, .end = UINT32_MAX};
    selection->count++;
}

static void select_blocks(struct selection *selection)
{
    const struct workload *workload = selection->workload;
    selection->count = selection->seen = 0;
    for (size_t i = 0; i < workload->block_count; i++)
        selection->numbers[i] = WORKLOAD_NO_BLOCK;
    for (size_t i = 0; i < workload->initial_count; i++)
        select_block(selection, (uint32_t)i);
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        if (op->action == WORKLOAD_ALLOC)
            select_block(selection, op->block);
        else if (op->action == WORKLOAD_COMPLETED &&
                 selection->numbers[op->block] != WORKLOAD_NO_BLOCK)
            selection->blocks[selection->numbers[op->block]].end = selection->count;
    }
    for (uint32_t i = 0; i < selection->count; i++)
        if (selection->blocks[i].end > selection->count)
            selection->blocks[i].end = selection->count;
}

static bool make(struct selection *selection, uint64_t effort, const struct packing_limits *limits,
                 struct plan_draft_arena *draft, char *error, size_t error_size)
{
    const uint64_t most = UINT32_MAX * (uint64_t)TARN_BLOCK_UNIT;
    struct packing_limits search = *limits;
    draft->requests = calloc(selection->count, sizeof *draft->requests);
    bool done = draft->requests &&
                packing_solve(selection->blocks, selection->count, effort, &draft->found);
    search.goal = least_round_up(draft->found.bound); /* the arena is of granules */
    if (!done || !packing_improve(selection->blocks, selection->count, &search, &draft->found)) {
        snprintf(error, error_size, "there is not enough host memory");
        return false;
    }
    if (draft->found.height > most) {
        snprintf(error, error_size,
                 "the blocks come to %" PRIu64 " bytes; a plan has at most %" PRIu64,
                 draft->found.height, most);
        return false;
    }
    for (uint32_t i = 0; i < selection->count; i++) {
        const struct packing_block *block = &selection->blocks[i];
        draft->requests[i] =
            (struct plan_request){(uint32_t)(block->size / TARN_BLOCK_UNIT),
                                  (uint32_t)(block->offset / TARN_BLOCK_UNIT), block->end};
    }
    draft->header = (struct plan_header){.version = PLAN_VERSION,
                                         .count = selection->count,
                                         .arena = draft->found.height,
                                         .bound = draft->found.bound,
                                         .recorded = selection->workload->peak_requested};
    memcpy(draft->header.magic, PLAN_MAGIC, sizeof draft->header.magic);
    return true;
}

/* The peak of the stream's small blocks. */
static uint64_t rest_peak(const struct selection *selection)
{
    const struct workload *workload = selection->workload;
    uint64_t live = 0, peak = 0;
    for (size_t i = 0; i < workload->initial_count; i++)
        live += is_rest(selection, (uint32_t)i) ? rounded(workload->blocks[i].size) : 0;
    peak = live;
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        bool begins = op->action == WORKLOAD_ALLOC;
        if ((!begins && op->action != WORKLOAD_COMPLETED) || !is_rest(selection, op->block))
            continue;
        uint64_t size = rounded(workload->blocks[op->block].size);
        live += begins ? size : -size;
        peak = live > peak ? live : peak;
    }
    return peak;
}

static int by_first(const void *left, const void *right)
{
    const struct plan_draft_arena *a = left, *b = right;
    return a->first < b->first ? -1 : a->first > b->first;
}

/* Adds the arena of a stream of a pool that has requests to plan. The remaining limits are shared
 * by it and `more` others. */
static bool add_arena(struct selection *selection, uint64_t effort,
                      const struct packing_limits *limits, uint32_t more, struct plan_draft *draft,
                      char *error, size_t error_size)
{
    const struct workload *workload = selection->workload;
    struct plan_draft_arena *arena = &draft->arenas[draft->made];
    struct packing_limits own = *limits;
    own.seconds /= more + 1;
    for (uint32_t i = 0; i < draft->made; i++)
        own.steps -= draft->arenas[i].found.steps;
    own.steps /= more + 1;
    select_blocks(selection);
    if (selection->count < 1 || selection->count > PLAN_REQUESTS_MOST) {
        snprintf(error, error_size,
                 "device %d has %" PRIu32
                 " requests above %zu bytes on one stream of a pool; a plan has 1 to %u",
                 workload->device, selection->count, PLAN_LEAST_REQUEST, PLAN_REQUESTS_MOST);
        return false;
    }
    draft->made++;
    if (!make(selection, effort / (more + 1), &own, arena, error, error_size))
        return false;
    arena->stream = workload->streams[selection->stream];
    arena->pool = selection->pool;
    arena->first = selection->first;
    arena->rest = rest_peak(selection);
    return true;
}

/* The number of an arena's pool in the plan, which depends on the arenas before it. */
static uint32_t number_pool(struct plan_draft *draft, uint32_t arena)
{
    for (uint32_t i = 0; i < arena; i++)
        if (draft->arenas[i].pool == draft->arenas[arena].pool)
            return draft->arenas[i].header.pool;
    return draft->arenas[arena].pool ? ++draft->pools : 0;
}

/* Orders the first `count` arenas, and sums them up in the draft. */
static void sum_up(struct plan_draft *draft, uint32_t count)
{
    draft->count = count;
    draft->largest = draft->pools = 0;
    draft->planned = 0;
    draft->found = (struct packing_result){0};
    qsort(draft->arenas, draft->count, sizeof *draft->arenas, by_first);
    for (uint32_t i = 0; i < draft->count; i++) {
        struct plan_draft_arena *arena = &draft->arenas[i];
        arena->header.pool = number_pool(draft, i);
        arena->header.behind = draft->count - 1 - i;
        if (arena->asked > draft->arenas[draft->largest].asked)
            draft->largest = i;
        draft->planned += arena->header.count;
        draft->found.bound += arena->found.bound;
        draft->found.height += arena->found.height;
        draft->found.proved += arena->found.proved;
        draft->found.tries += arena->found.tries;
        draft->found.steps += arena->found.steps;
    }
    for (uint32_t i = 0; i < draft->count; i++)
        draft->arenas[i].header.version = draft->pools       ? PLAN_VERSION_POOLS
                                          : draft->count > 1 ? PLAN_VERSION_SEVERAL
                                                             : PLAN_VERSION;
}

bool plan_draft_make(const struct workload *workload, uint32_t most, uint64_t effort,
                     const struct packing_limits *limits, struct plan_draft *draft, char *error,
                     size_t error_size)
{
    struct selection selection = {.workload = workload};
    size_t found = 0;
    struct asking *streams = find_streams(workload, &found);
    uint32_t count = most < PLAN_ARENAS_MOST ? most : PLAN_ARENAS_MOST;
    count = found < count ? (uint32_t)found : count;
    *draft = (struct plan_draft){.arenas = calloc(PLAN_ARENAS_MOST, sizeof *draft->arenas)};
    selection.numbers = calloc(workload->block_count + 1, sizeof *selection.numbers);
    selection.blocks = calloc(workload->block_count + 1, sizeof *selection.blocks);
    bool done = streams && draft->arenas && selection.numbers && selection.blocks;
    if (!done)
        snprintf(error, error_size, "there is not enough host memory");
    if (done && !count) {
        snprintf(error, error_size, "device %d has no requests above %zu bytes; a plan has 1 to %u",
                 workload->device, PLAN_LEAST_REQUEST, PLAN_REQUESTS_MOST);
        done = false;
    }
    for (uint32_t i = 0; i < count && done; i++) {
        selection.stream = streams[i].stream;
        selection.pool = streams[i].pool;
        draft->arenas[draft->made].asked = streams[i].bytes;
        done = add_arena(&selection, effort, limits, count - 1 - i, draft, error, error_size);
    }
    if (done)
        sum_up(draft, draft->made);
    free(streams);
    free(selection.numbers);
    free(selection.blocks);
    if (!done)
        plan_draft_finish(draft);
    return done;
}

void plan_draft_finish(struct plan_draft *draft)
{
    for (uint32_t i = 0; i < draft->made; i++)
        free(draft->arenas[i].requests);
    free(draft->arenas);
    *draft = (struct plan_draft){0};
}

void plan_draft_drop(struct plan_draft *draft, uint32_t arena)
{
    struct plan_draft_arena dropped = draft->arenas[arena];
    draft->arenas[arena] = draft->arenas[draft->count - 1];
    draft->arenas[draft->count - 1] = dropped;
    sum_up(draft, draft->count - 1);
}

void plan_draft_undrop(struct plan_draft *draft)
{
    sum_up(draft, draft->count + 1);
}

uint64_t plan_draft_rank(const struct plan_draft *draft, uint32_t arena)
{
    return draft->arenas[arena].header.arena / TARN_BLOCK_UNIT * PLAN_ARENAS_MOST + arena;
}

uint32_t plan_draft_largest_below(const struct plan_draft *draft, uint64_t rank)
{
    uint32_t best = draft->count;
    for (uint32_t i = 0; i < draft->count; i++)
        if (plan_draft_rank(draft, i) < rank &&
            (best == draft->count || plan_draft_rank(draft, i) > plan_draft_rank(draft, best)))
            best = i;
    return best;
}

uint64_t plan_draft_arenas(const struct plan_draft *draft)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < draft->count; i++)
        sum += least_round_up(draft->arenas[i].header.arena);
    return sum;
}

uint64_t plan_draft_size(const struct plan_draft *draft)
{
    return draft->count * sizeof(struct plan_header) + draft->planned * sizeof(struct plan_request);
}

/* Writes an arena in the format of the file. False if memory is short. */
static bool write_arena(const struct plan_draft_arena *arena, struct sink *sink)
{
    const struct plan_header *header = &arena->header;
    struct plan_header encoded = {.version = htole32(header->version),
                                  .count = htole32(header->count),
                                  .arena = htole64(header->arena),
                                  .small = htole64(header->small),
                                  .bound = htole64(header->bound),
                                  .recorded = htole64(header->recorded),
                                  .behind = htole32(header->behind),
                                  .pool = htole32(header->pool)};
    struct plan_request *requests = calloc(header->count, sizeof *requests);
    if (!requests)
        return false;
    memcpy(encoded.magic, header->magic, sizeof encoded.magic);
    for (uint32_t i = 0; i < header->count; i++)
        requests[i] = (struct plan_request){htole32(arena->requests[i].size),
                                            htole32(arena->requests[i].offset),
                                            htole32(arena->requests[i].end)};
    encoded.checksum = htole64(plan_checksum(&encoded, requests));
    sink_write(sink, &encoded, sizeof encoded);
    sink_write(sink, requests, header->count * sizeof *requests);
    free(requests);
    return true;
}

bool plan_draft_write(const struct plan_draft *draft, struct sink *sink)
{
    bool done = true;
    for (uint32_t i = 0; i < draft->count && done; i++)
        done = write_arena(&draft->arenas[i], sink);
    return done;
}
