/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The live page: a file in a directory of shared memory in which a process shows its surveys. Its
 * mode is 0400: only its owner can open it, and only to read. Its name is tarn-live.PID, with ".1"
 * and so on if a process of another PID namespace has that number. Its process locks it
 * (F_OFD_SETLK) while it lives: a page without a lock belongs to a dead process.
 *
 * The head is complete before the name exists, and never changes. The survey is written under a
 * sequence, which is odd while it is written. A reader uses a copy only if the sequence was the
 * same even number before and after, and trusts no count in it. */
#ifndef TARN_REPORT_PAGE_H
#define TARN_REPORT_PAGE_H

#include "report/survey.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#define PAGE_MAGIC "tarnlive"
#define PAGE_VERSION 4u
#define PAGE_PREFIX "tarn-live."

struct page_head {
    char magic[8];
    uint32_t version;
    uint32_t size; /* bytes of the page */
    uint64_t pid;  /* in the PID namespace of its process */
    uint64_t interval_ns;
    uint64_t started; /* seconds since 1970 */
    char name[64];    /* given by the program; otherwise the name of its executable */
    char library[16]; /* "0.1.0" */
    char driver[16];
    int32_t rank; /* number among the processes of its job; -1: unknown */
    uint32_t unused;
};

struct page {
    struct page_head head;
    _Atomic uint64_t sequence; /* 0: nothing has been written yet */
    struct survey survey;
};

/* The page of this process. */
struct page_file {
    struct page *page; /* NULL: none */
    int file;
    char path[4096];
    struct stat made; /* identifies the file, whatever has its name later */
};

/* The directory for pages: `wanted`, TARN_LIVE_DIRECTORY, XDG_RUNTIME_DIR or /dev/shm; the first
 * one that is set. */
const char *page_directory(const char *wanted);

/* Creates a page for this process, or for the process `head->pid`, with the given head, except for
 * its first fields. This process has the lock in both cases. TARN_ERROR_SYSTEM: nothing was
 * created. */
tarn_status page_create(const char *directory, const struct page_head *head,
                        struct page_file *file);
/* Writes the used parts of a survey. One thread at a time. */
void page_write(struct page_file *file, const struct survey *survey);
/* Removes the page. A reader that has it open keeps what it has. */
void page_remove(struct page_file *file);
/* Forgets the page in a child of fork(), which must not keep the lock. Calls only close(). */
void page_forget(struct page_file *file);

/* Removes a page of a dead process of this user, or all such pages in a directory. Removes no other
 * file, whatever its name. */
void page_remove_left(const char *path);
void page_sweep(const char *directory);

/* Calls `visit` with the name of each page in a directory. False with errno: the directory cannot
 * be read. */
bool page_each(const char *directory, void (*visit)(void *argument, const char *name),
               void *argument);

/* Whether the page's process lives. */
bool page_is_shown(int file);

#endif
