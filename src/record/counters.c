/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the arithmetic of the counters, and which of their parts are open. All changes of one event
 * are made under one hold of the set's lock, or of a part's. So a reader, who first publishes the
 * parts, sees all of an event or nothing.
 *
 * What changes with every block is few numbers: an allocation adds to two tallies and compares with
 * the peaks, a free subtracts from one. Sums over both classes, active blocks and freed blocks are
 * computed when they are read. */
#include "record/counters.h"

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

/* The bit of a set. */
static counters_oversize bit_of(const struct counters *counters)
{
    return counters->parent ? COUNTERS_OVERSIZE_POOL : COUNTERS_OVERSIZE_DEVICE;
}

/* Counts a size in a set if it is oversize there. Returns the set's bit, or 0. */
static counters_oversize oversize_add(const struct counters *counters, tarn_stat *stat, size_t size)
{
    if (!is_oversize(counters, size))
        return 0;
    stat_add(stat, 1);
    return bit_of(counters);
}

static void oversize_end(const struct counters *counters, tarn_stat *stat,
                         counters_oversize oversize)
{
    if (oversize & bit_of(counters))
        stat_add(stat, -1);
}

static struct tally tally_sum(const struct tally *a, const struct tally *b)
{
    return (struct tally){a->blocks + b->blocks, a->bytes + b->bytes, a->requested + b->requested};
}

static struct tally tally_difference(const struct tally *a, const struct tally *b)
{
    return (struct tally){a->blocks - b->blocks, a->bytes - b->bytes, a->requested - b->requested};
}

/* Raises a peak. True if it was lower. */
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

/* Call after a growth of what is live. Without waiting blocks, active blocks can pass their peak
 * only when live blocks pass theirs. */
static inline void peaks_raise(struct counters *counters, int class)
{
    struct tally all = tally_sum(&counters->live[0], &counters->live[1]);
    bool raised =
        tally_raise(&counters->peak[TARN_STAT_SMALL_POOL + class], &counters->live[class]);
    raised |= tally_raise(&counters->peak[TARN_STAT_ALL], &all);
    if (raised || counters->waiting[0].blocks || counters->waiting[1].blocks)
        active_peaks_raise(counters);
}

/* Parts ---------------------------------------------------------------------------------------- */

#define UNBOUNDED ((struct tally){INT64_MAX / 2, INT64_MAX / 2, INT64_MAX / 2})

static const struct tally nothing[2];
static const struct tally anything[2] = {{INT64_MIN / 8, INT64_MIN / 8, INT64_MIN / 8},
                                         {INT64_MIN / 8, INT64_MIN / 8, INT64_MIN / 8}};

/* Bounds what a part that is now published may count: live blocks may change by `least` to
 * `most`. */
static void part_bound_locked(struct counters_part *part, const struct tally most[2],
                              const struct tally *most_all, const struct tally least[2])
{
    for (int class = 0; class < 2; class ++) {
        struct counters_part_class *of = &part->of[class];
        of->room = of->most = most[class];
        of->whole = tally_difference(&most[class], &least[class]);
    }
    part->room = part->most = *most_all;
}

static struct counters *root_of(struct counters *counters)
{
    return counters->parent ? counters->parent : counters;
}

/* Publishes what peaks depend on. The caller holds both locks; the part is not closed. */
static void part_publish_live_locked(struct counters_part *part)
{
    for (int class = 0; class < 2; class ++) {
        struct counters_part_class *of = &part->of[class];
        struct tally live = tally_difference(&of->most, &of->room);
        for (struct counters *counters = part->counters; counters; counters = counters->parent)
            tally_add(&counters->live[class], live.blocks, live.bytes, live.requested);
        of->room = of->most;
    }
    part->room = part->most;
}

/* Publishes everything. */
static void part_publish_locked(struct counters_part *part)
{
    part_publish_live_locked(part);
    for (int class = 0; class < 2; class ++) {
        struct tally *taken = &part->of[class].taken;
        for (struct counters *counters = part->counters; counters; counters = counters->parent)
            tally_add(&counters->taken[class], taken->blocks, taken->bytes, taken->requested);
        part->counted += taken->blocks;
        *taken = (struct tally){0};
    }
}

/* For a part that may publish something that raises a peak. */
static void part_raise_locked(const struct counters_part *part)
{
    for (struct counters *counters = part->counters; counters; counters = counters->parent) {
        peaks_raise(counters, 0);
        peaks_raise(counters, 1);
    }
}

/* Closes a part that is open and published. The caller holds both locks. */
static void part_end_locked(struct counters *root, struct counters_part *part)
{
    struct counters_part **link = &root->open;
    while (*link != part)
        link = &(*link)->next;
    *link = part->next;
    if (root->exact == part)
        root->exact = NULL;
    part_bound_locked(part, nothing, nothing, nothing);
    part->state = COUNTERS_CLOSED;
    part->counters = NULL;
}

