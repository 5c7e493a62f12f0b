/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn replay` prints. */
#ifndef TOOLS_REPLAY_REPORT_H
#define TOOLS_REPLAY_REPORT_H

#include "replay/replay_file.h"

#include <stdbool.h>
#include <stdio.h>

/* Writes one JSON array: an object for each device that was replayed, for each device of a file
 * without a trace, and for each failure. False if it could not be made or written. */
bool replay_json_write(FILE *out, const struct replay_file *files, size_t count);

/* Writes a file's tables for people; for several files, one line per file. `colour` allows escape
 * sequences. False if memory is short or nothing could be written. */
bool replay_table_write(FILE *out, const struct replay_file *file, bool colour);
bool replay_summary_write(FILE *out, const struct replay_file *files, size_t count, bool colour);

/* Writes `count` runs of one file with different options: one table per device, one line per
 * run. */
bool replay_compare_write(FILE *out, const struct replay_file *runs, size_t count, bool colour);

#endif
