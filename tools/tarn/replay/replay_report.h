/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn replay` prints. */
#ifndef TOOLS_REPLAY_REPORT_H
#define TOOLS_REPLAY_REPORT_H

#include "replay/replay_file.h"

#include <stdbool.h>
#include <stdio.h>

/* One JSON array: an object for each device that was replayed, for each device of a file that has a
 * state only, and for each failure. False when it could not be made or written. */
bool replay_json_write(FILE *out, const struct replay_file *files, size_t count);

/* Tables for people: everything about one file, and one line per file for several. `colour` allows
 * escape sequences. False when memory is short or nothing could be written. */
bool replay_table_write(FILE *out, const struct replay_file *file, bool colour);
bool replay_summary_write(FILE *out, const struct replay_file *files, size_t count, bool colour);

/* `count` runs of one file with different options, side by side: a table a device, a line a run. */
bool replay_compare_write(FILE *out, const struct replay_file *runs, size_t count, bool colour);

#endif