/* Call before more live blocks are counted in a set: closes the device's exact part, whose bound
 * would be wrong. Not if it is `part`, which the caller takes up. NULL: the caller takes up none,
 * and `lost` of the exact part stays as it is. */
static void exact_end_locked(struct counters *root, const struct counters_part *part)
{
    struct counters_part *exact = root->exact;
    if (!exact || exact == part)
        return;
    counters_part_lock(exact);
    part_publish_locked(exact);
    if (part && !pthread_equal(exact->thread, pthread_self()))
        exact->lost = exact->counted < COUNTERS_LOST_EARLY ? exact->lost + 1 : 0;
    part_end_locked(root, exact);
    counters_part_unlock(exact);
}

/* Publishes all parts of a device, and only then raises peaks. So a part raises no peak only
 * because another has not published yet. Closes an exact part, whose bound would be wrong. */
static void parts_publish_locked(struct counters *root)
{
    for (struct counters_part *part = root->open; part; part = part->next) {
        counters_part_lock(part);
        part_publish_locked(part);
        if (part->state == COUNTERS_EXACT)
            part_bound_locked(part, nothing, nothing, anything);
        counters_part_unlock(part);
    }
    for (struct counters_part *part = root->open; part; part = part->next)
        part_raise_locked(part);
    if (!root->exact)
        return;
    struct counters_part *exact = root->exact;
    counters_part_lock(exact);
    part_publish_locked(exact); /* its frees since then */
    part_end_locked(root, exact);
    counters_part_unlock(exact);
}

/* Publishes all parts and closes them. Parts that were apart must become apart again. */
static void parts_close_locked(struct counters *root)
{
    parts_publish_locked(root);
    while (root->open) {
        struct counters_part *part = root->open;
        counters_part_lock(part);
        part_publish_locked(part);
        part_raise_locked(part);
        part_end_locked(root, part);
        part->lost = 0;
        counters_part_unlock(part);
    }
}

void counters_take_up(struct counters *root, struct counters_part *part)
{
    counters_lock(root);
    exact_end_locked(root, part);
    counters_part_lock(part);
    if (part->state == COUNTERS_EXACT)
        part_publish_locked(part);
    if (part->state == COUNTERS_APART) {
        /* Threads compete, so as little as possible is published here; the next reading
         * publishes the rest. */
        part_publish_live_locked(part);
        part_raise_locked(part);
        if (pthread_equal(root->thread, pthread_self()))
            part->lost = 0; /* threads do not compete any more */
    }
    root->thread = pthread_self();
}

static void tally_lower(struct tally *tally, const struct tally *peak, const struct tally *value)
{
    struct tally room = tally_difference(peak, value);
    tally->blocks = room.blocks < tally->blocks ? room.blocks : tally->blocks;
    tally->bytes = room.bytes < tally->bytes ? room.bytes : tally->bytes;
    tally->requested = room.requested < tally->requested ? room.requested : tally->requested;
}

/* Bounds an exact part: it may count as much as raises no peak of its sets. */
static void part_limit_locked(struct counters_part *part)
{
    struct tally most[2] = {UNBOUNDED, UNBOUNDED}, most_all = UNBOUNDED;
    for (const struct counters *counters = part->counters; counters; counters = counters->parent) {
        struct tally active[2];
        for (int class = 0; class < 2; class ++) {
            int stat = TARN_STAT_SMALL_POOL + class;
            active[class] = tally_sum(&counters->live[class], &counters->waiting[class]);
            tally_lower(&most[class], &counters->peak[stat], &counters->live[class]);
            tally_lower(&most[class], &counters->active_peak[stat], &active[class]);
        }
        struct tally live = tally_sum(&counters->live[0], &counters->live[1]);
        struct tally all = tally_sum(&active[0], &active[1]);
        tally_lower(&most_all, &counters->peak[TARN_STAT_ALL], &live);
        tally_lower(&most_all, &counters->active_peak[TARN_STAT_ALL], &all);
    }
    part_bound_locked(part, most, &most_all, anything);
}

static void part_apart_locked(struct counters_part *part)
{
    static const int64_t small = COUNTERS_APART_SMALL, large = COUNTERS_APART_LARGE;
    const struct tally most[2] = {{COUNTERS_APART_BLOCKS, small, small},
                                  {COUNTERS_APART_BLOCKS, large, large}};
    const struct tally less[2] = {tally_difference(nothing, &most[0]),
                                  tally_difference(nothing, &most[1])};
    part_bound_locked(part, most, &UNBOUNDED, less);
}

/* Whether there is a limit for oversize blocks. Then every block is compared with it, which a part
 * does not do. */
static bool has_limit(const struct counters *counters)
{
    return counters->values.max_split_size >= 0 ||
           (counters->parent && counters->parent->values.max_split_size >= 0);
}

