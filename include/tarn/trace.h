/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The trace: what happened to memory, kept in one ring per thread, for tarn_snapshot_write()
 * (snapshot.h). And regions: names for what a program is doing, so that each block says where it
 * belongs.
 *
 * TARN_TRACE in the environment turns the trace on at the first use of tarn. Its value is "1" or
 * "on", or a comma-separated list of records=N, stacks=none|alloc|all and regions. "0", "off" and
 * "" leave it off. With an unknown word every call fails with TARN_ERROR_CONFIGURATION.
 *
 * Records of a thread that has exited stay until a new thread, which takes over the ring,
 * overwrites them.
 *
 * All functions are thread-safe and may be called during a capture. Every function may also return
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER,
 * TARN_ERROR_CONFIGURATION and TARN_ERROR_OUT_OF_HOST_MEMORY. */
#ifndef TARN_TRACE_H
#define TARN_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_TRACE_RECORDS 65536ul /* default per thread; 40 bytes each */

/* When call stacks are recorded, at some microseconds each. Their names are looked up when a
 * snapshot is written. */
typedef enum tarn_trace_stacks {
    TARN_TRACE_STACKS_NONE,  /* never */
    TARN_TRACE_STACKS_ALLOC, /* of allocations, segments and out-of-memory errors */
    TARN_TRACE_STACKS_ALL    /* of frees and all other records too */
} tarn_trace_stacks;

/* What is recorded. `records` is at most 2^28, and is rounded up to a power of two that is at least
 * 1024. */
typedef struct tarn_trace_options {
    size_t size;              /* sizeof(tarn_trace_options) */
    size_t records;           /* newest records kept per thread; 0: TARN_TRACE_RECORDS */
    tarn_trace_stacks stacks; /* which records have a call stack; default TARN_TRACE_STACKS_NONE */
    bool regions;             /* also record the begin and end of regions, for timelines */
} tarn_trace_options;

/* Starts recording, or continues with other options. Existing records stay. NULL means the
 * defaults. Rings are created by the threads as they record. A thread without host memory for its
 * ring goes on, and its records count as lost.
 *   TARN_ERROR_INVALID_ARGUMENT   the size is unknown, or an option is out of range
 *   TARN_ERROR_NOT_SUPPORTED      call stacks cannot be walked here: there is no libunwind, and the
 *                                 C library (such as musl) has no backtrace() */
TARN_API tarn_status tarn_trace_start(const tarn_trace_options *options);

/* Stops recording. Existing records stay for snapshots, but these can no longer show how the
 * present state came about. */
TARN_API tarn_status tarn_trace_stop(void);

/* Discards all records, and sets the count of lost records to 0. Recording goes on. */
TARN_API tarn_status tarn_trace_clear(void);

/* Returns the number of records kept now, and of records lost: overwritten, or made by a thread
 * whose ring found no host memory. Either may be NULL. Both are 0 before the first trace. */
TARN_API tarn_status tarn_trace_count_get(uint64_t *kept, uint64_t *lost);

/* Enters a region in the calling thread, inside the current one: "step 3", then "layer 7". Blocks
 * that the thread allocates until it leaves are labelled with all the names, joined by "/". At most
 * 59 bytes of `name` are copied. It also works with the trace off, at about 50 ns, so that a trace
 * that starts later has the names. If a new name cannot be stored, the call returns TARN_OK, and
 * what follows belongs to the region around it. A thread's regions end with the thread.
 *   TARN_ERROR_INVALID_ARGUMENT   `name` is NULL or empty */
TARN_API tarn_status tarn_region_push(const char *name);

/* Leaves the innermost region of the calling thread.
 *   TARN_ERROR_INVALID_ARGUMENT   the thread is in no region */
TARN_API tarn_status tarn_region_pop(void);

#ifdef __cplusplus
}
#endif
#endif
