/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Makes text of names. Owns nothing. */
#include "name.h"

#include "report/utf8.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a character is a control character: C0, DEL or C1, which a terminal may take for a command. */
static bool controls(const unsigned char *at)
{
    return *at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0);
}

static struct name_text text_of(const char *name, bool shown)
{
    struct name_text text;
    const unsigned char *at = (const unsigned char *)name;
    size_t used = 0;
    while (*at) {
        unsigned length = utf8_length(at);
        bool bad = !length || (shown && controls(at));
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