/* Opens a part. The caller holds both locks; the part is published, unless it is apart. */
static void part_open_locked(struct counters *root, struct counters *counters,
                             struct counters_part *part)
{
    if (has_limit(counters))
        return; /* parts stay closed while there is a limit */
    part->thread = pthread_self();
    if (part->state == COUNTERS_CLOSED) {
        part->counters = counters;
        part->counted = 0;
        part->next = root->open;
        root->open = part;
    }
    bool apart = part->lost >= COUNTERS_LOST_MOST;
    if (apart && part->state == COUNTERS_APART)
        return;
    if (part->state == COUNTERS_APART) { /* it becomes exact */
        part_publish_locked(part);
        part_raise_locked(part);
    }
    part->state = apart ? COUNTERS_APART : COUNTERS_EXACT;
    if (!apart)
        root->exact = part;
    else if (root->exact == part)
        root->exact = NULL;
    if (apart)
        part_apart_locked(part);
    else
        part_limit_locked(part);
}

void counters_return(struct counters *root, struct counters_part *part, struct counters *counters)
{
    if (counters || part->counters)
        part_open_locked(root, counters ? counters : part->counters, part);
    counters_part_unlock(part);
    counters_unlock(root);
}

void counters_part_compete(struct counters_part *part)
{
    part->lost = COUNTERS_LOST_MOST;
}

void counters_part_close(struct counters_part *part)
{
    counters_part_lock(part);
    struct counters *counters = part->counters; /* constant while the heap has its store */
    counters_part_unlock(part);
    if (!counters)
        return;
    counters_lock(counters);
    counters_part_lock(part);
    if (part->counters) {
        part_publish_locked(part);
        part_raise_locked(part);
        part_end_locked(root_of(counters), part);
    }
    counters_part_unlock(part);
    counters_unlock(counters);
}

/* Blocks --------------------------------------------------------------------------------------- */

counters_oversize counters_allocated_locked(struct counters *counters, struct counters_part *part,
                                            size_t size, size_t requested)
{
    int class = class_of(size);
    counters_oversize oversize = 0;
    if (part && part->state == COUNTERS_APART &&
        counters_part_allocated_locked(part, size, requested))
        return 0; /* while a part is open, there is no limit */
    for (; counters; counters = counters->parent) {
        tally_add(&counters->live[class], 1, (int64_t)size, (int64_t)requested);
        tally_add(&counters->taken[class], 1, (int64_t)size, (int64_t)requested);
        peaks_raise(counters, class);
        oversize |= oversize_add(counters, &counters->values.oversize_allocations, size);
    }
    return oversize;
}

/* Ends a live block in a set. */
static void live_end(struct counters *counters, int class, size_t size, size_t requested,
                     counters_oversize oversize)
{
    tally_add(&counters->live[class], -1, -(int64_t)size, -(int64_t)requested);
    oversize_end(counters, &counters->values.oversize_allocations, oversize);
}

static void freed_and_completed_locked(struct counters *counters, size_t size, size_t requested,
                                       counters_oversize oversize)
{
    int class = class_of(size);
    for (; counters; counters = counters->parent)
        live_end(counters, class, size, requested, oversize);
}

void counters_freed_and_completed_locked(struct counters *counters, struct counters_part *part,
                                         size_t size, size_t requested, counters_oversize oversize)
{
    if (!part || part->state != COUNTERS_APART ||
        !counters_part_freed_locked(part, size, requested, oversize))
        freed_and_completed_locked(counters, size, requested, oversize);
}

void counters_freed_and_completed(struct counters *counters, struct counters_part *part,
                                  size_t size, size_t requested, counters_oversize oversize)
{
    if (!part) {
        counters_lock(counters);
        freed_and_completed_locked(counters, size, requested, oversize);
        counters_unlock(counters);
        return;
    }
    counters_part_lock(part);
    bool counted = counters_part_freed_locked(part, size, requested, oversize);
    counters_part_unlock(part);
    if (counted)
        return;
    counters_take_up(root_of(counters), part);
    counters_freed_and_completed_locked(counters, part, size, requested, oversize);
    counters_return(root_of(counters), part, counters);
}

/* Leaves the exact part open, because active blocks do not change. A part may have counted the
 * block and not published it. */
void counters_freed(struct counters *counters, size_t size, size_t requested,
                    counters_oversize oversize)
{
    int class = class_of(size);
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        live_end(counters, class, size, requested, oversize);
        tally_add(&counters->waiting[class], 1, (int64_t)size, 0);
    }
    counters_unlock(own);
}

