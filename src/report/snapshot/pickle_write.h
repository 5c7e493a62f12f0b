/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes pickles: protocol 2, and of its opcodes those that PyTorch's viewer reads
 * (pytorch/pytorch, torch/utils/viz/MemoryViz.js; CPython's Lib/pickletools.py says what each
 * does). A pickle is a program for a stack; the caller writes it in order: begin a dict, key,
 * value, key, value, end.
 *
 * What is used again is memoized once, which gives it a number, and named by that. */
#ifndef TARN_REPORT_SNAPSHOT_PICKLE_WRITE_H
#define TARN_REPORT_SNAPSHOT_PICKLE_WRITE_H

#include "report/sink.h"

struct pickle_writer {
    struct sink *sink;
    uint32_t memos; /* numbers given, from 1: 0 is none, and memo 0 is not used */
};

void pickle_begin(struct pickle_writer *writer, struct sink *sink);
void pickle_end(struct pickle_writer *writer);

void pickle_integer(struct pickle_writer *writer, int64_t value);
void pickle_unsigned(struct pickle_writer *writer, uint64_t value);
void pickle_real(struct pickle_writer *writer, double value);
void pickle_boolean(struct pickle_writer *writer, bool value);
void pickle_none(struct pickle_writer *writer);
void pickle_text(struct pickle_writer *writer, const char *text); /* what is no UTF-8 becomes "?" */
void pickle_pair(struct pickle_writer *writer, uint64_t first, uint64_t second);

/* Numbers what was written last; and writes that again. */
uint32_t pickle_memoize(struct pickle_writer *writer);
static inline void pickle_again(struct pickle_writer *writer, uint32_t memo)
{
    unsigned char *at = sink_room(writer->sink);
    if (__builtin_expect(memo < 256, true)) {
        at[0] = 'h'; /* BINGET */
        at[1] = (unsigned char)memo;
        writer->sink->used += 2;
    } else {
        at[0] = 'j'; /* LONG_BINGET, little endian */
        for (int i = 0; i < 4; i++)
            at[1 + i] = (unsigned char)(memo >> 8 * i);
        writer->sink->used += 5;
    }
}

/* A text that is written often: `memo`, 0 at first, is its number. */
static inline void pickle_word(struct pickle_writer *writer, uint32_t *memo, const char *text)
{
    if (*memo) {
        pickle_again(writer, *memo);
    } else {
        pickle_text(writer, text);
        *memo = pickle_memoize(writer);
    }
}

/* A dict: begun, keys and values by turns, ended. A list the same, of items, as many as one
 * likes. */
static inline void pickle_dict_begin(struct pickle_writer *writer)
{
    unsigned char *at = sink_room(writer->sink);
    at[0] = '}'; /* EMPTY_DICT */
    at[1] = '('; /* MARK */
    writer->sink->used += 2;
}

static inline void pickle_dict_end(struct pickle_writer *writer)
{
    sink_byte(writer->sink, 'u'); /* SETITEMS */
}

static inline void pickle_list_begin(struct pickle_writer *writer)
{
    unsigned char *at = sink_room(writer->sink);
    at[0] = ']'; /* EMPTY_LIST */
    at[1] = '('; /* MARK */
    writer->sink->used += 2;
}

static inline void pickle_list_end(struct pickle_writer *writer)
{
    sink_byte(writer->sink, 'e'); /* APPENDS */
}

/* Before each item of a list that may be long, with its number: so that a reader need not keep all
 * items on its stack. PyTorch's viewer gives them to a function as its arguments, of which there
 * may be some 100,000. */
static inline void pickle_list_item(struct pickle_writer *writer, size_t number)
{
    if (number % 512 != 511)
        return;
    unsigned char *at = sink_room(writer->sink);
    at[0] = 'e';
    at[1] = '(';
    writer->sink->used += 2;
}

#endif
