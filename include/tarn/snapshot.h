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
    uint64_t max_bytes; /* of the file: where it would be longer, the oldest records are left out. 0: no limit */
} tarn_snapshot_options;

/* Writes a snapshot to a file that only its owner can read, in place of one that is there: under another name in the same folder
 * first, so that nobody finds half of one. `options` NULL: a pickle without a limit. TARN_ERROR_INVALID_ARGUMENT for a NULL path,
 * an option out of range, or a limit below what there is without any record, which the text names; TARN_ERROR_SYSTEM where the file cannot
 * be written, with the reason; TARN_ERROR_OUT_OF_HOST_MEMORY. On failure what was there before is untouched. */
TARN_API tarn_status tarn_snapshot_write(const char *path, const tarn_snapshot_options *options);

/* The same, given to a function piece by piece, by the calling thread with no lock held; it says whether to go on. Where it says no:
 * TARN_ERROR_SYSTEM. */
TARN_API tarn_status tarn_snapshot_print(bool (*write)(void *argument, const void *data, size_t size), void *argument,
                                         const tarn_snapshot_options *options);

#ifdef __cplusplus
}
#endif
#endif
