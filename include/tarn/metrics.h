/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Metrics: the state of tarn in this process in the Prometheus text format, version 0.0.4, which
 * Prometheus and compatible tools read. Not part of tarn.h. docs/monitoring.md lists the metrics.
 * New ones may be added; existing ones do not change.
 *
 * TARN_METRICS in the environment, read at the first use of tarn, names a file that is written
 * every TARN_METRICS_INTERVAL seconds (1 to 86,400; 15 by default). It is meant for node_exporter's
 * textfile collector, which needs a name that ends in ".prom". In the name, "%p" stands for the
 * process id and "%%" for a percent sign. With a malformed value every call returns
 * TARN_ERROR_CONFIGURATION. Failures to write are reported in the log (TARN_LOG=errors), and tarn
 * tries again. tarn_shutdown() ends the writing. The file stays when the process ends.
 *
 * The file is first written under another name, and then replaces the old one: a reader finds the
 * old text or the new one, never a part. All users may read it, as far as the umask allows. A
 * symbolic link is replaced, not followed.
 *
 * The function is thread-safe and may be called during a capture. It calls the driver only to ask
 * how much memory is free, on devices whose memory tarn has used. A lost device does not make it
 * fail. Every function may also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN,
 * TARN_ERROR_NO_DRIVER, TARN_ERROR_DRIVER, TARN_ERROR_CONFIGURATION, TARN_ERROR_OUT_OF_HOST_MEMORY,
 * and TARN_ERROR_INVALID_ARGUMENT for a NULL. */
#ifndef TARN_METRICS_H
#define TARN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Passes the text to `take` in parts of `length` bytes, without a final 0 and with no lock held.
 * `take` runs in the calling thread, may call tarn, and must copy what it keeps. If `take` returns
 * false, the rest is left out.
 *   TARN_ERROR_SYSTEM   `take` returned false */
TARN_API tarn_status tarn_metrics_print(bool (*take)(const void *text, size_t length, void *user),
                                        void *user);

#ifdef __cplusplus
}
#endif
#endif
