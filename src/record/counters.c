/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the arithmetic of the counters. Every change of one event is made under one hold of the lock, so that a reader
 * sees all of it or nothing.
 *
 * What changes with every block is kept as few numbers: an allocation adds to two tallies and compares with the peaks, a free
 * subtracts from one. The statistics of both classes together, of active blocks, and of what was freed are made when they are
 * read. */
#include "record/counters.h"

static void stat_add(tarn_stat *stat, int64_t change)
{
    stat->current += change;
    if (change > 0)
        stat->allocated += change;
    else
        stat->freed -= change;
    if (stat->current > stat->peak)
        stat->peak = stat->current;
}

static void class_add(tarn_stat stats[TARN_STAT_CLASSES], tarn_stat_class class, int64_t change)
{
    stat_add(&stats[TARN_STAT_ALL], change);
    stat_add(&stats[class], change);
}

void counters_init(struct counters *counters, struct counters *parent)
{
    *counters = (struct counters){
        .parent = parent,
        .values = {.size = sizeof counters->values, .max_split_size = -1},
    };
}

static int class_of(size_t size)
{
    return size > COUNTERS_SMALL;
}

static bool is_oversize(const struct counters *counters, size_t size)
{
    return counters->values.max_split_size >= 0 && size >= (size_t)counters->values.max_split_size;
}

static void tally_add(struct tally *tally, int64_t blocks, int64_t bytes, int64_t requested)
{
    tally->blocks += blocks;
    tally->bytes += bytes;
    tally->requested += requested;
}

static struct tally tally_sum(const struct tally *a, const struct tally *b)
{
    return (struct tally){a->blocks + b->blocks, a->bytes + b->bytes, a->requested + b->requested};
}

static struct tally tally_difference(const struct tally *a, const struct tally *b)
{
    return (struct tally){a->blocks - b->blocks, a->bytes - b->bytes, a->requested - b->requested};
}

/* Raises a peak; true where it was below. */
static inline bool tally_raise(struct tally *peak, const struct tally *value)
{
    bool raised = false;
    if (value->blocks > peak->blocks)
        peak->blocks = value->blocks, raised = true;
    if (value->bytes > peak->bytes)
        peak->bytes = value->bytes, raised = true;
    if (value->requested > peak->requested)
        peak->requested = value->requested, raised = true;
    return raised;
}

static void active_peaks_raise(struct counters *counters)
{
    struct tally active[2];
    for (int class = 0; class < 2; class ++) {
        active[class] = tally_sum(&counters->live[class], &counters->waiting[class]);
        (void)tally_raise(&counters->active_peak[TARN_STAT_SMALL_POOL + class], &active[class]);
    }
    struct tally all = tally_sum(&active[0], &active[1]);
    (void)tally_raise(&counters->active_peak[TARN_STAT_ALL], &all);
}

/* After a growth of what is live. Without waiting blocks what is active can pass its peak only where what is live does. */
static inline void peaks_raise(struct counters *counters, int class)
{
    struct tally all = tally_sum(&counters->live[0], &counters->live[1]);
    bool raised = tally_raise(&counters->peak[TARN_STAT_SMALL_POOL + class], &counters->live[class]);
    raised |= tally_raise(&counters->peak[TARN_STAT_ALL], &all);
    if (raised || counters->waiting[0].blocks || counters->waiting[1].blocks)
        active_peaks_raise(counters);
}

void counters_allocated_locked(struct counters *counters, size_t size, size_t requested)
{
    int class = class_of(size);
    for (; counters; counters = counters->parent) {
        tally_add(&counters->live[class], 1, (int64_t)size, (int64_t)requested);
        tally_add(&counters->taken[class], 1, (int64_t)size, (int64_t)requested);
        peaks_raise(counters, class);
        if (is_oversize(counters, size))
            stat_add(&counters->values.oversize_allocations, 1);
    }
}

