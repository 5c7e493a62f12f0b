/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What a page of `tarn report` contains of files: columns of numbers, then a description in JSON
 * that names the columns, then the length of the description in 8 bytes, little endian.
 * page/data.js reads this format, so both change together. */
#ifndef TOOLS_REPORT_DATA_H
#define TOOLS_REPORT_DATA_H

#include "analysis/report/report.h"

/* False if memory is short or `out` failed. */
bool report_data_write(FILE *out, const struct report_file *files, size_t count);

#endif
