/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* hipBLAS handles, with the vendor's types. They need the vendor's header and are not part of tarn.h. tarn/handle.h
 * has the rules and statuses. */
#ifndef TARN_HIPBLAS_H
#define TARN_HIPBLAS_H

#include <hipblas/hipblas.h>
#include <tarn/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the thread's handle: tarn_handle_get() for TARN_LIBRARY_HIPBLAS. */
static inline tarn_status tarn_hipblas_handle(tarn_stream stream, hipblasHandle_t *handle)
{
    void *found = NULL;
    tarn_status status = tarn_handle_get(TARN_LIBRARY_HIPBLAS, stream, &found);
    if (status == TARN_OK)
        *handle = (hipblasHandle_t)found;
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
