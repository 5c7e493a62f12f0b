/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A survey in the Prometheus text format. */
#ifndef TARN_REPORT_METRICS_H
#define TARN_REPORT_METRICS_H

#include "report/sink.h"
#include "report/survey.h"

#include <stdbool.h>
#include <stddef.h>

/* The labels that tell one process's lines from those of others. */
struct metrics_process {
    char name[64];
    /* The process number, or another text that no other process of that name has. */
    char number[32];
    int rank; /* among those of its job; -1: none is known */
};

/* A process's survey, and what it is of. */
struct metrics_source {
    struct metrics_process process;
    const char *library, *driver; /* the library's version; the driver's name */
    const struct survey *survey;
};

/* Of this process; after live_begin(). */
void metrics_process_get(struct metrics_process *process);

/* Prints the surveys of several processes, family by family. */
void metrics_print(struct sink *sink, const struct metrics_source *sources, size_t count);
/* For lines that other code adds. metrics_say_head() prints a family's head; a counter's name ends
 * in "_total". metrics_say_label() prints a label's value and escapes it. */
void metrics_say_head(struct sink *sink, const char *name, bool counts, const char *help);
void metrics_say_label(struct sink *sink, const char *name, const char *text);

/* Ends the text with a comment, by which a reader sees that it is whole. */
void metrics_end(struct sink *sink);

/* Writes it to a file. It is written to a temporary file beside it, which then replaces it; on
 * failure the file is as it was.
 *   TARN_ERROR_SYSTEM             the file cannot be written, or exists and is not a regular file
 *   TARN_ERROR_INVALID_ARGUMENT   the path is empty or too long */
tarn_status metrics_write(const char *path, const struct survey *survey);

#endif
