/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Sleepers (tarn/sleep.h): other code that takes part in a sleep of the process. Each function runs
 * callbacks of the program, so the caller holds no lock. It has the right to change the state of
 * the sleep, as only one thread has at a time. */
#ifndef TARN_SLEEP_SLEEPERS_H
#define TARN_SLEEP_SLEEPERS_H

#include <tarn/sleep.h>

struct pool;

/* Prepares all sleepers, newest first. One that refuses stays awake. TARN_ERROR_LIBRARY: then call
 * sleepers_cancel(). */
tarn_status sleepers_prepare(void);

/* Cancels prepared sleepers, oldest first. */
void sleepers_cancel(void);

/* Commits sleepers that are prepared or asleep in part, newest first. Stops at the first failure,
 * TARN_ERROR_LIBRARY. */
tarn_status sleepers_commit(void);

/* Wakes sleepers that are asleep, also in part, oldest first. Stops at the first failure,
 * TARN_ERROR_LIBRARY. */
tarn_status sleepers_wake(void);

/* Whether any sleeper is asleep, also in part. */
bool sleepers_any_asleep(void);

/* Whether the commit of a sleeper that takes part is to remove the anchors of a pool. */
bool sleepers_release(const struct pool *pool);

/* Calls `add` for each sleeper that refused, each that is asleep but still holds memory, and each
 * whose commit or wake failed. */
void sleepers_residue(void (*add)(const tarn_residue_item *item, void *argument), void *argument);

/* For a shutdown: all sleepers count as awake. Calls nothing. */
void sleepers_forget(void);

#endif
