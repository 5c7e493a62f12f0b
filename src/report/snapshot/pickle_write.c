/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Writes the values of a pickle. Owns nothing. */
#include "report/snapshot/pickle_write.h"
#include "base/utf8.h"

void pickle_begin(struct pickle_writer *writer, struct sink *sink)
{
    *writer = (struct pickle_writer){.sink = sink};
    sink_byte(sink, 0x80); /* PROTO */
    sink_byte(sink, 2);
}

void pickle_end(struct pickle_writer *writer)
{
    sink_byte(writer->sink, '.'); /* STOP */
}

/* The eight bytes of a value, lowest first. */
static inline void put(unsigned char *at, uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(at, &value, sizeof value);
#else
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> 8 * i);
#endif
}

static inline void bytes(struct pickle_writer *writer, unsigned char opcode, uint64_t value,
                         unsigned count)
{
    unsigned char *at = sink_room(writer->sink);
    at[0] = opcode;
    put(at + 1, value); /* surplus bytes are overwritten */
    writer->sink->used += 1 + count;
}

/* LONG1: a number of bytes, and as many bytes as two's complement needs, little endian. */
static inline void long_integer(struct pickle_writer *writer, uint64_t value, bool negative)
{
    unsigned char *at = sink_room(writer->sink);
    uint64_t digits = negative ? ~value : value;
    unsigned bits = digits ? 64 - (unsigned)__builtin_clzll(digits) : 0,
             count = bits / 8 + 1; /* with one for the sign */
    at[0] = 0x8a;                  /* LONG1 */
    at[1] = (unsigned char)count;
    put(at + 2, value);
    at[10] = negative ? 0xff : 0;
    writer->sink->used += 2 + count;
}

void pickle_integer(struct pickle_writer *writer, int64_t value)
{
    if (value >= 0)
        pickle_unsigned(writer, (uint64_t)value);
    else if (value >= INT32_MIN)
        bytes(writer, 'J', (uint64_t)value, 4); /* BININT */
    else
        long_integer(writer, (uint64_t)value, true);
}

void pickle_unsigned(struct pickle_writer *writer, uint64_t value)
{
    if (value < 256)
        bytes(writer, 'K', value, 1); /* BININT1 */
    else if (value < 65536)
        bytes(writer, 'M', value, 2); /* BININT2 */
    else if (value <= INT32_MAX)
        bytes(writer, 'J', value, 4);
    else
        long_integer(writer, value, false);
}

void pickle_real(struct pickle_writer *writer, double value)
{
    uint64_t bits;
    unsigned char *at = sink_room(writer->sink);
    memcpy(&bits, &value, sizeof bits);
    at[0] = 'G'; /* BINFLOAT, big endian */
    for (int i = 0; i < 8; i++)
        at[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
    writer->sink->used += 9;
}

void pickle_boolean(struct pickle_writer *writer, bool value)
{
    sink_byte(writer->sink, value ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
}

void pickle_none(struct pickle_writer *writer)
{
    sink_byte(writer->sink, 'N');
}

void pickle_text(struct pickle_writer *writer, const char *text)
{
    size_t length = strlen(text);
    bytes(writer, 'X', length, 4); /* BINUNICODE; bytes that are not UTF-8 are replaced */
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        unsigned count = utf8_length(at);
        sink_write(writer->sink, count ? (const void *)at : "?", count ? count : 1);
        at += count ? count : 1;
    }
}

void pickle_pair(struct pickle_writer *writer, uint64_t first, uint64_t second)
{
    pickle_unsigned(writer, first);
    pickle_unsigned(writer, second);
    sink_byte(writer->sink, 0x86); /* TUPLE2 */
}

uint32_t pickle_memoize(struct pickle_writer *writer)
{
    uint32_t memo = ++writer->memos;
    if (memo < 256)
        bytes(writer, 'q', memo, 1); /* BINPUT */
    else
        bytes(writer, 'r', memo, 4); /* LONG_BINPUT */
    return memo;
}
