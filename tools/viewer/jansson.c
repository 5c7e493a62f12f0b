/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* JSON values as texts. Owns the text of each value. An array or object appends to its text, and
 * gets its closing bracket when it is used. */
#include <jansson.h>

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct json_text {
    char *text;
    size_t length, capacity;
    char end; /* the closing bracket that it lacks; 0: none */
    bool failed;
};

static void put(json_t *value, const char *text, size_t length)
{
    if (value->length + length > value->capacity) {
        size_t capacity = 2 * value->capacity + length;
        char *grown = realloc(value->text, capacity);
        value->failed = value->failed || !grown;
        if (!grown)
            return;
        value->text = grown;
        value->capacity = capacity;
    }
    memcpy(value->text + value->length, text, length);
    value->length += length;
}

static json_t *make(const char *text, char end)
{
    json_t *value = calloc(1, sizeof *value);
    if (value) {
        value->end = end;
        put(value, text, strlen(text));
    }
    return value;
}

static void put_string(json_t *value, const char *text)
{
    put(value, "\"", 1);
    for (; *text; text++) {
        char escaped[8];
        if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20) {
            int length = snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned char)*text);
            put(value, escaped, (size_t)length);
        } else {
            put(value, text, 1);
        }
    }
    put(value, "\"", 1);
}

json_t *json_null(void)
{
    return make("null", 0);
}

json_t *json_integer(json_int_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", number);
    return make(text, 0);
}

json_t *json_real(double number)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", number);
    return isfinite(number) ? make(text, 0) : NULL;
}

json_t *json_string(const char *text)
{
    json_t *value = text ? make("", 0) : NULL;
    if (value)
        put_string(value, text);
    return value;
}

json_t *json_array(void)
{
    return make("[", ']');
}

json_t *json_object(void)
{
    return make("{", '}');
}

void json_decref(json_t *value)
{
    if (value)
        free(value->text);
    free(value);
}

static int add(json_t *whole, const char *key, json_t *value)
{
    bool failed = !whole || !value || value->failed;
    if (!failed) {
        if (whole->length > 1)
            put(whole, ",", 1);
        if (key) {
            put_string(whole, key);
            put(whole, ":", 1);
        }
        put(whole, value->text, value->length);
        put(whole, &value->end, value->end ? 1 : 0);
        failed = whole->failed;
    }
    json_decref(value);
    return failed ? -1 : 0;
}

int json_array_append_new(json_t *array, json_t *value)
{
    return add(array, NULL, value);
}

int json_object_set_new(json_t *object, const char *key, json_t *value)
{
    return add(object, key, value);
}

struct packing {
    const char *at;
    va_list arguments;
    bool failed;
};

static char next(struct packing *packing)
{
    while (*packing->at && strchr(" ,:", *packing->at))
        packing->at++;
    return *packing->at ? *packing->at++ : 0;
}

/* One value; what is in brackets is one, too. */
static json_t *pack(struct packing *packing, char kind) /* NOLINT(misc-no-recursion): as deep as the
                                                           format */
{
    switch (kind) {
    case 's':
        return json_string(va_arg(packing->arguments, const char *));
    case 'o':
        return va_arg(packing->arguments, json_t *);
    case 'I':
        return json_integer(va_arg(packing->arguments, json_int_t));
    case 'i':
        return json_integer(va_arg(packing->arguments, int));
    case 'b':
        return make(va_arg(packing->arguments, int) ? "true" : "false", 0);
    case '{':
    case '[': {
        json_t *whole = kind == '{' ? json_object() : json_array();
        for (char each; (each = next(packing)) && each != '}' && each != ']';) {
            const char *key = kind == '{' ? va_arg(packing->arguments, const char *) : NULL;
            json_t *value = pack(packing, kind == '{' ? next(packing) : each);
            packing->failed = add(whole, key, value) != 0 || packing->failed;
        }
        return whole;
    }
    default:
        return NULL;
    }
}

json_t *json_pack(const char *format, ...)
{
    struct packing packing = {.at = format};
    va_start(packing.arguments, format);
    json_t *value = pack(&packing, next(&packing));
    va_end(packing.arguments);
    if (value && packing.failed) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

int json_dump_callback(const json_t *value, json_dump_callback_t callback, void *data, size_t flags)
{
    (void)flags;
    if (!value || value->failed || callback(value->text, value->length, data))
        return -1;
    return value->end ? callback(&value->end, 1, data) : 0;
}

static int put_file(const char *buffer, size_t size, void *data)
{
    return fwrite(buffer, 1, size, data) == size ? 0 : -1;
}

int json_dumpf(const json_t *value, FILE *out, size_t flags)
{
    return json_dump_callback(value, put_file, out, flags);
}
