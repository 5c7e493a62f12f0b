/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The part of zstd's interface that the program uses, for the analysis in the page, since zstd's
 * library is not available for WebAssembly. The functions do what zstd's manual says. A frame that
 * needs a dictionary, or a window above 128 MiB, is refused. A frame's checksum is not checked. */
#ifndef VIEWER_ZSTD_H
#define VIEWER_ZSTD_H

#include <stddef.h>

typedef struct ZSTD_DCtx_s ZSTD_DCtx;
typedef struct {
    const void *src;
    size_t size, pos;
} ZSTD_inBuffer;
typedef struct {
    void *dst;
    size_t size, pos;
} ZSTD_outBuffer;

ZSTD_DCtx *ZSTD_createDCtx(void);
size_t ZSTD_freeDCtx(ZSTD_DCtx *context);
/* Returns 0 at the end of a frame, when all output was taken; an error; or another number. */
size_t ZSTD_decompressStream(ZSTD_DCtx *context, ZSTD_outBuffer *out, ZSTD_inBuffer *in);
unsigned ZSTD_isError(size_t result);
const char *ZSTD_getErrorName(size_t result);

#endif
