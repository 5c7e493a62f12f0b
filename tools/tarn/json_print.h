/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* How each command prints JSON. */
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

#endif
