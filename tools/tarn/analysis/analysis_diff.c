/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the comparison of two analyses. Keys are numbers within one snapshot, so common groups are
 * found by label. */
#include "analysis/analysis_diff.h"

#include "units.h"

#include <stdio.h>
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

static int compare_keys(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* The keys of all blocks, in ascending order; `traced`: of those that were allocated in the trace.
 * The caller frees it. NULL if memory is short. */
static uint32_t *list_keys(const struct analysis *analysis, enum analysis_by by, bool traced,
                           size_t *count)
{
    uint32_t *keys = malloc((analysis->block_count + 1) * sizeof *keys);
    *count = 0;
    for (size_t i = 0; keys && i < analysis->block_count; i++)
        if (!traced || analysis->blocks[i].begin)
            keys[(*count)++] = analysis_key(analysis, by, &analysis->blocks[i]);
    if (keys && *count)
        qsort(keys, *count, sizeof *keys, compare_keys);
    return keys;
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
        memcpy(change->before_label, change->label, sizeof change->label);
    }
}

/* Adds the second of two changes to the first. */
static void join(struct analysis_change *one, const struct analysis_change *two)
{
    one->before += two->before;
    one->after += two->after;
    one->blocks_before += two->blocks_before;
    one->blocks_after += two->blocks_after;
}

/* Removes the lines from the label of a call site: "load  train.py:33" becomes "load  train.py". */
static void drop_lines(const char *label, char *plain)
{
    for (const char *at = label; *at; at++) {
        size_t digits = *at == ':' ? strspn(at + 1, "0123456789") : 0;
        char next = digits ? at[1 + digits] : 'x';
        if (next == '\0' || next == ' ')
            at += digits;
        else
            *plain++ = *at;
    }
    *plain = '\0';
}

/* A call site that only one side has. */
struct orphan {
    char plain[sizeof((struct analysis_change *)0)->label];
    struct analysis_change *change;
    bool after; /* the later side has it */
    bool taken; /* a call site of the other side was matched with it */
};

/* By function and file, then by side, then by line. */
static int compare_orphans(const void *left, const void *right)
{
    const struct orphan *a = left, *b = right;
    int order = strcmp(a->plain, b->plain);
    if (order == 0)
        order = (int)a->after - (int)b->after;
    return order ? order : strverscmp(a->change->label, b->change->label);
}

/* Makes one change of two orphans: that of the later side. */
static void match(struct orphan *one, struct orphan *two)
{
    struct analysis_change *old = one->after ? two->change : one->change,
                           *new = one->after ? one->change : two->change;
    memcpy(new->before_label, old->label, sizeof old->label);
    join(new, old);
    *old = (struct analysis_change){.label = ""};
    one->taken = two->taken = true;
}

/* One of the two is 0, as only one side has it. */
static uint64_t bytes_of(const struct orphan *orphan)
{
    return orphan->change->before + orphan->change->after;
}

/* The first orphan that is not taken and has the most bytes. */
static struct orphan *largest(struct orphan *orphans, size_t count)
{
    struct orphan *found = NULL;
    for (size_t i = 0; i < count; i++)
        if (!orphans[i].taken && (!found || bytes_of(&orphans[i]) > bytes_of(found)))
            found = &orphans[i];
    return found;
}

/* The first orphan that is not taken and whose bytes are nearest. */
static struct orphan *nearest(struct orphan *orphans, size_t count, uint64_t bytes)
{
    struct orphan *found = NULL;
    uint64_t least = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t own = bytes_of(&orphans[i]), far = own > bytes ? own - bytes : bytes - own;
        if (orphans[i].taken || (found && far >= least))
            continue;
        found = &orphans[i];
        least = far;
    }
    return found;
}

/* Matches the orphans of a function in a file. If both sides have as many, an edit has most likely
 * moved them together, so their order is the same. Otherwise those of the side with fewer take the
 * nearest by bytes, the largest first. */
