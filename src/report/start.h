/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What of this layer begins by itself, at the first use of tarn, as the environment asks. Each
 * fails where that is malformed. */
#ifndef TARN_REPORT_START_H
#define TARN_REPORT_START_H

#include <stddef.h>
#include <tarn/status.h>

/* live.c: the live page and the file of metrics; and their end, at tarn_shutdown(). */
tarn_status live_begin(void);
void live_end(void);

/* exit_stats.c: statistics when the program ends, or at tarn_shutdown(). */
tarn_status exit_stats_begin(void);
void exit_stats_end(void);

/* nvtx.c: announcing to a tool, whose library is opened before. */
void nvtx_prepare(void);
tarn_status nvtx_begin(void);

/* oom.c: what an out-of-memory error leaves behind (memory/pressure/shortage.h). */
void oom_leave(int device, const char *text, char *where, size_t size);

/* Registers them, when the library is loaded. */
void report_register(void);

#endif
