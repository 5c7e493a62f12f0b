/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A live page: what tarn has in this process, for `tarn top` to show. Not part of tarn.h.
 *
 * While it is published a thread of the library's reads counters, pools, streams and handles some times a second and writes them to a
 * file of shared memory, of mode 0400, that the same user's (and root's) processes can read. Nothing else gets slower. The
 * page goes with tarn_live_stop(), tarn_shutdown() and the end of the process; what a process that was killed left is removed by the
 * next one that publishes there, and by `tarn top`. A child of fork() has no page.
 *
 * The environment does the same without a call, at the first use of tarn:
 *   TARN_LIVE            1: publish; 0: do not
 *   TARN_LIVE_NAME       as `name`
 *   TARN_LIVE_DIRECTORY  as `directory`
 *   TARN_LIVE_INTERVAL   as `interval_ms`
 * A value that makes no sense is TARN_ERROR_CONFIGURATION of every call. That a page could not be made is written to the log
 * (TARN_LOG=errors), and the program goes on.
 *
 * All functions are thread-safe and may be called during a capture. They may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN,
 * TARN_ERROR_NO_DRIVER and TARN_ERROR_CONFIGURATION. */
#ifndef TARN_LIVE_H
#define TARN_LIVE_H

#include <stddef.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the page is published. */
typedef struct tarn_live_options {
    size_t size; /* sizeof(tarn_live_options), set by the caller */

    /* By which `tarn top` finds the process, beside its number: 1 to 63 bytes without control characters, not digits alone. Several
     * processes may have the same. NULL: TARN_LIVE_NAME, or the name of the executable. */
    const char *name;

    /* Where the file is made. NULL: TARN_LIVE_DIRECTORY, XDG_RUNTIME_DIR or /dev/shm, the first that is set. */
    const char *directory;

    /* Milliseconds from one reading to the next, 10 to 3,600,000. 0: TARN_LIVE_INTERVAL, or 250. */
    unsigned interval_ms;
} tarn_live_options;

/* Publishes the page. `options` may be NULL: nothing special. TARN_ERROR_BUSY where it is published already;
 * TARN_ERROR_INVALID_ARGUMENT for options that are not as said; TARN_ERROR_SYSTEM where the file cannot be made;
 * TARN_ERROR_OUT_OF_HOST_MEMORY. */
TARN_API tarn_status tarn_live_start(const tarn_live_options *options);

/* Takes the page away, after the reading that is under way. TARN_OK also where there is none. */
TARN_API tarn_status tarn_live_stop(void);

#ifdef __cplusplus
}
#endif
#endif
