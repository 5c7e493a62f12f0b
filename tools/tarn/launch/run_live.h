/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The processes of a run for those who look from outside: `tarn top` and collectors of metrics.
 * Both are made here, of what the books say, so the program has no thread for it. */
#ifndef TOOLS_RUN_LIVE_H
#define TOOLS_RUN_LIVE_H

#include "launch/books.h"

/* Reads TARN_LIVE, TARN_METRICS and TARN_METRICS_INTERVAL, and takes the metrics away from the
 * program's environment: the run writes them. False, after it was said, where they make no
 * sense. */
bool run_live_begin(void);
/* Shows what the books say now: a page for each process that lives; and metrics when they are
 * due. */
void run_live_show(const struct books *books);
/* Takes the pages away and writes metrics a last time. */
void run_live_end(const struct books *books);

#endif
