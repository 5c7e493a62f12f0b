/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A stream of bytes for the pickle machine, or another reader: a file or a buffer, plain or
 * compressed with zstd or gzip, read in order and never held whole. Its memory does not grow with
 * the file. Not thread-safe; two inputs are independent. */
#ifndef TOOLS_PICKLE_INPUT_H
#define TOOLS_PICKLE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICKLE_INPUT_SIZE_UNKNOWN UINT64_MAX

/* A compressed file may grow to this many bytes, and as many more a compressed byte. Snapshots
 * shrink 10 to 60 fold. */
#define PICKLE_INPUT_EXPAND_BASE (UINT64_C(128) << 20)
#define PICKLE_INPUT_EXPAND_RATIO UINT64_C(256)

struct pickle_input {
    const uint8_t *next, *end; /* what can be read now */
    uint64_t end_offset;       /* the stream's offset of `end`, bytes */
    /* Bytes taken from the file or buffer so far, before decompression. */
    uint64_t raw_read;
    uint64_t total;  /* bytes in the stream, or PICKLE_INPUT_SIZE_UNKNOWN */
    bool compressed; /* offsets count decompressed bytes */
    bool csv;        /* it is not a pickle: it begins as an RMM log does */
    bool json;       /* nor this: it begins as JSON does */
    char error[256]; /* empty unless reading failed, other than by the stream's end */

    int file; /* -1 for a buffer */
    /* What was read and not yet decompressed; the whole buffer where there is no file. */
    const uint8_t *raw;
    size_t raw_size;     /* bytes at `raw` */
    uint8_t *raw_buffer; /* compressed bytes of a file; NULL where not needed */
    uint8_t *buffer;     /* where `next` points; NULL where it points into the caller's buffer */
    struct ZSTD_DCtx_s *zstd;
    struct z_stream_s *gzip; /* NULL: zstd decompresses */
    bool frame_open;         /* the input so far ends inside a frame of zstd, a member of gzip */
};

/* Opens a file ("-": standard input), or a buffer that outlives the input. False fills `error`.
 * Both need pickle_input_finish(), also on failure. */
bool pickle_input_open(struct pickle_input *input, const char *path);
bool pickle_input_attach(struct pickle_input *input, const void *data, size_t size);
void pickle_input_finish(struct pickle_input *input);

/* Reads on until at least `count` bytes lie at `next`. False where the stream ends before, or
 * `error` says why. */
bool pickle_input_refill(struct pickle_input *input, size_t count);

static inline bool pickle_input_need(struct pickle_input *input, size_t count)
{
    return (size_t)(input->end - input->next) >= count || pickle_input_refill(input, count);
}

/* Passes over `count` bytes; false as above. */
bool pickle_input_skip(struct pickle_input *input, uint64_t count);

/* The offset of the byte at `next`. */
static inline uint64_t pickle_input_offset(const struct pickle_input *input)
{
    return input->end_offset - (uint64_t)(input->end - input->next);
}

/* Bytes from `next` to the end of the stream, or PICKLE_INPUT_SIZE_UNKNOWN. */
static inline uint64_t pickle_input_remaining(const struct pickle_input *input)
{
    return input->total == PICKLE_INPUT_SIZE_UNKNOWN ? PICKLE_INPUT_SIZE_UNKNOWN
                                                     : input->total - pickle_input_offset(input);
}

#endif
