/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of hipSOLVER with the vendor's types. Not part of tarn.h: it needs the vendor's header.
 * tarn/handle.h has the rules and statuses. scripts/vendor-headers wrote this. */
#ifndef TARN_HIPSOLVER_H
#define TARN_HIPSOLVER_H

#include <hipsolver/hipsolver.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_HIPSOLVER. `handle` must not be
 * NULL. */
static inline tarn_status tarn_hipsolver_handle(tarn_stream stream, hipsolverHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_HIPSOLVER, stream, &found);
    if (status == TARN_OK)
        *handle = (hipsolverHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
