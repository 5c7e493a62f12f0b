/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the comparison of ranks. Keys are numbers within one snapshot, so common groups are found by
 * label. */
#include "analysis/ranks.h"

#include "units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* a peak differs if it is this part of the median away from it */
#define DIFFERS_SHARE 20
#define DIFFERS_BYTES (UINT64_C(1) << 20) /* and at least this many bytes */

/* --- the ranks --- */

static void fill_rank(struct rank *rank)
{
    const struct analysis *analysis = rank->analysis;
    const struct snapshot *snapshot = analysis->snapshot;
    if ((size_t)analysis->device < snapshot->tarn.device_count) {
        const struct snapshot_device *device = &snapshot->tarn.devices[analysis->device];
        rank->capacity = device->limit < device->total ? device->limit : device->total;
    }
    rank->failed_us = SNAPSHOT_NO_TIME;
    if (analysis->oom_count && analysis->has_times)
        rank->failed_us =
            snapshot->traces[analysis->device].events[analysis->ooms[0].event].time_us;
}

static int compare_ranks(const void *left, const void *right)
{
    const struct rank *a = left, *b = right;
    if (a->number != b->number)
        return (a->number > b->number) - (a->number < b->number);
    return (a->analysis->device > b->analysis->device) -
           (a->analysis->device < b->analysis->device);
}

static int compare_bytes(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* The median; sorts the values. */
static uint64_t median_of(uint64_t *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_bytes);
    return count % 2 ? values[count / 2]
                     : values[count / 2 - 1] + (values[count / 2] - values[count / 2 - 1]) / 2;
}

