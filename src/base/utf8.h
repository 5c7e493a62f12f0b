/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Checks UTF-8 (Unicode 15, table 3-7). Names from programs may have any bytes; formats that tarn
 * writes need UTF-8. */
#ifndef TARN_BASE_UTF8_H
#define TARN_BASE_UTF8_H

#include <stddef.h>
#include <string.h>

/* Bytes of the UTF-8 character that begins here; 0: none does. The text ends with a 0. */
static inline unsigned utf8_length(const unsigned char *at)
{
    static const struct {
        unsigned char least, most, low, high; /* of the first byte; of the second byte */
        unsigned more;
    } forms[] = {{0xc2, 0xdf, 0x80, 0xbf, 1}, {0xe0, 0xe0, 0xa0, 0xbf, 2},
                 {0xe1, 0xec, 0x80, 0xbf, 2}, {0xed, 0xed, 0x80, 0x9f, 2},
                 {0xee, 0xef, 0x80, 0xbf, 2}, {0xf0, 0xf0, 0x90, 0xbf, 3},
                 {0xf1, 0xf3, 0x80, 0xbf, 3}, {0xf4, 0xf4, 0x80, 0x8f, 3}};
    if (*at < 0x80)
        return 1;
    for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (*at < forms[i].least || *at > forms[i].most || at[1] < forms[i].low ||
            at[1] > forms[i].high)
            continue;
        for (unsigned j = 2; j <= forms[i].more; j++)
            if (at[j] >> 6 != 2)
                return 0;
        return forms[i].more + 1;
    }
    return 0;
}

/* Bytes of the longest beginning of a text that has at most `most` bytes and cuts no character. */
static inline size_t utf8_beginning(const char *text, size_t most)
{
    size_t length = strnlen(text, most + 1), least = most > 3 ? most - 3 : 0;
    if (length <= most)
        return length;
    length = most;
    while (length > least && ((unsigned char)text[length] & 0xc0) == 0x80)
        length--;
    return length;
}

#endif
