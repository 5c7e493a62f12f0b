/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Idle memory that goes back by itself: the setting and pool option `idle_release`. */
#ifndef TARN_MEMORY_RELEASE_H
#define TARN_MEMORY_RELEASE_H

#include "memory/arena/arena.h"

/* At the first use of memory: starts the thread if the settings need it. */
void release_start(void);
/* The same when they have changed, or if a new store needs it. */
void release_configure(void);
void release_begin(const struct store *store);
/* Ends it, for the shutdown. */
void release_end(void);

/* One pass of the thread, at `now` of a monotonic clock, in ns. Records no mark and waits for
 * nothing. */
void release_pass(uint64_t now);

/* Records the marks that a pass wanted, in a thread of the program, or leaves that to another
 * thread. No lock held. */
void release_mark(void);

#endif
