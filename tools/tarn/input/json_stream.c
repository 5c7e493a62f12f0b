/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns JSON's grammar. Nothing is assumed about the bytes, and depth is bounded, so a file can take
 * neither memory nor the stack of calls. */
#include "input/json_stream.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NUMBER_MOST (INT64_C(1) << 61)
#define END_OF_FILE (-1)

bool json_stream_fail(struct json_stream *stream, const char *format, ...)
{
    va_list arguments;
    if (stream->error[0])
        return false;
    int used = snprintf(stream->error, sizeof stream->error, "byte %" PRIu64 ": ", stream->offset);
    va_start(arguments, format);
    vsnprintf(stream->error + used, sizeof stream->error - (size_t)used, format, arguments);
    va_end(arguments);
    return false;
}

static int peek(struct json_stream *stream)
{
    if (pickle_input_need(stream->input, 1))
        return *stream->input->next;
    if (stream->input->error[0] && !stream->error[0])
        snprintf(stream->error, sizeof stream->error, "%s", stream->input->error);
    return END_OF_FILE;
}

static int skip_spaces(struct json_stream *stream)
{
    int letter = peek(stream);
    while (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r') {
        stream->input->next++;
        letter = peek(stream);
    }
    stream->offset = pickle_input_offset(stream->input);
    return letter;
}

static void keep(struct json_stream *stream, int letter)
{
    if (stream->length < JSON_TEXT_MAX)
        stream->text[stream->length++] = (char)letter;
}

/* A code point as UTF-8. A half of a pair becomes a question mark. */
static void keep_point(struct json_stream *stream, unsigned point)
{
    if (point >= 0xd800 && point < 0xe000) {
        keep(stream, '?');
    } else if (point < 0x80) {
        keep(stream, (int)point);
    } else if (point < 0x800) {
        keep(stream, (int)(0xc0 | point >> 6));
        keep(stream, (int)(0x80 | (point & 0x3f)));
    } else {
        keep(stream, (int)(0xe0 | point >> 12));
        keep(stream, (int)(0x80 | (point >> 6 & 0x3f)));
        keep(stream, (int)(0x80 | (point & 0x3f)));
    }
}

static bool cut_short(struct json_stream *stream)
{
    stream->offset = pickle_input_offset(stream->input);
    return json_stream_fail(stream, "the file is cut short");
}

/* What a backslash means, with `next` behind it. */
static bool read_escape(struct json_stream *stream)
{
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    unsigned point = 0;
    int letter = peek(stream);
    if (letter == END_OF_FILE)
        return cut_short(stream);
    stream->input->next++;
    const char *known = strchr(letters, letter);
    if (letter != 'u') {
        keep(stream, known && letter ? meant[known - letters] : letter);
        return true;
    }
    for (int i = 0; i < 4; i++, stream->input->next++) {
        letter = peek(stream);
        unsigned digit = letter >= '0' && letter <= '9'   ? (unsigned)letter - '0'
                         : letter >= 'a' && letter <= 'f' ? (unsigned)letter - 'a' + 10
                         : letter >= 'A' && letter <= 'F' ? (unsigned)letter - 'A' + 10
                                                          : 16;
        if (digit == 16) /* "\users" of a path that nobody escaped */
            break;
        point = point << 4 | digit;
    }
    keep_point(stream, point ? point : '?');
    return true;
}

static bool read_string(struct json_stream *stream)
{
    stream->length = 0;
    stream->input->next++;
    for (int letter = peek(stream); letter != '"'; letter = peek(stream)) {
        if (letter == END_OF_FILE)
            return cut_short(stream);
        stream->input->next++;
        if (letter != '\\')
            keep(stream, letter);
        else if (!read_escape(stream))
            return false;
    }
    stream->input->next++;
    stream->text[stream->length] = '\0';
    return true;
}

static bool is_plain(int letter)
{
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
           (letter >= 'A' && letter <= 'Z') || letter == '-' || letter == '+' || letter == '.';
}

static enum json_token read_plain(struct json_stream *stream)
{
    stream->length = 0;
    for (int letter = peek(stream); is_plain(letter); letter = peek(stream)) {
        stream->input->next++;
        keep(stream, letter);
    }
    stream->text[stream->length] = '\0';
    char first = stream->text[0];
    if ((first >= '0' && first <= '9') || (first == '-' && stream->text[1] != 'I'))
        return TOKEN_NUMBER;
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(stream->text, words[i]) == 0)
            return TOKEN_WORD;
    json_stream_fail(stream, "\"%.40s\" is not a value of JSON", stream->text);
    return TOKEN_FAILED;
}

