/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "launch/books.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_open(const struct books *books, const char *log)
{
    for (size_t i = 0; i < books->count; i++)
        if (strcmp(books->list[i].log, log) == 0)
            return true;
    return false;
}

/* NULL where it is not a book, or not one yet; then *empty says whether the file has nothing in it. */
static struct book *map(const char *path, bool *empty)
{
    struct stat about = {0};
    struct book *book = MAP_FAILED;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    *empty = fstat(file, &about) == 0 && about.st_size == 0;
    if (!*empty && (size_t)about.st_size >= sizeof *book)
        book = mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (book == MAP_FAILED)
        return NULL;
    if (book->magic == BOOK_MAGIC && book->version == BOOK_VERSION && book->devices <= BOOK_DEVICES &&
        atomic_load(&book->libraries) <= BOOK_LIBRARIES && atomic_load(&book->sites) <= BOOK_SITES)
        return book;
    munmap(book, sizeof *book);
    return NULL;
}

static void look_at(struct books *books, const char *folder, const char *name)
{
    char *path = NULL, *log = NULL;
    bool empty = false;
    int stem = (int)(strlen(name) - strlen(".book"));
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return;
    if (asprintf(&log, "%s/%.*s.log", folder, stem, name) >= 0 && !is_open(books, log)) {
        struct book *book = books->count < BOOKS_MOST ? map(path, &empty) : NULL;
        books->left_out += books->count == BOOKS_MOST;
        books->empty += empty;
        if (book) {
            struct opened_book *opened = &books->list[books->count++];
            *opened = (struct opened_book){.book = book, .log = log};
            log = NULL;
            memset(opened->least_unseen, 0xff, sizeof opened->least_unseen);
            memset(opened->last_unseen, 0xff, sizeof opened->last_unseen);
        }
    }
    free(log);
    free(path);
}

void books_look(struct books *books, const char *folder)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;
    books->left_out = books->empty = 0;
    while (entries && (entry = readdir(entries))) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".book") == 0)
            look_at(books, folder, entry->d_name);
    }
    if (entries)
        closedir(entries);
}

bool books_process_lives(const struct book *book)
{
    char path[40], text[512] = "";
    if (kill((pid_t)book->process, 0) && errno != EPERM)
        return false;
    snprintf(path, sizeof path, "/proc/%u/stat", book->process);
    FILE *in = fopen(path, "re");
    if (!in && errno == ENOENT)
        return access("/proc/self/stat", R_OK) != 0; /* it went just now, if there is /proc at all */
    size_t length = in ? fread(text, 1, sizeof text - 1, in) : 0;
    if (in)
        fclose(in);
    const char *state = length ? strrchr(text, ')') : NULL; /* behind the name, which may have anything in it */
    return !state || (strncmp(state, ") Z", 3) != 0 && strncmp(state, ") X", 3) != 0);
}

uint32_t books_libraries(const struct book *book)
{
    uint32_t count = atomic_load(&book->libraries);
    return count < BOOK_LIBRARIES ? count : BOOK_LIBRARIES;
}

const char *books_library_name(const struct book *book, uint32_t library)
{
    const char *path = book->library[library].path, *slash = strrchr(path, '/');
    return !path[0] ? "(code of no file)" : slash ? slash + 1 : path;
}

/* A peak with what one thread had beyond it, and what all have now. */
static uint64_t peak_of(uint64_t peak, uint64_t settled, int64_t high, uint64_t live)
{
    uint64_t reached = book_positive(settled + (uint64_t)high);
    peak = reached > peak ? reached : peak;
    return live > peak ? live : peak;
}

struct books_sums books_account(const struct book *book, unsigned device, uint32_t library, unsigned kind)
{
    const struct book_account *account = &book->account[device][library][kind];
    struct book_unsettled desks = book_unsettled(book, device, library, kind);
    uint64_t settled = atomic_load(&account->live);
    struct books_sums sums = {.live = book_positive(settled + (uint64_t)desks.live),
                              .made = atomic_load(&account->made) + desks.made,
                              .made_bytes = atomic_load(&account->made_bytes) + desks.made_bytes};
    sums.peak = peak_of(atomic_load(&account->peak), settled, desks.high, sums.live);
    return sums;
}

struct books_sums books_holder(const struct book *book, unsigned device, uint32_t library)
{
    const struct book_holder *holder = &book->holder[device][library];
    struct book_unsettled desks = book_unsettled(book, device, library, RUN_KINDS);
    uint64_t settled = atomic_load(&holder->live);
    struct books_sums sums = {
        .live = book_positive(settled + (uint64_t)desks.live), .made = desks.made, .made_bytes = desks.made_bytes};
    sums.peak = peak_of(atomic_load(&holder->peak), settled, desks.high, sums.live);
    for (unsigned kind = 0; kind < RUN_KINDS; kind++)
        if (run_kind_counts(kind)) {
            sums.made += atomic_load(&book->account[device][library][kind].made);
            sums.made_bytes += atomic_load(&book->account[device][library][kind].made_bytes);
        }
    return sums;
}

struct books_device books_device_sums(const struct book *book, unsigned device)
{
    const struct book_device *from = &book->device[device];
    struct book_unsettled desks = book_unsettled(book, device, BOOK_LIBRARIES, RUN_KINDS);
    uint64_t settled = atomic_load(&from->used);
    struct books_device sums = {
        .used = settled, .peak = atomic_load(&from->peak), .refused = atomic_load(&from->refused)};
    if (!book->exact) {
        sums.used = book_positive(settled + (uint64_t)desks.live);
        sums.peak = peak_of(sums.peak, settled, desks.high, sums.used);
    }
    uint32_t libraries = books_libraries(book);
    for (uint32_t i = 0; i < libraries; i++) {
        struct books_sums holder = books_holder(book, device, i);
        sums.made += holder.made;
        sums.made_bytes += holder.made_bytes;
    }
    uint64_t blocks = book_positive(atomic_load(&from->blocks) + (uint64_t)desks.blocks);
    sums.blocks = blocks < sums.made ? blocks : sums.made;
    return sums;
}

void books_close(struct books *books)
{
    for (size_t i = 0; i < books->count; i++) {
        munmap(books->list[i].book, sizeof *books->list[i].book);
        free(books->list[i].log);
    }
    books->count = 0;
}
