/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The counters behind tarn_device_stats_get(). There is a set per device and one per pool, whose
 * parent is the device's: what a pool's set counts, the device's counts too. All sets of a device
 * share one lock. So that threads on different streams do not compete for it, each heap counts in a
 * part of a set, with a lock of its own. Thread-safe. */
#ifndef TARN_RECORD_COUNTERS_H
#define TARN_RECORD_COUNTERS_H

#include "base/thread/lock.h"

#include <pthread.h>
#include <stdbool.h>
#include <tarn/stats.h>

/* Bytes: the largest block of the small class (c10's kSmallSize). */
#define COUNTERS_SMALL ((size_t)1 << 20)

/* A number of blocks, their rounded bytes, and their requested bytes. */
struct tally {
    int64_t blocks, bytes, requested;
};

static inline void tally_add(struct tally *tally, int64_t blocks, int64_t bytes, int64_t requested)
{
    tally->blocks += blocks;
    tally->bytes += bytes;
    tally->requested += requested;
}

static inline bool tally_is_within(const struct tally *value, const struct tally *most)
{
    return ((most->blocks - value->blocks) | (most->bytes - value->bytes) |
            (most->requested - value->requested)) >= 0;
}

/* What one heap has counted and not published yet. Its states:
 *
 *    closed  counts nothing: each block is counted in the set. The state at first.
 *    exact   one part per device. It counts only blocks that cannot raise a peak; others are
 *            counted in the set. Code that counts more live blocks in the set, or reads it, closes
 *            it first. So peaks are the same as without parts.
 *    apart   for a heap that competes with other threads: other threads closed the part again and
 *            again soon after it was opened. It counts up to COUNTERS_APART_* before it publishes,
 *            so a peak may be wrong by that much per part. It becomes exact when its
 *            thread was the last that took up a part of the device. A part of
 *            counters_part_compete() begins apart.
 *
 * `lost` counts how often in a row an exact part was closed early: by another thread that took up a
 * part of its own, before this one had counted COUNTERS_LOST_EARLY blocks. If that thread comes
 * later, `lost` becomes 0. A part with COUNTERS_LOST_MOST opens apart.
 *
 * A reset of peaks or sums, and a change of max_split_size in any set, close all parts of the
 * device; `lost` of those that were apart becomes 0. All other closes leave `lost`. While a set has
 * a limit by max_split_size, its parts stay closed; a limit of the device's set bars all parts.
 *
 * Parts that are not closed are in their device's list. Code that reads a set first publishes all
 * of them. */
struct counters_part {
    /* Protects everything below, and what must change together with it. */
    _Alignas(CACHE_LINE) spinlock lock;
    struct tally room, most; /* for both classes together; see `of` */
    /* For each class, small and large. Everything is 0 while the part is closed. */
    struct counters_part_class {
        /* What it may still count as taken; a free increases it, up to `whole`. */
        struct tally room;
        struct tally whole; /* if `room` would exceed this, the part must be published first */
        /* `room` at the last publishing; `most` - `room` is the change of live blocks since
         * then. */
        struct tally most;
        struct tally taken; /* taken since the last publishing */
    } of[2];
    enum { COUNTERS_CLOSED, COUNTERS_EXACT, COUNTERS_APART } state;
    /* Exact: blocks taken since it was opened, without those in `taken`. */
    int64_t counted;
    unsigned lost;             /* early closes in a row; see above */
    pthread_t thread;          /* not closed: the thread that last opened it or took it up */
    struct counters *counters; /* the set it belongs to; NULL: closed */
    /* In the device's list of parts that are not closed; the set's lock. */
    struct counters_part *next;
};

#define COUNTERS_LOST_MOST 4
#define COUNTERS_LOST_EARLY 64
#define COUNTERS_APART_SMALL ((int64_t)8 << 20)   /* bytes, of the small class */
#define COUNTERS_APART_LARGE ((int64_t)128 << 20) /* bytes, of the large class */
#define COUNTERS_APART_BLOCKS ((int64_t)1024)     /* of each class */

struct counters {
    /* Of the device's set: protects all of the device's sets; alone in its cache line, since
     * other threads wait for it. */
    _Alignas(CACHE_LINE) spinlock lock;

