/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Files that can be read only once: standard input, pipes and devices. A command that reads its
 * files more than once, also in children, holds them first; what is held is read whole, into memory
 * without a name. */
#ifndef TOOLS_ONCE_H
#define TOOLS_ONCE_H

#include <stdbool.h>
#include <stddef.h>

/* Holds a file that can be read only once ("-": standard input), and does nothing for others, or
 * for one that cannot be opened. Not in several threads. False with `error` filled where there is
 * no room for it. */
bool once_hold(const char *path, char *error, size_t size);

/* Opens a file from its beginning, whether it is held or not; -1 with errno. */
int once_open(const char *path);

#endif
