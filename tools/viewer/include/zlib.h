/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The part of zlib's interface that reads gzip, for the analysis in the page, which has no zlib.
 * The page unpacks gzip before (page/analyse.js), so a file that begins so was packed twice. */
#ifndef VIEWER_ZLIB_H
#define VIEWER_ZLIB_H

enum { Z_OK = 0, Z_STREAM_END = 1, Z_STREAM_ERROR = -2, Z_BUF_ERROR = -5, Z_NO_FLUSH = 0 };

typedef unsigned uInt;
typedef struct z_stream_s {
    const unsigned char *next_in;
    unsigned char *next_out;
    unsigned avail_in, avail_out;
    const char *msg;
} z_stream;

static inline int inflateInit2(z_stream *stream, int bits)
{
    (void)stream, (void)bits;
    return Z_STREAM_ERROR;
}

static inline int inflateReset(z_stream *stream)
{
    (void)stream;
    return Z_STREAM_ERROR;
}

static inline int inflate(z_stream *stream, int flush)
{
    (void)stream, (void)flush;
    return Z_STREAM_ERROR;
}

static inline int inflateEnd(z_stream *stream)
{
    (void)stream;
    return Z_OK;
}

#endif
