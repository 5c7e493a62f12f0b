/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The inside of the pickle machine, shared by pickle.c (opcodes) and pickle_store.c (values, stack,
 * memo, containers) and by nothing else. */
#ifndef TOOLS_PICKLE_MACHINE_H
#define TOOLS_PICKLE_MACHINE_H

#include "input/pickle/pickle.h"

#define PICKLE_PAYLOAD_MAX ((UINT64_C(1) << 56) - 1)

/* What a value's low 8 bits say: a kind in the user's sense, and how the payload above is to be
 * read. */
enum pickle_tag {
    TAG_NONE,
    TAG_BOOL,
    TAG_INT,      /* payload: signed 56 bits */
    TAG_POSITIVE, /* payload: index of a uint64_t in integers */
    TAG_NEGATIVE, /* payload: index of an int64_t, two's complement, in integers */
    TAG_HUGE,     /* beyond 64 bits */
    TAG_FLOAT,
    TAG_TEXT, /* payload: number of the text */
    TAG_WORD, /* the same, which is that of the word */
    TAG_BYTES,
    TAG_TUPLE,         /* nothing of it was kept */
    TAG_PAIR,          /* payload: 28 + 28 bits */
    TAG_WIDE_PAIR,     /* payload: index of two uint64_t in integers */
    TAG_NEGATIVE_PAIR, /* two integers, one of them negative */
    TAG_LIST,          /* payload: index of a node */
    TAG_PLAIN_LIST,    /* payload: how many items it had; none was kept */
    TAG_DICT,          /* payload: index of a node */
    TAG_PLAIN_DICT,    /* nothing was kept */
    TAG_RECORD,        /* payload: the callback's */
    TAG_LIST_RECORD,   /* payload: the callback's */
};

static inline pickle_value pickle_make(enum pickle_tag tag, uint64_t payload)
{
    return (pickle_value){payload << 8 | (uint64_t)tag};
}

/* Fills `error`, unless it tells of something earlier, and returns false. */
bool pickle_fail(struct pickle *pickle, uint64_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* An integer. `bits` is two's complement; what lies above them is all `negative`. */
bool pickle_make_integer(struct pickle *pickle, uint64_t bits, bool negative, pickle_value *value);

/* The texts, with the words as the first. */
bool pickle_texts_init(struct pickle *pickle);

bool pickle_push(struct pickle *pickle, pickle_value value);
bool pickle_push_mark(struct pickle *pickle);
bool pickle_push_empty(struct pickle *pickle, enum pickle_tag tag);
/* Another way to a value comes about: by DUP or from the memo. */
bool pickle_push_again(struct pickle *pickle, pickle_value value);
/* Whether `count` values lie above the last mark. */
bool pickle_has(struct pickle *pickle, size_t count);
/* Takes the last mark away; *first is the value that followed it. */
bool pickle_pop_mark(struct pickle *pickle, size_t *first);
bool pickle_memo_put(struct pickle *pickle, uint64_t index);
bool pickle_memo_get(struct pickle *pickle, uint64_t index);

/* APPENDS, SETITEMS; APPEND, SETITEM; LIST, DICT; the TUPLEs. */
bool pickle_store_marked(struct pickle *pickle, enum pickle_tag tag);
bool pickle_store_some(struct pickle *pickle, size_t count, enum pickle_tag tag);
bool pickle_collect(struct pickle *pickle, enum pickle_tag tag);
bool pickle_make_tuple(struct pickle *pickle, size_t first);

/* Finishes a value that is about to be stored, and gives what is to be stored in its place. */
pickle_value pickle_seal(struct pickle *pickle, pickle_value value, bool in_list);

#endif