static void match_function(struct orphan *before, size_t before_count, struct orphan *after,
                           size_t after_count)
{
    if (before_count == after_count) {
        for (size_t i = 0; i < before_count; i++)
            match(&before[i], &after[i]);
        return;
    }
    bool fewer = before_count < after_count;
    struct orphan *few = fewer ? before : after, *many = fewer ? after : before;
    size_t few_count = fewer ? before_count : after_count,
           many_count = fewer ? after_count : before_count;
    for (size_t i = 0; i < few_count; i++) {
        struct orphan *one = largest(few, few_count);
        match(one, nearest(many, many_count, bytes_of(one)));
    }
}

static int compare_to_label(const void *label, const void *orphan)
{
    return strcmp(label, ((const struct orphan *)orphan)->change->label);
}

/* Drops the orphans of one side that the other side, `analysis`, has at another moment. They are
 * ordered by label. Returns how many remain, or SIZE_MAX if memory is short. */
static size_t drop_known(struct orphan *orphans, size_t count, const struct analysis *analysis,
                         bool after)
{
    size_t key_count, kept = 0;
    uint32_t *keys = list_keys(analysis, ANALYSIS_BY_SITE, false, &key_count);
    if (!keys)
        return SIZE_MAX;
    for (size_t i = 0; i < key_count; i++) {
        char label[sizeof orphans->change->label];
        if (i && keys[i] == keys[i - 1])
            continue;
        analysis_label(analysis, ANALYSIS_BY_SITE, keys[i], label, sizeof label);
        struct orphan *known = bsearch(label, orphans, count, sizeof *orphans, compare_to_label);
        if (known && known->after == after)
            known->taken = true;
    }
    for (size_t i = 0; i < count; i++)
        if (!orphans[i].taken)
            orphans[kept++] = orphans[i];
    free(keys);
    return kept;
}

/* Matches call sites that an edit moved. `changes` are ordered by label. Returns how many remain,
 * or SIZE_MAX if memory is short. */
static size_t match_moved(const struct analysis *one, const struct analysis *two,
                          struct analysis_change *changes, size_t count)
{
    struct orphan *orphans = malloc((count + 1) * sizeof *orphans);
    size_t found = 0, kept = 0;
    if (!orphans)
        return SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (!changes[i].blocks_before != !changes[i].blocks_after) {
            orphans[found] =
                (struct orphan){.change = &changes[i], .after = changes[i].blocks_after != 0};
            drop_lines(changes[i].label, orphans[found++].plain);
        }
    found = found ? drop_known(orphans, found, two, false) : 0;
    found = found && found != SIZE_MAX ? drop_known(orphans, found, one, true) : found;
    if (found == SIZE_MAX) {
        free(orphans);
        return SIZE_MAX;
    }
    if (found)
        qsort(orphans, found, sizeof *orphans, compare_orphans);
    for (size_t i = 0, middle, end; i < found; i = end) {
        for (middle = i; middle < found && !orphans[middle].after &&
                         strcmp(orphans[middle].plain, orphans[i].plain) == 0;)
            middle++;
        for (end = middle; end < found && orphans[end].after &&
                           strcmp(orphans[end].plain, orphans[i].plain) == 0;)
            end++;
        match_function(&orphans[i], middle - i, &orphans[middle], end - middle);
    }
    for (size_t i = 0; i < count; i++)
        if (changes[i].blocks_before || changes[i].blocks_after)
            changes[kept++] = changes[i];
    free(orphans);
    return kept;
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
                join(&changes[kept - 1], &changes[i]);
            } else if (kept++ != i) {
                changes[kept - 1] = changes[i];
            }
        }
        if (by == ANALYSIS_BY_SITE)
            kept = match_moved(before, after, changes, kept);
        if (kept == SIZE_MAX) {
            free(changes);
            changes = NULL;
            kept = 0;
        }
        if (kept)
            qsort(changes, kept, sizeof *changes, compare_changes);
    }
    *count = kept;
    free(one);
    free(two);
    return changes;
}

/* --- in words --- */

/* How often a group was allocated in a trace. False when memory is short. */
static bool count_times(const struct analysis *analysis, enum analysis_by by, const char *wanted,
                        uint64_t *times)
{
    size_t count;
    uint32_t *keys = list_keys(analysis, by, true, &count);
    bool same = false;
    if (!keys)
        return false;
    *times = 0;
    for (size_t i = 0; i < count; i++) {
        char label[sizeof((struct analysis_change *)0)->label];
        if (i == 0 || keys[i] != keys[i - 1])
            same = strcmp(analysis_label(analysis, by, keys[i], label, sizeof label), wanted) == 0;
        *times += same;
    }
    free(keys);
    return true;
}

