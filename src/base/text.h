/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Texts in buffers that may be too small for them. */
#ifndef TARN_BASE_TEXT_H
#define TARN_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a text that snprintf() or the like gave `length` for was cut in a buffer of `size` bytes, at least 8. It ends in dots then, so
 * that nobody takes a part of it, or of a number in it, for all; and not in the middle of a character of UTF-8. */
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

#endif
