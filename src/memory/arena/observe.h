/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Calls observers. Each function here runs callbacks of the program: no lock of a heap, an arena or
 * a driver may be held, except for an arena's `moving` in the first two. Without observers, each
 * costs one load. */
#ifndef TARN_MEMORY_OBSERVE_H
#define TARN_MEMORY_OBSERVE_H

#include <tarn/observe.h>

void observe_mapped(const tarn_mapping *range);
void observe_unmapping(const tarn_mapping *range);
void observe_out_of_memory(const tarn_shortage *shortage);
/* Whether any observer says that it gave memory back. */
bool observe_reclaim(int device, size_t bytes);

/* Whether this thread runs a callback of the first two, which must neither move memory nor wait for
 * a thread that does. */
bool observe_runs_moving(void);
/* Fails there with TARN_ERROR_BUSY. */
tarn_status observe_refuse_moving(const char *what);

#endif
