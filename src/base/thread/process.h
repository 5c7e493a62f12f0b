/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The life of the process: whether tarn may still be used in it. */
#ifndef TARN_BASE_PROCESS_H
#define TARN_BASE_PROCESS_H

#include <stdatomic.h>
#include <tarn/status.h>

enum process_state { PROCESS_RUNS, PROCESS_IS_SHUT_DOWN, PROCESS_IS_FORKED };

extern atomic_int process_state;

/* Grows whenever no thread may trust any more what it remembers, such as at a fork, a retirement of
 * a stream, or the begin of a scope or a known capture, and whenever each thread is to look for
 * something once. Begins at 1. One load tells a hot path that nothing happened. */
extern atomic_uint_fast64_t process_changes;

/* Called after the change itself is visible. */
static inline void process_changed(void)
{
    atomic_fetch_add(&process_changes, 1);
}

/* Fails with TARN_ERROR_FORKED or TARN_ERROR_SHUTDOWN, and a text that says what to do instead. */
tarn_status process_refuse(void) __attribute__((cold));

/* The first line of every public call. One relaxed load. */
static inline tarn_status process_check(void)
{
    return atomic_load_explicit(&process_state, memory_order_relaxed) == PROCESS_RUNS
               ? TARN_OK
               : process_refuse();
}

/* From now on a child of fork() finds PROCESS_IS_FORKED. Called before the driver is chosen under a
 * lock, which takes seconds with some drivers, so that no child waits for that lock. If the first
 * use fails, it undoes this. */
void process_use_begin(void);
void process_use_failed(void);

/* True for the one caller that begins the shutdown. */
int process_begin_shutdown(void);

#endif
