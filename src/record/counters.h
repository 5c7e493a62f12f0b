/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The counters behind tarn_device_stats_get(), one set per device, and one per pool, whose parent
 * is the device's: what is counted there is counted in both. Thread-safe: the sets of a device
 * share one lock. So that threads on different streams do not meet at it, each heap has a part of
 * them, with a lock of its own. */
#ifndef TARN_RECORD_COUNTERS_H
#define TARN_RECORD_COUNTERS_H

#include "base/thread/lock.h"

#include <pthread.h>
#include <stdbool.h>
#include <tarn/stats.h>

#define COUNTERS_SMALL \
    ((size_t)1 << 20) /* bytes: the largest block of the small class (c10's small
                         limit) */

/* Blocks, as counted, rounded to the block unit, and asked for. */
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

/* What one heap has counted and not published yet.
 *
 *   closed  at first: each block is counted in the sets.
 *   exact   one part per device: it counts what cannot raise a peak, and what may is counted in the
 *           sets. Whoever counts more in the sets closes it first. So peaks are what they would be
 *           without parts.
 *   apart   of a heap that competes with other threads: it was closed again and again when it had
 *           hardly been opened. It counts up to COUNTERS_APART_* of difference before it publishes:
 *           a peak is off by at most that per part. It is exact again when the thread that takes it
 *           up also took up the device's last part. A reset of peaks or sums, and a change of
 *           max_split_size, close it and forget what it lost. A part of counters_part_compete()
 *           begins apart.
 *
 * The open ones are in their device's list. Whoever reads the sets publishes all of them first. */
struct counters_part {
    _Alignas(CACHE_LINE) spinlock lock; /* of all below, and of what must change together with it */
    struct tally room, most;            /* of both classes together, as below */
    /* By class, small and large; all 0 while the part is closed */
    struct counters_part_class {
        struct tally room;  /* what may still be counted as taken; a free adds to it, up
                               to `whole` */
        struct tally whole; /* the most that `room` may become before the part is
                               published */
        struct tally most;  /* `room` when the part was last published: `most` - `room` is what has
                               become live since */
        struct tally taken; /* counted as taken since the part was last published */
    } of[2];
    enum { COUNTERS_CLOSED, COUNTERS_EXACT, COUNTERS_APART } state;
    int64_t counted;            /* of an exact part: blocks taken since it was opened, except those
                                   in `taken` */
    unsigned lost;              /* how often in a row another thread closed it before it had counted
                                   64 blocks */
    pthread_t thread;           /* of a part that is open: the thread that last opened it, or took
                                   it up again */
    struct counters *counters;  /* the set that the part belongs to; NULL while the part is
                                   closed */
    struct counters_part *next; /* in the device's list of open parts; the set's lock */
};

#define COUNTERS_APART_SMALL ((int64_t)8 << 20)   /* bytes, of the small class */
#define COUNTERS_APART_LARGE ((int64_t)128 << 20) /* bytes, of the large class */
#define COUNTERS_APART_BLOCKS ((int64_t)1024)     /* of each class */

struct counters {
    _Alignas(CACHE_LINE)
        spinlock lock; /* of all below, where there is no parent; alone in its line, which others
                          wait for */

    /* The next line is all that changes when a part that is apart publishes. Where there is no
     * parent: the part in the list below that is exact, or NULL; and the last thread that had a
     * part published to go on with it. By class, small and large: blocks. */
    _Alignas(CACHE_LINE) struct counters_part *exact;
    pthread_t thread;
    struct tally live[2];

    _Alignas(CACHE_LINE) struct counters *parent; /* or NULL; constant */
    struct counters_part *open;                   /* where there is no parent: the list */

    /* By class. What was freed since the sums were reset is `before` + `taken` - `live`. */
    struct tally taken[2], before[2];
    struct tally waiting[2], waited[2]; /* freed, and not reusable yet; the same when the sums were
                                           reset */
    struct tally moved;                 /* since then: into the large class by growing, as if freed
                                           and taken anew */
    /* Of live; of live and waiting */
    struct tally peak[TARN_STAT_CLASSES], active_peak[TARN_STAT_CLASSES];

    tarn_stats values; /* all others */
};

/* For code that has what `stat` is counted under. */
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

/* The sets that count a block or a segment as oversize. What came as that goes as that, whatever
 * the limit is by then. 0: none, as of every small block that a slab serves. */
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

/* A block was handed out; and freed by its owner, and reusable. Under the part's lock: false, and
 * nothing is counted, where the part must be taken up first. */
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
 *   counters_take_up()   takes the locks of the set and of the part. Publishes what the part has
 *                        counted.
 *   between the two      the block is counted in the set. A part that is apart counts it itself if
 *                        it has room now.
 *   counters_return()    reopens the part if that is allowed, as a part of `counters`, and releases
 *                        both locks. With NULL the part stays in the set that it belongs to, if
 *                        any.
 *
 * With `part` NULL the two functions in the middle need only the set's lock. */
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

/* For a new part, of threads that compete: it is apart from its first opening on. */
void counters_part_compete(struct counters_part *part);
/* Closes a part whose heap is about to be of another set. */
void counters_part_close(struct counters_part *part);

/* A block was freed by its owner; became reusable. Sizes in bytes. */
void counters_freed(struct counters *counters, size_t size, size_t requested,
                    counters_oversize oversize);
void counters_completed(struct counters *counters, size_t size);
/* A free of a small block that was counted turns out to be its second. */
void counters_not_freed(struct counters *counters, size_t size, size_t requested);
/* Small blocks that a thread has handed out and freed, counted by itself and published together. */
struct counters_small {
    int64_t taken, given;                     /* blocks */
    int64_t bytes_taken, bytes_given;         /* rounded */
    int64_t requested_taken, requested_given; /* as asked for */
};
void counters_publish(struct counters *counters, const struct counters_small *small);
/* The same into a copy: what is not yet published. */
void counters_add_small(tarn_stats *stats, const struct counters_small *small);

/* A live block grew in place. Where that makes it oversize, it is from then on. */
void counters_extended(struct counters *counters, size_t size, size_t more, size_t requested,
                       size_t more_requested, counters_oversize *oversize);

/* Physical memory came from the driver; and went back: a piece, which is large, or a plain
 * segment. */
counters_oversize counters_segment(struct counters *counters, size_t size, bool large);
void counters_segment_gone(struct counters *counters, size_t size, bool large,
                           counters_oversize oversize);
/* A segment that was counted as gone is still there. */
void counters_segment_kept(struct counters *counters, size_t size, bool large,
                           counters_oversize oversize);
/* From how many bytes on blocks and segments count as oversize; -1 is never. */
void counters_max_split(struct counters *counters, int64_t bytes);
/* It became another pool's of the same device: what counts it as oversize then. */
counters_oversize counters_segment_move(struct counters *from, struct counters *to, size_t size,
                                        bool large, counters_oversize oversize);

/* Free memory beside other memory, by zone (small, large), of one heap and under its lock. A
 * device's is the sum over its heaps, its peak the sum of theirs. */
struct counters_splits {
    tarn_stat count[2], bytes[2];
};
static inline void counters_split(struct counters_splits *splits, size_t size, int large, int sign)
{
    stat_add(&splits->count[large], sign);
    stat_add(&splits->bytes[large], sign > 0 ? (int64_t)size : -(int64_t)size);
}
void counters_add_splits(tarn_stats *stats, const struct counters_splits *splits);
/* Keeps what a heap has counted that begins another life; what it has free is none. */
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
