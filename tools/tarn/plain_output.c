/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Streams over the standard files. Owns what is held back between two writes: the beginning of a
 * character or of an escape sequence. */
#include "plain_output.h"
#include "base/file.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HELD = 8, CHUNK = 4096 };

struct output {
    int file;
    bool terminal;
    char held[HELD];
    size_t length; /* bytes that are held back */
};

/* Bytes at `text` that form one printable unit; 0 if there is none. */
static size_t plain_length(const struct output *output, const char *text)
{
    static const char *const types[] = {"\033[0m", "\033[1m", "\033[1;31m"};
    for (size_t i = 0; output->terminal && *text == '\033' && i < sizeof types / sizeof *types; i++)
        if (strncmp(text, types[i], strlen(types[i])) == 0)
            return strlen(types[i]);
    return *text == '\n' || *text == '\t' ? 1 : text_plain_length(text);
}

/* True if the next bytes may be the beginning of a longer unit. */
static bool may_go_on(const char *text)
{
    return (unsigned char)*text >= 0xc2 || *text == '\033';
}

/* Prints `length` bytes of a text that ends with a 0, except for an incomplete rest, unless this is
 * the end. Returns how many bytes it took. */
static size_t print(struct output *output, const char *text, size_t length, bool *done)
{
    char out[CHUNK + HELD];
    size_t at = 0;
    while (at < length) {
        size_t plain = plain_length(output, text + at);
        if (!plain && length - at < HELD && may_go_on(text + at) &&
            !memchr(text + at, '\n', length - at))
            break;
        memcpy(out + at, plain ? text + at : "?", plain ? plain : 1);
        at += plain ? plain : 1;
    }
    *done = file_write(output->file, out, at);
    return at;
}

static ssize_t take(void *cookie, const char *text, size_t size)
{
    struct output *output = cookie;
    bool done = true;
    for (size_t taken = 0; taken < size && done;) {
        char chunk[CHUNK + 1];
        size_t more = size - taken < CHUNK - output->length ? size - taken : CHUNK - output->length;
        memcpy(chunk, output->held, output->length);
        memcpy(chunk + output->length, text + taken, more);
        size_t length = output->length + more;
        chunk[length] = '\0';
        size_t printed = print(output, chunk, length, &done);
        output->length = length - printed;
        memcpy(output->held, chunk + printed, output->length);
        taken += more;
    }
    return done ? (ssize_t)size : 0;
}

/* Prints what was held back and was never completed. */
static int end(void *cookie)
{
    struct output *output = cookie;
    return file_write(output->file, "????????", output->length) ? 0 : EOF;
}

static FILE *open_over(struct output *output, int file, int buffered)
{
    output->file = file;
    output->terminal = isatty(file) == 1;
    FILE *stream = fopencookie(output, "w", (cookie_io_functions_t){.write = take, .close = end});
    if (stream)
        (void)setvbuf(stream, NULL, output->terminal && buffered == _IOFBF ? _IOLBF : buffered,
                      BUFSIZ);
    return stream;
}

void plain_output_begin(void)
{
    static struct output outputs[2];
    FILE *out = open_over(&outputs[0], STDOUT_FILENO, _IOFBF),
         *error = open_over(&outputs[1], STDERR_FILENO, _IONBF);
    stdout = out ? out : stdout;
    stderr = error ? error : stderr;
}

bool plain_output_moves(void)
{
    const char *terminal = getenv("TERM");
    return isatty(STDERR_FILENO) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

void plain_output_move(const char *text)
{
    (void)file_write(STDERR_FILENO, text, strlen(text));
}
