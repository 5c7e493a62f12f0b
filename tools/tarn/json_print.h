/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How each command makes and prints JSON. */
#ifndef TOOLS_JSON_PRINT_H
#define TOOLS_JSON_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Of the control characters, jansson leaves DEL alone. */
static inline int json_put(const char *text, size_t size, void *out)
{
    for (size_t i = 0; i < size; i++)
        if ((text[i] == 0x7f ? fputs("\\u007F", out) : fputc(text[i], out)) == EOF)
            return -1;
    return 0;
}

/* Prints a value and a newline. False if that failed, or there is no value. Control characters and
 * non-ASCII ones are escaped, so that names stay as they are (plain_output.h would replace control
 * characters). */
static inline bool json_print(const json_t *value, FILE *out)
{
    const size_t flags = JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12);
    return value && json_dump_callback(value, json_put, out, flags) == 0 && fputc('\n', out) != EOF;
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
