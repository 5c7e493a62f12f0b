/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A copy of the shim for one driver. */
#ifndef TOOLS_SHIM_COPY_H
#define TOOLS_SHIM_COPY_H

#include <stdbool.h>
#include <stddef.h>

enum { SHIM_PATH_MOST = 255 }; /* bytes that the path of a driver may have */

/* Which shim, and what is looked for. */
struct shim_kind {
    const char *name;   /* of the driver, as programs ask for it; of the copy too */
    const char *prefix; /* of its functions */
    const char *has;    /* a function that it has for certain */
    const char *file;   /* of the shim */
    const char *link;   /* another name of the copy; NULL: none */
    const char *major;  /* the digit that the shim's own name ends with; NULL: it is there */
};

/* Writes the shim to `to`, with the driver's path as the library that it needs, the versions that
 * the driver's symbols have, and without the exports that this driver has not, which a program that
 * asks for them must not find. False, and why. */
bool shim_copy(const char *shim, const struct shim_kind *kind, const char *driver, const char *to,
               char *why, size_t why_size);

#endif
