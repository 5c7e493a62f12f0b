/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the way of bytes from a file or buffer, through zstd or gzip where the first bytes ask for
 * it, to the pickle machine.
 *
 * Keeps: one window of fixed size, so that memory does not follow the file; a cap on what a
 * compressed file may grow to, because it may be gigabytes out of kilobytes; the reason
 * of a failure in words for whoever gave the file. Assumes nothing about the bytes. */
#define _POSIX_C_SOURCE 200809L
#define ZLIB_CONST

#include "input/pickle_input.h"
#include "input/once.h"
#include "input/rmm_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define WINDOW ((size_t)256 << 10)
#define GZIP_BITS 31 /* for inflateInit2(): gzip with any window */
#define CSV_BEGIN "Thread,Time,"

static bool fail(struct pickle_input *input, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct pickle_input *input, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(input->error, sizeof input->error, format, arguments);
    va_end(arguments);
    return false;
}

static bool begins(const uint8_t *data, size_t size, const char *prefix, size_t length)
{
    return size >= length && !memcmp(data, prefix, length);
}

/* What people hand over instead of a snapshot, told by the first bytes. */
static const struct {
    const char *prefix;
    size_t length;
    const char *what;
} mistakes[] = {
    {"PK\003\004", 4,
     "this is a zip archive, as torch.save writes; a memory snapshot is the plain pickle that "
     "torch.cuda.memory._dump_snapshot writes"},
    {"\x1f\x8b", 2,
     "what was compressed with gzip is gzip-compressed again; decompress it first (gunzip)"},
    {"BZh", 3,
     "this is bzip2-compressed; decompress it first, or compress with zstd, which is read"},
    {"\xfd"
     "7zXZ",
     5, "this is xz-compressed; decompress it first, or compress with zstd, which is read"},
    {"version https://git-lfs", 23,
     "this is a Git LFS pointer, not the file it stands for; run git lfs pull"},
    {"\x7f"
     "ELF",
     4, "this is a program, not a memory snapshot"},
};

/* Whether the decompressed stream can be a pickle of protocol 2 to 5, or begins as a CSV with a
 * header like RMM's; says what it is otherwise. */
static bool check_beginning(struct pickle_input *input)
{
    if (!pickle_input_need(input, 1))
        return input->error[0] ? false : fail(input, "byte 0: the file is empty");
    if (!pickle_input_need(input, 32) && input->error[0])
        return false;

    const uint8_t *data = input->next;
    size_t size = (size_t)(input->end - data);
    input->csv = begins(data, size, CSV_BEGIN, sizeof CSV_BEGIN - 1) ||
                 begins(data, size, RMM_CSV_MARK CSV_BEGIN, sizeof RMM_CSV_MARK CSV_BEGIN - 1);
    size_t first = 0;
    while (first < size && (data[first] == ' ' || data[first] == '\t' || data[first] == '\n' ||
                            data[first] == '\r'))
        first++;
    input->json = first < size && (data[first] == '{' || data[first] == '[');
    if (data[0] == 0x80 || input->csv || input->json)
        return true;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        if (begins(data, size, mistakes[i].prefix, mistakes[i].length))
            return fail(input, "byte 0: %s", mistakes[i].what);

    size_t text = 0;
    while (text < size && text < 32 &&
           (data[text] == '\t' || data[text] == '\n' || data[text] == '\r' ||
            (data[text] >= ' ' && data[text] < 0x7f)))
        text++;
    if (text == size || text == 32) {
        const char *kind = data[0] == '<' ? ", perhaps a web page" : "";
        return fail(input,
                    "byte 0: this is text%s; a memory snapshot is a pickle of protocol 2 to 5",
                    kind);
    }
    return fail(input,
                "byte 0: this begins with 0x%02x; a memory snapshot is a pickle of protocol 2 to "
                "5, which begins with 0x80",
                data[0]);
}

/* Reads up to `capacity` bytes of the file; *size is 0 at its end. */
static bool read_file(struct pickle_input *input, uint8_t *to, size_t capacity, size_t *size)
{
    ssize_t got;
    do
        got = read(input->file, to, capacity);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail(input, "byte %" PRIu64 ": cannot read: %s", input->raw_read, strerror(errno));
    *size = (size_t)got;
    input->raw_read += (uint64_t)got;
    return true;
}

