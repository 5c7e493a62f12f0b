/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What grew from one analysis to another: groups of the blocks that live at a moment of each,
 * matched by their labels. */
#ifndef TOOLS_ANALYSIS_DIFF_H
#define TOOLS_ANALYSIS_DIFF_H

#include "analysis/analysis.h"

struct analysis_change {
    char label[160];
    uint64_t before, after; /* bytes */
    size_t blocks_before, blocks_after;
};

/* The groups of both, what changed most first; the caller frees it. NULL when memory is short. */
struct analysis_change *analysis_diff(const struct analysis *before, uint32_t before_moment,
                                      const struct analysis *after, uint32_t after_moment,
                                      enum analysis_by by, size_t *count);

#endif
