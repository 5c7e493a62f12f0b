/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the search for leaks. Blocks that were never freed are grouped into families by what they
 * have in common, and each family's course over the trace is judged. The rules are in leak.h. */
#include "analysis/leak.h"

#include <stdlib.h>

#define ROUNDS 5
/* a gap is long if it is this many times as long as a short one */
#define LONG_GAP 4
/* the least size of a leak, if it is also a hundredth of the peak */
#define LEAST_BYTES (UINT64_C(1) << 20)

struct survivor {
    uint32_t tag, stack;
    uint64_t size;  /* of each block of the family; 0 if the tag or the stack identifies it */
    uint32_t block; /* index of analysis.blocks */
    uint32_t begin;
};

/* Sums by moment, all of event_count + 1 elements. */
struct course {
    uint64_t *live; /* bytes allocated at a moment */
    /* bytes allocated until then, and the part of them that was never freed */
    uint64_t *begun, *never_freed;
};

static int compare_families(const struct survivor *a, const struct survivor *b)
{
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->stack != b->stack)
        return a->stack < b->stack ? -1 : 1;
    return (a->size > b->size) - (a->size < b->size);
}

static int compare_survivors(const void *left, const void *right)
{
    const struct survivor *a = left, *b = right;
    int order = compare_families(a, b);
    return order ? order : (a->begin > b->begin) - (a->begin < b->begin);
}

static int compare_gaps(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static int compare_leaks(const void *left, const void *right)
{
    const struct leak *a = left, *b = right;
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

/* Lists what was allocated in the trace and not freed in it, by family. The caller frees it. */
static struct survivor *list_survivors(const struct analysis *analysis, size_t *count)
{
    struct survivor *survivors = malloc((analysis->block_count + 1) * sizeof *survivors);
    *count = 0;
    for (size_t i = 0; survivors && i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        if (!block->begin || block->freed != ANALYSIS_NEVER)
            continue;
        bool known = block->tag || block->stack;
        survivors[(*count)++] = (struct survivor){.tag = block->tag,
                                                  .stack = block->stack,
                                                  .size = known ? 0 : block->size,
                                                  .block = (uint32_t)i,
                                                  .begin = block->begin};
    }
    if (survivors && *count)
        qsort(survivors, *count, sizeof *survivors, compare_survivors);
    return survivors;
}

static void course_finish(struct course *course)
{
    free(course->live);
    free(course->begun);
    free(course->never_freed);
}

static bool course_init(struct course *course, const struct analysis *analysis)
{
    size_t moments = (size_t)analysis->event_count + 1;
    *course = (struct course){calloc(moments, sizeof *course->live),
                              calloc(moments, sizeof *course->begun),
                              calloc(moments, sizeof *course->never_freed)};
    if (!course->live || !course->begun || !course->never_freed) {
        course_finish(course);
        return false;
    }
    for (size_t i = 0; i < analysis->block_count; i++) {
        const struct analysis_block *block = &analysis->blocks[i];
        course->live[block->begin] += block->size;
        course->begun[block->begin] += block->size;
        if (block->freed != ANALYSIS_NEVER)
            course->live[block->freed] -= block->size;
        else
            course->never_freed[block->begin] += block->size;
    }
    for (size_t i = 1; i < moments; i++) {
        course->live[i] += course->live[i - 1];
        course->begun[i] += course->begun[i - 1];
        course->never_freed[i] += course->never_freed[i - 1];
    }
    return true;
}

/* The length in events from which on a gap of a family ends a round. `gaps` has room for all of
 * them. */
static uint32_t round_gap(const struct survivor *family, size_t count, uint32_t *gaps)
{
    for (size_t i = 1; i < count; i++)
        gaps[i - 1] = family[i].begin - family[i - 1].begin;
    qsort(gaps, count - 1, sizeof *gaps, compare_gaps);
    uint32_t cut = 0;
    double widest = LONG_GAP;
    for (size_t i = 1; i < count - 1 && count - 1 - i >= ROUNDS - 1; i++) {
        double wider = (double)gaps[i] / (gaps[i - 1] ? gaps[i - 1] : 1);
        if (wider >= widest) {
            widest = wider;
            cut = gaps[i];
        }
    }
    return cut;
}

/* Whether a family is a leak. */
static bool judge(const struct analysis *analysis, const struct course *course,
                  const struct survivor *family, size_t count, uint32_t *gaps, struct leak *leak)
{
    uint32_t first = family[0].begin, last = family[count - 1].begin,
             events = analysis->event_count;
    if (last == first || last - first < events / 2 || last < events - events / 4)
        return false;
    uint64_t begun = course->begun[last] - course->begun[first],
             kept = course->never_freed[last] - course->never_freed[first];
    if (kept > begun / 3)
        return false;

    uint32_t cut = round_gap(family, count, gaps);
    uint64_t round = 0, bytes = 0, quarters[4] = {0};
    size_t rounds = 0, grown = 0;
    for (size_t i = 0, start = 0; i < count; i++) {
        uint64_t size = analysis->blocks[family[i].block].size,
                 quarter = UINT64_C(4) * (family[i].begin - first) / (last - first);
        quarters[quarter < 3 ? quarter : 3] += size;
        round += size;
        if (i + 1 < count && family[i + 1].begin - family[i].begin < cut)
            continue;
        rounds++;
        bytes += round;
        uint32_t from = family[start].begin - 1,
                 to = i + 1 < count ? family[i + 1].begin - 1 : events;
        grown += course->live[to] >= course->live[from] + round / 2;
        start = i + 1;
        round = 0;
    }
    *leak = (struct leak){family->tag, family->stack, family->size, bytes, count, rounds, last};
    for (size_t i = 0; i < 4; i++)
        if (quarters[i] < bytes / 8)
            return false;
    return rounds >= ROUNDS && grown >= rounds - rounds / 4 && bytes >= LEAST_BYTES &&
           bytes >= analysis->at_peak.allocated / 100;
}

struct leak *leaks_find(const struct analysis *analysis, size_t *count)
{
    size_t survivor_count;
    struct course course;
    struct survivor *survivors = list_survivors(analysis, &survivor_count);
    struct leak *leaks = calloc(survivor_count / ROUNDS + 1, sizeof *leaks);
    uint32_t *gaps = calloc(survivor_count + 1, sizeof *gaps);
    bool made = survivors && leaks && gaps && course_init(&course, analysis);
    *count = 0;
    for (size_t i = 0, next; made && i < survivor_count; i = next) {
        for (next = i + 1;
             next < survivor_count && compare_families(&survivors[i], &survivors[next]) == 0;
             next++)
            ;
        if (next - i >= ROUNDS)
            *count += judge(analysis, &course, survivors + i, next - i, gaps, &leaks[*count]);
    }
    if (made) {
        qsort(leaks, *count, sizeof *leaks, compare_leaks);
        course_finish(&course);
    }
    free(survivors);
    free(gaps);
    if (made)
        return leaks;
    free(leaks);
    return NULL;
}
