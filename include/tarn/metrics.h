/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Metrics: what tarn has in this process as OpenMetrics text, which Prometheus and its kin read. Not part of tarn.h. docs/monitoring.md
 * lists the metrics; they are added to, not changed.
 *
 * The environment variable TARN_METRICS, read at the first use of tarn, names a file that is written so every TARN_METRICS_INTERVAL
 * seconds, 1 to 86,400, or 15: for node_exporter's textfile collector, which wants a name that ends in ".prom". "%p" in the name
 * is the process's number, "%%" a percent sign. What fails is written to the log (TARN_LOG=errors). The file stays when the
 * process ends.
 *
 * Both functions are thread-safe and may be called during a capture. They call the driver only to ask how much memory is free. They may
 * also return TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_NO_DRIVER, TARN_ERROR_CONFIGURATION,
 * TARN_ERROR_OUT_OF_HOST_MEMORY, and TARN_ERROR_INVALID_ARGUMENT for a NULL. */
#ifndef TARN_METRICS_H
#define TARN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the text in parts, `length` bytes each and not ended by 0, with no lock held. Where `take` answers false the rest is left out:
 * TARN_ERROR_SYSTEM. */
TARN_API tarn_status tarn_metrics_print(bool (*take)(const void *text, size_t length, void *user), void *user);

/* Writes the text to a file: to a temporary one beside it first, which then replaces it, so that a reader finds the old text or the new
 * and never a part. TARN_ERROR_SYSTEM, with the file as it was, where that fails; TARN_ERROR_INVALID_ARGUMENT for what is no path. */
TARN_API tarn_status tarn_metrics_write(const char *path);

#ifdef __cplusplus
}
#endif
#endif
