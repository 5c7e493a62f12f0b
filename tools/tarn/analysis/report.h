/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What `tarn report` and `tarn diff` share: files and their analyses, and the ways to show them. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "analysis/analysis.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A file that was read, and the analysis of each of its devices that has anything. */
struct report_file {
    const char *path;
    struct snapshot snapshot;
    struct analysis *analyses;
    size_t count;
};

/* Reads a file and analyses the device that is asked for, or all if it is negative. False with a line on standard error that
 * begins with "tarn COMMAND: "; then there is nothing to finish. */
bool report_file_open(const char *command, const char *path, int device, struct report_file *file);
void report_file_finish(struct report_file *file);

/* Which moment is looked at. */
struct report_moment {
    enum { REPORT_AT_PEAK, REPORT_AT_PEAK_RESERVED, REPORT_AT_END, REPORT_AT_EVENT } kind;
    uint32_t event; /* of REPORT_AT_EVENT: so many have happened */
};

/* "peak", "peak-reserved", "end" or a number of events. */
bool report_moment_parse(const char *text, struct report_moment *moment);
/* The moment of an analysis; a number beyond its last event is its end. */
uint32_t report_moment_of(const struct analysis *analysis, const struct report_moment *moment);
/* "the peak", "the end", ... */
const char *report_moment_name(const struct report_moment *moment);

struct report_options {
    struct report_moment moment;
    size_t rows; /* of a table */
    int width;   /* columns of the terminal */
    bool unicode;
};

/* All give false when memory is short or `out` failed. */
bool report_text_write(FILE *out, const struct report_file *file, const struct report_options *options);
bool report_json_write(FILE *out, const struct report_file *file, const struct report_options *options);
/* Whether the build found what draws the page. */
bool report_page_exists(void);
/* `two` may be NULL; its devices stand beside those of `one`. */
bool report_page_write(FILE *out, const struct report_file *one, const struct report_file *two);

bool report_diff_text(FILE *out, const struct report_file *before, const struct report_file *after,
                      const struct report_options *options);
bool report_diff_json(FILE *out, const struct report_file *before, const struct report_file *after,
                      const struct report_options *options);

/* The last part of a path. */
const char *report_base_name(const char *path);
/* Who wrote a snapshot: "tarn 0.1.0, driver cuda" or "PyTorch". */
const char *report_writer(const struct snapshot *snapshot, char *text, size_t size);
/* The share of free memory that is not in the largest hole, 0 where nothing is free. */
double report_fragmentation(const struct analysis_state *state);

#endif
