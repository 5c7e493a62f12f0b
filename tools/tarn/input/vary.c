/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Varies a workload a little, as the next run of a program does. It tests what was learned from one
 * run and is used in another. A separate generator decides what changes, so the result depends on
 * the seed alone. */
#include "input/workload.h"

#include <stdlib.h>
#include <string.h>

/* Of PART requests, so many change. */
#define PART 1000
#define CHANGED 10
#define LEFT_OUT 5
#define TWICE 5
#define SWAPPED 10

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). */
static uint64_t next(uint64_t *state)
{
    uint64_t value = *state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* 0.8 to 1.25 times a size, not 0. */
static uint64_t changed(uint64_t size, uint64_t *state)
{
    uint64_t factor = 800 + next(state) % 451;
    size = size / 1000 * factor + size % 1000 * factor / 1000;
    return size ? size : 1;
}

/* Changes sizes, marks what is left out by a size of 0, and gives blocks of the trace twins, by
 * number, WORKLOAD_NO_BLOCK for none. */
static void vary_blocks(struct workload *workload, uint32_t *twins, uint64_t *state)
{
    size_t count = workload->block_count;
    for (size_t i = 0; i < count; i++) {
        struct workload_block *block = &workload->blocks[i];
        uint64_t choice = next(state) % PART;
        twins[i] = WORKLOAD_NO_BLOCK;
        if (choice < CHANGED) {
            block->size = block->size ? changed(block->size, state) : 0;
        } else if (choice < CHANGED + LEFT_OUT) {
            block->size = 0;
        } else if (choice < CHANGED + LEFT_OUT + TWICE && i >= workload->initial_count &&
                   block->size) {
            twins[i] = (uint32_t)workload->block_count;
            workload->blocks[workload->block_count++] = *block;
        }
    }
}

static void vary_ops(struct workload *workload, struct workload_op *varied, const uint32_t *twins,
                     uint64_t *state)
{
    size_t count = 0;
    for (size_t i = 0; i < workload->op_count; i++) {
        struct workload_op op = workload->ops[i];
        uint32_t twin = op.block == WORKLOAD_NO_BLOCK ? WORKLOAD_NO_BLOCK : twins[op.block];
        if (op.block != WORKLOAD_NO_BLOCK && !workload->blocks[op.block].size) {
            op.action = WORKLOAD_OTHER;
            op.block = WORKLOAD_NO_BLOCK;
        }
        varied[count++] = op;
        if (twin != WORKLOAD_NO_BLOCK) {
            varied[count] = op;
            varied[count++].block = twin;
        }
    }
    for (size_t i = 0; i + 1 < count; i++) {
        if (varied[i].action != WORKLOAD_ALLOC || varied[i + 1].action != WORKLOAD_ALLOC ||
            next(state) % PART >= SWAPPED)
            continue;
        uint32_t block = varied[i].block;
        varied[i].block = varied[i + 1].block;
        varied[i + 1].block = block;
    }
    free(workload->ops);
    workload->ops = varied;
    workload->op_count = count;
}

bool workload_vary(struct workload *workload, uint64_t seed)
{
    struct workload_op *varied = calloc(workload->op_count * 2 + 1, sizeof *varied);
    uint32_t *twins = calloc(workload->block_count + 1, sizeof *twins);
    struct workload_block *blocks =
        reallocarray(workload->blocks, workload->block_count * 2 + 1, sizeof *blocks);
    if (blocks)
        workload->blocks = blocks;
    if (!varied || !twins || !blocks || workload->block_count > UINT32_MAX / 2) {
        free(varied);
        free(twins);
        return false;
    }
    vary_blocks(workload, twins, &seed);
    vary_ops(workload, varied, twins, &seed);
    free(twins);
    workload->recorded_peak_reserved = WORKLOAD_NOT_KNOWN;
    workload_measure(workload);
    return true;
}