/* What helps against an error, by the name that zstd and the decompressor of the page give it. */
static const char *remedy_of(const char *error)
{
    if (strcmp(error, "Dictionary mismatch") == 0)
        return "; it was compressed with a dictionary: decompress it first, with zstd -d -D "
               "DICTIONARY";
    if (strcmp(error, "Frame requires too much memory for decoding") == 0)
        return "; it was compressed with a long window: decompress it first, with zstd -d "
               "--long=31";
    return "; the file is damaged: fetch it again";
}

static void raw_take(struct pickle_input *input, size_t count)
{
    if (input->file < 0)
        input->raw_read += count;
    input->raw += count;
    input->raw_size -= count;
}

/* Decompresses what fits into `to` of the bytes at hand, which may be none: what is held back
 * inside comes out. Returns what is wrong, or NULL. */
/* NOLINTNEXTLINE(readability-non-const-parameter): zstd writes through it, as a member of `out` */
static const char *unzstd(struct pickle_input *input, uint8_t *to, size_t capacity, size_t *size)
{
    ZSTD_outBuffer out = {to, capacity, 0};
    ZSTD_inBuffer in = {input->raw, input->raw_size, 0};
    size_t result = ZSTD_decompressStream(input->zstd, &out, &in);
    if (ZSTD_isError(result))
        return ZSTD_getErrorName(result);
    raw_take(input, in.pos);
    input->frame_open = result != 0;
    *size = out.pos;
    return NULL;
}

