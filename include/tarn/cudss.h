/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of cuDSS with the vendor's types. Not part of tarn.h: it needs the vendor's header.
 * tarn/handle.h has the rules and statuses. scripts/vendor-headers wrote this. */
#ifndef TARN_CUDSS_H
#define TARN_CUDSS_H

#include <cudss.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_CUDSS. `handle` must not be
 * NULL. */
static inline tarn_status tarn_cudss_handle(tarn_stream stream, cudssHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_CUDSS, stream, &found);
    if (status == TARN_OK)
        *handle = (cudssHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
