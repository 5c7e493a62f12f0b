/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A pickle machine for plain data: dicts, lists, tuples, numbers, text. It executes nothing and stops at any opcode that would.
 * Opcodes: python/cpython, Lib/pickletools.py. Protocols 2 to 5.
 *
 * It keeps only what its user names. The user gives a list of words; a dict keeps the entries whose key is one of them, a text is
 * kept only as the word that it equals, a list keeps its lists and those dicts that kept something. All else was checked
 * for form and is gone. On top of that, a callback may turn a finished dict into a number (a record) and so let go of it.
 *
 * A container is finished when it is stored in another one. Changing it later, which no pickler does for data without cycles,
 * is an error; so what comes out has no cycle, is at most PICKLE_DEPTH_MAX deep, and never changes. It may share parts, so
 * whoever walks it counts the steps. Memory is bounded by PICKLE_MEMORY_*. Not thread-safe; two machines are independent. */
#ifndef TOOLS_PICKLE_H
#define TOOLS_PICKLE_H

#include "pickle_input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICKLE_DEPTH_MAX 64

/* Bytes that a machine and its user may allocate: so many, and as many more a byte of the file. */
#define PICKLE_MEMORY_BASE (UINT64_C(256) << 20)
#define PICKLE_MEMORY_RATIO UINT64_C(256)

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,   /* of any size */
    PICKLE_FLOAT, /* its value is not kept */
    PICKLE_TEXT,  /* a str that is none of the words */
    PICKLE_WORD,  /* a str that is one of the words */
    PICKLE_BYTES,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_RECORD, /* a dict that the callback has taken */
};

/* A value: its kind and 56 bits whose meaning is the machine's. */
typedef struct {
    uint64_t bits;
} pickle_value;

/* A value and where in the stream it begins. */
struct pickle_place {
    pickle_value value;
    uint64_t offset : 56;
    uint64_t word : 8; /* in a dict: the key */
};

struct pickle;

/* Called when a dict that kept something is stored in a list. True, and a number below 2^56, replaces the dict. */
typedef bool (*pickle_reduce)(void *context, struct pickle *pickle, pickle_value dict, uint64_t *record);

struct pickle_node;

struct pickle {
    struct pickle_input *input;
    const char *const *words; /* at most 255 */
    size_t word_count;
    pickle_reduce reduce; /* may be NULL */
    void *context;
    char error[512]; /* "byte N: ..."; empty unless something failed */

    uint64_t allocated;   /* bytes, against the limit */
    uint64_t op_offset;   /* of the opcode at work */
    uint64_t memo_writes; /* bounds how far an index may run ahead */
    const char *op_name;  /* of the same, for errors */

    struct pickle_place *stack;
    size_t stack_size, stack_capacity;
    size_t *marks; /* stack sizes; nothing below the last may be popped */
    size_t mark_count, mark_capacity;
    pickle_value *memo;
    size_t memo_size, memo_capacity;
    struct pickle_node *nodes; /* the lists and dicts */
    size_t node_size, node_capacity;
    size_t node_free;   /* the first of a chain of nodes to use again, or SIZE_MAX */
    uint64_t *integers; /* those that do not fit in a value */
    size_t integer_size, integer_capacity;
};

/* Reads one pickle to the end of `input`. False fills `error`. Needs pickle_finish() either way. */
bool pickle_read(struct pickle *pickle, struct pickle_input *input, const char *const *words, size_t word_count,
                 pickle_reduce reduce, void *context, struct pickle_place *top);
void pickle_finish(struct pickle *pickle);

enum pickle_kind pickle_kind(pickle_value value);
/* "a list", "None", ... */
const char *pickle_kind_name(pickle_value value);
/* Of a PICKLE_WORD, PICKLE_BOOL or PICKLE_RECORD. */
uint64_t pickle_number(pickle_value value);

/* NULL, or what is wrong: "is negative", "does not fit in 64 bits", "is a list, not an integer". */
const char *pickle_get_unsigned(const struct pickle *pickle, pickle_value value, uint64_t *number);
const char *pickle_get_signed(const struct pickle *pickle, pickle_value value, int64_t *number);
/* The same of a tuple of two integers. */
const char *pickle_get_pair(const struct pickle *pickle, pickle_value value, uint64_t pair[2]);

/* What a PICKLE_LIST kept, and how many items it had that it did not keep. Valid until the machine reads on or is finished. */
const pickle_value *pickle_list(const struct pickle *pickle, pickle_value list, size_t *count, uint64_t *dropped);
/* What a PICKLE_DICT kept; no word comes twice. */
const struct pickle_place *pickle_dict(const struct pickle *pickle, pickle_value dict, size_t *count);
/* Where a list or dict that kept something begins, else `otherwise`. */
uint64_t pickle_offset(const struct pickle *pickle, pickle_value value, uint64_t otherwise);

/* realloc() of an array of `*capacity` elements so that it has at least `wanted`, against the machine's limit. False fills
 * `error` and leaves the array. */
bool pickle_grow(struct pickle *pickle, void **array, size_t *capacity, size_t wanted, size_t element);

#endif
