/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Boards. The exporter locks byte 0 of the file for writing. Each importer locks one later byte,
 * chosen by its PID namespace and PID, for reading. The file is sealed, so that it cannot shrink
 * under a mapping and, if the kernel allows it, no importer can write. Files are sent open for
 * reading only.
 *
 * An importer is not trusted. A process of the exporter's user can still open the file for writing,
 * and lock any byte: so it can count more than once, or keep byte 0 locked after the exporter has
 * ended. So importers also watch the exporter's process.
 *
 * A child of fork() shares file descriptions, and would keep the locks of a parent that has ended.
 * So the child closes the files, and mappings use other descriptions. Owns no data. */
#include "memory/share/board.h"
#include "base/file.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "record/ticks.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BOARD_MAGIC UINT64_C(0x6472616f62727431) /* "1trboard" in this machine's byte order */
#define BOARD_BYTES ((size_t)4096)

enum { TRIES = 8 };

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static tarn_status refused(const char *call)
{
    return failed(TARN_ERROR_SYSTEM,
                  "%s of the page that a pool's exporter and importers share: %s", call,
                  strerror(errno));
}

static struct flock lock_at(short type, uint64_t start, uint64_t bytes)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)start, .l_len = (off_t)bytes};
}

/* The PID namespace of this process; 0: unknown. */
static uint64_t process_space(void)
{
    struct stat about;
    return stat("/proc/self/ns/pid", &about) == 0 ? (uint64_t)about.st_ino : 0;
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
    board->words = map_page(board->file, PROT_READ | PROT_WRITE);
    if (!board->words)
        return refused("mmap");
    board->words->magic = BOARD_MAGIC;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    board->words->process = (uint64_t)getpid();
    board->words->space = process_space();
    if (fcntl(board->file, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) &&
        fcntl(board->file, F_ADD_SEALS, seals))
        return refused("F_ADD_SEALS");
    board->own = file_reopen(board->file, O_RDWR);
    if (board->own < 0)
        return refused("open in /proc/self/fd");
    file_keep_from_children(board->own);
    if (fchmod(board->own, 0444))
        return refused("fchmod");
    int to_send = file_reopen(board->file, O_RDONLY);
    if (to_send < 0)
        return refused("open in /proc/self/fd");
    file_close(board->file);
    board->file = to_send;
    file_keep_from_children(board->file);
    return fcntl(board->own, F_OFD_SETLK, &lock) ? refused("F_OFD_SETLK") : TARN_OK;
}

tarn_status board_create(struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    *board = (struct board){.own = -1, .process = -1};
    board->file = file_renumber(memfd_create("tarn-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    file_keep_from_children(board->file);
    tarn_status status = board->file < 0 ? refused("memfd_create") : fill_in(board);
    if (status)
        board_leave(board);
    return status;
}

/* Locks this process's byte; if another process holds it, a random one. */
static tarn_status enter_name(const struct board *board)
{
    uint64_t name = process_space() << 22 ^ (uint64_t)getpid();
    file_keep_from_children(board->own);
    for (int i = 0; i < TRIES; i++) {
        struct flock lock = lock_at(F_RDLCK, 1 + (name & (UINT64_MAX >> 2)), 1);
        if (fcntl(board->own, F_OFD_SETLK, &lock) == 0)
            return TARN_OK;
        if (errno != EAGAIN && errno != EACCES)
            break;
        if (getrandom(&name, sizeof name, 0) != (ssize_t)sizeof name)
            name += (uintptr_t)board->words;
    }
    return refused("F_OFD_SETLK");
}

/* Opens a pidfd of the exporter's process, which no other process can pretend to be. */
static void watch_exporter(struct board *board)
{
    /* the exporter may still write */
    uint64_t process = board->words->process, space = board->words->space;
    if (!space || space != process_space())
        return;
    board->process = file_renumber((int)syscall(SYS_pidfd_open, (pid_t)process, 0));
    board->gone = board->process < 0 && errno == ESRCH;
    file_keep_from_children(board->process);
}

tarn_status board_join(int file, struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct statfs store; /* a mapping of huge pages could end the process when none is left */
    int seals = fcntl(file, F_GET_SEALS);
    *board = (struct board){.file = -1, .own = -1, .process = -1};
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstatfs(file, &store) ||
        store.f_type != TMPFS_MAGIC || lseek(file, 0, SEEK_END) < (off_t)BOARD_BYTES)
        return failed(TARN_ERROR_INVALID_ARGUMENT,
                      "the file that came with a pool's share is not a page of an exporter");
    board->own = file_reopen(file, O_RDONLY);
    if (board->own < 0)
        return refused("open in /proc/self/fd");
    tarn_status status = TARN_OK;
    board->words = map_page(file, PROT_READ);
    if (!board->words)
        /* not of `own`: a mapping keeps its description, and so the locks */
        status = refused("mmap");
    else if (board->words->magic != BOARD_MAGIC)
        status = failed(TARN_ERROR_INVALID_ARGUMENT,
                        "the page that came with a pool's share does not say what it should");
    else
        status = enter_name(board);
    if (status)
        board_leave(board);
    else
        watch_exporter(board);
    return status;
}

void board_leave(struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    if (board->words)
        (void)munmap(board->words, BOARD_BYTES);
    if (board->own >= 0) {
        /* Unlocks the description, which a child may share. */
        struct flock none = lock_at(F_UNLCK, 0, 0);
        (void)fcntl(board->own, F_OFD_SETLK, &none);
        file_close(board->own);
    }
    if (board->file >= 0)
        file_close(board->file);
    if (board->process >= 0)
        file_close(board->process);
    *board = (struct board){.file = -1, .own = -1, .process = -1};
}

bool board_has_exporter(const struct board *board)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct flock lock = lock_at(F_RDLCK, 0, 1);
    struct pollfd process = {.fd = board->process, .events = POLLIN};
    if (board->gone || (board->process >= 0 && poll(&process, 1, 0) > 0))
        return false;
    return fcntl(board->own, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Bytes of the file that may have more locks. */
struct unsearched {
    uint64_t start, end;
};

/* Counts the locks of other processes. The kernel reports any one lock in a range. The search
 * continues to the left and the right of it, so each lock found leaves one range more. The first
 * question is asked however late it is, because a count of 0 says that there is no importer. */
tarn_status board_importers(const struct board *board, size_t *count)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct unsearched ranges[BOARD_IMPORTERS + 2] = {{1, (uint64_t)INT64_MAX}};
    uint64_t deadline = ticks_of_system() + BOARD_COUNT_NS;
    *count = 0;
    for (size_t left = 1;
         left && *count < BOARD_IMPORTERS && (!*count || ticks_of_system() < deadline);) {
        struct unsearched range = ranges[--left];
        struct flock lock = lock_at(F_WRLCK, range.start, range.end - range.start);
        if (fcntl(board->own, F_OFD_GETLK, &lock))
            return refused("F_OFD_GETLK");
        if (lock.l_type == F_UNLCK)
            continue;
        ++*count;
        uint64_t start = (uint64_t)lock.l_start,
                 end = lock.l_len > 0 ? start + (uint64_t)lock.l_len : range.end;
        if (range.start < start)
            ranges[left++] = (struct unsearched){range.start, start};
        if (end < range.end)
            ranges[left++] = (struct unsearched){end, range.end};
    }
    return TARN_OK;
}
