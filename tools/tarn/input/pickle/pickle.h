/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* A pickle machine for plain data: dicts, lists, tuples, numbers, text. It executes nothing and
 * stops at any opcode that would. Opcodes: python/cpython, Lib/pickletools.py. Protocols 2 to 5.
 *
 * It keeps only what its user names. The user gives a list of words; a dict keeps the entries whose
 * key is one of them, a list keeps its integers, its lists and those dicts that kept something.
 * Each distinct text is kept once, under a number; the words are the first of them. All else was
 * checked for form and is gone. On top of that, a callback may turn a finished dict or list into a
 * number (a record) and so let go of it.
 *
 * A container is finished when it is stored in another one. Changing it later, which no pickler
 * does for data without cycles, is an error; so what comes out has no cycle, is at most
 * PICKLE_DEPTH_MAX deep, and never changes. It may share parts, so whoever walks it counts the
 * steps. Memory is bounded by PICKLE_MEMORY_*. Not thread-safe; two machines are independent. */
#ifndef TOOLS_PICKLE_H
#define TOOLS_PICKLE_H

#include "input/pickle_input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PICKLE_DEPTH_MAX 64

/* A text is kept up to so many bytes, and told from another by these; one on a line of its own
 * (protocol 0) up to 255. */
#define PICKLE_TEXT_MAX 1024

/* Bytes that a machine and its user may allocate: so many, and as many more per byte of the pickle
 * that was read. A snapshot needs less than 8 per byte. How large a pickle a compressed file may
 * become has a bound of its own (pickle_input.h), and of such a file not more than the second ratio
 * is allocated per byte. */
#define PICKLE_MEMORY_BASE (UINT64_C(16) << 20)
#define PICKLE_MEMORY_RATIO UINT64_C(24)
#define PICKLE_MEMORY_COMPRESSED_BASE (UINT64_C(256) << 20)
#define PICKLE_MEMORY_COMPRESSED_RATIO UINT64_C(256)

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
    PICKLE_RECORD,      /* a dict that the callback has taken */
    PICKLE_LIST_RECORD, /* a list that it has taken */
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

/* Called when a dict that kept something is stored in a list, and when such a list is stored in a
 * dict. True, and a number below 2^56, replaces it. */
typedef bool (*pickle_reduce)(void *context, struct pickle *pickle, pickle_value value,
                              uint64_t *record);

struct pickle_node;

/* Every distinct text, each ending in NUL. A zeroed one is empty. */
struct pickle_texts {
    char *bytes;
    size_t *starts;  /* where in `bytes` each begins, and where the next will */
    uint32_t *slots; /* hash table of numbers + 1; a power of two */
    size_t size, count, byte_capacity, start_capacity, slot_capacity;
};

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
    size_t dict_free, list_free; /* the first of a chain of nodes to use again, or SIZE_MAX */
    uint64_t *integers;          /* those that do not fit in a value */
    size_t integer_size, integer_capacity;
    struct pickle_texts texts;
};

/* Reads one pickle to the end of `input`. False fills `error`. Needs pickle_finish() either way. */
bool pickle_read(struct pickle *pickle, struct pickle_input *input, const char *const *words,
                 size_t word_count, pickle_reduce reduce, void *context, struct pickle_place *top);
void pickle_finish(struct pickle *pickle);

enum pickle_kind pickle_kind(pickle_value value);
/* "a list", "None", ... */
const char *pickle_kind_name(pickle_value value);
/* The number in a PICKLE_WORD, PICKLE_TEXT (the number of the text), PICKLE_BOOL, PICKLE_RECORD or
 * PICKLE_LIST_RECORD. */
uint64_t pickle_number(pickle_value value);

/* NULL, or what is wrong: "is negative", "does not fit in 64 bits", "is a list, not an integer". */
const char *pickle_get_unsigned(const struct pickle *pickle, pickle_value value, uint64_t *number);
const char *pickle_get_signed(const struct pickle *pickle, pickle_value value, int64_t *number);
/* The same of a tuple or a list of two integers. */
const char *pickle_get_pair(const struct pickle *pickle, pickle_value value, uint64_t pair[2]);

/* What a PICKLE_LIST kept, and how many items it had that it did not keep. Valid until the machine
 * reads on or is finished. Needs 8 bytes per item: where there are none, `error` says so and the
 * count is 0. */
const pickle_value *pickle_list(struct pickle *pickle, pickle_value list, size_t *count,
                                uint64_t *dropped);
/* Whether a list has only records of numbers that follow each other, which takes no memory per
 * item. */
bool pickle_list_run(const struct pickle *pickle, pickle_value list, pickle_value *first,
                     size_t *count);
/* What a PICKLE_DICT kept; no word comes twice. */
const struct pickle_place *pickle_dict(const struct pickle *pickle, pickle_value dict,
                                       size_t *count);
/* The offset at which a list or dict that kept something begins. Otherwise returns `otherwise`. */
uint64_t pickle_offset(const struct pickle *pickle, pickle_value value, uint64_t otherwise);

/* The number of a text, which is kept if it was not. False fills `error`. */
bool pickle_text_add(struct pickle *pickle, const char *text, size_t length, uint32_t *number);

/* Says in `error` that memory is short; gives false. */
bool pickle_no_memory(struct pickle *pickle);

/* realloc() of an array of `*capacity` elements so that it has at least `wanted`, against the
 * machine's limit. False fills `error` and leaves the array. */
bool pickle_grow(struct pickle *pickle, void **array, size_t *capacity, size_t wanted,
                 size_t element);

#endif
