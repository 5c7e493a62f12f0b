/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Numbers as text. Parsing is strict: the whole text, in the C locale, or nothing. */
#include "units.h"
#include "base/bytes_text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* How many decimals give three significant digits, for a value below about a thousand. */
static int decimals(double value)
{
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

struct units_text units_bytes(uint64_t bytes)
{
    struct units_text text = {""};
    snprintf(text.text, sizeof text.text, "%s", bytes_text(bytes).text);
    return text;
}

struct units_text units_bytes_up(uint64_t bytes)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct units_text text = {""};
    double value = (double)bytes;
    size_t unit = 0;
    for (; value > 999 && unit + 1 < sizeof names / sizeof *names; unit++)
        value /= 1024;
    int digits = !unit ? 0 : value <= 9.99 ? 2 : value <= 99.9 ? 1 : 0;
    double scale = digits == 2 ? 100 : digits == 1 ? 10 : 1;
    snprintf(text.text, sizeof text.text, "%.*f %s", digits, ceil(value * scale) / scale,
             names[unit]);
    return text;
}

struct units_text units_time(uint64_t ns)
{
    static const char *const names[] = {"ns", "us", "ms", "s"};
    struct units_text text = {""};
    double value = (double)ns;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof names / sizeof *names; unit++)
        value /= 1000;
    snprintf(text.text, sizeof text.text, "%.*f %s", unit ? decimals(value) : 0, value,
             names[unit]);
    return text;
}

struct units_text units_count(uint64_t count)
{
    struct units_text text = {""};
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *at = text.text;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = '\0';
    return text;
}

/* strtod() for plain decimal numbers: digits first, no sign, no exponent, no hexadecimal. */
static bool parse_decimal(const char *text, double *number, const char **end)
{
    size_t length = strspn(text, "0123456789.");
    if (length == 0 || length > 30 || !isdigit((unsigned char)text[0]))
        return false;
    char plain[32], *stopped;
    memcpy(plain, text, length);
    plain[length] = '\0';
    *number = strtod(plain, &stopped);
    *end = text + length;
    return *stopped == '\0';
}

bool units_parse_bytes(const char *text, uint64_t *bytes)
{
    static const char prefixes[] = "KMGTPE";
    const char *rest;
    double number;
    if (!parse_decimal(text, &number, &rest))
        return false;
    while (*rest == ' ')
        rest++;
    int shift = 0;
    const char *prefix = *rest ? strchr(prefixes, toupper((unsigned char)*rest)) : NULL;
    if (prefix) {
        shift = 10 * (int)(prefix - prefixes + 1);
        rest++;
        if (*rest && strcasecmp(rest, "iB") != 0 && strcasecmp(rest, "B") != 0)
            return false;
    } else if (*rest && strcasecmp(rest, "B") != 0) {
        return false;
    }
    if (shift == 0 && strspn(text, "0123456789") <= 18) { /* exact, which a double would not be */
        if (strchr(text, '.'))
            return false;
        *bytes = strtoull(text, NULL, 10);
        return true;
    }
    number = ldexp(number, shift);
    if (number > 0x1p62)
        return false;
    *bytes = (uint64_t)number;
    return true;
}

bool units_parse_memory(const char *text, uint64_t *bytes)
{
    uint64_t read;
    if (!units_parse_bytes(text, &read) || read < UINT64_C(2) << 20 || read >= UINT64_C(1) << 60)
        return false;
    *bytes = read;
    return true;
}

bool units_parse_time(const char *text, uint64_t *ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    const char *rest;
    double number;
    if (!parse_decimal(text, &number, &rest))
        return false;
    while (*rest == ' ')
        rest++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(rest, units[i].name) == 0 && number * units[i].ns <= 0x1p62) {
            *ns = (uint64_t)(number * units[i].ns);
            return true;
        }
    return false;
}

bool units_parse_number(const char *text, double least, double most, double *number)
{
    const char *rest;
    double value;
    if (!parse_decimal(text, &value, &rest) || *rest || value < least || value > most)
        return false;
    *number = value;
    return true;
}

bool units_parse_count(const char *text, uint64_t least, uint64_t most, uint64_t *count)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 18 || text[length])
        return false;
    uint64_t value = strtoull(text, NULL, 10);
    if (value < least || value > most)
        return false;
    *count = value;
    return true;
}
