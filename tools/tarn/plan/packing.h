/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Dynamic storage allocation, offline: blocks whose sizes and lifetimes are all known are given
 * offsets, so that no two that live at one time overlap and the highest end is low. The best
 * possible height is hard to find (Garey, Johnson: Computers and Intractability, 1979, problem
 * SR2); the sum of what lives at one time is a bound that real traces come close to. Not
 * thread-safe. */
#ifndef TOOLS_PACKING_H
#define TOOLS_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct packing_block {
    uint64_t size, offset; /* bytes; the offset is the result */
    /* It lives from moment `start` on and is gone at moment `end`, which is later. */
    uint32_t start, end;
};

struct packing_result {
    uint64_t bound;  /* bytes: the most that lives at one moment */
    uint64_t height; /* bytes: the highest end of a block */
    uint64_t proved; /* bytes: no placement is lower; at least the bound */
    uint64_t steps;  /* of the search */
    uint32_t tries;  /* orders in which the blocks were placed, and searches */
};

/* When packing_improve() ends; the first that is reached. */
struct packing_limits {
    uint64_t goal;  /* bytes: a lower placement is of no use */
    uint64_t steps; /* about; as many give the same placement on any machine */
    double seconds; /* of the processor's time */
    bool show;      /* the time and the gap, on standard error */
};

/* Places `count` blocks, sorted by `start`, whose sizes sum up to less than 2^63 at any moment. The
 * same blocks get the same offsets each time. Ends at the bound, or when about `effort` steps were
 * taken in all (a try takes as many as it has to look at). False when memory is short. */
bool packing_solve(struct packing_block *blocks, size_t count, uint64_t effort,
                   struct packing_result *result);

/* Searches for a lower placement of blocks that packing_solve() placed, with its result; more than
 * PACKING_SEARCH_MOST blocks stay as they are. False when memory is short; they are placed then
 * too. */
bool packing_improve(struct packing_block *blocks, size_t count,
                     const struct packing_limits *limits, struct packing_result *result);

#endif