/* A block is live no more. */
static void live_end(struct counters *counters, int class, size_t size, size_t requested)
{
    tally_add(&counters->live[class], -1, -(int64_t)size, -(int64_t)requested);
    if (is_oversize(counters, size))
        stat_add(&counters->values.oversize_allocations, -1);
}

void counters_freed_and_completed_locked(struct counters *counters, size_t size, size_t requested)
{
    int class = class_of(size);
    for (; counters; counters = counters->parent)
        live_end(counters, class, size, requested);
}

void counters_freed_and_completed(struct counters *counters, size_t size, size_t requested)
{
    counters_lock(counters);
    counters_freed_and_completed_locked(counters, size, requested);
    counters_unlock(counters);
}

void counters_freed(struct counters *counters, size_t size, size_t requested)
{
    int class = class_of(size);
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        live_end(counters, class, size, requested);
        tally_add(&counters->waiting[class], 1, (int64_t)size, 0);
    }
    counters_unlock(own);
}

void counters_completed(struct counters *counters, size_t size)
{
    int class = class_of(size);
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent)
        tally_add(&counters->waiting[class], -1, -(int64_t)size, 0);
    counters_unlock(own);
}

static void small_add(tarn_stat stats[TARN_STAT_CLASSES], int64_t taken, int64_t given)
{
    tarn_stat *both[] = {&stats[TARN_STAT_ALL], &stats[TARN_STAT_SMALL_POOL]};
    for (int i = 0; i < 2; i++) {
        both[i]->current += taken - given;
        both[i]->allocated += taken;
        both[i]->freed += given;
        if (both[i]->current > both[i]->peak)
            both[i]->peak = both[i]->current;
    }
}

void counters_add_small(tarn_stats *stats, const struct counters_small *small)
{
    small_add(stats->allocation, small->taken, small->given);
    small_add(stats->active, small->taken, small->given);
    small_add(stats->allocated_bytes, small->bytes_taken, small->bytes_given);
    small_add(stats->active_bytes, small->bytes_taken, small->bytes_given);
    small_add(stats->requested_bytes, small->requested_taken, small->requested_given);
}

void counters_publish(struct counters *counters, const struct counters_small *small)
{
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        tally_add(&counters->live[0], small->taken - small->given, small->bytes_taken - small->bytes_given,
                  small->requested_taken - small->requested_given);
        tally_add(&counters->taken[0], small->taken, small->bytes_taken, small->requested_taken);
        peaks_raise(counters, 0);
    }
    counters_unlock(own);
}

void counters_extended(struct counters *counters, size_t size, size_t more, size_t requested, size_t more_requested)
{
    int from = class_of(size), to = class_of(size + more);
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        if (from != to) {
            tally_add(&counters->live[from], -1, -(int64_t)size, -(int64_t)requested);
            tally_add(&counters->live[to], 1, (int64_t)size, (int64_t)requested);
            tally_add(&counters->taken[to], 1, (int64_t)size, (int64_t)requested);
            tally_add(&counters->moved, 1, (int64_t)size, (int64_t)requested);
        }
        tally_add(&counters->live[to], 0, (int64_t)more, (int64_t)more_requested);
        tally_add(&counters->taken[to], 0, (int64_t)more, (int64_t)more_requested);
        peaks_raise(counters, to);
        if (is_oversize(counters, size + more) && !is_oversize(counters, size))
            stat_add(&counters->values.oversize_allocations, 1);
    }
    counters_unlock(own);
}

void counters_max_split(struct counters *counters, int64_t bytes)
{
    counters_lock(counters);
    counters->values.max_split_size = bytes;
    counters_unlock(counters);
}

static tarn_stat_class class_of_segment(bool large)
{
    return large ? TARN_STAT_LARGE_POOL : TARN_STAT_SMALL_POOL;
}

static void segment_count(struct counters *counters, size_t size, bool large, int sign)
{
    int64_t bytes = (int64_t)size;
    class_add(counters->values.segment, class_of_segment(large), sign);
    class_add(counters->values.reserved_bytes, class_of_segment(large), sign > 0 ? bytes : -bytes);
    if (is_oversize(counters, size))
        stat_add(&counters->values.oversize_segments, sign);
}

