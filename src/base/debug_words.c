/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Reads TARN_DEBUG. Owns debug_settings, which is written once, before the first read. */
#include "base/debug_words.h"
#include "base/status.h"
#include "base/variable.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct debug_settings debug_settings;

static const struct {
    const char *text;
    unsigned bit;
    bool all;
} words[] = {
#define X(word, name, bit, all) {word, bit, all},
    DEBUG_WORD_LIST(X)
#undef X
};

#define WORDS (sizeof words / sizeof *words)

#define X(word, name, bit, all) word ", "
static const char every_word[] = DEBUG_WORD_LIST(X) "all (or 1) and off (or 0)";
#undef X

/* A number of bytes, with an optional K, M or G for 2^10, 2^20 or 2^30. */
static bool parse_bytes(const char *text, size_t length, size_t *bytes)
{
    size_t value = 0, at = 0;
    for (; at < length && isdigit((unsigned char)text[at]); at++) {
        size_t digit = (size_t)(text[at] - '0');
        if (value > (SIZE_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (at == 0)
        return false;
    unsigned shift = 0;
    if (at + 1 == length) {
        int unit = toupper((unsigned char)text[at]);
        shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
        at += shift != 0;
    }
    if (at != length || value > SIZE_MAX >> shift)
        return false;
    *bytes = value << shift;
    return true;
}

static bool is_word(const char *text, size_t length, const char *word)
{
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* One word of the list, which may have "=" and a value. */
static tarn_status parse_word(const char *text, size_t length, struct debug_settings *settings)
{
    const char *equals = memchr(text, '=', length);
    size_t name = equals ? (size_t)(equals - text) : length;
    if (is_word(text, length, "0") || is_word(text, length, "off"))
        return TARN_OK;
    if (is_word(text, length, "all") || is_word(text, length, "1") || is_word(text, length, "on")) {
        for (size_t i = 0; i < WORDS; i++)
            settings->words |= words[i].all ? words[i].bit : 0;
        return TARN_OK;
    }
    for (size_t i = 0; i < WORDS; i++) {
        if (name != strlen(words[i].text) || memcmp(text, words[i].text, name) != 0)
            continue;
        if (equals && words[i].bit != DEBUG_QUARANTINE)
            return failed(TARN_ERROR_CONFIGURATION, "TARN_DEBUG: %.*s takes no value", (int)name,
                          text);
        if (equals && !parse_bytes(equals + 1, length - name - 1, &settings->quarantine))
            return failed(
                TARN_ERROR_CONFIGURATION,
                "TARN_DEBUG: %.*s: the value must be a number of bytes, with an optional K, M or G",
                (int)length, text);
        settings->words |= words[i].bit;
        return TARN_OK;
    }
    return failed(TARN_ERROR_CONFIGURATION,
                  "TARN_DEBUG: unknown word \"%.*s\"; the words are %s; quarantine takes a number "
                  "of bytes, as quarantine=64M",
                  (int)(length < 64 ? length : 64), text, every_word);
}

tarn_status debug_words_parse(const char *text, struct debug_settings *settings)
{
    struct debug_settings wanted = {.quarantine = DEBUG_QUARANTINE_BYTES};
    for (const char *at = text; *at;) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        tarn_status status = length ? parse_word(at, length, &wanted) : TARN_OK;
        if (status)
            return status;
        at += length;
    }
    *settings = wanted;
    return TARN_OK;
}

tarn_status debug_words_read(void)
{
    const char *text = variable_get("TARN_DEBUG");
    return text ? debug_words_parse(text, &debug_settings) : TARN_OK;
}
