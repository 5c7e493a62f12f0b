/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is held: a file in memory for each path, until the program ends. Children of fork()
 * have it too. */
#include "input/once.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART ((size_t)256 << 10)

static struct held {
    struct held *next;
    const char *path; /* the caller's */
    int file;
} * first;

static const struct held *find(const char *path)
{
    const struct held *held = first;
    while (held && strcmp(held->path, path) != 0)
        held = held->next;
    return held;
}

static int open_plain(const char *path)
{
    return strcmp(path, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                  : open(path, O_RDONLY | O_CLOEXEC);
}

/* The rest of a file, in memory; -1 with errno. */
static int copy(int from)
{
    char *part = malloc(PART);
    int file = part ? memfd_create("tarn-input", MFD_CLOEXEC) : -1;
    ssize_t got = 1;
    while (file >= 0 && got != 0) {
        got = read(from, part, PART);
        if ((got < 0 && errno != EINTR) || (got > 0 && !file_write(file, part, (size_t)got))) {
            int reason = errno;
            close(file);
            file = -1;
            errno = reason;
        }
    }
    free(part);
    return file;
}

/* Standard input that is a file, and was not read from yet, is held as it is; a part of one, and
 * all else, in memory. */
bool once_hold(const char *path, char *error, size_t size)
{
    struct stat about;
    int from = find(path) ? -1 : open_plain(path), file = -1;
    bool standard = strcmp(path, "-") == 0;
    if (from < 0 || fstat(from, &about) || S_ISDIR(about.st_mode) ||
        (S_ISREG(about.st_mode) && !standard)) {
        if (from >= 0)
            close(from);
        return true;
    }
    bool whole = S_ISREG(about.st_mode) && lseek(from, 0, SEEK_CUR) == 0;
    struct held *held = malloc(sizeof *held);
    if (held)
        file = whole ? from : copy(from);
    if (file < 0)
        snprintf(error, size, "cannot be read into memory: %s", strerror(held ? errno : ENOMEM));
    if (file != from)
        close(from);
    if (file < 0) {
        free(held);
        return false;
    }
    *held = (struct held){.next = first, .path = path, .file = file};
    first = held;
    return true;
}

/* Opens a file. If it is held, it is opened once more through /proc, so that the new descriptor has
 * a position of its own; where there is no /proc, both share one. */
int once_open(const char *path)
{
    const struct held *held = find(path);
    char name[32];
    if (!held)
        return open_plain(path);
    snprintf(name, sizeof name, "/proc/self/fd/%d", held->file);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file >= 0)
        return file;
    file = fcntl(held->file, F_DUPFD_CLOEXEC, 0);
    if (file >= 0)
        (void)lseek(file, 0, SEEK_SET);
    return file;
}
