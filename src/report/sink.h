/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The destination of written data: a buffer that is emptied into a function, a file, or nowhere (to
 * measure the length). Not thread-safe. After a failure everything that follows is dropped, and the
 * end reports it. */
#ifndef TARN_REPORT_SINK_H
#define TARN_REPORT_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <tarn/core.h>

#define SINK_BYTES 65536

typedef bool (*sink_function)(const void *data, size_t size, void *user);

struct sink {
    sink_function write; /* NULL: only counts */
    void *user;
    uint64_t bytes; /* bytes written so far, without the buffer */
    size_t used;
    bool failed;
    int error; /* errno of a file that could not be written; 0: none */
    int file;  /* or -1 */
    char path[4096], temporary[4128];
    unsigned char buffer[SINK_BYTES + 64];
};

/* A sink has about 70 KiB. The caller provides its memory, zeroed or not. */
void sink_to_function(struct sink *sink, sink_function write, void *user);
void sink_to_nowhere(struct sink *sink);
/* Writes to a file with these rights, which gets its name at the end. TARN_ERROR_SYSTEM,
 * TARN_ERROR_INVALID_ARGUMENT. */
tarn_status sink_to_file(struct sink *sink, const char *path, mode_t rights);

/* Writes the rest. A file gets its name; with `abandon` it is removed. */
tarn_status sink_end(struct sink *sink, bool abandon);

void sink_flush(struct sink *sink);
void sink_write(struct sink *sink, const void *data, size_t size);
/* Prints at most 1,023 bytes; cuts longer text. */
void sink_print(struct sink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Room for at most 64 bytes. The caller fills it and then counts what it filled. */
static inline unsigned char *sink_room(struct sink *sink)
{
    if (__builtin_expect(sink->used >= SINK_BYTES, false))
        sink_flush(sink);
    return sink->buffer + sink->used;
}

static inline void sink_byte(struct sink *sink, unsigned char byte)
{
    *sink_room(sink) = byte;
    sink->used++;
}

static inline uint64_t sink_length(const struct sink *sink)
{
    return sink->bytes + sink->used;
}

#endif
