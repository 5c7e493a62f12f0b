/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Calls observers. Each function runs callbacks of the program. So the caller holds no lock of a
 * heap, an arena or a driver, except `moving` and a range's lock in the first two. Without
 * observers, each call is one load. */
#ifndef TARN_MEMORY_OBSERVE_H
#define TARN_MEMORY_OBSERVE_H

#include <tarn/observe.h>

void observe_mapped(const tarn_mapping *range);
void observe_unmapping(const tarn_mapping *range);
/* Ask the observers. True if one of them says that it gave memory back. */
bool observe_out_of_memory(const tarn_shortage *shortage);
bool observe_before_growth(int device, size_t bytes);
/* Whether any observer would be asked now. observe_wants_growth() may be true although none
 * would. */
bool observe_wants_shortage(void);
bool observe_wants_growth(void);

/* What the observers of a device's mappings say of calls by tarn's own thread: there is none; each
 * allows them; one does not. */
enum observed { OBSERVED_BY_NONE, OBSERVED_BY_ANY_THREAD, OBSERVED_BY_CALLERS };
enum observed observed_by(int device);

/* Whether this thread is in a callback of the first two functions, which must neither move memory
 * nor wait for a thread that does. */
bool observe_runs_moving(void);
/* TARN_ERROR_BUSY in such a callback. */
tarn_status observe_refuse_moving(const char *what);

#endif
