/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Snapshots: what lies where in device memory, and what happened to it while the trace was on (trace.h), in a file.
 *
 * TARN_SNAPSHOT_PICKLE is PyTorch's format, what torch.cuda.memory._dump_snapshot() writes: its viewer (pytorch.org/memory_viz),
 * its _memory_viz.py and `tarn replay` and `tarn report` read it. What PyTorch has no name for is in a key of its own, "tarn"
 * (docs/snapshots.md). TARN_SNAPSHOT_CHROME is the JSON of chrome://tracing and ui.perfetto.dev.
 *
 * A snapshot stops allocations and frees of a device for as long as its blocks are copied, some ms for a million; nothing waits
 * for the device or for the writing. Each device is as it was at one moment, which may be another's a moment later. All functions are
 * thread-safe and may be called during a capture and by an observer of out-of-memory. Each may also return
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN and what the choice of a driver gives. */
#ifndef TARN_SNAPSHOT_H
#define TARN_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The format of a snapshot. */
typedef enum tarn_snapshot_format {
    TARN_SNAPSHOT_PICKLE, /* PyTorch's */
    TARN_SNAPSHOT_CHROME  /* JSON of a timeline */
} tarn_snapshot_format;

/* How a snapshot is written. */
typedef struct tarn_snapshot_options {
    size_t size;                 /* sizeof(tarn_snapshot_options) */
    tarn_snapshot_format format; /* TARN_SNAPSHOT_PICKLE */
    uint64_t
        max_bytes; /* of the file: where it would be longer, the oldest records are left out. TARN_NO_LIMIT: it may be of any length */
} tarn_snapshot_options;

/* Writes a snapshot to a file that only its owner can read, in place of one that is there: under another name in the same folder
 * first, so that nobody finds half of one. `options` NULL: a pickle without a limit. TARN_ERROR_INVALID_ARGUMENT for a NULL path,
 * an option out of range, or a limit below what there is without any record, which the text names; TARN_ERROR_SYSTEM where the file cannot
 * be written, with the reason; TARN_ERROR_OUT_OF_HOST_MEMORY. On failure what was there before is untouched. */
TARN_API tarn_status tarn_snapshot_write(const char *path, const tarn_snapshot_options *options);

/* The same, given to a function piece by piece, by the calling thread with no lock held; it says whether to go on. Where it says no:
 * TARN_ERROR_SYSTEM. */
TARN_API tarn_status tarn_snapshot_print(bool (*write)(const void *data, size_t size, void *user), void *user,
                                         const tarn_snapshot_options *options);

/* What a part of a segment is. */
typedef enum tarn_memory_state {
    TARN_MEMORY_FREE,   /* nobody has it */
    TARN_MEMORY_LIVE,   /* a block */
    TARN_MEMORY_WAITING /* a block that was freed, and that work on other streams still uses */
} tarn_memory_state;

/* A part of a segment: a block, or free memory between blocks. It does not grow, as it lies in arrays. */
typedef struct tarn_memory_part {
    void *address;           /* its start */
    size_t bytes;            /* of it */
    size_t requested;        /* bytes that the caller asked for; 0 where it is free */
    tarn_memory_state state; /* what it is */
    tarn_tag tag;            /* of the block; 0: none */
    uint64_t reserved[2];    /* 0; for later versions */
} tarn_memory_part;

/* A run of mapped addresses that one stream has in one pool, cut into parts without a gap. */
typedef struct tarn_memory_segment {
    size_t size;                   /* sizeof(tarn_memory_segment), as tarn has it */
    void *address;                 /* its start */
    size_t bytes;                  /* of it */
    int device;                    /* whose memory it is */
    tarn_stream stream;            /* that has it; may be retired since */
    void *native;                  /* what the vendor calls the stream */
    tarn_pool_id pool;             /* (0, 0) is the default pool */
    bool large;                    /* it serves requests above 1 MiB */
    bool is_virtual;               /* it is mapped, and not a plain segment */
    const tarn_memory_part *parts; /* in the order of addresses, until the function returns */
    size_t part_count;             /* how many they are */
} tarn_memory_segment;

/* Calls `each` for every segment of every device, in the order of addresses: what a snapshot has, as structures. Each device is as it was at
 * one moment. `each` runs with no lock held and may call tarn.
 *   TARN_ERROR_INVALID_ARGUMENT     `each` is NULL
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   `each` was not called */
TARN_API tarn_status tarn_memory_list(void (*each)(const tarn_memory_segment *segment, void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
