/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What grew from one analysis to another: groups of the blocks that live at a moment of each,
 * matched by their labels. A call site that only one side has, at any moment, is matched with one
 * that only the other has if their functions and files are the same: an edit above it has moved its
 * line. Several of a function are matched in the order of their lines if both sides have as many of
 * them, and otherwise by the nearest bytes. */
#ifndef TOOLS_ANALYSIS_DIFF_H
#define TOOLS_ANALYSIS_DIFF_H

#include "analysis/analysis.h"

struct analysis_change {
    char label[400]; /* that of the later side, if it has the group */
    char before_label[400];
    uint64_t before, after; /* bytes */
    size_t blocks_before, blocks_after;
};

/* The groups of both sides, the largest change first. The caller frees it. NULL if memory is
 * short. */
struct analysis_change *analysis_diff(const struct analysis *before, uint32_t before_moment,
                                      const struct analysis *after, uint32_t after_moment,
                                      enum analysis_by by, size_t *count);

/* How the memory at the moments changed, and what group has most of it: "+192 MiB at the peak, of
 * which +190 MiB by load  train.py:33, allocated 24 more times." False when memory is short. */
bool analysis_diff_say(const struct analysis *before, uint32_t before_moment,
                       const struct analysis *after, uint32_t after_moment, enum analysis_by by,
                       const char *moment, char *text, size_t size);

#endif
