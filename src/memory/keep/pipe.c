/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* The pipe by which an owner sees whether anybody has the process's devices open. The process, and
 * each child that it forks, holds one end, and the owner has the other. The pipe is there before
 * the process asks for a pool, because a child that is forked before, or meanwhile, has the devices
 * too. A child that executes another program lets go of both. Owns both ends, which stay open as
 * long as the process lives: all its pools have one pipe. */
#include "base/file.h"
#include "base/status.h"
#include "base/thread/cancel.h"
#include "base/variable.h"
#include "memory/keep/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static mutex pipe_lock = MUTEX_INITIALIZER(LOCK_LEAF); /* of the others */
static int seen = -1, held = -1;                       /* the owner's end, and the process's */
static ino_t number;                                   /* of the pipe */
static pid_t maker;

static bool is_end(int file)
{
    struct stat about;
    return file >= 0 && fstat(file, &about) == 0 && S_ISFIFO(about.st_mode) &&
           about.st_ino == number;
}

/* True if this process made the pipe and both ends are open. A program may have closed descriptors
 * that it did not know, and files of its own may have their numbers now. */
static bool is_whole_locked(void)
{
    return maker == getpid() && is_end(seen) && is_end(held);
}

/* Makes the pipe. If this process made the pipe before and only `seen` was closed, the old `held`
 * stays open: it holds the pools that the process already has. */
static bool make_locked(void)
{
    int ends[2];
    struct stat about;
    if (maker && is_end(seen))
        close(seen);
    if (maker && maker != getpid() && is_end(held))
        close(held);
    seen = held = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    seen = file_renumber(ends[0]);
    held = file_renumber(ends[1]);
    maker = getpid();
    if (seen >= 0 && held >= 0 && fstat(seen, &about) == 0) {
        number = about.st_ino;
        return true;
    }
    int code = errno;
    if (seen >= 0)
        close(seen);
    if (held >= 0)
        close(held);
    seen = held = -1;
    errno = code;
    return false;
}

tarn_status keep_pipe(int *file)
{
    mutex_lock(&pipe_lock);
    bool whole = is_whole_locked() || make_locked();
    int code = errno;
    *file = seen;
    mutex_unlock(&pipe_lock);
    return whole ? TARN_OK
                 : failed(TARN_ERROR_SYSTEM,
                          "no pipe for the owner of kept pools, which tells it when this process "
                          "ends: %s",
                          strerror(code));
}

/* If no pipe can be made, tarn_pool_keep() tries again, and says why not if the reason lasts. If it
 * does not, a child that was forked before that call does not hold the pool. */
void keep_begin(void)
{
    struct cancel cancel CANCEL_RESTORED = cancel_off();
    struct error_before before;
    int file;
    const char *named = variable_get("TARN_KEEP");
    if (!named)
        return;
    error_attempt_begin(&before);
    (void)keep_pipe(&file);
    error_attempt_end(&before, TARN_OK);
}
