/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* `tarn metrics`: the metrics of all processes of the machine that publish, as one text; and a
 * server for it. */
#ifndef TOOLS_METRICS_MACHINE_H
#define TOOLS_METRICS_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

struct metrics_text {
    char *text;
    size_t length, capacity;
    bool failed; /* memory was short */
};

/* Reads all pages of a directory, with NULL of the default one, and prints them. The caller frees
 * the text. */
bool metrics_text_make(const char *directory, struct metrics_text *text);

/* Serves the text at /metrics until a signal ends the program. `where` is [ADDRESS:]PORT. Returns
 * an exit status. */
int metrics_serve(const char *where, const char *directory);

/* True if `where` has that form. */
bool metrics_is_place(const char *where);

#endif
