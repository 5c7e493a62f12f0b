/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Names from outside, such as those of files, which may have any bytes. */
#ifndef TOOLS_NAME_H
#define TOOLS_NAME_H

/* A name in a fixed buffer, so that several can be made in one expression. A longer name is cut. */
struct name_text {
    char text[4096];
};

/* For a table or a title, which must know the text's width: invalid UTF-8 and control characters
 * become '?'. The standard streams do the same by themselves (plain_output.h). */
struct name_text name_shown(const char *name);
/* For JSON: only invalid UTF-8 becomes '?'. */
struct name_text name_valid(const char *name);

#endif
