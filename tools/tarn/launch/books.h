/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The books of a run: one per process that used the driver. */
#ifndef TOOLS_BOOKS_H
#define TOOLS_BOOKS_H

#include <stddef.h>

#include "run/book.h"

enum { BOOKS_MOST = 512 };

/* The book of a process. The process can write anything into it at any time, so only books_read()
 * reads it. */
struct opened_book {
    /* A copy: its counts fit its lists, its texts end and have no control characters; figures
     * may be any. */
    struct book *book;
    int file;                            /* the process's */
    char *log;                           /* the path of its log; the file may be missing */
    uint64_t least_unseen[BOOK_DEVICES]; /* bytes; UINT64_MAX: never sampled */
    uint64_t last_unseen[BOOK_DEVICES];
    /* By exec() the process became another program, whose book is in the list too. What the process
     * had before has gone. */
    bool replaced;
};

struct books {
    struct opened_book list[BOOKS_MOST];
    size_t count;
    size_t left_out; /* beyond the most */
    size_t empty;    /* of processes whose book found no room */
};

/* Opens what is new in the folder, and reads it. Called again and again; what is not whole yet is
 * tried again. */
void books_look(struct books *books, const char *folder);
/* books_read() reads a book again. books_read_devices() reads only its head and its devices, which
 * costs little. If the process has cut the file off, what was read before stays. */
void books_read(struct opened_book *opened);
void books_read_devices(struct opened_book *opened);
/* Write into the process's book what the process waits for: the bytes of a device that no hook saw;
 * that a look has taken place. */
void books_write_residue(struct opened_book *opened, unsigned device, uint64_t bytes);
void books_write_looked(struct opened_book *opened, unsigned device);
void books_close(struct books *books);

/* True if the book's process runs, and has no later book. A process that has ended does not run,
 * even if its parent has not waited for it yet. */
bool books_process_lives(const struct opened_book *opened);
/* True if the process went through exit(), or became another program. */
bool books_has_ended(const struct opened_book *opened);

/* What the lists of a book say, summed up. */
struct books_sums {
    uint64_t live, peak, made, made_bytes; /* bytes, bytes, allocations, bytes */
};
struct books_device {
    uint64_t used, peak;       /* bytes, of the kinds that take memory of the device */
    uint64_t made, made_bytes; /* of these kinds */
    uint64_t blocks;           /* live */
    uint64_t refused;
};
uint32_t books_libraries(const struct book *book);
const char *books_library_name(const struct book *book, uint32_t library);
/* The sums of one library, device and kind. */
struct books_sums books_account(const struct book *book, unsigned device, uint32_t library,
                                unsigned kind);
/* The sums of a library over all kinds that take memory of the device. */
struct books_sums books_holder(const struct book *book, unsigned device, uint32_t library);
struct books_device books_device_sums(const struct book *book, unsigned device);

#endif