void counters_not_freed(struct counters *counters, size_t size, size_t requested)
{
    struct counters *own = counters;
    counters_lock(own);
    exact_end_locked(root_of(own), NULL);
    for (; counters; counters = counters->parent) {
        tally_add(&counters->live[0], 1, (int64_t)size, (int64_t)requested);
        peaks_raise(counters, 0); /* the peaks may have been reset since the block was allocated */
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
    exact_end_locked(root_of(own), NULL);
    for (; counters; counters = counters->parent) {
        tally_add(&counters->live[0], small->taken - small->given,
                  small->bytes_taken - small->bytes_given,
                  small->requested_taken - small->requested_given);
        tally_add(&counters->taken[0], small->taken, small->bytes_taken, small->requested_taken);
        peaks_raise(counters, 0);
    }
    counters_unlock(own);
}

void counters_extended(struct counters *counters, size_t size, size_t more, size_t requested,
                       size_t more_requested, counters_oversize *oversize)
{
    int from = class_of(size), to = class_of(size + more);
    struct counters *own = counters;
    counters_lock(own);
    exact_end_locked(root_of(own), NULL);
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
        if (more && !(*oversize & bit_of(counters)))
            *oversize |=
                oversize_add(counters, &counters->values.oversize_allocations, size + more);
    }
    counters_unlock(own);
}

void counters_max_split(struct counters *counters, int64_t bytes)
{
    counters_lock(counters);
    parts_close_locked(root_of(counters));
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
}

counters_oversize counters_segment(struct counters *counters, size_t size, bool large)
{
    struct counters *own = counters;
    counters_oversize oversize = 0;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        segment_count(counters, size, large, 1);
        oversize |= oversize_add(counters, &counters->values.oversize_segments, size);
        counters->values.num_device_alloc++;
    }
    counters_unlock(own);
    return oversize;
}

void counters_segment_gone(struct counters *counters, size_t size, bool large,
                           counters_oversize oversize)
{
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        segment_count(counters, size, large, -1);
        oversize_end(counters, &counters->values.oversize_segments, oversize);
        counters->values.num_device_free++;
    }
    counters_unlock(own);
}

static void stat_back(tarn_stat *stat, int64_t change)
{
    stat->current += change;
    stat->freed -= change;
    if (stat->current > stat->peak)
        stat->peak = stat->current;
}

void counters_segment_back(struct counters *counters, size_t size, bool large,
                           counters_oversize oversize)
{
    tarn_stat_class classes[] = {TARN_STAT_ALL, class_of_segment(large)};
    struct counters *own = counters;
    counters_lock(own);
    for (; counters; counters = counters->parent) {
        for (int i = 0; i < 2; i++) {
            stat_back(&counters->values.segment[classes[i]], 1);
            stat_back(&counters->values.reserved_bytes[classes[i]], (int64_t)size);
        }
        if (oversize & bit_of(counters))
            stat_back(&counters->values.oversize_segments, 1);
        counters->values.num_device_free--;
    }
    counters_unlock(own);
}

counters_oversize counters_segment_move(struct counters *from, struct counters *to, size_t size,
                                        bool large, counters_oversize oversize)
{
    counters_lock(from); /* both sets share the device's lock */
    if (from->parent) {
        segment_count(from, size, large, -1);
        oversize_end(from, &from->values.oversize_segments, oversize);
        oversize &= (counters_oversize)~COUNTERS_OVERSIZE_POOL;
    }
    if (to->parent) {
        segment_count(to, size, large, 1);
        oversize |= oversize_add(to, &to->values.oversize_segments, size);
    }
    counters_unlock(from);
    return oversize;
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

/* Computes one class of the statistics from tallies; or all, if the tallies are the sums over both
 * classes. */
static void class_read(const struct counters *counters, tarn_stats *stats, tarn_stat_class class,
                       const struct tally *live, const struct tally *waiting,
                       const struct tally *taken, const struct tally *freed,
                       const struct tally *completed)
{
    const struct tally *peak = &counters->peak[class], *active = &counters->active_peak[class];
    stats->allocation[class] =
        (tarn_stat){live->blocks, peak->blocks, taken->blocks, freed->blocks};
    stats->allocated_bytes[class] =
        (tarn_stat){live->bytes, peak->bytes, taken->bytes, freed->bytes};
    stats->requested_bytes[class] =
        (tarn_stat){live->requested, peak->requested, taken->requested, freed->requested};
    stats->active[class] = (tarn_stat){live->blocks + waiting->blocks, active->blocks,
                                       taken->blocks, completed->blocks};
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
        class_read(counters, stats, TARN_STAT_SMALL_POOL + (tarn_stat_class) class, live,
                   &counters->waiting[class], taken, &freed[class], &completed[class]);
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
    parts_publish_locked(root_of(counters));
    *stats = counters->values;
    tallies_read(counters, stats);
    counters_unlock(counters);
}

/* Calls `change` for each tarn_stat of a set. */
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
    parts_close_locked(root_of(counters));
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
    parts_close_locked(root_of(counters));
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