/* "+1.50 GiB" */
static struct units_text growth(uint64_t before, uint64_t after)
{
    struct units_text text;
    snprintf(text.text, sizeof text.text, "%c%.30s", after > before ? '+' : '-',
             units_bytes(after > before ? after - before : before - after).text);
    return text;
}

static uint64_t allocated(const struct analysis *analysis, uint32_t moment, bool *done)
{
    struct analysis_state state = {0};
    *done = analysis_states(analysis, &moment, 1, &state) && *done;
    return state.allocated;
}

/* The first change in the same direction as the whole. Changes are sorted by size, so it is the
 * largest. */
static const struct analysis_change *find_cause(const struct analysis_change *changes, size_t count,
                                                bool grown)
{
    for (size_t i = 0; i < count; i++)
        if (changes[i].before != changes[i].after &&
            (changes[i].after > changes[i].before) == grown)
            return &changes[i];
    return NULL;
}

/* "by load", "with no tag", "from before the recording" */
static const char *preposition(const char *label)
{
    return strncmp(label, "no ", 3) == 0 ? "with " : strncmp(label, "from ", 5) == 0 ? "" : "by ";
}

#define SAID_LENGTH 120 /* characters of a label in the sentence */

/* Cuts a label in its middle, so that it keeps the beginning of the function and the file. */
static const char *shorten(const char *label, char *text, size_t size)
{
    size_t count = 0, number = 0, used = 0;
    const size_t head = (SAID_LENGTH - 3) / 2, tail = SAID_LENGTH - 3 - head;
    for (const char *at = label; *at; at++)
        count += ((unsigned char)*at & 0xc0) != 0x80;
    if (count <= SAID_LENGTH)
        return label;
    for (const char *at = label; *at && used + 4 < size; at++) {
        bool starts = ((unsigned char)*at & 0xc0) != 0x80;
        if (starts && number++ == head) {
            memcpy(text + used, "...", 3);
            used += 3;
        }
        if (number <= head || number > count - tail)
            text[used++] = *at;
    }
    text[used] = '\0';
    return text;
}

bool analysis_diff_say(const struct analysis *before, uint32_t before_moment,
                       const struct analysis *after, uint32_t after_moment, enum analysis_by by,
                       const char *moment, char *text, size_t size)
{
    bool done = true;
    uint64_t one = allocated(before, before_moment, &done),
             two = allocated(after, after_moment, &done), times[2] = {0};
    size_t count;
    struct analysis_change *changes =
        done ? analysis_diff(before, before_moment, after, after_moment, by, &count) : NULL;
    if (!changes)
        return false;
    const struct analysis_change *cause = one == two ? NULL : find_cause(changes, count, two > one);
    if (one == two) {
        snprintf(text, size, "Both have %s allocated at %s.", units_bytes(one).text, moment);
    } else if (!cause) {
        snprintf(text, size, "%s at %s.", growth(one, two).text, moment);
    } else {
        uint64_t all = two > one ? two - one : one - two;
        char often[64] = "", label[4 * SAID_LENGTH + 4];
        done = count_times(before, by, cause->before_label, &times[0]) &&
               count_times(after, by, cause->label, &times[1]);
        uint64_t more = times[1] > times[0] ? times[1] - times[0] : times[0] - times[1];
        if (more && before->has_trace && after->has_trace)
            snprintf(often, sizeof often, ", allocated %s %s time%s", units_count(more).text,
                     times[1] > times[0] ? "more" : "fewer", more == 1 ? "" : "s");
        snprintf(text, size, "%s at %s%s%s %s%s%s.", growth(one, two).text, moment,
                 moved(cause) <= all ? ", of which " : "; ",
                 growth(cause->before, cause->after).text, preposition(cause->label),
                 shorten(cause->label, label, sizeof label), often);
    }
    free(changes);
    return done;
}
