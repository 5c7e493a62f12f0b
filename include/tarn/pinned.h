/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Pinned memory of the host: pages that stay where they are, so that devices copy from and to them by themselves. Blocks
 * are of no device and of no stream; every device reaches them. They are at multiples of 256 bytes, and at most 12.5 %
 * larger than what was asked for, or 255 bytes where that is more.
 *
 * A block that work on a stream uses must be recorded on that stream (tarn_pinned_record_stream). When it is freed its
 * memory is used again once the work queued on those streams at that moment has finished. Streams wait for themselves
 * only: a slow one keeps back the blocks that it uses and no others.
 *
 * Captures. A block that was recorded on a stream while that captured is read or written at every launch of the graph:
 * freed, it is kept and not used again, until tarn_pinned_forget_captures() says that the graphs are gone, or, where the capture has
 * a pool (pool.h), nothing counts that any more. One that captures of several pools used, or one without a pool too, waits for
 * tarn_pinned_forget_captures(). A block that was not recorded is used again at once, inside the capture too. No event is recorded on, and nothing is asked of, a stream that captures.
 *
 * All calls are thread-safe and may be made during a capture, where nothing else is said. Each may give TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_CONFIGURATION, TARN_ERROR_FORKED and TARN_ERROR_SHUTDOWN. */
#ifndef TARN_PINNED_H
#define TARN_PINNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/stats.h>
#include <tarn/status.h>
#include <tarn/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives a block of `size` bytes, whose contents are undefined. Of 0 bytes: NULL, with TARN_OK. Makes a context on the
 * thread's current device where no device has one, and nowhere else.
 * TARN_ERROR_OUT_OF_MEMORY: neither the driver nor the limit has room, after all that is not in use was given back and
 * pending work was waited for, or the request is above the limit itself. TARN_ERROR_OUT_OF_HOST_MEMORY, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_DRIVER. */
TARN_API tarn_status tarn_pinned_alloc(size_t size, void **pointer);

/* The same for work of `stream`: a capture of that stream may have a pool of its own for it, instead of one of the
 * thread's current stream. TARN_ERROR_INVALID_STREAM. */
TARN_API tarn_status tarn_pinned_alloc_on(tarn_stream stream, size_t size, void **pointer);

/* Gives a block back. NULL is fine. Never waits for work, but where it gives memory back to the driver at once
 * (max_cached_size). TARN_ERROR_INVALID_POINTER for what is not the start of a block, TARN_ERROR_DOUBLE_FREE for one that was
 * freed before and not given out since; both leave everything as it was. */
TARN_API tarn_status tarn_pinned_free(void *pointer);

/* Says that work on `stream`, queued before the block is freed, uses it. `pointer` may point anywhere into the block.
 * TARN_ERROR_INVALID_POINTER where it is in no live block, TARN_ERROR_INVALID_STREAM, TARN_ERROR_OUT_OF_HOST_MEMORY;
 * TARN_ERROR_DRIVER and TARN_ERROR_DEVICE_LOST where the driver cannot say whether the stream captures. */
TARN_API tarn_status tarn_pinned_record_stream(const void *pointer, tarn_stream stream);

/* The bytes that a block really has. `pointer` must be the start of a live block: TARN_ERROR_INVALID_POINTER. */
TARN_API tarn_status tarn_pinned_usable_size_get(const void *pointer, size_t *size);

/* Whether the address is in a live block of tarn's pinned memory. Of memory that the program pinned by other means tarn knows
 * nothing. Makes no context and starts nothing: false before tarn was used, after tarn_shutdown() and in a child of fork(),
 * which has none of this memory. */
TARN_API bool tarn_pinned_contains(const void *pointer);

/* Gives free memory back to the driver until at most `keep` bytes are allocated from it. First waits for the work that freed
 * blocks wait for. Live and kept blocks and a reserved segment stay, so that TARN_OK may leave more. TARN_ERROR_CAPTURE
 * while a known capture is open on any device; then nothing was done. Otherwise the first failure of the driver; the rest
 * was given back. */
TARN_API tarn_status tarn_pinned_trim(size_t keep);

/* The most bytes that are allocated from the driver; TARN_NO_LIMIT, the initial value, is none. One below what is allocated
 * now only stops growth. */
