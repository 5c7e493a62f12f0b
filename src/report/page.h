/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The live page: a file in a directory of shared memory in which a process shows its surveys, and
 * who may see it. It has mode 0400, so that its owner alone can open it, and only to read; is named
 * tarn-live.PID, with ".1" and so on behind it where another PID namespace has a process of that
 * number, and is locked (F_OFD_SETLK) by its process as long as that lives: a page without a lock
 * is one that a dead process left.
 *
 * The head never changes once the name is there. The survey is written under a sequence: odd while
 * it is written. A reader takes what it copied between two equal even numbers, and trusts no count
 * in it. */
#ifndef TARN_REPORT_PAGE_H
#define TARN_REPORT_PAGE_H

#include "report/survey.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define PAGE_MAGIC "tarnlive"
#define PAGE_VERSION 3u
#define PAGE_PREFIX "tarn-live."

struct page_head {
    char magic[8];
    uint32_t version;
    uint32_t size; /* bytes of the page */
    uint64_t pid;  /* in the namespace of its process */
    uint64_t interval_ns;
    uint64_t started; /* seconds since 1970 */
    char name[64];    /* that the program was given, or else that of its executable */
    char library[16]; /* "0.1.0" */
    char driver[16];
    int32_t rank; /* among the processes of its job; -1: none is known */
    uint32_t unused;
};

struct page {
    struct page_head head;
    _Atomic uint64_t sequence; /* 0: nothing was written yet */
    struct survey survey;
};

/* A page that this process shows. */
struct page_file {
    struct page *page; /* NULL: none */
    int file;
    char path[4096];
    struct stat made; /* which file it is, whatever its name means later */
};

/* The directory where pages are: `wanted`, or else TARN_LIVE_DIRECTORY, XDG_RUNTIME_DIR, or
 * /dev/shm: the first that is set to something. */
const char *page_directory(const char *wanted);

/* Makes the page of this process, or of the one whose `pid` the head has, with the head given,
 * except for its first fields. The lock is this process's either way. TARN_ERROR_SYSTEM, and
 * nothing is left behind. */
tarn_status page_create(const char *directory, const struct page_head *head,
                        struct page_file *file);
/* Writes the parts of a survey that are in use. By one thread at a time. */
void page_write(struct page_file *file, const struct survey *survey);
/* Takes the page away. A reader that has it open goes on with what it has. */
void page_remove(struct page_file *file);
/* The same for a child of fork(), which has no page and must not have the lock. Calls close() and
 * nothing else. */
void page_forget(struct page_file *file);

/* Removes a page that a dead process of this user has left, or all in a directory. Nothing else
 * goes, whatever its name. */
void page_remove_left(const char *path);
void page_sweep(const char *directory);

/* Calls `visit` with the name of each page in a directory. False, with errno, where that cannot be
 * read. */
bool page_each(const char *directory, void (*visit)(void *argument, const char *name),
               void *argument);

/* Whether the process whose page it is lives still. */
bool page_is_shown(int file);

#endif
