/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statistics of one device's memory, with PyTorch's names and meanings
 * (c10/core/CachingDeviceAllocator.h, torch.cuda.memory_stats). A device's statistics cover its
 * default pool and all private pools, and neither pinned host memory (pinned.h) nor imported memory
 * (share.h). All functions are thread-safe, allowed during a capture, and make no driver call
 * except to start tarn. While other threads allocate, the values of one reading may be of slightly
 * different moments; at rest they are exact. Every function may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_DEVICE_LOST,
 * TARN_ERROR_CONFIGURATION and TARN_ERROR_OUT_OF_HOST_MEMORY.
 *
 * A peak is exact for blocks above 64 KiB, unless threads that use different streams compete for
 * the counters: they take them from each other repeatedly, with fewer than 64 blocks in between.
 * Each such stream then publishes its counts at 128 MiB of difference in large blocks, at 8 MiB in
 * small ones, and at 1,024 blocks of each class. The peak may be off by that much per such stream,
 * until the counters are the same thread's twice in a row or the peaks are reset. Where threads
 * wait for each other on one stream, the same holds per thread, for up to 16 threads of a stream.
 * For blocks up to 64 KiB a peak may be off by 1 MiB per thread and stream. */
#ifndef TARN_STATS_H
#define TARN_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One counter: its value, its highest value since the last reset, and the sums of its increases and
 * decreases. The structure never grows, because others contain it. */
typedef struct tarn_stat {
    int64_t current, peak; /* now, and the highest */
    int64_t allocated;     /* sum of the increases */
    int64_t freed;         /* sum of the decreases */
} tarn_stat;

/* Classes by block size; 1 MiB is still small. Physical pieces of virtual memory serve both classes
 * and count as large. */
typedef enum tarn_stat_class {
    TARN_STAT_ALL,        /* both */
    TARN_STAT_SMALL_POOL, /* small blocks */
    TARN_STAT_LARGE_POOL, /* large ones */
    TARN_STAT_CLASSES     /* number of classes */
} tarn_stat_class;

/* X(name): counters by class. Counts first, then bytes.
 *   allocation             blocks, from their allocation to the call that frees them
 *   segment                driver allocations: plain segments, or physical pieces
 *   active                 blocks, from their allocation until their memory can be reused
 *   inactive_split         free memory beside other memory of its segment or range; its peak is the
 *                          sum of each stream's own
 *   allocated_bytes        of allocations, as rounded
 *   reserved_bytes         of segments: what came from the driver
 *   active_bytes           of active blocks
 *   inactive_split_bytes   of free memory beside other memory
 *   requested_bytes        of allocations, as the callers requested them */
#define TARN_STATS_CLASS_LIST(X) \
    X(allocation)                \
    X(segment)                   \
    X(active)                    \
    X(inactive_split)            \
    X(allocated_bytes)           \
    X(reserved_bytes)            \
    X(active_bytes)              \
    X(inactive_split_bytes)      \
    X(requested_bytes)

/* X(name): one counter each. They count only while there is an oversize limit (max_split_size).
 *   oversize_allocations   blocks at or above the limit that held when they were allocated
 *   oversize_segments      segments at or above the limit that held when they were created */
#define TARN_STATS_SINGLE_LIST(X) \
    X(oversize_allocations)       \
    X(oversize_segments)

/* X(name): sums.
 *   num_alloc_retries      searches repeated after memory was taken back from other streams
 *   num_ooms               requests that failed for lack of memory, rejected ones included
 *   num_sync_all_streams   waits for every stream of the device, which tarn never makes: 0
 *   num_device_alloc       driver calls that allocated memory
 *   num_device_free        driver calls that released memory
 *   num_oom_rejections     requests larger than the device or a limit, refused before the driver
 *                          was asked */
#define TARN_STATS_SCALAR_LIST(X) \
    X(num_alloc_retries)          \
    X(num_ooms)                   \
    X(num_sync_all_streams)       \
    X(num_device_alloc)           \
    X(num_device_free)            \
    X(num_oom_rejections)

/* The counters of a device or of a pool. New counters are added behind the last field, never into
 * an earlier list. */
typedef struct tarn_stats {
    size_t size;            /* sizeof(tarn_stats), set by the caller */
    int64_t max_split_size; /* bytes; -1 is no limit */
    int64_t metadata_bytes; /* host memory of the library's own records, for all devices */
#define TARN_STATS_CLASS_FIELD(name) tarn_stat name[TARN_STAT_CLASSES];
    TARN_STATS_CLASS_LIST(TARN_STATS_CLASS_FIELD)
#undef TARN_STATS_CLASS_FIELD
#define TARN_STATS_SINGLE_FIELD(name) tarn_stat name;
    TARN_STATS_SINGLE_LIST(TARN_STATS_SINGLE_FIELD)
#undef TARN_STATS_SINGLE_FIELD
#define TARN_STATS_SCALAR_FIELD(name) int64_t name;
    TARN_STATS_SCALAR_LIST(TARN_STATS_SCALAR_FIELD)
#undef TARN_STATS_SCALAR_FIELD
} tarn_stats;

/* What a reset of statistics clears. */
typedef enum tarn_stats_what {
    TARN_STATS_PEAK, /* every peak becomes the current value */
    /* The sums of increases and decreases, and what only grows, become zero. */
    TARN_STATS_ACCUMULATED
} tarn_stats_what;

/* Resets statistics of a device. Those of its pools stay.
 *   TARN_ERROR_INVALID_DEVICE     there is no device with that number
 *   TARN_ERROR_INVALID_ARGUMENT   `what` is unknown */
TARN_API tarn_status tarn_device_stats_reset(int device, tarn_stats_what what);

/* One kind of record in the library's own bookkeeping. The kinds may change with any release. */
typedef struct tarn_metadata_kind {
    size_t size;         /* sizeof(tarn_metadata_kind) */
    const char *name;    /* such as "span"; the string is constant */
    size_t record_bytes; /* of one record */
    int64_t records;     /* number in use */
    int64_t bytes;       /* host memory for these and for unused ones that are kept */
} tarn_metadata_kind;

/* Calls `each` in the calling thread for every kind of record that was ever used. `kind` is valid
 * during the call. The kinds make up metadata_bytes: while no other thread uses tarn, their bytes
 * add up to it. `each` runs with no lock held and may call tarn.
 *   TARN_ERROR_INVALID_ARGUMENT   `each` is NULL */
TARN_API tarn_status tarn_metadata_list(void (*each)(const tarn_metadata_kind *kind, void *user),
                                        void *user);

#ifdef __cplusplus
}
#endif
#endif