TARN_API tarn_status tarn_pinned_limit_set(size_t bytes);
TARN_API tarn_status tarn_pinned_limit_get(size_t *bytes);

/* Says that no graph which used a block that was freed since will be launched again, and that all their launches have
 * finished: the kept blocks are free from now on. */
TARN_API tarn_status tarn_pinned_forget_captures(void);

/* Also set by the keys pinned_* of the configuration (config.h), as far as that changes them. */
typedef struct tarn_pinned_settings {
    size_t size;                /* sizeof(tarn_pinned_settings), set by the caller */
    bool use_register;          /* pages of the system's, touched, then registered; else the driver allocates. Off */
    unsigned register_threads;  /* that touch pages side by side: a power of two, at most 128. 1 */
    size_t reserve_segment;     /* bytes of one segment that is taken at the first growth and kept. 0: none */
    bool background_threads;    /* a thread looks for finished work while blocks wait for it. Off */
    size_t max_round_threshold; /* bytes: larger requests are rounded up to 256 bytes only. TARN_NO_LIMIT */
    size_t max_cached_size;     /* bytes: larger blocks go back to the driver when they are free. TARN_NO_LIMIT */
    bool free_catch_all;        /* PyTorch's, about C++ exceptions: without effect, since no call throws. Off */
} tarn_pinned_settings;

/* What holds for requests from now on; what was allocated before stays as it is. Another size of reserve_segment reserves a
 * further one.
 * TARN_ERROR_INVALID_ARGUMENT, with all settings as they were, for a `size` that is unknown or a wrong register_threads;
 * TARN_ERROR_OUT_OF_HOST_MEMORY where the background thread cannot be made. */
TARN_API tarn_status tarn_pinned_settings_set(const tarn_pinned_settings *settings);
TARN_API tarn_status tarn_pinned_settings_get(tarn_pinned_settings *settings);

/* How long calls of the driver took, in ns; all 0 where there were none. It never grows, as it lies in others. */
typedef struct tarn_pinned_duration {
    int64_t total, max, min; /* ns: of all, of the longest, of the shortest */
    int64_t count;           /* calls */
    int64_t avg;             /* ns: total / count */
} tarn_pinned_duration;

#define TARN_PINNED_BUCKETS 64 /* powers of two by which allocations are counted */

/* With the names of PyTorch's (torch.cuda.host_memory_stats); times are ns there us. Exact at every moment: a block is active
 * from its allocation until its memory can be used again, and counts with the size that it has. */
typedef struct tarn_pinned_stats {
    size_t size;                           /* sizeof(tarn_pinned_stats), set by the caller */
    tarn_stat active_requests;             /* blocks */
    tarn_stat active_bytes;                /* of these, as rounded */
    tarn_stat requested_bytes;             /* of these, as asked for */
    tarn_stat allocations;                 /* segments allocated from the driver */
    tarn_stat allocated_bytes;             /* of these */
    tarn_pinned_duration host_alloc_time;  /* of allocating or registering segments */
    tarn_pinned_duration host_free_time;   /* of giving them back */
    int64_t num_host_alloc, num_host_free; /* such calls that succeeded */
    int64_t bucket_allocation
        [TARN_PINNED_BUCKETS]; /* segments allocated, by the power of two that their size reaches: [21] is from 1 MiB + 1 to 2 MiB */
    int64_t pending_bytes;     /* now: of blocks that were freed and are in use still */
    int64_t kept_bytes;        /* now: of blocks that were freed and kept for a graph */
    int64_t num_alloc_retries; /* requests that took memory back or waited before they were served */
    int64_t num_ooms;          /* requests that failed for want of memory */
} tarn_pinned_stats;

/* Looks for finished work first. TARN_ERROR_INVALID_ARGUMENT for a NULL or a `size` that is unknown. */
TARN_API tarn_status tarn_pinned_stats_get(tarn_pinned_stats *stats);
/* As tarn_device_stats_reset(); what only grows is also the times, the counts of calls and the buckets. */
TARN_API tarn_status tarn_pinned_stats_reset(tarn_stats_what what);

#ifdef __cplusplus
}
#endif
#endif