static uint64_t peak_of(const struct rank *rank)
{
    return rank->analysis->at_peak.allocated;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* --- groups --- */

struct share {
    char label[400];
    size_t rank;
    uint64_t bytes;
};

static int compare_shares(const void *left, const void *right)
{
    const struct share *a = left, *b = right;
    int order = strcmp(a->label, b->label);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* The bytes of each group in each rank at the rank's peak, ordered by label. NULL if memory is
 * short. */
static struct share *shares_of(const struct ranks *ranks, enum analysis_by by, size_t *count)
{
    struct share *shares = malloc(sizeof *shares);
    *count = 0;
    for (size_t i = 0; shares && i < ranks->count; i++) {
        const struct analysis *analysis = ranks->items[i].analysis;
        size_t found = 0;
        struct analysis_group *groups = analysis_groups(analysis, by, analysis->peak, &found);
        struct share *grown =
            groups ? realloc(shares, (*count + found + 1) * sizeof *shares) : NULL;
        if (!grown) {
            free(groups);
            free(shares);
            return NULL;
        }
        shares = grown;
        for (size_t j = 0; j < found; j++) {
            struct share *share = &shares[(*count)++];
            *share = (struct share){.rank = i, .bytes = groups[j].bytes};
            analysis_label(analysis, by, groups[j].key, share->label, sizeof share->label);
        }
        free(groups);
    }
    if (shares && *count)
        qsort(shares, *count, sizeof *shares, compare_shares);
    return shares;
}

/* Collects what each rank has of one label, from the share at `at` on. Returns the first share of
 * the next label. */
static size_t take_label(const struct ranks *ranks, const struct share *shares, size_t count,
                         size_t at, uint64_t *values)
{
    const char *label = shares[at].label;
    memset(values, 0, ranks->count * sizeof *values);
    for (; at < count && strcmp(shares[at].label, label) == 0; at++)
        values[shares[at].rank] += shares[at].bytes;
    return at;
}

static int compare_differences(const void *left, const void *right)
{
    const struct rank_difference *a = left, *b = right;
    uint64_t x = a->most - a->least, y = b->most - b->least;
    return x != y ? (x < y) - (x > y) : strcmp(a->label, b->label);
}

struct rank_difference *ranks_differences(const struct ranks *ranks, enum analysis_by by,
                                          size_t *count)
{
    size_t share_count = 0, kept = 0;
    struct share *shares = shares_of(ranks, by, &share_count);
    struct rank_difference *differences =
        shares ? malloc((share_count + 1) * sizeof *differences) : NULL;
    uint64_t *values = calloc(ranks->count + 1, sizeof *values);
    *count = 0;
    for (size_t at = 0; differences && values && at < share_count;) {
        struct rank_difference *difference = &differences[kept];
        *difference = (struct rank_difference){0};
        memcpy(difference->label, shares[at].label, sizeof difference->label);
        at = take_label(ranks, shares, share_count, at, values);
        for (size_t i = 1; i < ranks->count; i++) {
            difference->lowest = values[i] < values[difference->lowest] ? i : difference->lowest;
            difference->highest = values[i] > values[difference->highest] ? i : difference->highest;
        }
        difference->least = values[difference->lowest];
        difference->most = values[difference->highest];
        difference->median = median_of(values, ranks->count);
        kept += difference->most > difference->least;
    }
    if (!values) {
        free(differences);
        differences = NULL;
    }
    if (differences && kept)
        qsort(differences, kept, sizeof *differences, compare_differences);
    *count = differences ? kept : 0;
    free(values);
    free(shares);
    return differences;
}

/* --- sentences --- */

/* Finds the group of a rank that is furthest from the median of all ranks, in the direction in
 * which the rank's peak is. False if memory is short. */
static bool find_cause(const struct ranks *ranks, size_t rank, bool more, struct share *cause)
{
    size_t count = 0;
    struct share *shares = shares_of(ranks, ranks->cause, &count);
    uint64_t *values = calloc(ranks->count + 1, sizeof *values);
    *cause = (struct share){0};
    for (size_t at = 0; shares && values && at < count;) {
        const char *label = shares[at].label;
        at = take_label(ranks, shares, count, at, values);
        uint64_t own = values[rank], median = median_of(values, ranks->count);
        if (own != median && (own > median) == more && distance(own, median) > cause->bytes) {
            memcpy(cause->label, label, sizeof cause->label);
            cause->bytes = distance(own, median);
        }
    }
    bool done = shares && values;
    free(values);
    free(shares);
    return done;
}

static char *next_sentence(struct ranks *ranks)
{
    return ranks->sentences[ranks->sentence_count++];
}

/* A rank's name for the beginning of a sentence. */
struct name {
    char text[sizeof((struct rank *)0)->name];
};
static struct name starting(const struct rank *rank)
{
    struct name name;
    memcpy(name.text, rank->name, sizeof name.text);
    if (rank->numbered)
        name.text[0] = (char)toupper((unsigned char)name.text[0]);
    return name;
}

/* Files may have any times. */
static uint64_t ns_between(int64_t from_us, int64_t to_us)
{
    uint64_t us = (uint64_t)to_us - (uint64_t)from_us, ns;
    return __builtin_mul_overflow(us, 1000, &ns) ? UINT64_MAX : ns;
}

/* Says which rank runs out of memory first: by the times of the errors, otherwise by what is left
 * of the device, otherwise by what is reserved. */
static void say_first(struct ranks *ranks)
{
    const size_t size = sizeof ranks->sentences[0];
    size_t failed = 0, timed = 0, first = 0, second = 0, fullest = 0;
    bool known = true;
    uint64_t *reserved = calloc(ranks->count + 1, sizeof *reserved);
    for (size_t i = 0; i < ranks->count; i++) {
        const struct rank *rank = &ranks->items[i];
        failed += rank->analysis->oom_count > 0;
        known = known && rank->capacity;
        if (rank->failed_us == SNAPSHOT_NO_TIME)
            continue;
        if (!timed || rank->failed_us < ranks->items[first].failed_us) {
            second = first;
            first = i;
        } else if (timed == 1 || rank->failed_us < ranks->items[second].failed_us) {
            second = i;
        }
        timed++;
    }
    if (timed && timed == failed) {
        const struct rank *one = &ranks->items[first], *two = &ranks->items[second];
        int length =
            snprintf(next_sentence(ranks), size, "%s runs out of memory first, at a request of %s",
                     starting(one).text, units_bytes(one->analysis->ooms[0].asked).text);
        char *rest = ranks->sentences[ranks->sentence_count - 1] + length;
        if (timed > 1)
            snprintf(rest, size - (size_t)length,
                     ", %s before %s%s. Memory runs out in %zu of %zu %ss.",
                     units_time(ns_between(one->failed_us, two->failed_us)).text, two->name,
                     strcmp(ranks->noun, "device") == 0 ? "" : " by the clocks of their hosts",
                     failed, ranks->count, ranks->noun);
        else
            snprintf(rest, size - (size_t)length, ". Memory runs out in %zu of %zu %ss.", failed,
                     ranks->count, ranks->noun);
    } else if (failed) {
        snprintf(next_sentence(ranks), size,
                 "Memory runs out in %zu of %zu %ss. %s files have no times, so which was first is "
                 "unknown.",
                 failed, ranks->count, ranks->noun, timed ? "Some" : "The");
    } else if (reserved) {
        for (size_t i = 0; i < ranks->count; i++) {
            const struct rank *rank = &ranks->items[i], *best = &ranks->items[fullest];
            reserved[i] = rank->analysis->at_peak_reserved.reserved;
            uint64_t most = best->analysis->at_peak_reserved.reserved;
            bool closer = known ? (double)rank->capacity - (double)reserved[i] <
                                      (double)best->capacity - (double)most
                                : reserved[i] > most;
            fullest = closer ? i : fullest;
        }
        const struct rank *one = &ranks->items[fullest];
        uint64_t own = reserved[fullest], median = median_of(reserved, ranks->count);
        uint64_t left = known && one->capacity > own ? one->capacity - own : 0;
        if (known)
            snprintf(
                next_sentence(ranks), size,
                "No %s ran out of memory. %s comes closest: it reserves %s of %s, which leaves %s.",
                ranks->noun, starting(one).text, units_bytes(own).text,
                units_bytes(one->capacity).text, units_bytes(left).text);
        else if (own > median)
            snprintf(next_sentence(ranks), size,
                     "No %s ran out of memory. On devices of the same size %s would be the first: "
                     "it reserves %s; the "
                     "median is %s.",
                     ranks->noun, one->name, units_bytes(own).text, units_bytes(median).text);
    }
    free(reserved);
}

/* Names up to three ranks that differ, the furthest from the median first. If none differs, says
 * how small the differences are. */
static bool say_who_differs(struct ranks *ranks)
{
    uint64_t widest = 0;
    bool *said = calloc(ranks->count + 1, sizeof *said);
    bool done = said != NULL;
    while (done && ranks->sentence_count < RANK_SENTENCES) {
        size_t best = ranks->count;
        for (size_t i = 0; i < ranks->count; i++)
            if (!said[i] &&
                (best == ranks->count || distance(peak_of(&ranks->items[i]), ranks->median) >
                                             distance(peak_of(&ranks->items[best]), ranks->median)))
                best = i;
        uint64_t far =
            best < ranks->count ? distance(peak_of(&ranks->items[best]), ranks->median) : 0;
        widest = far > widest ? far : widest;
        if (far < DIFFERS_BYTES || far < ranks->median / DIFFERS_SHARE)
            break;
        said[best] = true;
        struct share cause;
        bool more = peak_of(&ranks->items[best]) > ranks->median;
        done = find_cause(ranks, best, more, &cause);
        char *text = next_sentence(ranks);
        size_t size = sizeof ranks->sentences[0];
        int length = snprintf(text, size,
                              "%s has %s at its peak, %s (%.0f %%) %s than the median of all %ss",
                              starting(&ranks->items[best]).text,
                              units_bytes(peak_of(&ranks->items[best])).text, units_bytes(far).text,
                              ranks->median ? 100 * (double)far / (double)ranks->median : 100.0,
                              more ? "more" : "less", ranks->noun);
        if (cause.bytes)
            snprintf(text + length, size - (size_t)length, "; \"%.300s\" alone has %s %s.",
                     cause.label, units_bytes(cause.bytes).text, more ? "more" : "less");
        else
            snprintf(text + length, size - (size_t)length, ".");
    }
    bool any = false;
    for (size_t i = 0; done && i < ranks->count; i++)
        any = any || said[i];
    if (done && !any && ranks->median)
        snprintf(next_sentence(ranks), sizeof ranks->sentences[0],
                 "All %zu %ss are alike: their peaks are within %.1f %% of the median, %s.",
                 ranks->count, ranks->noun, 100 * (double)widest / (double)ranks->median,
                 units_bytes(ranks->median).text);
    free(said);
    return done;
}

static enum analysis_by find_cause_by(const struct ranks *ranks)
{
    bool tagged = false, stacked = false;
    for (size_t i = 0; i < ranks->count; i++)
        for (size_t j = 0; j < ranks->items[i].analysis->block_count && !(tagged && stacked); j++) {
            tagged = tagged || ranks->items[i].analysis->blocks[j].tag;
            stacked = stacked || ranks->items[i].analysis->blocks[j].stack;
        }
    return tagged ? ANALYSIS_BY_TAG : stacked ? ANALYSIS_BY_SITE : ANALYSIS_BY_STREAM;
}

bool ranks_make(const struct report_file *files, size_t count, struct ranks *ranks)
{
    size_t all = 0;
    *ranks = (struct ranks){0};
    for (size_t i = 0; i < count; i++)
        all += files[i].count;
    ranks->items = calloc(all + 1, sizeof *ranks->items);
    uint64_t *peaks = calloc(all + 1, sizeof *peaks);
    bool done = ranks->items && peaks;
    for (size_t i = 0; done && i < count; i++)
        for (size_t j = 0; j < files[i].count; j++) {
            if (analysis_is_of_host(&files[i].analyses[j]))
                continue;
            struct rank *rank = &ranks->items[ranks->count];
            *rank = (struct rank){.file = &files[i], .analysis = &files[i].analyses[j], .place = i};
            fill_rank(rank);
            peaks[ranks->count++] = peak_of(rank);
        }
    ranks->noun = "file";
    if (done && rank_names_make(ranks->items, ranks->count, files, count)) {
        ranks->noun = count > 1 ? "rank" : "device";
        qsort(ranks->items, ranks->count, sizeof *ranks->items, compare_ranks);
    }
    if (done) {
        ranks->median = median_of(peaks, ranks->count);
        ranks->cause = find_cause_by(ranks);
        say_first(ranks);
        done = say_who_differs(ranks);
    }
    free(peaks);
    if (!done)
        ranks_finish(ranks);
    return done;
}

void ranks_finish(struct ranks *ranks)
{
    free(ranks->items);
    *ranks = (struct ranks){0};
}
