/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The part of Jansson's interface that the program's analysis uses, for the page, since Jansson is
 * not available for WebAssembly. A value is stored as its text, so it can only be written. */
#ifndef VIEWER_JANSSON_H
#define VIEWER_JANSSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef long long json_int_t;
typedef struct json_text json_t;
typedef int (*json_dump_callback_t)(const char *buffer, size_t size, void *data);

#define JSON_COMPACT 0
#define JSON_ENSURE_ASCII 0
#define JSON_INDENT(spaces) 0
#define JSON_REAL_PRECISION(digits) 0

json_t *json_null(void);
json_t *json_integer(json_int_t number);
json_t *json_real(double number);
json_t *json_string(const char *text);
json_t *json_array(void);
json_t *json_object(void);
/* Both take ownership of the value, also if they fail. */
int json_array_append_new(json_t *array, json_t *value);
int json_object_set_new(json_t *object, const char *key, json_t *value);
/* Of Jansson's formats it supports s, o, I, i, b, {...} and [...]. It takes ownership of an "o". */
json_t *json_pack(const char *format, ...);
void json_decref(json_t *value);
int json_dump_callback(const json_t *value, json_dump_callback_t callback, void *data,
                       size_t flags);
int json_dumpf(const json_t *value, FILE *out, size_t flags);

#endif
