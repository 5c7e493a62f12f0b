/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Dynamic storage allocation, offline: blocks whose sizes and lifetimes are all known are given offsets, so that no two that live at one
 * time overlap and the highest end is low. The best possible height is hard to find (Garey, Johnson: Computers and
 * Intractability, 1979, problem SR2); the sum of what lives at one time is a bound that real traces come close to.
 * Not thread-safe. */
#ifndef TOOLS_PACKING_H
#define TOOLS_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct packing_block {
    uint64_t size, offset; /* bytes; the offset is the result */
    uint32_t start, end;   /* it lives from moment `start` on and is gone at moment `end`, which is later */
};

struct packing_result {
    uint64_t bound;  /* bytes: the most that lives at one moment */
    uint64_t height; /* bytes: the highest end of a block */
    uint32_t tries;  /* orders in which the blocks were placed */
};

/* Places `count` blocks, sorted by `start`, whose sizes sum up to less than 2^63 at any moment. The same blocks get the same offsets each
 * time. Ends at the bound, or when about `effort` steps were taken in all (a try takes as many as it has to look at). False when memory is
 * short. */
bool packing_solve(struct packing_block *blocks, size_t count, uint64_t effort, struct packing_result *result);

#endif
