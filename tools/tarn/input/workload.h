/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A workload: one device's trace of a snapshot as a list of operations on numbered blocks, which
 * can be replayed.
 *
 * Addresses are gone: a block is a number. Blocks that were alive before the trace begins are its
 * first ones, in the order of their recorded addresses; the others follow in the order of their
 * allocation. Not thread-safe. */
#ifndef TOOLS_WORKLOAD_H
#define TOOLS_WORKLOAD_H

#include "input/snapshot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKLOAD_NO_BLOCK UINT32_MAX
#define WORKLOAD_NO_STREAM UINT32_MAX
#define WORKLOAD_NO_POOL UINT32_MAX
#define WORKLOAD_NOT_KNOWN UINT64_MAX
#define WORKLOAD_BEFORE UINT32_MAX          /* the event of what happened before the trace */
#define WORKLOAD_MAX_THREADS 1024           /* those above share the numbers of those below */
#define WORKLOAD_EVENT_TIME UINT64_C(50000) /* ns an event, where a trace has no times */
/* Bytes: an allocator asks the driver for less than so much more than the program. */
#define WORKLOAD_ROUNDED (UINT64_C(32) << 20)

enum workload_action {
    WORKLOAD_ALLOC,
    WORKLOAD_FREE,      /* free was requested */
    WORKLOAD_COMPLETED, /* the memory may be used again */
    /* A recorded out-of-memory error that cannot be tried again: counted, not replayed. */
    WORKLOAD_OOM,
    WORKLOAD_TRIM,     /* the program gives back what pool `other` has cached: empty_cache() */
    WORKLOAD_POOL_END, /* pool `other` gives back what it has, and serves nobody any more */
    WORKLOAD_TRY,      /* another one: an allocation that failed, and may; it is freed at once */
    WORKLOAD_RECORD,   /* `stream` uses the block too */
    WORKLOAD_WAIT,     /* `stream` waits for what is queued on stream `other` */
    /* `stream` begins a capture, whose memory is of pool `other`; with WORKLOAD_NO_POOL none is
     * allocated. */
    WORKLOAD_CAPTURE,
    WORKLOAD_CAPTURED, /* its capture ends */
    WORKLOAD_OTHER,    /* an event that says nothing of blocks, or that nothing can be made of */
};

/* An event may give several operations: a free that the recording lost comes before the allocation
 * that proves it. */
struct workload_op {
    uint64_t time;  /* ns since the first event; never falls */
    uint32_t event; /* its number in the trace, or WORKLOAD_BEFORE */
    uint32_t block; /* or WORKLOAD_NO_BLOCK */
    uint32_t other; /* of WORKLOAD_WAIT, _CAPTURE, _TRIM and _POOL_END */
    /* Index of the stream. For a free: of the stream in whose order it is, if that is not the
     * block's stream; else WORKLOAD_NO_STREAM. */
    uint32_t stream;
    /* That did it: from 0, in the order of appearance, below WORKLOAD_MAX_THREADS. */
    uint16_t thread;
    uint8_t action; /* enum workload_action */
};

struct workload_block {
    /* Bytes, as requested; 0 for a block that was dropped, which no operation names. */
    uint64_t size;
    uint64_t address; /* as recorded; several blocks may have had the same, one after the other */
    /* Ns since the first event; when its memory may be used again, for a late one. */
    uint64_t completed;
    uint32_t stream; /* index of workload.streams */
    /* Index of the other stream that uses the block last; WORKLOAD_NO_STREAM: none is known. */
    uint32_t second;
    uint32_t pool;  /* number of its pool; 0 is the default pool (0,0) */
    bool in_range;  /* a page of a range */
    bool unplanned; /* its pool follows no plan */
    bool late;      /* its completion is not the event next in line after its free */
};

struct workload {
    int device;
    struct workload_op *ops;
    size_t op_count;
    struct workload_block *blocks;
    /* The first initial_count blocks were alive before the trace. */
    size_t block_count, initial_count;
    uint64_t *streams; /* as recorded, in the order of appearance */
    size_t stream_count;
    size_t pool_count;   /* with the default pool, used or not */
    size_t thread_count; /* at least 1 */

    size_t event_count; /* of the trace */
    size_t alloc_count, late_count, oom_count;
    size_t moved_count; /* frees in the order of another stream than the block's */
    size_t wait_count, capture_count;
    size_t trim_count; /* of the program's own */
    /* A recording by tarn: what streams, captures and private pools did is in it. */
    bool has_order;
    /* Bytes of the recorded device, or its limit, by tarn's recording or by the last out-of-memory
     * error; 0 where it is not known. */
    uint64_t device_memory;
    size_t lost_count; /* events that the recording must have lost, or that contradict the others */
    bool has_times;
    uint64_t peak_requested; /* bytes: sum of sizes from allocation to free */
    uint64_t peak_tried;     /* bytes: the same, with each failed request at its time */
    uint64_t peak_ranges;    /* bytes: pages of ranges that were left out; else 0 */
    /* Bytes: sum of sizes rounded up to 512, from allocation to completion. */
    uint64_t peak_active;
    uint64_t recorded_peak_reserved; /* bytes, or WORKLOAD_NOT_KNOWN */
};

/* True where a device's trace has allocations or frees; without, there is nothing to replay. */
bool workload_exists(const struct snapshot *snapshot, int device);

/* Builds the workload of one device, which the caller gives to workload_finish(). Accepts any
 * snapshot that the reader gives, however contradictory. False with `workload` zeroed when memory
 * is short or the trace has 2^31 events. */
bool workload_build(const struct snapshot *snapshot, int device, struct workload *workload);

/* Deals the blocks over `streams` streams, at least 1, by a hash of their addresses. Every
 * twentieth block that is not late is so from now on: it is used on a second stream too, for `lag`
 * ns from its free. Each free is then in the order of its block's stream. False when memory is
 * short. */
bool workload_deal(struct workload *workload, uint32_t streams, uint64_t lag);

/* Makes a run that differs a little: of the blocks, 1 % have another size (0.8 to 1.25 times), 0.5
 * % are not there and 0.5 % are there twice; 1 % of allocations change places with the next. The
 * same seed gives the same run. False when memory is short. */
bool workload_vary(struct workload *workload, uint64_t seed);

/* Has the failed requests counted, and not tried again: on a device of unknown size it says nothing
 * whether they fail. */
void workload_forget_tries(struct workload *workload);

/* Removes the pages of ranges, and commits that failed, from the workload. `peak_ranges` has the
 * most bytes of such pages at one time. */
void workload_leave_ranges(struct workload *workload);

/* Computes the peaks and the late frees anew. A block that would carry the sums beyond what can be
 * counted is dropped. */
void workload_measure(struct workload *workload);

/* Which of `threads` threads allocates a block, and which frees it, counted from 0. For 30 % of the
 * blocks these are two threads. */
uint32_t workload_allocating_thread(const struct workload *workload, uint32_t block,
                                    uint32_t threads);
uint32_t workload_freeing_thread(const struct workload *workload, uint32_t block, uint32_t threads);

/* Frees what a workload owns and zeroes it; a zeroed workload is fine. */
void workload_finish(struct workload *workload);

#endif
