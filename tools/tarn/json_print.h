/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How each command makes and prints JSON. */
#ifndef TOOLS_JSON_PRINT_H
#define TOOLS_JSON_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Prints a value and a newline. False if that failed, or there is no value. Non-ASCII characters
 * are escaped, so that control characters in names stay as they are (plain_output.h would replace
 * them). */
static inline bool json_print(const json_t *value, FILE *out)
{
    const size_t flags = JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12);
    return value && json_dumpf(value, out, flags) == 0 && fputc('\n', out) != EOF;
}

/* Appends an item to an array and gives the array ownership of it. The array may be NULL after an
 * earlier failure. Returns NULL, with nothing left, from the first failure on. */
static inline json_t *append(json_t *array, json_t *item)
{
    if (array && json_array_append_new(array, item) == 0)
        return array;
    if (!array)
        json_decref(item);
    json_decref(array);
    return NULL;
}

#endif