    /* This line is all that changes when an apart part publishes. `exact`, of the device's set: the
     * part that is exact, or NULL. `thread`, of the device's set: the last thread that took up a
     * part. `live`: live blocks by class, small and large. */
    _Alignas(CACHE_LINE) struct counters_part *exact;
    pthread_t thread;
    struct tally live[2];

    /* The device's set; NULL: this is one; constant. */
    _Alignas(CACHE_LINE) struct counters *parent;
    /* Of the device's set: the list of parts that are not closed. */
    struct counters_part *open;

    /* For each class. `before` + `taken` - `live` was freed since the last reset of sums. */
    struct tally taken[2], before[2];
    /* Freed and not reusable yet; the same at the last reset of sums. */
    struct tally waiting[2], waited[2];
    /* Since that reset: blocks that have grown into the large class; they count as freed and
     * taken again. */
    struct tally moved;
    /* The peaks of live blocks, and of live and waiting ones. */
    struct tally peak[TARN_STAT_CLASSES], active_peak[TARN_STAT_CLASSES];

    tarn_stats values; /* all other statistics */
};

/* The caller holds the lock under which `stat` is counted. */
static inline void stat_add(tarn_stat *stat, int64_t change)
{
    stat->current += change;
    if (change > 0)
        stat->allocated += change;
    else
        stat->freed -= change;
    if (stat->current > stat->peak)
        stat->peak = stat->current;
}

void counters_init(struct counters *counters, struct counters *parent);

static inline spinlock *counters_lock_of(struct counters *counters)
{
    return counters->parent ? &counters->parent->lock : &counters->lock;
}

static inline void counters_lock(struct counters *counters)
{
    spin_lock(counters_lock_of(counters), LOCK_SPIN);
}

static inline void counters_unlock(struct counters *counters)
{
    spin_unlock(counters_lock_of(counters));
}

/* A bit for each set that counts a block or segment as oversize, at its arrival. Its end is counted
 * in the same sets, whatever the limit is then. 0: none, as for every block of a slab. */
typedef uint8_t counters_oversize;
enum { COUNTERS_OVERSIZE_POOL = 1, COUNTERS_OVERSIZE_DEVICE = 2 };

static inline void counters_part_lock(struct counters_part *part)
{
    spin_lock(&part->lock, LOCK_PART);
}

static inline void counters_part_unlock(struct counters_part *part)
{
    spin_unlock(&part->lock);
}

/* Counts a block that was handed out, under the part's lock. False: nothing was counted, and the
 * part must be taken up (counters_take_up()). */
static inline bool counters_part_allocated_locked(struct counters_part *part, size_t size,
                                                  size_t requested)
{
    struct counters_part_class *of = &part->of[size > COUNTERS_SMALL];
    struct tally room = of->room, all = part->room;
    tally_add(&room, -1, -(int64_t)size, -(int64_t)requested);
    tally_add(&all, -1, -(int64_t)size, -(int64_t)requested);
    if ((room.blocks | room.bytes | room.requested | all.blocks | all.bytes | all.requested) < 0)
        return false;
    of->room = room;
    part->room = all;
    tally_add(&of->taken, 1, (int64_t)size, (int64_t)requested);
    return true;
}

/* The same for a block that its owner has freed and that is reusable. */
static inline bool counters_part_freed_locked(struct counters_part *part, size_t size,
                                              size_t requested, counters_oversize oversize)
{
    struct counters_part_class *of = &part->of[size > COUNTERS_SMALL];
    struct tally room = of->room;
    tally_add(&room, 1, (int64_t)size, (int64_t)requested);
    if (oversize || !tally_is_within(&room, &of->whole))
        return false;
    of->room = room;
    tally_add(&part->room, 1, (int64_t)size, (int64_t)requested);
    return true;
}

/* Counting a block that the part alone cannot count. `device` is the device's set.
 *
 *    counters_take_up()   takes the locks of the set and of the part. Publishes what the part has
 *                         counted.
 *    then the caller      counts the block by counters_allocated_locked() or
 *                         counters_freed_and_completed_locked(). They count in the set, or in an
 *                         apart part that has room now.
 *    counters_return()    opens the part again if that is allowed, as a part of `counters`, and
 *                         releases both locks. NULL: the part stays in its set, if it has one.
 *
 * With `part` NULL the functions in the middle need only the set's lock. */
