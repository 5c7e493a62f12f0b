/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Boards. Byte 0 is locked by the exporter, and one byte behind it, chosen at random, by each importer. The page is sealed so that the
 * file cannot shrink under a mapping and, where the kernel can, that no importer writes to it.
 *
 * A child of fork() shares the file descriptions, so it would hold the locks of a parent that has ended. So it closes the files, and what is
 * mapped is mapped by other descriptions. Owns no data. */
#include "memory/share/board.h"
#include "base/cancel.h"
#include "base/file.h"
#include "base/status.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BOARD_MAGIC UINT64_C(0x6472616f62727431) /* "1trboard" as a machine of the same byte order reads it */
#define BOARD_BYTES ((size_t)4096)

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static tarn_status refused(const char *call)
{
    return failed(TARN_ERROR_SYSTEM, "%s of the page that a pool's exporter and importers share: %s", call,
                  strerror(errno));
}

/* The same file by a description of its own, which locks need; or -1 with errno. */
static int open_anew(int file, int flags)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return file_apart(open(path, flags | O_CLOEXEC));
}

static struct flock lock_at(short type, uint64_t start, uint64_t bytes)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
}

static void *map_page(int file, int protection)
{
    void *page = mmap(NULL, BOARD_BYTES, protection, MAP_SHARED, file, 0);
    return page == MAP_FAILED ? NULL : page;
}

static tarn_status fill_in(struct board *board)
{
    struct flock lock = lock_at(F_WRLCK, 0, 1);
    if (ftruncate(board->file, (off_t)BOARD_BYTES))
        return refused("ftruncate");
    if (!(board->words = map_page(board->file, PROT_READ | PROT_WRITE)))
        return refused("mmap");
    board->words->magic = BOARD_MAGIC;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fcntl(board->file, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) && fcntl(board->file, F_ADD_SEALS, seals))
        return refused("F_ADD_SEALS");
    if ((board->own = open_anew(board->file, O_RDWR)) < 0)
        return refused("open in /proc/self/fd");
    file_keep_from_children(board->own);
    return fcntl(board->own, F_OFD_SETLK, &lock) ? refused("F_OFD_SETLK") : TARN_OK;
}

tarn_status board_create(struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    *board = (struct board){.own = -1};
    board->file = file_apart(memfd_create("tarn-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    file_keep_from_children(board->file);
    tarn_status status = board->file < 0 ? refused("memfd_create") : fill_in(board);
    if (status)
        board_leave(board);
    return status;
}

/* Locks a byte that no other importer is likely to have. */
static tarn_status enter_name(const struct board *board)
{
    uint64_t name = 0;
    if (getrandom(&name, sizeof name, 0) != (ssize_t)sizeof name)
        name = (uint64_t)getpid() << 20 ^ (uintptr_t)board->words;
    struct flock lock = lock_at(F_RDLCK, 1 + (name >> 2), 1);
    file_keep_from_children(board->own);
    return fcntl(board->own, F_OFD_SETLK, &lock) ? refused("F_OFD_SETLK") : TARN_OK;
}

tarn_status board_join(int file, struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct statfs store; /* a touch of huge pages ends the process when there are none */
    int seals = fcntl(file, F_GET_SEALS);
    *board = (struct board){.file = -1, .own = -1};
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstatfs(file, &store) || store.f_type != TMPFS_MAGIC ||
        lseek(file, 0, SEEK_END) < (off_t)BOARD_BYTES)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the file that came with a pool's share is not a page of an exporter");
    if ((board->own = open_anew(file, O_RDONLY)) < 0)
        return refused("open in /proc/self/fd");
    tarn_status status = TARN_OK;
    if (!(board->words = map_page(file, PROT_READ))) /* not `own`: a mapping keeps a description, and its locks */
        status = refused("mmap");
    else if (board->words->magic != BOARD_MAGIC)
        status =
            failed(TARN_ERROR_INVALID_ARGUMENT, "the page that came with a pool's share does not say what it should");
    else
        status = enter_name(board);
    if (status)
        board_leave(board);
    return status;
}

void board_leave(struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (board->words)
        (void)munmap(board->words, BOARD_BYTES);
    if (board->own >= 0) {
        struct flock none = lock_at(F_UNLCK, 0, 0); /* of the description, which a child may have nonetheless */
        (void)fcntl(board->own, F_OFD_SETLK, &none);
        file_close(board->own);
    }
    if (board->file >= 0)
        file_close(board->file);
    *board = (struct board){.file = -1, .own = -1};
}

bool board_has_exporter(const struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct flock lock = lock_at(F_RDLCK, 0, 1);
    return fcntl(board->own, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Counts the locks of others in [start, end): the kernel gives one, whichever, and the rest is to the left and to the right of it. */
static tarn_status count_locks(int file, uint64_t start, uint64_t end, size_t *count)
{
    while (start < end) {
        struct flock lock = lock_at(F_WRLCK, start, end - start);
        if (fcntl(file, F_OFD_GETLK, &lock))
            return refused("F_OFD_GETLK");
        if (lock.l_type == F_UNLCK)
            return TARN_OK;
        ++*count;
        tarn_status status = count_locks(file, start, (uint64_t)lock.l_start, count);
        if (status || lock.l_len <= 0)
            return status;
        start = (uint64_t)lock.l_start + (uint64_t)lock.l_len;
    }
    return TARN_OK;
}

tarn_status board_importers(const struct board *board, size_t *count)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    *count = 0;
    return count_locks(board->own, 1, (uint64_t)INT64_MAX, count);
}