/* The same of gzip, whose members may follow each other. */
static const char *gunzip(struct pickle_input *input, uint8_t *to, size_t capacity, size_t *size)
{
    z_stream *stream = input->gzip;
    if (!input->frame_open)
        inflateReset(stream);
    size_t given = input->raw_size < UINT_MAX ? input->raw_size : UINT_MAX;
    stream->next_in = input->raw;
    stream->avail_in = (uInt)given;
    stream->next_out = to;
    stream->avail_out = (uInt)capacity;
    int code = inflate(stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return stream->msg ? stream->msg : "out of memory";
    raw_take(input, given - stream->avail_in);
    input->frame_open = code != Z_STREAM_END;
    *size = capacity - stream->avail_out;
    return NULL;
}

/* Decompresses into `to` until something came out; *size is 0 at the end of the stream. */
static bool decompress(struct pickle_input *input, uint8_t *to, size_t capacity, size_t *size)
{
    *size = 0;
    while (!*size) {
        if (!input->raw_size && input->file >= 0) {
            if (!read_file(input, input->raw_buffer, WINDOW, &input->raw_size))
                return false;
            input->raw = input->raw_buffer;
        }
        bool ended = !input->raw_size;
        if (ended && !input->frame_open)
            break;
        const char *error =
            input->gzip ? gunzip(input, to, capacity, size) : unzstd(input, to, capacity, size);
        if (error)
            return fail(input, "byte %" PRIu64 ": %s cannot decompress what follows: %s%s",
                        input->end_offset, input->gzip ? "gzip" : "zstd", error, remedy_of(error));
        if (ended && !*size)
            return fail(input, "byte %" PRIu64 ": the compressed file is cut short",
                        input->end_offset);
    }
    return true;
}

bool pickle_input_refill(struct pickle_input *input, size_t count)
{
    size_t left = (size_t)(input->end - input->next);
    if (input->error[0] || !input->buffer)
        return false;

    memmove(input->buffer, input->next, left);
    input->next = input->buffer;
    input->end = input->buffer + left;
    while (left < count) {
        size_t got = 0;
        if (input->compressed ? !decompress(input, input->buffer + left, WINDOW - left, &got)
                              : !read_file(input, input->buffer + left, WINDOW - left, &got))
            return false;
        if (!got) {
            if (input->total != PICKLE_INPUT_SIZE_UNKNOWN && input->end_offset < input->total)
                input->total = input->end_offset; /* the file became shorter while it was read */
            return false;
        }
        left += got;
        input->end += got;
        input->end_offset += got;
        if (input->compressed) {
            uint64_t cap = PICKLE_INPUT_EXPAND_BASE + PICKLE_INPUT_EXPAND_RATIO * input->raw_read;
            if (input->end_offset > cap)
                return fail(
                    input,
                    "byte %" PRIu64 ": the file grows beyond the limit of %" PRIu64
                    " MiB + %" PRIu64 " x its compressed size; decompress it first if you trust it",
                    input->end_offset, PICKLE_INPUT_EXPAND_BASE >> 20, PICKLE_INPUT_EXPAND_RATIO);
        }
    }
    return true;
}

bool pickle_input_skip(struct pickle_input *input, uint64_t count)
{
    for (;;) {
        size_t here = (size_t)(input->end - input->next);
        if (count <= here) {
            input->next += (size_t)count;
            return true;
        }
        count -= here;
        input->next = input->end;
        if (!pickle_input_refill(input, 1))
            return false;
    }
}

static bool gzip_begin(struct pickle_input *input)
{
    z_stream *stream = calloc(1, sizeof *stream);
    if (stream && inflateInit2(stream, GZIP_BITS) == Z_OK) {
        input->gzip = stream;
        return true;
    }
    free(stream);
    return false;
}

/* With the first bytes at `next`: puts zstd or gzip in between where they ask for it, then looks at
 * what comes out. */
static bool begin(struct pickle_input *input)
{
    static const char zstd_magic[] = "\x28\xb5\x2f\xfd", gzip_magic[] = "\x1f\x8b\x08";
    /* 0x184D2A5?, little endian, after its first byte */
    static const char skippable_magic[] = "\x2a\x4d\x18";

    if (!pickle_input_need(input, 4))
        return input->error[0] ? false : check_beginning(input);
    const uint8_t *data = input->next;
    bool gzip = begins(data, 4, gzip_magic, 3);
    if (!gzip && !begins(data, 4, zstd_magic, 4) &&
        ((data[0] & 0xf0) != 0x50 || !begins(data + 1, 3, skippable_magic, 3)))
        return check_beginning(input);

    size_t size = (size_t)(input->end - data);
    if (input->file >= 0) {
        input->raw_buffer = input->buffer;
        input->buffer = NULL;
    } else {
        input->raw_read = 0;
    }
    input->raw = data;
    input->raw_size = size;
    input->compressed = true;
    input->total = PICKLE_INPUT_SIZE_UNKNOWN;
    input->buffer = malloc(WINDOW);
    input->zstd = gzip ? NULL : ZSTD_createDCtx();
    bool begun = gzip ? gzip_begin(input) : input->zstd != NULL;
    input->next = input->end = input->buffer;
    input->end_offset = 0;
    if (!input->buffer || !begun)
        return fail(input, "byte 0: out of memory");
    return check_beginning(input);
}

bool pickle_input_open(struct pickle_input *input, const char *path)
{
    *input = (struct pickle_input){.file = once_open(path), .total = PICKLE_INPUT_SIZE_UNKNOWN};
    if (input->file < 0)
        return fail(input, "cannot open: %s", strerror(errno));

    struct stat status;
    if (fstat(input->file, &status))
        return fail(input, "byte 0: cannot read: %s", strerror(errno));
    if (S_ISDIR(status.st_mode))
        return fail(input, "byte 0: this is a folder, not a file");
    if (S_ISREG(status.st_mode) && status.st_size >= 0)
        input->total = (uint64_t)status.st_size;

    input->buffer = malloc(WINDOW);
    if (!input->buffer)
        return fail(input, "byte 0: out of memory");
    input->next = input->end = input->buffer;
    return begin(input);
}

bool pickle_input_attach(struct pickle_input *input, const void *data, size_t size)
{
    static const uint8_t nothing[1];
    const uint8_t *bytes = size ? data : nothing;
    *input = (struct pickle_input){.file = -1,
                                   .next = bytes,
                                   .end = bytes + size,
                                   .end_offset = size,
                                   .raw_read = size,
                                   .total = size};
    return begin(input);
}

void pickle_input_finish(struct pickle_input *input)
{
    if (input->file >= 0)
        close(input->file);
    ZSTD_freeDCtx(input->zstd);
    if (input->gzip)
        inflateEnd(input->gzip);
    free(input->gzip);
    free(input->raw_buffer);
    free(input->buffer);
    *input = (struct pickle_input){.file = -1};
}
