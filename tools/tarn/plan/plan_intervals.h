/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn plan` of a file of blocks with known lifetimes (input/intervals.h). */
#ifndef TOOLS_PLAN_INTERVALS_H
#define TOOLS_PLAN_INTERVALS_H

#include <stdbool.h>
#include <stdint.h>

struct plan_intervals_options {
    const char *path, *output; /* output: NULL for none */
    uint64_t steps;
    double seconds;
    bool json;
};

/* Places the blocks, prints the result, and writes the file with a column `offset` to `output`.
 * False after an error message. */
bool plan_intervals(const struct plan_intervals_options *options);

#endif
