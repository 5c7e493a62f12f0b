/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes pickles: of protocol 2, the opcodes that PyTorch's viewer reads (pytorch/pytorch,
 * torch/utils/viz/MemoryViz.js; CPython's Lib/pickletools.py explains them). A pickle is a program
 * for a stack. The caller writes it in order: dict begin, key, value, key, value, end. Repeated
 * values are memoized once, which gives each a number, and then written by that number. */
#ifndef TARN_REPORT_SNAPSHOT_PICKLE_WRITE_H
#define TARN_REPORT_SNAPSHOT_PICKLE_WRITE_H

#include "report/sink.h"

struct pickle_writer {
    struct sink *sink;
    uint32_t memos; /* the last number; numbers begin at 1, 0 means none */
};

void pickle_begin(struct pickle_writer *writer, struct sink *sink);
void pickle_end(struct pickle_writer *writer);

void pickle_integer(struct pickle_writer *writer, int64_t value);
void pickle_unsigned(struct pickle_writer *writer, uint64_t value);
void pickle_real(struct pickle_writer *writer, double value);
void pickle_boolean(struct pickle_writer *writer, bool value);
void pickle_none(struct pickle_writer *writer);
/* Bytes that are not UTF-8 become "?". */
void pickle_text(struct pickle_writer *writer, const char *text);
void pickle_pair(struct pickle_writer *writer, uint64_t first, uint64_t second);

/* Memoizes the value written last, and returns its number. */
uint32_t pickle_memoize(struct pickle_writer *writer);
/* Writes the value with a number again. */
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

/* A text that is written often. `memo` is its number, 0 at first. */
static inline void pickle_word(struct pickle_writer *writer, uint32_t *memo, const char *text)
{
    if (*memo) {
        pickle_again(writer, *memo);
    } else {
        pickle_text(writer, text);
        *memo = pickle_memoize(writer);
    }
}

/* Begins a dict; then keys and values follow in turn. A list is the same with items. */
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

/* Call before each item of a list that may be long, with the item's number. It appends from time to
 * time, so that a reader need not have all items on its stack: PyTorch's viewer passes them as
 * arguments of one call, which can have about 100,000. */
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
