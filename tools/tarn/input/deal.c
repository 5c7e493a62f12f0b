/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A workload dealt anew: what ran on one stream is made to run on several, and by several threads.
 * All of it is decided by hashes of what is in the workload, so that the same options give the same
 * deal. Addresses choose stream and thread: blocks that took turns at one address then share
 * both. */
#include "input/workload.h"

#include <stdlib.h>

#define SECOND_STREAM_EVERY 20 /* blocks */
#define FOREIGN_FREES 30       /* per cent */

/* What is chosen by a hash; two that use the same would not be independent. */
enum choice { CHOICE_STREAM, CHOICE_THREAD, CHOICE_FOREIGN, CHOICE_FREEING_THREAD };

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). */
static uint64_t hash(uint64_t value, enum choice choice)
{
    value += ((uint64_t)choice + 1) * UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* A block that is freed is used on a second stream too, if it is its turn. */
static bool deal_second(struct workload *workload, uint32_t number, uint64_t completed)
{
    struct workload_block *block = &workload->blocks[number];
    uint32_t streams = (uint32_t)workload->stream_count;
    if (block->late || streams == 1 || number % SECOND_STREAM_EVERY != SECOND_STREAM_EVERY - 1)
        return false;
    block->second = (block->stream + 1) % streams;
    block->completed = completed;
    block->late = true;
    workload->late_count++;
    return true;
}

/* The completions of blocks that were given a second stream, in the order of their frees. Their
 * times are in the same order. */
struct completions {
    struct workload_op *ops;
    size_t count, next;
};

/* Takes the next completion that is due, as part of the event at hand. */
static bool completion_due(struct completions *completions, const struct workload_op *at,
                           struct workload_op *op)
{
    if (completions->next == completions->count ||
        completions->ops[completions->next].time > at->time)
        return false;
    *op = completions->ops[completions->next++];
    op->event = at->event;
    return true;
}

/* Moves the completions to where they belong now; those that would come after the last event are
 * left out. */
static void deal_completions(struct workload *workload, struct workload_op *dealt,
                             struct completions *completions, uint64_t lag)
{
    size_t count = 0;
    for (size_t i = 0; i < workload->op_count; i++) {
        const struct workload_op *op = &workload->ops[i];
        while (completion_due(completions, op, &dealt[count]))
            count++;
        if (op->action == WORKLOAD_COMPLETED &&
            workload->blocks[op->block].second != WORKLOAD_NO_STREAM)
            continue;
        dealt[count] = *op;
        dealt[count++].stream = WORKLOAD_NO_STREAM;
        if (op->action != WORKLOAD_FREE || !deal_second(workload, op->block, op->time + lag))
            continue;
        struct workload_op *completion = &completions->ops[completions->count++];
        *completion = *op;
        completion->time += lag;
        completion->action = WORKLOAD_COMPLETED;
        completion->stream = WORKLOAD_NO_STREAM;
    }
    free(workload->ops);
    workload->ops = dealt;
    workload->op_count = count;
}

/* What the recorded streams did says nothing of others. */
static void deal_order(struct workload *workload)
{
    for (size_t i = 0; i < workload->block_count; i++)
        workload->blocks[i].second = WORKLOAD_NO_STREAM;
    for (size_t i = 0; i < workload->op_count; i++) {
        struct workload_op *op = &workload->ops[i];
        if (op->action < WORKLOAD_TRY || op->action == WORKLOAD_OTHER)
            continue;
        op->action = op->action == WORKLOAD_TRY ? WORKLOAD_OOM : WORKLOAD_OTHER;
        op->block = WORKLOAD_NO_BLOCK;
    }
    workload->has_order = false;
    workload->wait_count = workload->capture_count = workload->moved_count = 0;
}

bool workload_deal(struct workload *workload, uint32_t streams, uint64_t lag)
{
    uint64_t *names = calloc(streams, sizeof *names);
    struct workload_op *dealt = calloc(workload->op_count * 2 + 1, sizeof *dealt);
    struct completions completions = {
        .ops = calloc(workload->block_count + 1, sizeof *completions.ops)};
    bool done = names && dealt && completions.ops;
    if (done) {
        for (uint32_t i = 0; i < streams; i++)
            names[i] = i;
        free(workload->streams);
        workload->streams = names;
        workload->stream_count = streams;
        for (size_t i = 0; i < workload->block_count; i++)
            workload->blocks[i].stream =
                (uint32_t)(hash(workload->blocks[i].address, CHOICE_STREAM) % streams);
        deal_order(workload);
        deal_completions(workload, dealt, &completions, lag);
    } else {
        free(names);
        free(dealt);
    }
    free(completions.ops);
    return done;
}

uint32_t workload_allocating_thread(const struct workload *workload, uint32_t block,
                                    uint32_t threads)
{
    return (uint32_t)(hash(workload->blocks[block].address, CHOICE_THREAD) % threads);
}

uint32_t workload_freeing_thread(const struct workload *workload, uint32_t block, uint32_t threads)
{
    uint32_t own = workload_allocating_thread(workload, block, threads);
    if (threads == 1 || hash(block, CHOICE_FOREIGN) % 100 >= FOREIGN_FREES)
        return own;
    return (own + 1 + (uint32_t)(hash(block, CHOICE_FREEING_THREAD) % (threads - 1))) % threads;
}
