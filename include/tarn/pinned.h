/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned host memory: pages that stay in place, so that devices copy to and from them directly. A
 * block belongs to no device and to no stream; every device can access it. Blocks are aligned to
 * 256 bytes, with undefined contents. A block is at most 12.5 % larger than requested, or 255 bytes
 * if that is more. If no device has a context yet, an allocation creates one on the thread's
 * current device. If memory is short, it waits as tarn_pinned_trim() does, but not for all work of
 * a device while a capture there is known or shows.
 *
 * A block that work on a stream uses must be recorded on that stream (tarn_record_stream()). If
 * that stream begins a capture that uses the block, record the block again. tarn_free() frees it.
 * After a free, the memory is reused once the work queued on those streams at that moment has
 * finished. A slow stream delays only the blocks that it uses. A stream that is retired before the
 * free still counts, with its work up to the retirement.
 *
 * Captures. A block recorded on a stream that captures is read or written at every launch of the
 * graph. When such a block is freed, tarn keeps it until tarn_pinned_forget_captures() says that
 * the graphs are gone, even if the capture was aborted; or, if the capture has a pool (pool.h),
 * until its graph has ended. If several captures of the pool used the block, or tarn was not given
 * the graph, tarn keeps it until no capture and no graph holds the pool, whoever else has a
 * reference to it. A block used by captures of several pools at a time, or also by a capture
 * without a pool, waits for tarn_pinned_forget_captures(). Such a block, if work on other streams
 * uses it, then waits for that work. An unrecorded block is reused at once, even inside the
 * capture. A block recorded before the capture and freed during it waits for the end of the
 * capture. tarn records and queries no event on a stream that captures.
 *
 * Settings. The pinned_* keys of the configuration (config.h) decide how memory is made and kept.
 *
 * Pools. Only a capture's pool has pinned memory of its own. Scopes of threads do not matter here,
 * and suspending a pool leaves its pinned memory in place. After tarn_shutdown(), live blocks keep
 * their memory until the process ends.
 *
 * All calls are thread-safe and may be made during a capture, unless they say otherwise. Every
 * function may also return TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_CONFIGURATION, TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_OUT_OF_HOST_MEMORY
 * at the first use of tarn, and TARN_ERROR_INVALID_ARGUMENT for a NULL that is not allowed. */
#ifndef TARN_PINNED_H
#define TARN_PINNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns whether the address is in a live pinned block of tarn. Memory that the program pinned by
 * other means is unknown to tarn. The call creates no context and starts nothing. It returns false
 * before tarn is used, after tarn_shutdown(), and in a child of fork(), which has none of this
 * memory. */
TARN_API bool tarn_pinned_contains(const void *pointer);

/* Returns free pinned memory to the driver until at most `keep` bytes are allocated from it. As far
 * as it must, the call waits for the work that freed blocks wait for; last, where that is work of a
 * found stream (tarn_stream_find()), for all work of its device, which ends a capture that does not
 * show (stream.h). Live blocks, freed blocks of graphs, and a reserved segment stay, so TARN_OK
 * may leave more than `keep`. After a failure of the driver the call goes on with the rest and
 * returns the first failure.
 *   TARN_ERROR_CAPTURE   a known capture is open on any device, and nothing was done; or a wait for
 *                        all work of a device would end a capture that shows, and the rest was
 *                        done */
TARN_API tarn_status tarn_pinned_trim(size_t keep);

/* Sets the most bytes of pinned memory that tarn allocates from the driver. The initial value,
 * TARN_NO_LIMIT, means no limit. A limit below what is allocated now, such as 0, only stops growth.
 * The statistics have the limit. */
TARN_API tarn_status tarn_pinned_limit_set(size_t bytes);

/* Declares that no graph that used a block freed before this call will be launched again, and that
 * all their launches have finished. The freed blocks that wait for this call become reusable, even
 * those of a capture that is still open. Those that wait for a pool stay. */
TARN_API tarn_status tarn_pinned_forget_captures(void);

/* How long driver calls took, in ns; all fields are 0 if there were none. The structure never
 * grows, because others contain it. */
typedef struct tarn_pinned_duration {
    int64_t total, max, min; /* ns: of all calls, the longest, the shortest */
    int64_t count;           /* calls */
    int64_t avg;             /* ns: total / count */
} tarn_pinned_duration;

#define TARN_PINNED_BUCKETS 64 /* classes of segment sizes, by powers of two */

/* Statistics of pinned memory, with PyTorch's names (torch.cuda.host_memory_stats). Times are in
 * ns; PyTorch's are in us. The values are exact at every moment. A block is active from its
 * allocation until its memory can be reused, and counts with its usable size. */
typedef struct tarn_pinned_stats {
    size_t size;                           /* sizeof(tarn_pinned_stats), set by the caller */
    tarn_stat active_requests;             /* blocks */
    tarn_stat active_bytes;                /* of these, as rounded */
    tarn_stat requested_bytes;             /* of these, as requested */
    tarn_stat allocations;                 /* segments allocated from the driver */
    tarn_stat allocated_bytes;             /* of these */
    tarn_pinned_duration host_alloc_time;  /* time to allocate or register segments */
    tarn_pinned_duration host_free_time;   /* time to release them */
    int64_t num_host_alloc, num_host_free; /* such calls that succeeded */
    /* Segments by size: [21] is 1 MiB + 1 to 2 MiB. */
    int64_t bucket_allocation[TARN_PINNED_BUCKETS];
    int64_t pending_bytes; /* now: of freed blocks that work still uses */
    int64_t graph_bytes;   /* now: of freed blocks that graphs may use */
    /* Requests that had to release memory or wait first. */
    int64_t num_alloc_retries;
    /* Requests that failed because memory was short. */
    int64_t num_ooms;
    /* Bytes: as tarn_pinned_limit_set() has it; TARN_NO_LIMIT: none. */
    uint64_t limit;
} tarn_pinned_stats;

/* Returns the statistics. The call first looks for finished work.
 *   TARN_ERROR_INVALID_ARGUMENT   `stats` is NULL, or its `size` is unknown */
TARN_API tarn_status tarn_pinned_stats_get(tarn_pinned_stats *stats);
/* Resets statistics as tarn_device_stats_reset() does. TARN_STATS_ACCUMULATED also clears the
 * times, the counts of calls and the buckets.
 *   TARN_ERROR_INVALID_ARGUMENT   `what` is unknown */
TARN_API tarn_status tarn_pinned_stats_reset(tarn_stats_what what);

#ifdef __cplusplus
}
#endif
#endif
