/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes printable texts of names. Owns nothing. */
#include "name.h"

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static struct name_text text_of(const char *name, bool shown)
{
    struct name_text text;
    const unsigned char *at = (const unsigned char *)name;
    size_t used = 0;
    while (*at) {
        unsigned length = shown ? text_plain_length((const char *)at) : utf8_length(at);
        bool bad = !length;
        length = length ? length : 1;
        if (used + length >= sizeof text.text)
            break;
        if (bad)
            text.text[used++] = '?';
        else
            memcpy(text.text + used, at, length);
        used += bad ? 0 : length;
        at += length;
    }
    text.text[used] = '\0';
    return text;
}

struct name_text name_shown(const char *name)
{
    return text_of(name, true);
}

struct name_text name_valid(const char *name)
{
    return text_of(name, false);
}
