/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A copy of the shim for one driver. */
#ifndef TOOLS_SHIM_COPY_H
#define TOOLS_SHIM_COPY_H

#include <stdbool.h>
#include <stddef.h>

enum { SHIM_PATH_MOST = 255 }; /* bytes that the path of a driver may have */

/* Writes the shim to `to`, with the driver's path as the library that it needs, and without the exports that this driver has not, which a
 * program that asks for them must not find. False, and why. */
bool shim_copy(const char *shim, const char *driver, const char *to, char *why, size_t why_size);

#endif
