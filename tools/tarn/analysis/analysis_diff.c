/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the comparison of two analyses. Keys are numbers of one snapshot, so what two have in common
 * is found by label. */
#include "analysis/analysis_diff.h"

#include <stdlib.h>
#include <string.h>

static int compare_labels(const void *left, const void *right)
{
    return strcmp(((const struct analysis_change *)left)->label,
                  ((const struct analysis_change *)right)->label);
}

static uint64_t moved(const struct analysis_change *change)
{
    return change->before > change->after ? change->before - change->after
                                          : change->after - change->before;
}

static int compare_changes(const void *left, const void *right)
{
    uint64_t a = moved(left), b = moved(right);
    return a != b ? (a < b) - (a > b) : compare_labels(left, right);
}

static void add(struct analysis_change *changes, size_t *count, const struct analysis *analysis,
                enum analysis_by by, const struct analysis_group *groups, size_t group_count,
                bool after)
{
    for (size_t i = 0; i < group_count; i++) {
        struct analysis_change *change = &changes[(*count)++];
        *change = (struct analysis_change){.before = after ? 0 : groups[i].bytes,
                                           .after = after ? groups[i].bytes : 0,
                                           .blocks_before = after ? 0 : groups[i].blocks,
                                           .blocks_after = after ? groups[i].blocks : 0};
        analysis_label(analysis, by, groups[i].key, change->label, sizeof change->label);
    }
}

struct analysis_change *analysis_diff(const struct analysis *before, uint32_t before_moment,
                                      const struct analysis *after, uint32_t after_moment,
                                      enum analysis_by by, size_t *count)
{
    size_t one_count = 0, two_count = 0, all = 0, kept = 0;
    struct analysis_group *one = analysis_groups(before, by, before_moment, &one_count);
    struct analysis_group *two = analysis_groups(after, by, after_moment, &two_count);
    struct analysis_change *changes =
        one && two ? malloc((one_count + two_count + 1) * sizeof *changes) : NULL;
    if (changes) {
        add(changes, &all, before, by, one, one_count, false);
        add(changes, &all, after, by, two, two_count, true);
        if (all)
            qsort(changes, all, sizeof *changes, compare_labels);
        for (size_t i = 0; i < all; i++) {
            if (kept && strcmp(changes[kept - 1].label, changes[i].label) == 0) {
                changes[kept - 1].before += changes[i].before;
                changes[kept - 1].after += changes[i].after;
                changes[kept - 1].blocks_before += changes[i].blocks_before;
                changes[kept - 1].blocks_after += changes[i].blocks_after;
            } else if (kept++ != i) {
                changes[kept - 1] = changes[i];
            }
        }
        if (kept)
            qsort(changes, kept, sizeof *changes, compare_changes);
    }
    *count = kept;
    free(one);
    free(two);
    return changes;
}
