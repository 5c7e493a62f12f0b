/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A live page: what tarn has in this process, for `tarn top`. Not part of tarn.h.
 *
 * While the page is published, a thread of the library reads counters, pools, streams and handles a
 * few times a second. It writes them to a file of shared memory with mode 0400, which processes of
 * the same user and of root can read. Nothing else gets slower. The page is removed by
 * tarn_live_stop(), by tarn_shutdown() and at the end of the process. The page of a killed process
 * is removed by the next process that publishes there, and by `tarn top`. A child of fork() has no
 * page.
 *
  * TARN_LIVE=1 does the same without a call, at the first use of tarn. docs/monitoring.md lists the
 * variables. If the page cannot be created then, the log says so (TARN_LOG=errors) and the program
 * goes on.
 *
 * All functions are thread-safe and may be called during a capture. Every function may also return
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER and
 * TARN_ERROR_CONFIGURATION. */
#ifndef TARN_LIVE_H
#define TARN_LIVE_H

#include <stddef.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the page is published. */
typedef struct tarn_live_options {
    size_t size; /* sizeof(tarn_live_options), set by the caller */

    /* The name by which `tarn top` finds the process, besides its process id: 1 to 63 bytes, no
     * control characters, not digits alone. Several processes may share a name. NULL:
     * TARN_LIVE_NAME, or the name of the executable. */
    const char *name;

    /* The directory of the file, which must exist. NULL or "": TARN_LIVE_DIRECTORY or else
     * XDG_RUNTIME_DIR, if one is set, otherwise /dev/shm. */
    const char *directory;

    /* Milliseconds between two readings, 10 to 3,600,000. 0: TARN_LIVE_INTERVAL, or 250. */
    unsigned interval_ms;
} tarn_live_options;

/* Publishes the page. `options` may be NULL for the defaults. The strings are copied. After
 * tarn_live_stop() the call can be repeated.
 *   TARN_ERROR_BUSY                 the page is published already, by a call or by TARN_LIVE=1
 *   TARN_ERROR_INVALID_ARGUMENT     the size is unknown, or an option is out of range
 *   TARN_ERROR_SYSTEM               the file cannot be created
 *   TARN_ERROR_OUT_OF_HOST_MEMORY   the thread cannot be created */
TARN_API tarn_status tarn_live_start(const tarn_live_options *options);

/* Removes the page, after the current reading. Without a page it returns TARN_OK. */
TARN_API tarn_status tarn_live_stop(void);

#ifdef __cplusplus
}
#endif
#endif
