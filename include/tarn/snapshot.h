/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Snapshots: a file that shows what lies where in device memory, and what happened to it while the
 * trace was on (trace.h).
 *
 * TARN_SNAPSHOT_PICKLE is PyTorch's format, as torch.cuda.memory._dump_snapshot() writes it.
 * PyTorch's viewer (pytorch.org/memory_viz), its _memory_viz.py, `tarn replay` and `tarn report`
 * read it. Data that PyTorch has no name for is under its own key, "tarn" (docs/snapshots.md).
 * TARN_SNAPSHOT_CHROME is JSON for ui.perfetto.dev.
 *
 * A snapshot blocks allocations and frees of a device while its blocks are copied: some
 * milliseconds for a million blocks. Nothing waits for the device or for the writing. Each device
 * is shown at one moment; two devices may be shown at slightly different moments. All functions are
 * thread-safe and may be called during a capture and by an out-of-memory observer. Every function
 * may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER
 * and TARN_ERROR_CONFIGURATION. */
#ifndef TARN_SNAPSHOT_H
#define TARN_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/memory.h>

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
    /* Of the file: the oldest records are dropped to fit. 0 or TARN_NO_LIMIT: any. */
    uint64_t max_bytes;
} tarn_snapshot_options;

/* Writes a snapshot to a file that only its owner can read. An existing file is replaced at the
 * end, so that nobody sees a partial one; on failure it is untouched. Until then a temporary file
 * is in the same directory. A symbolic link is replaced, not followed. Several threads may write
 * the same path: the last one wins. A NULL `options` means a pickle without a limit.
 *   TARN_ERROR_INVALID_ARGUMENT   `path` is NULL, empty or too long, an option is out of range, or
 *                                 the limit is too low even without any record; the text names the
 *                                 minimum
 *   TARN_ERROR_SYSTEM             the file cannot be written, or `path` exists and is not a regular
 *                                 file; the text says why
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_snapshot_write(const char *path, const tarn_snapshot_options *options);

/* Passes a snapshot to `write` piece by piece, in the calling thread and with no lock held. `write`
 * may call tarn, and returns whether to go on. After false it is not called again. After an error
 * what it received is incomplete. Otherwise as tarn_snapshot_write().
 *   TARN_ERROR_INVALID_ARGUMENT   `write` is NULL; or as tarn_snapshot_write()
 *   TARN_ERROR_SYSTEM             `write` returned false */
TARN_API tarn_status tarn_snapshot_print(bool (*write)(const void *data, size_t size, void *user),
                                         void *user, const tarn_snapshot_options *options);

/* The state of a part of a segment. */
typedef enum tarn_memory_state {
    TARN_MEMORY_FREE,   /* free memory */
    TARN_MEMORY_LIVE,   /* a block */
    TARN_MEMORY_WAITING /* a freed block that work on other streams still uses */
} tarn_memory_state;

/* A part of a segment: a block, or free memory between blocks. The structure never grows, because
 * arrays contain it. */
typedef struct tarn_memory_part {
    void *address;           /* its start */
    size_t bytes;            /* of it */
    size_t requested;        /* bytes that the caller requested; 0 if free */
    tarn_memory_state state; /* what it is */
    tarn_tag tag;            /* of the block; 0: none */
    uint64_t reserved[2];    /* 0; for later versions */
} tarn_memory_part;

/* A range of addresses that one stream has in one pool, divided into parts without gaps. It is
 * mapped, unless the pool is suspended. */
typedef struct tarn_memory_segment {
    size_t size;                   /* sizeof(tarn_memory_segment) in the library */
    void *address;                 /* its start */
    size_t bytes;                  /* of it */
    int device;                    /* whose memory it is */
    tarn_stream stream;            /* the stream that owns it; may have been retired */
    void *native;                  /* the vendor's stream */
    tarn_pool_id pool;             /* (0, 0) is the default pool */
    bool large;                    /* serves requests above 1 MiB */
    bool is_virtual;               /* virtual memory, not a plain segment */
    const tarn_memory_part *parts; /* by address; valid until the callback returns */
    size_t part_count;             /* number of parts */
} tarn_memory_segment;

/* Calls `each` for every segment of every device, by address: the data of a snapshot, as
 * structures. Each device is shown at one moment. `each` runs with no lock held and may call tarn.
 * tarn's own blocks are shown. Imported memory is not, nor is free memory that is not mapped.
 *   TARN_ERROR_INVALID_ARGUMENT     `each` is NULL
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   `each` was not called */
TARN_API tarn_status tarn_memory_list(void (*each)(const tarn_memory_segment *segment, void *user),
                                      void *user);

#ifdef __cplusplus
}
#endif
#endif
