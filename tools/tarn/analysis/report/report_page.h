/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page of `tarn report` without its data, as the build joined it (tools/join-page.cmake); it
 * ends in NUL. "<!--TITLE-->" marks the place of the title, "<!--MADE-->" that of the sentence
 * about what made the page, "<!--DATA-->" that of the data. Empty if the build found no D3. */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

#include <stdbool.h>

extern const unsigned char report_page[];
/* True if the page contains the analysis, so that it can read snapshots itself. */
extern const bool report_page_reads;

#endif