void counters_segment(struct counters *counters, size_t size, bool large, int sign)
{
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        segment_count(counters, size, large, sign);
        if (sign > 0)
            counters->values.num_device_alloc++;
        else
            counters->values.num_device_free++;
    }
    counters_unlock(own);
}

static void stat_kept(tarn_stat *stat, int64_t change)
{
    stat->current += change;
    stat->freed -= change;
    if (stat->current > stat->peak)
        stat->peak = stat->current;
}

void counters_segment_kept(struct counters *counters, size_t size, bool large)
{
    tarn_stat_class classes[] = {TARN_STAT_ALL, class_of_segment(large)};
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        for (int i = 0; i < 2; i++) {
            stat_kept(&counters->values.segment[classes[i]], 1);
            stat_kept(&counters->values.reserved_bytes[classes[i]], (int64_t)size);
        }
        if (is_oversize(counters, size))
            stat_kept(&counters->values.oversize_segments, 1);
        counters->values.num_device_free--;
    }
    counters_unlock(own);
}

static void segment_own(struct counters *counters, size_t size, bool large, int sign)
{
    if (!counters->parent)
        return; /* the device has it either way */
    counters_lock(counters);
    segment_count(counters, size, large, sign);
    counters_unlock(counters);
}

void counters_segment_move(struct counters *from, struct counters *to, size_t size, bool large)
{
    segment_own(from, size, large, -1);
    segment_own(to, size, large, 1);
}

void counters_split(struct counters_splits *splits, size_t size, int large, int sign)
{
    stat_add(&splits->count[large], sign);
    stat_add(&splits->bytes[large], (int64_t)size * sign);
}

static void stat_sum(tarn_stat *sum, const tarn_stat *stat)
{
    sum->current += stat->current;
    sum->peak += stat->peak;
    sum->allocated += stat->allocated;
    sum->freed += stat->freed;
}

void counters_add_splits(tarn_stats *stats, const struct counters_splits *splits)
{
    for (int large = 0; large < 2; large++) {
        tarn_stat_class class = large ? TARN_STAT_LARGE_POOL : TARN_STAT_SMALL_POOL;
        stat_sum(&stats->inactive_split[TARN_STAT_ALL], &splits->count[large]);
        stat_sum(&stats->inactive_split[class], &splits->count[large]);
        stat_sum(&stats->inactive_split_bytes[TARN_STAT_ALL], &splits->bytes[large]);
        stat_sum(&stats->inactive_split_bytes[class], &splits->bytes[large]);
    }
}

void counters_keep_splits(struct counters *counters, const struct counters_splits *splits)
{
    struct counters_splits sums = *splits;
    for (int large = 0; large < 2; large++)
        sums.count[large].peak = sums.bytes[large].peak = 0;
    for (; counters; counters = counters->parent) {
        counters_lock(counters);
        counters_add_splits(&counters->values, &sums);
        counters_unlock(counters);
    }
}

void counters_add(struct counters *counters, size_t scalar)
{
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent)
        ++*(int64_t *)((char *)&counters->values + scalar);
    counters_unlock(own);
}

/* One class of the counters that are made of tallies; or all, where they are the sums over both. */
static void class_read(const struct counters *counters, tarn_stats *stats, tarn_stat_class class,
                       const struct tally *live, const struct tally *waiting, const struct tally *taken,
                       const struct tally *freed, const struct tally *completed)
{
    const struct tally *peak = &counters->peak[class], *active = &counters->active_peak[class];
    stats->allocation[class] = (tarn_stat){live->blocks, peak->blocks, taken->blocks, freed->blocks};
    stats->allocated_bytes[class] = (tarn_stat){live->bytes, peak->bytes, taken->bytes, freed->bytes};
    stats->requested_bytes[class] = (tarn_stat){live->requested, peak->requested, taken->requested, freed->requested};
    stats->active[class] =
        (tarn_stat){live->blocks + waiting->blocks, active->blocks, taken->blocks, completed->blocks};
    stats->active_bytes[class] =
        (tarn_stat){live->bytes + waiting->bytes, active->bytes, taken->bytes, completed->bytes};
}

