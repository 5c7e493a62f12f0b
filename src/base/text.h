/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Texts in buffers that may be too small, and texts from outside that go to a terminal. */
#ifndef TARN_BASE_TEXT_H
#define TARN_BASE_TEXT_H

#include "base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a text for which snprintf() returned `length` was cut in a buffer of `size` bytes, at
 * least 8. A cut text then ends in dots, so that no part of it or of a number looks complete, and
 * not inside a UTF-8 character. */
static inline bool text_was_cut(char *text, size_t size, int length)
{
    size_t at = size - sizeof "...";
    if (length < 0 || (size_t)length < size)
        return false;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    memcpy(text + at, "...", sizeof "...");
    return true;
}

/* Bytes of the character at a place in a text, if a terminal may get it; 0: it may not. Not allowed
 * are control characters (U+0000 to U+001F, U+007F to U+009F) and marks of direction (U+202A to
 * U+202E, U+2066 to U+2069), which change the order of what follows. */
static inline unsigned text_plain_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned length = utf8_length(at);
    if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0))
        return 0;
    if (at[0] == 0xe2 &&
        ((at[1] == 0x80 && at[2] >= 0xa8 && at[2] <= 0xae) || (at[1] == 0x81 && at[2] >= 0xa6)))
        return 0;
    return length;
}

/* Replaces every byte of other characters by "?". Lines stay lines. */
static inline void text_make_plain_lines(char *text)
{
    while (*text) {
        unsigned length = *text == '\n' ? 1 : text_plain_length(text);
        if (!length)
            *text = '?';
        text += length ? length : 1;
    }
}

/* The same for a text of one line. */
static inline void text_make_plain(char *text)
{
    text_make_plain_lines(text);
    for (; *text; text++)
        if (*text == '\n')
            *text = '?';
}

/* The same for a buffer whose text may not be terminated. */
static inline void text_end_plain(char *text, size_t size)
{
    text[size - 1] = '\0';
    text_make_plain(text);
}

#endif
