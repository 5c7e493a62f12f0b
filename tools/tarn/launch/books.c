/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

#include "launch/books.h"

#include <dirent.h>
#include <fcntl.h>
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

/* NULL where it is no book, or not one yet. */
static struct book *map(const char *path)
{
    struct stat about;
    struct book *book = MAP_FAILED;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return NULL;
    if (fstat(file, &about) == 0 && (size_t)about.st_size >= sizeof *book)
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
    int stem = (int)(strlen(name) - strlen(".book"));
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return;
    if (asprintf(&log, "%s/%.*s.log", folder, stem, name) >= 0 && !is_open(books, log)) {
        struct book *book = books->count < BOOKS_MOST ? map(path) : NULL;
        books->left_out += books->count == BOOKS_MOST;
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
    books->left_out = 0;
    while (entries && (entry = readdir(entries))) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".book") == 0)
            look_at(books, folder, entry->d_name);
    }
    if (entries)
        closedir(entries);
}

void books_close(struct books *books)
{
    for (size_t i = 0; i < books->count; i++) {
        munmap(books->list[i].book, sizeof *books->list[i].book);
        free(books->list[i].log);
    }
    books->count = 0;
}
