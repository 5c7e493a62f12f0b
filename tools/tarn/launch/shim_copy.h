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

/* Writes a copy of the shim to `to`. The copy needs the driver by its path, has the versions of the
 * driver's symbols, and lacks the exports that this driver lacks, because programs look for those.
 * False, with the reason in `why`. */
bool shim_copy(const char *shim, const struct shim_kind *kind, const char *driver, const char *to,
               char *why, size_t why_size);

#endif
