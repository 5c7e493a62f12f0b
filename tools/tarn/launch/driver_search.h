/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Finds the driver that a program would get, and tries whether a library can be opened. Both happen
 * in a child process, so that this process loads neither. */
#ifndef TOOLS_DRIVER_SEARCH_H
#define TOOLS_DRIVER_SEARCH_H

#include <stdbool.h>
#include <stddef.h>

/* The real path of a library, by name as the loader finds it or by path, that has a function `has`;
 * under another `tarn run`, of the one behind its shim. False where there is none: `why` says
 * why. */
bool driver_find(const char *library, const char *has, char *path, size_t size, char *why,
                 size_t why_size);

/* Whether a shim opens, and has that driver behind it. */
bool driver_is_behind(const char *shim, const char *has, const char *driver, char *why,
                      size_t why_size);

#endif
