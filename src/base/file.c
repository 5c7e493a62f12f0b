/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Moves files to descriptors above the standard streams, reads files, and checks whether a file may
 * be replaced. Owns a bit set of files that a child of fork() closes. Files with higher numbers
 * than it has stay open there. */
#include "base/file.h"
#include "base/thread/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST (1 << 20)

static atomic_uint_fast64_t kept[MOST / 64]; /* pages that are never touched take no memory */

/* NULL: the number is below 0, or so high that the file stays open in a child. */
static atomic_uint_fast64_t *word_of(int file, uint_fast64_t *bit)
{
    if (file < 0 || file >= MOST)
        return NULL;
    *bit = (uint_fast64_t)1 << file % 64;
    return &kept[file / 64];
}

int file_renumber(int file)
{
    if (file < 0 || file >= FILE_LEAST)
        return file;
    int moved = fcntl(file, F_DUPFD_CLOEXEC, FILE_LEAST), code = errno;
    close(file);
    errno = code;
    return moved;
}

int file_reopen(int file, int flags)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return file_renumber(open(path, flags | O_CLOEXEC));
}

/* process.c has registered its handler before. A child of a process that has not used tarn may use
 * it, and these files. */
static void in_child(void)
{
    if (atomic_load(&process_state) != PROCESS_IS_FORKED)
        return;
    for (int i = 0; i < MOST / 64; i++)
        for (uint_fast64_t word = atomic_load_explicit(&kept[i], memory_order_relaxed); word;
             word &= word - 1)
            (void)close(i * 64 + __builtin_ctzll(word));
}

static void watch_fork(void)
{
    /* Fails only without host memory; then a child does not learn it. */
    (void)pthread_atfork(NULL, NULL, in_child);
}

bool file_read_at(int file, void *to, size_t size, off_t offset)
{
    for (char *at = to; size;) {
        ssize_t got = pread(file, at, size, offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        offset += got;
        size -= (size_t)got;
    }
    return true;
}

bool file_may_be_replaced(const char *path)
{
    static const char magic[] = "/proc/";
    char target[sizeof magic];
    struct stat there;
    ssize_t length = readlink(path, target, sizeof target);
    if (length >= (ssize_t)sizeof magic - 1 && memcmp(target, magic, sizeof magic - 1) == 0)
        return false;
    return stat(path, &there) != 0 || S_ISREG(there.st_mode);
}

void file_keep_from_children(int file)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint_fast64_t bit;
    atomic_uint_fast64_t *word = word_of(file, &bit);
    pthread_once(&once, watch_fork);
    if (word)
        atomic_fetch_or(word, bit);
}

void file_close(int file)
{
    uint_fast64_t bit;
    atomic_uint_fast64_t *word = word_of(file, &bit);
    /* First, so that a child does not close another file with this number. */
    if (word)
        atomic_fetch_and(word, ~bit);
    close(file);
}
