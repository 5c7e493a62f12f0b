/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Runs a program as a child that has the terminal, and passes on the signals that it should have
 * had. */
#ifndef TOOLS_LAUNCH_H
#define TOOLS_LAUNCH_H

#include <sys/types.h>

enum { LAUNCH_NOT_FOUND = 127, LAUNCH_NOT_RUN = 126 };

/* Runs `command` until it ends, and meanwhile `each(user)`, which gives the milliseconds until it
 * wants to be called again. Gives the program's exit status, 128 and the signal that ended it, or
 * LAUNCH_*, after an error was said in the name of `tarn run`. */
int launch(char **command, long (*each)(void *user), void *user);

#endif
