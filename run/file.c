/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Files that the shim keeps open. They have high numbers, which few programs use. A program that
 * closes all numbers closes them too, and may then have another file at the same number. So a
 * number is used only while it still leads to the same file. */
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_LEAST = 256 };

static int renumber(int file)
{
    int moved = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, FILE_LEAST);
    if (moved >= 0)
        close(file);
    return moved >= 0 ? moved : file;
}

static bool is_ours(const struct own_file *own, int file)
{
    struct stat about;
    return file >= 0 && fstat(file, &about) == 0 && about.st_dev == own->device &&
           about.st_ino == own->node;
}

int own_file_open(struct own_file *own, const char *path, int flags)
{
    struct stat about;
    *own = (struct own_file){.number = -1};
    int file = renumber(open(path, flags | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (file < 0)
        return -1;
    own->path = fstat(file, &about) ? NULL : strdup(path);
    if (!own->path) {
        close(file);
        return -1;
    }
    own->device = about.st_dev;
    own->node = about.st_ino;
    own->number = file;
    return file;
}

int own_file(struct own_file *own)
{
    if (is_ours(own, own->number))
        return own->number;
    int file = own->path ? renumber(open(own->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC)) : -1;
    if (file >= 0 && !is_ours(own, file)) {
        close(file);
        file = -1;
    }
    return own->number = file;
}

bool file_reserve(int file, uint64_t at, uint64_t bytes)
{
    int code;
    do
        code = posix_fallocate(file, (off_t)at, (off_t)bytes);
    while (code == EINTR); /* in memory, a signal interrupts the call */
    return code == 0;
}

/* The path is not freed: a child of fork() must not call free(). */
void own_file_close(struct own_file *own)
{
    if (is_ours(own, own->number))
        close(own->number);
    own->number = -1;
    own->path = NULL;
}
