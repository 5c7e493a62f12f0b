/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* This program prints text for a terminal that contains names of files, libraries, functions and
 * processes, which anybody may have chosen. So standard output and standard error let no control
 * character through. */
#ifndef TOOLS_PLAIN_OUTPUT_H
#define TOOLS_PLAIN_OUTPUT_H

#include <stdbool.h>

/* Puts the streams in place; call it before anything is printed. From then on, every byte that is
 * not part of a plain character (base/text.h), a newline or a tab is printed as "?". On a terminal
 * the three sequences for bold, red and plain type pass too. */
void plain_output_begin(void);

/* True if standard error is a terminal on which the cursor can move, so that progress can be
 * shown. */
bool plain_output_moves(void);
/* Moves the cursor; `text` is a literal. */
void plain_output_move(const char *text);

#endif
