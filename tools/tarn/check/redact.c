/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Removes from what `tarn check` prints what does not belong into a public place. */
#include "check.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_word(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

/* Replaces `found` by `with`; if `word`, only as a whole word. */
static char *replace(char *text, const char *found, const char *with, bool word)
{
    size_t length = found ? strlen(found) : 0, at = 0;
    if (length < 2 || !text)
        return text;
    while (text[at]) {
        bool here = strncmp(text + at, found, length) == 0 &&
                    (!word || ((at == 0 || !is_word(text[at - 1])) && !is_word(text[at + length])));
        if (!here) {
            at++;
            continue;
        }
        size_t put = strlen(with), size = at + put + strlen(text + at + length) + 1;
        char *next = malloc(size);
        if (next)
            snprintf(next, size, "%.*s%s%s", (int)at, text, with, text + at + length);
        free(text);
        if (!next)
            return NULL;
        text = next;
        at += put;
    }
    return text;
}

/* Replaces UUIDs, which are 8-4-4-4-12 hexadecimal digits, by x. */
static void hide_uuids(char *text)
{
    for (; text && *text; text++) {
        size_t at = 0;
        while (at < 36 &&
               (at == 8 || at == 13 || at == 18 || at == 23 ? text[at] == '-'
                                                            : isxdigit((unsigned char)text[at])))
            at++;
        if (at == 36)
            memset(text, 'x', 36);
    }
}

/* A path outside of the system's folders keeps only its last name, as one in the user's own folder,
 * which is `~` already. */
static void shorten_paths(char *text)
{
    static const char *const known[] = {"/usr/", "/lib/", "/lib64/", "/proc/",
                                        "/sys/", "/dev/", "/etc/"};
    for (char *at = text; at && *at; at++) {
        bool begins = (*at == '/' || strncmp(at, "~/", 2) == 0) &&
                      (at == text || strchr(" :=,;(\"'", at[-1]));
        size_t length = begins ? strcspn(at, " :,;)\"'\n") : 0, last = length;
        bool keep = !begins;
        for (size_t i = 0; i < sizeof known / sizeof *known && !keep; i++)
            keep = strncmp(at, known[i], strlen(known[i])) == 0;
        while (!keep && last > 0 && at[last - 1] != '/')
            last--;
        if (keep || last < 5)
            continue;
        memcpy(at, "...", 3);
        memmove(at + 3, at + last - 1, strlen(at + last - 1) + 1);
    }
}

static json_t *redacted(const char *old, const struct secrets *secrets)
{
    char *text = replace(strdup(old), secrets->home, "~", false);
    hide_uuids(text);
    shorten_paths(text);
    text = replace(text, secrets->host, "(host)", true);
    text = replace(text, secrets->user, "(user)", true);
    json_t *value = json_string(text ? text : "");
    free(text);
    return value;
}

void redact(json_t *value, const struct secrets *secrets)
{
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
        json_t *inner = json_object_iter_value(at);
        if (json_is_string(inner))
            json_object_iter_set_new(value, at, redacted(json_string_value(inner), secrets));
        else
            redact(inner, secrets);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *inner = json_array_get(value, i);
        if (json_is_string(inner))
            json_array_set_new(value, i, redacted(json_string_value(inner), secrets));
        else
            redact(inner, secrets);
    }
}
