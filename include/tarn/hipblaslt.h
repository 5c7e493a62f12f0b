/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipBLASLt handles, with the vendor's types. Needs the vendor's header; not part of tarn.h. Rules and statuses:
 * tarn/handle.h. */
#ifndef TARN_HIPBLASLT_H
#define TARN_HIPBLASLT_H

#include <hipblaslt/hipblaslt.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* tarn_handle_get() and tarn_handle_get_on() of TARN_LIBRARY_HIPBLASLT. */
static inline tarn_status tarn_hipblaslt_handle(hipblasLtHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_HIPBLASLT, &found);
    if (status == TARN_OK)
        *handle = (hipblasLtHandle_t)found;
    return status;
}

static inline tarn_status tarn_hipblaslt_handle_on(tarn_stream stream, hipblasLtHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get_on(TARN_LIBRARY_HIPBLASLT, stream, &found);
    if (status == TARN_OK)
        *handle = (hipblasLtHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
