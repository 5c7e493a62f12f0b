/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* What this program prints is text for a terminal, and has names of files, libraries, functions and
 * processes in it, which anybody chose. Standard output and standard error are streams that let no
 * control character through: so no printer can forget it. */
#ifndef TOOLS_PLAIN_OUTPUT_H
#define TOOLS_PLAIN_OUTPUT_H

#include <stdbool.h>

/* Puts the streams in place; before anything is printed. From then on what is not a plain character
 * (base/text.h), a newline or a tab is printed as "?", byte by byte. On a terminal the three
 * sequences for bold, red and plain type pass too. */
void plain_output_begin(void);

/* Whether standard error is a terminal whose cursor moves, so that it can be shown how far
 * something is. */
bool plain_output_moves(void);
/* Moves it: `text` is a literal. */
void plain_output_move(const char *text);

#endif
