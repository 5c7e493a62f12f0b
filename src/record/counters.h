/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The counters behind tarn_stats_get(), one set a device, and one a private pool, whose parent is the device's: what is counted
 * there is counted in both. Thread-safe: the sets of a device share one lock, which is a leaf. What must change together with
 * them does so under that lock too, between counters_lock() and counters_unlock(). */
#ifndef TARN_RECORD_COUNTERS_H
#define TARN_RECORD_COUNTERS_H

#include "base/lock.h"

#include <stdbool.h>
#include <tarn/stats.h>

#define COUNTERS_SMALL ((size_t)1 << 20) /* bytes: the largest block of the small class (c10's small limit) */

/* Blocks, as counted, rounded to the block unit, and asked for. */
struct tally {
    int64_t blocks, bytes, requested;
};

struct counters {
    spinlock lock;           /* of all below, where there is no parent */
    struct counters *parent; /* or NULL; constant */

    /* By class, small and large. What was freed since the sums were reset is `before` + `taken` - `live`. */
    struct tally live[2], taken[2], before[2];
    struct tally waiting[2], waited[2]; /* freed, and not reusable yet; the same when the sums were reset */
    struct tally moved;                 /* since then: into the large class by growing, as if freed and taken anew */
    struct tally peak[TARN_STAT_CLASSES], active_peak[TARN_STAT_CLASSES]; /* of live; of live and waiting */

    tarn_stats values; /* all others */
};

void counters_init(struct counters *counters, struct counters *parent);

static inline spinlock *counters_lock_of(struct counters *counters)
{
    return counters->parent ? &counters->parent->lock : &counters->lock;
}

static inline void counters_lock(struct counters *counters)
{
    spin_lock(counters_lock_of(counters));
}

static inline void counters_unlock(struct counters *counters)
{
    spin_unlock(counters_lock_of(counters));
}

/* A block was handed out; and freed by its owner, and reusable. For who has the lock. */
void counters_allocated_locked(struct counters *counters, size_t size, size_t requested);
void counters_freed_and_completed_locked(struct counters *counters, size_t size, size_t requested);

/* A block was freed by its owner; became reusable. Sizes in bytes. */
void counters_freed(struct counters *counters, size_t size, size_t requested);
void counters_completed(struct counters *counters, size_t size);
void counters_freed_and_completed(struct counters *counters, size_t size, size_t requested);
/* Small blocks that a thread has handed out and freed, counted by itself and published together. */
struct counters_small {
    int64_t taken, given;                     /* blocks */
    int64_t bytes_taken, bytes_given;         /* rounded */
    int64_t requested_taken, requested_given; /* as asked for */
};
void counters_publish(struct counters *counters, const struct counters_small *small);
/* The same into a copy: what is not yet published. */
void counters_add_small(tarn_stats *stats, const struct counters_small *small);

/* A live block grew in place. */
void counters_extended(struct counters *counters, size_t size, size_t more, size_t requested, size_t more_requested);

/* Physical memory came from the driver or went back: a piece, which is large, or a plain segment. */
void counters_segment(struct counters *counters, size_t size, bool large, int sign);
/* A segment that was counted as gone is still there. */
void counters_segment_kept(struct counters *counters, size_t size, bool large);
/* From how many bytes on blocks and segments count as oversize; -1 is never. */
void counters_max_split(struct counters *counters, int64_t bytes);
/* It became another pool's of the same device. */
void counters_segment_move(struct counters *from, struct counters *to, size_t size, bool large);

/* Free memory beside other memory, by zone (small, large), of one heap and under its lock. A device's is the sum over its heaps,
 * its peak the sum of theirs. */
struct counters_splits {
    tarn_stat count[2], bytes[2];
};
void counters_split(struct counters_splits *splits, size_t size, int large, int sign);
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
