/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the arithmetic of the counters. Every change of one event is made under one hold of the lock, so that a reader
 * sees all of it or nothing. */
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

static tarn_stat_class class_of(size_t size)
{
    return size <= COUNTERS_SMALL ? TARN_STAT_SMALL_POOL : TARN_STAT_LARGE_POOL;
}

void counters_init(struct counters *counters, struct counters *parent)
{
    mutex_init(&counters->lock);
    counters->parent = parent;
    counters->values = (tarn_stats){.size = sizeof counters->values, .max_split_size = -1};
}

void counters_finish(struct counters *counters)
{
    mutex_finish(&counters->lock);
}

static bool is_oversize(const tarn_stats *values, size_t size)
{
    return values->max_split_size >= 0 && size >= (size_t)values->max_split_size;
}

static void add_allocation(tarn_stats *values, size_t size, int64_t requested, int sign)
{
    if (is_oversize(values, size))
        stat_add(&values->oversize_allocations, sign);
    class_add(values->allocation, class_of(size), sign);
    class_add(values->allocated_bytes, class_of(size), (int64_t)size * sign);
    class_add(values->requested_bytes, class_of(size), requested * sign);
}

static void add_active(tarn_stats *values, size_t size, int sign)
{
    class_add(values->active, class_of(size), sign);
    class_add(values->active_bytes, class_of(size), (int64_t)size * sign);
}

void counters_allocated(struct counters *counters, size_t size, size_t requested)
{
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        add_allocation(&counters->values, size, (int64_t)requested, 1);
        add_active(&counters->values, size, 1);
        mutex_unlock(&counters->lock);
    }
}

void counters_freed(struct counters *counters, size_t size, size_t requested)
{
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        add_allocation(&counters->values, size, (int64_t)requested, -1);
        mutex_unlock(&counters->lock);
    }
}

void counters_completed(struct counters *counters, size_t size)
{
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        add_active(&counters->values, size, -1);
        mutex_unlock(&counters->lock);
    }
}

void counters_freed_and_completed(struct counters *counters, size_t size, size_t requested)
{
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        add_allocation(&counters->values, size, (int64_t)requested, -1);
        add_active(&counters->values, size, -1);
        mutex_unlock(&counters->lock);
    }
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
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        counters_add_small(&counters->values, small);
        mutex_unlock(&counters->lock);
    }
}

/* A value moves from one class to another while it grows: the sum over both changes by the growth alone. */
static void class_move(tarn_stat stats[TARN_STAT_CLASSES], tarn_stat_class from, tarn_stat_class to, size_t value,
                       size_t more)
{
    stat_add(&stats[TARN_STAT_ALL], (int64_t)more);
    if (from == to) {
        stat_add(&stats[to], (int64_t)more);
        return;
    }
    stat_add(&stats[from], -(int64_t)value);
    stat_add(&stats[to], (int64_t)(value + more));
}

void counters_extended(struct counters *counters, size_t size, size_t more, size_t requested, size_t more_requested)
{
    tarn_stat_class from = class_of(size), to = class_of(size + more);
    for (; counters; counters = counters->parent) {
        tarn_stats *values = &counters->values;
        mutex_lock(&counters->lock);
        class_move(values->allocation, from, to, from != to, 0);
        class_move(values->active, from, to, from != to, 0);
        class_move(values->allocated_bytes, from, to, size, more);
        class_move(values->active_bytes, from, to, size, more);
        class_move(values->requested_bytes, from, to, requested, more_requested);
        if (is_oversize(values, size + more) && !is_oversize(values, size))
            stat_add(&values->oversize_allocations, 1);
        mutex_unlock(&counters->lock);
    }
}

void counters_max_split(struct counters *counters, int64_t bytes)
{
    mutex_lock(&counters->lock);
    counters->values.max_split_size = bytes;
    mutex_unlock(&counters->lock);
}

void counters_segment(struct counters *counters, size_t size, bool large, int sign)
{
    tarn_stat_class class = large ? TARN_STAT_LARGE_POOL : TARN_STAT_SMALL_POOL;
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        class_add(counters->values.segment, class, sign);
        class_add(counters->values.reserved_bytes, class, sign * (int64_t)size);
        if (is_oversize(&counters->values, size))
            stat_add(&counters->values.oversize_segments, sign);
        if (sign > 0)
            counters->values.num_device_alloc++;
        else
            counters->values.num_device_free++;
        mutex_unlock(&counters->lock);
    }
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
    tarn_stat_class classes[] = {TARN_STAT_ALL, large ? TARN_STAT_LARGE_POOL : TARN_STAT_SMALL_POOL};
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        for (int i = 0; i < 2; i++) {
            stat_kept(&counters->values.segment[classes[i]], 1);
            stat_kept(&counters->values.reserved_bytes[classes[i]], (int64_t)size);
        }
        if (is_oversize(&counters->values, size))
            stat_kept(&counters->values.oversize_segments, 1);
        counters->values.num_device_free--;
        mutex_unlock(&counters->lock);
    }
}

static void segment_own(struct counters *counters, size_t size, bool large, int sign)
{
    tarn_stat_class class = large ? TARN_STAT_LARGE_POOL : TARN_STAT_SMALL_POOL;
    if (!counters->parent)
        return; /* the device has it either way */
    mutex_lock(&counters->lock);
    class_add(counters->values.segment, class, sign);
    class_add(counters->values.reserved_bytes, class, sign * (int64_t)size);
    if (is_oversize(&counters->values, size))
        stat_add(&counters->values.oversize_segments, sign);
    mutex_unlock(&counters->lock);
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
        mutex_lock(&counters->lock);
        counters_add_splits(&counters->values, &sums);
        mutex_unlock(&counters->lock);
    }
}

void counters_add(struct counters *counters, size_t scalar)
{
    for (; counters; counters = counters->parent) {
        mutex_lock(&counters->lock);
        ++*(int64_t *)((char *)&counters->values + scalar);
        mutex_unlock(&counters->lock);
    }
}

void counters_read(struct counters *counters, tarn_stats *stats)
{
    mutex_lock(&counters->lock);
    *stats = counters->values;
    mutex_unlock(&counters->lock);
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
    mutex_lock(&counters->lock);
    each_stat(&counters->values, reset_peak);
    mutex_unlock(&counters->lock);
}

void counters_reset_accumulated(struct counters *counters)
{
    mutex_lock(&counters->lock);
    each_stat(&counters->values, reset_sums);
#define X(name) counters->values.name = 0;
    TARN_STATS_SCALAR_LIST(X)
#undef X
    mutex_unlock(&counters->lock);
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
