/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Snapshots of a program that goes on: a thread writes one after the other while a test runs, and
 * each is held to tests/report/check_snapshot.py afterwards. */
#ifndef TESTS_SUPPORT_SNAPSHOTS_H
#define TESTS_SUPPORT_SNAPSHOTS_H

#include <stdbool.h>

/* A folder of this process for what it writes, made at the first call and removed at its end unless
 * a check failed. */
const char *snapshots_folder(void);

/* Runs tests/report/check_snapshot.py with arguments as a shell has them; whether it found all
 * right. */
bool snapshots_check(const char *arguments);

/* Begins to write snapshots where TARN_TEST_SNAPSHOTS, how many are kept, is set; and ends and
 * checks the last of them. With `may_fail`, one that fails for lack of host memory is
 * skipped. */
void snapshots_begin(bool may_fail);
void snapshots_end(void);

#endif
