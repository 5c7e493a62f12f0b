/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Files of tarn among those of the program. */
#ifndef TARN_BASE_FILE_H
#define TARN_BASE_FILE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

/* The least descriptor of a file of tarn. If a program has closed a standard stream, the system
 * would give tarn's file that number, and messages of the program would go into device memory, or
 * into a report. */
enum { FILE_LEAST = 3 };

/* Takes over an open file, and returns it with an allowed number and close-on-exec. -1 with errno
 * if `file` is -1, or if no number is left; then it is closed. */
int file_renumber(int file);

/* Opens an open file again, by /proc: the new open file has a position, flags and locks of its own,
 * and an allowed number. -1 with errno. */
int file_reopen(int file, int flags);

/* Makes children of fork() that cannot use tarn close the file. Otherwise they would keep what the
 * file keeps, such as device memory or a lock. Takes no lock, since a fork may come at any moment.
 * Close such a file by file_close(). */
void file_keep_from_children(int file);
void file_close(int file);

/* Reads a part of a file. False if the file ends before, or cannot be read; then a part may have
 * been read. */
bool file_read_at(int file, void *to, size_t size, off_t offset);

/* Writes all of it. False with errno; then a part may have been written. */
static inline bool file_write(int file, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        ssize_t written = write(file, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        at += written;
        size -= (size_t)written;
    }
    return true;
}

/* Whether a file of tarn may replace what a path names: nothing, or a regular file. A link into
 * /proc is never replaced: as root, a program could replace /dev/stdout for the whole machine. */
bool file_may_be_replaced(const char *path);

#endif
