/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What debug mode finds. Not part of tarn.h.
 *
 * TARN_DEBUG, read at the first use of tarn, is a list of words joined by commas: redzone, poison, quarantine[=BYTES], sites,
 * check, context, leaks, handles, abort, quiet, or all; docs/debug.md says what each does. An unknown word makes every call
 * fail with TARN_ERROR_CONFIGURATION. What is found is written to standard error, unless `quiet` is among the words,
 * counted, and given to a function. The functions here are thread-safe, and work without TARN_DEBUG too, which then finds nothing. */
#ifndef TARN_DEBUG_H
#define TARN_DEBUG_H

#include <stddef.h>
#include <stdint.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a report is of. */
typedef enum tarn_debug_kind {
    TARN_DEBUG_BAD_FREE,         /* of what was freed already, or is no block */
    TARN_DEBUG_RED_ZONE,         /* a write before a block, or behind it */
    TARN_DEBUG_WRITE_AFTER_FREE, /* a write to a block in quarantine */
    TARN_DEBUG_CONFLICT,         /* work of two streams on the same memory without an order; host device only */
    TARN_DEBUG_DEVICE,           /* the vendor's current device is not tarn's */
    TARN_DEBUG_LEAK              /* blocks that are live at tarn_shutdown(); one report a call site */
} tarn_debug_kind;

/* One report. */
typedef struct tarn_debug_report {
    size_t size;          /* sizeof(tarn_debug_report) */
    tarn_debug_kind kind; /* what was found */
    int device;           /* where */
    const void *block;    /* its start, or the pointer that was freed; NULL where no block is concerned */
    size_t requested;     /* bytes, as asked for; of leaks, all of the site's together */
    int64_t offset;       /* bytes from the start of the block to the first one that is wrong */
    const char *text;     /* all of it, in lines; valid during the call */
} tarn_debug_report;

/* Has `function` called for each report from now on, by a thread that calls tarn, at the beginning or the end of a call and with
 * no lock held: it may call tarn. Reports that a background thread finds come with the next call. NULL: nobody is told. Does
 * nothing in a child of fork(). */
TARN_API void tarn_debug_callback_set(void (*function)(const tarn_debug_report *report, void *user), void *user);

/* How many reports there were. First looks at what has been freed and whose work has ended; waits for no work. */
TARN_API uint64_t tarn_debug_reports(void);

/* Looks at every block now: waits for the work that freed blocks of `device` wait for, looks at their red zones and at what
 * lies in quarantine, which is empty then; with redzone waits for the work of every stream that has blocks, and looks at the
 * red zones of live ones. TARN_ERROR_CAPTURE while a known capture
 * is open on the device; and as tarn_device_trim(). */
TARN_API tarn_status tarn_debug_check(int device);

#ifdef __cplusplus
}
#endif
#endif
