/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The books of a run: one per process that used the driver. */
#ifndef TOOLS_BOOKS_H
#define TOOLS_BOOKS_H

#include <stddef.h>

#include "run/book.h"

enum { BOOKS_MOST = 512 };

struct opened_book {
    struct book *book;                   /* mapped, shared with its process */
    char *log;                           /* the path of its log, which need not be there */
    uint64_t least_unseen[BOOK_DEVICES]; /* bytes; UINT64_MAX: never sampled */
    uint64_t last_unseen[BOOK_DEVICES];
};

struct books {
    struct opened_book list[BOOKS_MOST];
    size_t count;
    size_t left_out; /* beyond the most */
};

/* Opens what is new in the folder. Called again and again; what is not whole yet is tried again. */
void books_look(struct books *books, const char *folder);
void books_close(struct books *books);

#endif