static enum json_token open(struct json_stream *stream, bool array)
{
    if (stream->depth == JSON_DEPTH_MAX) {
        json_stream_fail(stream, "more than %d objects or arrays lie in each other",
                         JSON_DEPTH_MAX);
        return TOKEN_FAILED;
    }
    stream->array[stream->depth++] = array;
    stream->input->next++;
    stream->after_value = false;
    return array ? TOKEN_ARRAY : TOKEN_OBJECT;
}

static enum json_token close(struct json_stream *stream)
{
    stream->input->next++;
    stream->depth--;
    stream->after_value = true;
    return stream->array[stream->depth] ? TOKEN_ARRAY_END : TOKEN_OBJECT_END;
}

static enum json_token unexpected(struct json_stream *stream, int letter, const char *wanted)
{
    if (letter == END_OF_FILE)
        cut_short(stream);
    else if (letter > ' ' && letter < 0x7f)
        json_stream_fail(stream, "'%c', where %s is expected", letter, wanted);
    else
        json_stream_fail(stream, "0x%02x, where %s is expected", (unsigned)letter, wanted);
    return TOKEN_FAILED;
}

static enum json_token read_value(struct json_stream *stream, int letter)
{
    stream->after_key = false;
    if (letter == '{' || letter == '[')
        return open(stream, letter == '[');
    stream->after_value = true;
    if (letter == '"')
        return read_string(stream) ? TOKEN_STRING : TOKEN_FAILED;
    return is_plain(letter) ? read_plain(stream) : unexpected(stream, letter, "a value");
}

static enum json_token read_key(struct json_stream *stream, int letter)
{
    if (letter != '"')
        return unexpected(stream, letter, "a key");
    if (!read_string(stream))
        return TOKEN_FAILED;
    letter = skip_spaces(stream);
    if (letter != ':')
        return unexpected(stream, letter, "a colon");
    stream->input->next++;
    stream->after_key = true;
    return TOKEN_KEY;
}

enum json_token json_stream_next(struct json_stream *stream)
{
    int letter = skip_spaces(stream);
    if (stream->error[0])
        return TOKEN_FAILED;
    if (!stream->depth && stream->begun)
        return letter == END_OF_FILE ? TOKEN_END : unexpected(stream, letter, "the end");
    stream->begun = true;
    bool array = !stream->depth || stream->array[stream->depth - 1];
    char closing = array ? ']' : '}';
    if (stream->depth && !stream->after_key && letter == closing)
        return close(stream);
    if (stream->after_value) {
        if (letter != ',')
            return unexpected(stream, letter, "a comma");
        stream->input->next++;
        stream->after_value = false;
        letter = skip_spaces(stream);
    }
    return array || stream->after_key ? read_value(stream, letter) : read_key(stream, letter);
}

bool json_stream_skip(struct json_stream *stream, enum json_token token)
{
    unsigned depth = stream->depth;
    if (token == TOKEN_OBJECT || token == TOKEN_ARRAY)
        while (stream->depth >= depth)
            if (json_stream_next(stream) == TOKEN_FAILED)
                return false;
    return token != TOKEN_FAILED;
}

bool json_stream_integer(const struct json_stream *stream, enum json_token token, int64_t scale,
                         int64_t *number)
{
    const char *at = stream->text;
    bool negative = *at == '-', exact = true;
    int64_t value = 0;
    if (token != TOKEN_NUMBER)
        return false;
    at += negative;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++)
        exact = exact && !__builtin_mul_overflow(value, 10, &value) &&
                !__builtin_add_overflow(value, *at - '0', &value);
    exact = exact && !__builtin_mul_overflow(value, scale, &value);
    if (*at == '.') {
        int64_t part = scale;
        for (at++; *at >= '0' && *at <= '9'; at++) {
            part /= 10;
            exact = exact && !__builtin_add_overflow(value, (*at - '0') * part, &value);
        }
    }
    if (*at || !exact || value > NUMBER_MOST)
        return false;
    *number = negative ? -value : value;
    return true;
}
