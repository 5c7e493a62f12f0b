/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The page of `tarn report` without its data, as the build joined it (tools/join-page.cmake): "<!--TITLE-->" stands twice where the
 * title belongs, "<!--DATA-->" once where the data do; it ends in NUL. Empty where the build found no D3. */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

extern const unsigned char report_page[];

#endif
