/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Parts of this layer that begin at the first use of tarn, as the environment asks. Each fails if
 * its variable is malformed. */
#ifndef TARN_REPORT_START_H
#define TARN_REPORT_START_H

#include <stddef.h>
#include <tarn/status.h>

/* live.c: the live page and the file of metrics. */
tarn_status live_begin(void);
/* Ends them, at tarn_shutdown(). */
void live_end(void);

/* exit_stats.c: statistics when the program ends, or at tarn_shutdown(). */
tarn_status exit_stats_begin(void);
void exit_stats_end(void);

/* nvtx.c: opens the tool's library. */
void nvtx_prepare(void);
tarn_status nvtx_begin(void);

/* oom.c: writes the files of an out-of-memory error (memory/pressure/shortage.h). */
void oom_leave(int device, const char *text, char *where, size_t size);

/* graph/graph.c: remembers a captured graph, with TARN_DEBUG=graphs. */
void graph_captured(void *graph);

/* Registers all of these. Called when the library is loaded. */
void report_register(void);

#endif
