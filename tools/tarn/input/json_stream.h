/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* JSON as a stream of tokens, for files of any size: nothing of it is held but the token at hand.
 * What JSON forbids and PyTorch has written all the same is taken: control characters in strings,
 * backslashes before any letter, NaN and Infinity. */
#ifndef TOOLS_JSON_STREAM_H
#define TOOLS_JSON_STREAM_H

#include "input/pickle_input.h"

#define JSON_DEPTH_MAX 64
#define JSON_TEXT_MAX 1024 /* bytes that are kept of a string */

enum json_token {
    TOKEN_FAILED, /* `error` says why */
    TOKEN_END,    /* of the file, behind its one value */
    TOKEN_OBJECT,
    TOKEN_OBJECT_END,
    TOKEN_ARRAY,
    TOKEN_ARRAY_END,
    TOKEN_KEY, /* its value comes next */
    TOKEN_STRING,
    TOKEN_NUMBER,
    TOKEN_WORD, /* true, false, null, NaN, Infinity */
};

/* Zeroed except for `input`, which is at the first byte. */
struct json_stream {
    struct pickle_input *input;
    uint64_t offset;              /* of the token at hand */
    char text[JSON_TEXT_MAX + 1]; /* of a key, string, number or word; UTF-8 is not checked */
    size_t length;
    unsigned depth;             /* open objects and arrays */
    bool array[JSON_DEPTH_MAX]; /* what they are */
    bool after_value, after_key, begun;
    char error[256]; /* "byte N: ..." */
};

enum json_token json_stream_next(struct json_stream *stream);

/* Passes over the value that `token` begins. False on failure. */
bool json_stream_skip(struct json_stream *stream, enum json_token token);

/* Says what is wrong at the token at hand, unless something is said already. Returns false. */
bool json_stream_fail(struct json_stream *stream, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The number at hand times `scale` (1 or 1000), rounded down; exact for decimal numbers. False
 * where the token is no number, or beyond 2^61. */
bool json_stream_integer(const struct json_stream *stream, enum json_token token, int64_t scale,
                         int64_t *number);

#endif
