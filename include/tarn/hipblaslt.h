/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of hipBLASLt with the vendor's types. Not part of tarn.h: it needs the vendor's header.
 * tarn/handle.h has the rules and statuses. scripts/vendor-headers wrote this. */
#ifndef TARN_HIPBLASLT_H
#define TARN_HIPBLASLT_H

#include <hipblaslt/hipblaslt.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_HIPBLASLT. `handle` must not be
 * NULL. */
static inline tarn_status tarn_hipblaslt_handle(tarn_stream stream, hipblasLtHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_HIPBLASLT, stream, &found);
    if (status == TARN_OK)
        *handle = (hipblasLtHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
