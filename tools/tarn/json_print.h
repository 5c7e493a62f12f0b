/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How each command makes and prints JSON. */
#ifndef TOOLS_JSON_PRINT_H
#define TOOLS_JSON_PRINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Prints a value and a newline; false if that failed, or there is no value. What is not ASCII is
 * escaped, so that control characters of names arrive as they are (plain_output.h would replace
 * them). */
static inline bool json_print(const json_t *value, FILE *out)
{
    const size_t flags = JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12);
    return value && json_dumpf(value, out, flags) == 0 && fputc('\n', out) != EOF;
}

/* Appends an item, which is the array's then, to an array that may have failed before. Returns NULL
 * from the first failure on, with nothing left. */
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