void counters_take_up(struct counters *device, struct counters_part *part);
counters_oversize counters_allocated_locked(struct counters *counters, struct counters_part *part,
                                            size_t size, size_t requested);
void counters_freed_and_completed_locked(struct counters *counters, struct counters_part *part,
                                         size_t size, size_t requested, counters_oversize oversize);
void counters_return(struct counters *device, struct counters_part *part,
                     struct counters *counters);

/* Counts a free, in the part if it can, otherwise in the set. Pass `part` only while holding the
 * heap's lock or one of its blocks. Otherwise pass NULL, because the heap may belong to another set
 * by now. */
void counters_freed_and_completed(struct counters *counters, struct counters_part *part,
                                  size_t size, size_t requested, counters_oversize oversize);

/* Initializes a new part for threads that compete: it is apart when it is first opened. */
void counters_part_compete(struct counters_part *part);
/* Closes a part, before its heap gets another set. */
void counters_part_close(struct counters_part *part);

/* Counts that a block was freed by its owner. Sizes in bytes. */
void counters_freed(struct counters *counters, size_t size, size_t requested,
                    counters_oversize oversize);
/* Counts that a freed block became reusable. */
void counters_completed(struct counters *counters, size_t size);
/* Takes back the count of a free of a small block that was its second. */
void counters_not_freed(struct counters *counters, size_t size, size_t requested);
/* Small blocks that a thread has taken and given. It counts them itself, and publishes them
 * together. */
struct counters_small {
    int64_t taken, given;                     /* blocks */
    int64_t bytes_taken, bytes_given;         /* rounded bytes */
    int64_t requested_taken, requested_given; /* requested bytes */
};
void counters_publish(struct counters *counters, const struct counters_small *small);
/* Adds counts that are not published yet to a copy of the statistics. */
void counters_add_small(tarn_stats *stats, const struct counters_small *small);

/* Counts that a live block grew in place. If it becomes oversize by that, `oversize` says so. */
void counters_extended(struct counters *counters, size_t size, size_t more, size_t requested,
                       size_t more_requested, counters_oversize *oversize);

/* Counts memory that came from the driver: a piece, which counts as large, or a plain segment. */
counters_oversize counters_segment(struct counters *counters, size_t size, bool large);
/* Counts that it went back. */
void counters_segment_gone(struct counters *counters, size_t size, bool large,
                           counters_oversize oversize);
/* Takes back the count of a segment that went back, because it is still there. */
void counters_segment_back(struct counters *counters, size_t size, bool large,
                           counters_oversize oversize);
/* Bytes from which blocks and segments count as oversize; -1: none does. */
void counters_max_split(struct counters *counters, int64_t bytes);
/* Counts that a segment moved to another pool of the same device. Returns which sets count it as
 * oversize then. */
counters_oversize counters_segment_move(struct counters *from, struct counters *to, size_t size,
                                        bool large, counters_oversize oversize);

/* Free spans beside other spans, of one heap, by zone (small, large). Under the heap's lock. A
 * device's number is the sum over its heaps, and its peak the sum of their peaks. */
struct counters_splits {
    tarn_stat count[2], bytes[2];
};
static inline void counters_split(struct counters_splits *splits, size_t size, int large, int sign)
{
    stat_add(&splits->count[large], sign);
    stat_add(&splits->bytes[large], sign > 0 ? (int64_t)size : -(int64_t)size);
}
void counters_add_splits(tarn_stats *stats, const struct counters_splits *splits);
/* Keeps the sums that a heap has counted, before the heap begins another life without free
 * spans. */
void counters_keep_splits(struct counters *counters, const struct counters_splits *splits);
void counters_splits_reset_peak(struct counters_splits *splits);
void counters_splits_reset_accumulated(struct counters_splits *splits);

/* Adds one to a scalar: COUNT(counters, num_ooms). */
#define COUNT(counters, scalar) counters_add(counters, offsetof(tarn_stats, scalar))
void counters_add(struct counters *counters, size_t scalar);

void counters_read(struct counters *counters, tarn_stats *stats);
void counters_reset_peak(struct counters *counters);
void counters_reset_accumulated(struct counters *counters);

#endif
