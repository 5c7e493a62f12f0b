/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Leaks: what a program keeps more of, round by round, as long as it is recorded. */
#ifndef TOOLS_LEAK_H
#define TOOLS_LEAK_H

#include "analysis/analysis.h"

/* A leak: blocks with something in common, none of which was freed. */
struct leak {
    uint32_t tag;   /* text; 0: none */
    uint32_t stack; /* of snapshot.stacks; 0: it is not known */
    /* bytes of each block, if neither tag nor stack is known and the size is all that they share;
     * otherwise 0 */
    uint64_t size;
    uint64_t bytes;
    /* a round goes from one time that the program keeps some blocks to the next */
    size_t blocks, rounds;
    uint32_t last; /* the moment after the last of the blocks was allocated */
};

/* The leaks of a trace, the largest first. The caller frees them. NULL if memory is short.
 *
 * A leak grows for at least half of the trace and until its last quarter, in five rounds or more,
 * and in each quarter of its time by at least an eighth of itself. Its rounds follow from its own
 * rhythm: if the gaps between its allocations are of two kinds, the long ones divide rounds. In
 * that time the program must free two thirds of what it allocates; otherwise it is only filling up.
 * All that is allocated must grow with the leak; otherwise the blocks replace others. */
struct leak *leaks_find(const struct analysis *analysis, size_t *count);

#endif
