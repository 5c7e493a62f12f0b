/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Structures of the public API that begin with their size, `size_t size`, which the caller sets.
 * They can grow by fields at their end, for which 0 means the earlier behaviour. A caller may have
 * been compiled with other headers than this library:
 *
 *   an older caller's structure is shorter   fields that it does not have are read as 0, and are
 *                                            not written
 *   a newer caller's structure is longer     fields that this library does not know must be 0 in
 *                                            what the caller passes, and are set to 0 in what the
 *                                            caller asks for
 *
 * Nothing behind the size that the caller set is read or written. A size that no version can have
 * is refused, as is NULL. */
#ifndef TARN_BASE_SIZED_H
#define TARN_BASE_SIZED_H

#include <stddef.h>
#include <string.h>
#include <tarn/status.h>

/* Checks that a caller's structure is not NULL and has a size that some version may have. `type` is
 * its name, `known` its size in this version. TARN_ERROR_INVALID_ARGUMENT. */
tarn_status sized_check(const char *type, const void *theirs, size_t known);

/* Copies a caller's structure into `own`, which has this version's size.
 * TARN_ERROR_INVALID_ARGUMENT. */
tarn_status sized_read_other(const char *type, const void *theirs, void *own, size_t known);
static inline tarn_status sized_read(const char *type, const void *theirs, void *own, size_t known)
{
    if (!theirs || *(const size_t *)theirs != known)
        return sized_read_other(type, theirs, own, known);
    memcpy(own, theirs, known);
    return TARN_OK;
}

/* Copies `own` into a caller's structure that was checked. Its size stays. */
void sized_write(void *theirs, const void *own, size_t known);

#endif
