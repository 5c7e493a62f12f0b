/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn run` shows of a run when it is over. */
#ifndef TOOLS_RUN_OUTPUT_H
#define TOOLS_RUN_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

#include "launch/books.h"
#include "launch/group_file.h"

/* Prints one screen: for each process and device what each library has and had at most, what no
 * hook saw, and what the rest of the group has. */
void run_summary_print(const struct books *books, struct group_file *group, FILE *out);

/* Writes the logs as PyTorch snapshots: of the process that allocated most to `path`, of others to
 * PATH.PROCESS. Says on standard error what it wrote or could not. */
bool run_snapshots_write(const struct books *books, const char *path);

/* Bytes that a process has allocated since its start, of all kinds. */
uint64_t run_made_bytes(const struct book *book);

#endif
