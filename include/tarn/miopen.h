/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* MIOpen handles, with the vendor's types. Needs the vendor's header; not part of tarn.h. Rules and statuses:
 * tarn/handle.h. */
#ifndef TARN_MIOPEN_H
#define TARN_MIOPEN_H

#include <miopen/miopen.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* tarn_handle_get() and tarn_handle_get_on() of TARN_LIBRARY_MIOPEN. */
static inline tarn_status tarn_miopen_handle(miopenHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_MIOPEN, &found);
    if (status == TARN_OK)
        *handle = (miopenHandle_t)found;
    return status;
}

static inline tarn_status tarn_miopen_handle_on(tarn_stream stream, miopenHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get_on(TARN_LIBRARY_MIOPEN, stream, &found);
    if (status == TARN_OK)
        *handle = (miopenHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
