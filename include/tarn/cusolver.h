/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Handles of cuSOLVER with the vendor's types. Not part of tarn.h: it needs the vendor's header.
 * tarn/handle.h has the rules and statuses. scripts/vendor-headers wrote this. */
#ifndef TARN_CUSOLVER_H
#define TARN_CUSOLVER_H

#include <cusolverDn.h>
#include <cusolverSp.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_CUSOLVER_DN. `handle` must not be
 * NULL. */
static inline tarn_status tarn_cusolver_dn_handle(tarn_stream stream, cusolverDnHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_CUSOLVER_DN, stream, &found);
    if (status == TARN_OK)
        *handle = (cusolverDnHandle_t)found;
    return status;
}

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_CUSOLVER_SP. `handle` must not be
 * NULL. */
static inline tarn_status tarn_cusolver_sp_handle(tarn_stream stream, cusolverSpHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_CUSOLVER_SP, stream, &found);
    if (status == TARN_OK)
        *handle = (cusolverSpHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
