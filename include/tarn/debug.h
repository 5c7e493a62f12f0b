/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Debug mode: reports of memory errors. Not part of tarn.h.
 *
 * TARN_DEBUG, read at the first use of tarn, is a comma-separated list of words: redzone, poison,
 * quarantine[=BYTES], sites, check, context, leaks, handles, graphs, abort, quiet, or all.
 * docs/debug.md describes each. With an unknown word every call fails with
 * TARN_ERROR_CONFIGURATION. Each report is counted, passed to a callback, and written to standard
 * error unless `quiet` is set. With `abort` the process ends at the first report instead, and no
 * callback sees it. The functions here are thread-safe. They also work without TARN_DEBUG, but then
 * nothing is found. */
#ifndef TARN_DEBUG_H
#define TARN_DEBUG_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kind of a report. */
typedef enum tarn_debug_kind {
    TARN_DEBUG_BAD_FREE,         /* a double free, or a free of what is not a block */
    TARN_DEBUG_RED_ZONE,         /* a write before or behind a block */
    TARN_DEBUG_WRITE_AFTER_FREE, /* a write to a block in quarantine */
    /* Unordered work of two streams on the same memory; host device only. */
    TARN_DEBUG_CONFLICT,
    TARN_DEBUG_DEVICE, /* the vendor's current device is not tarn's */
    TARN_DEBUG_LEAK,   /* live blocks at tarn_shutdown(); one report per call site */
    /* A graph that was checked uses memory that is no longer its own; one report per block. */
    TARN_DEBUG_GRAPH
} tarn_debug_kind;

/* One report. */
typedef struct tarn_debug_report {
    size_t size;          /* sizeof(tarn_debug_report) */
    tarn_debug_kind kind; /* what was found */
    int device;           /* the device concerned */
    const void *block;    /* its start, or the freed pointer; NULL if no block is concerned */
    size_t requested;     /* bytes that were requested; for a leak, the sum of its call site */
    /* Bytes from the start of the block to the first wrong byte; below 0 for one before it. */
    int64_t offset;
    const char *text; /* the whole report, in lines */
} tarn_debug_report;

/* Sets the function that is called for each report from now on; NULL for none. A thread that calls
 * tarn on memory runs it, at the beginning or the end of that call, with no lock held, so it may
 * call tarn; only tarn_shutdown() returns TARN_ERROR_BUSY there. Several threads may run it at
 * once. A report that a background thread finds is passed on by the next such call. The report and
 * its text are valid during the call. Another thread may still be inside the previous function when
 * this returns. In a child of fork() this has no effect. */
TARN_API void tarn_debug_callback_set(void (*function)(const tarn_debug_report *report, void *user),
                                      void *user);

/* Returns the number of reports so far, of all devices. The call first checks freed blocks whose
 * work has ended. It waits for no work. After tarn_shutdown() and in a child of fork() it only
 * returns the number. */
TARN_API uint64_t tarn_debug_reports(void);

/* Checks all blocks of `device` now. The call waits for the work that freed blocks wait for, checks
 * their red zones, and checks and empties the quarantine. With `redzone` it also waits for the work
 * of every stream that has blocks, and checks the red zones of live blocks. While a stream of the
 * device is in a capture that tarn does not know, live blocks are not checked. For the work of
 * found streams (tarn_stream_find()) it waits for all work of the device, which ends a capture that
 * does not show (stream.h).
 *
 * What is found is reported and counted, and the status is TARN_OK: compare tarn_debug_reports()
 * before and after. A failure means that not everything was checked. The status may also be
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER,
 * TARN_ERROR_DEVICE_LOST, TARN_ERROR_CONFIGURATION or TARN_ERROR_OUT_OF_HOST_MEMORY.
 *   TARN_ERROR_CAPTURE          a known capture is open on the device, and nothing was checked; or
 *                               a wait for all work of the device would end a capture that shows,
 *                               and only some freed blocks were checked
 *   TARN_ERROR_INVALID_DEVICE   there is no device with that number */
TARN_API tarn_status tarn_debug_check(int device);

#ifdef __cplusplus
}
#endif
#endif