static void tallies_read(const struct counters *counters, tarn_stats *stats)
{
    struct tally freed[2], completed[2];
    for (int class = 0; class < 2; class ++) {
        const struct tally *live = &counters->live[class], *taken = &counters->taken[class];
        struct tally all = tally_sum(&counters->before[class], taken);
        freed[class] = tally_difference(&all, live);
        struct tally held = tally_difference(&counters->waiting[class], &counters->waited[class]);
        completed[class] = tally_difference(&freed[class], &held);
        class_read(counters, stats, TARN_STAT_SMALL_POOL + (tarn_stat_class) class, live, &counters->waiting[class],
                   taken, &freed[class], &completed[class]);
    }
    struct tally live = tally_sum(&counters->live[0], &counters->live[1]);
    struct tally waiting = tally_sum(&counters->waiting[0], &counters->waiting[1]);
    struct tally taken = tally_sum(&counters->taken[0], &counters->taken[1]);
    freed[0] = tally_sum(&freed[0], &freed[1]);
    completed[0] = tally_sum(&completed[0], &completed[1]);
    taken = tally_difference(&taken, &counters->moved);
    freed[0] = tally_difference(&freed[0], &counters->moved);
    completed[0] = tally_difference(&completed[0], &counters->moved);
    class_read(counters, stats, TARN_STAT_ALL, &live, &waiting, &taken, &freed[0], &completed[0]);
}

void counters_read(struct counters *counters, tarn_stats *stats)
{
    counters_lock(counters);
    *stats = counters->values;
    tallies_read(counters, stats);
    counters_unlock(counters);
}

/* Every tarn_stat of a set lies in one of two lists; `change` is made on each. */
static void each_stat(tarn_stats *values, void (*change)(tarn_stat *stat))
{
#define X(name)                                              \
    for (int class = 0; class < TARN_STAT_CLASSES; class ++) \
        change(&values->name[class]);
    TARN_STATS_CLASS_LIST(X)
#undef X
#define X(name) change(&values->name);
    TARN_STATS_SINGLE_LIST(X)
#undef X
}

static void reset_peak(tarn_stat *stat)
{
    stat->peak = stat->current;
}

static void reset_sums(tarn_stat *stat)
{
    stat->allocated = 0;
    stat->freed = 0;
}

void counters_reset_peak(struct counters *counters)
{
    counters_lock(counters);
    for (int class = 0; class < TARN_STAT_CLASSES; class ++)
        counters->peak[class] = counters->active_peak[class] = (struct tally){0};
    peaks_raise(counters, 0);
    peaks_raise(counters, 1);
    active_peaks_raise(counters);
    each_stat(&counters->values, reset_peak);
    counters_unlock(counters);
}

void counters_reset_accumulated(struct counters *counters)
{
    counters_lock(counters);
    for (int class = 0; class < 2; class ++) {
        counters->taken[class] = (struct tally){0};
        counters->before[class] = counters->live[class];
        counters->waited[class] = counters->waiting[class];
    }
    counters->moved = (struct tally){0};
    each_stat(&counters->values, reset_sums);
#define X(name) counters->values.name = 0;
    TARN_STATS_SCALAR_LIST(X)
#undef X
    counters_unlock(counters);
}

static void each_split(struct counters_splits *splits, void (*change)(tarn_stat *stat))
{
    for (int large = 0; large < 2; large++) {
        change(&splits->count[large]);
        change(&splits->bytes[large]);
    }
}

void counters_splits_reset_peak(struct counters_splits *splits)
{
    each_split(splits, reset_peak);
}

void counters_splits_reset_accumulated(struct counters_splits *splits)
{
    each_split(splits, reset_sums);
}
