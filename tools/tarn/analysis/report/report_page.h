/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page of `tarn report` without its data, as the build joined it (tools/join-page.cmake).
 * "<!--TITLE-->" stands where the title belongs, "<!--MADE-->" where it says by what the page was
 * made, and "<!--DATA-->" where the data do; it ends in NUL. Empty where the build found no D3. */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

#include <stdbool.h>

extern const unsigned char report_page[];
/* Whether the analysis is in it, by which it reads snapshots itself. */
extern const bool report_page_reads;

#endif
