/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a program keeps more of, round by round, as long as it is recorded. */
#ifndef TOOLS_LEAK_H
#define TOOLS_LEAK_H

#include "analysis/analysis.h"

/* Blocks that have something in common, none of which was freed. */
struct leak {
    uint32_t tag;   /* text; 0: they have none */
    uint32_t stack; /* of snapshot.stacks; 0: it is not known */
    uint64_t size;  /* bytes of each, where neither is known and only that is common to them; else
                       0 */
    uint64_t bytes;
    size_t blocks, rounds; /* a round: what the program does from one time that it keeps some to the
                              next */
    uint32_t last;         /* the moment after the last of them was allocated */
};

/* The leaks of a trace, the largest first; the caller frees them. NULL when memory is short.
 *
 * A leak grows for at least half of the trace and until its last quarter, in five rounds or more,
 * in each quarter of its time by an eighth of it at least. Its rounds are found by its own rhythm:
 * where gaps between allocations are of two kinds, the long ones divide. In its time the program
 * must free two thirds of what it allocates, else it is only filling up; and what is allocated in
 * all must grow with it, else something takes the place of something. */
struct leak *leaks_find(const struct analysis *analysis, size_t *count);

#endif
