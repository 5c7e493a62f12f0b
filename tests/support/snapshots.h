/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Snapshots of a running program: a thread writes one after the other while a test runs, and
 * afterwards tests/report/check_snapshot.py checks each. */
#ifndef TESTS_SUPPORT_SNAPSHOTS_H
#define TESTS_SUPPORT_SNAPSHOTS_H

#include <stdbool.h>

/* This process's folder for files, created by the first call and removed at the end unless a check
 * failed. */
const char *snapshots_folder(void);

/* Runs tests/report/check_snapshot.py with arguments in a shell's syntax. True if it found no
 * fault. */
bool snapshots_check(const char *arguments);

/* snapshots_begin(): starts writing snapshots if TARN_TEST_SNAPSHOTS, the number that is kept, is
 * set. snapshots_end(): stops, and checks those that were kept. With `may_fail`, a snapshot that
 * fails for lack of host memory is skipped. */
void snapshots_begin(bool may_fail);
void snapshots_end(void);

#endif
