/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The trace: what happened to memory, kept in a ring a thread, for tarn_snapshot_write() (snapshot.h). And regions, which name
 * what a program is doing, so that a block says where it belongs.
 *
 * TARN_TRACE in the environment turns it on at the first use of tarn: "1" or "on", or a list joined by commas of records=N,
 * stacks=none|alloc|all and regions. An unknown word makes every call fail with TARN_ERROR_CONFIGURATION.
 *
 * All functions are thread-safe and may be called during a capture. Each may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN and, where the driver is chosen by it, what that gives. */
#ifndef TARN_TRACE_H
#define TARN_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TARN_TRACE_RECORDS 65536ul /* of a thread, where nothing else is said; 40 bytes each */

/* When call stacks are taken: some us each time. Their names are looked up when a snapshot is written. */
typedef enum tarn_trace_stacks {
    TARN_TRACE_STACKS_NONE,  /* never */
    TARN_TRACE_STACKS_ALLOC, /* of allocations, segments and out-of-memory errors */
    TARN_TRACE_STACKS_ALL    /* of frees and all other records too */
} tarn_trace_stacks;

/* What is recorded. */
typedef struct tarn_trace_options {
    size_t size;              /* sizeof(tarn_trace_options) */
    size_t records;           /* a thread keeps at least so many of its newest; 0: TARN_TRACE_RECORDS. At most 2^28 */
    tarn_trace_stacks stacks; /* which have a call stack; TARN_TRACE_STACKS_NONE */
    bool regions;             /* keep beginnings and ends of regions as records of their own, for timelines */
} tarn_trace_options;

/* Begins to record, or goes on with other options; what was recorded stays. NULL is all by default.
 * TARN_ERROR_INVALID_ARGUMENT for a size that is unknown, or an option out of range; TARN_ERROR_NOT_SUPPORTED for stacks where
 * nothing can walk them: without libunwind on a C library that has no backtrace(), as musl. */
TARN_API tarn_status tarn_trace_start(const tarn_trace_options *options);

/* Records no more; what was recorded stays for snapshots, which can no longer say how it led to what is there then. */
TARN_API tarn_status tarn_trace_stop(void);

/* Forgets what was recorded. */
TARN_API tarn_status tarn_trace_clear(void);

/* Records kept now, and lost: overwritten, or made by a thread for whose ring the host had no memory. Either may be NULL. */
TARN_API tarn_status tarn_trace_count_get(uint64_t *kept, uint64_t *lost);

/* The calling thread enters a region, inside the one that it is in: "step 3", then "layer 7". Blocks that it allocates until it
 * leaves are noted with all the names, joined by "/". `name` is copied, 59 bytes of it at most. Works, at some 50 ns, with the
 * trace off too, so that one that begins later knows. TARN_ERROR_INVALID_ARGUMENT for NULL or an empty name. */
TARN_API tarn_status tarn_region_push(const char *name);

/* Leaves the innermost one. TARN_ERROR_INVALID_ARGUMENT where the thread is in none. */
TARN_API tarn_status tarn_region_pop(void);

#ifdef __cplusplus
}
#endif
#endif
