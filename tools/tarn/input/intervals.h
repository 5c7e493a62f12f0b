/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Blocks with known lifetimes, as the benchmarks of static planners have them (google/minimalloc):
 * a CSV file of columns `id`, `lower`, `upper` and `size` in any order. A block lives from `lower`
 * to before `upper`. Not thread-safe. */
#ifndef TOOLS_INTERVALS_H
#define TOOLS_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define INTERVALS_ID_BYTES 32

struct interval {
    char id[INTERVALS_ID_BYTES]; /* as the file has it */
    uint64_t lower, upper;       /* moments; upper is later */
    uint64_t size;               /* not 0; all sizes together stay below 2^62 */
};

struct intervals {
    struct interval *items; /* in the order of the file */
    size_t count, capacity;
};

/* Opens a file from its beginning, whether it is held (once.h) or not; NULL with errno. */
FILE *intervals_open(const char *path);
/* Whether a file looks as if it were meant as one: its first line names the columns lower and
 * upper. */
bool intervals_are_in(const char *path);

/* Reads a file to its end. False with one line in `error`, which names the line, what it has and
 * what it must have. The caller gives the intervals to intervals_finish() either way. */
bool intervals_read(FILE *file, struct intervals *intervals, char *error, size_t error_size);
void intervals_finish(struct intervals *intervals);

#endif
