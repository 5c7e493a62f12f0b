/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sleepers (tarn/sleep.h): what else takes part in a sleep of the process. Each function below runs
 * callbacks of the program, so no lock is held. The caller has the right to change the state of the
 * sleep: one thread at a time. */
#ifndef TARN_SLEEP_SLEEPERS_H
#define TARN_SLEEP_SLEEPERS_H

#include <tarn/sleep.h>

struct pool;

/* Prepares all sleepers, the newest first. One that refuses stays awake. TARN_ERROR_LIBRARY; then
 * the caller ends it with `cancel`. */
tarn_status sleepers_prepare(void);

/* Cancels those that are prepared, the oldest first. */
void sleepers_cancel(void);

/* Commits those that are prepared or sleep in part, the newest first. TARN_ERROR_LIBRARY: the first
 * failure, after which none is called. */
tarn_status sleepers_commit(void);

/* Wakes those that sleep, also in part, the oldest first. TARN_ERROR_LIBRARY: the first failure,
 * after which none is called. */
tarn_status sleepers_wake(void);

/* Whether any sleeps, also in part. */
bool sleepers_any_asleep(void);

/* Whether the commit of one that takes part in the sleep is to remove the anchors of a pool. */
bool sleepers_release(const struct pool *pool);

/* Calls `add` for each sleeper that stays awake although it was asked, and for each that sleeps and
 * holds memory all the same or whose commit or wake has failed. */
void sleepers_residue(void (*add)(const tarn_residue_item *item, void *argument), void *argument);

/* After a shutdown: all are awake, and nothing is called. */
void sleepers_forget(void);

#endif
