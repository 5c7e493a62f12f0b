/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Files of ours among the caller's. */
#ifndef TARN_BASE_FILE_H
#define TARN_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* The least number that a file of ours may have: where a program has closed its standard streams,
 * the system would give one of theirs, and what the program then writes as a message would go into
 * device memory, or into a report. */
enum { FILE_LEAST = 3 };

/* Takes over an open file, or -1: gives it under a number that it may have, closed by exec. -1 with
 * errno where it was that, or where there is no number left; then it is closed. */
int file_renumber(int file);

/* From now on a child of fork() that cannot use tarn closes the file: otherwise it would keep what
 * a file alone keeps, such as memory of a device or a lock. Without a lock, since a fork may come
 * at any moment. Such a file is closed by file_close(). */
void file_keep_from_children(int file);
void file_close(int file);

/* Reads all of a part of a file. False, with a part of it read, where the file ends before, or
 * cannot be read. */
bool file_read_at(int file, void *to, size_t size, off_t offset);

/* Whether a file of ours may take the place of what a path names: nothing, or a regular file. A
 * link into /proc is kept whatever it leads to: as root, a program could replace /dev/stdout for
 * the whole machine. */
bool file_may_be_replaced(const char *path);

#endif
