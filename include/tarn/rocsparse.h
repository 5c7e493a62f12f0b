/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of rocSPARSE with the vendor's types. Not part of tarn.h: it needs the vendor's header.
 * tarn/handle.h has the rules and statuses. scripts/vendor-headers wrote this. */
#ifndef TARN_ROCSPARSE_H
#define TARN_ROCSPARSE_H

#include <rocsparse/rocsparse.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_ROCSPARSE. `handle` must not be
 * NULL. */
static inline tarn_status tarn_rocsparse_handle(tarn_stream stream, rocsparse_handle *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_ROCSPARSE, stream, &found);
    if (status == TARN_OK)
        *handle = (rocsparse_handle)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
