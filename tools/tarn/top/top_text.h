/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Lines and tables of `tarn top`: text that is cut to a width, in a frame that says at its end
 * whether memory was short. */
#ifndef TOOLS_TOP_TEXT_H
#define TOOLS_TOP_TEXT_H

#include "top/top.h"

#include <libsmartcols.h>

/* Bytes as they are. */
void top_put(struct top_frame *frame, const char *text, size_t length);
/* One line, printed. */
void top_say(struct top_frame *frame, const struct top_look *look, bool bold, const char *format,
             ...) __attribute__((format(printf, 4, 5)));

struct top_column {
    const char *name;
    int flags; /* SCOLS_FL_RIGHT */
};

/* NULL where memory is short, which the calls below take. */
struct libscols_table *top_table_begin(const struct top_column *columns, size_t count);
void top_table_row(struct top_frame *frame, struct libscols_table *table, const char *const *cells,
                   size_t count);
/* Puts the lines of a table, the first of them bold, and frees it. `left_out` rows had no room.
 * Where the width is too small for all columns, the last ones are left out and named below. */
void top_table_end(struct top_frame *frame, const struct top_look *look,
                   struct libscols_table *table, size_t left_out);

#endif
