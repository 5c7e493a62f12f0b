/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Statistics of one device's memory, with the names and meanings of PyTorch's (c10/core/CachingDeviceAllocator.h,
 * torch.cuda.memory_stats). Thread-safe, no driver call. While other threads allocate, the values of one reading may be
 * of slightly different moments; at rest they are exact.
 *
 * A peak is exact for blocks above 64 KiB, except where threads that use different streams compete: threads that take the counters from
 * each other again and again, with fewer than 64 blocks between. Each such stream then publishes what it has counted at 64 MiB of
 * difference of large blocks, at 8 MiB of small ones, and at 1,024 blocks of each class. The peak may be too high or too low by as much
 * per such stream, until the counters are the same thread's twice in a row, or the peaks are reset. For blocks up to 64 KiB it may be
 * off by 1 MiB per thread and stream. */
#ifndef TARN_STATS_H
#define TARN_STATS_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One counter: its value, its highest value since the last reset, and the sums of its increases and decreases. It never grows, as it lies
 * in others. */
typedef struct tarn_stat {
    int64_t current, peak; /* now, and at most */
    int64_t allocated;     /* sum of the increases */
    int64_t freed;         /* sum of the decreases */
} tarn_stat;

/* By size of the block, 1 MiB being small still. Physical pieces of virtual memory serve both and count as large. */
typedef enum tarn_stat_class {
    TARN_STAT_ALL,        /* both */
    TARN_STAT_SMALL_POOL, /* small blocks */
    TARN_STAT_LARGE_POOL, /* large ones */
    TARN_STAT_CLASSES     /* how many there are */
} tarn_stat_class;

/* X(name): counters by class. Counts, then bytes.
 *   allocation            blocks, from allocation to the call of free
 *   segment               what came from the driver as a whole: plain allocations, or physical pieces
 *   active                blocks, from allocation to the moment they can be used again
 *   inactive_split        free memory beside other memory of its segment or run; its peak is the sum of each stream's own
 *   allocated_bytes       of allocations, as rounded
 *   reserved_bytes        of segments: what came from the driver
 *   active_bytes          of active blocks
 *   inactive_split_bytes  of free memory beside other memory
 *   requested_bytes       of allocations, as the callers asked for them */
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

/* X(name): one counter each. Nothing more is counted while there is no oversize limit (max_split_size).
 *   oversize_allocations  blocks of the limit and above, by the limit of the time when they were allocated
 *   oversize_segments     segments of the limit and above, by the limit of the time when they came */
#define TARN_STATS_SINGLE_LIST(X) \
    X(oversize_allocations)       \
    X(oversize_segments)

/* X(name): sums.
 *   num_alloc_retries     searches after memory was taken back from other streams
 *   num_ooms              requests that failed
 *   num_sync_all_streams  waits for every stream of the device, which tarn never makes: 0
 *   num_device_alloc      calls by which memory came from the driver
 *   num_device_free       calls by which it went back
 *   num_oom_rejections    requests refused before the driver was asked */
#define TARN_STATS_SCALAR_LIST(X) \
    X(num_alloc_retries)          \
    X(num_ooms)                   \
    X(num_sync_all_streams)       \
    X(num_device_alloc)           \
    X(num_device_free)            \
    X(num_oom_rejections)

/* The counters of a device, or of a pool. What is added comes behind the last field, never into a list in front of others. */
typedef struct tarn_stats {
    size_t size;            /* sizeof(tarn_stats), set by the caller */
    int64_t max_split_size; /* bytes; -1 is no limit */
    int64_t metadata_bytes; /* host memory of the library's own bookkeeping, for all devices */
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

/* TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for a NULL or a `size` that is unknown. */
TARN_API tarn_status tarn_device_stats_get(int device, tarn_stats *stats);

/* What of statistics begins again. */
typedef enum tarn_stats_what {
    TARN_STATS_PEAK,       /* every peak becomes the current value */
    TARN_STATS_ACCUMULATED /* the sums of increases and decreases, and what only grows, become zero */
} tarn_stats_what;

/* TARN_ERROR_INVALID_DEVICE; TARN_ERROR_INVALID_ARGUMENT for an unknown `what`. */
TARN_API tarn_status tarn_device_stats_reset(int device, tarn_stats_what what);

/* One kind of records in the library's own bookkeeping. Which kinds there are may change with any release. */
typedef struct tarn_metadata_kind {
    size_t size;         /* sizeof(tarn_metadata_kind) */
    const char *name;    /* of a record: "span"; lives as long as the process */
    size_t record_bytes; /* of one record */
    int64_t records;     /* how many are in use */
    int64_t bytes; /* host memory for these, and for as many more as there once were: that is kept for later ones */
} tarn_metadata_kind;

/* Calls `each` for every kind of which there was a record: what metadata_bytes is made of, to which their bytes add up while no other
 * thread uses tarn. With no lock held: `each` may call tarn. TARN_ERROR_INVALID_ARGUMENT for no function; after fork() and after
 * tarn_shutdown() as every call. */
TARN_API tarn_status tarn_metadata_list(void (*each)(const tarn_metadata_kind *kind, void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
