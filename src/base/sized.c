/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks and copies structures that begin with their size. Owns nothing. */
#include "base/sized.h"

#include "base/status.h"

#include <stdbool.h>
#include <tarn/tarn.h>

/* The shortest structure has its size and one field. A size that exceeds this version's by more
 * than GROWTH was never set: no version has it. */
enum { LEAST = 2 * sizeof(size_t), GROWTH = 1024 };

tarn_status sized_check(const char *type, const void *theirs, size_t known)
{
    if (!theirs)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "%s is NULL; pass one whose size is sizeof(%s)",
                      type, type);
    size_t size = *(const size_t *)theirs;
    if (size < LEAST || size > known + GROWTH || size % sizeof size)
        return failed(
            TARN_ERROR_INVALID_ARGUMENT,
            "%s: unknown size %zu: set it to sizeof(%s) before the call (%zu in this version)",
            type, size, type, known);
    return TARN_OK;
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    while (count && !bytes[count - 1])
        count--;
    return count == 0;
}

tarn_status sized_read_other(const char *type, const void *theirs, void *own, size_t known)
{
    tarn_status status = sized_check(type, theirs, known);
    if (status)
        return status;
    size_t size = *(const size_t *)theirs, shared = size < known ? size : known;
    if (!is_zero((const unsigned char *)theirs + shared, size - shared))
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "%s: it has %zu bytes, and sets some behind the %zu that this version knows "
                      "(tarn %s): leave these "
                      "fields 0, or load the version that the program was compiled for",
                      type, size, known, tarn_version());
    memset(own, 0, known);
    memcpy(own, theirs, shared);
    *(size_t *)own = known;
    return TARN_OK;
}

void sized_write(void *theirs, const void *own, size_t known)
{
    size_t size = *(const size_t *)theirs, shared = size < known ? size : known;
    memcpy((char *)theirs + sizeof size, (const char *)own + sizeof size, shared - sizeof size);
    memset((char *)theirs + shared, 0, size - shared);
}
