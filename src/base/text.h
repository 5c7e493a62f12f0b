/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Texts in buffers that may be too small for them, and texts that come from others. */
#ifndef TARN_BASE_TEXT_H
#define TARN_BASE_TEXT_H

#include "base/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a text that snprintf() or the like gave `length` for was cut in a buffer of `size` bytes,
 * at least 8. It ends in dots then, so that nobody takes a part of it, or of a number in it, for
 * all; and not in the middle of a character of UTF-8. */
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

/* Bytes of a character that a terminal may be given, at a place in a text that ends with a 0; 0
 * where there is none. A terminal acts upon control characters (U+0000 to U+001F, U+007F to
 * U+009F), and shows what follows a mark of direction (U+202A to U+202E, U+2066 to U+2069) in
 * another order than it has. */
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

/* Makes a text with names of somebody else's fit for a terminal: what is no plain character becomes
 * "?", byte by byte. Lines stay lines. */
static inline void text_make_plain_lines(char *text)
{
    while (*text) {
        unsigned length = *text == '\n' ? 1 : text_plain_length(text);
        if (!length)
            *text = '?';
        text += length ? length : 1;
    }
}

/* The same for a text that is to be one line. */
static inline void text_make_plain(char *text)
{
    text_make_plain_lines(text);
    for (; *text; text++)
        if (*text == '\n')
            *text = '?';
}

/* The same for a text in a buffer that may not end. */
static inline void text_end_plain(char *text, size_t size)
{
    text[size - 1] = '\0';
    text_make_plain(text);
}

#endif
