/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Names from outside, such as those of files, which may have any bytes. */
#ifndef TOOLS_NAME_H
#define TOOLS_NAME_H

/* A name of fixed room, so that several can be made in one expression; a longer one is cut. */
struct name_text {
    char text[4096];
};

/* For a table or a title, whose width and text it is: what is not UTF-8, and control characters,
 * become '?'. The standard streams do that by themselves (plain_output.h). */
struct name_text name_shown(const char *name);
/* For JSON: only what is not UTF-8 does. */
struct name_text name_valid(const char *name);

#endif
